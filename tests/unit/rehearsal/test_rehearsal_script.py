"""A script is read from YAML or values, and a bad one is refused with the place of the mistake."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from leadrope import rehearsal
from leadrope.rehearsal.executable import load_agent
from leadrope.rehearsal.script import AnswerBlock, BadScript, blocks_of, load

BOMB = "a: &a [x]\n" + "".join(f"{to}: &{to} [{', '.join([f'*{of}'] * 10)}]\n" for of, to in pairwise("abcdefgh"))
BAD: list[tuple[str, Any, str, str]] = [
    ("no mapping", "just words", "script", "must be a mapping"),
    ("unknown key", {"turn": []}, "script", "unknown field `turn`"),
    ("turns no list", {"turns": {"text": "x"}}, "turns", "expected `array`"),
    ("tool without name", [{"text": "x"}, {"text": "x"}, {"tool": {"input": {}}}], "turns[2].tool", "`name`"),
    ("tool name no text", [{"tool": {"name": 1}}], "turns[0].tool.name", "expected `str`"),
    ("tool name empty", [{"tool": {"name": ""}}], "turns[0].tool.name", "empty"),
    ("unknown key in a turn", [{"txt": "x"}], "turns[0]", "unknown field `txt`"),
    ("says nothing", [{"usage": {"input_tokens": 1}}], "turns[0]", "says nothing"),
    ("text and size", [{"text": "x", "size": 3}], "turns[0]", "text and size"),
    ("tool and tools", [{"tool": {"name": "A"}, "tools": [{"name": "B"}]}], "turns[0]", "tool and tools"),
    ("blocks and text", [{"text": "x", "blocks": [{"text": "y"}]}], "turns[0]", "blocks"),
    ("a block of two", [{"blocks": [{"text": "x", "thinking": "y"}]}], "turns[0].blocks[0]", "exactly one"),
    ("empty but speaking", [{"text": "x", "empty": True}], "turns[0].empty", "empty"),
    ("error beside text", [{"text": "x", "error": {"status": 400}}], "turns[0].error", "turn of its own"),
    ("error that is none", [{"error": {"status": 200}}], "turns[0].error.status", "200"),
    ("two endings", [{"text": "x", "cut": True, "hang": "mid_stream"}], "turns[0]", "cut and hang"),
    ("unknown hang", [{"hang": "now"}], "turns[0].hang", "now"),
    ("repeat of zero", [{"text": "x", "repeat": 0}], "turns[0].repeat", "0"),
    ("unreachable", [{"text": "x", "repeat": "forever"}, {"text": "y"}], "turns[1]", "never be reached"),
    ("drip of nothing", [{"text": "x", "drip": {"chunk": 0}}], "turns[0].drip.chunk", "0"),
    ("drip backwards", [{"text": "x", "drip": {"every_ms": -1}}], "turns[0].drip.every_ms", "negative"),
    ("a branch that says nothing", [{"text": "x", "if_error": {}}], "turns[0].if_error", "says nothing"),
    ("subagent's turn", {"subagents": [[{"text": "x"}], [{}]]}, "subagents[1][0]", "says nothing"),
    ("variable not given", [{"text": "in {{cwd}}"}], "turns[0].text", "{{cwd}}"),
    ("too large", [{"size": 10**12}], "turns[0].size", "out of range"),
    ("key written twice", "turns:\n  - text: a\n    text: b\n", "script, line 3, column 5", "twice"),
    ("no YAML", "turns: [", "script, line 1, column 9", "expected"),
    ("too deep", "[" * 100_000, "script, line 1, column 102", "100 deep"),
    ("without an end", "- tool: {name: A, input: &a {b: *a}}", "script, line 1, column 33", "*a stands inside itself"),
    ("an alias of an alias of …", BOMB, "script, line 7, column 20", "more than 1000000 values"),
    ("a character that YAML does not take", "text: \0", "script, line 1, column 7", "unacceptable character"),
]


@pytest.mark.parametrize(("source", "place", "words"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_a_bad_script_is_refused_with_the_place(source: Any, place: str, words: str) -> None:
    with pytest.raises(BadScript) as caught:
        load(source)
    assert caught.value.field == place
    assert words in caught.value.message


def test_yaml_gives_what_json_can_carry() -> None:
    """Dates would fail where the tool's input is written, and aliases are what they stand for."""
    text = (
        "- tool: {name: A, input: {day: 2026-11-15, at: 2026-11-15 10:00:00, same: [&x {y: 1}, *x, {<<: *x, z: yes}]}}"
    )
    (turn,) = load(text).turns
    assert turn.tool is not None
    assert turn.tool.input == {
        "day": "2026-11-15",
        "at": "2026-11-15 10:00:00",
        "same": [{"y": 1}, {"y": 1}, {"y": 1, "z": True}],
    }
    step = "- tool_use: {tool: A, id: t, input: {day: 2026-11-15}}"
    assert load_agent(step)["steps"] == [{"tool_use": {"tool": "A", "id": "t", "input": {"day": "2026-11-15"}}}]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadScript, match=r"none\.yaml: cannot be read"):
        load(tmp_path / "none.yaml")


def test_yaml_file_yaml_text_and_values_give_the_same_script(tmp_path: Path) -> None:
    text = (
        "turns:\n  - {text: hi, usage: {input_tokens: 5_000}}\n  - {error: {status: 429, headers: {retry-after: 1}}}\n"
    )
    path = tmp_path / "script.yaml"
    path.write_text(text)
    values = [
        {"text": "hi", "usage": {"input_tokens": 5000}},
        {"error": {"status": 429, "headers": {"retry-after": 1}}},
    ]
    assert load(text) == load(path) == load(values) == load({"turns": values})
    assert load(load(text)) == load(text)


def test_without_explicit_blocks_the_order_is_thinking_text_tools() -> None:
    (turn,) = load([{"tools": [{"name": "A"}, {"name": "B"}], "text": "t", "thinking": "h"}]).turns
    kinds = [block.thinking or block.text or (block.tool and block.tool.name) for block in blocks_of(turn)]
    assert kinds == ["h", "t", "A", "B"]


def test_explicit_blocks_keep_their_order() -> None:
    (turn,) = load([{"blocks": [{"tool": {"name": "A"}}, {"text": "t"}]}]).turns
    assert blocks_of(turn)[1] == AnswerBlock(text="t")


def test_a_size_gives_a_text_of_that_many_characters() -> None:
    (turn,) = load("turns:\n  - size: 5_000_000\n").turns
    (block,) = blocks_of(turn)
    assert len(block.text or "") == 5_000_000


def test_variables_are_filled_in_everywhere() -> None:
    script = load([{"tool": {"name": "Read", "input": {"paths": ["{{ cwd }}/a"]}}}], variables={"cwd": "/w"})
    assert script.turns[0].tool is not None
    assert script.turns[0].tool.input == {"paths": ["/w/a"]}


def test_short_forms() -> None:
    (turn,) = load([{"text": "x", "if_error": "no", "sse_error": True, "drip": True}]).turns
    assert turn.if_error is not None
    assert turn.if_error.text == "no"
    assert turn.sse_error is not None
    assert turn.drip is not None


def test_the_demo_is_a_good_script() -> None:
    path = Path(rehearsal.__file__).parent / "demo.yaml"
    script = load(path, variables={"cwd": "/repo"})
    assert [turn.tool.name for turn in script.turns if turn.tool] == ["Read", "Edit", "Bash"]
    assert all(turn.if_error is not None for turn in script.turns[1:])


def test_every_public_name_can_be_had() -> None:
    assert {name: getattr(rehearsal, name) for name in rehearsal.__all__}
    with pytest.raises(AttributeError, match="nothing_here"):
        _ = rehearsal.nothing_here
