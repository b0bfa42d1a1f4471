"""`leadrope flow` for whoever is in a hurry: answers by any name, what was handled, what is inside, where files lie."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

import database_file
from leadrope.storage import database

ASKS = """### ask

A person.

- type: approval
- message: Shall it go on?

### after

Goes on.

- type: note
- text: went on

## Outputs

### said

- source: ${after.text}
"""
CALL = "### call\n\nCalls.\n\n- type: workflow\n- workflow: asks\n"


def write(desk: Any, text: str, name: str = "test.flow.md") -> str:
    path = desk.project / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return name


async def waiting(desk: Any, text: str) -> dict[str, Any]:
    put_aside = await desk.leadrope("flow", "run", write(desk, text), "-o", "json")
    assert put_aside.code == 4, put_aside.err
    assert "without a value" not in put_aside.err, "what waits is not yet without a value"
    result: dict[str, Any] = json.loads(put_aside.out)
    return result


@pytest.mark.parametrize("text", [ASKS, CALL], ids=["a step", "a workflow inside"])
@pytest.mark.parametrize("name", ["id", "beginning of the id", "execution", "beginning of the execution"])
async def test_an_answer_names_its_question_by_what_is_at_hand(desk: Any, text: str, name: str) -> None:
    write(desk, ASKS, "asks.flow.md")
    result = await waiting(desk, text)
    approval_id = result["approvals"][0]["id"]
    named = {
        "id": approval_id,
        "beginning of the id": approval_id[:16],
        "execution": result["execution_id"][:8],
        "beginning of the execution": result["execution_id"][:4],
    }[name]
    done = await desk.leadrope("flow", "resume", named, "--approve", "-q")
    assert done.code == 0, done.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--deny", "--approve"), "Give one of the two"),
        (("--approve", "--deny"), "Give one of the two"),
        (("--deny", "--choose", "x"), "Give one of the two"),
        (("--reason", "because"), "Add --approve, --deny or --choose"),
        (("--choose", "blue"), "'blue' is not offered"),
    ],
)
async def test_words_that_are_no_clear_answer_change_nothing(desk: Any, words: tuple[str, ...], told: str) -> None:
    result = await waiting(desk, ASKS)
    token = result["approvals"][0]["id"]
    said = await desk.leadrope("flow", "resume", token, *words)
    assert (said.code, told in said.err) == (2, True), said.err
    shown = await desk.leadrope("approvals", "list", "-o", "json")
    assert [json.loads(line)["state"] for line in shown.out.splitlines()] == ["pending"]


async def test_an_execution_with_two_questions_wants_the_id_of_one(desk: Any) -> None:
    two = ASKS.replace("### after", "### other\n\n- type: approval\n- message: And this?\n- after: []\n\n### after", 1)
    result = await waiting(desk, two)
    said = await desk.leadrope("flow", "resume", result["execution_id"][:8], "--approve")
    assert said.code == 2
    assert all(one["id"] in said.err for one in result["approvals"]), said.err


async def test_an_answer_to_what_asks_nothing_is_told_what_became_of_it(desk: Any, background: Any) -> None:
    result = await waiting(desk, ASKS)
    name, approval_id = result["execution_id"], result["approvals"][0]["id"]
    said = await desk.leadrope("flow", "resume", name[:3], "--approve")
    assert (said.code, "at least 4 characters" in said.err) == (2, True), said.err
    said = await desk.leadrope("approvals", "approve", name[:4])
    assert (said.code, f"execution {name[:8]} continues in the background" in said.err) == (0, True), said.err
    followed = await desk.leadrope("flow", "logs", "-f", name[:8])
    assert followed.code == 0, followed.err
    for command in (("flow", "resume", name[:4], "--approve"), ("approvals", "deny", name[:8])):
        said = await desk.leadrope(*command)
        assert said.code == 2
        assert f"the execution {name[:8]} (test) has ended: succeeded" in said.err
        assert f"leadrope flow report {name[:8]}" in said.err
    said = await desk.leadrope("flow", "resume", approval_id, "--approve")
    assert (said.code, "is no longer open: approved by user:" in said.err) == (2, True), said.err


async def test_a_beginning_that_several_executions_have_answers_none(desk: Any) -> None:
    """Also where only one of them waits: a yes to another one could not be taken back."""
    waits = (await waiting(desk, ASKS))["execution_id"]
    (row,) = (await desk.leadrope("approvals", "list", "-o", "json")).out.splitlines()
    other = waits[:5] + ("0" if waits[5] != "0" else "1") + waits[6:]
    with database_file.opened(database.path_in(desk.home / "leadrope")) as db:
        db.execute(
            "insert into executions (id, name, digest, state, outcome, created, ended, labels, file, title, cwd)"
            " values (?, 'old', '', 'ended', 'succeeded', 1, 2, '{}', '', '', '')",
            (other,),
        )
    for command in (("flow", "resume", waits[:5], "--approve"), ("approvals", "approve", waits[:5])):
        said = await desk.leadrope(*command)
        assert said.code == 2
        assert waits[:13] in said.err
        assert other[:13] in said.err
    assert (await desk.leadrope("approvals", "list", "-o", "json")).out.splitlines() == [row]
    assert (await desk.leadrope("flow", "resume", waits[:6], "--approve")).code == 0


async def test_what_a_handler_took_over_is_no_reason_for_the_end(desk: Any) -> None:
    """The exit code, the hints, the history and the report speak of what nobody took over."""
    text = """### bad

Fails.

- type: shell
- command: exit 7
- on-error: mend

### mend

Takes over.

- type: note
- text: mended

### gate

Is not allowed.

- type: shell
- command: rm -rf /
- after: mend
"""
    ended = await desk.leadrope("flow", "run", write(desk, text))
    assert ended.code == 3, ended.err
    assert "ignore_errors" not in ended.err
    history = (await desk.leadrope("flow", "history")).out
    assert "gate: " in history
    assert "exit code 7" not in history
    report = (await desk.leadrope("flow", "report", "test.flow.md")).out
    assert "| `bad` | shell | failed, handled |" in report
    assert "leadrope flow resume" in report
    outer = "### call\n\nCalls.\n\n- type: workflow\n- workflow: test\n"
    around = await desk.leadrope("flow", "run", write(desk, outer, "outer.flow.md"), "-o", "json")
    assert "forbids" in json.loads(around.out)["steps"][0]["error"]["message"]


async def test_steps_inside_are_told_with_their_place(desk: Any) -> None:
    write(
        desk,
        "## Inputs\n\n### n\n\n- type: integer\n\n## Steps\n\n### say\n\n- type: note\n- text: ${n}\n",
        "in.flow.md",
    )
    text = (
        "### call\n\n- type: workflow\n- workflow: in\n- inputs: {n: '${item}'}\n- after: []\n"
        "- batch: {items: [1, 2], max_concurrent: 2}\n\n### beside\n\n- type: workflow\n- workflow: in\n"
        "- inputs: {n: 3}\n- after: []\n"
    )
    told = (await desk.leadrope("flow", "run", write(desk, text))).err
    for name in ("call[0]/say", "call[1]/say", "beside/say", "call", "beside"):
        assert f"✓ {name} " in told, told


async def test_the_result_has_all_its_keys_also_where_they_say_nothing(desk: Any) -> None:
    ended = await desk.leadrope("flow", "run", write(desk, "### a\n\n- type: note\n- text: x\n"), "-o", "json")
    result = json.loads(ended.out)
    assert {
        "execution_id",
        "name",
        "outcome",
        "outputs",
        "steps",
        "cost_usd",
        "tokens",
        "duration_s",
        "approvals",
    } <= set(result)
    assert {"id", "type", "state", "duration_s", "cost_usd", "tokens", "attempts", "warnings", "error"} <= set(
        result["steps"][0]
    )


async def test_workflows_among_the_examples_are_listed_and_run_by_name(desk: Any) -> None:
    write(desk, "# Shown\n\n### a\n\nDoes it.\n\n- type: note\n- text: x\n", "examples/shown.flow.md")
    assert "examples/shown.flow.md" in (await desk.leadrope("flow", "list")).out
    assert (await desk.leadrope("flow", "run", "shown")).code == 0
    assert (await desk.leadrope("flow", "check")).out == "examples/shown.flow.md: ok: 1 step\n"


async def test_the_live_view_has_the_tool_and_the_cost_of_agents_also_in_a_batch(desk: Any, playing: Any) -> None:
    write(desk, "### each\n\nLooks.\n\n- type: agent\n- prompt: look at ${item}\n- batch: {items: [one]}\n")
    (desk.project / "notes.txt").write_text("notes")
    look = {"name": "Read", "input": {"file_path": str(desk.project / "notes.txt")}}
    turns = (
        {"tool": look, "usage": {"input_tokens": 100_000, "output_tokens": 0}},
        {"hang": "before_headers", "optional": True},
    )
    async with playing(*turns) as model:
        folder = desk.home / ".config/leadrope"
        folder.mkdir(parents=True)
        (folder / "config.toml").write_text(f'[run]\nbase_url = "{model.url}"\n')
        async with desk.at_terminal("flow", "run", "test.flow.md") as terminal:
            await terminal.reads("each (agent) ", "0/1 · $0.20 · Read ")
            terminal.signal(signal.SIGINT)
            await terminal.reads("stopped")
            assert await terminal.ends() == 130
