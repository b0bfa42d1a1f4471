"""The typed line: keys in, text out."""

from __future__ import annotations

import pytest

from leadrope.cli.screen.prompt import LineEditor, width_of

UP, DOWN, LEFT, RIGHT = "\x1b[A", "\x1b[B", "\x1b[D", "\x1b[C"


@pytest.mark.parametrize(
    ("keys", "text", "cursor"),
    [
        ("hello", "hello", 5),
        ("hellp\x7fo", "hello", 5),
        ("ello\x01h", "hello", 1),
        ("hell\x01\x05o", "hello", 5),
        (f"hllo{LEFT * 3}e", "hello", 2),
        (f"hello{LEFT * 9}", "hello", 0),
        (f"hello{RIGHT * 9}", "hello", 5),
        (f"helllo{LEFT * 3}\x1b[3~", "hello", 3),
        (f"helllo{LEFT * 3}\x04", "hello", 3),
        ("away\x15", "", 0),
        ("one two\x17", "one ", 4),
        ("one two  \x17", "one ", 4),
        ("one\x17", "", 0),
        (f"keep cut{LEFT * 4}\x0b", "keep", 4),
        ("\x7f\x7fa", "a", 1),
        ("héllo 🙂", "héllo 🙂", 7),
        ("a\x1b[200~two\rlines\x1b[201~b", "atwo\nlinesb", 11),
        ("a\x1b\rb", "a\nb", 3),
        ("a\x1b[13;2ub", "a\nb", 3),
        ("a\\\rb", "a\nb", 3),
        ("a\x1b[99;5~b", "ab", 2),
        ("a\x1bxb", "ab", 2),
        ("a\x00\x1ab", "ab", 2),
    ],
)
def test_keys_edit_the_line(keys: str, text: str, cursor: int) -> None:
    line = LineEditor([])
    assert line.take(keys) == (None, "")
    assert (line.text, line.cursor) == (text, cursor)


@pytest.mark.parametrize(
    ("keys", "done", "rest"),
    [
        ("hello\rnext", "enter", "next"),
        ("hello\nnext", "enter", "next"),
        ("\x04", "eof", ""),
        ("abc\x03d", "interrupt", "d"),
    ],
)
def test_keys_end_the_line(keys: str, done: str, rest: str) -> None:
    assert LineEditor([]).take(keys) == (done, rest)


def test_a_text_that_is_edited_is_the_shells_own() -> None:
    line = LineEditor([], "echo a", is_edited=True, can_leave=True)
    assert line.take("\\\r") == ("enter", "")
    assert line.text == "echo a\\"
    assert line.take("\x18more") == ("editor", "more")
    assert LineEditor([]).take("a\x18b") == (None, ""), "only where there is one to go to"


def test_history_goes_back_and_forth_and_keeps_what_was_begun() -> None:
    line = LineEditor(["first", "second"])
    line.take("begun")
    for keys, text in (
        (UP, "second"),
        (UP, "first"),
        (UP, "first"),
        (DOWN, "second"),
        (DOWN, "begun"),
        (DOWN, "begun"),
    ):
        line.take(keys)
        assert line.text == text


def test_a_key_that_comes_in_pieces_by_itself_is_harmless() -> None:
    line = LineEditor([])
    line.take("a\x1b")
    line.take("b")
    assert line.text == "ab"


def test_wide_characters_take_two_cells() -> None:
    assert width_of("ab") == 2
    assert width_of("漢字") == 4
    assert width_of("e\u0301") == 1
