"""Never run: uses the public API as a program would, so that mypy holds its types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import msgspec

import leadrope
from leadrope import (
    Answer,
    InlineApprover,
    Limits,
    McpServer,
    Recorded,
    RunRequest,
    RunResult,
    Secret,
    ToolCall,
    TypedResult,
    events,
    open_run,
)


async def five_lines() -> str:
    async with open_run(RunRequest(prompt="fix the failing test")) as run:
        async for recorded in run:
            print(recorded.event)
    return (await run.result()).text


async def answers_itself() -> None:
    request = RunRequest(
        prompt="go", mode="edit", tools=("Read", "Edit"), limits=Limits(budget_usd=1.0), credential=Secret("…")
    )
    async with open_run(request, approver=InlineApprover(), keep_open=True) as run:
        async for recorded in run:
            match recorded.event:
                case events.ApprovalRequested(approval_id=waiting, call=call):
                    answered: bool = run.approve(waiting) if call.name == "Bash" else run.deny(waiting, "no")
                    print(answered)
                case events.QuestionRequested(question_id=question):
                    run.answer(question, {"Which?": "This"})
                case events.TurnEnded():
                    await run.send("and now?")
                    run.finish()
                case _:
                    pass
        await run.interrupt()
        result: RunResult = await run.stop()
        result.raise_for_outcome()


def lists(names: Sequence[str]) -> tuple[str, ...] | None:
    """Callers pass any sequence; a request holds tuples."""
    server = McpServer(command="npx", args=["server"])
    request = RunRequest(prompt="x", tools=names, extra_dirs=["../other"], connections={"server": server})
    leadrope.run_sync(request, disallowed_tools=["Bash"], allow=list(names), attachments=("a.png",))
    leadrope.run_sync("x", tools="Read")  # type: ignore[call-overload]  # a bare text
    leadrope.Typo  # type: ignore[attr-defined]  # noqa: B018
    return request.tools


async def approvers() -> None:
    def plain(asked: events.ApprovalRequested) -> bool:
        return asked.call.name == "Read"

    async def edited(asked: events.ApprovalRequested) -> Answer:
        return Answer(approved=True, edited={**asked.call.input, "timeout": 1000})

    await leadrope.run(prompt="x", approver=plain)
    await leadrope.run(RunRequest(prompt="x"), approver=edited)
    await leadrope.run(prompt="x", approver=leadrope.Console())


def sync() -> float:
    result = leadrope.run_sync(prompt="x")
    recorded: list[Recorded] = []
    return result.cost_usd + len(recorded)


async def chat() -> str:
    first = await leadrope.complete("hello")
    context = leadrope.Context(message="and?", history=(leadrope.Message(role="user", text="hello"),))
    answer: leadrope.Reply = await leadrope.complete(context, session=first.session_id, mode="plan", tools=["Read"])
    check = await leadrope.check_cli()
    return answer.text + (check.version or check.reason or "")


class Invoice(msgspec.Struct):
    total: float


class Line(TypedDict):
    text: str


async def typed() -> float:
    result: TypedResult[Invoice] = await leadrope.run(prompt="read it", output_type=Invoice)
    maybe: Invoice | None = result.output
    lines: list[Line] = leadrope.run_sync(RunRequest(prompt="x"), output_type=list[Line]).value
    request = RunRequest(prompt="x", output_schema=leadrope.schema_of(Invoice))
    async with open_run(request) as run:
        invoice: Invoice = (await run.result()).output_as(Invoice)
    print(lines[0]["text"], maybe)
    return result.value.total + invoice.total


def usage() -> int:
    result = leadrope.run_sync(prompt="x")
    spent, whole = result.llm_usage, result.totals
    if spent is None or whole is None:
        return 0
    return sum(attempt.input_tokens for attempt in spent.retries) + whole.models["sonnet"].usage.output_tokens


@leadrope.tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@leadrope.tool(name="later", timeout_s=5)
async def wait_for(text: str) -> str:
    return text


def before(call: ToolCall) -> leadrope.DenyCall | None:
    return leadrope.DenyCall("no") if call.name == "Bash" else None


async def before_async(call: ToolCall) -> leadrope.EditCall | leadrope.AskFirst:
    return leadrope.EditCall(call.input) if call.input else leadrope.AskFirst("empty")


def after(call: ToolCall, done: events.ToolCompleted) -> None:
    print(call.name, done.text)


async def own_code() -> int:
    three: int = add(1, 2)
    said: str = await wait_for("x")
    result: RunResult = await leadrope.run("x", functions=[add, wait_for], allow=("add",), before_tool=before)
    typed: TypedResult[Invoice] = await leadrope.run("x", output_type=Invoice, after_tool=after, on_event=print)
    many: list[RunResult] = await leadrope.run_many(
        ["a", RunRequest(prompt="b")], budget_usd=1, before_tool=before_async
    )
    async with leadrope.open_conversation(functions=[add], config=None) as conversation:
        await conversation.set_mode("plan")
        await conversation.set_model(None)
    return three + len(said) + len(many) + len(result.text) + int(typed.value.total)
