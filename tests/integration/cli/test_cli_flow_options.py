"""Options of `flow run` that change what an execution does, each from the outside."""

from __future__ import annotations

import json
from typing import Any

import pytest

CACHED = """## Steps

### once

Appends a line.

- type: shell
- command: echo done >> log.txt; wc -l < log.txt
- cache: true

## Outputs

### lines

- source: ${once.stdout}
"""


def write(desk: Any, text: str) -> None:
    (desk.project / "test.flow.md").write_text(text)


async def test_no_cache_runs_a_cached_step_again_and_caches_its_new_outputs(desk: Any) -> None:
    write(desk, CACHED)
    printed = []
    for options in ((), (), ("--no-cache",), ()):
        said = await desk.leadrope("flow", "run", "test", *options)
        assert said.code == 0, said.err
        printed.append(said.out.strip())
    assert printed == ["1", "1", "2", "2"]
    assert (desk.project / "log.txt").read_text() == "done\n" * 2


async def test_no_cache_holds_for_the_execution_wherever_it_is_continued(desk: Any) -> None:
    asks = "### ask\n\nAsks.\n\n- type: approval\n- message: Go?\n\n"
    write(desk, CACHED)
    await desk.leadrope("flow", "run", "test")
    write(desk, CACHED.replace("### once", asks + "### once"))
    waiting = await desk.leadrope("flow", "run", "test", "--no-cache", "-o", "json")
    assert waiting.code == 4, waiting.err
    approval = json.loads(waiting.out)["approvals"][0]["id"]
    said = await desk.leadrope("flow", "resume", approval, "--approve")
    assert (said.code, said.out.strip()) == (0, "2"), said.err


ASKS = """## Steps

### ask

Asks.

- type: approval
- message: Go?

### colour

Asks for one.

- type: approval
- message: Which?
- choices: [red, blue]
- next: {red: push, blue: push}

### push

Pushes.

- type: shell
- command: echo ${colour.choice} ${ask.reason} > pushed.txt
- approval: required
"""


async def test_a_step_is_approved_beforehand(desk: Any) -> None:
    write(desk, ASKS)
    options = ("--auto-approve", "ask", "--auto-approve", "colour=blue", "--auto-approve", "push")
    said = await desk.leadrope("flow", "run", "test", *options)
    assert said.code == 0, said.err
    assert (desk.project / "pushed.txt").read_text() == "blue --auto-approve\n"
    assert json.loads((await desk.leadrope("approvals", "list", "-o", "json")).out or "[]") == []


async def test_steps_that_are_not_named_still_ask(desk: Any) -> None:
    write(desk, ASKS)
    said = await desk.leadrope("flow", "run", "test", "--auto-approve", "push", "--auto-approve", "colour=red")
    assert said.code == 4, said.err
    assert "ask waits for a person" in said.err
    approval = json.loads((await desk.leadrope("approvals", "list", "-o", "json")).out)["id"]
    said = await desk.leadrope("flow", "resume", approval, "--approve")
    assert said.code == 0, said.err
    assert (desk.project / "pushed.txt").read_text().startswith("red ")


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("pusch", "there is no step 'pusch'"),
        ("pusch", "Did you mean push? Steps that ask: ask, colour, push."),
        ("colour", "offers choices, and none was given"),
        ("colour=green", "does not offer 'green'"),
        ("colour=green", "Choices: red, blue."),
        ("ask=red", "offers no choices"),
        ("quiet", "does not ask a person"),
    ],
)
async def test_what_cannot_be_approved_beforehand_starts_nothing(desk: Any, word: str, told: str) -> None:
    write(
        desk, "## Steps\n\n### quiet\n\nRuns.\n\n- type: shell\n- command: touch started\n\n" + ASKS.split("\n\n", 1)[1]
    )
    said = await desk.leadrope("flow", "run", "test", "--auto-approve", word)
    assert (said.code, told in said.err) == (2, True), said.err
    assert not (desk.project / "started").exists()


async def test_what_the_policy_asks_about_is_not_approved_beforehand(desk: Any) -> None:
    """The step's own approval is given, and the command waits for a person all the same."""
    write(
        desk,
        "## Steps\n\n### push\n\nPushes.\n\n- type: shell\n- command: git push origin HEAD\n- approval: required\n",
    )
    said = await desk.leadrope("flow", "run", "test", "--auto-approve", "push", "-o", "json")
    assert said.code == 4, said.err
    (wait,) = json.loads(said.out)["approvals"]
    assert wait["title"] == "push: Bash"


async def test_a_called_workflow_with_a_step_of_that_name_still_asks(desk: Any) -> None:
    (desk.project / "inner.flow.md").write_text("## Steps\n\n### ask\n\nAsks.\n\n- type: approval\n- message: Inner?\n")
    outer = "## Steps\n\n### ask\n\nAsks.\n\n- type: approval\n- message: Outer?\n\n"
    write(desk, outer + "### call\n\nCalls.\n\n- type: workflow\n- workflow: inner.flow.md\n")
    said = await desk.leadrope("flow", "run", "test", "--auto-approve", "ask", "-o", "json")
    assert said.code == 4, said.err
    assert [wait["detail"] for wait in json.loads(said.out)["approvals"]] == ["Inner?"]
