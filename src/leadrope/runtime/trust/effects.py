"""Describes what a repository's files would do once trusted: hooks and servers with their commands, and permissions.

Reads exactly the bytes whose hashes the user confirms, and runs nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

import msgspec

from leadrope import errors
from leadrope.confined import open_named
from leadrope.runtime.agents import agent_files
from leadrope.runtime.trust.files import PROJECT
from leadrope.runtime.trust.trust import Trust

_MOST_BYTES = 1024 * 1024
MOST_LINES = 40
"""Maximum lines per file; the rest is counted."""
_COMMANDS = ("apiKeyHelper", "awsAuthRefresh", "awsCredentialExport", "otelHeadersHelper", "gcpAuthRefresh")
"""Settings whose values are commands."""
_SHOWN = ("hooks", "permissions", "env", "statusLine", "fileSuggestion", *_COMMANDS)


def effects(found: Trust) -> dict[str, list[str]]:
    """Return, by file, one line for each effect."""
    told: dict[str, list[str]] = {}
    for name, known in found.files.items():
        lines = list(_of_file(Path(found.folder), name, known))
        if len(lines) > MOST_LINES:
            lines = [*lines[:MOST_LINES], f"… and {len(lines) - MOST_LINES} more; read the file"]
        if lines:
            told[name] = lines
    return told


def _of_file(folder: Path, name: str, known: str) -> Iterator[str]:
    path = PurePath(name)
    is_json = path.suffix == ".json" and (path.parent.name == ".claude" or path.name == ".mcp.json")
    is_text = path.suffix == ".md" and ".claude" in path.parts
    if path.name == PROJECT:
        yield "rules of the project, which only tighten and need no trust"
    if not (is_json or is_text):
        return
    try:
        with open_named(folder / path) as file:
            content = file.read(_MOST_BYTES)
    except (OSError, errors.UnsafeFile) as error:
        yield f"cannot be read: {error}"
        return
    if len(content) < _MOST_BYTES and not known.endswith(hashlib.sha256(content).hexdigest()):
        yield "changed while it was being read: review it again"
        return
    if is_text:
        yield from _of_text(path, content)
        return
    try:
        value = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        yield "is not JSON"
        return
    if isinstance(value, dict):
        yield from _servers(value) if path.name == ".mcp.json" else _settings(value)


def _servers(value: Mapping[str, Any]) -> Iterator[str]:
    for name, server in _items(value.get("mcpServers")):
        if not isinstance(server, dict):
            continue
        command = _words(server.get("command"), server.get("args"))
        yield f"server {name} → {command or server.get('url') or '?'}"


def _settings(value: Mapping[str, Any]) -> Iterator[str]:
    yield from _hooks(value.get("hooks"))
    for name in _COMMANDS:
        if isinstance(value.get(name), str):
            yield f"{name} → {value[name]}"
    for name in ("statusLine", "fileSuggestion"):
        inner = value.get(name)
        if isinstance(inner, dict) and isinstance(inner.get("command"), str):
            yield f"{name} → {inner['command']}"
    for name, entries in _items(value.get("permissions")):
        listed = ", ".join(map(str, entries)) if isinstance(entries, list) else str(entries)
        yield f"permissions {name}: {listed} (leadrope's gate still decides)"
    variables = [name for name, _ in _items(value.get("env"))]
    if variables:
        yield f"sets the variables {', '.join(variables)}"
    more = [name for name in value if name not in _SHOWN and not name.startswith("$")]
    if more:
        yield f"also sets {', '.join(more)}"


def _hooks(value: Any) -> Iterator[str]:
    for event, groups in _items(value):
        for group in groups if isinstance(groups, list) else ():
            if not isinstance(group, dict):
                continue
            matcher = f" ({group['matcher']})" if group.get("matcher") else ""
            listed = group.get("hooks")
            for hook in listed if isinstance(listed, list) else ():
                if isinstance(hook, dict):
                    what = _words(hook.get("command"), hook.get("args")) or hook.get("url") or hook.get("prompt") or "?"
                    yield f"hook {event}{matcher} → {what}"


def _of_text(path: PurePath, content: bytes) -> Iterator[str]:
    parts = path.parts[path.parts.index(".claude") + 1 :]
    text = content.decode("utf-8", "replace")
    match parts[0] if parts else "":
        case "agents":
            yield f"agent {agent_files.name_in(text, path.stem)}"
            yield from _hooks(agent_files.front_of(text).get("hooks"))
        case "commands":
            yield f"command /{':'.join((*parts[1:-1], path.stem))}"
        case "skills" if path.name == "SKILL.md":
            yield f"skill {path.parent.name}"
        case _:
            pass


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    yield from ((str(name), inner) for name, inner in value.items()) if isinstance(value, dict) else ()


def _words(command: Any, args: Any) -> str:
    words = [command] if isinstance(command, str) else []
    words += [str(word) for word in args] if words and isinstance(args, list) else []
    return " ".join(words)
