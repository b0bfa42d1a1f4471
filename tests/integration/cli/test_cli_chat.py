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


async def test_two_turns_an_approval_a_question_and_an_interrupt(desk: Any, playing: Any) -> None:
    turns = (
        {"text": "Hello there."},
        {"tool": desk.touch, "expect": {"contains": ["say hello", "make it"]}},
        {"text": "It is made."},
        {"tool": QUESTION},
        {"text": "Red it is.", "expect": {"tool_result": {"contains": "Red"}}},
        {"text": "Let me think.", "hang": "mid_stream"},
        {"text": "Never mind.", "expect": {"contains": "Red it is."}},
    )
    async with (
        playing(*turns) as model,
        desk.at_terminal("chat", "--base-url", model.url) as terminal,
    ):
        await terminal.reads("> ")
        terminal.types("say hello\r")
        await terminal.reads("Hello there.")
        await terminal.reads("1 turn ·")
        await terminal.reads("> ")
        terminal.types("make it\r")
        await terminal.reads("Allow?")
        terminal.types("y\n")
        await terminal.reads("approved by you")
        await terminal.reads("It is made.")
        await terminal.reads("> ")
        terminal.types("which colour?\r")
        await terminal.reads("Which colour?")
        await terminal.reads("1. Red")
        await terminal.reads("  > ")
        terminal.types("1\n")
        await terminal.reads("Red it is.")
        await terminal.reads("tokens")
        await terminal.reads("> ")
        terminal.types("think\r")
        await terminal.reads("Let me think.")
        terminal.types("\x03")
        await terminal.reads("interrupting")
        await terminal.reads("stopped")
        await terminal.reads("> ")
        terminal.types("go on\r")
        await terminal.reads("Never mind.")
        await terminal.reads("tokens")
        await terminal.reads("> ")
        terminal.types("\x04")
        assert await terminal.ends() == 0
    assert desk.marker.exists()
    assert terminal.seen.count("billing: ") == 1, "one process for all of it"
    assert re.search(r"resume with: leadrope chat --resume [0-9a-f-]{36}", terminal.seen)


async def test_esc_interrupts_and_a_session_is_picked_up_again(desk: Any, playing: Any) -> None:
    turns = (
        {"text": "Let me think.", "hang": "mid_stream"},
        {"text": "Here again.", "expect": {"contains": ["first words", "and now?"]}},
    )
    async with playing(*turns) as model:
        async with desk.at_terminal("chat", "first words", "--base-url", model.url) as terminal:
            await terminal.reads("Let me think.")
            terminal.types("\x1b")
            await terminal.reads("interrupting")
            await terminal.reads("> ")
            terminal.types("/exit\r")
            assert await terminal.ends() == 0
        async with desk.at_terminal("chat", "--continue", "--base-url", model.url) as terminal:
            await terminal.reads("> ")
            terminal.types("\x1b[A")  # what was typed before comes back
            await terminal.reads("first words")
            terminal.types("\x15and now?\r")
            await terminal.reads("Here again.")
            await terminal.reads("> ")
            terminal.types("\x03")
            await terminal.reads("press Ctrl-C again")
            terminal.types("\x03")
            assert await terminal.ends() == 0


async def test_commands_cost_no_turn(desk: Any, playing: Any) -> None:
    turns = (
        {"text": "One.", "expect": {"model": "claude-sonnet-4-5"}},
        {"text": "Two.", "expect": {"model": "claude-haiku-4-5", "contains": ["One.", "/etc is a folder"]}},
    )
    async with (
        playing(*turns) as model,
        desk.at_terminal("chat", "--base-url", model.url, "--model", "sonnet") as terminal,
    ):
        await terminal.reads("> ")
        terminal.types("/help\r")
        await terminal.reads("/cost")
        terminal.types("/nonsense\r")
        await terminal.reads("there is no command /nonsense")
        terminal.types("/mode yolo\r")
        await terminal.reads("'yolo' is not a mode")
        terminal.types("one\r")
        await terminal.reads("One.")
        await terminal.reads("tokens")
        terminal.types("/cost\r")
        await terminal.reads("1 turn · $")
        terminal.types("/model haiku\r")
        await terminal.reads("model: haiku")
        terminal.types("/mode plan\r")
        await terminal.reads("mode: plan")
        terminal.types("//etc is a folder\r")
        await terminal.reads("mode plan")
        await terminal.reads("Two.")
        await terminal.reads("> ")
        terminal.types("/quit\r")
        assert await terminal.ends() == 0


async def test_a_second_ctrl_c_ends_a_turn_that_does_not_listen(desk: Any, playing: Any) -> None:
    """The agent's program is stopped, so it cannot answer an interrupt."""
    turns = ({"text": "Let me think.", "hang": "mid_stream"}, {"text": "Back."})
    async with (
        playing(*turns, strict=False) as model,
        desk.at_terminal("chat", "--base-url", model.url) as terminal,
    ):
        await terminal.reads("> ")
        terminal.types("think\r")
        await terminal.reads("Let me think.")
        terminal.types("\x03\x03")
        await terminal.reads("> ")
        terminal.types("are you there?\r")
        await terminal.reads("Back.")
        await terminal.reads("> ")
        terminal.types("\x04")
        assert await terminal.ends() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_ends_it_and_leaves_nothing(desk: Any, playing: Any, number: int) -> None:
    async with (
        playing({"text": "Let me think.", "hang": "mid_stream"}, strict=False) as model,
        desk.at_terminal("chat", "go", "--base-url", model.url) as terminal,
    ):
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
    assert "--resume: no session 'unknown-session' is known" in terminal.seen
