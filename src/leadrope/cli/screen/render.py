"""Events as a person reads them. Text streams, everything else is one line each; decides nothing."""

from __future__ import annotations

import time
from typing import assert_never

import msgspec

from leadrope import spelling
from leadrope.cli.screen import table
from leadrope.cli.screen.call_lines import SHOWN_AFTER_S, CallLines
from leadrope.cli.screen.live_lines import seconds
from leadrope.cli.screen.markdown_stream import MarkdownStream
from leadrope.cli.screen.screen import Screen
from leadrope.core import events
from leadrope.core.result import RunResult
from leadrope.runtime.terminal_text import clean, one_line

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
        folded: bool = False,
        is_data: bool = False,
    ) -> None:
        """`folded`: a call is one line, when it is done; somebody shows `live_lines` until then, or it is all past.
        `is_data`: the answer is JSON, by a schema. Stdout gets that alone; what the agent says goes to stderr.
        """
        self._screen = screen
        self._style = screen.style
        self._quiet = quiet
        self._answer = answer
        """False: stdout belongs to another form of output."""
        self._is_data = is_data
        self._streams = answer and screen.is_live and not is_data
        self._markdown = MarkdownStream() if answer and screen.styles_answer and not is_data else None
        self._rehearsal = rehearsal
        """The model is a script: nobody pays, and costs would be fiction."""
        self._folded = folded
        self._calls = CallLines(screen, self._call_line, folded=folded)
        self._plans: set[str] = set()
        self._streamed = False
        self._streamed_any = False
        self._thinking = False
        self._pending = ""
        """Text that is the answer if nothing follows it; only kept when nobody watches stdout."""
        self._agents: set[str] = set()
        self._told: set[str] = set()
        self._header: list[str] = []
        self._waiting: dict[str, str] = {}
        """What a person is asked, by the id of the question."""
        self._doing = "starting the agent"
        self._since = time.monotonic()

    def live_lines(self, now: float) -> list[str]:
        """What it is doing at this moment, for lines that change."""
        if self._calls.is_running:
            return self._calls.running(now)
        if not self._doing or now - self._since < SHOWN_AFTER_S:
            return []
        doing = next(iter(self._waiting.values()), self._doing)
        return [f"  ⋯ {doing} {seconds(now - self._since, digits=0)}"]

    def begin_turn(self) -> None:
        """Something was said to the agent."""
        self._now_doing("thinking" if self._header else "starting the agent")

    def _now_doing(self, what: str) -> None:
        self._doing, self._since = what, time.monotonic()

    def show(self, recorded: events.Recorded) -> None:
        event = recorded.event
        self._note(event)
        if not isinstance(event, events.MessageDelta | events.ThinkingDelta):
            self._thinking = False
        match event:
            case events.MessageDelta() | events.ThinkingDelta():
                self._delta(event)
            case events.MessageCompleted():
                self._message(event)
            case events.SessionStarted():
                self._session(event)
            case events.ToolRequested():
                self._calls.requested(event.call)
            case events.ToolDecided():
                self._calls.decided(event, recorded.time, time.monotonic())
            case events.ToolCompleted():
                self._calls.completed(event, recorded.time)
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
            case events.SandboxViolation():
                self._warn(f"the sandbox held: {one_line(event.message, 120)}")
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
                | events.ApprovalRequested()
                | events.ApprovalResolved()
                | events.UsageUpdated()
                | events.UsageEstimated()
                | events.RunEnding()
                | events.AgentExited()
            ):
                pass
            case _:
                assert_never(event)

    def _note(self, event: events.Event) -> None:
        """What it does from now on, for `live_lines`."""
        match event:
            case events.MessageDelta(agent_id=None, thinking=False):
                # On a terminal the text itself says that something comes.
                if self._doing != "writing" or self._streams:
                    self._now_doing("writing")
            case events.MessageDelta() | events.ThinkingDelta():
                pass
            case events.SessionStarted() | events.TurnStarted() | events.MessageCompleted() | events.ToolCompleted():
                self._now_doing("thinking")
            case events.ApprovalRequested():
                self._now_doing("thinking")
                self._waiting[event.approval_id] = f"waiting for approval of {clean(one_line(event.call.name, 30))}"
            case events.QuestionRequested():
                self._now_doing("thinking")
                self._waiting[event.question_id] = "waiting for an answer"
            case events.ApprovalResolved(approval_id=name) | events.QuestionResolved(question_id=name):
                self._waiting.pop(name, None)
                self._now_doing("thinking")
            case events.RetryScheduled(by="supervisor"):
                self._now_doing("waiting to start again")
            case events.RetryScheduled(error=error, attempt=number) if events.is_unreachable(error):
                self._now_doing(f"{clean(one_line(error, 100))}, attempt {number + 1}")
            case events.RetryScheduled():
                self._now_doing("waiting to try again")
            case events.TurnEnded() | events.RunEnding():
                self._now_doing("ending")
            case events.RunEnded():
                self._now_doing("")
            case _:
                pass

    # -- text -------------------------------------------------------------------------------------------------------

    def _delta(self, event: events.MessageDelta | events.ThinkingDelta) -> None:
        if event.agent_id is not None:
            return
        if events.is_thought(event):
            if not self._thinking and not self._folded:
                self._thinking = True
                self._line(self._style.dim("  · thinking"))
            return
        if self._streams and event.text:
            self._say(event.text)
            self._streamed = True

    def _message(self, event: events.MessageCompleted) -> None:
        if event.agent_id is not None:
            self._line(self._style.dim(f"    {_short(event.text)}"))
            return
        if event.is_error:
            return  # the result tells it, with a hint
        if self._streams:
            if not self._streamed:
                self._say(event.text)
            self._end_text()
            self._screen.end_line()
            self._streamed = False
        else:
            self._flush_pending()
            self._pending = event.text

    def _say(self, text: str) -> None:
        shown = clean(text)
        self._screen.text(shown if self._markdown is None else self._markdown.feed(shown))
        self._streamed_any = True

    def _end_text(self) -> None:
        """What was held back, to see what it means, is shown."""
        if self._markdown is not None:
            self._screen.text(self._markdown.end())

    def _flush_pending(self) -> None:
        """Something follows, so this was not the answer."""
        if self._pending.strip():
            self._line(clean(self._pending).rstrip())
        self._pending = ""

    # -- tools ------------------------------------------------------------------------------------------------------

    def _call_line(self, text: str) -> None:
        self._flush_pending()
        self._line(text)

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
        self._calls.cwd = event.cwd
        lines = [] if self._rehearsal else self._fitted(billing_line(event).split(" · "))
        parts = [f"{event.provider} {event.agent_version}".strip(), event.model, f"mode {event.mode}", event.cwd]
        lines += [self._style.dim(line) for line in self._fitted([clean(part) for part in parts if part])]
        if event.instructions:
            lines.append(self._style.dim(clean(f"instructions: {', '.join(event.instructions)}")))
        for line in lines:
            if line not in self._header:  # a further attempt says only what is different
                self._line(line)
        self._header = lines
        for connection in event.connections:
            if connection.status not in ("connected", "pending"):
                self._warn(f"connection {connection.name}: {connection.status}")

    def _limit(self, event: events.LimitReached) -> None:
        when = f"; resets at {_clock(event.resets_at)}" if event.resets_at else ""
        kind = f" ({event.kind})" if event.kind else ""
        self._warn(f"usage limit{kind}: {event.message or event.status}{when}")

    def _retry(self, event: events.RetryScheduled) -> None:
        what = one_line(event.error, 100) or "the request failed"
        if events.is_unreachable(event.error):
            # The notice before it says this of the first one, and the live line of all.
            if event.attempt > 1 and not self._folded:
                self._warn(f"{what}; retrying, attempt {event.attempt + 1}")
            return
        status = f" (HTTP {event.api_status})" if event.api_status else ""
        who = "starting again" if event.by == "supervisor" else "trying again"
        when = f"at {_clock(time.time() + event.delay_s)}" if event.delay_s >= 120 else f"in {event.delay_s:.0f} s"
        self._warn(f"{what}{status}; {who} {when} ({event.attempt} of {event.max_attempts})")

    def _notice(self, event: events.Notice) -> None:
        if event.level in ("warning", "error"):
            self._warn(event.message or event.code)
        elif event.level == "info":
            self._line(self._style.dim(f"  · {clean(spelling.runnable(event.message))}"))

    def _warn(self, text: str) -> None:
        self._told.add(text)
        self._line(f"{self._style.warn('!')} {clean(spelling.runnable(text))}", wraps=True)

    def _ended(self, result: RunResult) -> None:
        self._calls.finish()
        self._final_text(result)
        problem = ending_lines(result)
        if problem:
            mark = self._style.warn("!") if result.ok else self._style.bad("✗")
            self._always(f"{mark} {_short(problem[0], 500)}", wraps=True)
            for line in problem[1:]:
                self._always(f"  {clean(line)}", wraps=True)
        if result.outcome == "degraded" and result.warnings:
            self._told.add(result.warnings[0].message)  # it is the reason above
        for warning in result.warnings:
            if warning.message not in self._told and warning.message not in problem:
                self._warn(warning.message)
        self._tell_summary(result)

    def show_turn(self, result: RunResult, *, is_interrupted: bool = False) -> None:
        """The end of one turn of a conversation."""
        self._calls.finish()
        self._final_text(result)
        self._streamed_any = False
        # Whoever sits here has seen the denied call or has interrupted it, and says what comes next.
        problem = [] if result.outcome == "denied" else ending_lines(result)
        if is_interrupted and result.outcome == "stopped":
            problem = []
            self._always("interrupted.")
        for number, line in enumerate(problem):
            mark = (self._style.warn("!") if result.ok else self._style.bad("✗")) if number == 0 else " "
            self._always(f"{mark} {_short(line, 500)}", wraps=True)
        if not is_interrupted or result.usage.total_tokens:
            self._tell_summary(result)

    def _final_text(self, result: RunResult) -> None:
        self._end_text()  # of a message that was cut off
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
        elif self._is_data:
            self._pending, text = self._pending or result.text, ""
            self._flush_pending()
        elif self._screen.is_live:
            text = "" if self._streamed_any else clean(result.text)
            if self._markdown is not None and text:
                text = self._markdown.feed(text) + self._markdown.end()
        else:
            self._pending = ""
            text = result.text
        if text:
            self._screen.text(text if text.endswith("\n") else text + "\n")

    def _fitted(self, parts: list[str]) -> list[str]:
        return table.joined(parts, self._screen.width)

    def _tell_summary(self, result: RunResult) -> None:
        for line in self._fitted(self._summary(result)):
            self._line(self._style.dim(line))

    def _summary(self, result: RunResult) -> list[str]:
        # Of a turn that was stopped the agent also counts requests that were never answered.
        is_counted = result.usage.total_tokens and result.outcome != "stopped"
        parts = [_count(result.turns, "model request")] if is_counted else []
        parts.append(f"{result.usage.total_tokens:,} tokens")
        if not self._rehearsal:
            parts.append(f"{money(result.cost_usd)} ({result.cost_note})")
        parts.append(f"{result.duration_s:.1f} s")
        if result.denials:
            parts.append(f"{_count(len(result.denials), 'call')} denied")
        if result.leftovers_killed:
            parts.append(f"{_count(result.leftovers_killed, 'leftover process', 'leftover processes')} ended")
        return parts

    def _line(self, text: str, *, wraps: bool = False) -> None:
        if not self._quiet:
            self._always(text, wraps=wraps)

    def _always(self, text: str, *, wraps: bool = False) -> None:
        if wraps:
            self._screen.say(text, hanging="  ")
        else:
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
    lines = [f"{result.outcome.replace('_', ' ')}{told}: {spelling.runnable(error.message)}"]
    if error.connection is not None:
        lines += [f"stderr of {error.connection}: {line}" for line in error.stderr_tail]
    elif error.kind in _TAIL_KINDS:
        lines += [f"stderr: {line}" for line in error.stderr_tail[-5:]]
    if result.resets_at:
        lines.append(f"The limit resets at {_clock(result.resets_at)}.")
    if error.hint:
        lines.append(spelling.runnable(error.hint))
    return lines


def _short(text: str, width: int = 100) -> str:
    return one_line(clean(text), width)


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def money(usd: float) -> str:
    return f"${usd:.4f}" if 0 < usd < 0.01 else f"${usd:.2f}"


def _clock(epoch: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(epoch))
