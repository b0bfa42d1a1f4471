"""Reads the values of parameters and fenced blocks as JSON values, with their positions."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from leadrope.core.text import yaml_values
from leadrope.core.text.yaml_values import LoadedYaml, YamlError
from leadrope.regex import regex
from leadrope.workflows.language.markdown_blocks import KEY_LINE, Entry, Fence, Parameter
from leadrope.workflows.problems import KEY, Findings, Path, Position

YAML_PARAMETERS = ("batch", "loop", "retry", "policy", "output_schema", "settings")
"""A block labelled only with this word is YAML; any other is text."""

_TEMPLATE = regex(r"\$\{[^{}\n]*(?:\{[^{}\n]*\}[^{}\n]*)*\}")
_ASCII_AT = 0xE000
_MASKS = {code: _ASCII_AT + code for code in range(128)}
_MASKED = regex("[\ue000-\ue07f]")
_LOOKS_LIKE_YAML = tuple("[{\"'|>&!*")


UNREADABLE: Any = object()


class KeyLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a text that looks like `key: value`."""

    key: str
    text: str
    """As written, without a leading dash."""
    place: Position


class KeyLines(msgspec.Struct, frozen=True, kw_only=True):
    first: Any
    """What the value would be without the lines below its first one."""
    lines: tuple[KeyLine, ...]


class Notes(msgspec.Struct, kw_only=True):
    """Additional facts about values, by their paths."""

    places: dict[Path, Position]
    key_lines: dict[Path, KeyLines] = {}
    """For plain texts of several lines: a parameter indented by mistake becomes part of the one above it."""
    unreadable: set[Path] = set()
    respelt: dict[Path, str] = {}
    """Numbers and booleans that would be written differently, as spelled in the file."""


def entry_values(entry: Entry, path: Path, findings: Findings, notes: Notes) -> dict[str, Any]:
    """Returns all values of an entry, by key. For a duplicate key the first value counts."""
    places = notes.places
    found: dict[str, Any] = {}
    seen: set[str] = set()
    every: list[Parameter | Fence] = [*entry.parameters, *entry.fences]
    for said in sorted(every, key=lambda one: one.place.line):
        key = _key(said, path, findings)
        if key is None:
            continue
        at = said.key_place if isinstance(said, Parameter) else said.place
        if key in seen:
            findings.add("duplicate_parameter", f"{key!r} is given twice", at, path=path, hint="Remove one of them.")
            continue
        seen.add(key)
        here = (*path, key)
        places[here] = places[*here, KEY] = at
        value = (
            _parameter(said, here, findings, notes)
            if isinstance(said, Parameter)
            else _fence(said, key, here, findings, notes)
        )
        if value is UNREADABLE:
            notes.unreadable.add(here)
        else:
            found[key] = value
    return found


def tell_indented(line: KeyLine, path: Path, findings: Findings, *, warns: bool) -> None:
    """Reports a parameter that became part of the text above it, which is at `path`."""
    findings.add(
        "indented_parameter",
        f"{line.text[:60]!r} is indented, and so a part of {path[-1]!r}",
        line.place,
        path=path,
        found=line.text[:60],
        suggestion=f"- {line.text[:60]}",
        hint="Put its `-` right below the `-` above it."
        + (" A text with such a line is written as a block, or below `|`." if warns else ""),
        warns=warns,
    )


def _key(said: Parameter | Fence, path: Path, findings: Findings) -> str | None:
    if isinstance(said, Parameter):
        return said.key if said.key[0] != '"' else quoted_key(said, findings)
    if said.parameter is None:
        tell_untagged(said, path, findings)
    return said.parameter


def tell_untagged(said: Fence, path: Path, findings: Findings) -> None:
    word = said.info[0] if said.info else ""
    findings.add(
        "untagged_fence",
        f"the block ```{word} names a language and no parameter" if word else "the block ``` names no parameter",
        said.place,
        path=path,
        found=word,
        hint=f"Write the parameter that it fills: ```{word or 'yaml'} NAME.",
    )


def braces_hint(text: str) -> str | None:
    return "A template is written `${name}`." if "{{" in text else None


def tell_no_yaml(said: Parameter, error: YamlError, path: Path, findings: Findings) -> None:
    findings.add(
        "not_yaml",
        f"the value of {said.key!r} is not YAML ({error.message}) and is taken as text",
        said.place,
        path=path,
        warns=True,
    )


def quoted_key(said: Parameter, findings: Findings) -> str | None:
    try:
        return str(yaml_values.load(said.key).value)
    except YamlError as error:
        findings.add("yaml", f"the key {said.key} is not YAML: {error.message}", said.key_place, found=said.key)
        return None


def _parameter(said: Parameter, path: Path, findings: Findings, notes: Notes) -> Any:
    places = notes.places
    if not said.first and not any(said.more):
        return None
    if not any(said.more) and yaml_values.is_word(said.first):
        places[path] = verbatim(said)
        return said.first
    # As if there were no dash: what is indented below it is below its key.
    lines = ("k:".ljust(said.place.column - 1) + said.first, *said.more, "")
    text = "\n".join(lines)
    try:
        loaded = load_templated(text)
    except YamlError as error:
        if not said.first:
            place = Position(line=said.place.line + error.line, column=error.column + 1)
            told = f"the value of {said.key!r} is not YAML: {error.message}"
            findings.add("yaml", told, place, path=path, hint=braces_hint(text))
            return UNREADABLE
        if said.first.startswith(_LOOKS_LIKE_YAML):
            tell_no_yaml(said, error, path, findings)
        return _literal(said, path, notes)
    if set(loaded.value) != {"k"}:
        return _literal(said, path, notes)
    value = loaded.value["k"]
    for inner, (line, column) in loaded.where.items():
        if inner and inner != ("k", KEY):
            where = Position(line=said.place.line + line, column=column + 1)
            places[(*path, *(str(part) for part in inner[1:]))] = place_of(where, lines, (line, column), loaded, inner)
    notes.respelt |= {(*path, *map(str, inner[1:])): text for inner, text in loaded.respelt.items()}
    if isinstance(value, str):
        if value == said.first:
            places[path] = verbatim(said)
        elif not said.first.startswith(_LOOKS_LIKE_YAML) and " #" in said.first:
            findings.add(
                "comment",
                f"what follows ` #` in {said.key!r} is a YAML comment and is left out",
                said.place,
                path=path,
                warns=True,
                hint="Put the value in quotes to keep it.",
            )
    return value


def _literal(said: Parameter, path: Path, notes: Notes) -> str:
    notes.places[path] = verbatim(said)
    lines = tuple(_key_lines(said))
    if lines:
        notes.key_lines[path] = KeyLines(first=_first(said), lines=lines)
    return "\n".join((said.first, *textwrap.dedent("\n".join(said.more)).split("\n"))) if said.more else said.first


def _key_lines(said: Parameter) -> Iterator[KeyLine]:
    indents = [len(line) - len(line.lstrip(" ")) for line in said.more]
    least = min((indent for line, indent in zip(said.more, indents, strict=True) if line.strip()), default=0)
    for number, (line, indent) in enumerate(zip(said.more, indents, strict=True), start=said.place.line + 1):
        # Deeper lines belong to the line above them: `server:`, and below it `timeout: 5`.
        text = line.strip().removeprefix("- ").lstrip()
        found = KEY_LINE.match(text)
        if found and indent <= least + 1:
            yield KeyLine(key=found[1].strip('"'), text=text, place=Position(line=number, column=indent + 1))


def place_of(
    place: Position, lines: Sequence[str], at: tuple[int, int], loaded: LoadedYaml, path: tuple[str | int, ...]
) -> Position:
    """Returns the position of a value in YAML; for a text with templates such that each template has its column."""
    value = loaded.value
    for part in path:
        value = value[part] if part != KEY else None
    if not isinstance(value, str) or "${" not in value or "\n" in value:
        return place
    line = lines[at[0]]
    quotes = int(line[at[1] : at[1] + 1] in ('"', "'"))
    if not line.startswith(value, at[1] + quotes):
        return place
    return Position(line=place.line, column=place.column, next_column=1, quotes=quotes)


def _first(said: Parameter) -> Any:
    try:
        return load_templated(said.first).value
    except YamlError:
        return said.first


def verbatim(said: Parameter) -> Position:
    indents = [len(line) - len(line.lstrip(" ")) for line in said.more if line.strip()]
    return Position(line=said.place.line, column=said.place.column, next_column=min(indents, default=0) + 1)


def _fence(said: Fence, key: str, path: Path, findings: Findings, notes: Notes) -> Any:
    places = notes.places
    begin = Position(line=said.place.line + 1, column=said.place.column, next_column=said.place.column)
    is_yaml = said.language in ("yaml", "yml", "json") or (not said.language and key in YAML_PARAMETERS)
    if not said.is_closed:
        return UNREADABLE
    if not is_yaml:
        places[path] = begin
        return said.text
    try:
        loaded = _json(said.text) if said.language == "json" else load_templated(said.text + "\n")
    except YamlError as error:
        place = Position(line=begin.line + error.line, column=begin.column + error.column)
        told = f"the block {key!r} is not YAML: {error.message}"
        findings.add("yaml", told, place, path=path, hint=braces_hint(said.text))
        return UNREADABLE
    lines = said.text.split("\n")
    for inner, (line, column) in loaded.where.items():
        where = Position(line=begin.line + line, column=begin.column + column)
        places[(*path, *(str(part) for part in inner))] = place_of(where, lines, (line, column), loaded, inner)
    notes.respelt |= {(*path, *map(str, inner)): text for inner, text in loaded.respelt.items()}
    return loaded.value


def _json(text: str) -> LoadedYaml:
    try:
        return LoadedYaml(json.loads(text), {})
    except (ValueError, RecursionError):
        return load_templated(text)


def load_templated(text: str, scalar: Callable[[str], Any] | None = None) -> LoadedYaml:
    """Parses YAML in which templates may be unquoted in a list: `[${a}, ${b}]`."""
    try:
        return yaml_values.load(text, scalar)
    except YamlError:
        if "${" not in text or _MASKED.search(text):
            raise
        # Replaced by as many characters without meaning in YAML, so that all positions stay valid.
        masked = _TEMPLATE.sub(lambda found: found[0].translate(_MASKS), text)
        loaded = yaml_values.load(masked, scalar)
        return LoadedYaml(
            _unmasked(loaded.value),
            {tuple(map(_unmasked, path)): at for path, at in loaded.where.items()},
            {tuple(map(_unmasked, path)): text for path, text in loaded.respelt.items()},
        )


def _unmasked(value: Any) -> Any:
    if isinstance(value, str):
        return _MASKED.sub(lambda found: chr(ord(found[0]) - _ASCII_AT), value)
    if isinstance(value, dict):
        return {_unmasked(key): _unmasked(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_unmasked(inner) for inner in value]
    return value
