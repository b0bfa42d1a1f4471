"""What an approval asks, read from its row: one shape for each kind, whoever asks. Values only."""

from __future__ import annotations

from typing import Any

import msgspec

from leadrope.core.events import QuestionRequested, Risk
from leadrope.core.tools import ToolCall
from leadrope.runs.approvals.forms import FormField
from leadrope.runs.records.values import Approval


class CallRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call of an agent, or a command of a step, that a rule wants approved."""

    call: ToolCall
    reason: str = ""
    """Why somebody is asked, in words."""
    rule: str = ""
    layer: str = ""
    risk: Risk = "medium"
    reading: str = ""
    """For a command, how it is read."""
    pattern: str = ""
    """What may be granted for the rest of the run; empty: none is offered."""
    expires_s: float = 0.0
    is_editable: bool = True
    """False for steps that can only run the call as it is."""


class StepRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a workflow that needs a person before it, or the workflow, continues."""

    title: str = ""
    detail: str = ""
    """What the person is asked."""
    values: dict[str, Any] = {}
    """Shown beside it, as they are."""
    choices: tuple[str, ...] = ()
    """What can be chosen; empty: approve or deny."""
    fields: tuple[FormField, ...] = ()
    """What is to be filled in."""
    reason: str = ""
    rule: str = ""
    layer: str = ""
    expires_s: float = 0.0


Request = CallRequest | QuestionRequested | StepRequest


def request_of(approval: Approval) -> Request:
    match approval.kind:
        case "tool_call":
            return msgspec.json.decode(approval.asked, type=CallRequest)
        case "step":
            return msgspec.json.decode(approval.asked, type=StepRequest)
        case _:
            return msgspec.json.decode(approval.asked, type=QuestionRequested)


def expires(approval: Approval) -> float | None:
    """When a pending one is denied without an answer, in seconds since the epoch; None: never, or it is settled."""
    limit = request_of(approval).expires_s
    return approval.requested + limit if approval.state == "pending" and limit else None
