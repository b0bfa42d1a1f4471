"""Tool calls as lines of a terminal: allowed, denied, done, failed, and those that are running now."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import msgspec

from leadrope.cli.screen.live_lines import seconds
from leadrope.cli.screen.screen import Screen
from leadrope.core import actors, events
from leadrope.core.tools import ASKING_TOOLS, ToolCall, class_of
from leadrope.regex import regex
from leadrope.runtime.terminal_text import clean, describe, one_line

SHOWN_AFTER_S = 0.3
"""A call that is done sooner has no line that changes: it would only flicker."""
_HAS_LINES_BELOW = ("Task", "Agent")
"""What a subagent does is shown while its call runs, so the call's own line stands above that."""
_EXIT_CODE = regex(r"Exit code (\d+)\s*")


class _Running(msgspec.Struct):
    call: ToolCall
    verdict: str
    time: float
    """Of the decision, as the event has it."""
    since: float
    """The same on the monotonic clock of this process."""
    is_told: bool = False


class CallLines:
    """`folded`: a call is one line, written when it is done, and until then one of `running`.

    Otherwise it is a line when it is allowed (→) and another when it is done (✓) or has failed (✗).
    """

    def __init__(self, screen: Screen, line: Callable[[str], None], *, folded: bool) -> None:
        self.cwd = ""
        self._screen = screen
        self._style = screen.style
        self._line = line
        self._folded = folded
        self._calls: dict[str, ToolCall] = {}
        self._decided: set[str] = set()
        self._running: dict[str, _Running] = {}

    # -- what happens -------------------------------------------------------------------------------------------------

    def requested(self, call: ToolCall) -> None:
        self._calls[call.id] = call

    def decided(self, event: events.ToolDecided, at: float, now: float) -> None:
        self._decided.add(event.call.id)
        if event.call.name in ASKING_TOOLS and event.decision == "allow":
            return  # told when it is answered
        call = event.call
        if event.edited is not None:
            call = msgspec.structs.replace(call, input=event.edited)
        verdict = _verdict(event)
        if event.decision == "deny":
            self._write("✗", call, verdict, paint=self._style.bad)
            return
        running = _Running(call=call, verdict=verdict, time=at, since=now)
        self._running[event.call.id] = running
        if not self._folded or call.name in _HAS_LINES_BELOW:
            self._allowed(running)

    def completed(self, event: events.ToolCompleted, at: float) -> None:
        running = self._running.pop(event.call_id, None)
        call = self._calls.get(event.call_id) or (running.call if running else None)
        if call is None or call.name in ASKING_TOOLS:
            return
        if event.call_id not in self._decided:
            # The agent refused its own call before it came to the gate.
            text = event.text.replace("<tool_use_error>", "").replace("</tool_use_error>", "")
            self._write("✗", call, f"did not run: {one_line(text, 300)}", paint=self._style.bad)
            return
        if running is None:
            return  # denied, and told then
        if not event.executed:
            self._write("✗", running.call, "did not run", paint=self._style.bad)
            return
        took = seconds(max(0.0, at - running.time))
        about = [] if running.is_told else [running.verdict]
        if event.is_error:
            self._write("✗", running.call, " · ".join([*about, f"failed after {took}"]), paint=self._style.bad)
        else:
            self._write("✓", running.call, " · ".join([*about, took]), paint=self._style.good)
        self._output(event, call)

    def finish(self) -> None:
        """The end: what was still running has no result any more."""
        for running in self._running.values():
            if not running.is_told:
                self._allowed(running)
        self._running.clear()

    # -- lines --------------------------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        return bool(self._running)

    def running(self, now: float) -> list[str]:
        """Those that are allowed and not done, for lines that change."""
        found = [running for running in self._running.values() if now - running.since >= SHOWN_AFTER_S]
        columns = self._screen.size()[0]
        lines = []
        for running in found:
            name = clean(running.call.name)
            took = seconds(now - running.since, digits=0)
            room = columns - len(name) - len(took) - 8
            verdict = "" if running.is_told or len(running.verdict) + 30 > room else f" · {clean(running.verdict)}"
            words = describe(running.call, cwd=self.cwd, width=max(10, room - len(verdict)))
            lines.append(f"  ⋯ {name} {words} {took}{verdict}")
        return lines

    def _allowed(self, running: _Running) -> None:
        running.is_told = True
        self._write("→", running.call, running.verdict, paint=self._style.dim)

    def _write(self, mark: str, call: ToolCall, verdict: str, *, paint: Callable[[str], str]) -> None:
        indent = "    " if call.agent_id else "  "
        name, tail = clean(call.name), clean(one_line(verdict, 500))
        width = self._screen.width
        head = len(indent) + 2 + len(name) + 1
        words = describe(call, cwd=self.cwd, width=max(15, width - head))
        tail_paint = self._style.bad if mark == "✗" else self._style.dim
        if head + len(words) + 2 + len(tail) > width and len(tail) <= width // 2:
            # A long command is cut for a short word about it.
            words = describe(call, cwd=self.cwd, width=max(15, width - head - 2 - len(tail)))
        start = f"{indent}{paint(mark)} {self._style.bold(name)} {words}"
        if head + len(words) + 2 + len(tail) <= width:
            self._line(f"{start}  {tail_paint(tail)}".rstrip())
            return
        # A reason is never cut: what was denied, and why, is what a person has to know.
        self._line(start.rstrip())
        for line in textwrap.wrap(tail, max(20, width - len(indent) - 2)):
            self._line(f"{indent}  {tail_paint(line)}")

    def _output(self, event: events.ToolCompleted, call: ToolCall) -> None:
        is_command = class_of(call.name) == "command"
        if not is_command and not event.is_error:
            return
        indent = "      " if event.agent_id else "    "
        room = self._screen.width - len(indent) - 2
        text = clean(event.text)
        code = _EXIT_CODE.match(text) if event.is_error and is_command else None
        about = f"exit code {code[1]}: " if code else ""
        shown = last_line(text[code.end() :] if code else text, max(20, room - len(about)))
        paint = self._style.bad if event.is_error else self._style.dim
        self._line(paint(f"{indent}↳ {about}{shown}"))


def last_line(text: str, width: int) -> str:
    """The end of a command's output says most: the count of failed tests, the error."""
    # Rules and boxes around the words say nothing.
    lines = [line for line in text.splitlines() if any(char.isalnum() for char in line)]
    if not lines:
        return "no output"
    count = f"  ({len(lines)} lines)" if len(lines) > 1 else ""
    return one_line(lines[-1], max(10, width - len(count))) + count


def _verdict(event: events.ToolDecided) -> str:
    if event.decision == "allow":
        if event.by == actors.POLICY:
            return f"allowed by {event.rule}"
        edited = ", edited" if event.edited is not None else ""
        return f"approved by {_named(event.by)}{edited}"
    if event.by == actors.POLICY:
        return f"denied by {event.rule}: {event.reason}" if event.reason else f"denied by {event.rule}"
    if actors.kind_of(event.by) == actors.USER:
        return f"denied by {_named(event.by)}: {event.reason}" if event.reason else f"denied by {_named(event.by)}"
    return f"denied: {event.reason}"


def _named(by: str) -> str:
    if by == actors.system_user():
        return "you"
    return "a person" if by == actors.USER else clean(by)
