"""One answer to a conversation, for programs that want a text and not a run. Goes through the gate like every run.

What a chat should show is shown (turns used up, an empty answer, output that is not understood); what a chat cannot
repair is raised.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Unpack

import msgspec

from leadrope import errors
from leadrope.core import events
from leadrope.core.context import Context, Reply
from leadrope.core.request import Limits, RunRequest
from leadrope.core.request_parts.sequences import SequenceNotStr, as_tuple
from leadrope.core.result import RunResult
from leadrope.providers import base, registry
from leadrope.providers.registry import DEFAULT_PROVIDER
from leadrope.runtime.gate.approvers import Approve, Approver
from leadrope.runtime.keywords import RunKeywords
from leadrope.runtime.run import Run, open_run

MAX_TURNS = 10
TOOLS = ("Bash", "Read", "Write", "Edit")
TIMEOUT_S = 600.0

NO_TEXT = "(No response text returned)"


class Completer(msgspec.Struct, frozen=True, kw_only=True):
    """A provider with the settings of a chat; `leadrope.provider()` makes one.

    claude = leadrope.provider("claude-code").from_config(5, ("Read",), 300)
    if await claude.is_available():
        print((await claude.complete(Context(message="What does this repository do?"))).text)
    """

    id: str = DEFAULT_PROVIDER
    max_turns: int = MAX_TURNS
    allowed_tools: tuple[str, ...] = TOOLS
    """These are pre-approved; all others are denied unless an approver allows them."""
    timeout_secs: float = TIMEOUT_S
    session_id: str | None = None
    """The session to continue."""

    @property
    def capabilities(self) -> base.Capabilities:
        """What its agent can do."""
        return registry.provider(self.id).capabilities

    @property
    def requires_api_key(self) -> bool:
        """Its agent cannot be used with a login."""
        return registry.provider(self.id).requires_api_key

    async def is_available(self, environ: Mapping[str, str] | None = None) -> base.Availability:
        """Whether the agent can be used here, and why not. Never raises."""
        return await registry.provider(self.id).is_available(environ)

    def from_config(self, max_turns: int, allowed_tools: SequenceNotStr[str], timeout_secs: float) -> Completer:
        """The same provider with these settings."""
        tools = as_tuple("allowed_tools", allowed_tools)
        return msgspec.structs.replace(self, max_turns=max_turns, allowed_tools=tools, timeout_secs=timeout_secs)

    def in_session(self, session_id: str | None) -> Completer:
        """The same in a session that is continued: the agent knows what was said, and only hears the message."""
        return msgspec.structs.replace(self, session_id=session_id)

    def open(
        self,
        request: RunRequest,
        *,
        approver: Approver | Approve | None = None,
        keep_open: bool = False,
        environ: Mapping[str, str] | None = None,
    ) -> Run:
        """A whole run with this provider, with its events; the settings of the chat are not applied to it."""
        request = msgspec.structs.replace(request, provider=self.id)
        return open_run(request, approver=approver, keep_open=keep_open, environ=environ)

    async def complete(self, context: Context | str, **keywords: Unpack[RunKeywords]) -> Reply:
        """Ask once, wait for the answer. The keywords are those of `run`; they come before the settings of this value.
        Raises if the run fails.
        """
        resume = keywords.pop("resume", self.session_id)
        prompt = context if isinstance(context, str) else context.to_prompt_string(resumed=resume is not None)
        limits = keywords.pop("limits", Limits())
        if getattr(limits, "wall_s", 0) is None:  # something else than Limits is refused later, by name
            limits = msgspec.structs.replace(limits, wall_s=self.timeout_secs)
        asked: RunKeywords = {
            "max_turns": self.max_turns,
            "tools": self.allowed_tools,
            **keywords,
            "provider": self.id,
            "resume": resume,
            "limits": limits,
        }
        label = registry.provider(self.id).label
        heard = Heard()
        started = time.monotonic()
        try:
            async with open_run(prompt, **asked) as run:
                async for recorded in run:
                    heard.add(recorded)
                result = await run.result()
        except errors.InstallError as error:
            raise _could_not_run(error, label) from None
        took = round((time.monotonic() - started) * 1000)
        return reply_of(result, heard, provider=self.id, label=label, took_ms=took)


def provider(
    id: str = DEFAULT_PROVIDER,  # noqa: A002  # the word of the protocol
    *,
    max_turns: int = MAX_TURNS,
    allowed_tools: SequenceNotStr[str] = TOOLS,
    timeout_secs: float = TIMEOUT_S,
    session_id: str | None = None,
) -> Completer:
    """A provider by its id, ready to be asked; an unknown one is refused here.

    leadrope.provider("claude-code").capabilities.images
    """
    registry.provider(id)
    return Completer(id=id, session_id=session_id).from_config(max_turns, allowed_tools, timeout_secs)


async def complete(
    context: Context | str,
    *,
    timeout_s: float = TIMEOUT_S,
    session: str | None = None,
    **keywords: Unpack[RunKeywords],
) -> Reply:
    """Ask once, wait for the answer. Raises if the run fails.

    answer = await leadrope.complete("What does this repository do?", cwd="/src/project")

    The keywords are those of `run`. Left out, `max_turns` is 10 and `tools` are Bash, Read, Write and Edit, which are
    pre-approved like all tools that are listed. `timeout_s` is the time for the whole answer, unless `limits` sets
    `wall_s`; `session` is the one to continue.
    """
    asked = provider(keywords.pop("provider", DEFAULT_PROVIDER), timeout_secs=timeout_s, session_id=session)
    return await asked.complete(context, **keywords)


class Heard:
    """What the events of the last attempt say beside the result."""

    def __init__(self) -> None:
        self._attempt = 0
        self._forget()

    def _forget(self) -> None:
        self.has_session = False
        self.turn: events.TurnEnded | None = None
        self.exited: events.AgentExited | None = None
        self.plain: list[str] = []
        """Lines that are not understood."""

    def add(self, recorded: events.Recorded) -> None:
        if recorded.attempt > self._attempt:
            self._attempt = recorded.attempt
            self._forget()
        match recorded.event:
            case events.SessionStarted():
                self.has_session = True
            case events.TurnEnded() as turn:
                self.turn = turn
            case events.AgentExited() as exited:
                self.exited = exited
            case events.Unrecognised(raw=raw):
                self.plain.append(raw)
            case _:
                pass

    @property
    def exit_code(self) -> int | None:
        """The agent's own; None when we ended it, for its code then says nothing."""
        return self.exited.exit_code if self.exited and self.exited.ended_by == "agent" else None


def reply_of(result: RunResult, heard: Heard, *, provider: str, label: str, took_ms: int = 0) -> Reply:
    """The best text there is, with a warning where it is less than an answer; raises where there is none."""
    text, warnings = _text(result, heard, label)
    return Reply(
        text=text,
        provider=provider,
        tokens=result.usage.total_tokens or None,
        processing_time_ms=took_ms,
        model=result.model or None,
        session_id=result.session_id,
        warnings=(*warnings, *(warning.message for warning in result.warnings)),
    )


def _text(result: RunResult, heard: Heard, label: str) -> tuple[str, tuple[str, ...]]:
    error, turn = result.error, heard.turn
    has_answered = result.ok or (error is not None and error.kind == result.outcome == "denied")
    if has_answered and result.text:
        return result.text, ()
    if has_answered and result.output is not None:
        return msgspec.json.encode(result.output).decode(), ()
    told = (f"{error.kind}: {error.message}",) if error else ()
    ended_well = heard.exit_code in (0, None)
    if result.ok or (error is not None and error.kind == "empty_output"):
        return (f"Error from {label}: {turn.reason}" if turn and turn.is_error else NO_TEXT), told
    if result.outcome == "failed" and ended_well and turn and turn.is_error and not turn.text:
        return f"Error from {label}: {turn.reason}", told
    if error is not None and error.kind == "malformed_output" and ended_well and heard.has_session and heard.plain:
        # An agent that answers in plain words has answered; before its session it has not even heard the prompt.
        return "\n".join(heard.plain).strip(), told
    if result.outcome == "failed" and not ended_well and heard.exited is not None:
        said = "\n".join(heard.exited.stderr_head or heard.exited.stderr_tail).strip()
        said = said or (error.message if error else "")
        raise errors.RunFailed(result, f"{label.lower()} CLI exited with code {heard.exit_code}: {said}")
    raise errors.RunFailed(result)


def _could_not_run(error: errors.InstallError, label: str) -> errors.InstallError:
    """The same error, so that it is caught as before, with the words that a chat's log looks for."""
    error.message = f"failed to run {label.lower()} CLI: {error.message}"
    return error
