"""`leadrope demo` and `leadrope doctor` as scripts start them."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("args", "told", "final"),
    [
        (["--yes"], "approved by you", "the tests pass"),
        (["--no"], "denied by you: denied by --no", "The tests have not passed here"),
        ([], "denied: no terminal to ask on; use --yes", "The tests have not passed here"),
    ],
)
async def test_the_demo_needs_no_account_and_is_kept_as_a_run(
    desk: Any, args: list[str], told: str, final: str
) -> None:
    del desk.environ["CLAUDE_CODE_OAUTH_TOKEN"]
    ended = await desk.leadrope("demo", *args)
    assert ended.code == 0, ended.err
    assert final in ended.out
    assert told in ended.err
    assert "  → Read calc.py  allowed by mode:edit" in ended.err
    assert "  +    return a + b" in ended.err
    assert ("`leadrope demo --yes` approves it" in ended.err) == (not args)
    assert list(desk.tmp.iterdir()) == []
    assert [path.name for path in desk.home.iterdir()] == ["leadrope"]
    assert list(desk.project.iterdir()) == []
    (named,) = re.findall(r"leadrope export ([0-9a-f]{8}) --html -O demo.html", ended.err)
    listed = await desk.leadrope("runs", "list", "-o", "json", "--label", "leadrope=demo")
    (run,) = [json.loads(line) for line in listed.out.splitlines()]
    assert run["id"].startswith(named)
    assert run["outcome"] == "succeeded"
    sessions = await desk.leadrope("sessions", "list")
    assert sessions.out == ""


async def test_what_the_demo_names_at_its_end_works(desk: Any) -> None:
    del desk.environ["CLAUDE_CODE_OAUTH_TOKEN"]
    assert (await desk.leadrope("demo", "--yes")).code == 0
    page = await desk.leadrope("export", "last", "--html", "-O", "demo.html")
    assert page.code == 0, page.err
    shown = (desk.project / "demo.html").read_text()
    assert "add() in calc.py" in shown
    assert "<dd>none<small>rehearsal</small></dd>" in shown
    assert "cost       none (rehearsal), 440 tokens, 4 model requests" in (await desk.leadrope("runs", "show")).out
    changes = await desk.leadrope("runs", "diff")
    assert "+    return a + b" in changes.out
    asked = await desk.leadrope("approvals", "list", "--all")
    assert "python3 -m unittest" in asked.out
    spent = await desk.leadrope("stats", "-o", "json")
    assert "sonnet" not in spent.out, "nobody pays for a script"


async def test_the_demo_works_where_nothing_can_be_kept(desk: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ended = await desk.leadrope("demo", "--yes", LEADROPE_HOME=str(tmp_path / "file" / "home"))
    assert ended.code == 0, ended.err
    assert "This run is not kept: " in ended.err
    assert "leadrope export" not in ended.err
    assert "leadrope login" in ended.err


async def test_the_demo_without_the_agent_says_how_to_install_it(desk: Any) -> None:
    ended = await desk.leadrope("demo", LEADROPE_CLAUDE_BIN="/no/such/claude")
    assert ended.code == 1
    assert "npm install -g" in ended.err


async def test_doctor_finds_all_well_and_shows_no_secret(desk: Any) -> None:
    ended = await desk.leadrope("doctor", "-o", "json")
    report = json.loads(ended.out)
    found = {check["name"]: check["status"] for check in report["checks"]}
    assert ended.code == 0, ended.out
    assert report["ok"] is True
    assert {name: found[name] for name in ("python", "home", "config", "agent", "gate", "credential")} == dict.fromkeys(
        ("python", "home", "config", "agent", "gate", "credential"), "ok"
    )
    assert "sandbox" in found
    assert desk.environ["CLAUDE_CODE_OAUTH_TOKEN"] not in ended.out
    assert list(desk.tmp.iterdir()) == []


async def test_doctor_says_what_to_do_about_each_fault(desk: Any, tmp_path: Path) -> None:
    old = tmp_path / "claude"
    old.write_text("#!/bin/sh\necho '1.0.3 (Claude Code)'\n")
    old.chmod(0o755)
    config = tmp_path / "config.toml"
    config.write_text("[run]\nmodell = 'x'\n")
    nowhere = tmp_path / "file"
    nowhere.write_text("")
    ended = await desk.leadrope(
        *("doctor",),
        LEADROPE_CLAUDE_BIN=str(old),
        LEADROPE_CONFIG=str(config),
        LEADROPE_HOME=str(nowhere / "below"),
        PATH=str(tmp_path),
    )
    assert ended.code == 1
    assert "✗ agent" in ended.out
    assert "is version 1.0.3" in ended.out
    assert "✗ config" in ended.out
    assert "Did you mean model" in ended.out
    assert "✗ home" in ended.out
    assert "Traceback" not in ended.err


async def test_doctor_shows_each_check_as_soon_as_it_is_done(desk: Any, tmp_path: Path) -> None:
    slow, gate = tmp_path / "claude", tmp_path / "gate"
    os.mkfifo(gate)
    slow.write_text(f"#!/bin/sh\nread go < {gate}\necho '1.0.3 (Claude Code)'\n")
    slow.chmod(0o755)
    async with desk.at_terminal("doctor", LEADROPE_CLAUDE_BIN=str(slow)) as terminal:
        await terminal.reads("✓ policy")
        assert "agent" not in terminal.seen, "its program has not answered yet"
        gate.write_text("go\n")
        await terminal.reads("✗ agent")
        assert await terminal.ends() == 1


async def test_doctor_without_a_credential_names_the_ways_in(desk: Any) -> None:
    del desk.environ["CLAUDE_CODE_OAUTH_TOKEN"]
    ended = await desk.leadrope("doctor")
    assert ended.code == 1
    assert "✓ gate" in ended.out
    assert "✗ credential" in ended.out
    assert "leadrope setup-token" in ended.out


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ('sandbox = "off"', "! sandbox     runs have no sandbox: the policy (global) switches it off"),
        ('sandbox_level = "read-only"', "✓ sandbox     runs have a sandbox (read-only)"),
        ('network = { reach = "model-only" }', "✓ sandbox     runs have a sandbox (workspace, network model-only)"),
        ('sandbx = "off"', "✗ policy"),
    ],
)
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
async def test_doctor_tells_what_the_policy_makes_of_the_sandbox(desk: Any, policy: str, told: str) -> None:
    """That they can be built is one thing; whether runs have them the user's own rules decide."""
    config = desk.home / ".config" / "leadrope" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f"[policy]\n{policy}\n")
    ended = await desk.leadrope("doctor", LEADROPE_CLAUDE_BIN="/no/such/agent")
    assert told in ended.out
