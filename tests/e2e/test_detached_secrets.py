"""Detached runs with secrets whose owner is killed, by commands alone: continued, or held with a reason."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

import stored
from leadrope.rehearsal import ModelServer
from leadrope.runs.records.values import Owner

T = TypeVar("T")
KEY = "sk-ant-rehearsal-0000000000000000"
SERVER = Path(__file__).parents[1] / "data/mcp_server.py"
WORK = {"tool": {"name": "Bash", "input": {"command": "touch working; sleep 600", "description": "work"}}}
DONE = {"text": "all done"}
SECRETS = {name: f"planted-{name.lower()}-4711" for name in ("FILE", "CONFIG", "SERVER", "INLINE")}


class Terminal:
    """`leadrope …` as a user types it; each call is a process of its own."""

    def __init__(self, stage: Any) -> None:
        self.environ = stage.environ
        self.ws: Path = stage.ws
        self.home = Path(stage.environ["LEADROPE_HOME"])
        self.home.mkdir()
        (self.home / ".env").write_text(f"ANTHROPIC_API_KEY={KEY}\nDOCS_TOKEN={SECRETS['SERVER']}\n")
        (stage.home / "dsn.txt").write_text(SECRETS["FILE"] + "\n")
        self.file = stage.home / "dsn.txt"
        config = stage.home / ".config/leadrope"
        config.mkdir(parents=True)
        self.config = config / "config.toml"
        self.config.write_text(
            f"""
            [run]
            variables = {{ API_PASSWORD = "{SECRETS["CONFIG"]}" }}
            connections = ["docs"]
            [connections.docs]
            command = "{sys.executable}"
            args = ["{SERVER}", "stdio", "{self.ws / "server"}"]
            env = {{ SERVER_TOKEN = "${{DOCS_TOKEN}}" }}
            [service]
            idle_s = 1
            """
        )

    def run(self, *words: str, code: int = 0, **environ: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "leadrope.cli.main", *words],
            env={**self.environ, **environ},
            cwd=self.ws,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def detach(self, model: Any, *words: str, **environ: str) -> tuple[str, str]:
        given = ("--base-url", model.url, "--billing", "api_key", "--attempts", "1", "--mode", "full", *words)
        done = self.run("run", "work on it", "--detach", *given, code=0, **environ)
        until((self.ws / "working").exists)
        return done.stdout.strip(), done.stderr

    def row(self, run_id: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("runs", "show", run_id, "-o", "json").stdout)["run"]
        return found

    def ended(self, run_id: str) -> str:
        until(lambda: self.row(run_id)["state"] == "ended")
        return str(self.row(run_id)["outcome"])

    def owners(self) -> list[Owner]:
        return stored.background_owners(self.home)

    def kill(self) -> None:
        (owner,) = self.owners()
        os.kill(owner.pid, signal.SIGKILL)
        until(lambda: not self.owners())


def until(look: Callable[[], T]) -> T:
    give_up = time.monotonic() + 90
    while not (found := look()):
        assert time.monotonic() < give_up
        time.sleep(0.1)
    return found


@pytest.fixture
def leadrope(stage: Any) -> Iterator[Terminal]:
    terminal = Terminal(stage)
    yield terminal
    for owner in terminal.owners():
        os.kill(owner.pid, signal.SIGTERM)
    until(lambda: not terminal.owners())
    stored = b"".join(path.read_bytes() for path in terminal.home.glob("leadrope.db*"))
    assert stored
    assert [name for name, value in SECRETS.items() if value.encode() in stored] == []


def shown(*names: str) -> dict[str, Any]:
    return {"tool": {"name": "Bash", "input": {"command": f"printenv {' '.join(names)} > seen", "description": "look"}}}


def test_kill_9_with_secrets_of_files_config_and_env_file_recovers(leadrope: Terminal) -> None:
    """A file, a variable of the config, a connection with a variable of the .env; and `[redacted]` is only a text."""
    with ModelServer.in_thread([WORK, shown("DSN", "API_PASSWORD"), DONE]) as model:
        given = ("--secret-file", f"DSN={leadrope.file}", "--append-system-prompt", "Write [redacted] for names.")
        run_id, told = leadrope.detach(model, *given)
        assert "cannot recover" not in told
        leadrope.kill()
        (leadrope.ws / "server").unlink()
        assert leadrope.ended(run_id) == "succeeded"
        assert (leadrope.ws / "seen").read_text().splitlines() == [SECRETS["FILE"], SECRETS["CONFIG"]]
        assert (leadrope.ws / "server").read_text() == SECRETS["SERVER"]


def test_a_secret_that_only_the_terminal_had_is_named_and_can_be_given_again(leadrope: Terminal) -> None:
    with ModelServer.in_thread([WORK, shown("DSN"), DONE]) as model:
        run_id, told = leadrope.detach(model, "--secret", f"DSN={SECRETS['INLINE']}")
        assert "leadrope cannot recover this run" in told
        assert "DSN came from this terminal" in told
        assert "cannot recover this run" in leadrope.run("runs", "logs", run_id).stderr
        leadrope.kill()

        # Whoever looks has another value of that name; it is not this run's.
        def looked() -> str:
            return leadrope.run("runs", "list", COLUMNS="200", DSN="the-lookers-own-value").stdout

        until(lambda: "it cannot continue" in looked())
        assert "it needs DSN, and secrets are not stored; set DSN in your shell" in leadrope.row(run_id)["note"]
        leadrope.run("runs", "resume", run_id, DSN=SECRETS["INLINE"])
        assert leadrope.ended(run_id) == "succeeded"
        assert (leadrope.ws / "seen").read_text().splitlines() == [SECRETS["INLINE"]]


def test_a_run_about_redacted_text_is_retried_and_resumed(leadrope: Terminal) -> None:
    with ModelServer.in_thread([DONE, DONE, DONE]) as model:
        given = ("--base-url", model.url, "--billing", "api_key", "--secret-file", f"DSN={leadrope.file}")
        first = leadrope.run("run", "what does [redacted] mean?", *given, "-o", "json").stdout
        run_id = json.loads(first)["run_id"]
        for words in (("retry", run_id), ("resume", run_id, "and now?")):
            again = leadrope.run("runs", *words).stdout.strip()
            assert leadrope.ended(again) == "succeeded"
        assert "what does [redacted] mean?" in model.requests[1].text


@pytest.mark.parametrize("way", ["connection", "connection with a default", "forward_env"])
def test_a_variable_of_the_terminal_that_the_config_names_is_missed_and_not_replaced(
    leadrope: Terminal, way: str
) -> None:
    """The server, or the agent, would go on without it, or with a default, and nobody would know."""
    name = "ONLY_HERE"
    if way == "forward_env":
        leadrope.config.write_text(f'forward_env = ["{name}"]\n{leadrope.config.read_text()}')
        seen = leadrope.ws / "seen"
    else:
        default = ":-nothing" if way.endswith("default") else ""
        text = leadrope.config.read_text().replace("${DOCS_TOKEN}", f"${{{name}{default}}}")
        leadrope.config.write_text(text)
        seen = leadrope.ws / "server"
    value = SECRETS["INLINE"]
    with ModelServer.in_thread([WORK, shown(name), DONE], strict=False) as model:
        run_id, told = leadrope.detach(model, ONLY_HERE=value)
        assert f"cannot recover this run if its background process ends: {name} came from this terminal" in told
        leadrope.kill()
        seen.unlink(missing_ok=True)
        until(lambda: "it cannot continue" in leadrope.run("runs", "list", COLUMNS="200", ONLY_HERE="another").stdout)
        assert f"it needs {name}, and that is not stored; set {name} in your shell" in leadrope.row(run_id)["note"]
        refused = leadrope.run("runs", "resume", run_id, code=2)
        assert f"it needs {name}" in refused.stderr
        assert not seen.exists()
        leadrope.run("runs", "resume", run_id, ONLY_HERE=value)
        assert leadrope.ended(run_id) == "succeeded"
        assert seen.read_text().strip() == value


def test_what_cannot_be_supplied_later_is_not_promised_to_be(leadrope: Terminal) -> None:
    secret = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789"
    with ModelServer.in_thread([WORK], strict=False) as model:
        run_id, told = leadrope.detach(model, "--append-system-prompt", f"The key is {secret}")
        assert "its append_system_prompt came from this terminal and is not stored. Start it anew then." in told
        leadrope.run("runs", "stop", run_id)
