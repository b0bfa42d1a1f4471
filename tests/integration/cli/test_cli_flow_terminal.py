"""What stands on the terminal while a workflow runs and when it has ended: no line that is no longer true."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from typing import Any

import pytest

from leadrope.core import actors

COLOURS = """### ask

A person.

- type: approval
- message: Which colour?
- choices: [red, green, dark blue]

### after

Goes on.

- type: note
- text: ${ask.choice}

## Outputs

### colour

- source: ${after.text}
"""
STEP = """### {name}

Works.

- type: shell
- command: {command}
- after: []

"""
STUBBORN = "trap '' TERM; touch {name}.began; sleep 3600"


def write(desk: Any, text: str, name: str = "test.flow.md") -> str:
    (desk.project / name).write_text(text)
    return name


def on_screen(seen: str, rows: int = 1000) -> list[str]:
    """What a terminal with so many rows shows of it, and what has scrolled out of its top."""
    lines, at, top = [""], 0, 0
    for part in re.finditer(r"\x1b\[(\d*)([A-Z])|\n|[^\x1b\r\n]+", seen):
        match part[2]:
            case "A":
                at = max(top, at - int(part[1]))
            case "J":
                del lines[at + 1 :]
                lines[at] = ""
            case _ if part[0] == "\n":
                at += 1
                lines += [""] * (at == len(lines))
                top = max(top, at - rows + 1)
            case _:
                lines[at] += part[0]
    return lines


# -- a person is asked ------------------------------------------------------------------------------------------------


async def test_a_slip_of_the_fingers_is_asked_again_and_decides_nothing(desk: Any) -> None:
    write(desk, COLOURS)
    async with desk.at_terminal("flow", "run", "test.flow.md") as terminal:
        await terminal.reads("Which colour?", "4. no", "5. later", "`WORD: text` adds", "> ")
        await terminal.asks("gren\n", "did you mean green?", "> ")
        await terminal.asks("\n", "Nothing was typed", "> ")
        terminal.types("green\n")
        await terminal.reads("succeeded")
        assert await terminal.ends() == 0
    assert "⋯" not in "\n".join(on_screen(terminal.seen)), "a line that changes stood above the question"


@pytest.mark.parametrize("typed", [("n\n", "too red\n"), ("no: too red\n",)])
async def test_a_no_is_said_and_may_have_a_reason(desk: Any, typed: tuple[str, ...]) -> None:
    write(desk, COLOURS)
    async with desk.at_terminal("flow", "run", "test.flow.md") as terminal:
        for prompt, line in zip(("> ", "Why? (Enter for no reason)"), typed, strict=False):
            await terminal.reads(prompt)
            terminal.types(line)
        await terminal.reads(f"denied by {actors.system_user()}: too red")
        assert await terminal.ends() == 3


@pytest.mark.parametrize(("before", "code"), [("", 4), ("n\n", 3)], ids=["nothing was said", "a no was said"])
async def test_a_closed_terminal_leaves_the_question_open_and_a_no_a_no(desk: Any, before: str, code: int) -> None:
    write(desk, COLOURS)
    async with desk.at_terminal("flow", "run", "test.flow.md") as terminal:
        await terminal.reads("> ")
        if before:
            await terminal.asks(before, "Why?")
        terminal.types("\x04")
        assert await terminal.ends() == code


async def test_the_turn_of_a_loop_and_a_retry_are_shown_while_they_run(desk: Any) -> None:
    wait = "until [ -e {0} ]; do sleep 0.05; done"
    loop = f"test -e one || {{ touch one; exit 0; }}; {wait.format('go')}"
    retry = f"test -e two || {{ touch two; exit 3; }}; {wait.format('gone')}"
    write(
        desk,
        f"### poll\n\nPolls.\n\n- type: shell\n- command: {json.dumps(loop)}\n- loop: {{max_iterations: 2}}\n\n"
        f"### flaky\n\nFails once.\n\n- type: shell\n- command: {json.dumps(retry)}\n"
        "- retry: {max: 2, wait: 0, retry_on: [3]}\n",
    )
    async with desk.at_terminal("flow", "run", "test.flow.md") as terminal:
        await terminal.reads("poll (shell)", "turn 2")
        (desk.project / "go").touch()
        await terminal.reads("2 turns", "↻ flaky: ", "attempt 2 follows")
        (desk.project / "gone").touch()
        await terminal.reads("2 attempts", "succeeded")
        assert await terminal.ends() == 0


async def test_what_is_long_is_shown_on_demand(desk: Any) -> None:
    write(desk, "### ask\n\nA person.\n\n- type: approval\n- message: |\n" + "".join(f"    n{n}\n" for n in range(50)))
    async with desk.at_terminal("flow", "run", "test.flow.md") as terminal:
        await terminal.reads("are not shown", "[s]how all: ")
        assert "n25" not in terminal.seen
        assert "n49" in terminal.seen
        await terminal.asks("s\n", "n25", "[l]ater: ")
        terminal.types("y\n")
        assert await terminal.ends() == 0


async def test_what_waits_is_told_with_its_place_all_choices_and_what_would_be_done(desk: Any) -> None:
    write(desk, COLOURS, "inner.flow.md")
    text = """### sub

Calls.

- type: workflow
- workflow: inner
- batch: {items: [1, 2], parallel: true}

### deploy

To the store.

- type: shell
- command: make deploy && make check
- env: {API_TOKEN: not-to-be-told-1234, STAGE: test}
- approval: required
- after: []
"""
    told = (await desk.leadrope("flow", "run", write(desk, text))).err
    for item in (0, 1):
        assert f"  sub[{item}]/ask waits for a person: Which colour?\n" in told, told
    assert told.count("--choose red   (or --choose green, --choose 'dark blue', leadrope approvals deny ") == 2
    assert "  deploy waits for a person: To the store.\n      make deploy && make check\n" in told
    assert '"STAGE":"test"' in told
    assert "not-to-be-told" not in told
    long = text.replace("make check", "true " + "x" * 5000)
    told = (await desk.leadrope("flow", "run", write(desk, long))).err
    assert re.search(r"\n      … leadrope approvals show [0-9a-f]{12}-step-\d has all of it\n", told), told
    assert len(told) < 3000


async def test_the_place_of_a_step_inside_heads_its_question(desk: Any) -> None:
    write(desk, COLOURS, "inner.flow.md")
    write(desk, "### sub\n\nCalls.\n\n- type: workflow\n- workflow: inner\n- batch: {items: [1, 2], parallel: true}\n")
    async with desk.at_terminal("flow", "run", "test.flow.md") as terminal:
        await terminal.reads("? sub[0]/ask", "> ")
        await terminal.asks("1\n", "? sub[1]/ask", "> ")
        terminal.types("2\n")
        assert await terminal.ends() == 0


# -- a stop -----------------------------------------------------------------------------------------------------------


async def begun(desk: Any, *names: str) -> None:
    async with asyncio.timeout(60):
        while not all((desk.project / f"{name}.began").exists() for name in names):  # noqa: ASYNC110  # another process makes them
            await asyncio.sleep(0.02)


async def test_nothing_that_ran_is_left_on_the_screen_when_it_was_stopped(desk: Any) -> None:
    write(desk, "".join(STEP.format(name=name, command=STUBBORN.format(name=name)) for name in "ab"))
    async with desk.at_terminal("flow", "run", "test.flow.md") as terminal:
        await begun(desk, "a", "b")
        await terminal.reads("b (shell)")
        terminal.signal(signal.SIGINT)
        await terminal.reads("stopping; press Ctrl-C again not to wait", "a (shell)", "b (shell)", "a (shell)")
        now = "\n".join(on_screen(terminal.seen[: terminal.seen.rindex("\x1b[")]))
        assert now.count("b (shell)") <= 1
        assert "stopping; " in now
        assert await terminal.ends() == 130
    title, *lines = on_screen(terminal.seen)
    assert title.startswith("test · 2 steps")
    assert [line.split(" ")[0] for line in lines[:2]] == ["stopping;", "stopped"]
    assert lines[2].startswith("  continue with: leadrope flow resume ")
    assert lines[3:] == [""]


async def test_a_second_ctrl_c_tells_how_it_ended_and_how_to_go_on(desk: Any) -> None:
    write(desk, "".join(STEP.format(name=name, command=STUBBORN.format(name=name)) for name in "ab"))
    async with desk.at_terminal("flow", "run", "test.flow.md") as terminal:
        await begun(desk, "a", "b")
        terminal.signal(signal.SIGINT)
        await terminal.reads("stopping")
        terminal.signal(signal.SIGINT)
        await terminal.reads("interrupted")
        assert await terminal.ends() == 130
    lines = on_screen(terminal.seen)
    found = re.fullmatch(r"  continue with: leadrope flow resume ([0-9a-f]{8})", lines[-2])
    assert found is not None, lines
    assert lines[-3].startswith("interrupted ")
    history = (await desk.leadrope("flow", "history", "--open")).out
    assert found[1] in history


async def test_a_signal_from_a_program_is_not_answered_with_keys(desk: Any) -> None:
    write(desk, STEP.format(name="a", command="touch a.began; sleep 3600"))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "leadrope.cli.main", "flow", "run", "test.flow.md"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=desk.environ,
        cwd=desk.project,
        start_new_session=True,
    )
    await begun(desk, "a")
    process.terminate()
    async with asyncio.timeout(60):
        _, err = await process.communicate()
    assert process.returncode == 130
    told = err.decode().replace("  ⋯ a (shell)\n", "")  # written as soon as it is stored
    assert "stopping, because of SIGTERM\nstopped " in told
    assert "Ctrl-C" not in err.decode()


# -- lines ------------------------------------------------------------------------------------------------------------


async def test_a_small_terminal_gets_no_more_lines_than_it_has(desk: Any) -> None:
    write(desk, "".join(STEP.format(name=name, command="test -e go || sleep 3600") for name in "abcdefgh"))
    async with desk.at_terminal("flow", "run", "test.flow.md", LINES="6") as terminal:
        await terminal.reads("c (shell)", "… and 5 more", "c (shell)", "… and 5 more", "c (shell)", "… and 5 more")
        assert "\n".join(on_screen(terminal.seen, rows=6)).count("c (shell)") == 1
        terminal.signal(signal.SIGINT)
        assert await terminal.ends() == 130
    assert "⋯" not in "\n".join(on_screen(terminal.seen, rows=6))


async def test_json_lines_on_a_terminal_are_not_taken_away_with_the_lines_that_change(desk: Any) -> None:
    write(desk, STEP.format(name="a", command="sleep 0.5"))
    async with desk.at_terminal("flow", "run", "test.flow.md", "-o", "stream-json") as terminal:
        await terminal.reads("⋯ a", "execution.ended")
        assert await terminal.ends() == 0
    shown = "\n".join(on_screen(terminal.seen))
    for kind in ("execution.started", "step.started", "step.progress", "step.ended", "execution.ended"):
        assert f'"type":"{kind}"' in shown, shown


BATCH = """### each

Tries.

- type: shell
- command: test ${item} != 2
- batch: {items: [1, 2, 3, 4, 5], error_handling: HOW}
"""


async def test_a_batch_that_was_ended_early_tells_how_many_were_done(desk: Any) -> None:
    told = (await desk.leadrope("flow", "run", write(desk, BATCH.replace("HOW", "fail_fast")))).err
    assert re.search(r"✗ each [0-9.]+s · 2 of 5 items done\n", told), told
    told = (await desk.leadrope("flow", "run", write(desk, BATCH.replace("HOW", "continue")))).err
    assert re.search(r"! each [0-9.]+s · 5 items\n", told), told


async def test_quiet_lines_name_their_step_and_strict_says_why_it_fails(desk: Any) -> None:
    ended = await desk.leadrope("flow", "run", write(desk, BATCH.replace("HOW", "fail_fast")), "-q")
    assert ended.err.startswith("each: `test 2 != 2` ended with exit code 1\nfailed "), ended.err
    soft = write(desk, BATCH.replace("HOW", "continue"))
    ended = await desk.leadrope("flow", "run", soft, "-q")
    assert ended.code == 0
    assert re.fullmatch(r"each: batch\.items_failed: .*\n", ended.err), ended.err
    ended = await desk.leadrope("flow", "run", soft, "-q", "--strict")
    assert ended.code == 1
    assert re.search(r"\ndegraded [0-9.]+s · --strict makes that a failure\n", ended.err), ended.err


async def test_what_comes_from_the_cache_is_told(desk: Any) -> None:
    name = write(desk, "### a\n\nSays it.\n\n- type: shell\n- command: echo x\n- cache: true\n")
    assert "from the cache" not in (await desk.leadrope("flow", "run", name)).err
    told = (await desk.leadrope("flow", "run", name)).err
    assert re.search(r"✓ a [0-9.]+s · from the cache\n", told), told


async def test_what_a_command_wrote_does_not_reach_the_terminal_as_orders(desk: Any) -> None:
    name = write(desk, "### a\n\nFails.\n\n- type: shell\n- command: printf '\\033[2Jgone' >&2; exit 3\n")
    assert "\x1b" not in (await desk.leadrope("flow", "run", name)).err


# -- standard input ---------------------------------------------------------------------------------------------------

PIPED = """## Inputs

### text

What is read.

- type: string
- default: nothing
- stdin: true

## Steps

### a

Says it.

- type: note
- text: ${text}

## Outputs

### said

- source: ${a.text}
"""


async def test_a_pipe_that_does_not_end_is_told_and_can_be_left(desk: Any) -> None:
    write(desk, PIPED)
    for does_end in (True, False):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "leadrope.cli.main", "flow", "run", "test.flow.md"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=desk.environ,
            cwd=desk.project,
            start_new_session=True,
            # Tests that are started in the background have none, and their children neither.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        assert process.stdin is not None
        assert process.stderr is not None
        async with asyncio.timeout(60):
            told = await process.stderr.readline()
        assert b"waiting for the end of standard input, which is the input 'text' (give text=VALUE" in told
        if does_end:
            out, _ = await process.communicate(b"piped")
            assert (process.returncode, out) == (0, b"piped\n")
        else:
            process.send_signal(signal.SIGINT)
            async with asyncio.timeout(60):
                assert await process.wait() == 130
            process.stdin.close()
            await process.communicate()


async def test_inputs_that_are_not_text_are_refused_in_words(desk: Any) -> None:
    ended = await desk.leadrope("flow", "run", write(desk, PIPED), "--inputs", "-", stdin=b"\xff")
    assert (ended.code, ended.err) == (2, "leadrope: what was piped in is not UTF-8 text\n")


@pytest.mark.parametrize("command", ["run", "resume"])
async def test_help_has_examples(desk: Any, command: str) -> None:
    told = (await desk.leadrope("flow", command, "--help")).out
    assert f"Examples:\n    leadrope flow {command} " in told


async def test_what_a_file_may_not_mean_is_told_when_it_runs(desk: Any) -> None:
    text = "### say\n\n- type: shell\n- command: echo a # b\n\n## Outputs\n\n### o\n\n- source: always\n"
    said = await desk.leadrope("flow", "run", write(desk, text))
    assert said.code == 0
    assert "a YAML comment and is left out" in said.err
    assert "its source has no template" in said.err
    assert "no description" not in said.err
    quiet = await desk.leadrope("flow", "run", "-q", "test.flow.md")
    assert "comment" not in quiet.err


async def test_items_that_were_done_before_are_counted(desk: Any) -> None:
    text = (
        "### each\n\n- type: shell\n- command: test ${item} = 1 || test -e go\n"
        "- batch: {items: [1, 2, 3], max_concurrent: 1}\n- approval: required\n"
    )
    first = await desk.leadrope("flow", "run", write(desk, text))
    assert first.code == 4
    token = re.search(r"approvals approve (\S+) ", first.err)
    assert token is not None
    second = await desk.leadrope("flow", "resume", token[1], "--approve")
    assert second.code == 4
    token = re.search(r"approvals approve (\S+) ", second.err)
    assert token is not None
    third = await desk.leadrope("flow", "resume", token[1], "--approve")
    assert "2 of 3 items done" in third.err
