"""The Markdown of an answer: styled on a terminal with colours, and nowhere else."""

from __future__ import annotations

import re
from typing import Any

import pytest

ANSWER = """# Result

The **important** part is `x = 1`, see [the docs](https://example.org/a).

- one
- two

```py
print("**not bold**")
```

It is never **closed."""
SEEN = (
    ANSWER.replace("**important**", "important")
    .replace("`x = 1`", "x = 1")
    .replace("[the docs](https://example.org/a)", "the docs (https://example.org/a)")
    .replace("- one\n- two", "• one\n• two")
)
"""What is left of it on the screen, without the styles."""


def visible(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text).replace("\r", "")


@pytest.mark.parametrize("columns", ["100", "40"])
async def test_an_answer_is_styled_on_a_terminal(desk: Any, playing: Any, columns: str) -> None:
    async with (
        playing({"text": ANSWER}) as model,
        desk.at_terminal("run", "go", "--base-url", model.url, NO_COLOR="", COLUMNS=columns) as terminal,
    ):
        assert await terminal.ends() == 0
    assert SEEN in visible(terminal.seen)
    for part in ("\x1b[1mimportant\x1b[0m", "\x1b[36mx = 1\x1b[0m", "\x1b[4mthe docs\x1b[0m", "\x1b[2m```py\x1b[0m"):
        assert part in terminal.seen
    answer = terminal.seen[terminal.seen.index("Result") : terminal.seen.index("closed.")]
    assert not re.search(r"\x1b\[\d*[A-KSTfd]", answer), "nothing is taken back or drawn again"


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"NO_COLOR": "", "TERM": "dumb"}], ids=["NO_COLOR", "dumb"])
async def test_it_is_shown_as_it_is_where_there_are_no_colours(
    desk: Any, playing: Any, environ: dict[str, str]
) -> None:
    async with (
        playing({"text": ANSWER}) as model,
        desk.at_terminal("run", "go", "--base-url", model.url, **environ) as terminal,
    ):
        assert await terminal.ends() == 0
    assert ANSWER in visible(terminal.seen)


async def test_it_is_piped_as_it_is(desk: Any, playing: Any) -> None:
    async with playing({"text": ANSWER}) as model:
        ended = await desk.leadrope("run", "go", "--base-url", model.url, TERM="xterm-256color")
    assert ended.out == ANSWER + "\n"


async def test_a_chat_is_styled_and_shows_what_an_interrupt_has_cut_off(desk: Any, playing: Any) -> None:
    turns = ({"text": ANSWER}, {"text": "It begins with **half a", "hang": "mid_stream"})
    async with (
        playing(*turns, strict=False) as model,
        desk.at_terminal("chat", "go", "--base-url", model.url, NO_COLOR="") as terminal,
    ):
        await terminal.reads("\x1b[1mimportant\x1b[0m", "never **closed.", "> ")
        terminal.types("more\r")
        await terminal.reads("It begins with ")
        terminal.types("\x1b")
        await terminal.reads("**half a", "interrupted.", "> ")
        terminal.types("\x04")
        assert await terminal.ends() == 0


async def test_logs_are_styled_too_and_exports_are_not(desk: Any, playing: Any) -> None:
    async with playing({"text": ANSWER}) as model:
        await desk.leadrope("run", "go", "--base-url", model.url)
    async with desk.at_terminal("runs", "logs", NO_COLOR="") as terminal:
        assert await terminal.ends() == 0
    assert "\x1b[1mimportant\x1b[0m" in terminal.seen
    assert "**important**" in (await desk.leadrope("runs", "logs")).out
    async with desk.at_terminal("runs", "show", NO_COLOR="") as terminal:
        assert await terminal.ends() == 0
    assert "  The \x1b[1mimportant\x1b[0m part" in terminal.seen
    assert "  The **important** part" in (await desk.leadrope("runs", "show")).out
