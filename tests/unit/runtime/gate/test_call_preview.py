"""What a person sees of a call before approving it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadrope.runtime.gate.call_preview import LEAST_ROWS, MOST_BYTES, Present, fit, look_at, parts, preview

EDIT = {"file_path": "/w/a.py", "old_string": "x = 1", "new_string": "x = 2"}


@pytest.mark.parametrize(
    ("name", "input_", "before", "shown"),
    [
        ("Bash", {"command": "make\ntest"}, None, "make\ntest"),
        ("Edit", EDIT, None, "/w/a.py\n@@ -1 +1 @@\n-x = 1\n+x = 2"),
        ("Edit", EDIT | {"replace_all": True}, None, "/w/a.py\nevery occurrence:\n@@ -1 +1 @@\n-x = 1\n+x = 2"),
        ("Edit", EDIT | {"other": "z"}, None, "/w/a.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\nother: z"),
        ("Edit", EDIT | {"old_string": ""}, None, "/w/a.py\n+x = 2"),
        ("Edit", EDIT | {"new_string": "x = 1"}, None, "/w/a.py\n(no change)"),
        ("Edit", EDIT | {"new_string": "x\u202e"}, None, "/w/a.py\n@@ -1 +1 @@\n-x = 1\n+x<U+202E>"),
        ("Edit", EDIT | {"new_string": 3}, None, "file_path: /w/a.py\nold_string: x = 1\nnew_string: 3"),
        ("Edit", EDIT, "1\n2\n3\n4\nx = 1;\n6\n", "/w/a.py\n@@ -2,5 +2,5 @@\n 2\n 3\n 4\n-x = 1;\n+x = 2;\n 6"),
        ("Edit", EDIT, "x = 1", "/w/a.py\n@@ -1 +1 @@\n-x = 1\n+x = 2"),
        ("Edit", EDIT, "x = 1\nx = 1\n", "/w/a.py\n@@ -1 +1 @@\n-x = 1\n+x = 2"),
        ("Edit", EDIT, "another text", "/w/a.py\n@@ -1 +1 @@\n-x = 1\n+x = 2"),
        ("Write", {"file_path": "/w/a", "content": "a\nb"}, None, "/w/a (new file)\n+a\n+b"),
        ("Write", {"file_path": "/w/a", "content": "a\nb\n"}, None, "/w/a (new file)\n+a\n+b"),
        ("Write", {"file_path": "/w/a", "content": "a"}, "a\n", "/w/a\n(only the end of the last line changes)"),
        ("Write", {"file_path": "/w/a", "content": "a\nb"}, "a\nc", "/w/a\n@@ -1,2 +1,2 @@\n a\n-c\n+b"),
        ("MultiEdit", {"file_path": "/w/a", "edits": [EDIT]}, None, None),
        ("MultiEdit", {"file_path": "/w/a", "edits": "no"}, None, "file_path: /w/a\nedits: no"),
        ("NotebookEdit", {"notebook_path": "/w/n", "new_source": "1"}, None, "/w/n\n+1"),
        ("WebFetch", {"url": "https://a.b/"}, None, "url: https://a.b/"),
    ],
)
def test_preview(name: str, input_: dict[str, Any], before: str | None, shown: str | None) -> None:
    found = preview(name, input_, lambda _: Present() if before is None else Present(before, ""))
    if shown is None:
        # An edit of a list that holds more than texts to replace is shown as it came.
        assert "old_string" in found
        assert "file_path" in found
    else:
        assert found == shown


def test_several_edits_are_shown_one_after_another() -> None:
    edits = [{"old_string": "a", "new_string": "b"}, {"old_string": "c", "new_string": "d", "replace_all": True}]
    found = preview("MultiEdit", {"file_path": "/w/a", "edits": edits})
    assert found == "/w/a\n@@ -1 +1 @@\n-a\n+b\nevery occurrence:\n@@ -1 +1 @@\n-c\n+d"


def test_an_edit_is_shown_with_the_lines_around_it_and_their_numbers() -> None:
    text = "".join(f"line {number}\n" for number in range(1, 101))
    edits = [{"old_string": "line 50\nline 51", "new_string": "L"}, {"old_string": "line 9\n", "new_string": ""}]
    found = preview("MultiEdit", {"file_path": "/w/a", "edits": edits}, lambda _: Present(text, ""))
    around = " line 47\n line 48\n line 49\n-line 50\n-line 51\n+L\n line 52\n line 53\n line 54"
    second = "@@ -6,7 +6,6 @@\n line 6\n line 7\n line 8\n-line 9\n line 10\n line 11\n line 12"
    assert found == f"/w/a\n@@ -47,8 +47,7 @@\n{around}\n{second}"


def test_what_an_agent_left_under_the_name_is_neither_followed_nor_waited_for(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "large").write_bytes(b"x" * (MOST_BYTES + 1))
    assert look_at(str(tmp_path / "secret")) == Present("secret", "")
    assert look_at(str(tmp_path / "missing")) == Present(None, "new file")
    assert look_at("missing") == look_at("/a\0b") == Present(None, "")
    for name, why in (("link", "a link"), ("fifo", "not a regular file"), ("", "not a regular file")):
        found = look_at(str(tmp_path / name))
        assert (found.text, why in found.note) == (None, True)
    shown = preview("Write", {"file_path": str(tmp_path / "large"), "content": "x"})
    assert "what is there now is larger than 262144 bytes" in shown, "a file that is there is never called new"


def test_what_stands_beside_a_command_is_a_part_of_its_own() -> None:
    assert parts("Bash", {"command": "make", "description": "d"}) == ("make", "description: d")
    assert parts("Bash", {"command": "make"}) == ("make", "")
    assert parts("mcp__a__b", {"x": 1}) == ("x: 1", "")


@given(st.text(max_size=4000), st.integers(1, 60), st.integers(1, 120))
def test_what_is_fitted_has_its_end_and_fills_no_more_than_the_screen(text: str, rows: int, columns: int) -> None:
    found = fit(text, rows=rows, columns=columns)
    if not found.hidden:
        assert found.lines == text.split("\n")
        return
    assert len(found.lines) <= max(rows, LEAST_ROWS)
    last = text.rsplit("\n", maxsplit=1)[-1]
    assert last.endswith(found.lines[-1])
    assert "not shown" in "".join(found.lines)
