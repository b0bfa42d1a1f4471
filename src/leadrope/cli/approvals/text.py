"""Approvals as text and as JSON: one form for tool calls, questions, plans and steps of workflows."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import UNSET

from leadrope.cli.screen import table
from leadrope.core.events import QuestionRequested
from leadrope.runs.approvals.forms import FormField
from leadrope.runs.approvals.requests import CallRequest, Request, StepRequest, expires, request_of
from leadrope.runs.records.values import Approval
from leadrope.runtime.gate import call_preview
from leadrope.runtime.gate.approvers import read_answer
from leadrope.runtime.terminal_text import clean, describe, exact, one_line, whole_input

HEAD = ("ID", "KIND", "STATE", "WAITED", "LEFT", "RISK", "WHAT")
NO_LIMIT = "no limit"


def row(approval: Approval) -> tuple[str, ...]:
    asked = request_of(approval)
    until = approval.decided if approval.decided is not None else time.time()
    return (
        approval.id,
        approval.kind,
        approval.state,
        table.age(until - approval.requested),
        _left(approval),
        asked.risk if isinstance(asked, CallRequest) else "",
        what(approval, asked),
    )


def what(approval: Approval, asked: Request) -> str:
    """On one line: what is asked, and for a workflow by which step."""
    match asked:
        case CallRequest():
            text = f"{exact(asked.call.name)} {describe(asked.call, cwd=approval.cwd, width=200)}"
        case QuestionRequested(kind="plan"):
            text = exact(f"a plan: {asked.plan}")
        case QuestionRequested():
            text = exact("; ".join(question.question for question in asked.questions))
        case StepRequest():
            text = exact(asked.detail or asked.title)
    place = f"{clean(approval.title)}, {_unit(approval)}: " if approval.outermost_id else ""
    return one_line(place + text, 200)


def as_object(approval: Approval) -> dict[str, Any]:
    return {
        "id": approval.id,
        "kind": approval.kind,
        "state": approval.state,
        "run": approval.run_id or None,
        "execution": approval.outermost_id or None,
        "step": approval.step or None,
        "iteration": approval.iteration if approval.step else None,
        "item": approval.item,
        "title": approval.title,
        "cwd": approval.cwd,
        "requested": approval.requested,
        "expires": expires(approval),
        "decided": approval.decided,
        "by": approval.by,
        "reason": approval.reason,
        "fingerprint": approval.fingerprint,
        "asked": msgspec.Raw(approval.asked),
        "answer": msgspec.Raw(approval.answer) if approval.answer is not None else None,
    }


def lines(approval: Approval) -> Iterator[str]:
    """All of it. A person says yes to exactly this, so what hides in it is written out."""
    asked = request_of(approval)
    yield f"{approval.id}  {approval.kind}  {approval.state}" + _by_or_time(approval)
    if approval.outermost_id:
        yield f"execution {approval.outermost_id[:8]}: {clean(approval.title)}, step {_unit(approval)}"
    else:
        yield f"run {approval.run_id[:8]}: {clean(approval.title)}"
    yield f"folder {exact(approval.cwd)}"
    yield f"fingerprint {approval.fingerprint[:16]}"
    yield ""
    match asked:
        case CallRequest():
            yield from _call(asked, approval)
        case QuestionRequested():
            yield from _question(asked)
        case StepRequest():
            yield from _step(asked)
    if approval.answer is not None:
        yield ""
        yield from _answer(approval)


def _call(asked: CallRequest, approval: Approval) -> Iterator[str]:
    yield f"{exact(asked.call.name)}  risk {asked.risk}"
    yield from _why(asked.reason, asked.rule, asked.layer)
    if asked.reading:
        yield "read as:\n" + textwrap.indent(exact(asked.reading), "    ")
    yield "the call:\n" + textwrap.indent(call_preview.of_call(asked.call), "    ")
    if asked.pattern and approval.state == "pending":
        yield f"`--pattern` allows {exact(asked.pattern)} for the rest of the run"


def _question(asked: QuestionRequested) -> Iterator[str]:
    if asked.kind == "plan":
        yield exact(asked.plan)
    for question in asked.questions:
        yield exact(question.question)
        for option in question.options:
            yield f"  - {exact(option.label)}: {exact(option.description)}"


def _step(asked: StepRequest) -> Iterator[str]:
    yield exact(asked.detail or asked.title)
    yield from _why(asked.reason, asked.rule, asked.layer)
    if asked.values:
        yield textwrap.indent(whole_input(asked.values), "  ")
    if asked.choices:
        yield f"choices: {', '.join(exact(choice) for choice in asked.choices)}"
    for field in asked.fields:
        label = f" {exact(field.label)}" if field.label else ""
        yield f"field {exact(field.name)}:{label} ({exact(field.hint)}{_optional(field)})"


def _optional(field: FormField) -> str:
    if field.default is not UNSET:
        return f"; default {msgspec.json.encode(field.default).decode()}"
    return "" if field.required else "; optional"


def _why(reason: str, rule: str, layer: str) -> Iterator[str]:
    if reason:
        yield f"asked because {exact(reason)}"
    if rule:
        yield f"rule {exact(rule)}" + (f" ({exact(layer)})" if layer else "")


def _answer(approval: Approval) -> Iterator[str]:
    answer = read_answer(approval.answer or b"")
    if answer.choice:
        yield f"chosen: {exact(answer.choice)}"
    for name, value in answer.answers.items():
        yield f"{exact(name)}: {exact(value if isinstance(value, str) else msgspec.json.encode(value).decode())}"
    if answer.edited is not None:
        yield "edited:\n" + textwrap.indent(whole_input(answer.edited), "    ")
    if answer.reason:
        yield f"reason: {exact(answer.reason)}"


def _by_or_time(approval: Approval) -> str:
    if approval.state != "pending":
        return f" by {exact(approval.by)}" if approval.by else ""
    waited = f" for {table.ago(approval.requested)}"
    if expires(approval) is None:
        return f"{waited} · waits until it is answered"
    return f"{waited} · denied in {_left(approval)} without an answer"


def _left(approval: Approval) -> str:
    if approval.state != "pending":
        return "-"
    end = expires(approval)
    return NO_LIMIT if end is None else table.age(max(0.0, end - time.time()))


def _unit(approval: Approval) -> str:
    return approval.step + (f"[{approval.item}]" if approval.item is not None else "")
