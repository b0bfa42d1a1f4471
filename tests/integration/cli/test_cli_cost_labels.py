"""What a cost is called, wherever one is shown: a subscription is not charged by the token, a key is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from leadrope.rehearsal import write_executable

STEPS: list[dict[str, Any]] = [
    {"initialize": True},
    {"await_user": True},
    {"init": True},
    {"text": "done"},
    {"result": {"total_cost_usd": 0.25}},
    {"await_eof": True},
]
PAID_BY = {
    "subscription": {"CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-rehearsal-0000000000"},
    "api_key": {"ANTHROPIC_API_KEY": "sk-ant-api03-rehearsal-0000000000"},
}
LABELS = {"subscription": "API-equivalent estimate", "api_key": "estimate"}


class Desk:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.summary = folder / "summary.md"
        self.junit = folder / "junit.xml"
        self.agent = str(write_executable(folder / "claude", {"steps": STEPS}))
        (folder / "ws").mkdir()

    def leadrope(self, *words: str, **environ: str) -> str:
        home = {"HOME": str(self.folder), "LEADROPE_HOME": str(self.folder / "leadrope")}
        done = subprocess.run(
            [sys.executable, "-m", "leadrope.cli.main", *words],
            env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **home, **environ},
            cwd=self.folder / "ws",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
            start_new_session=True,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def run(self, billing: str, *words: str, **environ: str) -> str:
        given = ("--binary", self.agent, "--billing", billing, "--sandbox", "off", "--attempts", "1")
        return self.leadrope("run", "say it", *given, *words, **PAID_BY[billing], **environ)

    def newest(self) -> dict[str, Any]:
        row: dict[str, Any] = json.loads(self.leadrope("runs", "list", "-o", "json").splitlines()[0])
        return row


PLACES = {
    "the end of the run": "$0.25 ({label})",
    "runs list json": '"cost_usd":0.25,"cost_label":"{label}"',
    "runs show": "$0.2500 ({label}, cli), 110 tokens",
    "runs show json": '"cost_label":"{label}"',
    "top": "$0.2500 today ({label})",
    "stats": "Costs: {label} at list prices.",
    "stats json": '"cost_label":"{label}"',
    "sessions show": "1, 1 model requests, $0.2500 ({label})",
    "ci summary": "| cost ({label}, cli) |",
    "junit": 'name="cost_label" value="{label}"',
    "page": "$0.2500<small>{label}</small>",
}


@pytest.fixture(scope="module", params=PAID_BY)
def shown(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, str]]:
    """One run, and all that tells its cost."""
    desk = Desk(tmp_path_factory.mktemp(request.param))
    ended = desk.run(request.param)
    row = desk.newest()
    told = {
        "the end of the run": ended,
        "runs list": desk.leadrope("runs", "list"),
        "runs list json": desk.leadrope("runs", "list", "-o", "json"),
        "runs show": desk.leadrope("runs", "show", row["id"]),
        "runs show json": desk.leadrope("runs", "show", row["id"], "-o", "json"),
        "top": desk.leadrope("top", "--once"),
        "stats": desk.leadrope("stats"),
        "stats json": desk.leadrope("stats", "-o", "json"),
        "sessions show": desk.leadrope("sessions", "show", row["session_id"]),
        "page": desk.leadrope("runs", "export", row["id"], "--html"),
    }
    job = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(desk.summary)}
    desk.run(request.param, "--ci", "--junit", str(desk.junit), **job)
    return request.param, told | {"ci summary": desk.summary.read_text(), "junit": desk.junit.read_text()}


@pytest.mark.parametrize("place", PLACES)
def test_a_cost_is_called_what_it_is(shown: tuple[str, dict[str, str]], place: str) -> None:
    billing, told = shown
    is_paid = billing == "api_key"
    assert PLACES[place].replace("{label}", LABELS[billing]) in told[place]
    assert ("API-equivalent" in told[place]) is not is_paid


def test_a_table_marks_what_a_subscription_pays_and_says_so(shown: tuple[str, dict[str, str]]) -> None:
    billing, told = shown
    if billing == "api_key":
        assert " $0.25 " in told["runs list"]
        assert told["runs list"].endswith("Costs are estimates.\n")
    else:
        assert " ~$0.25 " in told["runs list"]
        assert "; ~ API-equivalent: a subscription pays" in told["runs list"]


def test_a_sum_of_both_kinds_says_so(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    for billing in PAID_BY:
        desk.run(billing)
    assert "$0.5000 today (partly API-equivalent estimate)" in desk.leadrope("top", "--once")
    assert "Costs at list prices: $0.2500 API-equivalent estimate, $0.2500 estimate." in desk.leadrope("stats")
    told = json.loads(desk.leadrope("stats", "-o", "json"))
    assert told["total"]["cost_label"] == "partly API-equivalent estimate"
    listed = desk.leadrope("runs", "list")
    assert (listed.count(" $0.25 "), listed.count(" ~$0.25 ")) == (1, 1)
