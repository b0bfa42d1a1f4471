"""`leadrope sessions`: what was said with agents, and where it can go on. Starts nothing."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from leadrope import errors
from leadrope.cli import flags, json_output, values
from leadrope.cli.screen import table
from leadrope.cli.screen.screen import PIPED_WIDTH, Screen
from leadrope.confined import read_named, real_path
from leadrope.runtime.sessions.files import SessionInfo, Sessions
from leadrope.runtime.terminal_text import clean

_HELP = """List, show, export, import and delete sessions.

Every run belongs to a session, kept in LEADROPE_HOME/sessions. A unique ID prefix is enough.
"""
_EPILOG = """\b
Examples:
  leadrope sessions list
  leadrope sessions show 7f1f9d3e
  leadrope sessions export 7f1f9d3e > session.jsonl
  leadrope sessions import session.jsonl
  leadrope sessions delete --older-than 30
"""


@click.group("sessions", help=_HELP, epilog=_EPILOG)
def command() -> None:
    pass


@command.command("list")
@click.option("--here", is_flag=True, help="Only those of this folder.")
@flags.limit()
@flags.output("text", "json", help="json: one object per line.")
@flags.old_json()
def list_(*, here: bool, limit: int, output: str) -> int:
    """List sessions, last used first."""
    cwd = real_path(Path.cwd()) if here else None
    every = [info for info in Sessions.of().listing() if cwd is None or info.cwd == cwd]
    found = every[:limit] if limit else every
    if output == "json":
        for info in found:
            json_output.write(info)
        return 0
    if not found:
        click.echo("there are no sessions" + (" of this folder" if here else ""), err=True)
        return 0
    screen = Screen.of_process()
    for number, line in enumerate(listed(found, _width())):
        click.echo(screen.style.dim(line) if number == 0 and sys.stdout.isatty() else line)
    if len(found) < len(every):
        screen.line(screen.style.dim(f"{len(every) - len(found)} more; -n 0 shows all."))
    return 0


@command.command("show")
@click.argument("session_id", metavar="ID")
def show(session_id: str) -> int:
    """Show a session and its conversation."""
    sessions = Sessions.of()
    info = sessions.find(session_id)
    facts = {
        "session": info.id,
        "folder": info.cwd,
        "agent": " ".join(part for part in (info.provider, info.model) if part),
        "begun": _when(info.created),
        "last used": _when(info.last_used),
        "runs": f"{len(info.runs)}, {info.turns} model requests, ${info.cost_usd:.4f} ({info.cost_label})",
        "last run": info.outcome,
        "forked from": info.forked_from or "",
        "rebuilt": f"{info.rebuilt} times" if info.rebuilt else "",
    }
    for name, value in facts.items():
        if value:
            click.echo(f"{name:12} {clean(value)}")
    names = {"user": "you", "assistant": "agent", "tool": "tool"}
    for said in sessions.transcript(info.id):
        lines = clean(said.text).strip().split("\n")
        click.echo()
        click.echo(f"{names[said.role]:>5}  {lines[0]}")
        for line in lines[1:]:
            click.echo(f"       {line}")
    return 0


@command.command("export")
@click.argument("session_id", metavar="ID")
def export(session_id: str) -> int:
    """Write a session to standard output as JSON lines, without keys."""
    for line in Sessions.of().export(session_id):
        sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
    return 0


@command.command("import")
@click.argument("file", metavar="FILE")
def import_(file: str) -> int:
    """Import an exported session; `-` reads standard input."""
    try:
        lines = sys.stdin.buffer.read() if file == "-" else read_named(file, workspaces=values.workspaces())
    except errors.UnsafeFile as error:
        raise errors.BadValue("FILE", f"{file!r} {error.reason}", hint=error.hint) from None
    except OSError as error:
        raise errors.BadValue("FILE", f"{file!r} cannot be read: {error.strerror}") from None
    info = Sessions.of().import_(lines.splitlines(keepends=True))
    click.echo(f"{info.id}  {clean(info.title)}")
    return 0


@command.command("delete")
@click.argument("session_ids", metavar="[ID]...", nargs=-1)
@click.option("--older-than", type=float, metavar="DAYS", help="Delete those that were not used for this many days.")
def delete(session_ids: tuple[str, ...], older_than: float | None) -> int:
    """Delete sessions permanently."""
    if not session_ids and older_than is None:
        raise errors.RequestError("no session was named", hint="Name one, or say --older-than DAYS.")
    sessions = Sessions.of()
    found = [sessions.find(name).id for name in session_ids]
    for name in found:
        sessions.delete(name)
    if older_than is not None:
        found += sessions.prune(older_than * 86400)
    click.echo(f"deleted {len(found)} session{'' if len(found) == 1 else 's'}")
    return 0


def listed(found: Sequence[SessionInfo], width: int) -> list[str]:
    head = ("SESSION", "AGE", "LAST RUN", "RUNS", "FOLDER", "TITLE")
    rows = [
        (
            info.id[:8],
            table.ago(info.last_used),
            info.outcome or "-",
            str(len(info.runs)),
            table.cut_start(_folder(info.cwd), max(12, width // 4)),
            clean(" ".join(info.title.split())) + (f" (fork of {info.forked_from[:8]})" if info.forked_from else ""),
        )
        for info in found
    ]
    return table.table(head, rows, width, droppable=("RUNS", "FOLDER", "AGE"))


def _folder(cwd: str) -> str:
    mine = str(Path.home())
    return clean(f"~{cwd[len(mine) :]}" if cwd == mine or cwd.startswith(f"{mine}/") else cwd)


def _width() -> int:
    return os.get_terminal_size().columns if sys.stdout.isatty() else PIPED_WIDTH


def _when(epoch: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(epoch))
