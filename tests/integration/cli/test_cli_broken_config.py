"""A typo in config.toml: what runs can be seen and stopped all the same, and the message has file, line and remedy."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from background_processes import Background
from leadrope.cli.main import main
from leadrope.core.config import Config
from leadrope.core.request import RunRequest
from leadrope.rehearsal import ModelServer
from leadrope.runs.service import Service

TYPOS: list[tuple[str, int, str]] = [
    ('mode = "edit"\n', 1, "mode belongs under [run]"),
    ("budget_usd = 3\n", 1, "Write budget_usd under [run.limits]"),
    ('\n[run]\nmod = "plan"\n', 3, "Did you mean mode"),
    ("[run]\nbudget = 3\n", 2, "Write budget_usd under [run.limits]"),
    ("[run]\nidle_s = 3\n", 2, "Write idle_s under [run.limits]"),
    ("[run.limits]\nidle = 3\n", 2, "Did you mean idle_s"),
    ('[run.limits]\nwall_s = "long"\n', 2, "Write a number without quotes."),
    ("[run]\nmax_turns = true\n", 2, "Write a whole number"),
    ("[run]\nmode = 'pln'\n", 2, "Did you mean plan?"),
    ("[run]\nmode = 3\n", 2, "Write text in quotes"),
    ("[run]\nbilling = 'subscripton'\n", 2, "Did you mean subscription?"),
    ("[run]\neffort = 'hihg'\n", 2, "Did you mean high?"),
    ("[run]\nsandbox = 'workspce'\n", 2, "Did you mean workspace?"),
    ("[run]\nnetwork = 'model'\n", 2, "Did you mean model-only?"),
    ("[run]\npurpose = 'reviw'\n", 2, "review"),
    ("[run]\nmodel = ''\n", 2, "Name a tier"),
    ("[run]\nmax_turns = 0\n", 2, "Use 1 to 100."),
    ("[run]\nattempts = 99\n", 2, "Use 1 to 10."),
    ("[run]\nauto_continue = 1\nmax_turns = 1000\n", 3, "Use 1 to 100."),
    ("[run]\nidle_close_s = -1\n", 2, "Write 0 for no limit."),
    ("[run]\ninstructions = 'no'\n", 2, "Write true or false"),
    ("[run]\ntools = 'Read'\n", 2, "Write a list"),
    ("[run]\ntools = ['Raed']\n", 2, "Did you mean Read?"),
    ("[run]\nallow = ['Bash(git log']\n", 2, ""),
    ("[profiles.ci]\nmode = 'plan'\ndisallowed_tools = ['Wirte']\n", 3, "Did you mean Write?"),
    ("[profiles.ci]\nmode = 'pln'\n", 2, "Did you mean plan?"),
    ("[run]\nprovider = 'claud-code'\n", 2, "Did you mean claude-code?"),
    ("[run]\nbase_url = 'localhost:80'\n", 2, ""),
    ("[run.limits]\nidle_s = -1\n", 2, "Write 0 for no limit."),
    ("[profiles.ci.limits]\nbudget_usd = 0\n", 2, "Write an amount in USD"),
    ("[run.limits]\nbudget_usd = 'lots'\n", 2, ""),
    ("[run]\nlimits = { wall_s = -3 }\n", 2, "Write 0 for no limit."),
    ("[service]\nruning = 3\n", 2, "Did you mean running"),
    ("[service]\nkeep_days = []\n", 2, ""),
    ("[budgets]\nday = 3\n", 2, "Did you mean day_usd"),
    ("[profiles.ci]\nmodle = 'x'\n", 2, "Did you mean mode"),
    ("[rnu]\nmode = 'plan'\n", 1, "Did you mean run"),
    ("[connections.docs]\ncomand = 'x'\n", 2, "Did you mean command"),
    ("[connections.docs]\n", 1, "For example"),
    ("[service]\nrunning = -1\n", 2, "Use 0 for the default"),
    ("[notify]\nbel = true\n", 2, "Did you mean bell"),
    ("[notify]\nbell = 'yes'\n", 2, ""),
    ("[worktree]\nsetp = ['x']\n", 2, "Did you mean setup"),
    ("[worktree]\n\n[worktree.projects.'~/a.b']\nfoldr = 'x'\n", 4, "Did you mean folder"),
    ("[worktree.projects]\nshop = 3\n", 2, "Write [worktree.projects.shop] on a line of its own."),
    ("[telemetry]\nendpont = 'http://c'\n", 2, "Did you mean endpoint"),
    ("[telemetry]\ncontent = 3\n", 2, ""),
    ("[prices]\nunknown_price = 'high'\n", 2, "Use one of: dearest, refuse."),
    ("[prices.opus]\ninptu = 3\n", 2, "Did you mean input"),
    ("agents = 3\n", 1, ""),
    ("[run]\nconnections = ['docs']\n", 2, "Add [connections.docs]"),
    ("forward_env = 3\n", 1, ""),
    ("[models]\nopus = 3\n", 2, ""),
    ("[run\nmode = 'plan'\n", 1, "Close the bracket"),
    ("\0", 1, "Write a table as [run]"),
]


async def queued(environ: dict[str, str]) -> str:
    async with Service(environ, config=Config()) as service:
        return (await service.enqueue(RunRequest(prompt="wait"))).id


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LEADROPE_HOME", str(tmp_path / "leadrope"))
    monkeypatch.setenv("LEADROPE_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("text", "line", "hint"), TYPOS, ids=[str(n) for n in range(len(TYPOS))])
def test_a_typo_disables_neither_looking_nor_stopping(
    home: Path, capsys: pytest.CaptureFixture[str], text: str, line: int, hint: str
) -> None:
    run_id = asyncio.run(queued({"HOME": str(home), "LEADROPE_HOME": str(home / "leadrope"), "PATH": "/usr/bin:/bin"}))
    config = home / "config.toml"
    config.write_text(text)
    assert main(["run", "x"]) == 2, "a run needs its settings"
    told = capsys.readouterr().err
    assert f"{config}:{line}: " in told
    assert hint in told
    for words in (
        ("runs", "stop", run_id),
        ("runs", "list"),
        ("runs", "show", run_id),
        ("runs", "logs", run_id),
        ("approvals", "list"),
        ("top", "--once"),
        ("stats",),
    ):
        code = main([*words])
        said = capsys.readouterr()
        assert code == 0, (words, said.err)
        assert "warning: " in said.err, words
        assert str(config) in said.err
    assert main(["sessions", "list"]) == 0
    assert main(["runs", "prune", "--days", "0"]) == 2, "what deletes by the settings does not guess them"


def test_doctor_reports_a_value_that_no_run_could_use(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = home / "config.toml"
    config.write_text("[profiles.ci]\nmode = 'plan'\ntools = ['Raed']\n")
    assert main(["doctor", "-o", "json"]) == 1
    found = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}["config"]
    assert found["status"] == "failed"
    assert f"{config}:3: profiles.ci.tools: " in found["message"]
    assert "Did you mean Read?" in found["hint"]


BEATS = "for i in $(seq 600); do echo beat >> beats; sleep 0.1; done"
WORK = {"tool": {"name": "Bash", "input": {"command": BEATS, "description": "work for a minute"}}}
ASK = {"tool": {"name": "Bash", "input": {"command": "touch marker", "description": "ask first"}}}


@pytest.mark.fault
@pytest.mark.timeout(1200)
async def test_a_typo_that_is_made_while_agents_work_takes_away_no_control(
    desk: Any, background: Background, is_soak: bool, record_property: Callable[[str, object], None]
) -> None:
    """By commands alone: two detached runs, one at work and one that asks, are seen, answered and stopped."""
    count = 20 if is_soak else 2
    record_property("count", count)
    config = desk.home / ".config/leadrope/config.toml"
    good = config.read_text()
    for text, _, _ in TYPOS[-count:]:
        config.write_text(good)
        for name in ("beats", "marker"):
            (desk.project / name).unlink(missing_ok=True)
        async with ModelServer([WORK], strict=False) as work, ModelServer([ASK], strict=False) as ask:
            started = [
                await desk.leadrope("run", "go", "--detach", "--mode", mode, "--base-url", model.url)
                for mode, model in (("full", work), ("default", ask))
            ]
            runs = [done.out.strip() for done in started]
            assert all(runs), started
            await background.until((desk.project / "beats").exists)
            asked = await one_approval(desk)
            config.write_text(text)
            for words in (
                ("runs", "list", "--open"),
                ("runs", "show", runs[0]),
                ("approvals", "list"),
                ("top", "--once"),
            ):
                seen = await desk.leadrope(*words)
                assert seen.code == 0, (text, words, seen.err)
                assert str(config) in seen.err, (text, words)
                assert "Traceback" not in seen.err, (text, words)
            denied = await desk.leadrope("approvals", "deny", asked, "--reason", "not today")
            assert denied.code == 0, (text, denied.err)
            for run in runs:
                stopped = await desk.leadrope("runs", "stop", run)
                assert stopped.code == 0, (text, stopped.err)
            left = [json.loads(line) for line in (await desk.leadrope("runs", "list", "-o", "json")).out.splitlines()]
            outcomes = {row["id"]: (row["state"], row["outcome"]) for row in left}
            assert outcomes[runs[0]] == ("ended", "stopped"), text
            assert outcomes[runs[1]][0] == "ended", text
            beaten = (desk.project / "beats").read_text()
            await background.until(lambda: not background.all())
            assert (desk.project / "beats").read_text() == beaten, text
            assert not (desk.project / "marker").exists(), text
    config.write_text(good)
    rows = (await desk.leadrope("runs", "list", "-n", "0", "-o", "json")).out.splitlines()
    assert len(rows) == 2 * count, "no run is lost"


async def one_approval(desk: Any) -> str:
    async with asyncio.timeout(60):
        while True:
            listed = (await desk.leadrope("approvals", "list", "-o", "json")).out.splitlines()
            if listed:
                return str(json.loads(listed[0])["id"])


AGENTS: list[tuple[str, int, str, str]] = [
    ("modell = 'x'\n", 6, "agents.broken.modell is not a known key", "Did you mean model or mode?"),
    ("max_turns = 'many'\n", 6, "agents.broken.max_turns: ", ""),
    ("agent = 'good'\n", 6, "agents.broken.agent: an agent cannot be based on another one", "Leave it out."),
    ("connections = ['docs']\n", 6, "there is no connection 'docs'", "Add [connections.docs]"),
    ("limits.idle = 3\n", 6, "agents.broken.limits.idle is not a known key", "Did you mean idle_s?"),
    ("policy.permission_mode = 'x'\n", 6, "agents.broken.policy.permission_mode: ", ""),
    ("policy.web_ = 'ask'\n", 6, "agents.broken.policy.web_: ", "Did you mean web?"),
]


@pytest.mark.parametrize(("mistake", "line", "message", "hint"), AGENTS, ids=[row[0].strip() for row in AGENTS])
async def test_one_broken_agent_holds_up_nobody_else(
    desk: Any, playing: Any, mistake: str, line: int, message: str, hint: str
) -> None:
    config = desk.home / ".config" / "leadrope" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f"[agents.good]\nmode = 'plan'\n\n[agents.broken]\ndescription = ''\n{mistake}")
    told = re.compile(rf"{re.escape(str(config))}:{line}: .*{re.escape(message)}.*{re.escape(hint)}")
    async with playing({"text": "One."}, {"text": "Two."}) as model:
        url = ("--base-url", model.url)
        plain = await desk.leadrope("run", "go", *url)
        agent = await desk.leadrope("run", "go", "--agent", "good", "-o", "json", *url)
        for ended in (plain, agent):
            assert ended.code == 0, ended.err
            (warned,) = [line for line in ended.err.splitlines() if "the agent broken cannot be used" in line]
            assert told.search(warned), warned
        assert "mode plan" in agent.err
        assert [one["kind"] for one in json.loads(agent.out)["warnings"]] == ["broken_agent"]
        used = await desk.leadrope("run", "go", "--agent", "broken", *url)
    assert used.code == 2
    assert told.search(used.err.replace("\n  ", " ")), used.err
    assert "the agent broken cannot be used" not in used.err, "it is told once"
    listed = (await desk.leadrope("agents", "list", COLUMNS="300")).out
    assert re.search(r"^good .* plan ", listed, re.MULTILINE)
    assert re.search(rf"^broken .*\(agents.broken.*{re.escape(message.partition(': ')[2])}", listed, re.MULTILINE), (
        listed
    )
    checked = await desk.leadrope("agents", "check")
    assert checked.code == 1
    assert "✓ good" in checked.out
    assert f"✗ broken: {config}:{line}: " in checked.out
    assert (await desk.leadrope("agents", "check", "good")).code == 0
    assert (await desk.leadrope("policy", "check")).code == (
        0 if "connections" in mistake or "agent =" in mistake else 1
    )
    assert (await desk.leadrope("agents", "delete", "broken", "--yes")).code == 0
    assert (await desk.leadrope("agents", "check")).code == 0


async def test_an_agent_that_the_config_names_and_that_is_broken_is_the_error(desk: Any) -> None:
    config = desk.home / ".config" / "leadrope" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("[run]\nagent = 'broken'\n[agents.broken]\nmodell = 'x'\n")
    ended = await desk.leadrope("run", "go", "--base-url", "http://127.0.0.1:9")
    assert ended.code == 2
    assert f"{config}:4: agents.broken.modell is not a known key" in ended.err
    looked = await desk.leadrope("doctor")
    assert looked.code == 1
    assert f"✗ config the agent broken cannot be used: {config}:4: " in " ".join(looked.out.split())
    assert "Some checks failed; see the lines marked ✗." in looked.out
