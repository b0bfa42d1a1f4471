"""A terminal of 40 columns: lines are broken between words, and what is meant to be copied can be."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest

from leadrope.cli.screen import table

NARROW = {"COLUMNS": "40"}
ANSWER = (
    "The configuration of the continuous integration was outdated, and nobody had noticed it.\n\n"
    "- the first point is longer than one line of this terminal\n\n"
    "```\nleadrope run 'a command that is longer than the terminal is wide' --mode plan\n```\n"
)
EXECUTION = "# Release\n## Steps\n### ask-somebody\nA person decides.\n- type: approval\n- message: Publish it?\n"


async def shown(desk: Any, *words: str, **environ: str) -> list[str]:
    async with desk.at_terminal(*words, **{**NARROW, **environ}) as terminal:
        await terminal.ends()
    return [
        line.rstrip() for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.seen).replace("\r", "").split("\n")
    ]


def too_long(lines: list[str]) -> list[str]:
    return [line for line in lines if table.width_of(line) > 40]


async def test_what_the_demo_names_at_its_end_can_be_typed_as_it_is_printed(desk: Any) -> None:
    lines = await shown(desk, "demo", "--yes")
    last = lines[lines.index("What to try next:") + 1 :]
    assert too_long(last) == []
    typed = [shlex.split(line) for line in "\n".join(last).replace("\\\n", "").split("\n") if "#" not in line]
    commands = [words[words.index(name) :] for words in typed for name in ("export", "run") if name in words]
    assert ["run", "explain this folder", "--mode", "plan"] in commands
    (export,) = [words for words in commands if words[0] == "export"]
    assert (await desk.leadrope(*export)).code == 0
    assert "<html" in (desk.project / "demo.html").read_text()


async def test_runs_show_breaks_lines_between_words_and_no_code(desk: Any, playing: Any) -> None:
    prompt = "look at the configuration of the continuous integration and tell me what is wrong"
    async with playing({"text": ANSWER}) as model:
        ended = await desk.leadrope("run", prompt, "-o", "json", "--base-url", model.url)
    run = json.loads(ended.out)
    lines = await shown(desk, "runs", "show")
    folder = [line for line in lines if str(desk.project) in line]
    code = "  leadrope run 'a command that is longer than the terminal is wide' --mode plan"
    assert [line for line in too_long(lines) if line not in (*folder, code)] == []
    for value in (run["run_id"], run["session_id"]):
        assert f"  {value}" in lines, "it has a line of its own"
    assert code in lines
    assert "  - the first point is longer than one" in lines
    assert "    line of this terminal" in lines, "below the words of the entry"
    told = " ".join(" ".join(lines).split())
    assert f"Prompt: {prompt} Answer: {ANSWER.split('-', maxsplit=1)[0].strip()}" in told
    styled = " ".join(" ".join(await shown(desk, "runs", "show", NO_COLOR="")).split())
    assert "outdated, and nobody had noticed it. • the first point is longer than one line" in styled
    piped = (await desk.leadrope("runs", "show", "last")).out
    assert f"Prompt:\n  {prompt}\n" in piped, "what a program reads keeps its lines"


async def test_errors_hints_and_empty_lists(desk: Any) -> None:
    config = desk.home / ".config/leadrope/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("[agents.reviewer]\ndescription = 'Reviews all changes, and says what is wrong with them'\n")
    for words in (
        ("run", "x", "--mode", "pln"),
        ("run", "x", "--tools", "Baash"),
        ("agents", "list"),
        ("agents", "show", "reviewer"),
        ("policy", "explain", "Bash(git push origin main && rm -rf build)"),
        ("top", "--once"),
        ("runs", "list"),
        ("runs", "show"),
    ):
        lines = await shown(desk, *words)
        paths = (str(desk.project), str(config))
        assert [line for line in too_long(lines) if not any(path in line for path in paths)] == [], words


async def test_what_may_be_answered_to_a_call(desk: Any) -> None:
    async with desk.at_terminal("demo", **NARROW) as terminal:
        await terminal.reads("[n]o · [e]dit:")
        terminal.types("y\r")
        await terminal.ends()
    question = terminal.seen.replace("\r", "").partition("Allow? ")[2].partition("[n]o")[0]
    assert 'any "python3 -m' in question
    assert too_long(question.split("\n")) == []


async def test_doctor_breaks_paths_at_slashes(desk: Any) -> None:
    lines = await shown(desk, "doctor")
    assert [line for line in too_long(lines) if "/" not in line and "-m leadrope" not in line] == []
    assert "  ✓ python" in lines


async def test_lists_of_workflows_and_their_questions(desk: Any) -> None:
    (desk.project / "release.flow.md").write_text(EXECUTION)
    async with desk.at_terminal("flow", "run", "release", **NARROW) as terminal:
        await terminal.reads("Continue? [y]es")
        terminal.types("whenever you like\r")
        await terminal.reads("is not an", "Continue? [y]es")
        terminal.types("later\r")
        await terminal.ends()
    remark = terminal.seen.replace("\r", "").partition("'whenever you like' is")[2].partition("Continue?")[0]
    assert too_long(remark.split("\n")[1:]) == []
    for words in (("flow", "list"), ("flow", "history")):
        lines = await shown(desk, *words)
        rows = [line for line in lines if "release" in line]
        assert rows, lines
        assert too_long(rows) == []
    (approval,) = (await desk.leadrope("approvals", "list", "-o", "json")).out.splitlines()
    lines = await shown(desk, "approvals", "show", json.loads(approval)["id"])
    head = lines[: lines.index("")]
    assert [line for line in too_long(head) if str(desk.project) not in line] == []


@pytest.mark.parametrize("words", ["", "run", "flow", "flow run", "runs list", "approvals approve"])
async def test_help_breaks_lines_between_words(desk: Any, words: str) -> None:
    lines = await shown(desk, *words.split(), "--help")
    last = next((n for n, line in enumerate(lines) if line.strip() in ("Examples:", "Exit codes:")), len(lines))
    # Options are shown as they are typed; headings are not wrapped, nor is what has columns of its own.
    prose = [line for line in lines[:last] if not line.lstrip().startswith("-") and not line.endswith(":")]
    assert too_long(prose) == []
    assert len(prose) > 10
