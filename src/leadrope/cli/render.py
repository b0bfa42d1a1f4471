"""Events as a person reads them. Text streams, everything else is one line each; decides nothing."""

from __future__ import annotations

import time
from typing import assert_never

import msgspec

from leadrope.cli.screen import Screen
from leadrope.core import events
from leadrope.core.result import RunResult
from leadrope.core.tools import ToolCall, class_of
from leadrope.runtime.gate import QUESTION_TOOLS
from leadrope.runtime.shown import clean, describe, one_line

_RESUMABLE = ("stopped", "parked", "timed_out", "over_budget", "denied")
_TAIL_KINDS = ("agent_died", "spawn_failed", "malformed_output", "out_of_memory", "empty_output")


class Renderer:
    """Shows one run. On a terminal the answer streams to stdout; else stdout gets the final text alone, at the end."""

    def __init__(
        self,
        screen: Screen,
        *,
        quiet: bool = False,
        answer: bool = True,
        rehearsal: bool = False,
        resumable: bool = True,
    ) -> None:
        self._screen = screen
        self._style = screen.style
        self._quiet = quiet
        self._answer = answer
        """False: stdout belongs to another form of output."""
        self._rehearsal = rehearsal
        """The model is a script: nobody pays, and costs would be fiction."""
        self._resumable = resumable
        self._cwd = ""
        self._calls: dict[str, ToolCall] = {}
        self._decided: set[str] = set()
        self._asked: dict[str, str] = {}
        """Approval id -> call id."""
        self._who: dict[str, str] = {}
        """Call id -> who was asked."""
        self._plans: set[str] = set()
        self._streamed = False
        self._streamed_any = False
        self._thinking = False
        self._pending = ""
        """Text that is the answer if nothing follows it; only kept when nobody watches stdout."""
        self._agents: set[str] = set()
        self._told: set[str] = set()

    def show(self, recorded: events.Recorded) -> None:
        event = recorded.event
        if not isinstance(event, events.MessageDelta):
            self._thinking = False
        match event:
            case events.MessageDelta():
                self._delta(event)
            case events.MessageCompleted():
                self._message(event)
            case events.SessionStarted():
                self._session(event)
            case events.ToolRequested():
                self._calls[event.call.id] = event.call
            case events.ToolDecided():
                self._decision(event)
            case events.ToolCompleted():
                self._completed(event)
            case events.ApprovalRequested():
                self._asked[event.approval_id] = event.call.id
            case events.ApprovalResolved():
                self._who[self._asked.get(event.approval_id, "")] = event.by
            case events.GrantRevoked():
                self._line(self._style.dim(f"  · {clean(event.pattern)} is no longer granted"))
            case events.QuestionRequested():
                if event.kind == "plan":
                    self._plans.add(event.question_id)
            case events.QuestionResolved():
                self._question(event)
            case events.SubagentStarted():
                self._agents.add(event.agent_id)
                name = f"{event.kind}: {event.description}" if event.kind else event.description
                self._line(f"  ▸ subagent {clean(one_line(name, 80))}")
            case events.SubagentEnded():
                if event.agent_id in self._agents:
                    self._agents.discard(event.agent_id)
                    self._line(self._style.dim(f"  ◂ subagent {clean(event.status or 'ended')}"))
            case events.LimitReached():
                self._limit(event)
            case events.RetryScheduled():
                self._retry(event)
            case events.Notice():
                self._notice(event)
            case events.WallsHeld():
                self._warn(f"the walls held: {one_line(event.message, 120)}")
            case events.OutputChecked():
                if not event.valid:
                    told = event.errors[0] if event.errors else "there is none"
                    self._warn(f"the answer does not fit the schema: {one_line(told, 120)}")
            case events.Unrecognised():
                self._line(self._style.dim(f"  · a line is not understood ({event.reason}): {_short(event.raw)}"))
            case events.RunEnded():
                self._ended(event.result)
            case (
                events.TurnStarted()
                | events.TurnEnded()
                | events.ThinkingCompleted()
                | events.ToolProgress()
                | events.UsageUpdated()
                | events.RunEnding()
                | events.AgentExited()
            ):
                pass
            case _:
                assert_never(event)

    # -- text -------------------------------------------------------------------------------------------------------

    def _delta(self, event: events.MessageDelta) -> None:
        if event.agent_id is not None:
            return
        if event.thinking:
            if not self._thinking:
                self._thinking = True
                self._line(self._style.dim("  · thinking"))
            return
        if self._answer and self._screen.is_live and event.text:
            self._say(event.text)
            self._streamed = True

    def _message(self, event: events.MessageCompleted) -> None:
        if event.agent_id is not None:
            self._line(self._style.dim(f"    {_short(event.text)}"))
            return
        if event.is_error:
            return  # the result tells it, with a hint
        if self._answer and self._screen.is_live:
            if not self._streamed:
                self._say(event.text)
            self._screen.end_line()
            self._streamed = False
        else:
            self._flush_pending()
            self._pending = event.text

    def _say(self, text: str) -> None:
        self._screen.text(clean(text))
        self._streamed_any = True

    def _flush_pending(self) -> None:
        """Something follows, so this was not the answer."""
        if self._pending.strip():
            self._line(clean(self._pending).rstrip())
        self._pending = ""

    # -- tools ------------------------------------------------------------------------------------------------------

    def _decision(self, event: events.ToolDecided) -> None:
        self._decided.add(event.call.id)
        if event.call.name in QUESTION_TOOLS and event.decision == "allow":
            return  # told when it is answered
        call = event.call
        if event.edited is not None:
            call = msgspec.structs.replace(call, input=event.edited)
        self._call_line(call, _verdict(event, self._who.get(event.call.id, "")), is_good=event.decision == "allow")

    def _call_line(self, call: ToolCall, verdict: str, *, is_good: bool) -> None:
        self._flush_pending()
        indent = "    " if call.agent_id else "  "
        mark = self._style.good("✓") if is_good else self._style.bad("✗")
        name = clean(call.name)
        room = self._screen.width - len(indent) - len(name) - 8
        tail = clean(one_line(verdict, max(40, room - 20)))
        words = describe(call, cwd=self._cwd, width=max(20, room - len(tail)))
        shown = self._style.dim(tail) if is_good else self._style.bad(tail)
        self._line(f"{indent}{mark} {self._style.bold(name)} {words}  {shown}".rstrip())

    def _completed(self, event: events.ToolCompleted) -> None:
        call = self._calls.get(event.call_id)
        if call is None or call.name in QUESTION_TOOLS:
            return
        if event.call_id not in self._decided:
            # The agent refused its own call before it came to the gate.
            text = event.text.replace("<tool_use_error>", "").replace("</tool_use_error>", "")
            self._call_line(call, f"did not run: {one_line(text, 100)}", is_good=False)
            return
        if not event.executed:
            return  # the decision said it
        indent = "      " if event.agent_id else "    "
        if event.is_error:
            self._line(self._style.bad(f"{indent}↳ failed: {_short(event.text, self._screen.width - 20)}"))
        elif class_of(call.name) == "command":
            self._line(self._style.dim(f"{indent}↳ {_preview(event.text, self._screen.width - 24)}"))

    def _question(self, event: events.QuestionResolved) -> None:
        is_plan = event.question_id in self._plans
        if event.answered:
            given = "; ".join(f"{one_line(q, 60)} → {one_line(a, 60)}" for q, a in event.answers.items())
            words = "plan approved" if is_plan else "answered"
            self._line(f"  {self._style.good('✓')} {words}{': ' + clean(given) if given else ''}")
        else:
            words = "plan turned down" if is_plan else "not answered"
            self._line(f"  {self._style.bad('✗')} {self._style.bad(f'{words}: {clean(event.reason)}')}")

    # -- the rest ---------------------------------------------------------------------------------------------------

    def _session(self, event: events.SessionStarted) -> None:
        self._cwd = event.cwd
        if not self._rehearsal:
            self._line(billing_line(event))
        parts = [f"{event.provider} {event.agent_version}".strip(), event.model, f"mode {event.mode}", event.cwd]
        self._line(self._style.dim(clean(" · ".join(part for part in parts if part))))
        if event.instructions:
            self._line(self._style.dim(clean(f"instructions: {', '.join(event.instructions)}")))
        for connection in event.connections:
            if connection.status not in ("connected", "pending"):
                self._warn(f"connection {connection.name}: {connection.status}")

    def _limit(self, event: events.LimitReached) -> None:
        when = f"; resets at {_clock(event.resets_at)}" if event.resets_at else ""
        kind = f" ({event.kind})" if event.kind else ""
        self._warn(f"usage limit{kind}: {event.message or event.status}{when}")

    def _retry(self, event: events.RetryScheduled) -> None:
        what = one_line(event.error, 100) or "the request failed"
        status = f" (HTTP {event.api_status})" if event.api_status else ""
        who = "starting again" if event.by == "supervisor" else "trying again"
        when = f"at {_clock(time.time() + event.delay_s)}" if event.delay_s >= 120 else f"in {event.delay_s:.0f} s"
        self._warn(f"{what}{status}; {who} {when} ({event.attempt} of {event.max_attempts})")

    def _notice(self, event: events.Notice) -> None:
        if event.level in ("warning", "error"):
            self._warn(event.message)
        elif event.level == "info":
            self._line(self._style.dim(f"  · {clean(event.message)}"))

    def _warn(self, text: str) -> None:
        self._told.add(text)
        self._line(f"{self._style.warn('!')} {clean(text)}")

    def _ended(self, result: RunResult) -> None:
        self._final_text(result)
        problem = ending_lines(result)
        if problem:
            mark = self._style.warn("!") if result.ok else self._style.bad("✗")
            self._always(f"{mark} {_short(problem[0], 500)}")
            for line in problem[1:]:
                self._always(f"  {clean(line)}")
        if result.outcome == "degraded" and result.warnings:
            self._told.add(result.warnings[0].message)  # it is the reason above
        for warning in result.warnings:
            if warning.message not in self._told and warning.message not in problem:
                self._warn(warning.message)
        self._line(self._style.dim(self._summary(result)))
        if self._resumable and result.outcome in _RESUMABLE and result.session_id:
            self._line(self._style.dim(f'go on with: leadrope run --resume {result.session_id} "…"'))

    def show_turn(self, result: RunResult) -> None:
        """The end of one turn of a conversation."""
        self._final_text(result)
        self._streamed_any = False
        problem = ending_lines(result)
        for number, line in enumerate(problem):
            mark = (self._style.warn("!") if result.ok else self._style.bad("✗")) if number == 0 else " "
            self._always(f"{mark} {_short(line, 500)}")
        self._line(self._style.dim(self._summary(result)))

    def _final_text(self, result: RunResult) -> None:
        if not self._answer:
            self._pending = ""
            return
        if result.output is not None:
            self._flush_pending()
            shown = msgspec.json.encode(result.output)
            text = shown.decode()
            if self._screen.is_live:
                text = clean(msgspec.json.format(shown, indent=2).decode())
            self._screen.end_line()
        elif self._screen.is_live:
            text = "" if self._streamed_any else clean(result.text)
        else:
            self._pending = ""
            text = result.text
        if text:
            self._screen.text(text if text.endswith("\n") else text + "\n")

    def _summary(self, result: RunResult) -> str:
        parts = [_count(result.turns, "turn"), f"{result.usage.total_tokens:,} tokens"]
        if not self._rehearsal:
            parts.append(f"{money(result.cost_usd)} ({result.cost_note})")
        parts.append(f"{result.duration_s:.1f} s")
        if result.denials:
            parts.append(f"{_count(len(result.denials), 'call')} denied")
        if result.leftovers_killed:
            parts.append(f"{_count(result.leftovers_killed, 'leftover process', 'leftover processes')} ended")
        return " · ".join(parts)

    def _line(self, text: str) -> None:
        if not self._quiet:
            self._screen.line(text)

    def _always(self, text: str) -> None:
        self._screen.line(text)


def billing_line(event: events.SessionStarted) -> str:
    """Who pays, before the first token is spent: `billing: subscription (setup token)`."""
    used = event.credential
    if used is None or used.billing == "none":
        return "billing: none"
    masked = f" · {used.masked}" if used.masked else ""
    return clean(f"billing: {used.billing} ({used.source}){masked}")


def ending_lines(result: RunResult) -> list[str]:
    """What was not as it should be, and what to do, fit for a terminal; nothing for a success."""
    return [clean(line) for line in _ending_lines(result)]


def _ending_lines(result: RunResult) -> list[str]:
    if result.outcome == "succeeded":
        return []
    if result.outcome == "degraded":
        return [f"degraded: {result.warnings[0].message}" if result.warnings else "degraded"]
    error = result.error
    if error is None:
        return [result.outcome.replace("_", " ")]
    facts: list[str] = [error.kind] if error.kind != result.outcome else []
    facts += [f"HTTP {error.api_status}"] if error.api_status else []
    facts += [f"clock: {error.clock}"] if error.clock else []
    told = f" ({', '.join(facts)})" if facts else ""
    lines = [f"{result.outcome.replace('_', ' ')}{told}: {error.message}"]
    if error.kind in _TAIL_KINDS:
        lines += [f"stderr: {line}" for line in error.stderr_tail[-5:]]
    if result.resets_at:
        lines.append(f"The limit resets at {_clock(result.resets_at)}.")
    if error.hint:
        lines.append(error.hint)
    return lines


def _verdict(event: events.ToolDecided, who: str) -> str:
    if event.decision == "allow":
        if event.by == "rule":
            return f"allowed by {event.rule}"
        edited = ", edited" if event.edited is not None else ""
        return f"approved by {'you' if who == 'person' else who or 'a person'}{edited}"
    if event.by == "rule":
        return f"denied by {event.rule}: {event.reason}" if event.reason else f"denied by {event.rule}"
    if event.by == "person" and who == "person":
        return f"denied by you: {event.reason}" if event.reason else "denied by you"
    return f"denied: {event.reason}"


def _short(text: str, width: int = 100) -> str:
    return one_line(clean(text), width)


def _preview(text: str, width: int) -> str:
    # Rules and boxes around the words say nothing.
    lines = [line for line in clean(text).splitlines() if any(char.isalnum() for char in line)]
    if not lines:
        return "no output"
    more = f"  (+{_count(len(lines) - 1, 'line')})" if len(lines) > 1 else ""
    return one_line(lines[0], width) + more


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def money(usd: float) -> str:
    return f"${usd:.4f}" if 0 < usd < 0.01 else f"${usd:.2f}"


def _clock(epoch: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(epoch))
