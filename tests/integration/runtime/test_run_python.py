"""The Python API as a program uses it: the prompt first, `[run]` of the config, and errors that speak Python."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import leadrope
from leadrope import Limits, RunRequest, Secret, errors, open_run
from leadrope.core import config
from leadrope.core.config import named_by
from leadrope.core.fold import _HINTS
from leadrope.core.result import RunResult
from leadrope.runtime.agents import saved_agents

if TYPE_CHECKING:
    from tests.integration.runtime.conftest import Stage

KEY = "sk-ant-rehearsal-0000000000000000"
OPEN: list[dict[str, Any]] = [{"initialize": True}, {"await_user": True}, {"init": True}]
CLOSE: list[dict[str, Any]] = [{"result": True}, {"await_eof": True}]
SOURCE = Path(leadrope.__file__).parent


@pytest.fixture
def program(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A program whose user has a config.toml; the agent answers `hello`."""
    stage.open([*OPEN, {"text": "hello"}, *CLOSE])
    for name, value in stage.environ.items():
        monkeypatch.setenv(name, value)
    (stage.ws.parent / ".config/leadrope").mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(stage.ws.parent / ".config"))
    monkeypatch.chdir(stage.ws)
    return stage


def configure(stage: Stage, text: str) -> Path:
    file = stage.ws.parent / ".config/leadrope/config.toml"
    file.write_text(text)
    return file


def mode_of(stage: Stage) -> str:
    argv = json.loads(stage.started.read_text().splitlines()[-1])["argv"]
    mode: str = argv[argv.index("--permission-mode") + 1]
    return mode


def test_the_prompt_comes_first(program: Stage) -> None:
    result = leadrope.run_sync("go", credential=Secret(KEY), sandbox="off")
    assert (result.outcome, result.text) == ("succeeded", "hello")
    assert program.said()[1]["message"]["content"] == "go"


async def test_old_forms_still_work(program: Stage) -> None:
    by_keyword = await leadrope.run(prompt="go", credential=Secret(KEY), sandbox="off")
    by_request = await leadrope.run(RunRequest(prompt="go", credential=Secret(KEY), sandbox="off"))
    both = await leadrope.run(RunRequest(prompt="go", sandbox="off"), credential=Secret(KEY))
    assert [one.text for one in (by_keyword, by_request, both)] == ["hello"] * 3


async def test_open_run_takes_a_text(program: Stage) -> None:
    async with open_run("go", credential=Secret(KEY), sandbox="off") as run:
        assert (await run.result()).text == "hello"


def test_the_users_config_holds_for_a_program_as_for_the_terminal(program: Stage) -> None:
    configure(program, f'[run]\nmode = "plan"\nbilling = "api_key"\nsandbox = "off"\nbinary = "{program.claude}"\n')
    program.environ["ANTHROPIC_API_KEY"] = KEY
    for given in ("go", RunRequest(prompt="go")):
        leadrope.run_sync(given, environ=program.environ | {"XDG_CONFIG_HOME": os.environ["XDG_CONFIG_HOME"]})
        assert mode_of(program) == "plan"


@pytest.mark.parametrize("given", [{"mode": "default"}, {"mode": "edit"}])
def test_what_a_program_says_wins_over_the_config(program: Stage, given: Any) -> None:
    configure(program, '[run]\nmode = "full"\nsandbox = "off"\n')
    wanted = {"default": "default", "edit": "acceptEdits"}[given["mode"]]
    leadrope.run_sync("go", credential=Secret(KEY), **given)
    assert mode_of(program) == wanted
    leadrope.run_sync(RunRequest(prompt="go", credential=Secret(KEY), **given))
    assert mode_of(program) == wanted


def test_no_config_another_file_and_a_value(program: Stage, tmp_path: Path) -> None:
    configure(program, '[run]\nmode = "plan"\nsandbox = "off"\n')
    other = tmp_path / "team.toml"
    other.write_text('[run]\nmode = "edit"\n')
    value = config.parse('[run]\nmode = "full"\n')
    (program.ws / "here.toml").write_text(other.read_text())
    found = []
    for given in (None, "here.toml", other, value):
        leadrope.run_sync("go", credential=Secret(KEY), config=given, sandbox="off")
        found.append(mode_of(program))
    assert found == ["default", "acceptEdits", "acceptEdits", "bypassPermissions"]
    with pytest.raises(errors.BadConfig, match="does not exist"):
        leadrope.run_sync("go", config="missing.toml")
    with pytest.raises(errors.BadValue, match="config: is of type int"):
        leadrope.run_sync("go", config=5)  # type: ignore[call-overload]  # what mypy refuses too


def test_the_rules_of_a_config_hold_however_it_is_named(program: Stage, tmp_path: Path) -> None:
    rules = '[policy]\npermission_mode = "plan"\n'
    configure(program, rules)
    other = tmp_path / "team.toml"
    other.write_text(rules)
    call = {"tool": "Bash", "id": "t1", "input": {"command": "x"}, "touch": str(program.marker)}
    program.open([*OPEN, {"call": call}, {"text": "ok"}, *CLOSE])
    for given in (None, config.Config(), other):
        result = leadrope.run_sync("go", credential=Secret(KEY), config=given, sandbox="off", mode="full")
        assert [denial.call.name for denial in result.denials] == ["Bash"]
    assert not program.marker.exists()


async def test_the_rules_of_a_named_file_hold_in_a_conversation(program: Stage) -> None:
    (program.ws / "team.toml").write_text('[policy]\npermission_mode = "plan"\n')
    call = {"tool": "Bash", "id": "t1", "input": {"command": "x"}, "touch": str(program.marker)}
    program.open([*OPEN, {"call": call}, {"text": "ok"}, *CLOSE])
    async with leadrope.open_conversation(
        credential=Secret(KEY), config="team.toml", sandbox="off", mode="full"
    ) as conversation:
        result = await conversation.ask("go")
    assert [denial.call.name for denial in result.denials] == ["Bash"]
    assert not program.marker.exists()


def test_merging_is_that_of_the_terminal() -> None:
    settings = config.parse(
        '[run]\nmax_turns = 7\nallow = ["Bash(ls *)"]\n[run.limits]\nwall_s = 60\ntool_s = 5\n[run.labels]\na = "1"\n'
    )
    request = RunRequest(
        prompt="x", limits=Limits(budget_usd=1, tool_s=9), labels={"b": "2"}, allow=("Bash(npm test *)",)
    )
    full = saved_agents.filled(request, named_by(request), settings, {})
    assert (full.max_turns, full.labels, full.allow) == (7, {"a": "1", "b": "2"}, ("Bash(ls *)", "Bash(npm test *)"))
    assert (full.limits.wall_s, full.limits.tool_s, full.limits.budget_usd) == (60, 9, 1)
    applied = config.apply(
        settings,
        None,
        {"prompt": "x", "limits": {"budget_usd": 1, "tool_s": 9}, "labels": {"b": "2"}, "allow": ["Bash(npm test *)"]},
    )
    assert full == applied


def test_a_saved_agent_counts_above_the_config_and_below_the_program(program: Stage) -> None:
    text = '[run]\nmode = "full"\nsandbox = "off"\nmodel = "opus"\n[agents.careful]\nmode = "plan"\nmodel = "haiku"\n'
    configure(program, text)
    for given in ("go", RunRequest(prompt="go")):
        leadrope.run_sync(given, credential=Secret(KEY), agent="careful")
        assert mode_of(program) == "plan"
    leadrope.run_sync("go", credential=Secret(KEY), agent="careful", mode="edit")
    assert mode_of(program) == "acceptEdits"
    argv = json.loads(program.started.read_text().splitlines()[-1])["argv"]
    assert any("haiku" in word for word in argv if word.startswith("--model"))


def test_an_error_of_run_sync_is_the_only_one_that_is_shown(program: Stage) -> None:
    """Without the `During handling of the above exception` of asyncio's own question whether a loop runs."""
    code = "import leadrope; leadrope.run_sync('x', mode='pln')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "'pln' is not a mode" in done.stderr
    assert "During handling" not in done.stderr
    assert "no running event loop" not in done.stderr


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"mod": "plan"}, ["mod", "is not a field", "Did you mean mode"]),
        ({"functons": []}, ["functons", "Did you mean functions"]),
        ({"wall_s": 5}, ["wall_s: is not a field", "limits=leadrope.Limits(wall_s=…)"]),
        ({"timeout": 5}, ["timeout: is not a field", "leadrope.Limits"]),
        ({"mode": "pln"}, ["'pln' is not a mode", "plan, default"]),
        ({"billing": "apikey"}, ["'apikey' is not known", "api_key"]),
        ({"walls": "off"}, ["walls: is not a field", "It is called sandbox now"]),
        ({"sandbox": {"enabled": True}}, ["sandbox: is the level", "read-only", "are called agent_sandbox"]),
        ({"effort": "huge"}, ["'huge' is not known", "xhigh"]),
        ({"mode": 5}, ["5 is not a mode"]),
        ({"max_turns": "three"}, ["max_turns"]),
        ({"limits": {"idle_s": 3}}, ["limits: is a dict", "leadrope.Limits("]),
        ({"approver": True}, ["approver: is of type bool", "Pass a function"]),
        ({"on_event": [print]}, ["on_event: is of type list", "Pass a function"]),
        ({"before_tool": "deny"}, ["before_tool: is of type str"]),
        ({"after_tool": 3}, ["after_tool: is of type int"]),
        ({"functions": print}, ["functions: is of type builtin_function", "a list of functions"]),
        ({"environ": ["A=1"]}, ["environ: is of type list", "os.environ"]),
        ({"config": 3}, ["config: is of type int", "None for no file"]),
        ({"config": "team.toml", "environ": ["A=1"]}, ["environ: is of type list"]),
    ],
)
def test_a_wrong_value_is_told_with_the_right_ones(program: Stage, fields: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(errors.RequestError) as caught:
        leadrope.run_sync("go", **fields)
    for word in words:
        assert word in str(caught.value)


def test_an_agent_sandbox_under_its_earlier_name_is_told_in_a_request(program: Stage) -> None:
    earlier: Any = {"enabled": True}
    with pytest.raises(errors.BadValue, match="are called agent_sandbox"):
        leadrope.run_sync(RunRequest(prompt="go", sandbox=earlier))


@pytest.mark.parametrize("given", [5, None, b"x"])
def test_what_is_no_prompt_is_told(given: Any) -> None:
    with pytest.raises(errors.RequestError, match="Pass a text or a RunRequest"):
        leadrope.run_sync(given)


def test_hints_speak_python_in_python_and_flags_at_the_terminal(program: Stage) -> None:
    program.answers = {"auth status": {"stdout": '{"loggedIn": false}', "exit": 1}}
    program.open([])
    with pytest.raises(errors.NotAuthenticated) as caught:
        leadrope.run_sync("go")
    assert 'billing="api_key"' in str(caught.value)
    assert "credential=leadrope.Secret" in str(caught.value)
    assert "--" not in str(caught.value)
    done = subprocess.run(
        [str(Path(sys.executable).with_name("leadrope")), "run", "go"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "--billing api_key" in done.stderr
    assert "Secret(" not in done.stderr


def _literals(node: ast.AST) -> list[str]:
    return [part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)]


def _names_a_flag(text: str) -> bool:
    """Whole commands (`leadrope trust --forget`, `setpriv --reuid`) are the same everywhere."""
    words = text.replace("`", " ").replace("(", " ").split()
    is_command = bool({"leadrope", "setpriv"} & set(words)) or text.startswith("--user")
    return any(word.startswith("--") and word[2:3].isalpha() for word in words) and not is_command


def test_no_hint_below_the_terminal_names_a_flag() -> None:
    """Flags stand in `leadrope.spelling`; a hint with one would be nonsense to a program."""
    assert not [text for text in _HINTS.values() if _names_a_flag(text)]
    found = []
    for folder in ("core", "runtime", "providers", "confined", "net"):
        for file in (SOURCE / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.keyword) and node.arg == "hint":
                    found += [(file.name, text) for text in _literals(node.value) if _names_a_flag(text)]
    assert not found


def test_a_failed_run_without_output_says_what_failed() -> None:
    from leadrope.core.result import RunError, with_type

    failed = RunResult(
        run_id="r", outcome="failed", output_rung="none", error=RunError(kind="api_error", message="the model said 500")
    )
    for look in (lambda: failed.output_as(int), lambda: with_type(failed, int).value, failed.raise_for_outcome):
        with pytest.raises(errors.RunFailed, match="the model said 500"):
            look()
