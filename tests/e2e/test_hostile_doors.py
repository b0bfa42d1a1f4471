"""Every command that reads, writes or deletes where an agent can write, with every trick in the place it uses.

Nothing outside of the agent's folders is changed, nothing of it turns up anywhere, and every command ends: for root,
for a user without any rights, and for root in the workspace of a user. The table of commands is tests/aids/doors.py,
that of tricks tests/aids/hostile_folders.py. `make test` tries every command once, for one identity, `make soak` every
command with every trick for each identity, and LEADROPE_FAULT_COUNT=200 that in every place.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import click
import pytest

import no_doors
from door_workflows import STEPS
from doors import DOORS, Door, Place
from hostile_folders import CASES, Case
from leadrope.cli.lazy import LazyGroup
from leadrope.cli.main import COMMANDS
from leadrope.workflows.steps.registry import KINDS
from machine import Identity, Machine

ROOT = os.geteuid() == 0
IDENTITIES: tuple[Identity, ...] = ("root", "user", "root for user") if ROOT else ("user",)
PARTS = 2
SOAK, EVERYTHING = 50, 200

pytestmark = pytest.mark.skipif(
    shutil.which("bwrap") is None and os.environ.get("CI", "").lower() != "true", reason="bubblewrap is not installed"
)


def combinations(identity: Identity, fault_count: int) -> list[tuple[Door, Place, Case]]:
    """Every command with every trick in every place, or in one place, or every command once."""
    if fault_count >= EVERYTHING:
        return [combination for row in _rows(identity) for tricks in row for combination in tricks]
    turn = IDENTITIES.index(identity)
    found: list[tuple[Door, Place, Case]] = []
    for number, row in enumerate(_rows(identity)):
        if fault_count < SOAK and number % len(IDENTITIES) != turn:
            continue  # another identity has this command
        chosen = row if fault_count >= SOAK else [row[(7 * number + turn) % len(row)]]
        # Of the places that a trick fits into each is taken in turn, and every identity begins with another one.
        found += [places[(number + turn + order) % len(places)] for order, places in enumerate(chosen)]
    return found


def _rows(identity: Identity) -> Iterator[list[list[tuple[Door, Place, Case]]]]:
    """For each command, and each trick that fits: the places that it fits into."""
    for door in DOORS:
        fitting = [
            [(door, place, case) for place in door.places if place.kind in case.for_kinds and _fits(door, place, case)]
            for case in CASES
            if not (case.needs_root and identity == "user")
        ]
        yield [places for places in fitting if places]


def _fits(door: Door, place: Place, case: Case) -> bool:
    """Nothing is exchanged in an agent's own folder while that agent works without a sandbox.

    The agent would follow the link itself, and only a process outside of any sandbox can exchange something there.
    """
    is_exchanged = case.swaps and place.path.startswith("{session}")
    if door.has_agent:  # in a sandbox then; see `Machine.tried`
        return not (is_exchanged and place.path == "{session}/config")
    return not (is_exchanged and door.is_background)


def problems(answer: dict[str, Any]) -> list[str]:
    found = [f"changed {change}" for change in answer["changes"]]
    found += [f"leaked to {place}" for place in answer["leaks"]]
    if answer["code"] is None:
        found.append("did not end")
    found += [answer[stream][-2000:] for stream in ("out", "err") if "Traceback (most recent call" in answer[stream]]
    return found


@pytest.mark.fault
@pytest.mark.timeout(6 * 3600)
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


def test_no_resumed_agent_is_led_out_by_links_of_an_earlier_one(
    claude: str, shown_to_all: Callable[..., list[str]]
) -> None:
    """These runs have no sandbox, as the first one had none, and the agent itself follows links in its own folder."""
    names = ("run --resume", "run --continue", "runs resume", "chat --resume")
    place = Place("{session}/config/projects/{project}", "folder", "{session}/config")
    with Machine(IDENTITIES[0], claude, shown_to_all) as machine:
        for door in (door for door in DOORS if door.name in names):
            for case in ("link", "chain of links"):
                assert problems(machine.tried(door, place, case)) == [], (door.name, case)


def test_a_folder_that_its_user_may_not_read_is_refused_in_words(
    claude: str, shown_to_all: Callable[..., list[str]]
) -> None:
    """Never a traceback, and never a run without its sandbox: an agent can take that right away."""
    folders = {"run --add-dir": "given/more", "run --add-dir in a sandbox": "given/more", "run -C": "sub"}
    with Machine("user", claude, shown_to_all) as machine:
        for door in (door for door in DOORS if door.name in folders):
            place = Place("{ws}/" + folders[door.name], "folder", "{ws}")
            answer = machine.tried(door, place, "unreadable")
            assert (answer["code"], problems(answer)) == (2, []), answer
            assert "you may not read it" in answer["err"]


def leaves(command: click.Command, *path: str) -> Iterator[tuple[str, click.Command]]:
    """Every command that can be called, by its words."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from leaves(below, *path, name)
    else:
        yield " ".join(path), command


EVERY = dict(leaves(LazyGroup(COMMANDS, name="leadrope")))


def called(door: Door) -> str:
    return next(name for count in (2, 1) if (name := " ".join(door.args[:count])) in EVERY)


def test_every_command_is_in_the_table_or_touches_no_folder_of_an_agent() -> None:
    """A new command belongs into tests/aids/doors.py, or with its reason into tests/aids/no_doors.py."""
    named = {called(door) for door in DOORS}
    # `export` is `runs export` under a shorter name.
    aliases = {name for name, command in EVERY.items() if any(command is EVERY[other] for other in named)}
    assert set(EVERY) - named - aliases == set(no_doors.COMMANDS)
    assert not named & set(no_doors.COMMANDS)


def test_every_option_that_names_a_file_is_in_the_table() -> None:
    words = {word.partition("=")[0] for door in DOORS for word in door.args}
    missing = {
        option.opts[0]
        for command in EVERY.values()
        for option in command.params
        if isinstance(option, click.Option) and _names_a_file(option) and not words & set(option.opts)
    }
    assert missing == set()


def _names_a_file(option: click.Option) -> bool:
    shown = f"{option.metavar or ''} {option.type.name}".upper()
    return any(word in shown for word in ("FILE", "DIR", "FOLDER", "PATH", "OUT"))


def test_every_kind_of_step_is_in_the_table_or_touches_no_folder_of_an_agent() -> None:
    tried = {kind for kind, _ in STEPS.values()} | {"save-dataset"}
    assert {door.name for door in DOORS} >= {f"step {name}" for name in STEPS}
    assert set(KINDS) - tried == set(no_doors.STEPS)
    assert not tried & set(no_doors.STEPS)


def test_every_command_is_tried_once_in_every_run() -> None:
    chosen = [door.name for identity in IDENTITIES for door, _, _ in combinations(identity, 5)]
    assert sorted(chosen) == sorted(door.name for door in DOORS)


def test_every_trick_is_tried_in_every_run() -> None:
    chosen = [case.name for identity in IDENTITIES for _, _, case in combinations(identity, 5)]
    assert set(chosen) == {case.name for case in CASES if ROOT or not case.needs_root}


@pytest.mark.parametrize("identity", IDENTITIES)
def test_each_identity_tries_every_command_with_every_trick_in_the_soak(identity: Identity) -> None:
    """But for devices, which only root can make, and tricks that are for files where a command uses none."""
    chosen = [(door.name, case.name) for door, _, case in combinations(identity, SOAK)]
    kinds = {door.name: {place.kind for place in door.places} for door in DOORS}
    every = {
        (door.name, case.name)
        for door in DOORS
        for case in CASES
        if not (case.needs_root and identity == "user") and kinds[door.name] & case.for_kinds
    }
    assert len(chosen) == len(set(chosen))
    assert set(chosen) == every
