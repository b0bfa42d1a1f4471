"""How two layers' values of one rule become one: always the stricter. Knows neither calls nor the rules' meaning.

Every merge is associative, commutative and idempotent, and what nobody said (`bottom`) changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

Entries = tuple[str, ...]


def _sorted(entries: Iterable[str]) -> Entries:
    return tuple(sorted({entry.strip() for entry in entries}))


NO_LIMIT = "none"
"""How a layer says that it sets no limit."""


class Least:
    """The smallest number; None is no limit."""

    bottom: ClassVar[Any] = None
    merged_as = "the smallest"
    written: ClassVar[str] = "Positive | NoLimit"
    """The type of a value in a layer, in the words of schema.py."""
    merged: ClassVar[str] = "int | None"
    """The type of the merged value."""

    def canonical(self, value: Any) -> Any:
        return None if value == NO_LIMIT else value

    def merge(self, one: Any, other: Any) -> Any:
        return min((value for value in (one, other) if value is not None), default=None)

    def entries(self, value: Any) -> tuple[Any, ...]:
        """The parts of a value that may come from different layers."""
        return () if value == self.bottom else (value,)


class Union(Least):
    """All entries of all layers: each one forbids or asks."""

    bottom: ClassVar[Any] = ()
    merged_as = "all of them"
    written = "Texts"
    merged = "Texts"

    def canonical(self, value: Any) -> Entries:
        return _sorted(value)

    def merge(self, one: Any, other: Any) -> Any:
        return _sorted((*one, *other))

    def entries(self, value: Any) -> tuple[Any, ...]:
        return tuple(value)


class Every(Least):
    """Lists of what is allowed: a call must be on every layer's list, so each list is kept."""

    bottom: ClassVar[Any] = ()
    merged_as = "what is on every list"
    written = "Texts"
    merged = "tuple[Texts, ...]"

    def canonical(self, value: Any) -> tuple[Entries, ...]:
        return (_sorted(value),)

    def merge(self, one: Any, other: Any) -> Any:
        return tuple(sorted({*one, *other}))

    def entries(self, value: Any) -> tuple[Any, ...]:
        return tuple(value)


class Strictest(Least):
    """One of a few words, from the loosest to the strictest."""

    order: ClassVar[Sequence[Any]] = (False, True)
    merged_as = "the strictest"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.bottom = cls.order[0]
        words = ", ".join(f'"{word}"' for word in cls.order if isinstance(word, str))
        kinds = ("bool",) * (True in cls.order) + (f"Literal[{words}]",) * bool(words)
        cls.written = cls.merged = " | ".join(kinds)

    def merge(self, one: Any, other: Any) -> Any:
        return max(one, other, key=list(self.order).index)


class UnionOrAll(Union):
    """Entries, or True for everything, which takes them all in."""

    merged_as = "all of them; true takes everything in"
    written = "bool | Texts"
    merged = "Literal[True] | Texts"

    def canonical(self, value: Any) -> Any:
        return True if value is True else () if value is False else super().canonical(value)

    def merge(self, one: Any, other: Any) -> Any:
        return True if True in (one, other) else super().merge(one, other)

    def entries(self, value: Any) -> tuple[Any, ...]:
        return (True,) if value is True else tuple(value)
