"""A stored run as `leadrope runs show` prints it: settings, outcome, what it changed, what was denied and granted."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from leadrope import errors, spelling
from leadrope.cli.runs import revoke
from leadrope.cli.screen import table
from leadrope.cli.screen.live_lines import seconds
from leadrope.cli.screen.markdown_stream import MarkdownStream
from leadrope.cli.screen.render import ending_lines
from leadrope.core.request_checks import normal_mode
from leadrope.core.result import RunResult
from leadrope.core.text.rehearsal_label import is_rehearsed
from leadrope.regex import regex
from leadrope.runs.records.values import RunInfo, Texts
from leadrope.runs.workspace import run_workspace
from leadrope.runtime.terminal_text import clean, describe, exact, one_line

if TYPE_CHECKING:
    from leadrope.runs.service import Service

NAMED = 8
"""Files and denials that are named; the others are counted."""
PROMPT_LINES = 40
"""Of a prompt: what was piped in may be long."""


async def lines(
    service: Service, run: RunInfo, texts: Texts, width: int, *, is_live: bool = False, styles_answer: bool = False
) -> list[str]:
    """`is_live`: for a terminal, whose lines are broken between words. What a program reads keeps its lines."""
    facts = [
        *_about(run, await service.waits_for(run), texts),
        *await _changes(service, run, texts),
        *_denied(texts.result, run.cwd, width),
        *revoke.lines(await service.grants(run.id), run.cwd),
        *(("kept", f"{clean(each.name)} ({each.size:,} bytes)") for each in await service.artifacts(run)),
    ]
    found = [line for name, value in facts for line in _fact(name, value, width, is_live=is_live)]
    room = width - 2 if is_live else None
    found += ["", "Prompt:", *_indented(_cut(clean(texts.request.prompt)), room)]
    result = texts.result
    if result is not None and result.text:
        text = clean(result.text.strip())
        if styles_answer:
            stream = MarkdownStream()
            text = stream.feed(text) + stream.end()
        found += ["", "Answer:", *_indented(text, room)]
    problem = ending_lines(result) if result is not None else []
    if problem:
        told = [f"Ended: {problem[0]}", *(f"  {line}" for line in problem[1:])]
        found += ["", *(piece for line in told for piece in _broken(line, width if is_live else None, hanging="  "))]
    return found


def _fact(name: str, value: str, width: int, *, is_live: bool) -> list[str]:
    """Ids and paths are never broken: somebody may want to copy them. A long one has a line of its own."""
    room = max(20, width - 11)
    lines = table.wrapped(value, room)
    longest = max(map(table.width_of, lines))
    if is_live and name and room < longest <= width - 2:
        return [name, *(f"  {line}" for line in table.wrapped(value, width - 2))]
    return [f"{name if number == 0 else '':<10} {line}".rstrip() for number, line in enumerate(lines)]


def _about(run: RunInfo, note: str, texts: Texts) -> list[tuple[str, str]]:
    source = "computed" if texts.result is None else texts.result.cost_source
    cost = "none (rehearsal)" if is_rehearsed(run.labels) else f"${run.cost_usd:.4f} ({run.cost_label}, {source})"
    state = run.state if run.outcome is None else f"{run.state}, {run.outcome}"
    found = [
        ("run", run.id),
        ("state", state + (f": {clean(spelling.runnable(note))}" if note else "")),
        ("folder", clean(run.cwd)),
        ("agent", " ".join(word for word in (run.agent, run.provider, run.model) if word)),
        ("mode", _mode(texts.request.mode)),
        ("session", run.session_id or "-"),
        ("started", time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.started or run.created))),
        ("duration", _duration(run)),
        ("attempts", str(run.attempt if texts.result is None else texts.result.attempts)),
        ("cost", f"{cost}, {run.tokens:,} tokens{_requests(texts.result)}"),
    ]
    if run.labels:
        found.append(("labels", clean(", ".join(f"{key}={value}" for key, value in run.labels.items()))))
    if run.parent:
        found.append(("after", run.parent[:8]))
    if run.state != "ended" and run.last_action:
        found.append(("now", clean(run.last_action)))
    return found


def _mode(name: str) -> str:
    try:
        return normal_mode(name)
    except errors.BadValue:
        return clean(name)  # it was refused for that


def _duration(run: RunInfo) -> str:
    if run.started is None:
        return "-"
    return seconds((run.ended or time.time()) - run.started) + ("" if run.ended else " so far")


def _requests(result: RunResult | None) -> str:
    if result is None or not result.turns:
        return ""
    return f", {result.turns} model request{'' if result.turns == 1 else 's'}"


async def _changes(service: Service, run: RunInfo, texts: Texts) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    tree = run_workspace.tree_of(texts.place)
    if tree is not None:
        found += [("worktree", clean(tree.path)), ("branch", clean(tree.branch))]
    try:
        paths = await run_workspace.changed_files(service, run)
    except (errors.LeadropeError, OSError) as error:
        return [*found, ("files", f"not known: {error}")]
    if not paths:
        none = run_workspace.none_changed(texts.place)
        return [*found, *([("files", clean(none))] if none and run.state == "ended" else [])]
    named = ", ".join(clean(path) for path in paths[:NAMED])
    more = f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
    next_ = "apply|discard" if tree is not None else "undo"
    count = f"{len(paths)} changed: {named}{more}"
    return [*found, ("files", count), ("", spelling.runnable(f"leadrope runs diff|{next_} {run.id[:8]}"))]


def _denied(result: RunResult | None, cwd: str, width: int) -> list[tuple[str, str]]:
    if result is None or not result.denials:
        return []
    found = []
    for denial in result.denials[:NAMED]:
        call = f"{exact(denial.call.name)} {describe(denial.call, cwd=cwd, width=60)}"
        found.append(f"{call}: {clean(one_line(denial.reason, max(60, width)))}")
    if len(result.denials) > NAMED:
        found.append(f"and {len(result.denials) - NAMED} more")
    return [("denied" if place == 0 else "", text) for place, text in enumerate(found)]


def _cut(text: str) -> str:
    shown = text.strip().split("\n")
    if len(shown) <= PROMPT_LINES:
        return "\n".join(shown)
    return "\n".join([*shown[:PROMPT_LINES], f"… {len(shown) - PROMPT_LINES} more lines (-o json has all of them)"])


def _indented(text: str, room: int | None) -> list[str]:
    """Lines of code are left to the terminal, so that they can be copied."""
    found: list[str] = []
    is_code = False
    for line in text.strip().split("\n"):
        is_fence = _FENCE.match(line) is not None
        is_code ^= is_fence
        pieces = [line] if is_code or is_fence else _broken(line, room, hanging=_hanging(line))
        found += [f"  {piece}".rstrip() for piece in pieces]
    return found


def _hanging(line: str) -> str:
    """Below the words of a list's entry, not below its mark."""
    found = _START.match(line)
    return " " * len(found[0]) if found else ""


_START = regex(r"\s*(?:[-*+•] |\d+[.)] )?")
_FENCE = regex(r"(?:\x1b\[[0-9;]*m)?\s*(?:`{3}|~{3})")


def _broken(line: str, room: int | None, *, hanging: str) -> list[str]:
    return [line] if room is None else table.wrapped(line, room, hanging=hanging)
