"""`leadrope` on a real terminal: a person answers, and Ctrl-C is heard."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest


async def test_a_yes_at_the_terminal_lets_the_command_run(desk: Any) -> None:
    async with desk.playing([{"text": "I try.", "tool": desk.touch}, {"text": "Done."}], "run", "go") as terminal:
        await terminal.reads("I try.\r\n", "? Bash wants to run:\r\n", "Allow? [y]es · [a]lways this exact call")
        assert not desk.marker.exists()
        await terminal.asks("y\n", "approved by you")
        assert await terminal.ends() == 0
    assert desk.marker.exists()
    assert "Done.\r\n" in terminal.seen


async def test_the_question_is_the_one_in_the_documentation(desk: Any) -> None:
    page = (Path(__file__).parents[3] / "docs" / "run.md").read_text()
    sample = re.search(r"^```\w*\n(\? Bash wants to run:.*?)\n```$", page, re.MULTILINE | re.DOTALL)
    assert sample is not None
    call = {"name": "Bash", "input": {"command": "npm test", "description": "Run the tests"}}
    async with desk.playing([{"tool": call}, {"text": "Done."}], "run", "go", "--mode", "edit") as terminal:
        await terminal.reads("? Bash", "[e]dit: ")
        assert words(sample[1]) == words("? Bash" + terminal.seen.partition("? Bash")[2])
        await terminal.asks("n\n", "Why?")
        await terminal.asks("\n", "denied by you")
        assert await terminal.ends() == 3


def words(question: str) -> list[str]:
    """However wide the terminal is."""
    return question.replace("·", " ").split()


async def test_a_no_at_the_terminal_reaches_the_agent_with_its_reason(desk: Any) -> None:
    second = {"text": "As you wish.", "expect": {"tool_result": {"contains": "use make", "is_error": True}}}
    async with desk.playing([{"tool": desk.touch}, second], "run", "go") as terminal:
        await terminal.reads("Allow?")
        await terminal.asks("n\n", "Why?")
        await terminal.asks("use make\n", "denied by you: use make")
        assert await terminal.ends() == 3
    assert not desk.marker.exists()
    assert "1 call denied" in terminal.seen


async def test_ctrl_c_at_a_question_interrupts_the_turn(desk: Any) -> None:
    async with desk.playing([{"tool": desk.touch}], "run", "go", strict=False) as terminal:
        await terminal.reads("Allow?")
        await terminal.asks("\x03", "press Ctrl-C again to stop")
        assert await terminal.ends() == 130
    assert not desk.marker.exists()
    assert "✗ stopped" in terminal.seen
    assert re.search(r"run ([0-9a-f]{4})[0-9a-f]{4} · leadrope runs resume \1\r\n", terminal.seen)


async def test_a_second_ctrl_c_stops_a_run_that_does_not_listen(desk: Any) -> None:
    async with desk.playing([{"text": "I think.", "hang": "mid_stream"}], "run", "go", strict=False) as terminal:
        await terminal.reads("I think.")
        await terminal.asks("\x03", "press Ctrl-C again to stop")
        terminal.types("\x03")
        assert await terminal.ends() == 130


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_to_end_stops_the_run(desk: Any, number: int) -> None:
    async with desk.playing([{"text": "I think.", "hang": "mid_stream"}], "run", "go", strict=False) as terminal:
        await terminal.reads("I think.")
        terminal.signal(number)
        assert await terminal.ends() == 130
    assert "stopped" in terminal.seen


async def test_a_stopped_stream_of_json_still_ends_with_the_end(desk: Any) -> None:
    async with desk.playing(
        [{"text": "I think.", "hang": "mid_stream"}], "run", "go", "-o", "stream-json", strict=False
    ) as terminal:
        await terminal.reads('"message.delta"')
        terminal.signal(signal.SIGTERM)
        assert await terminal.ends() == 130
    lines = [json.loads(line) for line in terminal.seen.splitlines() if line.startswith("{")]
    assert lines[-1]["event"]["type"] == "run.ended"
    assert lines[-1]["event"]["result"]["outcome"] == "stopped"
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))


async def test_a_prompt_from_a_pipe_can_still_be_asked_about_at_the_terminal(desk: Any, playing: Any) -> None:
    (desk.project / "prompt").write_text("go")
    async with (
        playing({"tool": desk.touch}, {"text": "Done."}) as model,
        desk.at_terminal("run", "-", "--base-url", model.url, stdin=desk.project / "prompt") as terminal,
    ):
        await terminal.reads("Allow?")
        terminal.types("y\n")
        assert await terminal.ends() == 0
    assert desk.marker.exists()


async def test_ctrl_c_before_the_agent_lives_ends_it_at_once(desk: Any) -> None:
    """The program hangs on its way up; there is no turn to interrupt yet."""
    slow = desk.home / "claude"
    slow.write_text("#!/bin/sh\necho up >&2\nexec sleep 600\n")
    slow.chmod(0o755)
    async with desk.at_terminal("run", "go", LEADROPE_CLAUDE_BIN=str(slow), LEADROPE_DEBUG_SPAWN="1") as terminal:
        await terminal.reads("leadrope.spawn: ", "stdin ")
        terminal.types("\x03")
        assert await terminal.ends() == 130


async def test_colours_are_for_terminals_that_want_them(desk: Any, playing: Any) -> None:
    async with (
        playing({"text": "Hello."}) as model,
        desk.at_terminal("run", "go", "--base-url", model.url, NO_COLOR="") as terminal,
    ):
        assert await terminal.ends() == 0
    assert "\x1b[2m" in terminal.seen


async def test_the_demo_asks_and_shows_what_changed(desk: Any) -> None:
    async with desk.at_terminal("demo") as terminal:
        await terminal.reads(
            "nothing leaves this machine", "? Bash wants to run:\r\n    python3 -m unittest -q", "Allow?"
        )
        await terminal.asks("y\n", "approved by you", "+    return a + b", "What to try next:", "leadrope login")
        assert await terminal.ends() == 0
    assert list(desk.tmp.iterdir()) == []
