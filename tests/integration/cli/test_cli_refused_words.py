"""Words that mean nothing are refused, and nothing is started; hints name the right command."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("run", "hi", "--purpose", "foo"), "--purpose: 'foo' is not known"),
        (("run", "hi", "--mode", "Plan"), "Did you mean plan?"),
        (("run", "hi", "--model", ""), "--model: is empty"),
        (("run", "hi", "--agent", "ghost"), "--agent: there is no agent 'ghost'"),
        (("run", ""), "the prompt is empty\n  Give the agent something to do."),
        (("runs", "list", "--outcome", "foo"), "'foo' is not known. Use one of: succeeded, degraded, failed"),
        (("trust", "no-such-folder"), "Name the folder of a repository."),
    ],
)
async def test_a_word_that_is_not_known_is_refused(desk: Any, words: tuple[str, ...], told: str) -> None:
    ended = await desk.leadrope(*words)
    assert (ended.code, ended.out) == (2, "")
    assert told in ended.err
    assert "No runs yet." in (await desk.leadrope("runs", "list")).err, "nothing was started"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("output_schema: {f: {type: str}}", "6:18: error: output_schema: has no keyword of JSON Schema, only 'f'"),
        ("purpose: reveiw", "purpose: 'reveiw' is not known. Did you mean review?"),
        ("sandbox: {network: {bogus: 1}}", "'bogus'"),
    ],
)
async def test_a_step_is_refused_for_the_same_words(desk: Any, line: str, told: str) -> None:
    (desk.project / "s.flow.md").write_text(f"## Steps\n### a\nAsks.\n- type: agent\n- prompt: x\n- {line}\n")
    checked = await desk.leadrope("flow", "check", "s.flow.md")
    assert checked.code == 2
    assert told in checked.out


async def test_runs_show_names_what_was_denied(desk: Any, playing: Any) -> None:
    async with playing({"tool": desk.touch}, {"text": "It was not allowed."}) as model:
        await desk.leadrope("run", "go", "--mode", "plan", "--base-url", model.url)
    shown = (await desk.leadrope("runs", "show", "last")).out
    (line,) = [line for line in shown.splitlines() if line.startswith("denied ")]
    assert f"Bash touch {desk.marker}"[:40] in line
    assert not desk.marker.exists()


async def test_undo_of_a_worktree_names_the_command_that_removes_it(desk: Any, playing: Any) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@localhost")
    for words in (("init", "-q"), (*who, "commit", "-q", "--allow-empty", "-m", "first")):
        subprocess.run(["git", *words], cwd=desk.project, env=desk.environ, check=True, timeout=30)  # noqa: ASYNC221  # short
    write = {"name": "Write", "input": {"file_path": "made.txt", "content": "x"}}
    async with playing({"tool": write}, {"text": "Done."}) as model:
        await desk.leadrope("run", "go", "--worktree", "--mode", "edit", "--base-url", model.url)
    ended = await desk.leadrope("runs", "undo", "last")
    assert ended.code != 0
    assert "leadrope runs discard " in ended.err


async def test_reading_needs_no_entry_in_the_list_of_tools(desk: Any, playing: Any) -> None:
    (desk.project / "notes.txt").write_text("the words in the notes\n")
    read = {"name": "Read", "input": {"file_path": str(desk.project / "notes.txt")}}
    async with playing({"tool": read}, {"text": "Read."}) as model:
        ended = await desk.leadrope("run", "go", "--tools", "Bash(ls)", "--mode", "dontAsk", "--base-url", model.url)
    assert ended.code == 0, ended.err
    assert "the words in the notes" in model.requests[-1].text
