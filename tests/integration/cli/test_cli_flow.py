"""`leadrope flow run` and `resume` as a user types them: exit codes, streams, the live view, a person who answers."""

from __future__ import annotations

import json
import re
import signal
from typing import Any

import pytest

HELLO = """# Greeting

## Inputs

### who

Whom to greet.

- type: string
- stdin: true

### times

- type: integer
- default: 1

## Steps

### hello

Says it.

- type: shell
- command: echo hello ${who} ${times}

## Outputs

### greeting

- source: ${hello.stdout}
"""

ASKS = """# Asks

## Steps

### ask

A person.

- type: approval
- message: Shall it go on?

### after

Goes on.

- type: shell
- command: echo went on

## Outputs

### said

- source: ${after.stdout}
"""


def write(desk: Any, text: str, name: str = "test.flow.md") -> str:
    (desk.project / name).write_text(text)
    return name


async def test_inputs_come_as_words_and_the_output_is_all_that_stdout_gets(desk: Any) -> None:
    ended = await desk.leadrope("flow", "run", write(desk, HELLO), "who=you", "times=2")
    assert (ended.code, ended.out) == (0, "hello you 2\n"), ended.err
    assert "✓ hello" in ended.err
    assert "succeeded" in ended.err
    assert "\x1b" not in ended.err, "no colours where nobody looks"


async def test_inputs_come_by_pipe_and_by_file(desk: Any) -> None:
    name = write(desk, HELLO)
    piped = await desk.leadrope("flow", "run", name, "-q", stdin=b"pipe")
    assert (piped.code, piped.out, piped.err) == (0, "hello pipe 1\n", "")
    (desk.project / "in.json").write_text('{"who": "file", "times": 3}')
    filed = await desk.leadrope("flow", "run", name, "--inputs", "in.json", "-q")
    assert filed.out == "hello file 3\n"


@pytest.mark.parametrize(("name", "taken"), [("a.flow.md", "'x\\n\\n'"), ("a.pflow.md", "'x'")])
async def test_what_is_piped_keeps_its_newlines_except_for_pflow(desk: Any, name: str, taken: str) -> None:
    text = (
        "# A\n\nSays it.\n\n## Inputs\n\n### text\n\nAny.\n\n- type: string\n- stdin: true\n\n"
        "## Steps\n\n### say\n\nIts repr.\n\n"
        '- type: code\n- inputs: {t: "${text}"}\n\n```python code\nt: str\nresult: str = repr(t)\n```\n'
    )
    ended = await desk.leadrope("flow", "run", write(desk, text, name), "-q", stdin=b"x\n\n")
    assert (ended.code, ended.out) == (0, f"{taken}\n"), ended.err


async def test_json_tells_all_of_it(desk: Any) -> None:
    ended = await desk.leadrope("flow", "run", write(desk, HELLO), "who=you", "-o", "json")
    result = json.loads(ended.out)
    assert (result["outcome"], result["outputs"]) == ("succeeded", {"greeting": "hello you 1"})
    assert [(step["id"], step["state"]) for step in result["steps"]] == [("hello", "succeeded")]
    streamed = await desk.leadrope("flow", "run", "test.flow.md", "who=you", "-o", "stream-json")
    records = [json.loads(line) for line in streamed.out.splitlines()]
    kinds = [record["event"]["type"] for record in records]
    assert (kinds[0], kinds[-1]) == ("execution.started", "execution.ended")
    assert [record["seq"] for record in records] == list(range(1, len(records) + 1))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "who: is required (Whom to greet.)"),
        (("who=x", "times=many"), "times: 'many' is not a whole number"),
        (("who=x", "tims=2"), "did you mean times?"),
        (("who",), "not of the form name=value"),
        (("who=x", "who=y"), "given twice"),
        (("who=x", "--only", "helo"), "Did you mean hello?"),
        (("who=x", "--only", "hello", "--from", "hello"), "Give one of the two"),
        (("who=x", "--cwd", "nowhere"), "no folder nowhere"),
    ],
)
async def test_wrong_words_are_told_and_nothing_starts(desk: Any, words: tuple[str, ...], told: str) -> None:
    ended = await desk.leadrope("flow", "run", write(desk, HELLO), *words, stdin=b"")
    assert (ended.code, ended.out) == (2, "")
    assert told in ended.err
    assert "Traceback" not in ended.err


async def test_a_file_with_mistakes_tells_all_of_them(desk: Any) -> None:
    ended = await desk.leadrope(
        "flow", "run", write(desk, HELLO.replace("type: shell", "type: shel") + "\n### x\n"), "who=x"
    )
    assert ended.code == 2
    assert "did you mean shell?" in ended.err
    assert "has no source" in ended.err
    missing = await desk.leadrope("flow", "run", "tset")
    assert (missing.code, "no workflow 'tset'" in missing.err, "Did you mean test?" in missing.err) == (2, True, True)


async def test_exit_codes_say_how_it_ended(desk: Any) -> None:
    failed = await desk.leadrope("flow", "run", write(desk, "### a\n\n- type: shell\n- command: exit 7\n"))
    assert failed.code == 1
    assert "exit code 7" in failed.err
    soft = "### a\n\n- type: shell\n- command: exit 7\n- on-error: b\n\n### b\n\n- type: note\n- text: mended\n"
    assert (await desk.leadrope("flow", "run", write(desk, soft))).code == 0
    assert (await desk.leadrope("flow", "run", "test.flow.md", "--strict")).code == 1
    denied = "### a\n\n- type: shell\n- command: rm -rf /\n"
    assert (await desk.leadrope("flow", "run", write(desk, denied))).code == 3
    late = "### a\n\n- type: wait\n- seconds: 3600\n- timeout: 0.01\n"
    assert (await desk.leadrope("flow", "run", write(desk, late))).code == 6


async def test_a_workflow_that_waits_prints_how_to_go_on_and_does(desk: Any) -> None:
    waiting = await desk.leadrope("flow", "run", write(desk, ASKS))
    assert (waiting.code, waiting.out) == (4, "")
    found = re.search(r"leadrope approvals approve ([0-9a-f]{12}-step-1) ", waiting.err)
    assert found is not None, waiting.err
    unanswered = await desk.leadrope("flow", "resume", found[1])
    assert unanswered.code == 4, "it still waits"
    done = await desk.leadrope("flow", "resume", found[1], "--approve")
    assert (done.code, done.out) == (0, "went on\n"), done.err
    again = await desk.leadrope("flow", "resume", found[1], "--approve")
    assert again.code == 2
    assert "ended" in again.err or "no longer open" in again.err
    denied = await desk.leadrope("flow", "run", "test.flow.md", "--no-wait")
    assert denied.code == 3


async def test_a_person_at_the_terminal_answers_and_sees_it_live(desk: Any) -> None:
    write(desk, ASKS)
    async with desk.at_terminal("flow", "run", "test.flow.md") as terminal:
        await terminal.reads("Shall it go on?")
        await terminal.reads("Continue? [y]es · [n]o · [l]ater")
        terminal.types("y\n")
        await terminal.reads("✓")
        await terminal.reads("succeeded")
        assert await terminal.ends() == 0
    assert "went on" in terminal.seen


async def test_later_puts_it_aside(desk: Any) -> None:
    write(desk, ASKS)
    async with desk.at_terminal("flow", "run", "test.flow.md") as terminal:
        await terminal.reads("Shall it go on?")
        await terminal.reads("[l]ater")
        terminal.types("later\n")
        await terminal.reads("leadrope approvals approve")
        assert await terminal.ends() == 4


async def test_ctrl_c_stops_all_steps_and_resume_goes_on(desk: Any) -> None:
    one = "### one\n\n- type: shell\n- command: echo x >> log\n"
    write(desk, one + "\n### two\n\n- type: shell\n- command: test -e go || sleep 3600\n")
    async with desk.at_terminal("flow", "run", "test.flow.md") as terminal:
        await terminal.reads("two (shell)")
        terminal.signal(signal.SIGINT)
        await terminal.reads("stopping")
        await terminal.reads("continue with: leadrope flow resume ")
        assert await terminal.ends() == 130
    found = re.search(r"flow resume ([0-9a-f]{8})", terminal.seen)
    assert found is not None
    (desk.project / "go").touch()
    done = await desk.leadrope("flow", "resume", found[1])
    assert done.code == 0, done.err
    assert (desk.project / "log").read_text() == "x\n"
