"""Reads YAML as JSON values with their positions, and writes values so that they read back the same.

Only what JSON has: no dates, no tags (but `!!binary` with `has_binary`), no anchors unless `has_aliases`; `yes`, `no`,
`on`, `off` and `12:30` are texts (YAML 1.2's core) unless `scalar_1_1` says what words mean.
"""

from __future__ import annotations

import base64
import functools
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from leadrope import errors
from leadrope.regex import regex

_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_OLD_BOOLEANS = ("yes", "no", "on", "off")
"""Texts in YAML 1.2 and booleans in YAML 1.1; quoted they are texts for every parser."""
_WORD = regex(r"[A-Za-z_][A-Za-z0-9_./-]*")
_INT = regex(r"[-+]?[0-9]+")
_BASED = regex(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = regex(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_BINARY = "tag:yaml.org,2002:binary"
_DIGITS_LIMIT = 4000
"""Python refuses to parse longer integers; they stay text."""

DEPTH_LIMIT = 100
MOST_VALUES = 1_000_000
"""With what aliases stand for: an alias of an alias of an alias … is a small file that fills the memory."""
_PLAIN = regex(r"[A-Za-z_](?:[A-Za-z0-9_ ./()-]*[A-Za-z0-9_./()-])?")
_NEEDS_ESCAPE = r'["\\]|[^\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]'
"""Compiled on first use: it takes 5 ms, which only writers need."""
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}

KEY = "\0key"
"""Appended to the path of a value in a map: the position of its key."""

Where = dict[tuple[str | int, ...], tuple[int, int]]


class YamlError(ValueError):
    """Invalid YAML; `line` and `column` count from 0, inside the text that was read."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column


class LoadedYaml(msgspec.Struct, frozen=True):
    value: Any
    where: Where
    """Line and column, from 0, of each nested value, by path."""
    respelt: dict[tuple[str | int, ...], str] = {}
    """Numbers and booleans that would be written differently, as spelled: `1.10`, `007`, `True`."""


def load(
    text: str, scalar: Callable[[str], Any] | None = None, *, has_aliases: bool = False, has_binary: bool = False
) -> LoadedYaml:
    """What the text says; YamlError says where it says nothing. `scalar` tells what an unquoted word means.

    With `has_aliases` an alias stands for the value of its anchor, and `<<` adds the keys of another map. With
    `has_binary` a text in base64 under the tag `!!binary` is bytes.
    """
    import yaml  # noqa: PLC0415  # 20 ms that only those pay who read YAML

    # Events instead of nodes: libyaml's binding builds nodes with an unbounded recursion in C, and 100,000 opening
    # brackets crash the process with a segmentation fault.
    events = yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    reader = _Reader(events, scalar or _core_scalar, has_aliases=has_aliases, has_binary=has_binary)
    try:
        next(events)
        if not isinstance(next(events), yaml.DocumentStartEvent):
            return LoadedYaml(None, reader.where)
        value = reader.value(next(events), ())
        next(events)
        if not isinstance(event := next(events), yaml.StreamEndEvent):
            raise YamlError("`---` begins a second document", event.start_mark.line, event.start_mark.column)
        return LoadedYaml(value, reader.where, reader.respelt)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = " ".join(part for part in (error.context, error.problem) if part)
        last = text.count("\n")
        if mark is not None and mark.line > last:  # libyaml's end is a line below that of the text
            raise YamlError(reason, last, len(text) - text.rfind("\n") - 1) from None
        raise YamlError(reason, mark.line if mark else 0, mark.column if mark else 0) from None
    except yaml.YAMLError as error:
        before = text[: getattr(error, "position", 0)]  # of a character that is not taken
        line, column = before.count("\n"), len(before) - before.rfind("\n") - 1
        raise YamlError(str(error).split("\n", 1)[0], line, column) from None


class _Reader:
    def __init__(
        self, events: Iterator[Any], scalar: Callable[[str], Any], *, has_aliases: bool, has_binary: bool
    ) -> None:
        self.where: Where = {}
        self.respelt: dict[tuple[str | int, ...], str] = {}
        self._events = events
        self._scalar = scalar
        self._has_aliases = has_aliases
        self._has_binary = has_binary
        self._count = 0
        self._anchors: dict[str, tuple[Any, int] | None] = {}
        """Each one's value, and how many values it stands for; None while it is being read."""

    def value(self, event: Any, path: tuple[str | int, ...]) -> Any:
        import yaml  # noqa: PLC0415  # loaded by now

        line, column = self.where[path] = (event.start_mark.line, event.start_mark.column)
        if len(path) > DEPTH_LIMIT:
            raise YamlError(f"values stand more than {DEPTH_LIMIT} deep inside each other", line, column)
        is_alias = isinstance(event, yaml.AliasEvent)
        if (is_alias or event.anchor) and not self._has_aliases:
            # An alias of an alias of an alias … is a small file that fills the memory.
            raise YamlError("anchors and aliases (`&name`, `*name`) are not taken; write the value again", line, column)
        if is_alias:
            return self._alias(event.anchor, line, column)
        before = self._count
        self._add(1, line, column)
        if event.anchor:
            self._anchors[event.anchor] = None
        value = self._content(event, path)
        if event.anchor:
            self._anchors[event.anchor] = (value, self._count - before)
        return value

    def _alias(self, name: str, line: int, column: int) -> Any:
        if name not in self._anchors:
            raise YamlError(f"*{name} has no anchor before it", line, column)
        anchored = self._anchors[name]
        if anchored is None:
            raise YamlError(f"*{name} stands inside itself", line, column)
        value, size = anchored
        self._add(size, line, column)
        return value

    def _add(self, size: int, line: int, column: int) -> None:
        self._count += size
        if self._count > MOST_VALUES:
            raise YamlError(f"the text stands for more than {MOST_VALUES} values", line, column)

    def _content(self, event: Any, path: tuple[str | int, ...]) -> Any:
        import yaml  # noqa: PLC0415  # loaded by now

        mark = event.start_mark
        if self._has_binary and event.tag == _BINARY and isinstance(event, yaml.ScalarEvent):
            try:
                return base64.b64decode("".join(event.value.split()), validate=True)
            except ValueError:
                raise YamlError("!!binary is not base64", mark.line, mark.column) from None
        if event.tag not in (None, "!"):
            raise YamlError(f"the tag {event.tag} is not taken", mark.line, mark.column)
        if isinstance(event, yaml.ScalarEvent):
            if event.style or event.tag:
                return str(event.value)
            value = self._scalar(event.value)
            if isinstance(value, bool | int | float) and _simple(value) != event.value:
                self.respelt[path] = event.value
            return value
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[Any] = []
            while not isinstance(inner := next(self._events), yaml.SequenceEndEvent):
                items.append(self.value(inner, (*path, len(items))))
            return items
        found: dict[str, Any] = {}
        added: dict[str, Any] = {}
        while not isinstance(key := next(self._events), yaml.MappingEndEvent):
            at = key.start_mark
            if not isinstance(key, yaml.ScalarEvent):
                raise YamlError("a key is a text", at.line, at.column)
            if key.value in found:
                raise YamlError(f"the key {key.value!r} stands here twice", at.line, at.column)
            self.where[*path, key.value, KEY] = (at.line, at.column)
            value = self.value(next(self._events), (*path, key.value))
            if key.value == "<<" and self._has_aliases and isinstance(value, dict) and not key.style:
                added = value
            else:
                found[key.value] = value
        return added | found


def scalar_1_1(text: str) -> Any:
    """What an unquoted word means in YAML 1.1. Dates stay text, because JSON has none."""
    import yaml  # noqa: PLC0415  # loaded by now

    tag: str = _resolver().resolve(yaml.ScalarNode, text, (True, False))
    kind = tag.rpartition(":")[2]
    if kind not in ("null", "bool", "int", "float"):
        return text
    try:
        value = yaml.constructor.SafeConstructor().construct_object(yaml.ScalarNode(tag, text))
    except ValueError:  # `0o`, `1_`, too many digits
        return text
    return text if isinstance(value, float) and not math.isfinite(value) else value


@functools.cache
def _resolver() -> Any:
    import yaml  # noqa: PLC0415  # loaded by now

    return yaml.resolver.Resolver()


def is_word(text: str) -> bool:
    """Whether the text certainly means itself, as most parameters do; if all do, the parser is not even loaded."""
    return _WORD.fullmatch(text) is not None and isinstance(scalar(text), str)


def scalar(text: str) -> Any:
    """Returns the meaning of an unquoted word."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text) if len(text) <= _DIGITS_LIMIT else text
    if _BASED.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        number = float(text)
        return number if math.isfinite(number) else text
    return text


_core_scalar = scalar


def quoted(text: str) -> str:
    """Formats a text in double quotes, on one line."""
    return '"' + re.sub(_NEEDS_ESCAPE, _escape, text) + '"'


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    if character in _ESCAPES:
        return _ESCAPES[character]
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def flow(value: Any) -> str:
    """Formats a value on one line, like JSON, with quoted texts."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quoted(key)}: {flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(flow(inner) for inner in value) + "]"
    return _simple(value)


def block(value: Any, indent: int = 0) -> str:
    """Formats a value on several lines, as a person would write it, without a final newline."""
    return "\n".join(_lines(value, " " * indent))


def _lines(value: Any, indent: str) -> list[str]:
    lines: list[str] = []
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            name = f"{indent}{word(key)}:"
            lines += [name, *_lines(inner, indent + "  ")] if _is_deep(inner) else [f"{name} {_short(inner)}"]
    elif isinstance(value, list | tuple) and value:
        for inner in value:
            if _is_deep(inner):
                first, *rest = _lines(inner, indent + "  ")
                lines += [f"{indent}- {first.lstrip(' ')}", *rest]
            else:
                lines.append(f"{indent}- {_short(inner)}")
    else:
        lines.append(indent + _short(value))
    return lines


def _is_deep(value: Any) -> bool:
    if isinstance(value, dict):
        return bool(value)
    return isinstance(value, list | tuple) and any(isinstance(inner, dict | list | tuple) for inner in value)


def _short(value: Any) -> str:
    return word(value) if isinstance(value, str) else flow(value)


def word(text: str) -> str:
    """Formats a text without quotes if it then still reads back the same."""
    is_plain = _PLAIN.fullmatch(text) and isinstance(scalar(text), str) and "  " not in text
    is_plain = is_plain and text.lower() not in _OLD_BOOLEANS
    return text if is_plain else quoted(text)


def _simple(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        # Older YAML, which pflow reads, takes an exponent for a number only after a decimal point.
        digits, has_exponent, exponent = repr(value).partition("e")
        return f"{digits if '.' in digits else digits + '.0'}e{exponent}" if has_exponent else digits
    raise errors.BadValue(
        "value", f"{value!r} is not a JSON value", hint="Use text, numbers, true, false, null, lists, maps."
    )
