"""One answer to a conversation, for programs that want a text and not a run. Goes through the gate like every run."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from leadrope.core.request import Limits, RunRequest
from leadrope.core.result import RunResult
from leadrope.runtime.approvals import Approve, Approver
from leadrope.runtime.run import open_run

MAX_TURNS = 10
TOOLS = ("Bash", "Read", "Write", "Edit")
TIMEOUT_S = 600.0

NO_TEXT = "(No response text returned)"


class Message(msgspec.Struct, frozen=True, kw_only=True):
    role: Literal["user", "assistant"]
    text: str


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """What was said so far, and what is said now."""

    message: str
    system_prompt: str = ""
    history: tuple[Message, ...] = ()

    def as_prompt(self) -> str:
        """One text for an agent that keeps no history of its own."""
        parts = [self.system_prompt] if self.system_prompt else []
        parts += [f"{'User' if said.role == 'user' else 'Assistant'}: {said.text}" for said in self.history]
        if not parts:
            return self.message
        return "\n\n".join([*parts, f"User: {self.message}"])


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    provider: str
    model: str | None
    tokens_used: int
    duration_ms: int
    session_id: str | None = None
    warnings: tuple[str, ...] = ()


async def complete(
    context: Context | str,
    *,
    max_turns: int = MAX_TURNS,
    tools: tuple[str, ...] = TOOLS,
    timeout_s: float = TIMEOUT_S,
    session: str | None = None,
    approver: Approver | Approve | None = None,
    **fields: Any,
) -> Completion:
    """Ask once, wait for the answer. The tools that are named here need no further yes; raises if the run fails.

    answer = await leadrope.complete("What does this repository do?", cwd="/src/project")
    """
    prompt = context if isinstance(context, str) else context.as_prompt()
    limits = msgspec.structs.replace(fields.pop("limits", Limits()), wall_s=timeout_s)
    request = RunRequest(prompt=prompt, max_turns=max_turns, tools=tools, resume=session, limits=limits, **fields)
    async with open_run(request, approver=approver) as run:
        result = await run.result()
    return completion_of(result, request.provider)


def completion_of(result: RunResult, provider: str) -> Completion:
    """An empty answer is not worth an exception to a chat: it gets a text that says so. A failed run is."""
    text = result.text
    if not text and result.error is not None and result.error.kind == "empty_output":
        text = NO_TEXT
    elif not text and result.outcome == "degraded":
        text = f"Error from Claude: {result.warnings[0].kind if result.warnings else 'unknown'}"
    else:
        result.raise_for_outcome()
    return Completion(
        text=text,
        provider=provider,
        model=result.model or None,
        tokens_used=result.usage.total_tokens,
        duration_ms=round(result.duration_s * 1000),
        session_id=result.session_id,
        warnings=tuple(warning.message for warning in result.warnings),
    )
