"""Every command that reads, writes or deletes where an agent can write, with every trick in the place it uses.

Nothing outside of the agent's folders is changed, nothing of it turns up anywhere, and every command ends: for root,
for a user without any rights, and for root in the workspace of a user. The table of commands is tests/aids/doors.py,
that of tricks tests/aids/hostile_folders.py. `make test` takes one combination in 40, `make soak` one in four, and
LEADROPE_FAULT_COUNT=200 all of them.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from doors import DOORS, Door, Place
from hostile_folders import CASES, Case
from machine import Identity, Machine

ROOT = os.geteuid() == 0
IDENTITIES: tuple[Identity, ...] = ("root", "user", "root for user") if ROOT else ("user",)
PARTS = 2

pytestmark = pytest.mark.skipif(
    shutil.which("bwrap") is None and os.environ.get("CI", "").lower() != "true", reason="bubblewrap is not installed"
)


def combinations(identity: Identity, step: int) -> list[tuple[Door, Place, Case]]:
    """One in `step`, drawn in the same way every time."""
    found = [
        (door, place, case)
        for door in DOORS
        for place in door.places
        for case in CASES
        if place.kind in case.for_kinds and not (case.needs_root and identity == "user")
    ]
    return random.Random(identity).sample(found, len(found) // step)


def problems(answer: dict[str, Any]) -> list[str]:
    found = [f"changed {change}" for change in answer["changes"]]
    found += [f"leaked to {place}" for place in answer["leaks"]]
    if answer["code"] is None:
        found.append("did not end")
    if "Traceback" in answer["err"]:
        found.append(answer["err"][-2000:])
    return found


@pytest.mark.fault
@pytest.mark.timeout(900)
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
    chosen = combinations(identity, max(1, 200 // fault_count))[part::PARTS]
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
