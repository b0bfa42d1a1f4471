"""What a policy says of a request that is not about calls: the broker, prices nobody knows, waiting for limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from leadrope import RunRequest
from leadrope.core.config import Config
from leadrope.runtime import prepare


def prepared(tmp_path: Path, policy: dict[str, Any], **fields: Any) -> prepare.Prepared:
    request = RunRequest(prompt="p", cwd=str(tmp_path), policy=policy, **fields)
    return prepare.complete(request, Config(), {"HOME": str(tmp_path)}, tmp_path / "leadrope")


@pytest.mark.parametrize(
    ("policy", "asked", "expected"),
    [
        ({}, None, None),
        ({}, False, False),
        ({}, True, True),
        ({"broker": True}, None, True),
        ({"broker": True}, False, True),
        ({"broker": "auto"}, False, False),
        ({"broker": "auto"}, True, True),
        ({"broker": False}, None, None),
    ],
)
def test_a_policy_can_ask_for_the_broker(
    tmp_path: Path, policy: dict[str, Any], asked: bool | None, expected: bool | None
) -> None:
    assert prepared(tmp_path, policy, broker=asked).request.broker is expected


def test_a_policy_can_refuse_models_without_a_price(tmp_path: Path) -> None:
    assert prepared(tmp_path, {}).config.prices.unknown == "dearest"
    assert prepared(tmp_path, {"unknown_price": "refuse"}).config.prices.unknown == "refuse"


def test_each_of_several_policies_is_a_layer_and_can_only_tighten(tmp_path: Path) -> None:
    found = prepared(tmp_path, {"max_budget_usd": 5}, policies=({"max_budget_usd": 2}, {"max_budget_usd": 9}))
    assert found.rules.max_budget_usd == 2
    assert found.request.limits.budget_usd == 2
