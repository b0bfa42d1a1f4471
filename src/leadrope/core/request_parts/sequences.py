"""Lists of a caller: any sequence is taken, but never a bare text, which Python counts as a sequence of letters."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Protocol, TypeVar

from leadrope import errors

T_co = TypeVar("T_co", covariant=True)


class SequenceNotStr(Protocol[T_co]):
    """A list, a tuple or another sequence, and for a type checker no `str`.

    `str.__contains__` takes only a `str`, so that a `str` does not fit.
    """

    def __contains__(self, value: object, /) -> bool: ...
    def __getitem__(self, index: int, /) -> T_co: ...
    def __iter__(self) -> Iterator[T_co]: ...
    def __len__(self) -> int: ...


def as_tuple(name: str, value: Any) -> Any:
    """The items of the keyword `name`. What is not a collection is left for the check of types."""
    if isinstance(value, str):
        example = repr(value) if len(value) < 60 else "…"
        raise errors.BadValue(name, "is a text, not a list", hint=f"Write {name}=[{example}].")
    return tuple(value) if isinstance(value, Collection) and not isinstance(value, bytes | dict) else value
