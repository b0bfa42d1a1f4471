"""Markdown for a terminal: what is styled, what is left alone, and that no piece of a stream is lost or changed."""

from __future__ import annotations

import random
import re
import time

import pytest

from leadrope.cli.screen.markdown_stream import HOLD, MarkdownStream

Shown = list[tuple[str, str]]


def shown(text: str, *sizes: int) -> Shown:
    """Each character with its style, of a text that comes in pieces of these sizes; without sizes, in one."""
    stream = MarkdownStream()
    out, at = "", 0
    for size in sizes:
        out += stream.feed(text[at : at + size])
        at += size
    out += stream.feed(text[at:]) + stream.end()
    found: Shown = []
    codes = ""
    for part in re.split(r"(\x1b\[[0-9;]*m)", out):
        if part.startswith("\x1b"):
            codes = "" if part == "\x1b[0m" else part[2:-1]
        else:
            found += [(char, codes) for char in part]
    assert codes == "", "a style is left on"
    return found


def words(text: str) -> str:
    """As a person would describe it: `<1:bold> text`."""
    told, codes = "", ""
    for char, now in shown(text):
        if now != codes:
            told += ">" * bool(codes) + (f"<{now}:" if now else "")
            codes = now
        told += char
    return told + ">" * bool(codes)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("plain text", "plain text"),
        ("# Title", "<1:# Title>"),
        ("### A `b` c\nnext", "<1:### A ><1;36:b><1: c>\nnext"),
        ("#tag and #1", "#tag and #1"),
        ("####### seven", "####### seven"),
        ("a **b** c", "a <1:b> c"),
        ("**a `b` c**", "<1:a ><1;36:b><1: c>"),
        ("**重要**です", "<1:重要>です"),
        ("2**3**4 and f(**kw) and a ** b ** c", "2**3**4 and f(**kw) and a ** b ** c"),
        ("*one* _two_ __init__", "*one* _two_ __init__"),
        ("use `x y` now", "use <36:x y> now"),
        ("``a ` b`` and ` alone", "<36:a ` b> and ` alone"),
        ("`` `a` ``", "<36:`a`>"),
        (r"\*\*not\*\* \`code\`", r"\*\*not\*\* \`code\`"),
        ("- a\n  * b **c**\n+ d\n1. e", "• a\n  • b <1:c>\n• d\n1. e"),
        ("---\n-x\n**b** c", "---\n-x\n<1:b> c"),
        ("see [the docs](https://x.y/z) now", "see <4:the docs><2: (https://x.y/z)> now"),
        ("[https://x.y](https://x.y) ![i](a.png)", "<4:https://x.y> <4:i><2: (a.png)>"),
        ("a[0] [x] (y) [b](c d) [e]()", "a[0] [x] (y) [b](c d) [e]()"),
        ("[w](https://e.org/a_(b))", "<4:w><2: (https://e.org/a_(b))>"),
        ("```py\n# **x**\n- y\n```\n**z**", "<2:```py>\n<36:# **x**>\n<36:- y>\n<2:```>\n<1:z>"),
        ("````\n```\n````\nx", "<2:````>\n<36:```>\n<2:````>\nx"),
        ("  ~~~\n  a\n  ~~~", "<2:  ~~~>\n<36:  a>\n<2:  ~~~>"),
        ("```\nnever closed", "<2:```>\n<36:never closed>"),
        ("``` not `a` fence", "``` not <36:a> fence"),
        ("| a | b |\n|---|---|\n> quote\n<b>x</b>", "| a | b |\n|---|---|\n> quote\n<b>x</b>"),
        ("**never closed", "**never closed"),
        ("[never](closed", "[never](closed"),
        ("**a\nb**", "**a\nb**"),
        ("ends with \\", "ends with \\"),
        ("#\n-\n*\n`\n!\n[", "#\n-\n*\n`\n!\n["),
    ],
)
def test_what_is_styled(text: str, told: str) -> None:
    assert words(text) == told
    for size in (1, 2, 3, 7):
        assert shown(text, *[size] * len(text)) == shown(text), f"in pieces of {size}"


def test_a_span_that_is_too_long_is_left_as_it_is_and_holds_back_nothing() -> None:
    for mark in ("**", "`", "["):
        stream = MarkdownStream()
        out = "".join(stream.feed(char) for char in f"{mark}{'x' * HOLD}y")
        assert out == f"{mark}{'x' * HOLD}y"
    fits, longer = f"**{'x' * (HOLD - 4)}**.", f"**{'x' * (HOLD - 3)}**."
    for text in (fits, longer):
        assert shown(text, *[1] * len(text)) == shown(text)
    assert words(fits).startswith("<1:x")
    assert words(longer) == longer


def test_text_is_shown_as_soon_as_it_is_known_what_it_means() -> None:
    stream = MarkdownStream()
    pieces = ("Hel", "lo **wo", "rld*", "*", "! ", "a", "\n", "- ", "x", "\n``", "`\n", "y")
    given = [re.sub(r"\x1b\[[0-9;]*m", "", stream.feed(piece)) for piece in pieces]
    assert given == ["Hel", "lo ", "", "", "world! ", "a", "\n", "• ", "x", "\n", "```\n", "y"]


def test_a_very_long_line_of_marks_takes_no_time() -> None:
    for soup in ("`", "**a ", "[", "![a](", "a``b```"):
        stream = MarkdownStream()
        began = time.process_time()
        for _ in range(200):
            stream.feed(soup * 50)
        stream.end()
        assert time.process_time() - began < 10


MARKS = ("**", "*", "`", "``", "```", "~~~", "#", "- ", "[", "](", ")", "!", "(", "_", "\\")
SOUP = (*MARKS, "\n", " ", "a", "b c", "é", "漢")


@pytest.mark.parametrize("seed", range(300))
def test_pieces_of_any_size_give_the_same_and_no_letter_is_lost(seed: int) -> None:
    """The only characters that go are marks; the rest comes in its order."""
    chance = random.Random(seed)
    text = "".join(chance.choice(SOUP) for _ in range(chance.randint(1, 120)))
    whole = shown(text)
    sizes = [chance.randint(1, 9) for _ in text]
    assert shown(text, *sizes) == whole
    assert shown(text, *[1] * len(text)) == whole

    def letters(of: str) -> str:
        return "".join(char for char in of if char.isalpha())

    assert letters("".join(char for char, _ in whole)) == letters(text)
    assert "".join(char for char, _ in whole).count("\n") == text.count("\n")
