"""`flow run --dry-run`: the plan, what is cached, what would be asked, and the last cost and time. Starts nothing."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

TEXT = """# Plan

## Inputs

### word

A word.

- type: string

## Steps

### fetch

Cached.

- type: shell
- command: echo ${word} >> log.txt; echo ${word}
- cache: true

### use

Cached too, from a value that is known.

- type: shell
- command: echo "use ${fetch.stdout}"
- cache: true

### decide

Chooses.

- type: condition
- expression: ${use.stdout} contains 'x'
- next: {yes: push, no: ask}

### push

Asks by itself.

- type: shell
- command: git push origin HEAD
- next: end

### ask

Asks.

- type: approval
- message: Go?

### rounds

Repeats.

- type: group
- loop: {max_iterations: 2}

#### inner

Asks first.

- type: shell
- command: echo inner
- approval: required
"""


def write(desk: Any, text: str = TEXT) -> None:
    (desk.project / "test.flow.md").write_text(text)


def plan(said: Any) -> dict[str, str]:
    """Step -> what is said about it."""
    found = re.findall(r"^ +[→·] (\S+) \(\S+\)(?: · )?(.*)$", said.out, re.MULTILINE)
    return dict(found)


async def test_the_plan_is_printed_and_nothing_is_started(desk: Any) -> None:
    write(desk)
    said = await desk.leadrope("flow", "run", "test", "word=tea", "--dry-run")
    assert said.code == 0, said.err
    told = plan(said)
    assert [*told] == ["fetch", "use", "decide", "push", "ask", "rounds", "inner"]
    assert said.out.splitlines()[0] == "Plan · 6 steps · nothing is started"
    assert said.out.splitlines()[-1] == "last execution: none"
    assert told["fetch"] == ""
    assert told["push"].startswith("if decide chooses yes · the policy asks about its command: ")
    assert told["ask"] == "if decide chooses no · asks a person: Go?"
    assert told["inner"] == "asks a person before it starts"
    assert not (desk.project / "log.txt").exists()
    assert (await desk.leadrope("flow", "history", "-o", "json")).out == ""


async def test_what_is_cached_and_the_last_cost_and_time_are_told(desk: Any) -> None:
    write(desk)
    assert (await desk.leadrope("flow", "run", "test", "word=tea")).code == 4
    told = plan(await desk.leadrope("flow", "run", "test", "word=tea", "--dry-run"))
    assert (told["fetch"], told["use"]) == ("from the cache", "from the cache")
    assert re.fullmatch(r"last time \d.*s", told["decide"])
    for options in (("word=coffee",), ("word=tea", "--no-cache")):
        told = plan(await desk.leadrope("flow", "run", "test", *options, "--dry-run"))
        assert "from the cache" not in (told["fetch"], told["use"])
    said = await desk.leadrope("flow", "run", "test", "word=tea", "--dry-run", "--auto-approve", "ask", "-o", "json")
    found = json.loads(said.out)
    steps = {step["id"]: step for step in found["steps"]}
    assert steps["fetch"]["is_cached"] is True
    assert steps["ask"]["asks"] == ["approved by --auto-approve"]
    assert steps["decide"]["last_state"] == "succeeded"
    assert found["last"]["outcome"] == "waiting"
    assert (desk.project / "log.txt").read_text() == "tea\n"


async def test_a_part_is_planned_as_a_part(desk: Any) -> None:
    write(desk)
    await desk.leadrope("flow", "run", "test", "word=tea")
    told = plan(await desk.leadrope("flow", "run", "test", "word=tea", "--dry-run", "--from", "decide"))
    assert (told["fetch"], told["use"]) == ("not run", "not run")
    assert "not run" not in told["decide"]
    told = plan(await desk.leadrope("flow", "run", "test", "word=tea", "--dry-run", "--only", "use"))
    assert [name for name, about in told.items() if not about.startswith("not run")] == ["use"]


async def test_what_the_file_asks_for_is_told_and_not_asked(desk: Any) -> None:
    other = desk.home / "notes"
    other.mkdir()
    write(desk, TEXT + f"\n## Settings\n\n- folders: [{other}]\n")
    said = await desk.leadrope("flow", "run", "test", "word=tea", "--dry-run")
    assert (said.code, f"asks you to allow: folder {other}" in said.out) == (0, True), said.err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("word=x", "--detach"), "--dry-run was given with --detach"),
        (("word=x", "-o", "stream-json"), "--dry-run was given with -o stream-json"),
        ((), "word"),
        (("word=x", "--auto-approve", "fetch"), "does not ask a person"),
    ],
)
async def test_mistakes_are_told_as_in_a_run(desk: Any, options: tuple[str, ...], told: str) -> None:
    write(desk)
    said = await desk.leadrope("flow", "run", "test", "--dry-run", *options)
    assert (said.code, told in said.err) == (2, True)
    if "stream-json" in options:
        (last,) = said.out.splitlines()
        assert json.loads(last)["event"]["error"]["message"] == told, "whoever reads JSON gets the reason there too"
    else:
        assert said.out == ""
