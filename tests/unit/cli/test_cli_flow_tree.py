"""The tree of a workflow: what runs side by side, what waits for which, what stays with a choice."""

from __future__ import annotations

from leadrope.cli.flow import tree as flow_tree
from leadrope.cli.screen.screen import Style
from leadrope.workflows import library


def tree(text: str) -> list[str]:
    """Each row with its depth as dots; a step with what it says to come after."""
    steps = []
    for line in text.strip().splitlines():
        name, *said = (part.strip() for part in line.split("|"))
        steps.append("\n".join([f"### {name}", *(f"- {one}" for one in ("type: note", *(said or ("text: x",))))]))
    told = flow_tree.rows(library.parsed("\n\n".join(steps) + "\n"))
    return [
        "." * row.depth + row.name + "".join(f" ({note})" for note in row.notes if note.startswith("after"))
        for row in told
    ]


def test_a_step_that_uses_values_of_several_ways_stands_where_these_parted() -> None:
    told = tree(
        """
        start | next: [l, m]
        l | text: l
        m | text: m
        join | text: ${l.text} ${m.text}
        tail
        """
    )
    assert told == ["start", ".side by side", "..l", "..m", "join (after l, m)", "tail"]


def test_it_says_which_of_them_it_waits_for() -> None:
    told = tree(
        """
        start | next: [a, b, c]
        a | text: x | next: []
        b | text: x
        join | text: ${a.text}
        last | text: ${a.text} ${join.text}
        c | text: x | next: []
        """
    )
    assert told == ["start", ".side by side", "..a", "..b", "..c", "join (after a, b)", "last"]


def test_several_beginnings_are_no_sequence() -> None:
    told = tree(
        """
        l | text: l | after: []
        m | text: m | after: []
        join | text: ${l.text} ${m.text}
        """
    )
    assert told == ["side by side", ".l", ".m", "join (after l, m)"]


def test_what_follows_one_of_several_ways_says_so() -> None:
    told = tree(
        """
        start | next: [l, m]
        l | text: x
        then | after: l
        m | text: x | next: []
        """
    )
    assert told == ["start", ".side by side", "..l", "..then (after l)", "..m"]


def test_a_step_beside_those_that_it_waits_for_is_not_called_so() -> None:
    told = tree(
        """
        start | next: [join, l, m]
        join | text: ${l.text} | next: []
        l | text: x | next: []
        m | text: x | next: []
        """
    )
    assert told == ["start", ".side by side", "..l", "..m", "join (after start, l)"]
    assert tree("start | next: [join, l]\njoin | text: ${l.text} | next: []\nl | text: x | next: []") == [
        "start",
        "l",
        "join (after start, l)",
    ]


def test_what_is_done_by_a_choice_stays_with_it_whatever_it_uses() -> None:
    told = tree(
        """
        beside | text: x | after: []
        ask | type: condition | after: [] | next: {yes: a, no: b}
        a | text: ${beside.text} | next: []
        b | text: x
        c | text: ${a.text ?? "none"} ${beside.text}
        """
    )
    assert told == ["side by side", ".beside", ".ask", "..yes", "...a", "..no", "...b", "...c"]


def test_the_steps_of_a_group_stand_below_it() -> None:
    text = """### start
- type: note

### rounds
- type: group
- loop: {until: "${read.text} == 'x'", wait: 5, max_seconds: 60}

#### write
- type: note

#### choose
- type: switch
- cases: {a: "${write.text} == 'a'"}
- next: {a: read, else: end}

#### read
- type: note

### after
- type: note
"""
    style = Style(enabled=False)
    shown = [line.rstrip() for line in flow_tree.lines(library.parsed(text), width=100, style=style)]
    assert shown[shown.index("steps") + 1 :] == [
        "  ├─ start          note",
        "  ├─ rounds         group",
        "  │  │ again until ${read.text} == 'x', 5 s apart, at most 10 times or 60 s",
        "  │  ├─ write       note",
        "  │  └─ choose      switch",
        "  │     └─ a",
        "  │        └─ read  note",
        "  └─ after          note",
    ]
