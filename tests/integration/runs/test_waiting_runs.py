"""Runs that wait for a person, from the terminal: stopped, limited by a clock, out of the way of other runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

import stored
from leadrope.process import reaper
from leadrope.runs.records.values import Owner

CLOSE: list[dict[str, Any]] = [{"result": True}, {"await_eof": True}]
T = TypeVar("T")


class Terminal:
    """`leadrope …` as a user types it, in the yard's home."""

    def __init__(self, yard: Any) -> None:
        self.yard = yard
        self.config = yard.folder / ".config/leadrope/config.toml"
        self.config.parent.mkdir(parents=True)
        self.configure()

    def configure(self, service: str = "", rest: str = "") -> None:
        self.config.write_text(f"[service]\nidle_s = 1\nwaiting_agent_s = 0.5\n{service}\n{rest}\n")

    def __call__(self, *words: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "leadrope.cli.main", *words],
            env=self.yard.environ,
            cwd=self.yard.ws,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout or done.stderr

    def detach(self, steps: list[dict[str, Any]], *words: str) -> str:
        binary = self.yard.agent(f"agent-{time.monotonic_ns()}", [*steps, *CLOSE])
        given = ("--provider", "scripted", "--binary", binary, "--sandbox", "off", "--attempts", "1")
        return self("run", "go", "--detach", *given, *words).strip()

    def run(self, run_id: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self("runs", "show", run_id, "-o", "json"))
        return found

    def asked(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self("approvals", "list", "-o", "json").splitlines()]

    def left_alone(self, run_id: str) -> str:
        """What it asks, when its agent is gone."""
        (asked,) = until(self.asked)
        until(lambda: not reaper.tagged(run_id))
        told = self.run(run_id)["run"]
        assert (told["state"], told.get("owner")) == ("waiting", None)
        return str(asked["id"])

    def ended(self, run_id: str) -> dict[str, Any]:
        until(lambda: self.run(run_id)["run"]["state"] == "ended")
        return self.run(run_id)

    def owners(self) -> list[Owner]:
        return stored.background_owners(self.yard.home)


def until(look: Callable[[], T]) -> T:
    give_up = time.monotonic() + 90
    while not (found := look()):
        assert time.monotonic() < give_up
        time.sleep(0.1)
    return found


@pytest.fixture
def leadrope(yard: Any) -> Iterator[Terminal]:
    terminal = Terminal(yard)
    yield terminal
    for owner in terminal.owners():
        os.kill(owner.pid, signal.SIGTERM)
    until(lambda: not terminal.owners())


def ask(yard: Any) -> dict[str, Any]:
    return {"call": {"tool": "Bash", "id": "t1", "input": {"command": "touch it"}, "touch": str(yard.marker)}}


def test_a_run_that_waits_takes_no_slot_and_can_be_stopped(yard: Any, leadrope: Terminal) -> None:
    leadrope.configure("running = 1")
    waiting = leadrope.detach([{"text": "may I?"}, ask(yard)])
    leadrope.left_alone(waiting)
    other = leadrope.detach([{"text": "quick"}])
    until(lambda: leadrope.run(other)["run"].get("outcome") == "succeeded")
    assert "ago, no time limit" in leadrope("runs", "list", "--open")
    assert "Bash: touch it" in leadrope("top", "--once")
    assert "approvals list --run" in leadrope("runs", "resume", waiting, code=2)
    assert "stopped" in leadrope("runs", "stop", waiting)
    told = leadrope.run(waiting)
    assert (told["run"]["outcome"], told["result"]["session_id"]) == ("stopped", told["run"]["session_id"])
    assert leadrope.asked() == []
    assert not yard.marker.exists()


def test_a_policys_clock_denies_a_detached_runs_call(yard: Any, leadrope: Terminal) -> None:
    """The agent stays for that time: nobody would be there to tell it that its time is over."""
    leadrope.configure(rest="[policy]\nmax_approval_ms = 6000")
    run_id = leadrope.detach([ask(yard), {"text": "well"}])
    (asked,) = until(leadrope.asked)
    assert asked["asked"]["expires_s"] == 6
    assert asked["expires"] == pytest.approx(asked["requested"] + 6)
    left = leadrope("approvals", "list").splitlines()[1].split()[4]
    assert left.endswith("s"), left
    assert left != "no"
    told = leadrope.ended(run_id)
    assert [denial["reason"] for denial in told["result"]["denials"]] == ["APPROVAL_TIMEOUT: no answer in 6 s"]
    assert told["run"]["outcome"] == "denied"
    assert not yard.marker.exists()


def test_a_time_limit_of_the_run_itself_holds_for_a_detached_one(yard: Any, leadrope: Terminal) -> None:
    run_id = leadrope.detach([ask(yard), {"text": "well"}], "--approval-secs", "2")
    told = leadrope.ended(run_id)
    assert [denial["reason"] for denial in told["result"]["denials"]] == ["APPROVAL_TIMEOUT: no answer in 2 s"]


def test_waiting_is_counted_by_no_clock_of_the_run(yard: Any, leadrope: Terminal) -> None:
    """Idle and wall clock stand still, whether or not the agent is kept."""
    leadrope.config.write_text("[service]\nidle_s = 1\nwaiting_agent_s = 0\n")
    run_id = leadrope.detach([ask(yard), {"text": "well"}], "--wall-secs", "4", "--timeout-secs", "1")
    (asked,) = until(leadrope.asked)
    until(lambda: time.time() - asked["requested"] > 5)
    assert leadrope.run(run_id)["run"]["owner"], "the agent is kept"
    leadrope("approvals", "approve", asked["id"])
    told = leadrope.ended(run_id)
    assert told["run"]["outcome"] == "succeeded"
    assert yard.marker.exists()


def test_an_approval_keeps_its_id_when_a_run_with_a_clock_asks_again(yard: Any, leadrope: Terminal) -> None:
    run_id = leadrope.detach([ask(yard), {"text": "well"}], "--approval-secs", "60")
    (asked,) = until(leadrope.asked)
    (owner,) = leadrope.owners()
    os.kill(owner.pid, signal.SIGKILL)
    until(lambda: not leadrope.owners())
    until(lambda: leadrope.run(run_id)["run"].get("attempt") == 2 and leadrope.run(run_id)["run"]["state"] == "waiting")
    (again,) = leadrope.asked()
    assert again["id"] == asked["id"]
    assert again["requested"] > asked["requested"], "its time begins anew"
    leadrope("approvals", "approve", asked["id"])
    until(yard.marker.exists)
    until(lambda: leadrope.run(run_id)["run"].get("outcome") == "succeeded")
