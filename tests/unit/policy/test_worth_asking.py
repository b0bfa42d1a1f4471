"""Entries that are left out because they speak of other programs would not have matched."""

from __future__ import annotations

import pytest

from leadrope import errors
from leadrope.core.tools import ToolCall
from leadrope.policy import patterns
from leadrope.policy.call_analysis import Look
from leadrope.policy.files import defaults
from leadrope.policy.paths import Ground
from leadrope.policy.programs import wrappers
from leadrope.policy.rules import BY_NAME

SHIPPED = tuple(
    entry
    for rule in ("blocked_commands", "require_approval")
    for entry in getattr(defaults.rules(), BY_NAME[rule].field)
)
WRAPPED = tuple(f"{name.split()[0]} evil" for name in wrappers._WRAPPERS)  # all that there are
OTHERS = (
    "time evil",
    "/usr/bin/evil",
    "./evil",
    "evil -x",
    "'evil' y",
    "text:evil",
    "Bash",
    "Bash(evil *)",
    "Write",
    "mcp__server",
    "X=1 evil",
)
LINES = (
    "evil",
    "evil -x y",
    "sudo evil",
    "/bin/../usr/bin/evil y",
    "X=1 evil",
    "time evil",
    "$what evil",
    "nohup env -i evil && rm -rf build",
    "git push origin main | tee log",
    "npm run deploy; docker compose rm -f",
    "echo hi",
    "eval evil",
    "if true; then evil; fi",
)


def look_at(name: str, given: dict[str, str]) -> Look:
    return Look(ToolCall(id="1", name=name, input=given), Ground(("/ws",), home="/home/me"))


def matches(entry: str, look: Look) -> str:
    if patterns.is_tool_pattern(entry):
        return patterns.parse(entry).touches(look)
    return "no" if look.reading is None else patterns.command_touches(entry, look)


@pytest.mark.parametrize("line", LINES)
def test_what_is_left_out_would_not_match(line: str) -> None:
    entries = tuple(entry for entry in (*SHIPPED, *WRAPPED, *OTHERS) if _is_one(entry))
    look = look_at("Bash", {"command": line})
    asked = list(patterns.worth_asking(entries, look))
    assert [entry for entry in entries if entry in set(asked)] == asked
    assert [entry for entry in entries if entry not in asked and matches(entry, look) != "no"] == []


def test_most_are_left_out() -> None:
    look = look_at("Bash", {"command": "git push"})
    assert len(list(patterns.worth_asking(SHIPPED, look))) < len(SHIPPED) / 4
    write = look_at("Write", {"file_path": "/ws/a", "content": ""})
    assert list(patterns.worth_asking(("rm", "Write(src/**)", "Bash"), write)) == ["Write(src/**)", "Bash"]


def _is_one(entry: str) -> bool:
    """Some of the wrappers cannot be named like this."""
    try:
        return patterns.is_tool_pattern(entry) or bool(patterns.command(entry))
    except errors.BadValue:
        return False
