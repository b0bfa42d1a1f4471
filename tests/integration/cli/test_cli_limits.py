"""Limits as a user sets them: a cap that lowers one says so before the run, and the clock then is the cap's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from leadrope.rehearsal import write_executable

OPEN: list[dict[str, Any]] = [{"initialize": True}, {"await_user": True}, {"init": True}]
CLOSE: list[dict[str, Any]] = [{"result": True}, {"await_eof": True}]


def leadrope(tmp_path: Path, *args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "ws").mkdir(exist_ok=True)
    base = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LEADROPE_HOME": str(tmp_path / "leadrope")}
    return subprocess.run(
        [sys.executable, "-m", "leadrope.cli.main", *args],
        env=base | environ,
        cwd=tmp_path / "ws",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        start_new_session=True,
    )


def agent(tmp_path: Path, *steps: dict[str, Any]) -> tuple[str, ...]:
    binary = str(write_executable(tmp_path / "agent", {"steps": [*OPEN, *steps]}))
    return ("run", "go", "--provider", "scripted", "--binary", binary, "--sandbox", "off", "--attempts", "1")


@pytest.mark.parametrize(
    ("flags", "environ", "asked"),
    [
        (("--idle-secs", "900"), {}, "an idle timeout of 900 s"),
        (("--idle-secs", "0"), {}, "no idle timeout"),
        ((), {"LEADROPE_SPAWN_IDLE_TIMEOUT_MS": "0"}, "no idle timeout"),
    ],
)
def test_a_projects_cap_is_named_before_the_run_and_holds(
    tmp_path: Path, flags: tuple[str, ...], environ: dict[str, str], asked: str
) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws" / "leadrope.toml").write_text("[policy]\nmax_timeout_ms = 400\n")
    done = leadrope(tmp_path, *agent(tmp_path, {"hang": True}), *flags, **environ)
    assert done.returncode == 6, done.stderr
    assert f"{asked} was asked for; the policy (project) allows 0.4 s" in done.stderr
    assert "the agent was silent for 0.4 s" in done.stderr
    assert "--idle-secs" in done.stderr
    assert done.stderr.index("was asked for") < done.stderr.index("was silent")


def test_the_users_own_none_is_shown_with_its_author(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[policy]\nmax_budget_usd = "none"\nmax_timeout_ms = "none"\n')
    done = leadrope(tmp_path, "policy", "show", LEADROPE_CONFIG=str(config))
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines() if line.startswith("max_"))
    assert lines["max_budget_usd"] == lines["max_timeout_ms"] == "none  (global)"
    assert lines["max_file_size"] == "10485760  (default)"


def test_no_budget_is_asked_for_by_a_word(tmp_path: Path) -> None:
    refused = leadrope(tmp_path, *agent(tmp_path, {"text": "ok"}, *CLOSE), "--budget", "0")
    assert refused.returncode == 2
    assert "or none for no cap" in refused.stderr
    done = leadrope(tmp_path, *agent(tmp_path, {"text": "ok"}, *CLOSE), "--budget", "none", "-o", "json")
    assert done.returncode == 0, done.stderr
