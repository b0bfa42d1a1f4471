"""Hooks of a program: what it says to a tool call before it is judged, and what it is told after it.

A hook before a call can only tighten: it can deny the call, have a person asked, or change it, and a changed call is
judged as if the agent had made it. It cannot allow anything.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from leadrope.core import events
from leadrope.core.request_parts.field_docs import documented
from leadrope.core.tools import ToolCall
from leadrope.runtime.embedding import user_code

log = logging.getLogger("leadrope.run")

AFTER_S = 10.0
"""For hooks after a call that are still at work when the agent has ended."""


@documented
class DenyCall(msgspec.Struct, frozen=True):
    """A `before_tool` hook returns it: the call is denied."""

    reason: str
    """The agent reads it."""


@documented
class AskFirst(msgspec.Struct, frozen=True):
    """A `before_tool` hook returns it: a person is asked, also where the mode or a rule would allow the call."""

    reason: str
    """Shown to the person who is asked."""


@documented
class EditCall(msgspec.Struct, frozen=True):
    """A `before_tool` hook returns it: the call is judged, and runs, with this input."""

    input: dict[str, Any]
    """The whole input, not only what is changed."""


HookVerdict = DenyCall | AskFirst | EditCall | None
BeforeTool = Callable[[ToolCall], HookVerdict | Awaitable[HookVerdict]]
AfterTool = Callable[[ToolCall, events.ToolCompleted], object | Awaitable[object]]
Emit = Callable[[events.Event], None]


async def before(hook: BeforeTool, call: ToolCall, emit: Emit, *, limit_s: float | None) -> HookVerdict:
    """What the hook says. Whatever goes wrong denies the call."""
    try:
        async with asyncio.timeout(limit_s):
            said: object = await user_code.call(hook, call, name="before_tool")
    except Exception as error:  # the program's own code; no answer is a no
        log.exception("before_tool failed, so %s was denied", call.name)
        return _failed(f"before_tool failed: {error!r}", call, emit)
    wrong = _malformed(said)
    if wrong is not None:
        return _failed(wrong, call, emit)
    return said  # type: ignore[return-value]  # looked at above


def _failed(reason: str, call: ToolCall, emit: Emit) -> DenyCall:
    told = f"{reason}; {call.name} was denied"
    emit(events.Notice(level="warning", code="before_tool_failed", message=told))
    return DenyCall(reason)


def _malformed(said: object) -> str | None:
    if not isinstance(said, DenyCall | AskFirst | EditCall | None):
        return f"before_tool returned {said!r}; it must return None, DenyCall, AskFirst or EditCall"
    try:
        msgspec.json.encode(said)
        msgspec.convert(msgspec.to_builtins(said), type(said))
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        return f"what before_tool returned is malformed: {error}"
    return None


async def after(hook: AfterTool, call: ToolCall, done: events.ToolCompleted, emit: Emit) -> None:
    """Tell the hook of a result. A failure is a warning."""
    try:
        await user_code.call(hook, call, done, name="after_tool")
    except Exception as error:  # the program's own code; the call is done
        log.exception("after_tool failed for %s", call.name)
        told = f"after_tool failed for {call.name}: {error!r}"
        emit(events.Notice(level="warning", code="after_tool_failed", message=told))
