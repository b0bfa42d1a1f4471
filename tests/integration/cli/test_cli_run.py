"""`leadrope run` without a terminal: what scripts read, and what they cannot start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from leadrope.core.events import Recorded, RunEnded
from leadrope.core.result import RunResult


async def test_text_goes_to_stdout_and_the_rest_to_stderr(desk: Any, playing: Any) -> None:
    """Nobody can be asked here, so the command is denied; the run goes on to its answer."""
    async with playing({"text": "I try.", "tool": desk.touch}, {"text": "It was not allowed."}) as model:
        ended = await desk.leadrope("run", "go", "--base-url", model.url)
    assert ended.code == 3, ended.err
    assert ended.out == "It was not allowed.\n"
    assert not desk.marker.exists()
    assert ended.err.startswith("billing: subscription (setup token) · sk-ant-oat… (33 characters)\n")
    assert "I try.\n" in ended.err
    assert "  ✗ Bash touch" in ended.err
    assert "denied: no terminal to ask on; use --allow, --tools or --mode" in ended.err
    assert " (API-equivalent estimate) · " in ended.err, "a subscription is not charged by the token"
    assert "1 call denied" in ended.err
    assert "\x1b" not in ended.out + ended.err


async def test_json_is_the_result_and_nothing_else(desk: Any, playing: Any) -> None:
    async with playing({"tool": desk.touch}, {"text": "Done."}) as model:
        ended = await desk.leadrope(
            *("run", "-", "--base-url", model.url, "--mode", "full", "--output", "json", "--no-session"), stdin=b"go\n"
        )
        assert "go" in model.requests[0].text
    assert ended.code == 0, ended.err
    result = msgspec.json.decode(ended.out, type=RunResult)
    assert (result.outcome, result.text, result.turns) == ("succeeded", "Done.", 2)
    assert ended.out.count("\n") == 1
    assert desk.marker.exists()


async def test_stream_json_is_every_event_in_order(desk: Any, playing: Any) -> None:
    (desk.project / "prompt.txt").write_text("go from a file")
    async with playing({"text": "Hello."}) as model:
        ended = await desk.leadrope("run", "-f", "prompt.txt", "--base-url", model.url, "-o", "stream-json")
        assert "go from a file" in model.requests[0].text
    assert ended.code == 0, ended.err
    records = [msgspec.json.decode(line, type=Recorded) for line in ended.out.splitlines()]
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    last = records[-1].event
    assert isinstance(last, RunEnded)
    assert last.result.text == "Hello."
    assert ended.err.startswith("billing: subscription (setup token)")


async def test_options_config_and_profile_reach_the_agent(desk: Any, playing: Any) -> None:
    config = desk.home / "leadrope.toml"
    config.write_text('[run]\nmodel = "haiku"\n[profiles.p]\nappend_system_prompt = "Speak like a sailor."\n')
    (desk.project / "CLAUDE.md").write_text("Tabs, never spaces.")
    async with playing({"text": "Aye."}) as model:
        ended = await desk.leadrope(
            *("run", "hello", "--base-url", model.url, "--profile", "p", "--no-instructions", "--quiet"),
            LEADROPE_CONFIG=str(config),
        )
        request = model.requests[0]
    assert (ended.code, ended.out, ended.err) == (0, "Aye.\n", "")
    assert "haiku" in request.model
    assert "Speak like a sailor." in request.text
    assert "Tabs, never spaces." not in request.text


async def test_a_failed_run_is_1_with_the_reason_and_a_hint(desk: Any, playing: Any) -> None:
    error = {"error": {"status": 400, "message": "no such thing"}, "repeat": "forever"}
    async with playing(error, strict=False) as model:
        ended = await desk.leadrope("run", "go", "--base-url", model.url, "--attempts", "1")
    assert ended.code == 1
    assert "✗ failed (bad_request, HTTP 400)" in ended.err
    assert "leadrope.run: run " not in ended.err


async def test_a_run_out_of_turns_is_degraded(desk: Any, playing: Any) -> None:
    script = ({"text": "Once more.", "tool": desk.touch}, {"text": "x", "optional": True})
    async with playing(*script) as model:
        ended = await desk.leadrope(
            "run", "go", "--base-url", model.url, "--max-turns", "1", "--strict", "--mode", "full"
        )
    assert ended.code == 1, ended.err
    assert "! degraded: " in ended.err


async def test_a_silent_model_ends_in_its_own_exit_code(desk: Any, playing: Any) -> None:
    async with playing({"hang": "before_headers"}, strict=False) as model:
        ended = await desk.leadrope("run", "go", "--base-url", model.url, "--idle-secs", "1.5")
    assert ended.code == 6, ended.err
    assert "✗ timed out (clock: idle)" in ended.err


async def test_the_trace_shows_the_start_and_no_secret(desk: Any, playing: Any) -> None:
    async with playing({"text": "Hello."}) as model:
        ended = await desk.leadrope("run", "go", "--base-url", model.url, LEADROPE_DEBUG_SPAWN="true")
    assert "leadrope.spawn: " in ended.err
    assert "--permission-prompt-tool stdio" in ended.err
    assert desk.environ["CLAUDE_CODE_OAUTH_TOKEN"] not in ended.err + ended.out


async def test_a_reader_that_has_seen_enough_ends_the_run_quietly(desk: Any, playing: Any) -> None:
    import asyncio
    import sys

    async with playing({"text": "Hello."}, strict=False) as model:
        process = await asyncio.create_subprocess_exec(
            *("sh", "-c", '"$@" | true', "sh", sys.executable, "-m", "leadrope.cli.main"),
            *("run", "go", "--base-url", model.url, "-o", "stream-json", "-q"),
            stderr=asyncio.subprocess.PIPE,
            env=desk.environ,
            cwd=desk.project,
            start_new_session=True,
        )
        _, err = await process.communicate()
    assert err == b""


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ([""], "the prompt is empty"),
        (["  \n"], "the prompt is empty"),
        (["-"], "the prompt is empty"),
        ([], "there is no prompt"),
        (["x", "--cwd", "/no/such/place"], "working directory '/no/such/place' cannot be used: it does not exist"),
        (["x", "--cwd", "/etc"], "belongs to the system"),
        (["x", "--cwd", "/"], "belongs to the system"),
        (["x", "--cwd", "/dev/null"], "is not a directory"),
        (["x", "--add-dir", "/usr/lib"], "belongs to the system"),
        (["x", "--max-turns", "0"], "--max-turns: 0 is out of range"),
        (["x", "--max-turns", "101"], "--max-turns: 101 is out of range"),
        (["x", "--max-thinking-tokens", "5"], "--max-thinking-tokens: 5 is out of range"),
        (["x", "--schema-retries", "6"], "--schema-retries: 6 is out of range"),
        (["x", "--budget", "-1"], "--budget: -1 is not an amount above zero"),
        (["x", "--timeout-secs", "-1"], "--idle-secs: -1 is not a number of zero or more"),
        (["x", "--mode", "yolo"], "--mode: 'yolo' is not a mode"),
        (["x", "--effort", "huge"], "--effort: 'huge' is not known"),
        (["x", "--billing", "nobody"], "--billing: 'nobody' is not known"),
        (["x", "--provider", "nope"], "--provider: 'nope' is not known"),
        (["x", "--mcp-config", "mcp.json"], "--mcp-config: 'mcp.json' is not a JSON object"),
        (["x", "--mcp-config", "missing.json"], "--mcp-config: 'missing.json' cannot be read"),
        (["x", "--var", "LD_PRELOAD=/x.so"], "variable LD_PRELOAD is refused"),
        (["x", "--var", "PATH=/x"], "variable PATH is refused"),
        (["x", "--var", "ANTHROPIC_API_KEY=k"], "variable ANTHROPIC_API_KEY is refused"),
        (["x", "--fork", "unknown-session"], "--fork: no session or run 'unknown-session' is known"),
        (["x", "--fork", "a", "--resume", "b"], "--resume and --fork were given"),
        (["x", "--continue"], "--continue: no session was used in"),
        (["x", "--session-id", "five"], "--session-id: 'five' is not a UUID"),
        (["x", "--resume", "unknown-session"], "--resume: no session or run 'unknown-session' is known"),
        (["x", "--schema", "{}"], "--schema: is empty"),
        (["x", "--base-url", "ftp://x"], "--base-url: 'ftp://x' must start with"),
        (["x", "--max-turns", "many"], "is not a valid integer"),
    ],
)
async def test_bad_input_is_2_with_a_clear_message_and_nothing_is_started(
    desk: Any, tmp_path: Path, args: list[str], told: str
) -> None:
    started = desk.project / "started"  # where a sandbox would let it appear
    fake = tmp_path / "claude"
    fake.write_text(f"#!/bin/sh\ntouch {started}\n")
    fake.chmod(0o755)
    (desk.project / "mcp.json").write_text("{ not json")
    ended = await desk.leadrope("run", *args, LEADROPE_CLAUDE_BIN=str(fake), stdin=b"")
    assert ended.code == 2, ended.err
    assert told in ended.err
    assert ended.out == ""
    assert "Traceback" not in ended.err
    assert not started.exists()
    assert list(desk.tmp.iterdir()) == []


async def test_a_missing_agent_is_1_with_the_way_to_install_it(desk: Any) -> None:
    ended = await desk.leadrope("run", "x", LEADROPE_CLAUDE_BIN="/no/such/claude")
    assert ended.code == 1
    assert "does not exist" in ended.err
    assert "npm install -g" in ended.err


async def test_no_credential_is_1_and_names_the_key_that_is_not_used(desk: Any) -> None:
    ended = await desk.leadrope(
        "run", "x", CLAUDE_CODE_OAUTH_TOKEN="", ANTHROPIC_API_KEY="sk-ant-api03-abcdefghijklmnop"
    )
    assert ended.code == 1, ended.err
    assert "ANTHROPIC_API_KEY is set but will not be used" in ended.err
    assert "--billing api_key" in ended.err
    assert "abcdefghijklmnop" not in ended.err


async def test_structured_output_is_what_stdout_holds(desk: Any, playing: Any) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    call = {"name": "StructuredOutput", "input": {"n": 4}}
    async with playing({"tool": call}, {"text": "ok", "optional": True}) as model:
        ended = await desk.leadrope("run", "count", "--base-url", model.url, "--schema", json.dumps(schema))
    assert ended.code == 0, ended.err
    assert json.loads(ended.out) == {"n": 4}
