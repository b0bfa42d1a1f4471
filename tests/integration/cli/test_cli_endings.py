"""How runs end and which limits they have, from the command line with a scripted agent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from leadrope.rehearsal import write_executable

OPEN: list[dict[str, Any]] = [{"initialize": True}, {"await_user": True}, {"init": True}]
CLOSE: list[dict[str, Any]] = [{"result": True}, {"await_eof": True}]
GOOD = {"type": "result", "subtype": "success", "is_error": False, "result": "done", "num_turns": 1, "session_id": "s"}


class Desk:
    """A user's machine, with an agent that plays what a test says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ws = folder / "ws"
        self.ws.mkdir()
        self.config = folder / "config.toml"
        self.config.write_text("")
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "LEADROPE_HOME": str(folder / "leadrope"),
            "LEADROPE_CONFIG": str(self.config),
        }

    def run(self, steps: list[dict[str, Any]], *flags: str, **environ: str) -> subprocess.CompletedProcess[str]:
        binary = str(write_executable(self.folder / "agent", {"steps": steps}))
        return subprocess.run(
            [
                *(sys.executable, "-m", "leadrope.cli.main", "run", "go", "--provider", "scripted", "--binary", binary),
                *("--sandbox", "off", *flags),
            ],
            env=self.environ | environ,
            cwd=self.ws,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            start_new_session=True,
        )


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


# -- endings -------------------------------------------------------------------------------------------------------


def test_a_mistyped_result_line_ends_the_run_at_once(desk: Desk) -> None:
    """The agent stays, and would be silent for ever: no clock is waited for."""
    began = time.monotonic()
    done = desk.run([*OPEN, {"text": "I did it"}, {"line": GOOD | {"num_turns": "many"}}, {"hang": True}], "-o", "json")
    found = json.loads(done.stdout)
    assert (found["outcome"], found["error"]["kind"]) == ("failed", "malformed_output")
    assert found["text"] == "done"
    assert time.monotonic() - began < 40


def test_words_before_an_empty_last_message_are_printed(desk: Desk) -> None:
    done = desk.run([*OPEN, {"text": "I did it"}, {"line": GOOD | {"result": ""}}, {"await_eof": True}])
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "I did it"


def test_a_turn_without_a_cost_is_priced_and_ends_the_run(desk: Desk) -> None:
    dear = GOOD | {"usage": {"input_tokens": 1_000_000, "output_tokens": 0}}
    steps = [*OPEN, {"line": dear}, {"await_eof": True}]
    found = json.loads(desk.run(steps, "--budget", "0.5", "-o", "json").stdout)
    assert found["outcome"] == "over_budget"
    assert found["cost_usd"] > 0.5
    assert json.loads(desk.run(steps, "--budget", "50", "-o", "json").stdout)["outcome"] == "succeeded"


def test_a_session_id_that_the_program_refuses_is_a_bad_request_and_tried_once(desk: Desk) -> None:
    """The program's own words, as recorded; a run that could be retried would start it twice."""
    refusal = "Error: --resume requires a valid session ID or session title when used with --print. Usage: claude -p"
    steps: list[dict[str, Any]] = [{"stderr": f"{refusal}\n"}, {"exit": 1}]
    found = json.loads(desk.run(steps, "--attempts", "3", "-o", "json").stdout)
    assert (found["outcome"], found["error"]["kind"]) == ("failed", "bad_request")
    assert found.get("attempts", 1) == 1
    died = json.loads(desk.run([{"exit": 1}], "--attempts", "2", "-o", "json").stdout)
    assert (died["error"]["kind"], died["attempts"]) == ("agent_died", 2)


def test_a_call_that_nobody_answered_was_decided_by_nobody(desk: Desk) -> None:
    call = {"tool": "Bash", "id": "t1", "input": {"command": "touch x"}, "result": ""}
    done = desk.run([*OPEN, {"call": call}, {"text": "no"}, *CLOSE], "--mode", "default", "-o", "stream-json")
    decided = [event for event in events(done.stdout) if event["type"] == "tool.decided"]
    assert [(event["decision"], event["by"]) for event in decided] == [("deny", "nobody")]
    assert "no terminal to ask on" in decided[0]["reason"]


def test_values_of_the_agents_sandbox_are_checked_before_anything_starts(desk: Desk) -> None:
    desk.config.write_text('[run.agent_sandbox]\nenabled = "yes"\n')
    done = desk.run([*OPEN, {"text": "ok"}, *CLOSE])
    assert done.returncode == 2, done.stderr
    assert "enabled" in done.stderr
    desk.config.write_text("[run.agent_sandbox]\nenabld = true\n")
    done = desk.run([*OPEN, {"text": "ok"}, *CLOSE])
    assert done.returncode == 2, done.stderr
    assert "enabld" in done.stderr


def events(lines: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in lines.splitlines() if line.startswith("{")]
    return [entry.get("event", entry) for entry in found]


# -- limits --------------------------------------------------------------------------------------------------------

SILENT = [*OPEN, {"hang": True}]


@pytest.mark.parametrize(
    ("flags", "environ", "config", "ends"),
    [
        ((), {"LEADROPE_SPAWN_IDLE_TIMEOUT_MS": "400"}, "", True),
        ((), {}, "[run.limits]\nidle_s = 0.4\n", True),
        (("--idle-secs", "0.4"), {}, "[run.limits]\nidle_s = 0\n", True),
        (("--idle-secs", "0"), {}, "[run.limits]\nidle_s = 0.4\n", False),
        (("--idle-secs", "900"), {}, "[run.limits]\nidle_s = 0.4\n", False),
        ((), {"LEADROPE_SPAWN_IDLE_TIMEOUT_MS": "0"}, "[run.limits]\nidle_s = 0.4\n", False),
        (("--idle-secs", "900"), {"LEADROPE_SPAWN_IDLE_TIMEOUT_MS": "400"}, "", False),
    ],
)
def test_the_idle_clock_is_the_one_that_was_set(
    desk: Desk, flags: tuple[str, ...], environ: dict[str, str], config: str, ends: bool
) -> None:
    desk.config.write_text(config)
    if ends:
        done = desk.run(SILENT, *flags, "--attempts", "1", **environ)
        assert done.returncode == 6, done.stderr
        assert "the agent was silent for 0.4 s" in done.stderr
        return
    spoken = desk.folder / "spoken"
    # How long this agent is silent: longer than the clock that was overruled.
    helper = subprocess.Popen(
        [sys.executable, "-c", f"import time, pathlib; time.sleep(3); pathlib.Path({str(spoken)!r}).touch()"]
    )
    try:
        done = desk.run([*OPEN, {"await_file": str(spoken)}, {"text": "ok"}, *CLOSE], *flags, **environ)
    finally:
        helper.wait()
    assert done.returncode == 0, done.stderr
    assert "was asked for" not in done.stderr, "the shipped cap is a default, and gives way"


@pytest.mark.parametrize("layer", ["project", "file"])
@pytest.mark.parametrize("value", ["400", '"none"'])
def test_narrower_layers_only_tighten(desk: Desk, layer: str, value: str) -> None:
    """`none` of theirs lifts nothing that the user has set, and a number of theirs cannot be raised by a flag."""
    desk.config.write_text("[policy]\nmax_timeout_ms = 600\n")
    flags: tuple[str, ...] = ("--idle-secs", "900", "--attempts", "1")
    rules = f"[policy]\nmax_timeout_ms = {value}\n"
    if layer == "project":
        (desk.ws / "leadrope.toml").write_text(rules)
    else:
        (desk.folder / "rules.toml").write_text(rules)
        flags += ("--policy", str(desk.folder / "rules.toml"))
    done = desk.run(SILENT, *flags)
    allowed = "0.4 s" if value == "400" else "0.6 s"
    assert done.returncode == 6, done.stderr
    assert f"the agent was silent for {allowed}" in done.stderr
    assert "an idle timeout of 900 s was asked for" in done.stderr
    assert done.stderr.index("was asked for") < done.stderr.index("was silent")


@pytest.mark.parametrize(
    ("config", "flags", "outcome", "told"),
    [
        ("", (), "over_budget", ""),
        ('[policy]\nmax_budget_usd = "none"\n', ("--budget", "none"), "succeeded", ""),
        ("[policy]\nmax_budget_usd = 500\n", ("--budget", "400"), "succeeded", ""),
        ("", ("--budget", "400"), "succeeded", ""),
        ("[policy]\nmax_budget_usd = 150\n", ("--budget", "400"), "over_budget", "allows 150"),
    ],
)
def test_the_budget_is_the_one_that_was_set(
    desk: Desk, config: str, flags: tuple[str, ...], outcome: str, told: str
) -> None:
    desk.config.write_text(config)
    dear = GOOD | {"total_cost_usd": 200.0}
    done = desk.run([*OPEN, {"line": dear}, {"await_eof": True}], *flags, "-o", "json")
    assert json.loads(done.stdout)["outcome"] == outcome, done.stderr
    assert told in done.stderr
    assert ("was asked for" in done.stderr) == bool(told)


@pytest.mark.parametrize(("config", "decision"), [("", "deny"), ('[policy]\nmax_file_size = "none"\n', "allow")])
def test_the_size_of_an_edit_is_limited_unless_the_user_lifts_it(desk: Desk, config: str, decision: str) -> None:
    desk.config.write_text(config)
    call = {"tool": "Write", "id": "t1", "input": {"file_path": str(desk.ws / "a"), "content": "x" * 10_485_761}}
    done = desk.run(
        [*OPEN, {"call": call | {"result": ""}}, {"text": "ok"}, *CLOSE], "--mode", "full", "-o", "stream-json"
    )
    decided = [event for event in events(done.stdout) if event["type"] == "tool.decided"]
    assert [event["decision"] for event in decided] == [decision]
