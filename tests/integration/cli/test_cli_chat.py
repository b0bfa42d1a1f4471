"""`leadrope chat` on a terminal: what a person types, sees and is asked."""

from __future__ import annotations

import re
import signal
from typing import Any

import pytest

QUESTION = {
    "name": "AskUserQuestion",
    "input": {
        "questions": [
            {
                "question": "Which colour?",
                "header": "Colour",
                "options": [{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}],
                "multiSelect": False,
            }
        ]
    },
}


async def test_two_turns_an_approval_a_question_and_an_interrupt(desk: Any) -> None:
    turns = (
        {"text": "Hello there."},
        {"tool": desk.touch, "expect": {"contains": ["say\nhello", "make it"]}},
        {"text": "It is made."},
        {"tool": QUESTION},
        {"text": "Red it is.", "expect": {"tool_result": {"contains": "Red"}}},
        {"text": "Let me think.", "hang": "mid_stream"},
        {"text": "Never mind.", "expect": {"contains": "Red it is."}},
    )
    async with desk.playing(turns, "chat") as terminal:
        await terminal.reads("default model · mode default · ", "/help, Ctrl-D leaves\r\n", "> ")
        await terminal.asks("say\x1b\rhello\r", "Hello there.", "1 model request ·", "> ")
        await terminal.asks("make it\r", "Allow?")
        await terminal.asks("y\n", "approved by you", "It is made.", "> ")
        await terminal.asks("which colour?\r", "Which colour?", "1. Red", "  > ")
        await terminal.asks("1\n", "Red it is.", "tokens", "> ")
        await terminal.asks("think\r", "Let me think.")
        await terminal.asks("\x03", "interrupting", "interrupted.\r\n", "> ")
        await terminal.asks("go on\r", "Never mind.", "tokens", "> ")
        terminal.types("\x04")
        assert await terminal.ends() == 0
    assert desk.marker.exists()
    assert terminal.seen.count("billing: ") == 1, "one process for all of it"
    assert "aborted" not in terminal.seen
    assert "✗" not in terminal.seen
    assert re.search(
        r"resume with: leadrope chat --resume [0-9a-f-]{36} --base-url http://127\.0\.0\.1:\d+", terminal.seen
    )


async def test_esc_interrupts_and_a_session_is_picked_up_again(desk: Any, playing: Any) -> None:
    turns = (
        {"text": "Let me think.", "hang": "mid_stream"},
        {"text": "Here again.", "expect": {"contains": ["first words", "and now?"]}},
    )
    async with playing(*turns) as model:
        async with desk.at_terminal("chat", "first words", "--base-url", model.url) as terminal:
            await terminal.reads("Let me think.")
            await terminal.asks("\x1b", "interrupting", "> ")
            terminal.types("/exit\r")
            assert await terminal.ends() == 0
        async with desk.at_terminal("chat", "--continue", "--base-url", model.url) as terminal:
            await terminal.reads("> ")
            terminal.types("\x1b[A")  # what was typed before comes back
            await terminal.reads("first words")
            await terminal.asks("\x15and now?\r", "Here again.", "> ")
            await terminal.asks("\x03", "press Ctrl-C again")
            terminal.types("\x03")
            assert await terminal.ends() == 0


async def test_an_interrupt_that_comes_as_a_signal_counts_like_the_key(desk: Any) -> None:
    """Between two lines the terminal makes a signal of Ctrl-C, and so does whoever uses `kill`."""
    async with desk.at_terminal("chat") as terminal:
        await terminal.reads("> ")
        terminal.signal(signal.SIGINT)
        await terminal.reads("press Ctrl-C again")
        terminal.signal(signal.SIGINT)
        assert await terminal.ends() == 0


async def test_commands_cost_no_turn(desk: Any) -> None:
    turns = (
        {"text": "One.", "expect": {"model": "claude-sonnet-5-5"}},
        {"text": "Two.", "expect": {"model": "claude-haiku-5-5", "contains": ["One.", "/etc is a folder"]}},
    )
    async with desk.playing(turns, "chat", "--model", "sonnet") as terminal:
        await terminal.reads("> ")
        await terminal.asks("/help\r", "/cost")
        await terminal.asks("/nonsense\r", "there is no command /nonsense")
        await terminal.asks("/mode yolo\r", "'yolo' is not a mode")
        await terminal.asks("one\r", "One.", "tokens")
        await terminal.asks("/cost\r", "1 turn · $", "(API-equivalent estimate)")
        await terminal.asks("/model haiku\r", "model: haiku")
        await terminal.asks("/mode plan\r", "mode: plan")
        await terminal.asks("//etc is a folder\r", "mode plan", "Two.", "> ")
        terminal.types("/quit\r")
        assert await terminal.ends() == 0
    assert " --mode plan --model haiku --base-url " in terminal.seen, "it continues as it was"


async def test_a_second_ctrl_c_ends_a_turn_that_does_not_listen(desk: Any) -> None:
    """The agent's program is stopped, so it cannot answer an interrupt."""
    turns = ({"text": "Let me think.", "hang": "mid_stream"}, {"text": "Back."})
    async with desk.playing(turns, "chat", strict=False) as terminal:
        await terminal.reads("> ")
        await terminal.asks("think\r", "Let me think.")
        await terminal.asks("\x03\x03", "> ")
        await terminal.asks("are you there?\r", "Back.", "> ")
        terminal.types("\x04")
        assert await terminal.ends() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_ends_it_and_leaves_nothing(desk: Any, number: int) -> None:
    async with desk.playing([{"text": "Let me think.", "hang": "mid_stream"}], "chat", "go", strict=False) as terminal:
        await terminal.reads("Let me think.")
        terminal.signal(number)
        assert await terminal.ends() == 130


async def test_without_a_terminal_it_says_what_to_use(desk: Any) -> None:
    ended = await desk.leadrope("chat", stdin=b"hello\n")
    assert ended.code == 2
    assert "needs a terminal" in ended.err
    assert "leadrope run" in ended.err


async def test_what_is_wrong_with_the_flags_is_told_at_once(desk: Any) -> None:
    async with desk.at_terminal("chat", "hi", "--resume", "unknown-session") as terminal:
        assert await terminal.ends() == 2
    assert "--resume: no session or run 'unknown-session' is known" in terminal.seen
