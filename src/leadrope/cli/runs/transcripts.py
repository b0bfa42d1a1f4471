"""`leadrope import-transcript`: an agent's recording, of whichever form, as our events or in the universal schema."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import click
import msgspec

from leadrope import errors
from leadrope.cli import flags
from leadrope.cli.values import not_written, workspaces
from leadrope.confined import Folder, open_named, writing_named
from leadrope.core import events
from leadrope.core.universal.conversion import Universal
from leadrope.core.universal.types import UniversalEvent
from leadrope.providers.claude_code import oneshot, session_file, transcripts, unreadable
from leadrope.providers.claude_code.transcripts import Read

Form = Literal["events", "stream-json", "session"]

LOOK_AHEAD = 200
"""Lines that are searched for one that tells the form. An agent may print plain words first; two hundred lines without
one JSON object that we know are another kind of file."""

_LOOK_AHEAD_BYTES = 64 * 1024
_MOST_NOTE = 1024 * 1024
_MOST_REPLY = 64 * 1024 * 1024
_encode = msgspec.json.Encoder().encode
_OWN = msgspec.json.Decoder(events.Recorded)


@click.command(
    "import-transcript",
    short_help="Read an agent's recording into events.",
    epilog="""\b
Examples:
  claude -p "hello" --output-format stream-json --verbose > recording.jsonl
  leadrope import-transcript recording.jsonl
  leadrope import-transcript ~/.claude/projects/-home-me-app/ID.jsonl -o universal -O session.jsonl
""",
)
@click.argument("file")
@flags.output("events", "universal", help="leadrope's own events, or the universal schema.")
@flags.out()
@click.option("--raw", is_flag=True, help="With --output universal: keep each line beside what it means.")
def command(*, file: str, output: str, out: str | None, raw: bool) -> int:
    """Read FILE: what Claude Code printed with `--output-format stream-json` or `json`, or its own session file.

    No line is lost: what is not understood is kept as it is.
    """
    path = Path(file).expanduser()
    if raw and output != "universal":
        raise errors.BadValue("--raw", "only the universal form has a place for it", hint="Add --output universal.")
    if out is not None and Path(out).exists() and path.exists() and Path(out).samefile(path):
        raise errors.BadValue("--out", f"{out!r} is the file that is read", hint="Give another name.")
    reads = read_file(path)
    write(universal_of(reads, raw=raw) if output == "universal" else (read.recorded for read in reads), out)
    return 0


# -- reading ----------------------------------------------------------------------------------------------------------


def read_file(path: Path) -> Iterator[Read]:
    """The events of a file, of whichever form; refuses at once what is none."""
    head = _head(path)
    form = next((found for line in head if (found := form_of(line)) is not None), None)
    if form is None:
        reply = _whole(path)
        if reply is None:
            raise errors.BadValue(
                "FILE",
                f"{path} holds no line of a transcript that leadrope knows",
                hint="It reads stream-json of `claude` or of `leadrope run`, the one answer of "
                "`claude --output-format json`, and the session files of Claude Code.",
            )
        return oneshot.read_oneshot(reply.content, run_id=path.stem, start=reply.time)
    return _events_of(path, form, head)


class _Reply(msgspec.Struct, frozen=True):
    content: bytes
    time: float


def _whole(path: Path) -> _Reply | None:
    """The file as one answer, where that is what it holds."""
    with open_named(path, workspaces=workspaces()) as file:
        content = file.read(_MOST_REPLY + 1)
        reply = _Reply(content, os.fstat(file.fileno()).st_mtime)
    return reply if len(content) <= _MOST_REPLY and oneshot.is_oneshot(content) else None


def form_of(line: bytes) -> Form | None:
    with contextlib.suppress(*unreadable.ERRORS):
        value = msgspec.json.decode(line)
        if isinstance(value, dict) and {"run_id", "seq", "event"} <= value.keys():
            return "events"
    return transcripts.form_of(line)


def _head(path: Path) -> list[bytes]:
    try:
        with open_named(path, workspaces=workspaces()) as file:
            if b"\0" in file.read(_LOOK_AHEAD_BYTES):
                raise errors.BadValue("FILE", f"{path} is a binary file, not a transcript", hint="Give a .jsonl file.")
            file.seek(0)
            head = [line for line in islice(file, LOOK_AHEAD) if line.strip()]
    except errors.UnsafeFile as error:
        raise errors.BadValue("FILE", f"{path} {error.reason}", hint=error.hint) from None
    except OSError as error:
        raise errors.BadValue("FILE", f"{path} cannot be read: {error.strerror}") from None
    if not head:
        raise errors.BadValue("FILE", f"{path} is empty", hint="The agent may have written the reason to stderr.")
    return head


def _events_of(path: Path, form: Form, head: Sequence[bytes]) -> Iterator[Read]:
    with contextlib.ExitStack() as files:
        lines = files.enter_context(open_named(path, workspaces=workspaces()))
        if form == "events":
            yield from read_log(lines)
            return
        start = next((time for line in head if (time := transcripts.time_of(line)) is not None), None)
        start = os.fstat(lines.fileno()).st_mtime if start is None else start
        if form == "session":
            folder = files.enter_context(Folder.open(path.parent))
            agents = [
                msgspec.structs.replace(_described(folder, name), lines=files.enter_context(folder.open_read(name)))
                for name in _subagents(folder, f"{path.stem}/subagents")
            ]
            yield from session_file.read_session(lines, run_id=path.stem, start=start, agents=agents)
        else:
            session_id = transcripts.session_of(head)
            yield from transcripts.read_stream(lines, run_id=path.stem, start=start, session_id=session_id)


def read_log(lines: Iterable[bytes]) -> Iterator[Read]:
    """Our own log; a line that is damaged, or of a later version, is kept as it is."""
    last: events.Recorded | None = None
    for line in lines:
        if not line.strip():
            continue
        try:
            recorded = _OWN.decode(line)
        except unreadable.ERRORS:
            kept = unreadable.unrecognised(unreadable.why(line), line)
            place = (last.run_id, last.attempt, last.seq + 1, last.time) if last is not None else ("", 1, 1, 0.0)
            recorded = events.Recorded(*place, "agent", kept)
        last = recorded
        yield Read(recorded=recorded, raw=line.decode("utf-8", "replace").rstrip("\r\n"))


class _AgentNote(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    agent_type: str = ""
    description: str = ""
    tool_use_id: str = ""


def _subagents(folder: Folder, name: str) -> list[str]:
    """Their files, which the agent's program has written beside the session's; links among them are not."""
    try:
        entries = folder.entries(name)
    except (FileNotFoundError, errors.UnsafeFile):
        return []
    return [
        entry.path
        for entry in entries
        if entry.kind == "file" and entry.name.startswith("agent-") and entry.name.endswith(".jsonl")
    ]


def _described(folder: Folder, name: str) -> session_file.SubagentFile:
    """A subagent's file with what lies beside it; the note may be missing or of another version."""
    note = _AgentNote()
    path = Path(name)
    with contextlib.suppress(OSError, errors.UnsafeFile, *unreadable.ERRORS):
        raw = folder.read_bytes(str(path.with_suffix(".meta.json")), most=_MOST_NOTE)
        note = msgspec.json.decode(raw, type=_AgentNote)
    return session_file.SubagentFile(
        agent_id=path.stem.removeprefix("agent-"),
        call_id=note.tool_use_id,
        description=note.description,
        kind=note.agent_type,
    )


# -- writing ----------------------------------------------------------------------------------------------------------


def universal_of(reads: Iterable[Read], *, raw: bool) -> Iterator[UniversalEvent]:
    """One export; it is named after its run."""
    converter: Universal | None = None
    for read in reads:
        if converter is None:
            converter = Universal(read.recorded.run_id)
        yield from converter.feed(read.recorded, raw=read.raw if raw else None)
    if converter is not None:
        yield from converter.finish()


def write(values: Iterable[Any], out: str | None = None) -> None:
    """One JSON object a line. A file is there whole or not at all, for its owner only: a transcript is private."""
    if out is None:
        for value in values:
            sys.stdout.buffer.write(_encode(value) + b"\n")
        sys.stdout.buffer.flush()
        return
    try:
        with writing_named(Path(out).expanduser(), workspaces=workspaces()) as file:
            for value in values:
                file.write(_encode(value) + b"\n")
    except (errors.UnsafeFile, OSError) as error:
        raise not_written("--out", out, error) from None
