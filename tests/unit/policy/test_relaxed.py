"""Every verdict on the old corpora that has changed is listed, and a looser one with the reason that allows it.

`verdicts_before.json` holds what was said of each line before a sandbox carried any weight: a sign (`+` allow, `?` ask,
`-` deny) for each mode, first without and then with a sandbox. It is never made anew. `verdicts_changed.toml` lists the
lines whose verdict is another one today.
"""

from __future__ import annotations

import os
import tomllib
from functools import cache
from pathlib import Path

import msgspec

from leadrope.core.request import Mode
from leadrope.core.tools import ToolCall
from leadrope.policy.decide import Facts, Policy, decide
from leadrope.policy.files import defaults
from leadrope.policy.programs.read_only import reads_only
from leadrope.policy.resolve import Layer, resolve
from leadrope.policy.shell.reader import read

DATA = Path(__file__).parents[2] / "data" / "commands"
MODES: tuple[Mode, ...] = ("plan", "default", "edit", "dontAsk", "full")
LETTERS = {"allow": "+", "ask": "?", "deny": "-"}


@cache
def before() -> dict[str, str]:
    return msgspec.json.decode((DATA / "verdicts_before.json").read_bytes(), type=dict[str, str])


@cache
def now() -> dict[str, str]:
    rules = resolve([Layer("default", defaults.rules(), True)])

    def word(mode: Mode, line: str, *, sandboxed: bool) -> str:
        policy = Policy(mode=mode, workspace=("/workspace",), rules=rules)
        call = ToolCall(id="t", name="Bash", input={"command": line})
        facts = Facts(sandboxed=sandboxed, home="/home/user", git_is_plain=True)
        return LETTERS[decide(policy, call, facts, resolve=os.path.normpath).word]

    return {
        line: "".join(word(mode, line, sandboxed=sandboxed) for mode in MODES for sandboxed in (False, True))
        for line in before()
    }


def relaxed() -> dict[str, set[str]]:
    """Reason -> the lines that it makes looser."""
    found: dict[str, set[str]] = {"reading": set(), "sandboxed_programs": set(), "known_builders": set()}
    for line in before():
        for place in _places(line, looser=True):
            mode, is_sandboxed = MODES[place // 2], place % 2 == 1
            reading = read(line)
            is_left_to_sandbox = mode == "full" and is_sandboxed and not reading.opaque
            if reads_only(reading) is not None:
                found["reading"].add(line)
            elif is_left_to_sandbox and (reading.unknown or "?" in reading.writes):
                found["sandboxed_programs"].add(line)
            else:
                found["known_builders"].add(line)
    return found


def _places(line: str, *, looser: bool) -> list[int]:
    """Which of the ten verdicts on a line are looser, or stricter, than they were."""
    signs = list(zip(before()[line], now()[line], strict=True))
    order = "+?-" if looser else "-?+"
    return [place for place, (was, is_now) in enumerate(signs) if order.index(is_now) < order.index(was)]


def test_every_looser_verdict_is_listed_with_its_reason() -> None:
    listed = tomllib.loads((DATA / "verdicts_changed.toml").read_text())["looser"]
    found = relaxed()
    assert {name: sorted(part["lines"]) for name, part in listed.items()} == {
        name: sorted(lines) for name, lines in found.items()
    }
    assert all(part["reason"] for part in listed.values())


def test_every_stricter_verdict_is_listed() -> None:
    listed = tomllib.loads((DATA / "verdicts_changed.toml").read_text())["stricter"]
    found = [line for line in before() if _places(line, looser=False)]
    assert sorted(listed["lines"]) == sorted(found)


def test_no_line_that_hides_a_program_is_looser_without_a_sandbox() -> None:
    hiding = [line for line in before() if "evil" in line]
    assert len(hiding) > 400
    assert [line for line in hiding if any(place % 2 == 0 for place in _places(line, looser=True))] == []


def test_behind_a_sandbox_only_mode_full_is_looser_for_them() -> None:
    hiding = [line for line in before() if "evil" in line]
    assert {place for line in hiding for place in _places(line, looser=True)} <= {MODES.index("full") * 2 + 1}
