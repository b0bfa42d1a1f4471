"""A failed execution: its last line says how to continue it, and `flow resume` does, from the step that failed."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

FAILS = """## Inputs

### word

What the file must hold.

- type: string

### count

Kept.

- type: integer
- default: 7

## Steps

### first

Counts how often it ran.

- type: shell
- command: echo ran >> log.txt; echo one

### check

Fails until the file is right.

- type: shell
- command: grep -q "${word}" given.txt && echo "${first.stdout} ${word} ${count}"

### last

Follows.

- type: shell
- command: echo "last ${check.stdout}"

## Outputs

### said

- source: ${last.stdout}
"""


def write(desk: Any, text: str = FAILS) -> None:
    (desk.project / "test.flow.md").write_text(text)


async def fail(desk: Any, *options: str) -> str:
    """The command that the last line names."""
    said = await desk.leadrope("flow", "run", "test", "word=right", "count=3", *options)
    assert said.code == 1, said.err
    found = re.fullmatch(r"  continue from check with: leadrope (flow resume [0-9a-f]{8})", said.err.splitlines()[-1])
    assert found is not None, said.err
    return found[1]


async def test_it_continues_from_the_failed_step_with_its_inputs(desk: Any) -> None:
    write(desk)
    (desk.project / "given.txt").write_text("wrong\n")
    command = await fail(desk, "--label", "a=b")
    (desk.project / "given.txt").write_text("right\n")
    said = await desk.leadrope(*command.split())
    assert (said.code, said.out) == (0, "last one right 3\n"), said.err
    assert "✓ first done before" in said.err
    assert (desk.project / "log.txt").read_text() == "ran\n"
    rows = [json.loads(line) for line in (await desk.leadrope("flow", "history", "-o", "json")).out.splitlines()]
    assert [row["execution"]["outcome"] for row in rows] == ["succeeded", "failed"]
    assert rows[0]["execution"]["labels"] == {"a": "b"}


async def test_an_input_is_replaced(desk: Any) -> None:
    write(desk)
    (desk.project / "given.txt").write_text("wrong\n")
    command = await fail(desk)
    said = await desk.leadrope(*command.split(), "wrod=wrong")
    assert (said.code, "word" in said.err) == (2, True), said.err
    said = await desk.leadrope(*command.split(), "word=wrong")
    assert (said.code, said.out) == (0, "last one wrong 3\n"), said.err


async def test_the_failed_step_may_be_corrected_in_the_file_and_others_may_not(desk: Any) -> None:
    write(desk)
    (desk.project / "given.txt").write_text("wrong\n")
    command = await fail(desk)
    write(desk, FAILS.replace("echo one", "echo two").replace("grep -q", "true || grep -q"))
    said = await desk.leadrope(*command.split())
    assert said.code != 0
    assert "the step 'first' was changed since it ran" in said.err
    assert "--changed" in said.err
    write(desk, FAILS.replace("grep -q", "true || grep -q"))
    said = await desk.leadrope(*command.split())
    assert (said.code, said.out) == (0, "last one right 3\n"), said.err


async def test_one_that_fails_again_can_be_continued_again(desk: Any) -> None:
    write(desk)
    (desk.project / "given.txt").write_text("wrong\n")
    command = await fail(desk)
    again = await desk.leadrope(*command.split())
    assert again.code == 1
    command = again.err.splitlines()[-1].partition("leadrope ")[2]
    (desk.project / "given.txt").write_text("right\n")
    said = await desk.leadrope(*command.split())
    assert (said.code, said.out) == (0, "last one right 3\n"), said.err
    assert (desk.project / "log.txt").read_text() == "ran\n"


async def test_a_failure_that_was_handled_is_done(desk: Any) -> None:
    """The handler has run; only the step after it, which failed by itself, is run again."""
    handled = """## Steps

### risky

Fails, and is handled.

- type: shell
- command: echo risky >> log.txt; exit 1
- on-error: sorry

### sorry

Handles it.

- type: shell
- command: echo sorry >> log.txt
- next: late

### late

Fails once.

- type: shell
- command: echo late >> log.txt; test -e given.txt
"""
    write(desk, handled)
    said = await desk.leadrope("flow", "run", "test")
    assert said.code == 1
    command = said.err.splitlines()[-1].partition("leadrope ")[2]
    assert "continue from late with" in said.err
    (desk.project / "given.txt").touch()
    said = await desk.leadrope(*command.split())
    assert said.code == 0, said.err
    assert (desk.project / "log.txt").read_text().split() == ["risky", "sorry", "late", "late"]


@pytest.mark.parametrize("text", ["## Steps\n\n### ask\n\nAsks.\n\n- type: approval\n- message: Go?\n"])
async def test_inputs_are_for_failed_executions(desk: Any, text: str) -> None:
    write(desk, text)
    waiting = await desk.leadrope("flow", "run", "test", "-o", "json")
    said = await desk.leadrope("flow", "resume", json.loads(waiting.out)["execution_id"][:8], "word=x")
    assert said.code == 2
    assert "only an execution that has failed takes them" in said.err


async def test_a_secret_input_is_asked_for_again(desk: Any) -> None:
    text = FAILS.replace("### word", "### api_token").replace("${word}", "${api_token}")
    write(desk, text)
    (desk.project / "given.txt").write_text("wrong\n")
    said = await desk.leadrope("flow", "run", "test", "api_token=s3cret-value-1")
    command = said.err.splitlines()[-1].partition("leadrope ")[2]
    assert (said.code, command.startswith("flow resume ")) == (1, True), said.err
    said = await desk.leadrope(*command.split())
    assert said.code != 0
    assert "api_token was a secret" in said.err
    assert "api_token=VALUE" in said.err
    (desk.project / "given.txt").write_text("s3cret-value-1\n")
    said = await desk.leadrope(*command.split(), "api_token=s3cret-value-1")
    assert said.code == 0, said.err


async def test_steps_turns_and_retries_are_told_in_a_pipe(desk: Any) -> None:
    """A line when a step starts, one for each further turn of a loop, and one for each retry."""
    write(
        desk,
        "## Steps\n\n### poll\n\nPolls.\n\n- type: shell\n- command: sleep 0.7\n- loop: {max_iterations: 2}\n\n"
        "### flaky\n\nFails once.\n\n- type: shell\n- command: test -e there || { touch there; exit 3; }\n"
        "- retry: {max: 2, wait: 0, retry_on: [3]}\n\n"
        "### each\n\nOnce per item.\n\n- type: shell\n- command: echo ${item}\n- batch: {items: [a, b]}\n",
    )
    said = await desk.leadrope("flow", "run", "test")
    assert said.code == 0, said.err
    told = [line.strip() for line in said.err.splitlines()[1:]]
    expected = [
        r"⋯ poll \(shell\)",
        r"⋯ poll \(shell\) · turn 2",
        r"✓ poll .* · 2 turns",
        r"⋯ flaky \(shell\)",
        r"↻ flaky: .* attempt 2 follows",
        r"✓ flaky .* · 2 attempts",
        r"⋯ each \(shell\) · 2 items",
        r"✓ each .* · 2 items",
    ]
    for line, pattern in zip(told, expected, strict=False):
        assert re.fullmatch(pattern, line), told
    quiet = await desk.leadrope("flow", "run", "test", "-q")
    assert "⋯" not in quiet.err


async def test_the_history_tells_an_error_of_code_without_its_traceback(desk: Any) -> None:
    write(desk, '## Steps\n\n### sum\n\nAdds.\n\n- type: code\n\n```python code\nreturn {}["total"]\n```\n')
    failed = await desk.leadrope("flow", "run", "test.flow.md")
    assert failed.code == 1
    assert failed.err.count("KeyError: 'total'") == 1
    assert "Traceback" in failed.err
    listed = await desk.leadrope("flow", "history")
    assert "sum: line 1: KeyError: 'total'" in listed.out
    assert "Traceback" not in listed.out
