"""A workflow at work on the screen: steps that are done as lines that stay, those that run as lines that change.

Where stderr is no terminal only the lines that stay are written.
"""

from __future__ import annotations

import asyncio
import shlex
import sys
import time
from collections.abc import Iterable
from typing import Any, Self

import msgspec

from leadrope.cli.screen import Screen
from leadrope.cli.table import cut
from leadrope.runs.flow_values import Wait
from leadrope.runtime.shown import clean, exact, one_line, whole_input
from leadrope.workflows import happenings
from leadrope.workflows.report import FlowResult, StepReport

DRAW_S = 0.1
LIVE_LINES = 8
"""Steps that are shown at once while they run; the others are counted."""
WAIT_LINES = 8
WAIT_CHARACTERS = 600
"""So much of what a person is asked stands beside how to answer it."""
_MARKS = {"succeeded": "✓", "degraded": "!", "failed": "✗", "skipped": "·"}


class _Running(msgspec.Struct):
    kind: str
    since: float
    action: str = ""
    costs: dict[tuple[int, int | None], float] = msgspec.field(default_factory=dict)
    """Of each item and turn, so far."""
    count: int | None = None
    done: int = 0
    waits: bool = False
    retry: str = ""


class FlowView:
    """`show` takes what happens; as a context it keeps the lines that change up to date."""

    def __init__(self, screen: Screen, *, quiet: bool = False, is_streamed: bool = False) -> None:
        self._screen = screen
        self._quiet = quiet
        self._is_streamed = is_streamed
        self._is_live = sys.stderr.isatty() and not quiet
        self._running: dict[str, _Running] = {}
        self._names: dict[str, str] = {}
        """Flow id -> what its steps are called here: those of a workflow inside another have a path."""
        self._flow_id = ""
        self._since = time.monotonic()
        self._places: dict[str, str] = {}
        """Token -> what the step that asks is called here."""
        self._drawn = 0
        self._drawing: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        if self._is_live:
            self._screen.before = self._erase
            self._drawing = asyncio.get_running_loop().create_task(self._draw_always())
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawing is not None:
            self._drawing.cancel()
        self._erase()
        self._screen.before = None

    # -- what happens -------------------------------------------------------------------------------------------------

    def show(self, happening: happenings.Happening) -> None:
        if self._is_streamed:
            self._erase()
            sys.stdout.buffer.write(msgspec.json.encode(happening) + b"\n")
            sys.stdout.buffer.flush()
        match happening:
            case happenings.FlowStarted() as started:
                self._begun(started)
            case happenings.StepStarted() as step:
                begun = _Running(step.kind, time.monotonic(), count=step.count, done=step.done)
                self._running[self._name(step)] = begun
            case happenings.StepActing() as step:
                if running := self._running.get(self._name(step)):
                    running.action = step.action or running.action
                    unit = (step.iteration, step.item)
                    running.costs[unit] = max(step.cost_usd, running.costs.get(unit, 0.0))
                    running.waits, running.retry = False, ""
            case happenings.UnitEnded() as step:
                if running := self._running.get(self._name(step)):
                    running.done += 1
            case happenings.StepRetried() as step:
                self._retried(step)
            case happenings.StepWaits() as step:
                self._places[step.token] = self._unit_name(step)
                if running := self._running.get(self._name(step)):
                    running.waits = True
            case happenings.StepEnded() as step:
                self._ended(step)
            case _:
                pass

    def _begun(self, started: happenings.FlowStarted) -> None:
        if started.parent is None:
            self._names[started.flow_id] = ""
            self._flow_id = started.flow_id
            count = len(started.steps)
            words = f"{started.title or 'workflow'} · {count} step{'' if count == 1 else 's'} · {started.flow_id[:8]}"
            self._line(self._screen.style.bold(words))
        else:
            step, _, unit = started.parent_key.partition("#")
            item = unit[unit.index("[") :] if "[" in unit else ""
            self._names[started.flow_id] = f"{self._names.get(started.parent, '')}{step}{item}/"

    def _name(self, step: Any) -> str:
        return f"{self._names.get(step.flow_id, '')}{step.step}"

    def _unit_name(self, unit: Any) -> str:
        return self._name(unit) + (f"[{unit.item}]" if unit.item is not None else "")

    def place_of(self, token: str) -> str:
        """The step that asks, with its path and its item; empty where that is not known."""
        return self._places.get(token, "")

    def _retried(self, step: happenings.StepRetried) -> None:
        name = self._name(step)
        if running := self._running.get(name):
            running.retry = f"attempt {step.attempt} in {step.wait_s:g} s"
        self._line(self._screen.style.warn(f"  ↻ {name}: {first_line(step.why)}; attempt {step.attempt} follows"))

    def _ended(self, step: happenings.StepEnded) -> None:
        name = self._name(step)
        running = self._running.pop(name, None)
        style = self._screen.style
        paint = {"succeeded": style.good, "degraded": style.warn, "failed": style.bad, "skipped": style.dim}[
            step.status
        ]
        about = [seconds(step.duration_s)] if step.status != "skipped" else ["skipped"]
        if running is not None and running.count is not None:
            # One failed item ends the others of a `fail_fast` batch.
            is_whole = step.status != "failed" or running.done >= running.count
            about.append(f"{running.count} items" if is_whole else f"{running.done} of {running.count} items done")
        if step.cost_usd:
            about.append(money(step.cost_usd))
        if step.attempts > 1:
            about.append(f"{step.attempts} attempts")
        if step.is_cached:
            about.append("from the cache")
        if step.is_known:
            about = ["done before"]
        self._line(f"  {paint(_MARKS[step.status])} {name} {style.dim(' · '.join(about))}")
        # Without the line above, each says itself which step it is about.
        whose = f"{name}: " if self._quiet else "      "
        for warning in step.warnings:
            self._line(style.warn(f"{whose}{warning.kind}: {first_line(warning.message)}"), always=True)
        if step.error:
            error = step.error.removeprefix(f"{step.step}: ") if self._quiet else step.error
            for number, line in enumerate(clean(error).splitlines()[:8]):
                self._line(style.bad(f"{whose}{line}") if number == 0 else f"      {line}", always=True)

    # -- the end ------------------------------------------------------------------------------------------------------

    def tell(self, result: FlowResult, waits: Iterable[Wait] = (), *, is_strict: bool = False) -> None:
        """The last lines: what it came to, what it cost, what to do next. `waits` are its own as they are kept."""
        style = self._screen.style
        paint = {"succeeded": style.good, "degraded": style.warn}.get(result.outcome, style.bad)
        about = [seconds(result.duration_s)]
        if result.cost_usd:
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
                self._screen.line(f"  {step.id}: {step.error.hint}")
        if result.missing_outputs and is_told and result.outcome not in ("waiting", "stopped"):
            self._screen.line(style.dim(f"  without a value: {', '.join(result.missing_outputs)}"))
        for wait in sorted(waits, key=lambda one: one.requested):
            self._tell_wait(wait)
        if result.outcome == "stopped":
            self._tell_how_to_go_on()

    def tell_interrupted(self) -> None:
        """The last lines of one that was left before it had come to its end."""
        took = self._screen.style.dim(seconds(time.monotonic() - self._since))
        self._screen.line(f"{self._screen.style.bad('interrupted')} {took}")
        self._tell_how_to_go_on()

    def _tell_how_to_go_on(self) -> None:
        if self._flow_id:
            self._screen.line(f"  go on with: leadrope flow resume {self._flow_id[:8]}")

    def _tell_wait(self, wait: Wait) -> None:
        asked = wait.asked
        values = asked.get("values")
        text = exact(str(asked.get("detail") or asked.get("title") or "")) + (
            f"\n{whole_input(values)}" if values else ""
        )
        lines = [line for line in text.split("\n") if line.strip()] or [""]
        shown = "\n".join(lines[:WAIT_LINES])[:WAIT_CHARACTERS].split("\n")
        self._screen.line(f"  {self._unit_name(wait)} waits for a person: {shown[0]}")
        for line in shown[1:]:
            self._screen.line(f"      {line}")
        if shown != lines:
            self._screen.line(f"      … leadrope approvals show {wait.token} has all of it")
        yes = [f"--choose {shlex.quote(exact(str(choice)))}" for choice in asked.get("choices") or ()] or ["--approve"]
        self._screen.line(f"    leadrope flow resume {wait.token} {yes[0]}   (or {', '.join((*yes[1:], '--deny'))})")

    # -- the lines that change ----------------------------------------------------------------------------------------

    def _line(self, text: str, *, always: bool = False) -> None:
        if self._quiet and not always:
            return
        self._erase()
        self._screen.line(text)

    async def _draw_always(self) -> None:
        while True:
            self._draw()
            await asyncio.sleep(DRAW_S)

    def _draw(self) -> None:
        if self._screen.is_held:
            self._drawn = 0
            return
        self._erase()
        now = time.monotonic()
        columns, rows = self._screen.size()
        # What has scrolled out of the window cannot be taken away again.
        most = max(0, min(LIVE_LINES + 1, rows - 2))
        running = list(self._running.items())
        shown = running if len(running) <= min(LIVE_LINES, most) else running[: max(0, most - 1)]
        lines = [self._live_line(name, one, now, columns) for name, one in shown]
        if most and len(shown) < len(running):
            lines.append(self._screen.style.dim(cut(f"  … and {len(running) - len(shown)} more", columns - 1)))
        if lines:
            sys.stderr.write("".join(f"{line}\n" for line in lines))
            sys.stderr.flush()
        self._drawn = len(lines)

    def _live_line(self, name: str, running: _Running, now: float, columns: int) -> str:
        about = [seconds(now - running.since, digits=0)]
        if running.count is not None:
            about.append(f"{running.done}/{running.count}")
        if cost := sum(running.costs.values()):
            about.append(money(cost))
        if running.waits:
            about.append("waits for a person")
        elif running.retry:
            about.append(running.retry)
        elif running.action:
            # What a terminal acts on would move the cursor, and other lines than these would be taken away.
            about.append(one_line(clean(running.action), columns))
        plain = cut(f"  ⋯ {name} ({running.kind}) " + " · ".join(about), columns - 1)
        return self._screen.style.dim(plain)

    def _erase(self) -> None:
        if self._drawn:
            sys.stderr.write(f"\x1b[{self._drawn}A\x1b[J")
            sys.stderr.flush()
            self._drawn = 0


def first_line(text: str) -> str:
    return next(iter(clean(text).splitlines()), "")


def seconds(value: float, *, digits: int = 1) -> str:
    if value >= 90:
        return f"{int(value // 60)}m{int(value % 60):02d}s"
    return f"{value:.{digits}f}s"


def money(value: float) -> str:
    return f"${value:.4f}" if value < 0.01 else f"${value:.2f}"


def state_line(step: StepReport) -> str:
    return f"{_MARKS.get(step.state, '·')} {step.id}"
