"""docs/agents.md on models: the table is that of the program."""

from __future__ import annotations

import re
from pathlib import Path

from leadrope.core import models
from leadrope.core.cost.prices import TABLE

TEXT = (Path(__file__).parents[3] / "docs/agents.md").read_text()


def test_tiers_and_their_prices() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(claude-[\w-]+)` \| ([\d.]+) / ([\d.]+)", TEXT, re.MULTILINE)
    told = {tier: (model, float(input_), float(output)) for tier, model, input_, output in rows}
    listed = {tier: (model, TABLE[model].input, TABLE[model].output) for tier, model in models.TIERS.items()}
    assert told == listed
    assert f"({models.TIERS_OF}, asked on {models.TIERS_DATE})" in TEXT


def test_purposes() -> None:
    told = " ".join(TEXT.split())
    for tier in ("opus", "haiku", "sonnet"):
        purposes = [purpose for purpose, meant in models.PURPOSES.items() if meant == tier]
        words = [f"`{purpose}`" for purpose in purposes]
        joined = f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else words[0]
        assert re.search(rf"{re.escape(joined)} takes? {tier}", told), tier
