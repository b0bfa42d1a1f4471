"""Parses parameters and blocks as pflow 0.16 does.

A value on one line is not YAML there: comments do not exist, and only quotes, lists, maps, numbers, booleans and null
are not plain text. Values over several lines are YAML 1.1, in which `yes` is true and `0755` is 493.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from leadrope.core.text import yaml_values
from leadrope.core.text.yaml_values import YamlError
from leadrope.regex import regex
from leadrope.workflows.language.markdown_blocks import Entry, Fence, Parameter
from leadrope.workflows.language.markdown_values import (
    UNREADABLE,
    YAML_PARAMETERS,
    Notes,
    braces_hint,
    load_templated,
    place_of,
    quoted_key,
    tell_no_yaml,
    tell_untagged,
    verbatim,
)
from leadrope.workflows.problems import KEY, Findings, Path, Position

_TRUE = frozenset(form for word in ("true", "yes", "on") for form in (word, word.capitalize(), word.upper()))
_FALSE = frozenset(form for word in ("false", "no", "off") for form in (word, word.capitalize(), word.upper()))
_NULL = frozenset(("null", "Null", "NULL", "~"))
_INT = regex(r"[+-]?[0-9]{1,4000}")
_FLOAT = regex(r"[+-]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_ESCAPE = regex(r"\\(.)", re.DOTALL)
_ESCAPED = {"\\": "\\", '"': '"', "n": "\n", "t": "\t", "r": "\r", "0": "\0", "/": "/", " ": " "}
_NAME = regex(r"[A-Za-z_][A-Za-z0-9_-]*")
_FIRST = "\uf8ff"
"""Replaces the key of a parameter while its value is parsed: no author writes this character."""


class _Given(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    value: Any
    place: Position
    """Of the key."""
    is_block: bool = False


def entry_values(entry: Entry, path: Path, findings: Findings, notes: Notes) -> dict[str, Any]:
    """Returns all values of an entry, by key. For a duplicate key the last value counts, as in pflow."""
    found: dict[str, Any] = {}
    blocks: set[str] = set()
    every: list[Parameter | Fence] = [*entry.parameters, *entry.fences]
    for said in sorted(every, key=lambda one: one.place.line):
        for one in _given(said, path, findings, notes):
            if one.key in found:
                counts = not one.is_block and one.key not in blocks
                findings.add(
                    "duplicate_parameter",
                    f"{one.key!r} is given twice" + (", and this value counts" if counts else ""),
                    one.place,
                    path=path,
                    warns=counts,
                    hint="Remove one of them.",
                )
                if not counts:
                    continue
            if one.is_block:
                blocks.add(one.key)
            notes.places[*path, one.key, KEY] = one.place
            if one.value is UNREADABLE:
                notes.unreadable.add((*path, one.key))
            else:
                found[one.key] = one.value
    return found


def _given(said: Parameter | Fence, path: Path, findings: Findings, notes: Notes) -> Iterator[_Given]:
    if isinstance(said, Fence):
        return _block(said, path, findings, notes)
    if said.key[0] == '"':
        key = quoted_key(said, findings)
        if key is None:
            return iter(())
        said = msgspec.structs.replace(said, key=key)
    return _parameter(said, path, findings, notes)


def single_line(text: str) -> Any:
    """Returns the meaning of a value on one line; YamlError if pflow would refuse it."""
    quote = text[:1]
    if quote in ('"', "'") and text:
        if len(text) < 2 or text[-1] != quote:
            raise YamlError(f"the {quote} that begins it is not closed", 0, 0)
        inner = text[1:-1]
        return inner.replace("''", "'") if quote == "'" else _ESCAPE.sub(_unescaped, inner)
    if quote in ("{", "["):
        return load_templated(text, yaml_values.scalar_1_1).value
    if not text or text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return _finite(float(text), text)
    return text


def _unescaped(found: re.Match[str]) -> str:
    return _ESCAPED.get(found[1], found[0])


def _finite(number: float, text: str) -> float | str:
    return number if math.isfinite(number) else text


def _parameter(said: Parameter, path: Path, findings: Findings, notes: Notes) -> Iterator[_Given]:
    if any(said.more):
        yield from _several_lines(said, path, findings, notes)
        return
    here = (*path, said.key)
    notes.places[here] = said.key_place
    try:
        value = single_line(said.first)
    except YamlError as error:
        tell_no_yaml(said, error, here, findings)
        value = said.first
    if isinstance(value, str):
        quotes = int(said.first != value and said.first[1:-1] == value)
        if quotes or said.first == value:
            notes.places[here] = msgspec.structs.replace(verbatim(said), quotes=quotes)
    elif isinstance(value, bool | int | float) and yaml_values.flow(value) != said.first:
        notes.respelt[here] = said.first
    yield _Given(key=said.key, value=value, place=said.key_place)


def _several_lines(said: Parameter, path: Path, findings: Findings, notes: Notes) -> Iterator[_Given]:
    """Parses YAML in which the lines below a key may contain further keys: they are parameters as well."""
    indent = said.key_place.column - 1
    lines = ((" " * indent + f"{_FIRST}: ").ljust(said.place.column - 1) + said.first, *said.more)
    try:
        loaded = load_templated("\n".join(lines), yaml_values.scalar_1_1)
        if not isinstance(loaded.value, dict):
            raise YamlError("a key is followed by a colon and a space", 0, 0)
    except YamlError as error:
        here = (*path, said.key)
        notes.places[here] = said.key_place
        place = Position(line=said.place.line + error.line, column=error.column + 1)
        findings.add(
            "yaml",
            f"the value of {said.key!r} is not YAML: {error.message}",
            place,
            path=here,
            hint=braces_hint("\n".join(lines)) or "Put a text with `: ` in it in quotes, or write it as a block.",
        )
        yield _Given(key=said.key, value=UNREADABLE, place=said.key_place)
        return
    for inner, (line, column) in loaded.where.items():
        if inner and inner[-1] != KEY:
            at = Position(line=said.place.line + line, column=column + 1)
            named = (*path, said.key if inner[0] == _FIRST else str(inner[0]), *map(str, inner[1:]))
            notes.places[named] = place_of(at, lines, (line, column), loaded, inner)
            if inner in loaded.respelt:
                notes.respelt[named] = loaded.respelt[inner]
    for key, value in loaded.value.items():
        at_line, at_column = loaded.where[key, KEY]
        place = Position(line=said.place.line + at_line, column=at_column + 1) if key != _FIRST else said.key_place
        yield _Given(key=said.key if key == _FIRST else key, value=value, place=place)


def _block(said: Fence, path: Path, findings: Findings, notes: Notes) -> Iterator[_Given]:
    # Pages copied from a website have attributes after the parameter: `theme={null}`.
    words = [word for word in said.info if _NAME.fullmatch(word)]
    if not words or (len(words) == 1 and said.language):
        tell_untagged(said, path, findings)
        return
    key = words[-1]
    here = (*path, key)
    begin = Position(line=said.place.line + 1, column=said.place.column, next_column=said.place.column)
    notes.places[here] = begin
    value: Any = said.text
    if not said.is_closed:
        value = UNREADABLE
    elif (len(words) > 1 and words[0].lower() == "yaml") or key in YAML_PARAMETERS:
        try:
            loaded = load_templated(said.text, yaml_values.scalar_1_1)
        except YamlError as error:
            place = Position(line=begin.line + error.line, column=begin.column + error.column)
            told = f"the block {key!r} is not YAML: {error.message}"
            findings.add("yaml", told, place, path=here, hint=braces_hint(said.text))
            value = UNREADABLE
        else:
            value = loaded.value
            lines = said.text.split("\n")
            for inner, (line, column) in loaded.where.items():
                at = Position(line=begin.line + line, column=begin.column + column)
                notes.places[(*here, *map(str, inner))] = place_of(at, lines, (line, column), loaded, inner)
            notes.respelt |= {(*here, *map(str, inner)): text for inner, text in loaded.respelt.items()}
    yield _Given(key=key, value=value, place=said.place, is_block=True)
