"""What a piece of work in a transaction may do with the database: so much, and nothing that only one database has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

Parameters = Mapping[str, Any] | Sequence[Any]


class Rows(Protocol):
    """The result of one statement. Rows are tuples, in the order of the columns."""

    @property
    def rowcount(self) -> int:
        """How many rows were changed."""
        ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class Db(Protocol):
    """One transaction, in the thread of the writer."""

    def execute(self, statement: str, values: Parameters = ..., /) -> Rows: ...

    def executemany(self, statement: str, values: Iterable[Parameters], /) -> Rows: ...
