"""Changes to the user's config.toml that leave every other byte of it alone."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from leadrope import errors
from leadrope.confined import real_path
from leadrope.core.text import toml_lines
from leadrope.regex import regex

_HEADER = regex(r"^[ \t]*\[\[?(?P<keys>[^\]\n]+)\]\]?[ \t]*(?:#.*)?$")


def read_file(path: Path) -> str:
    """The text, newlines as they are; empty where there is no file."""
    try:
        return Path(real_path(path)).read_bytes().decode()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise errors.BadConfig(f"{path} cannot be read: {error}") from None


def replace_file(target: Path, text: str) -> None:
    """All of the new text or all of the old one, with the permissions of before."""
    target.parent.mkdir(parents=True, exist_ok=True)
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
    fd, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(fd, "w", newline="") as file:
            file.write(text)
            os.fchmod(file.fileno(), mode)
        Path(name).replace(target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(name).unlink()
        raise


def add_table(path: Path, section: str, name: str, lines: str) -> None:
    """Put `[SECTION.NAME]` with these lines at the end of the file."""
    before = read_file(path)
    newline = "\r\n" if "\r\n" in before else "\n"
    text = f"[{section}.{key(name)}]\n{lines.strip()}\n"
    gap = "" if not before else "\n" if before.endswith("\n") else "\n\n"
    after = before + (gap + text).replace("\n", newline)
    added = _loaded(text)[section][name]
    wanted = _loaded(before)
    wanted.setdefault(section, {})[name] = added
    _write(path, after, wanted, f"Add it by hand:\n{text}")


def drop_table(path: Path, section: str, name: str) -> None:
    """Take `[SECTION.NAME]` and the tables below it out of the file; comments before the next table stay."""
    before = read_file(path)
    wanted = _loaded(before)
    del wanted[section][name]
    if not wanted[section]:
        del wanted[section]
    kept: list[str] = []
    dropped: list[str] = []
    is_inside = False
    lines = before.splitlines(keepends=True)
    for number, line in enumerate(lines):
        keys = _header(line, lines[:number])
        if keys:
            was_inside, is_inside = is_inside, keys[:2] == [section, name]
            if was_inside and not is_inside:
                kept += _trailing(dropped)
        (dropped if is_inside else kept).append(line)
    if is_inside:  # the last table: the blank line before it goes with it
        while kept and not kept[-1].strip():
            kept.pop()
    after = "".join(kept)
    _write(path, after, wanted, f"Take [{section}.{key(name)}] out by hand.")


def _trailing(lines: list[str]) -> list[str]:
    """Comments at the end of a table that is dropped and that speak of the next one: after a blank line, or, where
    there is none, all of them.
    """
    place = len(lines)
    while place > 0 and (not lines[place - 1].strip() or lines[place - 1].lstrip().startswith("#")):
        place -= 1
    tail = lines[place:]
    blank = next((number for number, line in enumerate(tail) if not line.strip()), None)
    return tail if blank is None else tail[blank + 1 :]


def key(name: str) -> str:
    """A name as TOML writes it in a header."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _quoted(name)


def _quoted(name: str) -> str:
    import tomlkit  # noqa: PLC0415  # 40 ms that only a change costs

    return tomlkit.item(name).as_string()


def _header(line: str, above: list[str]) -> list[str]:
    """The parts of a table's header; nothing for other lines, and for those of a text that only look like one."""
    header = _HEADER.match(line.rstrip("\r\n"))
    if header is None:
        return []
    try:
        tomllib.loads("".join(above))  # fails inside of a text of several lines
        value: Any = tomllib.loads(f"{header['keys']} = 1")
    except tomllib.TOMLDecodeError:
        return []
    found: list[str] = []
    while isinstance(value, dict):
        [(name, value)] = value.items()
        found.append(name)
    return found


def _loaded(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line, message, hint = toml_lines.in_words(error, text)
        raise errors.BadConfig(f"the file is not TOML: line {line}: {message}", hint=hint) from None


def _write(path: Path, text: str, wanted: Mapping[str, Any], by_hand: str) -> None:
    """Only where the new text says exactly what is wanted; a file in another style is left to its author."""
    try:
        says = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        says = {}
    if says != wanted:
        raise errors.BadConfig(f"{path} is written in a way that leadrope does not change", hint=by_hand)
    try:
        replace_file(Path(real_path(path)), text)
    except OSError as error:
        raise errors.BadConfig(f"{path} cannot be written: {error.strerror}", hint=by_hand) from None
