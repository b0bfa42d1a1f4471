"""A workflow at work on the screen: steps that are done as lines that stay, those that run as lines that change.

Where stderr is not a terminal only the lines that stay are written, and one for each step that starts.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable
from typing import Any, Self

import msgspec

from leadrope import spelling
from leadrope.cli import json_output
from leadrope.cli.screen.live_lines import LiveLines, seconds
from leadrope.cli.screen.screen import Screen
from leadrope.core import execution_events as events
from leadrope.runs.executions.values import ExecutionInfo
from leadrope.runtime.terminal_text import clean, exact, one_line, whole_input
from leadrope.workflows.report import ExecutionResult, PendingApproval, answer_command

WAIT_LINES = 8
WAIT_CHARACTERS = 600
"""So much of what a person is asked stands beside how to answer it."""
ACTION_CHARACTERS = 500
_MARKS = {"succeeded": "✓", "degraded": "!", "failed": "✗", "skipped": "·"}


class _Running(msgspec.Struct):
    kind: str
    since: float
    action: str = ""
    cost_usd: float = 0.0
    """Of all its items and turns, so far."""
    count: int | None = None
    done: int = 0
    waits: bool = False
    retry: str = ""
    turn: int = 1
    """Of its loop."""


class ExecutionView:
    """`show` takes the events of an execution; as a context it keeps the lines that change up to date."""

    def __init__(self, screen: Screen, *, quiet: bool = False, is_streamed: bool = False, is_live: bool = True) -> None:
        """`is_live`: with lines that change while steps run."""
        self._screen = screen
        self._quiet = quiet
        self._is_streamed = is_streamed
        self._live = LiveLines(screen, self._live_lines, wanted=is_live and not quiet)
        self._running: dict[str, _Running] = {}
        self._names: dict[str, str] = {}
        """Execution, empty for the outermost -> what its steps are called here: those of a called workflow have a
        path."""
        self.execution_id = ""
        self._since = time.monotonic()
        self._places: dict[str, str] = {}
        """Approval id -> what the step that asks is called here."""
        self._told: set[str] = set()
        """Approvals that were shown when they were asked."""
        self.has_person = False
        """Somebody sits at this terminal, and is asked there."""
        self.is_rehearsed = False
        self.answered: set[str] = set()
        """Approvals that no longer wait, for a log, which has those that were answered, too."""
        self._warnings: dict[str, list[events.StepWarning]] = {}
        """By step; told below its last line."""
        self._is_past = False
        self._tells_starts = is_live and not quiet and not screen.can_redraw

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.__exit__()

    # -- what happens -------------------------------------------------------------------------------------------------

    def replay(self, records: Iterable[events.ExecutionRecord]) -> None:
        """What happened before this process took it up: its title, and the steps that are done."""
        self._is_past = True
        for record in records:
            self._take(record)
        self._is_past = False
        self._running.clear()

    def show(self, record: events.ExecutionRecord) -> None:
        if self._is_streamed:
            self._live.erase()
            json_output.write(record)
        self._take(record)

    def _take(self, record: events.ExecutionRecord) -> None:
        self.execution_id = record.execution_id
        match record.event:
            case events.ExecutionStarted() as started:
                self._begun(started)
            case events.StepStarted() as step:
                begun = _Running(step.kind, time.monotonic(), count=step.count, done=step.done)
                self._running[self._name(step)] = begun
                if self._tells_starts and not self._is_past:
                    items = f" · {step.count} items" if step.count is not None else ""
                    self._line(f"  ⋯ {self._name(step)} ({step.kind}){items}")
            case events.StepProgress() as step:
                if running := self._running.get(self._name(step)):
                    running.action = step.action or running.action
                    running.done = step.done
                    running.cost_usd = max(step.cost_usd, running.cost_usd)
                    running.waits, running.retry = False, ""
                    self._turned(self._name(step), running, step.iteration + 1)
            case events.StepRetried() as step:
                self._retried(step)
            case events.StepAsked() as step:
                self._places[step.approval_id] = self._unit_name(step)
                if not self._is_past and not self.has_person:
                    self._asked(step)
                if running := self._running.get(self._name(step)):
                    running.waits = True
            case events.StepAnswered() as step:
                if not self._is_past and not self.has_person:
                    self._answered(step)
            case events.StepWarning(step="") as warning:
                self._line(self._screen.style.warn(f"  ! {first_line(warning.message)}"), always=True)
            case events.StepWarning() as warning:
                self._warnings.setdefault(self._name(warning), []).append(warning)
            case events.StepEnded() as step:
                self._ended(step)
            case _:
                pass

    def _begun(self, started: events.ExecutionStarted) -> None:
        if started.parent is None:
            self._names[""] = ""
            count = len(started.steps)
            words = f"{started.title or 'workflow'} · {count} step{'' if count == 1 else 's'} · {self.execution_id[:8]}"
            self._line(self._screen.style.bold(words))
        else:
            step, _, unit = started.parent_key.partition("#")
            turn, bracket, item = unit.partition("[")
            # The first turn has no number: only a step with a loop has more than one.
            again = f"#{int(turn) + 1}" if turn.isdecimal() and turn != "0" else ""
            outer = "" if started.parent == self.execution_id else started.parent
            self._names[started.execution] = f"{self._names.get(outer, '')}{step}{again}{bracket}{item}/"

    def _name(self, step: Any) -> str:
        return f"{self._names.get(step.execution, '')}{step.step}"

    def _unit_name(self, unit: Any) -> str:
        return self._name(unit) + (f"[{unit.item}]" if unit.item is not None else "")

    def place_of(self, approval_id: str) -> str:
        """The step that asks, with its path and its item; empty where that is not known."""
        return self._places.get(approval_id, "")

    def _asked(self, step: events.StepAsked) -> None:
        if step.approval_id not in self.answered:
            self._tell_approval(_pending(step), step.expires_s)
        else:
            self._line(f"  ? {self._unit_name(step)} asked a person: {first_line(step.detail or step.title)}")

    def _answered(self, step: events.StepAnswered) -> None:
        how = f"{'approved' if step.approved else 'denied'} by {clean(step.by)}"
        about = ": ".join(part for part in (how, clean(step.choice), first_line(step.reason)) if part)
        self._line(f"  · {self._unit_name(step)} {about}")

    def _turned(self, name: str, running: _Running, turn: int) -> None:
        if turn > running.turn:
            running.turn = turn
            if self._tells_starts and not self._is_past:
                self._line(f"  ⋯ {name} ({running.kind}) · turn {turn}")

    def _retried(self, step: events.StepRetried) -> None:
        name = self._name(step)
        if running := self._running.get(name):
            running.retry = f"attempt {step.attempt} in {step.wait_s:g} s"
        if not self._is_past:
            told = f"  ↻ {name}: {first_line(step.reason)}; attempt {step.attempt} follows"
            self._line(self._screen.style.warn(told))

    def _ended(self, step: events.StepEnded) -> None:
        name = self._name(step)
        running = self._running.pop(name, None)
        warnings = self._warnings.pop(name, [])
        style = self._screen.style
        paint = {"succeeded": style.good, "degraded": style.warn, "failed": style.bad, "skipped": style.dim}[
            step.status
        ]
        about = [seconds(step.duration_s)] if step.status != "skipped" else ["skipped"]
        if running is not None and running.count is not None:
            # One failed item ends the others of a `fail_fast` batch.
            is_whole = step.status != "failed" or step.units >= running.count
            about.append(f"{running.count} items" if is_whole else f"{step.units} of {running.count} items done")
        elif step.units > 1:
            about.append(f"{step.units} turns")
        if step.cost_usd and not self.is_rehearsed:
            about.append(money(step.cost_usd))
        if step.attempts > 1:
            about.append(f"{step.attempts} attempts")
        if step.is_cached:
            about.append("from the cache")
        if step.is_known or self._is_past:
            about = ["done before"]
        self._line(f"  {paint(_MARKS[step.status])} {name} {style.dim(' · '.join(about))}")
        # Without the line above, each says itself which step it is about.
        whose = f"{name}: " if self._quiet else "      "
        for warning in warnings:
            self._line(style.warn(f"{whose}{warning.kind}: {first_line(warning.message)}"), always=True)
        if step.failure is not None:
            message = step.failure.message
            error = message.removeprefix(f"{step.step}: ") if self._quiet else message
            for number, line in enumerate(clean(error).splitlines()[:8]):
                self._line(style.bad(f"{whose}{line}") if number == 0 else f"      {line}", always=True)

    # -- the end ------------------------------------------------------------------------------------------------------

    def tell(self, result: ExecutionResult, *, is_strict: bool = False) -> None:
        """The last lines: what it came to, what it cost, what to do next."""
        style = self._screen.style
        paint = {"succeeded": style.good, "degraded": style.warn}.get(result.outcome, style.bad)
        about = [seconds(result.duration_s)]
        if self.is_rehearsed:
            about.append("rehearsed: nobody was charged")
        elif result.cost_usd:
            about.append(f"{money(result.cost_usd)} (estimate at list prices)")
        if result.tokens:
            about.append(f"{result.tokens:,} tokens")
        is_too_strict = is_strict and result.outcome == "degraded"
        if is_too_strict:
            about.append("--strict makes that a failure")
        is_told = not self._quiet or not result.ok or is_too_strict
        if is_told:
            self._screen.line(f"{paint(result.outcome)} {style.dim(' · '.join(about))}")
        for step in result.failures if result.outcome == "failed" else ():
            if step.error is not None and step.error.hint:
                self._screen.say(spelling.runnable(f"  {step.id}: {step.error.hint}"), hanging="    ")
        if result.outcome not in ("waiting", "stopped"):
            for name, why in result.missing_reasons.items():
                line = f"  the output {name} has no value: {first_line(why)}"
                self._screen.say(style.warn(line) if result.ok else style.dim(line), hanging="    ")
        if result.last is not None and is_told and result.ok:
            shown = spelling.runnable(f"`leadrope flow report {result.execution_id[:8]}` shows what each step gave")
            told = f"the result of {result.last.step}" if result.last.result not in (None, "") else "no result to print"
            self._screen.say(style.dim(f"  no outputs are declared: {told}; {shown}"), hanging="  ")
        self._tell_approvals(result.approvals)
        if result.outcome == "waiting":
            self._screen.line(style.dim("  an answer continues it in the background"))
        if result.outcome in ("stopped", "failed"):
            self._tell_how_to_go_on(", ".join(step.id for step in result.failures[:3]))

    def tell_open(self, row: ExecutionInfo, approvals: Iterable[PendingApproval] = ()) -> None:
        """The last lines of one that has not ended, for whoever looks."""
        style = self._screen.style
        self._screen.line(f"{style.warn(row.state)}" + (f" {style.dim(clean(row.note))}" if row.note else ""))
        self._tell_approvals(approvals)
        if row.state == "interrupted":
            self._tell_how_to_go_on()

    def tell_interrupted(self) -> None:
        """The last lines of one that was left before it had come to its end."""
        took = self._screen.style.dim(seconds(time.monotonic() - self._since))
        self._screen.line(f"{self._screen.style.bad('interrupted')} {took}")
        self._tell_how_to_go_on()

    def _tell_how_to_go_on(self, failed: str = "") -> None:
        """`failed`: the steps from which a failed execution continues."""
        if self.execution_id and not self.is_rehearsed:
            where = f"from {failed} " if failed else ""
            self._screen.line(
                spelling.runnable(f"  continue {where}with: leadrope flow resume {self.execution_id[:8]}")
            )

    def _tell_approvals(self, approvals: Iterable[PendingApproval]) -> None:
        """Those that were not shown when they were asked."""
        for approval in sorted(approvals, key=lambda one: one.requested):
            if approval.id not in self._told:
                self._tell_approval(approval)

    def _tell_approval(self, asked: PendingApproval, expires_s: float = 0.0) -> None:
        """What a person is asked, and the command that answers it; also where only results and errors are wanted."""
        self._told.add(asked.id)
        text = exact(asked.detail or asked.title) + (f"\n{whole_input(asked.values)}" if asked.values else "")
        lines = [line for line in text.split("\n") if line.strip()] or [""]
        shown = "\n".join(lines[:WAIT_LINES])[:WAIT_CHARACTERS].split("\n")
        name = self._places.get(asked.id) or asked.step + (f"[{asked.item}]" if asked.item is not None else "")
        self._screen.line(f"  {name} waits for a person: {shown[0]}")
        for line in shown[1:]:
            self._screen.line(f"      {line}")
        if shown != lines:
            self._screen.line(spelling.runnable(f"      … leadrope approvals show {asked.id} has all of it"))
        others = [f"--choose {shlex.quote(exact(choice))}" for choice in asked.choices[1:]]
        more = ", ".join((*others, spelling.runnable(f"leadrope approvals deny {asked.id}")))
        from leadrope.cli.screen import table  # noqa: PLC0415  # only where something waits

        limit = f"; denied in {table.age(expires_s)} without an answer" if expires_s else ""
        self._screen.line(f"    {exact(spelling.runnable(answer_command(asked)))}   (or {more}{limit})")

    # -- the lines that change ----------------------------------------------------------------------------------------

    def _line(self, text: str, *, always: bool = False) -> None:
        if self._quiet and not always:
            return
        self._screen.line(text)

    def _live_lines(self, now: float) -> list[str]:
        return [self._live_line(name, running, now) for name, running in self._running.items()]

    def _live_line(self, name: str, running: _Running, now: float) -> str:
        about = [seconds(now - running.since, digits=0)]
        if running.count is not None:
            about.append(f"{running.done}/{running.count}")
        if running.turn > 1:
            about.append(f"turn {running.turn}")
        if running.cost_usd:
            about.append(money(running.cost_usd))
        if running.waits:
            about.append("waits for a person")
        elif running.retry:
            about.append(running.retry)
        elif running.action:
            # What a terminal acts on would move the cursor, and other lines than these would be taken away.
            about.append(one_line(clean(running.action), ACTION_CHARACTERS))
        return f"  ⋯ {name} ({running.kind}) " + " · ".join(about)


def _pending(step: events.StepAsked) -> PendingApproval:
    return PendingApproval(
        id=step.approval_id,
        kind=step.kind,
        execution_id=step.execution,
        step=step.step,
        iteration=step.iteration,
        item=step.item,
        title=step.title,
        detail=step.detail,
        values=step.values,
        choices=step.choices,
        needed=step.fields,
    )


def first_line(text: str) -> str:
    return next(iter(clean(text).splitlines()), "")


def money(value: float) -> str:
    return f"${value:.4f}" if value < 0.01 else f"${value:.2f}"
