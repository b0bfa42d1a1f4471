"""A budget ends the run within one request, and the credential stays with the supervisor: as every run is made."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

import leadrope
from leadrope import Limits, Secret, errors, events
from leadrope.rehearsal import ModelServer
from process_tree import environments_above

DEAR = {"input_tokens": 150_000, "output_tokens": 0}
"""0.30 USD of the model that these runs use."""
ONE = 0.3
AGENT = {
    "name": "Agent",
    "input": {"description": "d", "prompt": "go", "subagent_type": "general-purpose", "run_in_background": False},
}


def read(stage: Any) -> dict[str, Any]:
    return {"tool": {"name": "Read", "input": {"file_path": str(stage.ws / "a.txt")}}, "usage": DEAR}


@pytest.mark.parametrize("broker", [True, False])
async def test_a_run_ends_within_one_request_of_its_budget(stage: Any, broker: bool) -> None:
    (stage.ws / "a.txt").write_text("x")
    played = await stage.play(
        [{**read(stage), "repeat": 10}], strict=False, limits=Limits(budget_usd=2 * ONE), broker=broker
    )
    assert played.result.outcome == "over_budget"
    assert played.result.error.kind == "over_budget"
    assert len(played.model.requests) <= 3
    assert 2 * ONE <= played.result.cost_usd <= 3 * ONE + 0.01


@pytest.mark.parametrize("broker", [True, False])
async def test_a_subagents_spending_counts(stage: Any, broker: bool) -> None:
    (stage.ws / "a.txt").write_text("x")
    script = {
        "turns": [{"tool": AGENT, "usage": DEAR}, {"text": "done", "optional": True}],
        "subagents": [[{**read(stage), "repeat": 10}]],
    }
    played = await stage.play(
        script, strict=False, approver=lambda _: True, limits=Limits(budget_usd=3 * ONE), broker=broker
    )
    assert played.result.outcome == "over_budget"
    assert len(played.model.requests) <= 4
    assert played.result.cost_usd >= 3 * ONE - 0.01


async def test_an_unknown_model_is_metered_at_the_dearest_price_and_says_so(stage: Any) -> None:
    played = await stage.play([{"text": "ok"}], model="my-own-model")
    assert played.result.outcome == "succeeded"
    assert [w.kind for w in played.result.warnings] == ["unknown_price"]
    kinds = [type(event) for event in played.events]
    told = next(place for place, event in enumerate(played.events) if getattr(event, "code", "") == "unknown_price")
    assert told < kinds.index(events.SessionStarted), "before anything is spent"


async def test_a_model_without_a_price_is_not_started_where_that_is_asked(stage: Any) -> None:
    with pytest.raises(errors.BadValue, match="no price is known for 'my-own-model'"):
        await stage.play([], model="my-own-model", policy={"unknown_price": "refuse"})


async def test_a_key_is_out_of_reach_by_default(stage: Any) -> None:
    out = stage.ws / "env.txt"
    show = {"name": "Bash", "input": {"command": f"env > {out}", "description": "show"}}
    real = "sk-ant-the-real-one-0123456789abcdef"
    played = await stage.play([{"tool": show}, {"text": "ok"}], approver=lambda _: True, credential=Secret(real))
    assert played.model.requests[0].headers["x-api-key"] == real
    assert real not in out.read_text()
    assert "ANTHROPIC_API_KEY=sk-ant-leadrope-" in out.read_text()
    assert real not in str(played.events)
    assert played.one(events.SessionStarted).credential.masked.startswith("sk-ant-the")


async def show_environments(stage: Any, **fields: Any) -> tuple[Any, str]:
    """Without a sandbox, which would hide them; the agent itself gives no token to its commands."""
    (stage.ws / "show.sh").write_text(environments_above(os.getpid()))
    show = {"name": "Bash", "input": {"command": "bash show.sh > environments", "description": "show"}}
    played = await stage.play([{"tool": show}, {"text": "ok"}], approver=lambda _: True, sandbox="off", **fields)
    return played, (stage.ws / "environments").read_text()


async def test_a_token_is_given_to_the_agent_unless_a_broker_is_asked_for(stage: Any) -> None:
    token = "sk-ant-oat01-0123456789abcdef0123"
    for broker in (None, True):
        played, environments = await show_environments(stage, credential=Secret(token), broker=broker)
        assert played.result.outcome == "succeeded"
        assert played.model.requests[0].headers["authorization"] == f"Bearer {token}"
        assert environments.count("CLAUDE_CODE_OAUTH_TOKEN=") >= 1, "the agent's own environment is among them"
        assert (token in environments) == (broker is None)


async def test_an_own_login_is_given_to_the_agent(stage: Any) -> None:
    token = "sk-ant-oat01-of-the-own-login-0123456789"
    (stage.home / ".claude").mkdir()
    login = {"claudeAiOauth": {"accessToken": token, "expiresAt": 4_000_000_000_000}}
    (stage.home / ".claude" / ".credentials.json").write_text(json.dumps(login))
    played, environments = await show_environments(stage, credential=None)
    assert played.model.requests[0].headers["authorization"] == f"Bearer {token}"
    assert token in environments


async def test_an_own_login_cannot_be_brokered(stage: Any) -> None:
    """Said before anything is started."""
    (stage.home / ".claude").mkdir()
    login = '{"claudeAiOauth": {"accessToken": "a", "expiresAt": 1}}'
    (stage.home / ".claude" / ".credentials.json").write_text(login)
    with pytest.raises(errors.BadValue, match="broker"):
        await stage.play([], credential=None, broker=True)


async def test_many_runs_with_one_budget_exceed_it_by_one_request_at_most(stage: Any) -> None:
    """Eight runs, four at a time, behind brokers: requests in flight of all runs are counted together."""
    async with ModelServer([{"text": "Done.", "usage": DEAR, "repeat": 8}], strict=False) as model:
        requests = [stage.request(model) for _ in range(8)]
        results = await leadrope.run_many(requests, budget_usd=2 * ONE, environ=stage.environ)
    spent = sum(result.cost_usd for result in results)
    assert 2 * ONE <= spent <= 3 * ONE + 0.01, [(result.outcome, result.cost_usd) for result in results]
    assert results[-1].outcome == "over_budget"
    assert len(model.requests) < 8
