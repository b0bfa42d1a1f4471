"""Text of others on our terminal: nothing acts, nothing hides."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadrope.core.tools import ToolCall
from leadrope.runtime.terminal_text import clean, describe, exact, one_line, relative, whole_input


@pytest.mark.parametrize(
    ("text", "cleaned", "written_out"),
    [
        ("plain\ttext\n", "plain\ttext\n", "plain\ttext\n"),
        ("\x1b[31mred\x1b[0m", "red", "<U+001B>[31mred<U+001B>[0m"),
        ("\x1b]52;c;ZXZpbA==\x07x", "x", "<U+001B>]52;c;ZXZpbA==<U+0007>x"),
        ("\x1b]8;;http://evil\x1b\\link", "link", "<U+001B>]8;;http://evil<U+001B>\\link"),
        ("\x9b2Jx", "x", "<U+009B>2Jx"),
        ("a\rb", "ab", "a<U+000D>b"),
        ("a\r\nb", "a\nb", "a<U+000D>\nb"),
        ("rm \u202egnp.\u202c", "rm gnp.", "rm <U+202E>gnp.<U+202C>"),
        ("ze\u200bro", "zero", "ze<U+200B>ro"),
        ("tag\U000e0041", "tag", "tag<U+E0041>"),
        ("half \x1b[", "half ", "half <U+001B>["),
        ("Grüße 日本 ✓ 🙂", "Grüße 日本 ✓ 🙂", "Grüße 日本 ✓ 🙂"),
    ],
)
def test_clean_removes_and_exact_writes_out(text: str, cleaned: str, written_out: str) -> None:
    assert clean(text) == cleaned
    assert exact(text) == written_out


@given(st.text())
def test_no_control_and_no_reordering_character_is_left(text: str) -> None:
    for shown in (clean(text), exact(text)):
        for char in shown:
            assert char in "\t\n" or unicodedata.category(char) not in ("Cc", "Cs")
            assert unicodedata.bidirectional(char) not in (
                "LRE",
                "RLE",
                "LRO",
                "RLO",
                "PDF",
                "LRI",
                "RLI",
                "FSI",
                "PDI",
            )


@pytest.mark.parametrize(
    ("name", "input_", "words"),
    [
        ("Bash", {"command": "make test", "description": "Run the tests"}, "make test"),
        ("Bash", {"command": "a &&\n  b"}, "a && b"),
        ("Edit", {"file_path": "/w/a/b.py", "old_string": "x"}, "a/b.py"),
        ("Read", {"file_path": "/other/b.py"}, "/other/b.py"),
        ("Grep", {"pattern": "TODO", "path": "/w/src"}, "TODO in src"),
        ("Glob", {"pattern": "**/*.py"}, "**/*.py"),
        ("WebFetch", {"url": "https://x.y", "prompt": "p"}, "https://x.y"),
        ("Agent", {"description": "look", "prompt": "long"}, "look"),
        ("mcp__s__t", {"n": 1}, '{"n":1}'),
        ("TaskList", {}, ""),
        ("Bash", {"command": "x" * 50}, "x" * 39 + "…"),
        ("Bash", {"command": "a\u202eb"}, "a<U+202E>b"),
    ],
)
def test_a_call_in_a_few_words(name: str, input_: dict[str, Any], words: str) -> None:
    assert describe(ToolCall(id="i", name=name, input=input_), cwd="/w", width=40) == words


def test_a_path_beside_the_folder_is_not_inside_it() -> None:
    assert relative("/work/x", "/w") == "/work/x"
    assert relative("/w", "/w") == "/w"
    assert one_line(" a \n b ", 10) == "a b"


def test_the_whole_input_leaves_nothing_out_and_no_value_passes_for_a_field() -> None:
    shown = whole_input({"command": "ls", "timeout": 5, "run_in_background": True, "note": "x\ncommand: rm -rf /"})
    assert shown == "ls\ntimeout: 5\nrun_in_background: true\nnote:\n    x\n    command: rm -rf /"
    assert whole_input({}) == "(no input)"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("curl p\u0430ypal.com", "curl p<U+0430>ypal.com"),
        ("rm \uff0drf", "rm <U+FF0D>rf"),
        ("echo \u043f\u0440\u0438\u0432\u0435\u0442", "echo \u043f\u0440\u0438\u0432\u0435\u0442"),
        ("caf\u00e9 \u65e5\u672c", "caf\u00e9 \u65e5\u672c"),
        ("/home/\u0438\u0432\u0430\u043d/app.py", "/home/\u0438\u0432\u0430\u043d/app.py"),
        ("goog\u217ce.com", "goog<U+217C>e.com"),
        ("\u0261it push", "<U+0261>it push"),
        ("\ua4e1ogin.com", "<U+A4E1>ogin.com"),
        ("curl a.com\u2044b", "curl a.com<U+2044>b"),
        ("rm \u2212rf x", "rm <U+2212>rf x"),
        ('rm "\u2013rf"', 'rm "<U+2013>rf"'),
        ("rm\u00a0-rf x", "rm<U+00A0>-rf x"),
        ("rm\u3000-rf", "rm<U+3000>-rf"),
        ("rm\ufe0f x", "rm<U+FE0F> x"),
        # Nobody is deceived by these, and somebody writes them every day.
        ("London\u2013Paris \u2014 a", "London\u2013Paris \u2014 a"),
        ("\u65e5\u672c\u3000\u8a9e \u2764\ufe0f", "\u65e5\u672c\u3000\u8a9e \u2764\ufe0f"),
        ("\u043c\u0438\u0440\u200b \u043c\u0438\u0440", "\u043c\u0438\u0440<U+200B> \u043c\u0438\u0440"),
    ],
)
def test_letters_that_only_look_latin_are_marked(text: str, shown: str) -> None:
    assert exact(text) == shown
