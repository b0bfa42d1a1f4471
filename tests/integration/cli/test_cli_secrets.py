"""`leadrope run --secret`: the value reaches the agent, and neither the terminal nor the store shows it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from leadrope.rehearsal import write_executable

SECRET = "postgres://app:opensesame@db/app"
LOOKS_LIKE = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123"
OPEN: list[dict[str, Any]] = [{"initialize": True}, {"await_user": True}, {"init": True}]
CLOSE: list[dict[str, Any]] = [{"result": True}, {"await_eof": True}]


def delta(text: str) -> dict[str, Any]:
    block = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
    return {
        "line": {"type": "stream_event", "event": block, "session_id": "s", "parent_tool_use_id": None, "uuid": "u"}
    }


@pytest.mark.parametrize("command", [("run", "go"), ("chat", "go")], ids=["run", "chat"])
async def test_a_terminal_shows_the_call_and_the_answer_without_the_secret(desk: Any, command: tuple[str, ...]) -> None:
    """The person sees what is asked for; the agent's command is run as it was."""
    call = {"name": "Bash", "input": {"command": f"echo {SECRET} > {desk.marker}", "description": f"use {SECRET}"}}
    desk.environ["DATABASE_URL"] = SECRET
    turns = [{"text": f"I use {SECRET} now", "tool": call}, {"text": f"It was {SECRET}, you know."}]
    async with desk.playing(turns, *command, "--secret", "DATABASE_URL") as terminal:
        await terminal.reads("I use [redacted] now", "echo [redacted]", "Allow?")
        terminal.types("y\n")
        await terminal.reads("It was [redacted], you know.")
        if command[0] == "chat":
            terminal.types("/exit\n")
        assert await terminal.ends() == 0
    assert desk.marker.read_text() == f"{SECRET}\n"
    assert "opensesame" not in terminal.seen


async def test_a_secret_of_a_file_or_a_pipe_reaches_the_agent(desk: Any, playing: Any) -> None:
    (desk.home / "dsn").write_text(f"{SECRET}\n")
    call = {"name": "Bash", "input": {"command": f'printf "%s" "$DSN" > {desk.marker}', "description": "use it"}}
    for given in (f"DSN={desk.home}/dsn", "DSN=/dev/stdin"):
        async with playing({"tool": call}, {"text": "Done."}) as model:
            ended = await desk.leadrope(
                *("run", "go", "--mode", "full", "--base-url", model.url, "--secret-file", given),
                stdin=f"{SECRET}\n".encode(),
            )
        assert ended.code == 0, ended.err
        assert desk.marker.read_text() == SECRET
        assert "opensesame" not in ended.out + ended.err
        desk.marker.unlink()


async def test_the_keys_of_model_services_are_refused_and_named(desk: Any) -> None:
    ended = await desk.leadrope("run", "go", "--secret", "OPENAI_API_KEY", OPENAI_API_KEY="opensesame-key")
    assert ended.code == 2
    assert "OPENAI_API_KEY is refused: it is the key of a model service" in ended.err
    ended = await desk.leadrope("run", "go", "--var", "DATABASE_URL", DATABASE_URL=SECRET)
    assert ended.code == 2
    assert "--secret DATABASE_URL" in ended.err
    assert "opensesame" not in ended.err


@pytest.mark.parametrize("output", ["text", "json", "stream-json"])
def test_a_marked_variable_is_seen_by_the_agent_alone(tmp_path: Path, output: str) -> None:
    said = f"It is {SECRET}, and {LOOKS_LIKE} is an example."
    call = {"tool": "Bash", "id": "t1", "input": {"command": f"psql {SECRET}"}, "result": f"refused: {SECRET}"}
    half = len(said) // 3
    steps = [
        *OPEN,
        {"call": call},
        *(delta(piece) for piece in (said[:half], said[half : half + 7], said[half + 7 :])),
        {"text": said},
        {"stderr": f"{SECRET}\n"},
        *CLOSE,
    ]
    binary = str(write_executable(tmp_path / "agent", {"steps": steps}))
    (tmp_path / "ws").mkdir()
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LEADROPE_HOME": str(tmp_path / "leadrope")}
    given = ("--provider", "scripted", "--binary", binary, "--sandbox", "off", "--attempts", "1", "--mode", "full")
    done = subprocess.run(
        [sys.executable, "-m", "leadrope.cli.main", "run", f"use {SECRET}", *given, "--secret", "DSN", "-o", output],
        env=environ | {"DSN": SECRET},
        cwd=tmp_path / "ws",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        start_new_session=True,
    )
    assert done.returncode == 3, done.stderr  # without a sandbox nobody allows psql
    assert SECRET not in done.stdout + done.stderr
    assert "opensesame" not in done.stdout + done.stderr
    assert "It is [redacted], and" in done.stdout
    assert LOOKS_LIKE in done.stdout, "an answer that was asked for is not taken away"
    kept = b"".join(path.read_bytes() for path in (tmp_path / "leadrope").rglob("*") if path.is_file())
    assert SECRET.encode() not in kept
    assert LOOKS_LIKE.encode() not in kept
