"""Every command that reads, writes or deletes where an agent can write, with every trick in the place it uses.

Nothing outside of the agent's folders is changed, nothing of it turns up anywhere, and every command ends: for root,
for a user without any rights, and for root in the workspace of a user. The table of commands is tests/aids/doors.py,
that of tricks tests/aids/hostile_folders.py. `make test` tries every command once, `make soak` every command with every
trick, and LEADROPE_FAULT_COUNT=200 that in every place.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from doors import DOORS, Door, Place
from hostile_folders import CASES, Case
from machine import Identity, Machine

ROOT = os.geteuid() == 0
IDENTITIES: tuple[Identity, ...] = ("root", "user", "root for user") if ROOT else ("user",)
PARTS = 2
SOAK, EVERYTHING = 50, 200

pytestmark = pytest.mark.skipif(
    shutil.which("bwrap") is None and os.environ.get("CI", "").lower() != "true", reason="bubblewrap is not installed"
)


def combinations(identity: Identity, fault_count: int) -> list[tuple[Door, Place, Case]]:
    """All of them, or every command with every trick (an identity takes a third of these), or every command once."""
    if fault_count >= EVERYTHING:
        return [combination for row in _rows(identity) for tricks in row for combination in tricks]
    turn = IDENTITIES.index(identity)
    found: list[tuple[Door, Place, Case]] = []
    for number, row in enumerate(_rows(identity)):
        tricks = [places for places in row if (CASES.index(places[0][2]) + number) % 3 == turn]
        chosen = tricks if fault_count >= SOAK else [row[(7 * number + turn) % len(row)]]
        # Of the places that a trick fits into each is taken in turn.
        found += [places[(number + order) % len(places)] for order, places in enumerate(chosen)]
    return found


def _rows(identity: Identity) -> Iterator[list[list[tuple[Door, Place, Case]]]]:
    """For each command, and each trick that fits: the places that it fits into."""
    for door in DOORS:
        fitting = [
            [(door, place, case) for place in door.places if place.kind in case.for_kinds]
            for case in CASES
            if not (case.needs_root and identity == "user")
        ]
        yield [places for places in fitting if places]


def problems(answer: dict[str, Any]) -> list[str]:
    found = [f"changed {change}" for change in answer["changes"]]
    found += [f"leaked to {place}" for place in answer["leaks"]]
    if answer["code"] is None:
        found.append("did not end")
    if "Traceback" in answer["err"]:
        found.append(answer["err"][-2000:])
    return found


@pytest.mark.fault
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("identity", IDENTITIES)
@pytest.mark.parametrize("part", range(PARTS))
def test_no_command_is_led_astray(
    identity: Identity,
    part: int,
    claude: str,
    fault_count: int,
    shown_to_all: Callable[..., list[str]],
    record_property: Callable[[str, object], None],
) -> None:
    chosen = combinations(identity, fault_count)[part::PARTS]
    record_property("count", len(chosen))
    failed: list[str] = []
    with Machine(identity, claude, shown_to_all) as machine:
        for door, place, case in chosen:
            found = problems(machine.tried(door, place, case.name))
            failed += [f"{door.name}, {place.path}, {case.name}: {problem}" for problem in found]
    assert not failed, "\n".join(failed)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("identity", IDENTITIES)
def test_every_command_works_where_nothing_is_planted(
    identity: Identity, claude: str, fault_count: int, shown_to_all: Callable[..., list[str]]
) -> None:
    """Else the test above would show nothing."""
    step = max(1, 15 // fault_count)
    with Machine(identity, claude, shown_to_all) as machine:
        for door in itertools.islice(DOORS, IDENTITIES.index(identity) % step, None, step):
            answer = machine.tried(door)
            assert (answer["code"], problems(answer)) == (door.code, []), (door.name, answer)


def test_the_table_has_every_command_that_touches_files() -> None:
    named = {" ".join(door.args[:2]) for door in DOORS}
    assert {"runs undo", "runs diff", "runs apply", "runs discard", "runs delete", "runs prune"} <= named
    assert {f"sessions {name}" for name in ("list", "show", "export", "import", "delete")} <= named
    options = {word for door in DOORS for word in door.args if word.startswith("--")}
    assert {"--attach", "--file", "--schema", "--policy", "--mcp-config", "--resume", "--fork", "--continue"} <= options


@pytest.mark.parametrize("fault_count", [5, SOAK])
def test_the_choice_leaves_out_no_command_and_no_trick(fault_count: int) -> None:
    chosen = [each for identity in IDENTITIES for each in combinations(identity, fault_count)]
    assert {door.name for door, _, _ in chosen} == {door.name for door in DOORS}
    assert {case.name for _, _, case in chosen} == {case.name for case in CASES if ROOT or not case.needs_root}
    if fault_count == SOAK and ROOT:
        every = {(door.name, row[0][2].name) for door, rows in zip(DOORS, _rows("root"), strict=True) for row in rows}
        tried = {(door.name, case.name) for door, _, case in chosen}
        missing = {
            (door, case) for door, case in every - tried if not next(c for c in CASES if c.name == case).needs_root
        }
        assert not missing
