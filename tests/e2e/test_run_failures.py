"""Every way to fail has its own outcome, kind and hint, and never looks like success."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from leadrope import Limits, Secret, errors, events


def error(status: int, **more: Any) -> dict[str, Any]:
    return {"error": {"status": status, "message": "from the script", **more}, "repeat": "forever"}


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, "bad_request"), (404, "bad_request"), (429, "rate_limited"), (500, "api_error"), (529, "overloaded")],
)
async def test_a_refused_request(stage: Any, status: int, kind: str) -> None:
    played = await stage.play([error(status)])
    assert played.result.outcome == "failed"
    assert played.result.error.kind == kind
    assert played.result.error.api_status == status
    assert played.result.error.hint
    assert played.result.text == "" or "API Error" in played.result.text


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_login_ends_at_once(stage: Any, status: int) -> None:
    """Left alone the CLI retries a 401 for three minutes; one refusal is enough here."""
    played = await stage.play([error(status)], api_retries=10)
    assert played.result.outcome == "failed"
    assert played.result.error.kind == "not_authenticated"
    assert len(played.model.requests) == 1


async def test_an_unreachable_model(stage: Any) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        played = await stage.play([], base_url=url)
    assert played.result.outcome == "failed"
    assert played.result.error.kind == "connection_failed"


async def test_a_hanging_model_ends_by_the_idle_clock(stage: Any) -> None:
    played = await stage.play([{"hang": "before_headers"}], limits=Limits(idle_s=1))
    assert played.result.outcome == "timed_out"
    assert played.result.error.code == "TIMEOUT_ERROR"
    assert played.result.error.clock == "idle"
    assert played.one(events.RunEnding).clock == "idle"


async def test_a_hang_in_the_middle_of_an_answer_ends_by_the_idle_clock(stage: Any) -> None:
    played = await stage.play([{"text": "half of", "hang": "mid_stream"}], limits=Limits(idle_s=1))
    assert played.result.error.clock == "idle"


async def test_the_wall_clock_ends_a_busy_run(stage: Any) -> None:
    """Text that never stops coming keeps the idle clock away, not this one.

    The clock runs from the start of the process: on a busy machine it was over before the agent had said anything.
    """
    played = await stage.play(
        [{"size": 200_000, "drip": {"chunk": 50, "every_ms": 20}}], limits=Limits(idle_s=60, wall_s=8)
    )
    assert played.result.outcome == "timed_out"
    assert played.result.error.clock == "wall"


async def test_a_wedged_tool_ends_its_turn(stage: Any) -> None:
    slow = {"name": "Bash", "input": {"command": "tail -f /dev/null", "description": "wait"}}
    played = await stage.play([{"tool": slow}], approver=lambda _: True, limits=Limits(tool_s=1))
    assert [n.code for n in played.of(events.Notice) if n.level == "warning"] == ["tool_timed_out"]
    assert played.one(events.TurnEnded).is_error
    assert played.result.outcome == "timed_out"
    assert played.result.error.clock == "tool"


async def test_an_empty_answer_is_not_a_success(stage: Any) -> None:
    played = await stage.play([{"empty": True, "repeat": 2}])
    assert played.result.outcome == "failed"
    assert played.result.error.kind == "empty_output"


async def test_max_turns_is_degraded_and_keeps_the_text(stage: Any) -> None:
    read = {"name": "Read", "input": {"file_path": str(stage.ws)}}
    played = await stage.play([{"text": "so far", "tool": read}], max_turns=1)
    assert played.result.outcome == "degraded"
    assert played.result.text == "so far"
    assert [w.kind for w in played.result.warnings] == ["max_turns"]


async def test_a_spent_budget(stage: Any) -> None:
    read = {"name": "Read", "input": {"file_path": str(stage.ws)}}
    dear = {"input_tokens": 100_000, "output_tokens": 100_000}
    played = await stage.play([{"tool": read, "usage": dear}], limits=Limits(budget_usd=0.01))
    assert played.result.outcome == "over_budget"
    assert played.result.cost_usd > 0.01


async def test_a_long_prompt_is_told_as_such(stage: Any) -> None:
    message = "prompt is too long: 250000 tokens > 200000 maximum"
    played = await stage.play([{"error": {"status": 400, "message": message}, "repeat": "forever"}])
    assert played.result.error.kind == "prompt_too_long"


async def test_a_large_answer_arrives_whole(stage: Any) -> None:
    played = await stage.play([{"size": 5_000_000}])
    assert played.result.outcome == "succeeded"
    assert len(played.result.text) == 5_000_000


async def test_a_large_prompt_goes_over_stdin(stage: Any) -> None:
    prompt = "word " * 40_000
    played = await stage.play([{"text": "read"}], prompt=prompt)
    assert prompt.strip() in played.model.requests[0].text


async def test_a_failure_that_can_heal_is_tried_again(stage: Any) -> None:
    played = await stage.play([{"error": {"status": 500}}, {"text": "better now"}], attempts=2)
    assert played.result.outcome == "succeeded"
    assert played.result.text == "better now"
    assert played.result.attempts == 2
    assert [r.by for r in played.of(events.RetryScheduled) if r.by == "supervisor"] == ["supervisor"]
    assert {r.attempt for r in played.recorded} == {1, 2}


@pytest.mark.parametrize("status", [400, 401])
async def test_a_failure_that_cannot_heal_is_not(stage: Any, status: int) -> None:
    played = await stage.play([error(status)], attempts=2)
    assert played.result.attempts == 1


async def test_nothing_is_tried_again_after_a_tool_has_run_in_a_session_that_is_not_kept(stage: Any) -> None:
    script = [{"tool": stage.touch}, {"error": {"status": 500}}]
    played = await stage.play(script, attempts=2, approver=lambda _: True, persist_session=False)
    assert played.result.error.kind == "api_error"
    assert played.result.attempts == 1


async def test_no_credential_is_an_error_before_the_start(stage: Any) -> None:
    """An ambient key is named, not used; and what to do is said."""
    stage.environ["ANTHROPIC_API_KEY"] = "sk-ant-ambient-000000000000"
    with pytest.raises(errors.NotAuthenticated, match="ANTHROPIC_API_KEY") as caught:
        await stage.play([], credential=None)
    assert "api_key" in str(caught.value)
    assert "sk-ant-ambient" not in str(caught.value)


async def test_an_ambient_key_is_used_after_an_opt_in(stage: Any) -> None:
    stage.environ["ANTHROPIC_API_KEY"] = "sk-ant-ambient-000000000000"
    stage.environ["CLAUDE_CODE_OAUTH_TOKEN"] = "sk-ant-oat-000000000000"
    played = await stage.play([{"text": "ok"}], credential=None, billing="api_key")
    headers = played.model.requests[0].headers
    assert headers["x-api-key"] == "sk-ant-ambient-000000000000"
    assert "authorization" not in headers


async def test_a_setup_token_wins_over_an_ambient_key(stage: Any) -> None:
    stage.environ["ANTHROPIC_API_KEY"] = "sk-ant-ambient-000000000000"
    stage.environ["CLAUDE_CODE_OAUTH_TOKEN"] = "sk-ant-oat-000000000000"
    for billing in ("subscription", "auto"):
        played = await stage.play([{"text": "ok"}], credential=None, billing=billing)
        headers = played.model.requests[0].headers
        assert headers["authorization"] == "Bearer sk-ant-oat-000000000000"
        assert "x-api-key" not in headers
        assert played.one(events.SessionStarted).credential.billing == "subscription"


async def test_stop_leaves_nothing_and_says_so(stage: Any) -> None:
    slow = {"name": "Bash", "input": {"command": "setsid tail -f /dev/null & tail -f /dev/null", "description": "x"}}
    # An agent that is told to end while its command starts can still tell the model so.
    last_words = {"text": "stopped", "optional": True}
    async with stage.opened([{"tool": slow}, last_words], approver=lambda _: True) as (run, _):
        async for item in run:
            if isinstance(item.event, events.ToolDecided):
                break
        result = await run.stop()
    assert result.outcome == "stopped"


async def test_a_usage_limit_parks_the_run_until_its_reset(stage: Any) -> None:
    reset = 1_999_999_999
    headers = {
        "anthropic-ratelimit-unified-status": "rejected",
        "anthropic-ratelimit-unified-reset": reset,
        "anthropic-ratelimit-unified-representative-claim": "five_hour",
        "anthropic-ratelimit-unified-overage-status": "rejected",
    }
    played = await stage.play(
        [error(429, headers=headers)], credential=Secret("sk-ant-oat-rehearsal-000000000000"), attempts=2
    )
    assert played.result.outcome == "parked"
    assert played.result.resets_at == reset
    assert played.one(events.LimitReached).kind == "five_hour"
    assert played.result.attempts == 1
