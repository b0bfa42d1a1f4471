"""`leadrope approvals` for workflows: answered from any terminal, what has waited continues by itself, once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import Any

import pytest

import database_file
from leadrope.core import actors
from leadrope.storage import database

ME = actors.system_user()
SHIP = """### ask

A person.

- type: approval
- message: Ship it?

### go

Ships it.

- type: shell
- command: echo shipped by ${ask.by} >> log
"""
FORM = """### ask

A person.

- type: approval
- message: Announce it?

```yaml fields
version: {label: Which version}
count: {type: number, default: 3}
where: {type: choice, choices: [staging, production]}
notify: {type: boolean, required: false}
```

### go

Writes it.

- type: write-file
- file_path: said.json
- content: ${ask.answer}
"""
CHOICE = """### ask

A person.

- type: approval
- message: Publish it?
- choices: [publish, revise]
- next: {publish: go, revise: go}

### go

Writes it.

- type: write-file
- file_path: said
- content: ${ask.choice} ${ask.reason}
"""
PUSH = """## Settings

- policy: {require_approval: ['Bash(touch *)']}

## Steps

### mark

Marks it.

- type: shell
- command: touch marker; echo x >> log
- approval: required
"""


def write(desk: Any, text: str, name: str = "ship.flow.md") -> str:
    (desk.project / name).write_text(text)
    return name


async def rows(desk: Any, *more: str) -> list[dict[str, Any]]:
    listed = await desk.leadrope("approvals", "list", "-o", "json", *more)
    return [json.loads(line) for line in listed.out.splitlines()]


async def put_aside(desk: Any, text: str) -> str:
    """The id of the one approval of an execution that nobody owns."""
    said = await desk.leadrope("flow", "run", write(desk, text))
    assert said.code == 4, said.err
    (row,) = await rows(desk)
    return str(row["id"])


async def ended(desk: Any, approval_id: str) -> dict[str, Any]:
    """The report of its execution, once that has come to its end."""
    followed = await desk.leadrope("flow", "logs", "-f", approval_id[:12])
    assert followed.code == 0, followed.err
    report: dict[str, Any] = json.loads((await desk.leadrope("flow", "report", approval_id, "-o", "json")).out)
    return report


def log(desk: Any) -> list[str]:
    path = desk.project / "log"
    return path.read_text().splitlines() if path.exists() else []


# -- an answer continues what waited ----------------------------------------------------------------------------------


async def test_an_answer_continues_an_execution_that_nobody_owns(desk: Any, background: Any) -> None:
    approval_id = await put_aside(desk, SHIP)
    assert log(desk) == []
    said = await desk.leadrope("approvals", "approve", approval_id[:6])
    assert (said.code, said.out) == (0, f"{approval_id} approved\n"), said.err
    await ended(desk, approval_id)
    assert log(desk) == [f"shipped by {ME}"]
    assert [(row["state"], row["by"]) for row in await rows(desk, "--all")] == [("approved", ME)]


async def test_a_denial_reaches_it_as_well(desk: Any, background: Any) -> None:
    approval_id = await put_aside(desk, SHIP)
    assert (await desk.leadrope("approvals", "deny", approval_id, "--reason", "not today")).code == 0
    followed = await desk.leadrope("flow", "logs", "-f", approval_id[:12])
    assert followed.code == 3
    assert f"denied by {ME}: not today" in followed.err
    assert log(desk) == []


async def test_the_terminal_that_has_it_open_continues_it(desk: Any) -> None:
    async with desk.at_terminal("flow", "run", write(desk, SHIP)) as terminal:
        await terminal.reads("Ship it?", "[l]ater: ")
        (row,) = await rows(desk)
        said = await desk.leadrope("approvals", "approve", row["id"])
        assert (said.code, said.err) == (0, "")
        await terminal.reads("no longer asked", "succeeded")
        assert await terminal.ends() == 0
    assert log(desk) == [f"shipped by {ME}"]


async def test_nothing_is_lost_when_the_owner_is_killed_after_the_answer(desk: Any, background: Any) -> None:
    """Wherever it dies: it is not asked again, and each step has one outcome."""
    slow = SHIP.replace("echo shipped", "test -e go || { touch begun; sleep 600; }; echo shipped")
    approval_id = await put_aside(desk, slow)
    assert (await desk.leadrope("approvals", "approve", approval_id)).code == 0
    await background.until((desk.project / "begun").exists)
    os.kill(background.owner(), signal.SIGKILL)
    await background.until(lambda: not background.owners())
    (desk.project / "go").touch()
    assert await rows(desk) == [], "whoever looks starts the next owner, and nobody is asked again"
    report = await ended(desk, approval_id)
    assert [step["report"]["state"] for step in report["steps"]] == ["succeeded", "succeeded"]
    assert log(desk) == [f"shipped by {ME}"]


async def test_an_approved_command_whose_owner_died_is_not_asked_about_again(desk: Any, background: Any) -> None:
    slow = PUSH.replace("touch marker", "touch marker; test -e go || sleep 600")
    approval_id = await put_aside(desk, slow)
    assert (await desk.leadrope("approvals", "approve", approval_id)).code == 0
    await background.until((desk.project / "marker").exists)
    os.kill(background.owner(), signal.SIGKILL)
    await background.until(lambda: not background.owners())
    (desk.project / "go").touch()
    assert await rows(desk) == []
    await ended(desk, approval_id)
    assert log(desk) == ["x"]


# -- only for what was shown ------------------------------------------------------------------------------------------


async def test_an_answer_to_what_has_changed_since_is_refused_and_it_stays_pending(desk: Any) -> None:
    approval_id = await put_aside(desk, SHIP)
    shown = await desk.leadrope("approvals", "show", approval_id)
    (mark,) = [line.split()[1] for line in shown.out.splitlines() if line.startswith("fingerprint ")]
    with database_file.opened(database.path_in(desk.home / "leadrope")) as db:
        db.execute("update approvals set fingerprint = 'ffff' || fingerprint")
    for command in (("approve",), ("deny",)):
        said = await desk.leadrope("approvals", *command, approval_id, "--fingerprint", mark)
        assert said.code == 2
        assert f"{approval_id} has changed since it was shown; the answer was not used" in said.err
        assert f"leadrope approvals show {approval_id}" in said.err
    assert [row["state"] for row in await rows(desk)] == ["pending"]
    assert log(desk) == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("approve", "--choose", "blue"), "'blue' is not offered"),
        (("approve", "--pattern"), "--pattern: not offered for this"),
        (("approve", "--fingerprint", "abc"), "is too short"),
        (("edit", '{"command": "x"}'), "only a tool call can be edited"),
        (("answer", "colour=red"), "has no question and no form, and takes no values"),
        (("answer",), "has no question and no form, and takes no values"),
        (("approve", "--answer", "colour=red"), "has no question and no form, and takes no values"),
    ],
)
async def test_an_answer_that_does_not_fit_changes_nothing(desk: Any, words: tuple[str, ...], told: str) -> None:
    approval_id = await put_aside(desk, SHIP)
    name, *more = words
    said = await desk.leadrope("approvals", name, approval_id, *more)
    assert (said.code, told in said.err) == (2, True), said.err
    assert [row["state"] for row in await rows(desk)] == ["pending"]


# -- forms and words --------------------------------------------------------------------------------------------------


async def test_a_form_is_filled_in_from_elsewhere_and_its_values_have_their_types(desk: Any, background: Any) -> None:
    approval_id = await put_aside(desk, FORM)
    shown = (await desk.leadrope("approvals", "show", approval_id)).out
    assert "field version: Which version (text)\n" in shown
    assert "field count: (number; default 3)\n" in shown
    for words, told in (
        (("approve",), "has a form, and version is missing"),
        (("answer", "version=1.4"), "where is missing"),
        (("answer", "version=1.4", "where=prod"), "where: 'prod' is not one of: staging, production"),
        (("answer", "version=1.4", "where=staging", "count=many"), "count: 'many' is not a number"),
        (("answer", "version=1.4", "where=staging", "colour=red"), "colour: is not a field of this form"),
    ):
        said = await desk.leadrope("approvals", words[0], approval_id, *words[1:])
        assert (said.code, told in said.err) == (2, True), said.err
    assert [row["state"] for row in await rows(desk)] == ["pending"]
    said = await desk.leadrope("approvals", "answer", approval_id, "version=1.4", "where=Staging", "notify=no")
    assert said.code == 0, said.err
    await ended(desk, approval_id)
    answer = {"version": "1.4", "count": 3, "where": "staging", "notify": False}
    assert json.loads((desk.project / "said.json").read_text()) == answer


async def test_a_form_is_asked_field_by_field_at_the_terminal(desk: Any) -> None:
    async with desk.at_terminal("flow", "run", write(desk, FORM)) as terminal:
        await terminal.reads("Announce it?", "[l]ater: ")
        await terminal.asks("y\n", "Which version (text): ")
        await terminal.asks("\n", "Which version is required.", "Which version (text): ")
        await terminal.asks("1.4\n", "count (number; Enter for 3): ")
        await terminal.asks("many\n", "'many' is not a number", "count (number; Enter for 3): ")
        await terminal.asks("7\n", "1. staging", "2. production", "where (staging | production): ")
        await terminal.asks("2\n", "notify (yes | no; Enter for none): ")
        terminal.types("\n")
        await terminal.reads("succeeded")
        assert await terminal.ends() == 0
    answer = {"version": "1.4", "count": 7, "where": "production", "notify": None}
    assert json.loads((desk.project / "said.json").read_text()) == answer


async def test_a_choice_takes_words_with_it_at_the_terminal(desk: Any) -> None:
    async with desk.at_terminal("flow", "run", write(desk, CHOICE)) as terminal:
        await terminal.reads("Publish it?", "> ")
        terminal.types("revise: shorter\n")
        await terminal.reads("succeeded")
        assert await terminal.ends() == 0
    assert (desk.project / "said").read_text() == "revise shorter"


# -- who is asked, how often, and when it is said ---------------------------------------------------------------------


async def test_a_command_that_a_person_has_approved_as_shown_is_not_asked_about_twice(
    desk: Any, background: Any
) -> None:
    approval_id = await put_aside(desk, PUSH)
    assert (await desk.leadrope("approvals", "approve", approval_id)).code == 0
    await ended(desk, approval_id)
    assert log(desk) == ["x"]
    assert len(await rows(desk, "--all")) == 1


async def test_an_approval_of_a_step_opens_no_block(desk: Any, background: Any) -> None:
    blocked = PUSH.replace("require_approval: ['Bash(touch *)']", "disallowed_tools: ['Bash(touch *)']")
    approval_id = await put_aside(desk, blocked)
    assert (await desk.leadrope("approvals", "approve", approval_id)).code == 0
    followed = await desk.leadrope("flow", "logs", "-f", approval_id[:12])
    assert (followed.code, "the policy forbids" in followed.err) == (3, True), followed.err
    assert (log(desk), (desk.project / "marker").exists()) == ([], False)


async def test_what_a_rule_asks_names_the_rule_and_can_be_edited(desk: Any, background: Any) -> None:
    approval_id = await put_aside(desk, PUSH.replace("- approval: required\n", ""))
    shown = (await desk.leadrope("approvals", "show", approval_id)).out
    assert f"{approval_id}  tool_call  pending" in shown
    assert "rule require_approval (run)\n" in shown
    assert "the call:\n    touch marker; echo x >> log\n" in shown
    said = await desk.leadrope("approvals", "edit", approval_id, '{"command": "touch other; echo y >> log"}')
    assert said.out == f"{approval_id} approved, edited\n", said.err
    await ended(desk, approval_id)
    assert (log(desk), (desk.project / "other").exists(), (desk.project / "marker").exists()) == (["y"], True, False)


async def test_runs_and_workflows_are_one_list_with_one_set_of_columns(desk: Any) -> None:
    approval_id = await put_aside(desk, SHIP)
    head, row = (await desk.leadrope("approvals", "list", COLUMNS="160")).out.splitlines()
    assert head.split() == ["ID", "KIND", "STATE", "WAITED", "LEFT", "RISK", "WHAT"]
    assert row.split()[:3] == [approval_id, "step", "pending"]
    assert "no limit" in row
    assert row.endswith("ship.flow.md, ask: Ship it?"), "a workflow without a title is named by its file"


async def test_an_agent_that_asks_off_the_terminal_says_so_at_once(desk: Any, playing: Any) -> None:
    text = "### fix\n\nFixes it.\n\n- type: agent\n- prompt: fix it\n- mode: edit\n"
    folder = desk.home / ".config/leadrope"
    folder.mkdir(parents=True)
    async with playing({"tool": desk.touch}, {"text": "done"}) as model:
        (folder / "config.toml").write_text(f'[run]\nbase_url = "{model.url}"\n')
        running = asyncio.ensure_future(desk.leadrope("flow", "run", write(desk, text), "-o", "stream-json"))
        while not (found := await rows(desk)):
            assert not running.done(), running.result().err
        assert found[0]["kind"] == "tool_call"
        assert (await desk.leadrope("approvals", "approve", found[0]["id"])).code == 0
        said = await running
    assert said.code == 0, said.err
    assert desk.marker.exists()
    assert "fix waits for a person: touch " in said.err
    assert f"leadrope approvals approve {found[0]['id']}   (or leadrope approvals deny {found[0]['id']}" in said.err
    events = [json.loads(line)["event"] for line in said.out.splitlines()]
    (asked,) = [event for event in events if event["type"] == "step.asked"]
    assert (asked["approval_id"], asked["kind"], asked["step"]) == (found[0]["id"], "tool_call", "fix")
    assert asked["rule"] == "mode:edit"
