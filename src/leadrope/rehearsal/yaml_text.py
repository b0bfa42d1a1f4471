"""YAML as the plain values that JSON can carry, or the place where it is none. Knows no script.

Imported when a script is YAML: the library takes 20 ms, which scripts in Python need not pay.
"""

from __future__ import annotations

from typing import Any

import yaml

DEEPEST = 100
"""Values inside each other. The library recurses for each, and ends far above this with Python's RecursionError."""

MOST_VALUES = 1_000_000
"""With what aliases stand for: an alias of an alias of an alias … is a small file that fills the memory."""


class NotYaml(ValueError):
    """`place` is empty where the text has none, for instance for a character that YAML does not take."""

    def __init__(self, message: str, place: str) -> None:
        super().__init__(message)
        self.message = message
        self.place = place


def read(text: str) -> Any:
    """What the text says; NotYaml says where it says nothing."""
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506  # a SafeLoader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise NotYaml(getattr(error, "problem", None) or str(error), place) from error


class _Loader(yaml.SafeLoader):
    """Python's own loader: the one in C builds its nodes by a recursion that ends the process."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._values = 0
        self._open: list[str | None] = []
        self._sizes: dict[str | None, int] = {}
        """How many values an anchor stands for."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]  # the library's types leave it out
        is_alias = isinstance(event, yaml.AliasEvent)
        if is_alias and event.anchor in self._open:
            raise _refused(f"*{event.anchor} stands inside itself", event)
        if len(self._open) == DEEPEST:
            raise _refused(f"values stand more than {DEEPEST} deep inside each other", event)
        before = self._values
        self._values += self._sizes.get(event.anchor, 0) if is_alias else 1
        if self._values > MOST_VALUES:
            raise _refused(f"the aliases stand for more than {MOST_VALUES} values", event)
        if is_alias:
            return super().compose_node(parent, index)
        self._open.append(event.anchor)
        node = super().compose_node(parent, index)
        self._open.pop()
        self._sizes[event.anchor] = self._values - before
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """Refuses a key that is written twice: the first `tool:` of a turn would vanish without a word."""
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is written twice", key_node.start_mark
                )
            seen.add(key if isinstance(key, str) else id(key))
        return super().construct_mapping(node, deep=deep)


def _as_written(loader: _Loader, node: Any) -> str:
    return str(node.value)


# JSON has no dates, and a tool's input is JSON.
_Loader.add_constructor("tag:yaml.org,2002:timestamp", _as_written)


def _refused(told: str, event: Any) -> yaml.YAMLError:
    return yaml.composer.ComposerError(None, None, told, event.start_mark)
