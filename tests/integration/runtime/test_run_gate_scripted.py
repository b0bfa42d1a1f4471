"""The gate before a scripted agent: what it must promise, how calls are answered, and whose yes counts for what."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from leadrope import Answer, ApprovalQueue, InlineApprover, Limits, events

if TYPE_CHECKING:
    from tests.integration.runtime.conftest import Stage

OPEN: list[dict[str, Any]] = [{"initialize": True}, {"await_user": True}, {"init": True}]
CLOSE: list[dict[str, Any]] = [{"result": True}, {"await_eof": True}]


def of(found: list[events.Event], kind: type) -> list[Any]:
    return [event for event in found if isinstance(event, kind)]


@pytest.mark.parametrize("answer", [{"hooks_applied": False}, {"hook_on_failure_supported": False}, {"error": "no"}])
async def test_an_agent_without_a_gate_gets_no_prompt(stage: Stage, answer: Any) -> None:
    _, result = await stage.play([{"initialize": answer}, *OPEN[1:], *CLOSE])
    assert result.outcome == "failed"
    assert result.error is not None
    assert result.error.kind == "gate_unsupported"
    assert [m["type"] for m in stage.said()] == ["control_request"], "only the opening was said"


async def test_a_result_without_a_decision_ends_the_run(stage: Stage) -> None:
    call = {"tool": "Bash", "id": "t1", "input": {"command": "x"}, "gate": False, "touch": str(stage.marker)}
    found, result = await stage.play([*OPEN, {"call": call}, {"hang": True}], mode="full")
    assert result.outcome == "failed"
    assert result.error is not None
    assert result.error.kind == "gate_bypassed"
    assert "t1" in result.error.message
    assert len(of(found, events.RunEnding)) == 1


async def test_a_denied_call_that_has_a_good_result_ends_the_run(stage: Stage) -> None:
    denied = {
        "hook": {"tool": "Bash", "id": "t1", "input": {}, "if_denied": [{"tool_result": {"id": "t1", "text": "ran"}}]}
    }
    _, result = await stage.play([*OPEN, denied, {"hang": True}])
    assert result.error is not None
    assert result.error.kind == "gate_bypassed"


async def test_calls_that_the_agent_rejects_itself_are_no_bypass(stage: Stage) -> None:
    text = "<tool_use_error>InputValidationError: no such field</tool_use_error>"
    rejected = {"tool_result": {"id": "t1", "text": text, "is_error": True}}
    _, result = await stage.play([*OPEN, {"tool_use": {"tool": "Bash", "id": "t1"}}, rejected, {"text": "ok"}, *CLOSE])
    assert result.outcome == "succeeded"


async def test_calls_outstanding_together_get_their_own_answers(stage: Stage) -> None:
    """Answered in reverse order, by request and not by turn."""
    calls = [{"tool": "Bash", "id": f"t{n}", "input": {"command": str(n)}, "result": f"r{n}"} for n in range(4)]
    waiting: list[str] = []
    async with stage.open([*OPEN, {"calls": calls}, {"text": "ok"}, *CLOSE], approver=InlineApprover()) as run:
        found = []
        async for item in run:
            found.append(item.event)
            if isinstance(item.event, events.ApprovalRequested):
                waiting.append(item.event.approval_id)
                if len(waiting) == 4:
                    for n, approval in reversed(list(enumerate(waiting))):
                        assert run.approve(approval) if n % 2 else run.deny(approval, "odd ones only")
        result = await run.result()
    decided = {d.call.id: d.decision for d in of(found, events.ToolDecided)}
    assert decided == {"t0": "deny", "t1": "allow", "t2": "deny", "t3": "allow"}
    assert {c.call_id: c.is_error for c in of(found, events.ToolCompleted)} == {
        "t0": True,
        "t1": False,
        "t2": True,
        "t3": False,
    }
    assert result.outcome == "succeeded"


async def test_the_second_question_is_answered_from_the_first_decision(stage: Stage) -> None:
    """Same call id: our decision. Another input under the same id: judged anew."""
    steps = [
        {"hook": {"tool": "Bash", "id": "t1", "input": {"command": "a"}}},
        {"ask": {"tool": "Bash", "id": "t1", "input": {"command": "a"}, "if_denied": [{"exit": 9}]}},
        {"ask": {"tool": "Bash", "id": "t1", "input": {"command": "b"}, "if_allowed": [{"exit": 8}]}},
        {"ask": {"tool": "Bash", "id": "t2", "input": {"command": "c"}, "if_allowed": [{"exit": 7}]}},
    ]
    asked: list[str] = []

    def approve(request: events.ApprovalRequested) -> bool:
        asked.append(request.call.input["command"])
        return bool(request.call.input["command"] == "a")

    _, result = await stage.play([*OPEN, *steps, {"text": "ok"}, *CLOSE], approver=approve)
    assert result.outcome == "denied"
    assert asked == ["a", "b", "c"]


async def test_a_withdrawn_request_is_not_answered(stage: Stage) -> None:
    """It is settled at once, while the run goes on: the second request is answered only when the first one is gone."""
    steps = [
        {"hook": {"tool": "Bash", "id": "t1", "input": {}, "request_id": "r1", "wait": False}},
        {"line": {"type": "control_cancel_request", "request_id": "r1"}},
        {"call": {"tool": "Bash", "id": "t2", "input": {"command": "x"}}},
        {"text": "never mind"},
    ]
    found: list[events.Event] = []
    limits = Limits(approval_s=10)
    async with stage.open([*OPEN, *steps, *CLOSE], approver=InlineApprover(), limits=limits) as run:
        async for item in run:
            found.append(item.event)
            if of(found, events.ApprovalResolved) and len(of(found, events.ApprovalRequested)) == 2:
                run.approve("approval-2")
        result = await run.result()
    assert result.outcome == "succeeded"
    assert [(r.approval_id, r.approved, r.by) for r in of(found, events.ApprovalResolved)] == [
        ("approval-1", False, "leadrope"),
        ("approval-2", True, "user"),
    ]


@pytest.mark.parametrize(
    ("approver", "by", "why"),
    [
        (InlineApprover(), "timeout", "APPROVAL_TIMEOUT"),
        (lambda _: 1 / 0, "leadrope", "ZeroDivisionError"),
        (lambda _: "yes", "leadrope", "returned 'yes' (str)"),
        (lambda _: None, "leadrope", "returned None"),
        (lambda _: Answer(approved="no"), "leadrope", "malformed: Expected `bool`"),  # type: ignore[arg-type]
        (lambda _: Answer(approved=1), "leadrope", "malformed: Expected `bool`"),  # type: ignore[arg-type]
        (lambda _: Answer(approved=True, edited="y"), "leadrope", "malformed"),  # type: ignore[arg-type]
        (lambda _: Answer(approved=True, edited={"command": object()}), "leadrope", "malformed"),
        (lambda _: Answer(approved=True, edited={"command": "\ud800"}), "leadrope", "malformed"),
        (lambda _: Answer(approved=True, scope="all"), "leadrope", "malformed"),  # type: ignore[arg-type]
    ],
)
async def test_whatever_is_no_clear_yes_is_a_no(stage: Stage, approver: Any, by: str, why: str) -> None:
    call = {"tool": "Bash", "id": "t1", "input": {"command": "x"}, "touch": str(stage.marker)}
    found, _ = await stage.play(
        [*OPEN, {"call": call}, {"text": "ok"}, *CLOSE], approver=approver, limits=Limits(approval_s=0.2)
    )
    decided = of(found, events.ToolDecided)[0]
    assert (decided.decision, decided.by) == ("deny", by)
    assert why in decided.reason
    assert not stage.marker.exists()


async def test_an_edited_approval_is_told_and_recorded(stage: Stage) -> None:
    call = {"tool": "Bash", "id": "t1", "input": {"command": "x"}}
    found, _ = await stage.play(
        [*OPEN, {"call": call}, {"text": "ok"}, *CLOSE],
        approver=lambda _: Answer(approved=True, edited={"command": "y"}),
    )
    assert of(found, events.ToolDecided)[0].edited == {"command": "y"}
    answer = stage.said()[2]["response"]["response"]["hookSpecificOutput"]
    assert answer["updatedInput"] == {"command": "y"}


def same_call(number: int, command: str = "x", **more: Any) -> dict[str, Any]:
    return {"call": {"tool": "Bash", "id": f"t{number}", "input": {"command": command, **more}}}


async def test_an_approval_for_the_run_covers_the_same_command_and_no_other(stage: Stage) -> None:
    asked: list[str] = []

    def approve(request: events.ApprovalRequested) -> Answer:
        asked.append(request.call.input["command"])
        return Answer(approved=request.call.input["command"] == "x", scope="run")

    steps = [same_call(1), same_call(2, description="again"), same_call(3, "x; y"), same_call(4, timeout=5)]
    found, _ = await stage.play([*OPEN, *steps, {"text": "ok"}, *CLOSE], approver=approve)
    assert asked == ["x", "x; y", "x"], "another text and another setting are other calls"
    assert [d.rule for d in of(found, events.ToolDecided)] == [
        "mode:default",
        "approval",
        "mode:default",
        "mode:default",
    ]


async def test_a_request_tells_how_it_was_read_how_risky_it_is_and_how_long_it_waits(stage: Stage) -> None:
    calls = (same_call(1, "git push -f"), same_call(2, "mkdir a"), same_call(3, "npm test"))
    found, _ = await stage.play([*OPEN, *calls, {"text": "ok"}, *CLOSE], approver=lambda _: True)
    asked = of(found, events.ApprovalRequested)
    assert [request.risk for request in asked] == ["high", "low", "medium"]
    assert [request.reading for request in asked] == ["runs git push -f", "runs mkdir a", "runs npm test"]
    assert [request.expires_s for request in asked] == [300, 300, 300]
    assert len({request.fingerprint for request in asked}) == 3
    assert {(request.rule, request.layer) for request in asked} == {
        (decided.rule, decided.layer) for decided in of(found, events.ToolDecided)
    }


async def test_of_two_answers_the_first_counts_and_one_for_another_call_is_not_taken(stage: Stage) -> None:
    async with stage.open([*OPEN, same_call(1), {"text": "ok"}, *CLOSE], approver=InlineApprover()) as run:
        found = []
        async for item in run:
            found.append(item.event)
            if isinstance(item.event, events.ApprovalRequested):
                name = item.event.approval_id
                assert not run.approve(name, fingerprint="of another call")
                assert run.deny(name, "no")
                assert not run.approve(name)
                assert not run.approve("approval-99")
    assert [(d.decision, d.reason) for d in of(found, events.ToolDecided)] == [("deny", "no")]
    assert [r.approved for r in of(found, events.ApprovalResolved)] == [False]


@pytest.mark.parametrize(("approver", "asked", "by"), [(None, 0, "nobody"), (lambda _: True, 1, "program")])
async def test_what_cannot_be_read_is_asked_for_where_a_person_is_and_denied_where_none_is(
    stage: Stage, approver: Any, asked: int, by: str
) -> None:
    steps = [*OPEN, same_call(1, 'eval "$X"'), {"text": "ok"}, *CLOSE]
    found, _ = await stage.play(steps, approver=approver, mode="full")
    assert len(of(found, events.ApprovalRequested)) == asked
    (decided,) = of(found, events.ToolDecided)
    assert (decided.decision, decided.by, decided.rule) == ("allow" if asked else "deny", by, "opaque")


async def test_an_edited_approval_for_the_run_covers_the_edited_command_alone(stage: Stage) -> None:
    asked: list[str] = []

    def approve(request: events.ApprovalRequested) -> Answer:
        asked.append(request.call.input["command"])
        return Answer(approved=True, scope="run", edited={"command": "y"})

    found, _ = await stage.play(
        [*OPEN, same_call(1, "x"), same_call(2, "y"), same_call(3, "x"), {"text": "ok"}, *CLOSE], approver=approve
    )
    assert asked == ["x", "x"]
    assert [d.rule for d in of(found, events.ToolDecided)] == ["mode:default", "approval", "mode:default"]


async def test_an_edit_into_a_forbidden_call_is_denied_and_stands_for_nothing(stage: Stage) -> None:
    found, _ = await stage.play(
        [*OPEN, same_call(1, "x"), {"text": "ok"}, *CLOSE],
        approver=lambda _: Answer(approved=True, scope="run", edited={"command": "rm -rf /"}),
    )
    (decided,) = of(found, events.ToolDecided)
    assert decided.decision == "deny"
    assert "the edited call is forbidden: rm -rf / is blocked" in decided.reason


async def test_calls_that_wait_together_stay_within_the_number_of_calls(stage: Stage) -> None:
    """Each was asked about while none had run; the second yes comes when the first has used the number up."""
    calls = [{"tool": "Bash", "id": f"t{n}", "input": {"command": str(n)}} for n in range(3)]
    waiting: list[str] = []
    script = [*OPEN, {"calls": calls}, {"text": "ok"}, *CLOSE]
    async with stage.open(script, approver=InlineApprover(), policy={"max_tool_calls": 1}) as run:
        found = []
        async for item in run:
            found.append(item.event)
            if isinstance(item.event, events.ApprovalRequested):
                waiting.append(item.event.approval_id)
                if len(waiting) == 3:
                    for approval in waiting:
                        assert run.approve(approval)
    assert [d.decision for d in of(found, events.ToolDecided)] == ["allow", "deny", "deny"]
    assert "used its 1 tool calls" in of(found, events.ToolDecided)[1].reason


async def test_an_approval_for_one_call_is_not_used_for_another(stage: Stage) -> None:
    prints: list[str] = []

    def approve(request: events.ApprovalRequested) -> Answer:
        prints.append(request.fingerprint)
        return Answer(approved=True, fingerprint=prints[0])

    found, _ = await stage.play([*OPEN, same_call(1), same_call(2, "y"), {"text": "ok"}, *CLOSE], approver=approve)
    assert [d.decision for d in of(found, events.ToolDecided)] == ["allow", "deny"]
    assert "another call" in of(found, events.ToolDecided)[1].reason


async def test_a_desk_holds_the_requests_of_many_runs(stage: Stage) -> None:
    """Each is answered once, by whoever comes first, and an answer for another call is not taken."""
    desk = ApprovalQueue()
    async with stage.open([*OPEN, same_call(1), {"text": "ok"}, *CLOSE], approver=desk.for_run("one")) as run:
        found = []
        async for item in run:
            found.append(item.event)
            if isinstance(item.event, events.ApprovalRequested):
                while not desk.pending():  # noqa: ASYNC110  # it comes to the desk in the loop's next round
                    await asyncio.sleep(0)
                (waiting,) = desk.pending()
                assert waiting.run_id == "one"
                assert isinstance(waiting.asked, events.ApprovalRequested)
                name = waiting.asked.approval_id
                assert not desk.answer("two", name, Answer(approved=True))
                assert not desk.answer("one", name, Answer(approved=True, fingerprint="of another call"))
                assert desk.answer("one", name, Answer(approved=True, fingerprint=waiting.asked.fingerprint))
                assert not desk.answer("one", name, Answer(approved=False)), "the first answer counts"
    assert [d.decision for d in of(found, events.ToolDecided)] == ["allow"]
    assert desk.pending() == ()


async def test_requests_that_nobody_can_serve_are_refused(stage: Stage) -> None:
    unknown = {"type": "control_request", "request_id": "r9", "request": {"subtype": "from_the_future"}}
    _, result = await stage.play([*OPEN, {"line": unknown}, {"text": "ok"}, *CLOSE])
    assert result.outcome == "succeeded"
    assert [m["response"]["subtype"] for m in stage.said() if m["type"] == "control_response"] == ["error"]


def unknown_version(**answer: Any) -> dict[str, Any]:
    return {"initialize": {"answer": {"claude_code_version": "9.9.9", **answer}}}


async def test_an_untested_version_whose_gate_leaks_is_not_used(stage: Stage) -> None:
    """The trial sees that the denied command's mark is there: no prompt of the user is ever sent."""
    steps = [unknown_version(), *OPEN[1:], {"call": {"tool": "Bash", "id": "t", "gate": False}}, *CLOSE]
    found, result = await stage.play(steps)
    assert result.error is not None
    assert result.error.kind == "gate_unsupported"
    assert [n.code for n in of(found, events.Notice)] == ["untested_version"]


async def test_an_untested_version_is_tried_once_and_then_used(stage: Stage) -> None:
    stage.notes = {}  # the trial has a sandbox, and the stand-in could not write there
    talks = [{"text": "ok"}, *CLOSE]
    call = {"tool": "Bash", "id": "t", "input": {"command": "x"}}
    found, result = await stage.play([unknown_version(), *OPEN[1:], {"call": call}, *talks])
    assert result.outcome == "denied"
    assert [n.code for n in of(found, events.Notice)] == ["untested_version"]
    # An agent that asks for no call cannot pass a trial, so none is made for a version that has passed one.
    found, result = await stage.play([unknown_version(), *OPEN[1:], *talks])
    assert result.outcome == "succeeded"
    assert [n.code for n in of(found, events.Notice)] == ["untested_version"]
    _, result = await stage.play([unknown_version(claude_code_version="9.9.8"), *OPEN[1:], *talks])
    assert result.error is not None
    assert result.error.kind == "gate_unsupported"
    assert "did not ask" in result.error.message
