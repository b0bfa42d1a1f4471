"""`leadrope stats`: sums, bars, and what other programs get."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import click
import pytest

from leadrope import errors
from leadrope.cli.runs import stats
from leadrope.cli.screen.screen import Style
from leadrope.cli.screen.table import width_of
from leadrope.core.cost.usage import CostLabel, Usage
from leadrope.core.request import RunRequest
from leadrope.core.result import RunResult
from leadrope.core.secrets.redaction import Redactor
from leadrope.runs.records.sqlite import Sqlite
from leadrope.runs.records.values import NewRun
from leadrope.storage import database

MIXED: CostLabel = "partly API-equivalent estimate"
ROWS: list[stats.Spent] = [
    ("2026-01-01", "opus", {"team": "web"}, 1.5, "estimate", 1000, "succeeded"),
    ("2026-01-01", "haiku", {}, 0.25, "estimate", 9000, "failed"),
    ("2026-01-04", "opus", {"team": "db", "day": "x"}, 4.0, "API-equivalent estimate", 500, "degraded"),
    ("2026-01-04", "", {"team": "web"}, 0.0, "estimate", 0, None),
]


def main(args: list[str]) -> int:
    code: int = stats.command.main(args, prog_name="leadrope stats", standalone_mode=False)
    return code


def test_days_are_in_order_and_have_no_gaps() -> None:
    found = stats.lines(ROWS, "day")
    assert [line.name for line in found] == ["2026-01-01", "2026-01-02", "2026-01-03", "2026-01-04"]
    assert found[0] == stats.StatsBar(name="2026-01-01", runs=2, succeeded=1, cost_usd=1.75, tokens=10_000)
    assert found[1] == stats.StatsBar(name="2026-01-02")


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (ROWS, "Costs at list prices: $4.00 API-equivalent estimate, $1.75 estimate."),
        (ROWS[:2], "Costs: estimate at list prices."),
        (ROWS[2:], "Costs: API-equivalent estimate at list prices."),
        ([], "Costs: estimate at list prices."),
    ],
)
def test_the_sums_are_called_what_they_are(rows: list[stats.Spent], told: str) -> None:
    assert stats.key(rows) == told


def test_one_run_is_not_called_runs() -> None:
    shown = stats.plot(stats.lines(ROWS[1:2], "day"), width=100, bars=False)
    assert [re.sub(r".*k +", "", line) for line in shown] == ["1 run, 1 not ok", "1 run, 1 not ok"]


def test_a_long_time_shows_only_days_with_runs() -> None:
    rows: list[stats.Spent] = [
        ("2024-01-01", "m", {}, 1.0, "estimate", 1, None),
        ("2026-01-01", "m", {}, 1.0, "estimate", 1, None),
    ]
    assert [line.name for line in stats.lines(rows, "day")] == ["2024-01-01", "2026-01-01"]


def test_models_and_labels_are_by_what_they_cost() -> None:
    assert [(line.name, line.cost_usd) for line in stats.lines(ROWS, "model")] == [
        ("opus", 5.5),
        ("haiku", 0.25),
        ("(not known)", 0.0),
    ]
    assert [line.name for line in stats.lines(ROWS, "label:team")] == ["db", "web", "(none)"]
    assert [line.name for line in stats.lines(ROWS, "label:day")] == ["x", "(none)"], "a label of that name is a label"


def test_the_sum_is_the_same_whatever_it_is_split_by() -> None:
    sums = [stats.total(stats.lines(ROWS, by)) for by in ("day", "model", "label:team")]
    assert all(found == sums[0] for found in sums)
    assert sums[0] == stats.StatsBar(name="all", runs=4, succeeded=2, cost_usd=5.75, cost_label=MIXED, tokens=10_500)


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_the_plot_fits_the_terminal_and_its_bars_the_numbers(width: int) -> None:
    found = [*stats.lines(ROWS, "day"), stats.StatsBar(name="漢字のラベル" * 9, runs=1, cost_usd=2.0)]
    shown = stats.plot(found, width=width)
    assert len(shown) == len(found) + 1
    assert max(width_of(line) for line in shown) <= width
    bars = [sum(char in stats.BLOCKS[1:] for char in line) for line in shown]
    if width >= 80:
        assert bars[3] > bars[4] > bars[0] > 0, "more costs a longer bar"
        assert bars[1] == bars[2] == 0
    assert bars[-1] == 0, "the sum has none"


def test_bars_may_follow_tokens_and_nothing_at_all_is_no_division_by_zero() -> None:
    shown = stats.plot(stats.lines(ROWS, "model"), width=100, measure="tokens")
    assert shown[1].count("█") > shown[0].count("█")
    assert len(stats.plot([stats.StatsBar(name="x", runs=1)], width=100)) == 2
    assert len(stats.plot([], width=100)) == 1


@pytest.mark.parametrize("width", [40, 60, 100])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    for by in ("day", "model"):
        shown = stats.plot(stats.lines(ROWS, by), width=width)
        assert max(map(width_of, shown)) <= width
        assert all(re.search(r"\$[\d.,]+ +\d", line) for line in shown)


def test_without_bars_there_are_no_blocks_and_no_colours() -> None:
    shown = "\n".join(stats.plot(stats.lines(ROWS, "day"), width=100, bars=False, style=Style(enabled=True)))
    assert not set(shown) & set(stats.BLOCKS[1:])
    assert "\x1b" not in shown


def test_a_label_cannot_act_on_the_terminal() -> None:
    rows: list[stats.Spent] = [("2026-01-01", "m", {"k": "\x1b[31mred\u202e\nx"}, 1.0, "estimate", 1, None)]
    (line, _) = stats.plot(stats.lines(rows, "label:k"), width=100)
    assert line.startswith("red x")


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0"), (999, "999"), (1000, "1.00k"), (999_400, "999k"), (999_600, "1.00M"), (5_000_000_000_000, "5000G")],
)
def test_tokens_are_short(count: int, shown: str) -> None:
    assert stats.tokens(count) == shown


def filled(path: Path) -> None:
    async def fill() -> None:
        with Sqlite(path) as store:
            for at, team in enumerate(("web", "web", "db")):
                request = RunRequest(prompt="go", model="opus", labels={"team": team})
                run = await store.add_run(NewRun(id=f"run-{at}", request=request))
                result = RunResult(run_id=run.id, outcome="succeeded", cost_usd=0.5, usage=Usage(output_tokens=100))
                await store.end_run(run, result, Redactor())

    asyncio.run(fill())


def test_the_command_reads_the_store(scratch_home: Path, capfdbinary: Any) -> None:
    filled(database.path_in(scratch_home / "leadrope"))
    assert main(["--by", "label:team", "-o", "json"]) == 0
    told = json.loads(capfdbinary.readouterr().out)
    counts = {"name": "all", "runs": 3, "succeeded": 3, "cost_usd": 1.5, "cost_label": "estimate", "tokens": 300}
    assert told["total"] == counts
    assert [(line["name"], line["runs"]) for line in told["lines"]] == [("web", 2), ("db", 1)]
    assert main(["--by", "model", "--label", "team=db"]) == 0
    out = capfdbinary.readouterr().out.decode()
    assert out.split()[:4] == ["opus", "$0.5000", "100", "1"]
    assert "█" not in out, "plain when it is piped"


def test_asking_makes_no_store(scratch_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "No runs in the last" in capsys.readouterr().err
    assert not (scratch_home / "leadrope").exists()


@pytest.mark.parametrize("args", [["--by", "label:"], ["--by", "week"], ["--label", "team"], ["--days", "0"]])
def test_what_cannot_be_meant_is_refused(args: list[str]) -> None:
    with pytest.raises((errors.BadValue, click.UsageError)):
        main(args)
