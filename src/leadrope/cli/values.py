"""The text after a flag as a value: lists, pairs, files, JSON. Each refusal names the flag; nothing is started."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
import msgspec

from leadrope import errors
from leadrope.core.request import McpServer
from leadrope.core.request_checks import check_connection
from leadrope.core.secrets.redaction import Secret

if TYPE_CHECKING:
    from leadrope.core.config import Config


def as_given(flag: str, given: Sequence[str]) -> tuple[str, ...]:
    return tuple(given)


def split_list(flag: str, given: Sequence[str]) -> tuple[str, ...]:
    """Comma lists and repeated flags become one list; a comma inside parentheses belongs to its pattern.

    >>> split_list("--tools", ["Read,Bash(git log, git diff)", "Edit"])
    ('Read', 'Bash(git log, git diff)', 'Edit')
    """
    found: list[str] = []
    for value in given:
        depth, start = 0, 0
        for place, char in enumerate(value):
            if char == "(":
                depth += 1
            elif char == ")":
                depth -= 1
            elif char == "," and depth == 0:
                found.append(value[start:place])
                start = place + 1
        found.append(value[start:])
    return tuple(entry.strip() for entry in found if entry.strip())


MOST_SECRET = 64 * 1024
"""Bytes of a secret in a file. Keys and certificates have a few thousand; the system bounds a variable at 128 KiB."""


def pairs(flag: str, given: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for value in given:
        name, equals, text = value.partition("=")
        if not equals or not name.strip():
            raise errors.BadValue(flag, f"{value!r} is not NAME=VALUE")
        found[name.strip()] = text
    return found


def variables(flag: str, given: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE, or NAME alone to pass on what the variable holds here: a secret stays out of the process list."""
    found: dict[str, str] = {}
    for value in given:
        if "=" in value:
            found |= pairs(flag, [value])
        elif value in os.environ:
            found[value] = os.environ[value]
        else:
            raise errors.BadValue(flag, f"{value!r} is not set here", hint=f"Write {flag} {value or 'NAME'}=VALUE.")
    return found


def note_old_keys(config: Config) -> None:
    for note in config.old_keys:
        click.echo(f"note: {note}", err=True)


def secrets(flag: str, given: Sequence[str]) -> dict[str, str]:
    """As `variables`. A value on the command line is taken, with a warning."""
    for value in given:
        name, equals, _ = value.partition("=")
        if not name.isidentifier():  # and it is not shown: it may be the secret itself
            raise errors.BadValue(flag, "is not given the name of a variable", hint=f"Write {flag} NAME.")
        if equals:
            better = f"use {flag} {name} or {flag}-file {name}=FILE"
            click.echo(f"note: the value of {name} is visible in the process list; {better}", err=True)
        elif value not in os.environ:
            raise errors.BadValue(
                flag, f"{value!r} is not set here", hint=f"Set it, or write {flag}-file {value}=FILE."
            )
    return variables(flag, given)


def secret_files(flag: str, given: Sequence[str]) -> dict[str, str]:
    """NAME=FILE: the content of the file without one newline at its end. A pipe is read too: `NAME=<(command)`."""
    from leadrope import confined  # noqa: PLC0415  # few commands read a file

    found: dict[str, str] = {}
    for value in given:
        name, equals, path = value.partition("=")
        if not equals or not name.strip() or not path:
            raise errors.BadValue(flag, f"{value!r} is not NAME=FILE")
        try:
            data = confined.read_named(Path(path).expanduser(), workspaces=workspaces(), most=MOST_SECRET)
            text = data.decode("utf-8")
        except errors.UnsafeFile as error:
            raise errors.BadValue(flag, f"{path!r} {error.reason}", hint=error.hint) from None
        except (OSError, UnicodeDecodeError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise errors.BadValue(flag, f"{path!r} cannot be read: {why}") from None
        text = text.removesuffix("\n").removesuffix("\r")
        if not text or "\0" in text:
            raise errors.BadValue(flag, f"{path!r} {'holds a NUL character' if text else 'is empty'}")
        found[name.strip()] = text
    return found


def budget(flag: str, given: str) -> float | Literal["none"]:
    if given == "none":
        return "none"
    try:
        return float(given)
    except ValueError:
        raise errors.BadValue(flag, f"{given!r} is neither a number nor none") from None


def read_text(flag: str, path: str) -> str:
    from leadrope import confined  # noqa: PLC0415  # few commands read a file

    try:
        text = confined.read_named(Path(path).expanduser(), workspaces=workspaces()).decode("utf-8")
    except errors.UnsafeFile as error:
        raise errors.BadValue(flag, f"{path!r} {error.reason}", hint=error.hint) from None
    except (OSError, UnicodeDecodeError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise errors.BadValue(flag, f"{path!r} cannot be read: {why}") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def write_file(flag: str, path: str, data: bytes, *, mode: int = 0o600, makes: bool = False) -> None:
    """Whole or not at all; in a workspace a link in its place is replaced and not followed."""
    from leadrope import confined  # noqa: PLC0415  # few commands write a file

    try:
        with confined.writing_named(Path(path).expanduser(), workspaces=workspaces(), mode=mode, makes=makes) as file:
            file.write(data)
    except (errors.UnsafeFile, OSError) as error:
        raise not_written(flag, path, error) from None


def not_written(flag: str, path: str, error: errors.UnsafeFile | OSError) -> errors.BadValue:
    if isinstance(error, errors.UnsafeFile):
        return errors.BadValue(flag, f"{path!r} cannot be written: {error.message}", hint=error.hint)
    folder = Path(path).expanduser().parent
    is_missing = isinstance(error, FileNotFoundError) and not folder.exists()
    hint = f"Make the folder first: mkdir -p {shlex.quote(str(folder))}" if is_missing else None
    return errors.BadValue(flag, f"{path!r} cannot be written: {error.strerror}", hint=hint)


def check_report_file(flag: str, path: str) -> None:
    """A file that is written at the end of a run, with the folders above it: what could not be is refused before."""
    target = Path(path).expanduser()
    above = next(folder for folder in target.absolute().parents if os.path.lexists(folder))
    if not path or target.is_dir():
        raise errors.BadValue(flag, f"{path!r} is {'a folder' if path else 'empty'}", hint=f"Name a file: {flag} FILE.")
    if not above.is_dir():
        raise errors.BadValue(flag, f"{path!r} cannot be written: {str(above)!r} is not a folder")
    if not os.access(above, os.W_OK | os.X_OK):
        raise errors.BadValue(flag, f"{path!r} cannot be written: Permission denied")


def workspaces() -> tuple[Path, ...]:
    """Where an agent may have written: `--cwd`, and the folder that the command is used in."""
    context = click.get_current_context(silent=True)
    given = context.params.get("cwd") if context is not None else None
    return (*((Path(given).expanduser(),) if isinstance(given, str) and given else ()), Path.cwd())


def json_object(flag: str, value: str) -> dict[str, Any]:
    """JSON text, or the name of a file that holds it."""
    is_text = value.lstrip().startswith(("{", "["))
    text = value if is_text else read_text(flag, value)
    where = "the text" if is_text else repr(value)
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise errors.BadValue(flag, f"{where} is not a JSON object: {error}") from None
    except RecursionError:
        raise errors.BadValue(flag, f"{where} is nested too deeply") from None


def secret_file(flag: str, path: str) -> Secret:
    value = read_text(flag, path).strip()
    if not value:
        raise errors.BadValue(flag, f"{path!r} is empty")
    return Secret(value)


def mcp_file(flag: str, path: str) -> dict[str, McpServer]:
    """A file shaped like .mcp.json: {"mcpServers": {NAME: {...}}}."""
    content = json_object(flag, path)
    servers = content.get("mcpServers")
    if not isinstance(servers, dict):
        raise errors.BadValue(
            flag,
            f"{path!r} has no object mcpServers",
            hint='It should look like {"mcpServers": {"name": {"command": "program", "args": []}}}.',
        )
    found: dict[str, McpServer] = {}
    for name, server in servers.items():
        try:
            found[name] = msgspec.convert(server, McpServer)
        except msgspec.ValidationError as error:
            message, _, place = str(error).partition(" - at `$")
            raise errors.BadValue(flag, f"{path!r}: mcpServers.{name}{place.rstrip('`')}: {message}") from None
        try:
            check_connection(name, found[name])
        except errors.BadValue as error:
            raise errors.BadValue(flag, f"{path!r}: {error.message}", hint=error.hint) from None
    return found
