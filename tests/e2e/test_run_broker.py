"""The real CLI behind the broker: it works as before, spends no more than it may, and never holds the credential."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from leadrope import RunRequest, Secret, events, open_run
from leadrope.rehearsal import ModelServer
from leadrope.runtime.broker.broker import Broker, Kind
from leadrope.runtime.limits.budget import Meter
from leadrope.runtime.run import Run

REAL = "sk-ant-the-real-one-0123456789abcdef"
AGENT = {"name": "Agent", "input": {"description": "d", "prompt": "do it", "subagent_type": "general-purpose"}}
HERE = {**AGENT, "input": {**AGENT["input"], "run_in_background": False}}  # type: ignore[dict-item]  # a dict beside a str
DEAR = {"input_tokens": 100_000, "output_tokens": 0}
"""0.30 USD of the model that these runs use."""
ONE = 0.3


class Seen:
    """A run through a broker, when it has ended."""

    def __init__(self, run: Run, model: ModelServer, broker: Broker, meter: Meter) -> None:
        self.run = run
        self.model = model
        self.broker = broker
        self.meter = meter
        self.recorded: list[events.Recorded] = []
        self.result: Any = None


async def play(
    stage: Any,
    script: Any,
    *,
    kind: Kind = "api_key",
    cap_usd: float | None = None,
    strict: bool = True,
    is_ended_by_meter: bool = False,
    listen: Path | None = None,
    **fields: Any,
) -> Seen:
    meter = Meter(cap_usd)
    async with (
        ModelServer(script, strict=strict) as model,
        Broker(model.url, Secret(REAL), kind, meter=meter, listen=listen) as broker,
    ):
        given: dict[str, Any] = {"model": "claude-sonnet-4-6", "mode": "full", "attempts": 1, "api_retries": 0} | fields
        request = RunRequest(
            prompt="go",
            cwd=str(stage.ws),
            base_url=broker.url,
            credential=Secret(broker.token),
            credential_kind=kind,
            broker=False,  # the one above is looked at
            **given,
        )
        async with open_run(request, environ=stage.environ, approver=lambda _: True) as run:
            seen = Seen(run, model, broker, meter)
            if is_ended_by_meter:
                meter.on_over = lambda reason: run._attempt.end("over_budget", "over_budget", reason)  # type: ignore[union-attr]  # it lives
            async for item in run:
                seen.recorded.append(item)
                meter.take(item.event)
            seen.result = await run.result()
    return seen


def bash(command: str) -> dict[str, Any]:
    return {"tool": {"name": "Bash", "input": {"command": command, "description": "x"}}}


# -- it works as before -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["api_key", "oauth_token", "auth_token"])
async def test_a_run_with_each_kind_of_credential(stage: Any, kind: Kind) -> None:
    seen = await play(stage, [bash("echo hello > said"), {"text": "done"}], kind=kind)
    assert (seen.result.outcome, seen.result.text) == ("succeeded", "done")
    assert (stage.ws / "said").read_text() == "hello\n"
    for request in seen.model.requests:
        if kind == "api_key":
            assert request.headers["x-api-key"] == REAL
            assert "authorization" not in request.headers
        else:
            assert request.headers["authorization"] == f"Bearer {REAL}"
            assert "x-api-key" not in request.headers
    assert seen.model.other_requests == []


async def test_our_sum_is_the_agents_sum(stage: Any) -> None:
    usage = {
        "input_tokens": 1234,
        "output_tokens": 567,
        "cache_read_input_tokens": 8901,
        "cache_creation_input_tokens": 2345,
    }
    script = {
        "turns": [{"tool": HERE, "usage": usage}, {"text": "done", "usage": usage}],
        "subagents": [[{**bash("true"), "usage": usage}, {"text": "sub", "usage": usage}]],
    }
    seen = await play(stage, script)
    assert seen.result.outcome == "succeeded"
    assert seen.meter.spent_usd == pytest.approx(seen.result.cost_usd)
    started = next(r.event for r in seen.recorded if isinstance(r.event, events.SubagentStarted))
    assert seen.meter.by_agent == pytest.approx(
        {None: seen.meter.spent_usd / 2, started.agent_id: seen.meter.spent_usd / 2}
    )
    assert seen.broker.requests == 4


# -- money ------------------------------------------------------------------------------------------------------------


async def test_a_spent_budget_refuses_the_next_request(stage: Any) -> None:
    """Even if nobody ends the run: the agent is told, does not try again, and cannot go on."""
    script = [{**bash("true"), "usage": DEAR, "repeat": "forever"}]
    seen = await play(stage, script, cap_usd=0.5, api_retries=10)
    assert len(seen.model.requests) == 2
    assert seen.meter.spent_usd - 0.5 < ONE, "less than one request too much"
    ended = [r.event for r in seen.recorded if isinstance(r.event, events.TurnEnded)]
    assert [turn.api_status for turn in ended] == [402]
    assert "leadrope: the run's budget of 0.5 USD is reached" in ended[0].text
    assert [r.event for r in seen.recorded if isinstance(r.event, events.RetryScheduled)] == []


async def test_a_subagent_spends_the_same_budget_and_its_parent_is_refused_too(stage: Any) -> None:
    """The agent takes a refused subagent for a failed tool and goes on; the next request is refused as well."""
    script = {
        "turns": [{"tool": HERE, "usage": DEAR}, {"text": "never", "optional": True}],
        "subagents": [[{**bash("true"), "usage": DEAR}, {"text": "never", "optional": True}]],
    }
    seen = await play(stage, script, cap_usd=0.6)
    assert [request.agent_id is not None for request in seen.model.requests] == [False, True]
    assert seen.meter.spent_usd == pytest.approx(2 * ONE, rel=0.001)
    assert len(seen.meter.by_agent) == 2
    assert seen.result.outcome != "succeeded"


async def test_the_run_ends_over_budget_in_the_moment_it_is(stage: Any) -> None:
    script = [
        {**bash("touch one"), "usage": DEAR},
        {**bash(f"touch {stage.marker}"), "usage": DEAR, "hang": "mid_stream"},
    ]
    before = time.monotonic()
    seen = await play(stage, script, cap_usd=0.5, is_ended_by_meter=True)
    assert seen.result.outcome == "over_budget"
    assert "budget of 0.5 USD" in seen.result.error.message
    assert (stage.ws / "one").exists()
    assert not stage.marker.exists()
    assert time.monotonic() - before < 30, "nobody waits for an answer that hangs"


# -- failures ---------------------------------------------------------------------------------------------------------


async def test_a_refused_credential_ends_at_once(stage: Any) -> None:
    """Ten retries would take three minutes; the broker's word stops the first one."""
    seen = await play(stage, [{"error": {"status": 401}, "repeat": "forever"}], api_retries=10)
    assert (seen.result.outcome, seen.result.error.kind) == ("failed", "not_authenticated")
    assert len(seen.model.requests) == 1
    assert [r.event for r in seen.recorded if isinstance(r.event, events.RetryScheduled)] == []


async def test_a_server_that_is_busy_is_tried_again_by_the_agent(stage: Any) -> None:
    script = [{"error": {"status": 500}}, {"cut": True, "text": "half"}, {"text": "whole"}]
    seen = await play(stage, script, api_retries=3, strict=False)
    assert seen.result.outcome == "succeeded"
    assert seen.result.text == "whole"


async def test_a_run_that_is_stopped_takes_its_request_along(
    stage: Any, until: Callable[[Callable[[], bool]], Awaitable[None]]
) -> None:
    async with (
        ModelServer([{"text": "x", "hang": "mid_stream"}]) as model,
        Broker(model.url, Secret(REAL), "api_key") as broker,
    ):
        request = stage.request(base_url=broker.url, credential=Secret(broker.token), broker=False)
        async with open_run(request, environ=stage.environ) as run:
            async for item in run:
                if isinstance(item.event, events.MessageDelta):
                    break
            assert (await run.stop()).outcome == "stopped"
        await until(lambda: not broker._clients)


# -- the credential -------------------------------------------------------------------------------------------------

# From the shell upwards to the supervisor: the shell, the agent, and what holds the agent. No other process of the
# machine is looked at.
LOOK = """
env > env.txt
p=$$
while [ "$p" != SUPERVISOR ] && [ "$p" -gt 1 ]; do
  tr '\\0' '\\n' < /proc/$p/environ >> environ.txt
  tr '\\0' ' ' < /proc/$p/cmdline >> cmdline.txt
  echo "$p" >> pids.txt
  p=$(sed -n 's/^PPid:[[:space:]]*//p' /proc/$p/status)
done
grep -rsl WORD "$HOME" "$CLAUDE_CONFIG_DIR" > files.txt
true
"""


@pytest.mark.parametrize("kind", ["api_key", "oauth_token", "auth_token"])
async def test_the_credential_is_nowhere_near_the_agent(
    stage: Any, kind: Kind, caplog: pytest.LogCaptureFixture, marker: str
) -> None:
    """Not in environment or command line of the agent, its shell and its guardian, nor in files, events and logs."""
    caplog.set_level(logging.DEBUG)
    stage.environ["LEADROPE_DEBUG_SPAWN"] = "1"
    look = LOOK.replace("SUPERVISOR", str(os.getpid())).replace("WORD", REAL[:-3] + "[d]ef")
    # SandboxLevel would hide the processes above the shell, which are looked at here.
    seen = await play(stage, [bash(f": {marker}; {look}"), {"text": "looked"}], kind=kind, sandbox="off")
    assert seen.result.text == "looked"
    environ = (stage.ws / "environ.txt").read_text(errors="replace")
    cmdline = (stage.ws / "cmdline.txt").read_text(errors="replace")
    assert marker in cmdline, "the shell was looked at"
    assert len((stage.ws / "pids.txt").read_text().split()) >= 3, "and what is above it"
    assert seen.broker.token in environ, "what the agent was given is found, so the real one would be too"
    for place in (environ, cmdline, (stage.ws / "env.txt").read_text()):
        assert REAL not in place
    assert (stage.ws / "files.txt").read_text() == ""
    assert REAL not in caplog.text
    assert seen.broker.token not in caplog.text
    for item in seen.recorded:
        assert REAL not in repr(item)
    for folder, _, names in os.walk(stage.home):
        for name in names:
            assert REAL.encode() not in (Path(folder) / name).read_bytes()
