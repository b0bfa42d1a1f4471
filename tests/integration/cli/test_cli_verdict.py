"""What a script may rely on: exit code 3, the schema's exit code, and one whole JSON object from every run."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from leadrope.core.result import RunError, RunResult

SCHEMA = json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
KEYS = set(RunResult.__struct_fields__)


def repository(folder: Path) -> None:
    git = ("git", "-c", "user.name=t", "-c", "user.email=t@localhost")
    (folder / "old.txt").write_text("old\n")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "first")):
        subprocess.run([*git, *words], cwd=folder, check=True)


def write_to(desk: Any) -> dict[str, Any]:
    return {"name": "Write", "input": {"file_path": str(desk.project / "new.txt"), "content": "x"}}


@pytest.mark.parametrize("flags", [(), ("--mode", "plan"), ("--mode", "dontAsk")], ids=["default", "plan", "dontAsk"])
async def test_a_run_that_was_allowed_nothing_is_3(desk: Any, playing: Any, flags: tuple[str, ...]) -> None:
    read = {"name": "Bash", "input": {"command": "ls", "description": "look"}}
    async with playing({"tool": read}, {"tool": desk.touch}, {"text": "I could not."}) as model:
        ended = await desk.leadrope("run", "go", "--base-url", model.url, "-o", "json", *flags)
    assert ended.code == 3, ended.err
    told = json.loads(ended.out)
    assert (told["outcome"], told["text"], told["error"]["kind"]) == ("denied", "I could not.", "denied")
    assert [denial["call"]["name"] for denial in told["denials"]] == ["Bash"]
    assert "✗ denied: 1 call was denied: Bash (" in ended.err
    assert "--allow" in ended.err
    stored = await desk.leadrope("runs", "list", "--outcome", "denied", "-o", "json")
    assert json.loads(stored.out)["id"] == told["run_id"], "the store says the same"


@pytest.mark.parametrize(("flags", "code"), [((), 0), (("--fail-on-denied",), 3), (("--strict",), 3)])
async def test_one_denied_call_beside_an_edit(desk: Any, playing: Any, flags: tuple[str, ...], code: int) -> None:
    async with playing({"tool": write_to(desk)}, {"tool": desk.touch}, {"text": "Half."}) as model:
        ended = await desk.leadrope("run", "go", "--base-url", model.url, "--mode", "edit", "-o", "json", *flags)
    assert (ended.code, json.loads(ended.out)["outcome"]) == (code, "succeeded"), ended.err
    assert ("with " + "".join(flags) + " that is exit code 3" in ended.err) == (code == 3)


async def test_a_question_that_nobody_answers_is_not_a_denied_call(desk: Any, playing: Any) -> None:
    question = {"question": "Which?", "header": "h", "multiSelect": False}
    options = [{"label": "a", "description": "a"}, {"label": "b", "description": "b"}]
    ask = {"name": "AskUserQuestion", "input": {"questions": [{**question, "options": options}]}}
    async with playing({"tool": ask}, {"text": "Then a."}) as model:
        ended = await desk.leadrope("run", "go", "--base-url", model.url, "--strict")
    assert (ended.code, ended.out) == (0, "Then a.\n"), ended.err


async def test_an_answer_that_misses_its_schema_is_1_and_not_on_stdout(desk: Any, playing: Any) -> None:
    async with playing({"text": "There are four.", "repeat": "forever"}, strict=False) as model:
        given = ("run", "count", "--base-url", model.url, "--schema", SCHEMA, "--schema-retries", "0")
        ended = await desk.leadrope(*given)
        as_json = await desk.leadrope(*given, "-o", "json")
    assert (ended.code, ended.out) == (1, ""), ended.err
    assert "There are four." in ended.err
    assert "the answer does not satisfy the schema" in ended.err
    told = json.loads(as_json.out)
    assert (as_json.code, told["outcome"], told["output"], told["text"]) == (1, "degraded", None, "There are four.")


NOT_STARTED = {
    "no credential": ((), {"CLAUDE_CODE_OAUTH_TOKEN": ""}, 1, "not_authenticated"),
    "no agent": ((), {"LEADROPE_CLAUDE_BIN": "/no/such/claude"}, 1, "cli_not_found"),
    "no folder": (("-C", "/no/such/folder"), {}, 2, "bad_request"),
    "no number": (("--max-turns", "0"), {}, 2, "bad_request"),
    "no option": (("--no-such-option",), {}, 2, "bad_request"),
    "no integer": (("--max-turns", "many"), {}, 2, "bad_request"),
    "two prompts": (("on",), {}, 2, "bad_request"),
    "no file": (("--schema", "/no/such/file"), {}, 2, "bad_request"),
    "a broken config": ((), {"LEADROPE_CONFIG": "/no/such/config.toml"}, 2, "bad_request"),
}


@pytest.mark.parametrize("case", NOT_STARTED)
@pytest.mark.parametrize("form", ["json", "stream-json"])
async def test_what_could_not_start_is_an_object_with_all_keys(desk: Any, case: str, form: str) -> None:
    flags, environ, code, kind = NOT_STARTED[case]
    ended = await desk.leadrope("run", "go", "-o", form, *flags, **environ)
    assert ended.code == code, ended.err
    assert ended.out.count("\n") == 1
    told = json.loads(ended.out)
    result = told if form == "json" else told["event"]["result"]
    assert set(result) == KEYS
    assert set(result["error"]) == set(RunError.__struct_fields__)
    assert (result["outcome"], result["error"]["kind"]) == ("failed", kind)
    assert result["error"]["message"] in ended.err, "people are told the same"


@pytest.mark.parametrize("form", ["json", "stream-json"])
async def test_an_object_has_all_keys_and_round_costs(desk: Any, playing: Any, form: str) -> None:
    usage = {"input_tokens": 100, "output_tokens": 10}
    look = {"name": "Bash", "input": {"command": "pwd", "description": "look"}}
    # The sum of two costs of 0.0003 is 0.0006000000000000001, as Python adds them.
    async with playing({"tool": look, "usage": usage}, {"text": "Hello.", "usage": usage}) as model:
        ended = await desk.leadrope("run", "go", "--base-url", model.url, "-o", form, "--model", "sonnet")
    last = json.loads(ended.out.splitlines()[-1])
    result = last if form == "json" else last["event"]["result"]
    assert set(result) == KEYS
    assert (result["denials"], result["warnings"], result["error"]) == ([], [], None)
    assert len(str(result["cost_usd"])) <= 10, result["cost_usd"]
    assert "00000000" not in ended.out.replace("-0000-", ""), "no noise of binary fractions"


@pytest.mark.parametrize("how", [(), ("--detach",)], ids=["here", "detached"])
async def test_wrong_usage_is_not_kept_as_a_run(desk: Any, how: tuple[str, ...]) -> None:
    wrong = (
        *(("--tools", "Baash"), ("-C", "/no/such/folder"), ("--mode", "plann"), ("--budget", "0")),
        *(("--policy", "/no/such/rules.toml"), ("--add-dir", "/no/such/folder")),
    )
    for flags in wrong:
        ended = await desk.leadrope("run", "go", *flags, *how)
        assert (ended.code, ended.out) == (2, ""), (flags, ended.err)
    assert (await desk.leadrope("runs", "list", "-o", "json")).out == ""


async def test_what_could_not_start_is_not_kept_as_a_run(desk: Any) -> None:
    """No login and no agent: whoever sits at the terminal has the message, and the statistics count what was run."""
    repository(desk.project)
    for environ in ({"CLAUDE_CODE_OAUTH_TOKEN": ""}, {"LEADROPE_CLAUDE_BIN": "/no/such/claude"}):
        for flags in ((), ("--worktree",)):
            ended = await desk.leadrope("run", "go", *flags, **environ)
            assert ended.code == 1
    assert (await desk.leadrope("runs", "list", "-o", "json")).out == ""
    assert json.loads((await desk.leadrope("stats", "-o", "json")).out)["total"]["runs"] == 0
    listed = await asyncio.create_subprocess_exec(
        *("git", "worktree", "list"), cwd=desk.project, stdout=asyncio.subprocess.PIPE
    )
    assert len((await listed.communicate())[0].splitlines()) == 1, "its worktree is gone too"


async def test_a_detached_run_that_could_not_start_keeps_its_record(desk: Any) -> None:
    config = desk.home / ".config" / "leadrope" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[service]\nidle_s = 1\nrecover = "fail"\n')
    ended = await desk.leadrope("run", "go", "--detach", LEADROPE_CLAUDE_BIN="/no/such/claude")
    assert ended.code == 0, ended.err
    run = ended.out.strip()
    await desk.leadrope("runs", "logs", "-f", run)
    shown = await desk.leadrope("runs", "show", run)
    assert "/no/such/claude" in shown.out
    (row,) = (await desk.leadrope("runs", "list", "-o", "json")).out.splitlines()
    assert (json.loads(row)["id"], json.loads(row)["outcome"]) == (run, "failed")


@pytest.mark.parametrize("flag", ["--strict", "--fail-on-denied"])
async def test_a_demand_on_the_end_of_a_run_is_refused_where_nobody_waits_for_it(desk: Any, flag: str) -> None:
    ended = await desk.leadrope("run", "go", "--detach", flag)
    assert (ended.code, ended.out) == (2, "")
    assert flag in ended.err
    assert "--detach does not wait for it" in ended.err


async def test_whoever_follows_a_detached_run_hears_that_its_answer_misses_the_schema(
    desk: Any, background: Any, playing: Any
) -> None:
    schema = desk.project / "s.json"
    schema.write_text('{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}')
    async with playing({"text": "There are four.", "repeat": "forever"}, strict=False) as model:
        given = ("--detach", "--schema", str(schema), "--base-url", model.url)
        run_id = (await desk.leadrope("run", "count", *given)).out.strip()
        followed = await desk.leadrope("runs", "logs", "-f", run_id)
    assert followed.code == 1, followed.err
