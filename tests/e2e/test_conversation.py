"""Many turns in one process, and what happens when that process goes."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from leadrope import Limits, Secret, errors, events, open_conversation
from leadrope.rehearsal import ModelServer
from leadrope.runtime.conversation import Conversation
from leadrope.runtime.sessions.files import Sessions

OAUTH = Secret("sk-ant-oat-rehearsal-000000000000")


@asynccontextmanager
async def talking(stage: Any, script: Any, **fields: Any) -> AsyncIterator[tuple[Conversation, ModelServer]]:
    how = {name: fields.pop(name) for name in ("approver", "idle_close_s") if name in fields}
    strict = fields.pop("strict", True)
    async with ModelServer(script, strict=strict) as model:
        request = stage.request(model, **{"prompt": "", **fields})
        async with open_conversation(request, environ=stage.environ, **how) as conversation:
            yield conversation, model


def agent_of(session_id: str) -> int:
    """The agent program of this session; its guardian has the same words behind its own."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"claude") and f"--session-id={session_id}".encode() in words:
            return int(entry.name)
    raise AssertionError(f"no agent of session {session_id} lives")


async def test_two_turns_need_one_process(stage: Any) -> None:
    script = [
        {"text": "One.", "usage": {"input_tokens": 1000, "output_tokens": 10}},
        {"tool": stage.touch, "expect": {"contains": ["first", "One.", "second"]}},
        {"text": "Two."},
    ]
    async with talking(stage, script, approver=lambda _: True) as (conversation, _):
        assert conversation.starts == 0
        first = await conversation.ask("first")
        assert (first.outcome, first.text, first.turns) == ("succeeded", "One.", 1)
        second = [recorded.event async for recorded in conversation.say("second")]
        assert conversation.starts == 1
        assert not any(isinstance(event, events.RunEnded) for event in second)
        # A notice about the agent's own bookkeeping may come with it.
        assert isinstance([event for event in second if not isinstance(event, events.Notice)][-1], events.TurnEnded)
        last = conversation.last
        assert last is not None
        assert (last.text, last.turns, last.session_id) == ("Two.", 2, first.session_id)
        assert 0 < last.cost_usd < first.cost_usd + last.cost_usd == pytest.approx(conversation.cost_usd)
    info = Sessions.of(stage.environ).find(first.session_id or "")
    assert (info.outcome, info.turns, len(info.runs)) == ("succeeded", 3, 1)
    said = [entry.text for entry in Sessions.of(stage.environ).transcript(info.id) if entry.role != "tool"]
    assert said == ["first", "One.", "second", "Two."]


async def test_a_later_turn_knows_its_model_its_session_and_who_pays(stage: Any) -> None:
    """The agent describes itself once, at its start."""
    async with talking(stage, [{"text": "One."}, {"text": "Two."}], credential=OAUTH) as (conversation, _):
        told = [await conversation.ask(text) for text in ("first", "second")]
    for result in told:
        assert (result.model, result.session_id) == (told[0].model, told[0].session_id)
        assert result.llm_usage is not None
        assert (result.llm_usage.model, result.llm_usage.session_id) == (result.model, result.session_id)
        assert result.llm_usage.cost_label == "API-equivalent estimate"
    assert told[0].model
    assert told[1].llm_usage != told[0].llm_usage
    assert conversation.cost_label == "API-equivalent estimate"


async def test_a_process_that_waits_too_long_is_closed_and_comes_back(stage: Any, until: Any) -> None:
    script = [{"text": "One."}, {"text": "Two.", "expect": {"contains": ["first", "One."]}}]
    async with talking(stage, script, idle_close_s=0.05) as (conversation, _):
        await conversation.ask("first")
        await until(lambda: not conversation.is_live)
        found = [recorded.event async for recorded in conversation.say("second")]
        assert conversation.starts == 2
        started = next(event for event in found if isinstance(event, events.SessionStarted))
        assert (started.origin, started.session_id) == ("resumed", conversation.session_id)


async def test_a_process_that_dies_between_turns_is_replaced(stage: Any, until: Any) -> None:
    script = [{"text": "One."}, {"text": "Two.", "expect": {"contains": ["first", "One."]}}]
    async with talking(stage, script) as (conversation, _):
        await conversation.ask("first")
        agent = agent_of(conversation.session_id or "")
        os.kill(agent, signal.SIGKILL)
        await until(lambda: not Path(f"/proc/{agent}").exists())
        second = await conversation.ask("second")
        assert (second.outcome, second.text, conversation.starts) == ("succeeded", "Two.", 2)


async def test_an_interrupted_turn_leaves_the_conversation(stage: Any) -> None:
    script = [{"text": "I think.", "hang": "mid_stream"}, {"text": "As you like."}]
    async with talking(stage, script) as (conversation, _):
        async for recorded in conversation.say("think hard"):
            if isinstance(recorded.event, events.MessageDelta):
                await conversation.interrupt()
        assert conversation.last is not None
        assert conversation.last.outcome == "stopped"
        reply = await conversation.ask("then do not")
        assert (reply.outcome, reply.text, conversation.starts) == ("succeeded", "As you like.", 1)


async def test_leaving_a_turn_ends_it_and_the_next_one_starts_clean(stage: Any) -> None:
    script = [{"text": "I think.", "hang": "mid_stream"}, {"text": "Here."}]
    async with talking(stage, script, strict=False) as (conversation, _):
        saying = conversation.say("think hard")
        async for recorded in saying:
            if isinstance(recorded.event, events.MessageDelta):
                break
        with pytest.raises(errors.RunClosed, match="still answering"):
            await conversation.ask("too early")
        await saying.aclose()
        reply = await conversation.ask("hello?")
        assert (reply.outcome, reply.text) == ("succeeded", "Here.")


async def test_a_failed_turn_is_told_and_the_next_may_go_well(stage: Any) -> None:
    async with talking(stage, [{"error": {"status": 529}}, {"text": "Better."}]) as (conversation, _):
        first = await conversation.ask("go")
        assert first.outcome == "failed"
        assert first.error is not None
        assert first.error.kind == "overloaded"
        assert (await conversation.ask("again")).outcome == "succeeded"


async def test_the_budget_is_one_for_all_processes(stage: Any, until: Any) -> None:
    dear = {"input_tokens": 100_000, "output_tokens": 10}
    script = [{"text": "One.", "usage": dear}, {"text": "Two.", "usage": dear}]
    limits = Limits(budget_usd=0.5)
    async with talking(stage, script, strict=False, idle_close_s=0.05, model="claude-sonnet-4-5", limits=limits) as (
        conversation,
        _,
    ):
        assert (await conversation.ask("first")).outcome == "succeeded"
        await until(lambda: not conversation.is_live)
        assert (await conversation.ask("second")).outcome == "over_budget"


def hit_limit(reset: float) -> dict[str, Any]:
    headers = {
        "anthropic-ratelimit-unified-status": "rejected",
        "anthropic-ratelimit-unified-reset": int(reset),
        "anthropic-ratelimit-unified-representative-claim": "five_hour",
        "anthropic-ratelimit-unified-overage-status": "rejected",
    }
    return {"error": {"status": 429, "headers": headers}}


async def test_a_usage_limit_is_waited_for_within_the_turn(stage: Any) -> None:
    script = [hit_limit(time.time() + 1), {"text": "Done.", "expect": {"contains": "been reset"}}]
    async with talking(stage, script, credential=OAUTH, wait_for_limit=True) as (conversation, _):
        reply = await conversation.ask("go")
        assert (reply.outcome, reply.text, conversation.starts) == ("succeeded", "Done.", 1)


async def test_who_waits_for_a_limit_is_told_before_and_can_leave(stage: Any) -> None:
    script = [hit_limit(time.time() + 3600), {"text": "Later.", "optional": True}]
    async with talking(stage, script, credential=OAUTH, wait_for_limit=True) as (conversation, _):
        told: list[str] = []
        async with asyncio.timeout(60):
            async for recorded in conversation.say("go"):
                if isinstance(recorded.event, events.Notice) and recorded.event.code == "waiting_for_limit":
                    told.append(recorded.event.message)
                    await conversation.interrupt()
        assert [message.partition(";")[0] for message in told] == ["usage limit of the account"]
        assert conversation.last is not None
        assert conversation.last.outcome == "parked"


@pytest.mark.parametrize(
    "fields", [{"policy": {"wait_for_limit": False}}, {"limits": Limits(wall_s=600)}], ids=["policy", "wall clock"]
)
async def test_a_turn_does_not_wait_where_a_run_would_not(stage: Any, fields: dict[str, Any]) -> None:
    script = [hit_limit(time.time() + 3600)]
    async with talking(stage, script, credential=OAUTH, wait_for_limit=True, **fields) as (conversation, _):
        async with asyncio.timeout(60):
            assert (await conversation.ask("go")).outcome == "parked"


async def test_what_cannot_be_said(stage: Any) -> None:
    with pytest.raises(errors.BadValue, match="prompt"):
        open_conversation(prompt="hello")  # type: ignore[call-arg]  # what mypy refuses too
    with pytest.raises(errors.RequestError):
        open_conversation(colour="red")  # type: ignore[call-arg]  # what mypy refuses too
    conversation = open_conversation(cwd=str(stage.ws), environ=stage.environ)
    with pytest.raises(errors.EmptyPrompt):
        await conversation.ask("  ")
    await conversation.close()
    with pytest.raises(errors.RunClosed):
        await conversation.ask("hello")
    await asyncio.sleep(0)


async def test_an_answer_is_judged_within_its_turn(stage: Any) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    wrong, right = ({"tool": {"name": "StructuredOutput", "input": {"n": n}}} for n in (1, 2))
    script = [wrong, {"text": "ok", "optional": True}, right, {"text": "ok", "optional": True}]
    async with talking(stage, script, output_schema=schema) as (conversation, _):
        first = [recorded.event async for recorded in conversation.say("one")]
        assert conversation.last is not None
        assert conversation.last.output == {"n": 1}
        assert sum(isinstance(event, events.OutputChecked) for event in first) == 1
        assert (await conversation.ask("two")).output == {"n": 2}
        assert conversation.starts == 1
