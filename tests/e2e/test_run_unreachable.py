"""A model's server that cannot be reached: named at the first connection that fails, and given up after a time."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from leadrope import Limits, events
from leadrope.rehearsal import ModelServer

WAYS = pytest.mark.parametrize("broker", [True, False], ids=["broker", "no broker"])


@pytest.fixture
def closed() -> Iterator[socket.socket]:
    """A port that refuses connections, and that nobody else gets meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound


@pytest.fixture
def port(closed: socket.socket) -> int:
    found: int = closed.getsockname()[1]
    return found


def unreachable(**more: Any) -> dict[str, Any]:
    return {"api_retries": 10, "attempts": 2, "strict": False} | more


@WAYS
async def test_a_refused_connection_is_named_at_once_and_given_up_in_time(stage: Any, port: int, broker: bool) -> None:
    seen: list[float] = []

    async def on(run: Any, event: events.Event) -> None:
        if isinstance(event, events.Notice | events.RunEnded):
            seen.append(asyncio.get_running_loop().time())

    url = f"http://127.0.0.1:{port}"
    limits = Limits(unreachable_s=3)
    played = await stage.play([], on=on, base_url=url, broker=broker, limits=limits, **unreachable())
    result = played.result
    assert (result.outcome, result.error.kind, result.error.clock) == ("failed", "connection_failed", "unreachable")
    assert result.error.message == f"cannot reach 127.0.0.1:{port} (connection refused); gave up after 3 s"
    assert "limits.unreachable_s" in result.error.hint
    assert result.attempts == 1, "it was tried for as long as it may be"
    (notice,) = [one for one in played.of(events.Notice) if one.code == "model_unreachable"]
    assert notice.message == f"cannot reach 127.0.0.1:{port} (connection refused); retrying for up to 3 s"
    assert [one.message for one in result.warnings if one.kind == "model_unreachable"] == [notice.message]
    retries = played.of(events.RetryScheduled)
    assert {retry.error for retry in retries} == {f"cannot reach 127.0.0.1:{port} (connection refused)"}
    assert {retry.api_status for retry in retries} == {None}
    kinds = [type(event) for event in played.events]
    assert kinds.index(events.Notice) < kinds.index(events.RetryScheduled) + 1


@WAYS
async def test_an_unknown_host_is_given_up_too(stage: Any, broker: bool) -> None:
    played = await stage.play(
        [], base_url="http://model.invalid", broker=broker, limits=Limits(unreachable_s=2), **unreachable()
    )
    assert played.result.error.clock == "unreachable"
    assert played.result.error.message.startswith("cannot reach model.invalid (")


@WAYS
async def test_a_server_that_comes_back_in_time_costs_nothing(
    stage: Any, closed: socket.socket, port: int, broker: bool
) -> None:
    """Started after the third announcement: the agent's next try comes later than the limit of three seconds."""
    late = ModelServer([{"text": "Here I am."}], strict=False, port=port)

    async def on(run: Any, event: events.Event) -> None:
        if isinstance(event, events.RetryScheduled) and event.attempt == 3:
            closed.close()
            await late.__aenter__()

    given = unreachable(base_url=f"http://127.0.0.1:{port}", broker=broker, limits=Limits(unreachable_s=3))
    try:
        played = await stage.play([], on=on, **given)
    finally:
        await late.close()
    assert (played.result.outcome, played.result.text) == ("succeeded", "Here I am.")
    codes = [notice.code for notice in played.of(events.Notice)]
    assert codes.index("model_unreachable") < codes.index("model_reachable")


async def test_without_a_limit_the_agent_decides_itself(stage: Any, port: int) -> None:
    """Two retries of the agent, and then it gives up."""
    played = await stage.play(
        [],
        base_url=f"http://127.0.0.1:{port}",
        limits=Limits(unreachable_s=0),
        **unreachable(api_retries=2, attempts=1),
    )
    assert played.result.error.kind == "connection_failed"
    assert played.result.error.clock is None
    assert f"127.0.0.1:{port} cannot be reached (connection refused)" in played.result.error.message
    (notice,) = [one for one in played.of(events.Notice) if one.code == "model_unreachable"]
    assert notice.message.endswith("; retrying")
