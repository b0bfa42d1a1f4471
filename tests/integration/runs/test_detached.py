"""The terminal's commands on runs that belong to the background: started, seen, answered, stopped from anywhere."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stored
from leadrope.runs import leases

CLOSE: list[dict[str, Any]] = [{"result": True}, {"await_eof": True}]


class Terminal:
    """`leadrope …` as a user types it, in the yard's home."""

    def __init__(self, yard: Any) -> None:
        self._yard = yard

    def __call__(self, *words: str, code: int | None = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "leadrope.cli.main", *words],
            env=self._yard.environ,
            cwd=self._yard.ws,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert code is None or done.returncode == code, done.stdout + done.stderr
        return done.stdout or done.stderr

    def run(self, binary: str, *words: str) -> str:
        given = ("--provider", "scripted", "--binary", binary, "--sandbox", "off", "--attempts", "1")
        return self("run", "go", "--detach", *given, *words).strip()

    def show(self, run_id: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self("runs", "show", run_id[:10], "-o", "json"))
        return found


@pytest.fixture
def leadrope(yard: Any) -> Iterator[Terminal]:
    config = yard.folder / ".config/leadrope"
    config.mkdir(parents=True)
    (config / "config.toml").write_text("[service]\nidle_s = 1\n")
    yield Terminal(yard)
    # Owners end themselves when they are idle; a test that left work behind ends them here.
    for owner in stored.background_owners(yard.home):
        os.kill(owner.pid, signal.SIGTERM)
    until = time.monotonic() + 30
    lock = yard.home / "background" / "owner.lock"
    while lock.exists() and time.monotonic() < until:
        with leases.Exclusive(lock) as free:
            if free:
                return
        time.sleep(0.05)


def until(look: Any) -> Any:
    give_up = time.monotonic() + 40
    while not (found := look()):
        assert time.monotonic() < give_up
        time.sleep(0.1)
    return found


def test_a_detached_run_is_followed_answered_and_shown_from_other_terminals(yard: Any, leadrope: Terminal) -> None:
    call = {"call": {"tool": "Bash", "id": "t1", "input": {"command": "touch it"}, "touch": str(yard.marker)}}
    agent = yard.agent("a", [{"text": "may I?"}, call, {"text": "done it"}, *CLOSE])
    run_id = leadrope.run(agent, "--label", "team=blue", "--title", "A task")
    assert "A task" in leadrope("runs", "list", "--open", "--label", "team=blue")
    waiting = until(lambda: leadrope("approvals", "list", "-o", "json").strip())
    approval = json.loads(waiting.splitlines()[0])["id"]
    assert "touch it" in leadrope("approvals", "show", approval)
    told = leadrope.show(run_id)["run"]
    assert (told["state"], told["last_action"]) == ("waiting", "Bash: touch it")
    assert not yard.marker.exists()
    assert "approved" in leadrope("approvals", "approve", approval)
    assert "no longer open" in leadrope("approvals", "deny", approval, code=2)
    shown = leadrope("runs", "logs", "-f", run_id[:8])
    assert "done it" in shown
    assert yard.marker.exists()
    assert leadrope.show(run_id)["result"]["outcome"] == "succeeded"
    assert leadrope("runs", "export", run_id[:8]).count("\n") == leadrope.show(run_id)["run"]["last_seq"]
    assert "A task" in leadrope("top", "--once")
    assert leadrope("runs", "delete", run_id[:8]) == "1 deleted\n"
    assert "no run" in leadrope("runs", "show", run_id[:8], code=2)


def test_an_edited_call_runs_as_it_was_edited(yard: Any, leadrope: Terminal) -> None:
    call = {"call": {"tool": "Bash", "id": "t1", "input": {"command": "git push -f \u043erigin"}}}
    agent = yard.agent("a", [call, {"text": "ok"}, *CLOSE])
    run_id = leadrope.run(agent)
    waiting = until(lambda: leadrope("approvals", "list", "-o", "json").strip())
    approval = json.loads(waiting.splitlines()[0])["id"]
    # What it would do, how bad that may be, and the letter that only looks like another one.
    listed = leadrope("approvals", "list").splitlines()
    assert listed[0].split() == ["ID", "KIND", "STATE", "WAITED", "LEFT", "RISK", "WHAT"]
    assert listed[1].split()[-6:] == ["high", "Bash", "git", "push", "-f", "<U+043E>rigin"]
    shown = leadrope("approvals", "show", approval)
    assert "Bash  risk high\nasked because git push needs approval\nrule require_approval (default)\n" in shown
    assert "read as:\n    runs git push -f <U+043E>rigin\nthe call:\n    git push -f <U+043E>rigin\n" in shown
    leadrope("approvals", "edit", approval, '{"command": "git push --dry-run"}')
    until(lambda: leadrope.show(run_id)["run"]["state"] == "ended")
    log = [json.loads(line) for line in leadrope("runs", "export", run_id).splitlines()]
    decided = [line["event"] for line in log if line["event"]["type"] == "tool.decided"]
    assert [event["edited"] for event in decided] == [{"command": "git push --dry-run"}]


def test_a_detached_run_survives_the_terminal_that_started_it(yard: Any, leadrope: Terminal) -> None:
    """A pty whose session is killed as a whole, as a closed window does."""
    agent = yard.agent("a", [{"text": "first"}, {"await_file": str(yard.folder / "go")}, {"text": "last"}, *CLOSE])
    words = ["run", "go", "-d", "--provider", "scripted", "--binary", agent, "--sandbox", "off"]
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(yard.ws)
        os.execve(sys.executable, [sys.executable, "-m", "leadrope.cli.main", *words], yard.environ)
    said = b""
    while b"logs -f" not in said:
        said += os.read(terminal, 4096)
    run_id = said.split()[0].decode()
    os.close(terminal)  # SIGHUP to everything that belongs to it
    os.waitpid(pid, 0)
    until(lambda: leadrope.show(run_id)["run"]["state"] == "running")
    (yard.folder / "go").touch()
    assert "last" in leadrope("runs", "logs", "-f", run_id[:8])


def test_runs_are_stopped_retried_and_resumed(yard: Any, leadrope: Terminal) -> None:
    agent = yard.agent("a", [{"text": "x"}, {"await_file": str(yard.folder / "go")}, *CLOSE])
    run_id = leadrope.run(agent)
    until(lambda: leadrope.show(run_id)["run"]["state"] == "running")
    assert "stopped" in leadrope("runs", "stop", run_id[:8])
    (yard.folder / "go").touch()
    again = leadrope("runs", "retry", run_id[:8]).strip()
    until(lambda: leadrope.show(again)["run"]["state"] == "ended")
    told = leadrope.show(again)
    assert (told["run"]["outcome"], told["run"]["parent"]) == ("succeeded", run_id)
    more = leadrope("runs", "resume", again[:8], "and now the rest").strip()
    until(lambda: leadrope.show(more)["run"]["state"] == "ended")
    assert leadrope.show(more)["request"]["resume"] == told["run"]["session_id"]
    assert leadrope("runs", "prune", "--days", "0", "--keep", "1") == "2 runs deleted\n"


def test_a_paused_run_goes_on_when_told(yard: Any, leadrope: Terminal) -> None:
    agent = yard.agent("a", [{"text": "x"}, {"await_file": str(yard.folder / "go")}, {"text": "end"}, *CLOSE])
    run_id = leadrope.run(agent)
    until(lambda: leadrope.show(run_id)["run"]["state"] == "running")
    leadrope("runs", "pause", run_id[:8])
    until(lambda: leadrope.show(run_id)["run"]["state"] == "paused")
    (yard.folder / "go").touch()
    leadrope("runs", "resume", run_id[:8])
    until(lambda: leadrope.show(run_id)["run"]["state"] == "ended")


async def test_sigterm_drains_the_background_and_the_next_one_goes_on(yard: Any, leadrope: Terminal) -> None:
    agent = yard.agent("a", [{"text": "x"}, {"await_file": str(yard.folder / "go")}, *CLOSE])
    run_id = await asyncio.to_thread(leadrope.run, agent)
    await asyncio.to_thread(until, lambda: leadrope.show(run_id)["run"]["state"] == "running")
    (owner,) = stored.background_owners(yard.home)
    os.kill(owner.pid, signal.SIGTERM)
    await asyncio.to_thread(until, lambda: not leases.is_alive(yard.home, owner))
    assert stored.read(yard.home, lambda found: found.runs.get(run_id)).state == "queued"
    (yard.folder / "go").touch()
    other = await asyncio.to_thread(leadrope.run, agent)
    for each in (run_id, other):
        await asyncio.to_thread(until, lambda each=each: leadrope.show(each)["run"]["state"] == "ended")
        assert leadrope.show(each)["run"]["outcome"] == "succeeded"
    assert leadrope.show(run_id)["run"]["attempt"] == 2


async def test_sigterm_ends_the_background_whatever_grace_an_agent_was_given(yard: Any, leadrope: Terminal) -> None:
    """Five minutes between asking and ending are this run's own limit; its owner has ten seconds."""
    agent = yard.agent("a", [{"ignore_sigterm": True}, {"text": "x"}, {"hang": True}])
    run_id = await asyncio.to_thread(leadrope.run, agent, "--stop-secs", "300")
    await asyncio.to_thread(until, lambda: leadrope.show(run_id)["run"]["state"] == "running")
    (owner,) = stored.background_owners(yard.home)
    os.kill(owner.pid, signal.SIGTERM)
    await asyncio.to_thread(until, lambda: not leases.is_alive(yard.home, owner))
    # Looking would start the next owner, which would give the agent its five minutes again; stopping starts none.
    assert "stopped" in leadrope("runs", "stop", run_id[:8])
    assert leadrope.show(run_id)["run"]["outcome"] == "stopped"


def test_worktree_diff_apply_and_discard(yard: Any, leadrope: Terminal) -> None:
    def git(*words: str) -> str:
        who = ("-c", "user.name=t", "-c", "user.email=t@localhost")
        done = subprocess.run(["git", *who, *words], cwd=yard.ws, capture_output=True, text=True, check=True)
        return done.stdout

    git("init", "-q")
    (yard.ws / "a.txt").write_text("one\n")
    git("add", ".")
    git("commit", "-qm", "first")
    settings = yard.folder / ".config/leadrope/config.toml"
    setup = f'[worktree]\nsetup = ["exit 7"]\n[worktree.projects."{yard.ws}"]\nsetup = ["touch .set-up"]\n'
    settings.write_text(settings.read_text() + setup)
    (yard.ws / ".git/info/exclude").write_text(".set-up\n")
    edit = {"call": {"tool": "Bash", "id": "t1", "input": {"command": "touch b.txt"}, "touch": "b.txt"}}
    agent = yard.agent("a", [edit, {"text": "done"}, *CLOSE])
    run_id = leadrope.run(agent, "--worktree", "--mode", "full")
    until(lambda: leadrope.show(run_id)["run"]["state"] == "ended")
    assert not (yard.ws / "b.txt").exists()
    tree = Path(leadrope.show(run_id)["place"]["worktree"]["cwd"])
    assert (tree / ".set-up").exists(), "the project's own set-up, not the one for all"
    assert "b.txt" in leadrope("runs", "diff", run_id[:8])
    leadrope("runs", "apply", run_id[:8])
    assert (yard.ws / "b.txt").exists()
    assert "gone" in leadrope("runs", "discard", run_id[:8])
    assert git("branch", "--list", "leadrope/*") == ""
    assert "b.txt" in leadrope("runs", "diff", run_id[:8]), "what it changed can still be read"
    assert [kept["name"] for kept in leadrope.show(run_id)["artifacts"]] == ["changes.diff"]
    assert "changes.diff" in leadrope("runs", "show", run_id[:8])


def test_undo_puts_the_files_back(yard: Any, leadrope: Terminal) -> None:
    kept = yard.ws / "kept.txt"
    kept.write_text("before\n")
    subprocess.run(["git", "init", "-q"], cwd=yard.ws, check=True)
    path = str(yard.ws / "made.txt")
    edit = {"call": {"tool": "Write", "id": "t1", "input": {"file_path": path, "content": ""}, "touch": path}}
    agent = yard.agent("a", [edit, {"text": "done"}, *CLOSE])
    run_id = leadrope.run(agent, "--mode", "full")
    until(lambda: leadrope.show(run_id)["run"]["state"] == "ended")
    assert Path(path).exists()
    assert "made.txt" in leadrope("runs", "undo", "--dry-run", run_id[:8])
    assert Path(path).exists()
    leadrope("runs", "undo", run_id[:8])
    assert not Path(path).exists()
    assert kept.read_text() == "before\n"


def test_the_background_works_where_the_run_or_its_session_did(yard: Any, leadrope: Terminal) -> None:
    """The owner of background runs has no folder of anybody's: what nobody has said must not be its own."""
    agent = yard.agent("a", [{"text": "x"}, *CLOSE])
    other = yard.folder / "other"
    other.mkdir()

    def folder(run_id: str) -> str:
        until(lambda: leadrope.show(run_id)["run"]["state"] == "ended")
        log = [json.loads(line)["event"] for line in leadrope("runs", "export", run_id).splitlines()]
        started = [event["cwd"] for event in log if event["type"] == "session.started"]
        assert len(started) == 1, log
        return str(started[0])

    given = ("--provider", "scripted", "--binary", agent, "--sandbox", "off", "--attempts", "1")
    first = json.loads(leadrope("run", "go", *given, "-o", "json"))["run_id"]
    assert first[:8] in leadrope("runs", "list", "--here")
    assert folder(leadrope("runs", "retry", first).strip()) == str(yard.ws)
    (yard.ws / "strict.toml").write_text('[policy]\nblocked_commands = ["terraform"]\n')
    ruled = leadrope.run(f"../{Path(agent).name}", "--policy", "strict.toml")
    assert folder(ruled) == str(yard.ws), "its rules and its program are found, too"
    there = leadrope.run(agent, "-C", str(other))
    assert folder(there) == str(other)
    session = leadrope.show(there)["run"]["session_id"]
    assert folder(leadrope.run(agent, "--resume", session)) == str(other), "a session goes on in its own folder"
    assert folder(leadrope.run(agent, "--resume", session, "-C", ".")) == str(yard.ws), "unless another one is said"
