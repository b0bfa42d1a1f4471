"""Detects what the sandbox of a run blocked, from the output of tools; pure except for checking what exists.

The sandbox reports nothing itself: system calls fail. A path that is missing inside and exists outside was hidden by
it; a file system that is read-only outside of the workspace is due to it. Ambiguous cases (a file that exists nowhere,
a refusal that would occur without a sandbox too) are not reported.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import Literal

from leadrope.core import events
from leadrope.core.tools import ToolCall
from leadrope.process.sandbox.values import Sight
from leadrope.regex import regex

Exists = Callable[[str], bool]
Kind = Literal["write", "read", "signal", "network"]

MOST_PER_CALL = 4
"""A `find /` prints a thousand errors; the first few are enough."""
_MOST_TARGETS = 500
_MOST_CALLS = 1000
_ENDS = 20_000
"""Of a long output only the beginning and the end are searched, where error messages usually are."""

_EDITS = {"Write": "file_path", "Edit": "file_path", "MultiEdit": "file_path", "NotebookEdit": "notebook_path"}
_READS = {"Read": "file_path", "Glob": "path", "Grep": "path", "LS": "path"}

_READ_ONLY = regex(r"read-only file system|\bEROFS\b", re.IGNORECASE)
_DENIED = regex(r"permission denied|\bEACCES\b", re.IGNORECASE)
_MISSING = regex(r"no such file or directory|\bENOENT\b|does not exist", re.IGNORECASE)
_ANY = regex("|".join(p.pattern for p in (_READ_ONLY, _DENIED, _MISSING)), re.IGNORECASE)
_WRITING = regex(
    r"cannot (?:touch|create|remove|move|overwrite|make|unlink)|for writing|mkdir|unable to write"
    r"|could not (?:create|write)",
    re.IGNORECASE,
)
_GIT_SETTINGS = regex(r"could not write config file ([^:\n]+): Device or resource busy")
"""Without a private copy, git's settings are a mount, and no file can be renamed over a mount."""
_SHELL = regex(r"(?:\S*/)?(?:ba|da|z)?sh: ")
"""Errors about a redirection come from the shell itself."""
_QUOTED = regex(r"""['"\u2018`]((?:/|\.\./|~/)[^'"\u2019`\n]*)['"\u2019`]""")
_BARE = regex(r"""(?:^|[\s:=(])((?:/|\.\./|~/)[^\s:'"`,;)]*)""")
_SIGNAL = regex(
    r"kill: (?:\(|sending signal to |cannot (?:kill|find) process )?[\"']?(\d+)[^\n]{0,40}?"
    r"(?:no such process|operation not permitted)",
    re.IGNORECASE,
)
_SIGNAL_OF_PYTHON = regex(r"ProcessLookupError|PermissionError: \[Errno 1\]")
_KILLED_PID = regex(r"\bkill\w*\b[^\n;|&]*?\b(\d{2,})\b")
_UNREACHED = regex(
    r"could not resolve host:? *(?P<a>[\w.-]+)?|failed to connect to (?P<b>[\w.:-]+?) port \d+"
    r"|(?:getaddrinfo|connect) (?:ENOTFOUND|EAI_AGAIN|ENETUNREACH|ECONNREFUSED) ?(?P<c>[\w.:-]+)?"
    r"|network is unreachable|temporary failure in name resolution|name or service not known|connection refused",
    re.IGNORECASE,
)
_ADDRESS = regex(r"(?:https?://|ssh://|git@|/dev/tcp/)([\w.-]+)|\b(\d{1,3}(?:\.\d{1,3}){3})\b")


class Watch:
    """Watches one attempt: `requested` for every call, `completed` for every result; without a sandbox neither does
    anything.
    """

    def __init__(self, sight: Sight | None, *, exists: Exists = os.path.lexists) -> None:
        self._sight = sight if sight is not None and sight.places else None
        self._exists = exists
        self._calls: dict[str, ToolCall] = {}
        self._told: set[tuple[str, str]] = set()

    def requested(self, call: ToolCall) -> None:
        if self._sight is not None:
            if len(self._calls) >= _MOST_CALLS:  # calls whose result never came
                self._calls.clear()
            self._calls[call.id] = call

    def completed(self, done: events.ToolCompleted) -> tuple[events.SandboxViolation, ...]:
        """Return what the sandbox blocked in this call; each target once per run."""
        if self._sight is None:
            return ()
        call = self._calls.pop(done.call_id, None)
        if call is None or not done.executed:
            return ()
        fresh = []
        for held in look(call, done, self._sight, exists=self._exists):
            if (held.kind, held.target) not in self._told and len(self._told) < _MOST_TARGETS:
                self._told.add((held.kind, held.target))
                fresh.append(held)
        return tuple(fresh)


def look(
    call: ToolCall, done: events.ToolCompleted, sight: Sight, *, exists: Exists = os.path.lexists
) -> tuple[events.SandboxViolation, ...]:
    """Return what the sandbox blocked in one call, a few at most; empty if the result has other causes."""
    found: dict[tuple[Kind, str], events.SandboxViolation] = {}
    for kind, target in _found(call, done, sight, exists):
        found.setdefault((kind, target), _event(kind, target, call.id))
        if len(found) >= MOST_PER_CALL:
            break
    return tuple(found.values())


def refused_host(host: str, port: int, reason: str) -> events.SandboxViolation:
    """Return the violation for a host that the proxy rejected."""
    return events.SandboxViolation(
        kind="network", target=f"{host}:{port}", message=f"{host}:{port} was not reached: {reason}"
    )


def _found(call: ToolCall, done: events.ToolCompleted, sight: Sight, exists: Exists) -> Iterator[tuple[Kind, str]]:
    field = _EDITS.get(call.name) or _READS.get(call.name)
    given = call.input
    if field is not None:
        path = given.get(field)
        if isinstance(path, str) and path:
            where = _whole(path, sight)
            if call.name in _EDITS:
                yield from _edited(where, done, sight)
            elif done.is_error and sight.of(where) in ("hidden", "private") and exists(where):
                yield "read", where
        return
    command = given.get("command") if call.name == "Bash" else None
    if command is None and not done.is_error:
        return
    text = done.text if len(done.text) <= 2 * _ENDS else f"{done.text[:_ENDS]}\n{done.text[-_ENDS:]}"
    yield from _files(text, sight, exists)
    yield from _signals(text, command if isinstance(command, str) else "", exists)
    if sight.network == "model-only":
        yield from _network(text, command if isinstance(command, str) else str(given))


def _edited(path: str, done: events.ToolCompleted, sight: Sight) -> Iterator[tuple[Kind, str]]:
    seen = sight.of(path)
    if seen == "private" and not done.is_error:
        yield "write", path  # written, but lost with the run: as good as not written
    elif done.is_error and seen != "rw" and _ANY.search(done.text):
        yield "write", path


def _files(text: str, sight: Sight, exists: Exists) -> Iterator[tuple[Kind, str]]:
    for match in _GIT_SETTINGS.finditer(text):
        if sight.of(path := _whole(match[1], sight)) != "rw":
            yield "write", path
    for line in text.splitlines():
        if not _ANY.search(line):
            continue
        is_writing = bool(_WRITING.search(line) or _SHELL.match(line))
        for path in _paths(line, sight):
            seen = sight.of(path)
            if _READ_ONLY.search(line):
                if seen != "rw":
                    yield "write", path
            elif _DENIED.search(line):
                if seen != "rw" and is_writing:
                    yield "write", path
            elif seen in ("hidden", "private") and exists(path):
                yield ("write" if _WRITING.search(line) else "read"), path
            elif seen in ("hidden", "private") and is_writing and exists(os.path.dirname(path)):  # noqa: PTH120
                yield "write", path  # a new file in a folder that does not exist inside


def _paths(line: str, sight: Sight) -> Iterator[str]:
    words = _QUOTED.findall(line) or _BARE.findall(line)
    if not words and _READ_ONLY.search(line):
        # A name relative to the command's folder: `touch: cannot touch 'x': Read-only file system`.
        words = re.findall(r"""['"\u2018`]([^'"\u2019`\n]+)['"\u2019`]""", line)[:1]
    for word in words:
        yield _whole(word, sight)


def _whole(path: str, sight: Sight) -> str:
    if path.startswith("~/"):
        path = sight.home + path[1:]
    return os.path.normpath(os.path.join(sight.workspace, path))  # noqa: PTH118  # text only; nothing is looked up


def _signals(text: str, command: str, exists: Exists) -> Iterator[tuple[Kind, str]]:
    pids = _SIGNAL.findall(text)
    if not pids and _SIGNAL_OF_PYTHON.search(text):
        pids = _KILLED_PID.findall(command)
    for pid in pids:
        if exists(f"/proc/{pid}"):
            yield "signal", pid


def _network(text: str, command: str) -> Iterator[tuple[Kind, str]]:
    for match in _UNREACHED.finditer(text):
        named = match["a"] or match["b"] or match["c"]
        if not named:
            found = _ADDRESS.search(text[max(0, match.start() - 200) : match.end() + 200]) or _ADDRESS.search(command)
            named = (found[1] or found[2]) if found else ""
        yield "network", named


def _event(kind: Kind, target: str, call_id: str) -> events.SandboxViolation:
    told = {
        "write": f"{target} lies outside of what this run may write; nothing of it stays",
        "read": f"{target} is hidden from this run",
        "signal": f"process {target} is not one of this run, and was not reached",
        "network": f"{target or 'a host'} was not reached: this run has no network but its model and allowed hosts",
    }[kind]
    return events.SandboxViolation(kind=kind, target=target, call_id=call_id, message=told)
