"""JSON for scripts: every key, round costs, and the user's own data as it is."""

from __future__ import annotations

import json

import msgspec

from leadrope.cli import json_output
from leadrope.core import events
from leadrope.core.cost.usage import ModelShare, Usage
from leadrope.core.result import RunError, RunResult

NOISE = 0.00045000000000000004


def test_a_result_has_every_key_of_every_value() -> None:
    result = RunResult(run_id="r", outcome="failed", error=RunError(kind="agent_died", message="m"))
    told = json.loads(json_output.line(json_output.whole(result)))
    assert set(told) == set(RunResult.__struct_fields__)
    assert set(told["error"]) == set(RunError.__struct_fields__)
    assert set(told["usage"]) == set(Usage.__struct_fields__)
    assert msgspec.convert(told, RunResult) == result, "it is read as before"


def test_costs_are_rounded_and_data_is_not() -> None:
    result = RunResult(run_id="r", outcome="succeeded", cost_usd=NOISE, output={"cost_usd": NOISE})
    for shown in (result, json_output.whole(result)):
        told = json.loads(json_output.line(shown))
        assert told["cost_usd"] == 0.00045
        assert told["output"] == {"cost_usd": NOISE}, "what the model answered is not ours to change"
    turn = events.TurnEnded(
        turn=1, is_error=False, reason="success", cost_usd=NOISE, models={"m": ModelShare(cost_usd=NOISE)}
    )
    line = json_output.event_line(events.Recorded("r", 1, 1, 0.0, "agent", turn))
    assert b"0.00045" in line
    assert b"0.00045000000000000004" not in line


def test_the_end_of_a_stream_can_be_read_back() -> None:
    result = RunResult(run_id="r", outcome="failed", error=RunError(kind="cli_not_found", message="m", hint="h"))
    recorded = msgspec.json.decode(json_output.last_line(result), type=events.Recorded)
    assert recorded.event == events.RunEnded(result=result)
