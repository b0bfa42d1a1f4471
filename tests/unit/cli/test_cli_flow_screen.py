"""Lines that change and lines that stay on one screen: whoever writes, the first are taken away before."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from leadrope.cli.screen.screen import Screen


@pytest.mark.parametrize(
    "write", [lambda screen: screen.line("x"), lambda screen: screen.text("x"), lambda screen: screen.hold()]
)
def test_whatever_is_written_comes_after_the_lines_that_change_are_gone(write: Callable[[Screen], None]) -> None:
    both = io.StringIO()
    screen = Screen(both, both, colour=False, width=80, is_live=True)
    screen.before = lambda: print("<gone>", end="", file=both)
    write(screen)
    assert both.getvalue().startswith("<gone>")


def test_while_a_question_is_open_nothing_is_taken_away() -> None:
    both = io.StringIO()
    screen = Screen(both, both, colour=False, width=80, is_live=True)
    screen.hold()
    screen.before = lambda: print("<gone>", end="", file=both)
    screen.line("waits")
    screen.line("stopping", now=True)
    assert both.getvalue() == "\nstopping\n"
    screen.release()
    assert both.getvalue() == "\nstopping\n<gone>waits\n"


def test_the_size_is_that_of_the_terminal_or_what_the_user_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    monkeypatch.setenv("LINES", "6")
    assert Screen(io.StringIO(), io.StringIO(), colour=False, width=80, is_live=True).size() == (50, 6)
