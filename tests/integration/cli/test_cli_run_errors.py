"""Runs that fail for a reason outside of leadrope: one sentence that names the thing, and no line of a log."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

KEY = {"CLAUDE_CODE_OAUTH_TOKEN": "", "ANTHROPIC_API_KEY": "sk-ant-api03-planted-planted-planted"}
ONCE = ("--attempts", "1", "--api-retries", "0")


def stub(tmp_path: Path, *lines: str) -> str:
    path = tmp_path / "claude"
    path.write_text("\n".join(("#!/bin/sh", *lines)) + "\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("broker", ["--broker", "--no-broker"])
async def test_an_unreachable_model_is_one_sentence_with_its_address(desk: Any, broker: str) -> None:
    given = ("--base-url", "http://127.0.0.1:9", "--billing", "api_key", broker, *ONCE)
    ended = await desk.leadrope("run", "go", *given, **KEY)
    assert ended.code == 1
    (told,) = [line for line in ended.err.splitlines() if line.startswith("✗ failed (connection_failed")]
    assert told.endswith("127.0.0.1:9 cannot be reached (connection refused)"), told
    assert "gateway" not in ended.err
    assert "leadrope.run:" not in ended.err, "that line is for the log"


async def test_a_refused_api_key_is_advised_about_as_a_key(desk: Any, playing: Any) -> None:
    refused = {"error": {"status": 401, "type": "authentication_error", "message": "bad"}, "repeat": "forever"}
    async with playing(refused, strict=False) as model:
        ended = await desk.leadrope("run", "go", "--base-url", model.url, "--billing", "api_key", *ONCE, **KEY)
    assert ended.code == 1, ended.err
    assert "not_authenticated" in ended.err
    assert "Check the API key (ANTHROPIC_API_KEY)" in ended.err
    assert "login" not in ended.err


async def test_the_trace_has_all_of_stderr_the_exit_code_and_the_model(desk: Any, tmp_path: Path) -> None:
    binary = stub(tmp_path, "seq 1 200 >&2", "echo gone >&2", "exit 3")
    ended = await desk.leadrope(
        "run", "go", *ONCE, "--model", "haiku", LEADROPE_CLAUDE_BIN=binary, LEADROPE_DEBUG_SPAWN="1"
    )
    told = [line.split(" ", 2)[2] for line in ended.err.splitlines() if line.startswith("leadrope.spawn: ")]
    assert [line for line in told if line.startswith("stderr ")] == [
        *(f"stderr {n}" for n in range(1, 201)),
        "stderr gone",
    ]
    assert "exit code 3" in told
    (compact,) = [line for line in ended.err.splitlines() if line.startswith("leadrope.run: ")]
    assert "exit=3" in compact
    assert "model=claude-haiku" in compact


async def test_an_old_agent_is_named_by_its_version_and_not_started_again(desk: Any, tmp_path: Path) -> None:
    count = desk.project / "count"
    version = 'case "$1" in --version) echo "1.0.35 (Claude Code)"; exit 0;; esac'
    binary = stub(tmp_path, version, f"echo x >> {count}", "echo plain words", "exit 1")
    ended = await desk.leadrope("run", "go", "-o", "json", LEADROPE_CLAUDE_BIN=binary)
    error = json.loads(ended.out)["error"]
    assert (ended.code, error["kind"]) == (1, "gate_unsupported")
    assert "Claude Code 1.0.35" in error["message"]
    assert "is too old; 2.1.0 or newer is needed" in error["message"]
    assert count.read_text() == "x\n"


async def test_a_missing_mcp_program_is_found_before_the_start(desk: Any) -> None:
    servers = {"docs": {"command": "no-such-program"}}
    (desk.project / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    ended = await desk.leadrope("run", "go", "--mcp-config", "mcp.json")
    assert ended.code == 2
    assert "connections.docs: the program 'no-such-program' was not found on PATH" in ended.err
    assert "trying again" not in ended.err


async def test_a_prompt_without_quotes_is_told_so(desk: Any) -> None:
    ended = await desk.leadrope("run", "fix", "the", "bug", "--mode", "plan")
    assert ended.code == 2
    assert 'put it in quotes: leadrope run "fix the bug"' in ended.err


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that refuses connections, and that nobody else gets meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@pytest.mark.parametrize("broker", ["--broker", "--no-broker"])
async def test_the_terminal_shows_at_once_which_address_is_not_reached(
    desk: Any, closed_port: int, broker: str
) -> None:
    address = f"127.0.0.1:{closed_port}"
    given = ("--base-url", f"http://{address}", "--billing", "api_key", broker, "--unreachable-secs", "4")
    async with desk.at_terminal("run", "go", *given, **KEY) as terminal:
        await terminal.reads(
            f"! cannot reach {address} (connection refused); retrying for up to 4 s",
            f"⋯ cannot reach {address} (connection refused), attempt 2",
            f"⋯ cannot reach {address} (connection refused), attempt 3",
            f"cannot reach {address} (connection refused); gave up after 4 s",
            "--unreachable-secs",
        )
        assert await terminal.ends() == 1


@pytest.mark.parametrize("kind", ["llm", "agent"])
async def test_a_step_says_which_address_is_not_reached_and_gives_up(desk: Any, closed_port: int, kind: str) -> None:
    address = f"127.0.0.1:{closed_port}"
    config = desk.home / ".config/leadrope"
    config.mkdir(parents=True)
    limits = "[run.limits]\nunreachable_s = 3\n"
    (config / "config.toml").write_text(f'[run]\nbase_url = "http://{address}"\n{limits}')
    (desk.project / "w.flow.md").write_text(f"# W\n## Steps\n### ask\nAsks.\n- type: {kind}\n- prompt: hello\n")
    async with desk.at_terminal("flow", "run", "w.flow.md") as terminal:
        await terminal.reads(
            f"cannot reach {address} (connection refused); retrying, attempt 2",
            f"cannot reach {address} (connection refused); gave up after 3 s",
            "raise unreachable_s in",
            "[run.limits]",
        )
        assert await terminal.ends() == 1


async def test_a_step_whose_time_is_up_meanwhile_is_not_told_to_take_longer(desk: Any, closed_port: int) -> None:
    """In a pipe there is a line at the first retry, and the reason stands in the result and in the report."""
    told = f"cannot reach 127.0.0.1:{closed_port} (connection refused)"
    (desk.project / "w.flow.md").write_text("## Steps\n### ask\n- type: llm\n- prompt: hello\n- timeout: 5\n")
    ended = await desk.leadrope(
        "flow", "run", "w.flow.md", "--base-url", f"http://127.0.0.1:{closed_port}", "-o", "json"
    )
    assert ended.code == 1
    assert f"↻ ask: {told}; attempt 2 follows" in ended.err
    assert ended.err.count("↻") == 1
    result = json.loads(ended.out)
    error = result["steps"][0]["error"]
    assert error["kind"] == "connection_failed"
    assert error["message"].startswith(told)
    assert "Check the address (base_url in [run])" in error["hint"]
    report = (await desk.leadrope("flow", "report", result["execution_id"])).out
    assert told in report
    for text in (ended.out, ended.err, report):
        assert "Raise its" not in text


async def test_a_detached_run_says_which_address_is_not_reached(desk: Any, background: Any, closed_port: int) -> None:
    """Whoever looks sees it while the agent retries, and afterwards as the reason."""
    address = f"127.0.0.1:{closed_port}"
    given = ("--base-url", f"http://{address}", "--unreachable-secs", "8", "--detach")
    run_id = (await desk.leadrope("run", "go", *given)).out.strip()
    shown = ""
    async with asyncio.timeout(60):
        while f"cannot reach {address} (connection refused); retrying, attempt" not in shown:
            shown = (await desk.leadrope("runs", "show", run_id, COLUMNS="200")).out
    followed = await desk.leadrope("runs", "logs", "-f", run_id)
    assert followed.code == 1
    shown = (await desk.leadrope("runs", "show", run_id, COLUMNS="200")).out
    assert f"cannot reach {address} (connection refused); gave up after 8 s" in shown
