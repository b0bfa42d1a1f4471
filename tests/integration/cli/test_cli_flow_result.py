"""What `flow run` prints: the last result, all outputs or one of them; and whose model and money its steps use."""

from __future__ import annotations

import json
from typing import Any

import pytest

SAYS = """### one

One.

- type: shell
- command: echo first

### two

Two.

- type: shell
- command: echo second
"""
WRITES = SAYS + "\n### keep\n\nKeeps.\n\n- type: write-file\n- file_path: x.txt\n- content: hi\n"
ASKS = """### generate

Generates.

- type: claude-code
- prompt: Write a Python function to calculate Fibonacci numbers
- max_turns: 2
- next: own

### own

With a model of its own.

- type: llm
- model: claude-sonnet-4-5
- prompt: And now?
"""


def write(desk: Any, text: str) -> None:
    (desk.project / "test.flow.md").write_text(text)


async def test_the_last_steps_result_is_printed(desk: Any) -> None:
    write(desk, SAYS)
    said = await desk.leadrope("flow", "run", "test")
    assert (said.code, said.out) == (0, "second\n")
    assert "no outputs are declared: the result of two; `leadrope flow report " in said.err
    told = json.loads((await desk.leadrope("flow", "run", "test", "-o", "json")).out)
    assert told["last"] == {"step": "two", "result": "second"}
    assert told["outputs"] == {}


async def test_where_the_last_step_gives_nothing_to_print_the_report_is_named(desk: Any) -> None:
    write(desk, WRITES)
    said = await desk.leadrope("flow", "run", "test")
    assert (said.code, said.out) == (0, "")
    assert "no outputs are declared: no result to print; `leadrope flow report " in said.err
    assert (await desk.leadrope("flow", "run", "test", "-q")).err == ""


async def test_declared_outputs_are_all_that_is_printed(desk: Any) -> None:
    write(desk, SAYS + "\n## Outputs\n\n### first\n\nThe first.\n\n- source: ${one.stdout}\n")
    said = await desk.leadrope("flow", "run", "test", "-o", "json")
    assert json.loads(said.out)["last"] is None


TWO = (
    SAYS
    + """
### broken

Breaks.

- type: code
- code: result = {"items": [1, 2]}

## Outputs

### first

- source: ${one.stdout}

### found

- source: ${broken.result}

### gone

- source: ${broken.result.nothing}
"""
)


@pytest.mark.parametrize(
    ("name", "code", "printed"),
    [("first", 0, "first\n"), ("found", 0, '{\n  "items": [\n    1,\n    2\n  ]\n}\n'), ("gone", 1, "")],
)
async def test_one_output_is_printed_alone(desk: Any, name: str, code: int, printed: str) -> None:
    """An output without a value is a failure: a script would take the empty text for the value."""
    write(desk, TWO)
    said = await desk.leadrope("flow", "run", "test", "-o", name)
    assert (said.code, said.out) == (code, printed)
    assert ("the output gone has no value" in said.err) is True


async def test_an_output_that_does_not_exist_starts_nothing(desk: Any) -> None:
    write(desk, TWO.replace("echo first", "touch started"))
    said = await desk.leadrope("flow", "run", "test", "-o", "frist")
    assert (said.code, said.out) == (2, "")
    assert "there is no output 'frist'" in said.err
    assert "Did you mean first? The outputs are: first, found, gone." in said.err
    said = await desk.leadrope("flow", "run", "test", "-o", "first", "--detach")
    assert (said.code, "prints only the id" in said.err) == (2, True)
    assert not (desk.project / "started").exists()


async def test_a_resume_prints_one_output_too(desk: Any) -> None:
    asks = "### ask\n\nAsks.\n\n- type: approval\n- message: Go?\n\n"
    write(desk, asks + TWO)
    approval = json.loads((await desk.leadrope("flow", "run", "test", "-o", "json")).out)["approvals"][0]["id"]
    said = await desk.leadrope("flow", "resume", approval, "--approve", "-o", "frist")
    assert (said.code, "Did you mean first?" in said.err) == (2, True), said.err
    said = await desk.leadrope("flow", "resume", approval, "--approve", "-o", "first")
    assert (said.code, said.out) == (0, "first\n"), said.err


async def test_an_output_for_pipes_is_printed_alone(desk: Any) -> None:
    outputs = "\n## Outputs\n\n### a\n\n- source: ${one.stdout}\n\n### b\n\n- source: ${two.stdout}\n- stdout: true\n"
    write(desk, SAYS + outputs)
    assert (await desk.leadrope("flow", "run", "test")).out == "second\n"
    told = json.loads((await desk.leadrope("flow", "run", "test", "-o", "json")).out)
    assert told["outputs"] == {"a": "first", "b": "second"}
    write(desk, SAYS + outputs.replace("stdout}\n\n###", "stdout}\n- stdout: true\n\n###"))
    said = await desk.leadrope("flow", "check", "test.flow.md")
    assert (said.code, "both go to standard output" in said.out + said.err) == (2, True)


async def test_a_secret_is_not_printed_unasked(desk: Any) -> None:
    write(desk, "### one\n\nOne.\n\n- type: shell\n- command: echo $DEPLOY_TOKEN\n")
    config = desk.home / ".config" / "leadrope"
    config.mkdir(parents=True)
    (config / "config.toml").write_text('forward_env = ["DEPLOY_TOKEN"]\n')
    said = await desk.leadrope("flow", "run", "test", DEPLOY_TOKEN="hunter2-of-the-house")
    assert said.code == 0, said.err
    assert "hunter2" not in said.out


async def test_model_billing_and_address_of_an_execution(desk: Any, playing: Any) -> None:
    """`--model` is for steps that name none; the answer is printed although no output is declared."""
    write(desk, ASKS)
    async with playing({"text": "def fib(n): ..."}, {"text": "Nothing."}) as model:
        args = ("flow", "run", "test", "--model", "haiku", "--billing", "subscription", "--base-url", model.url)
        said = await desk.leadrope(*args)
    assert (said.code, said.out) == (0, "Nothing.\n"), said.err
    asked = [request.body["model"] for request in model.requests]
    assert asked == ["claude-haiku-5-5", "claude-sonnet-4-5"]
    refused = await desk.leadrope("flow", "run", "test", "--billing", "apikey")
    assert refused.code == 2
    refused = await desk.leadrope("flow", "run", "test", "--model", " ")
    assert (refused.code, "--model: is empty" in refused.err) == (2, True)


async def test_the_purpose_and_the_effort_of_a_step_reach_the_model(desk: Any, playing: Any) -> None:
    step = "### {name}\n\nx\n\n- type: agent\n- prompt: x\n- purpose: {name}\n- effort: {effort}\n"
    write(desk, step.format(name="review", effort="low") + "\n" + step.format(name="writing", effort="high"))
    async with playing({"text": "One."}, {"text": "Two."}) as model:
        said = await desk.leadrope("flow", "run", "test", "--base-url", model.url)
    assert said.code == 0, said.err
    asked = [(request.body["model"], request.body["output_config"]["effort"]) for request in model.requests]
    assert asked == [("claude-opus-5-5", "low"), ("claude-sonnet-5-5", "high")]


@pytest.mark.parametrize("is_named", [True, False])
async def test_a_step_may_edit_in_its_extra_folders(desk: Any, playing: Any, is_named: bool) -> None:
    shared = desk.project.parent / "shared"
    shared.mkdir()
    more = "- extra_dirs: [../shared]\n" if is_named else ""
    write(desk, f"### note\n\nx\n\n- type: agent\n- prompt: x\n- mode: edit\n{more}")
    trusted = await desk.leadrope("trust", "test.flow.md", "--yes")
    assert trusted.code == 0, trusted.err
    call = {"name": "Write", "input": {"file_path": str(shared / "note.txt"), "content": "x"}}
    async with playing({"tool": call}, {"text": "Done."}) as model:
        await desk.leadrope("flow", "run", "test", "--no-wait", "--base-url", model.url)
    assert (shared / "note.txt").exists() == is_named


LACKS = (
    SAYS + "\n## Outputs\n\n### good\n\nx\n\n- source: ${one.stdout}\n\n### bad\n\nx\n\n- source: ${one.stdout.key}\n"
)


async def test_an_output_without_a_value_is_told_with_its_reason_and_fails_a_strict_run(desk: Any) -> None:
    write(desk, LACKS)
    why = "one.stdout is a text that is not JSON and has no 'key'"
    said = await desk.leadrope("flow", "run", "test")
    assert (said.code, said.out) == (0, "first\n")
    assert "degraded" in said.err
    assert f"the output bad has no value: {why}" in said.err
    strict = await desk.leadrope("flow", "run", "-q", "--strict", "test")
    assert strict.code == 1
    assert f"the output bad has no value: {why}" in strict.err
    told = json.loads((await desk.leadrope("flow", "run", "test", "-o", "json")).out)
    assert (told["outcome"], told["missing_outputs"], told["missing_reasons"]) == ("degraded", ["bad"], {"bad": why})
    report = await desk.leadrope("flow", "report", told["execution_id"][:8])
    assert f"output without a value: bad: {why}" in report.out.replace("\\", "")
    page = await desk.leadrope("flow", "report", told["execution_id"][:8], "--html")
    assert "output without a value: bad: one.stdout" in page.out
    kept = json.loads((await desk.leadrope("flow", "report", told["execution_id"][:8], "-o", "json")).out)
    assert kept["missing_reasons"] == {"bad": why}


@pytest.mark.parametrize(
    ("names", "more", "printed"),
    [
        (("said",), "", "4\n"),
        (("said", "again"), "", '{\n  "said": 4,\n  "again": 4\n}\n'),
        (("said",), "- loop: {max_iterations: 2}\n", "4\n"),
        ((), "", ""),
    ],
    ids=["one", "several", "loop", "none"],
)
async def test_the_outputs_of_a_called_workflow_are_the_last_result(
    desk: Any, names: tuple[str, ...], more: str, printed: str
) -> None:
    outputs = "".join(f"### {name}\n\nSo.\n\n- source: ${{four.result}}\n\n" for name in names)
    four = "## Steps\n\n### four\n\nFour.\n\n- type: code\n- code: result = 4\n\n"
    (desk.project / "inside.flow.md").write_text(four + (f"## Outputs\n\n{outputs}" if names else ""))
    write(desk, f"### call\n\nCalls.\n\n- type: workflow\n- workflow: inside.flow.md\n{more}")
    ended = await desk.leadrope("flow", "run", "test", "-q")
    assert (ended.code, ended.out) == (0, printed), ended.err


@pytest.mark.parametrize(
    ("steps", "printed"),
    [
        ("### a\n- type: shell\n- command: echo ${__iteration__}\n- loop: {max_iterations: 3}\n", "2\n"),
        ("### a\n- type: set\n- values: {x: 1}\n", '{\n  "x": 1\n}\n'),
        ("### a\n- type: switch\n- cases: {one: 1 == 2}\n", "else\n"),
        (
            (
                "### g\n- type: group\n- loop: {max_iterations: 2}\n#### a\n- type: note\n- text: first\n"
                "#### b\n- type: note\n- text: turn ${__iteration__}\n"
            ),
            "turn 1\n",
        ),
        (
            (
                "### r\n- type: switch\n- cases: {left: 1 == 1}\n- next: {left: a, else: b}\n"
                "### a\n- type: note\n- text: taken\n- next: end\n### b\n- type: note\n- text: not taken\n"
            ),
            "taken\n",
        ),
    ],
    ids=["loop", "set", "switch", "group", "branch"],
)
async def test_the_last_step_that_ran_is_printed_whatever_it_is(desk: Any, steps: str, printed: str) -> None:
    (desk.project / "last.flow.md").write_text(f"## Steps\n\n{steps}")
    ended = await desk.leadrope("flow", "run", "last.flow.md", "-q")
    assert (ended.code, ended.out) == (0, printed), ended.err


NEEDS = "## Inputs\n\n### who\n\nWho.\n\n- type: string\n- required: true\n\n## Steps\n\n" + SAYS


@pytest.mark.parametrize(
    ("words", "code", "about"),
    [
        (("run", "missing.flow.md"), 2, "missing.flow.md"),
        (("run", "test"), 2, "who"),
        (("run", "test", "who=me", "--nonsense"), 2, "--nonsense"),
        (("run", "test", "who=me", "-C", "nowhere"), 2, "nowhere"),
        (("run", "test", "who=me", "--detach", "--rehearse", "x.yaml"), 2, "--detach"),
        (("run",), 2, "WORKFLOW"),
        (("resume", "0123abcd"), 2, "0123abcd"),
    ],
)
async def test_what_cannot_be_started_is_one_object_too(
    desk: Any, words: tuple[str, ...], code: int, about: str
) -> None:
    write(desk, NEEDS)
    said = await desk.leadrope("flow", *words, "-o", "json")
    (line,) = said.out.splitlines()
    told = json.loads(line)
    assert (said.code, told["outcome"]) == (code, "failed"), said.err
    assert about in told["error"]["message"]
    assert {"execution_id", "outputs", "steps", "approvals", "cost_usd"} < told.keys()
    streamed = await desk.leadrope("flow", *words, "--output=stream-json")
    (line,) = streamed.out.splitlines()
    ended = json.loads(line)["event"]
    assert (ended["type"], ended["outcome"]) == ("execution.ended", "failed")
    assert about in ended["error"]["message"]
    history = await desk.leadrope("flow", "history", "-o", "json")
    assert history.out == "", "nothing was started"
