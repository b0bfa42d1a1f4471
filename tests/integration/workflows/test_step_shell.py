"""The shell step in real workflows: what it gives, how it fails, and that a value never becomes code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from leadrope.runtime.gate.approvers import Answer
from leadrope.workflows.language import templates
from leadrope.workflows.language.shell_quoting import Unquotable
from leadrope.workflows.problems import BadWorkflow
from leadrope.workflows.report import ExecutionResult
from leadrope.workflows.steps import shell

NASTY = 'it\'s "a" $(touch canary) `touch canary`; touch canary\n#'


def workflow(*lines: str, inputs: str = "") -> str:
    block = f"# T\n## Inputs\n{inputs}\n" if inputs else "# T\n"
    return block + "## Steps\n### one\n- type: shell\n" + "\n".join(lines) + "\n"


def script(text: str, tag: str = "shell command") -> str:
    return f"```{tag}\n{text}\n```"


INPUT = "### x\n- type: any\n- required: true\n"


async def given(shop: Any, result: ExecutionResult) -> dict[str, Any]:
    outcome = (await shop.outcomes(result.execution_id))[0]
    found: dict[str, Any] = outcome.outputs
    return found


def problem(result: ExecutionResult) -> Any:
    assert result.outcome == "failed"
    return result.failures[0].error


# -- what it gives ----------------------------------------------------------------------------------------------------


async def test_a_script_gives_its_output(shop: Any) -> None:
    result = await shop.run(workflow(script("echo out; echo; echo err >&2; pwd")))
    found = await given(shop, result)
    assert result.outcome == "succeeded"
    assert found["stdout"] == f"out\n\n{shop.ws}"
    assert found["stderr"] == "err"
    assert (found["exit_code"], found["truncated"], found["leftovers"]) == (0, False, 0)
    assert found["duration_ms"] >= 0


async def test_only_one_newline_at_the_end_is_taken_away(shop: Any) -> None:
    result = await shop.run(workflow("- command: printf 'a\\n\\n\\n'"))
    assert (await given(shop, result))["stdout"] == "a\n\n"


@pytest.mark.parametrize(("word", "code"), [("true", 0), ("false", 1)])
async def test_a_program_that_yaml_takes_for_a_truth_is_the_program(shop: Any, word: str, code: int) -> None:
    result = await shop.run(workflow(f"- command: {word}", "- ignore_errors: true"))
    assert (await given(shop, result))["exit_code"] == code


async def test_a_list_is_read_by_no_shell(shop: Any) -> None:
    result = await shop.run(
        workflow('- command: [printf, "%s|", "${x}", "$HOME", 5, true]', inputs=INPUT), {"x": NASTY}
    )
    assert (await given(shop, result))["stdout"] == f"{NASTY}|$HOME|5|true|"
    assert not (shop.ws / "canary").exists()


async def test_values_in_a_script_are_data(shop: Any) -> None:
    text = "printf '%s|%s|%s|' ${x} \"${x}\" '${x}'; cat <<EOF\n${x}\nEOF\n# ${x}"
    result = await shop.run(workflow(script(text), inputs=INPUT), {"x": NASTY})
    assert (await given(shop, result))["stdout"] == f"{NASTY}|" * 3 + NASTY
    assert not (shop.ws / "canary").exists()


async def test_a_shells_own_expansion_is_written_with_two_dollars(shop: Any) -> None:
    result = await shop.run(workflow('- command: x=a; echo "$${x}b" "$x"'))
    assert (await given(shop, result))["stdout"] == "ab a"


async def test_a_script_that_is_one_template_is_the_value(shop: Any) -> None:
    result = await shop.run(workflow("- command: ${x}", inputs=INPUT), {"x": "echo a; echo b"})
    assert (await given(shop, result))["stdout"] == "a\nb"


@pytest.mark.parametrize(
    ("value", "wanted"), [("text\n", "text\n"), ({"a": [1, None]}, '{"a": [1, null]}'), (None, "")]
)
async def test_input_is_text_or_json(shop: Any, value: Any, wanted: str) -> None:
    result = await shop.run(workflow("- command: cat; echo .", "- stdin: ${x}", inputs=INPUT), {"x": value})
    assert (await given(shop, result))["stdout"] == wanted + "."


async def test_folder_and_variables(shop: Any) -> None:
    (shop.ws / "inner").mkdir()
    (shop.ws / "way").symlink_to("inner")
    result = await shop.run(
        workflow(script('pwd; echo "$A $B"'), "- cwd: way", "- env: {A: '${x}', B: 2}", inputs=INPUT), {"x": NASTY}
    )
    assert (await given(shop, result))["stdout"] == f"{shop.ws}/inner\n{NASTY} 2"


async def test_background_jobs_end_with_the_step_and_are_counted(shop: Any) -> None:
    result = await shop.run(workflow("- command: sleep 1000 & setsid sleep 1000 & echo up"))
    found = await given(shop, result)
    assert (found["stdout"], found["leftovers"]) == ("up", 2)


async def test_what_is_no_text_is_told(shop: Any) -> None:
    result = await shop.run(workflow("- command: printf 'a\\377b'"))
    assert result.outcome == "degraded"
    assert (await given(shop, result))["stdout"] == "a\ufffdb"
    assert [one.kind for one in result.warnings["one"]] == ["not_text"]


async def test_a_flood_is_cut_and_told(shop: Any) -> None:
    result = await shop.run(workflow("- command: yes é | head -300000 | tr -d '\\n'", "- max_output_bytes: 1001"))
    found = await given(shop, result)
    assert (found["stdout"], found["truncated"]) == ("é" * 500, True)
    assert [one.kind for one in result.warnings["one"]] == ["output_truncated"]


# -- how it fails -----------------------------------------------------------------------------------------------------


async def test_an_exit_code_is_a_failure_with_what_was_said(shop: Any) -> None:
    result = await shop.run(
        workflow("- command: echo out; echo why >&2; exit 3", "- on-error: mend")
        + "### mend\n- type: note\n- text: ${one.exit_code} ${one.stdout} ${one.stderr}\n"
    )
    assert result.outcome == "degraded"
    outcomes = {one.key[0]: one for one in await shop.outcomes(result.execution_id)}
    assert outcomes["mend"].outputs["text"] == "3 out why"
    assert "exit code 3: why" in outcomes["one"].error.message
    assert outcomes["one"].error.kind == "command_failed"


async def test_an_exit_code_may_be_no_failure(shop: Any) -> None:
    result = await shop.run(workflow("- command: exit 3", "- ignore_errors: true"))
    assert result.outcome == "succeeded"
    assert (await given(shop, result))["exit_code"] == 3


async def test_an_exit_code_is_tried_again_only_if_the_step_says_so(shop: Any) -> None:
    text = "[ -e tried ] || { touch tried; exit 1; }; echo done"
    for retry_on, outcome in (
        ("[]", "failed"),
        ("[7]", "failed"),
        ("[7, 1]", "succeeded"),
        ("[exit_code]", "succeeded"),
    ):
        (shop.ws / "tried").unlink(missing_ok=True)
        result = await shop.run(workflow(script(text), f"- retry: {{max: 2, wait: 0, retry_on: {retry_on}}}"))
        assert (result.outcome, result.steps[0].attempts) == (outcome, 1 if outcome == "failed" else 2)
    assert (await given(shop, result))["stdout"] == "done"


async def test_a_time_out_ends_it_and_keeps_what_it_said(shop: Any) -> None:
    result = await shop.run(
        workflow(script("trap '' TERM; echo before; sleep 1000 & wait; sleep 1000"), "- timeout: 0.5")
    )
    told = problem(result)
    assert told.kind == "timed_out"
    assert "0.5 s" in told.message
    assert (await given(shop, result))["stdout"] == "before"


@pytest.mark.parametrize(
    ("lines", "kind", "said"),
    [
        (["- command: [leadrope-no-such, a]"], "not_started", "no such program"),
        (["- command: leadrope-no-such"], "command_failed", "127"),
        (["- command: pwd", "- cwd: gone"], "bad_input", "does not exist"),
        (["- command: pwd", "- cwd: .."], "bad_input", "out of the workspace"),
        (["- command: pwd", "- cwd: file"], "bad_input", "is not a folder"),
        (["- command: pwd", "- cwd: way"], "bad_input", "out of the workspace"),
        (["- command: pwd", "- env: {PATH: /x}"], "bad_input", "PATH"),
        (["- command: pwd", "- env: {LD_PRELOAD: /x}"], "bad_input", "LD_PRELOAD"),
        (["- command: ' '"], "bad_input", "empty"),
        (["- command: kill -9 $$"], "command_failed", "SIGKILL"),
        (["- command: kill -9 $PPID; sleep 9"], "command_lost", "held this command"),
    ],
)
async def test_each_failure_says_what_happened(shop: Any, lines: list[str], kind: str, said: str) -> None:
    (shop.ws / "file").write_text("")
    (shop.ws / "way").symlink_to("/")
    told = problem(await shop.run(workflow(*lines)))
    assert told.kind == kind
    assert said in f"{told.message} {told.hint}"


async def test_a_place_that_cannot_hold_data_is_refused_before_anything_runs(shop: Any) -> None:
    with pytest.raises(BadWorkflow, match=r"command: \$\{x\}: `eval` reads its words as code"):
        await shop.run(workflow("- command: touch ran; eval ${x}", inputs=INPUT), {"x": "a"})
    assert not (shop.ws / "ran").exists()


# -- the gate ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    ["touch ran", "true && touch ran", "bash -c 'touch ran'", "[touch, ran]", "[bash, -c, touch ran]", "${x}"],
)
async def test_a_blocked_command_never_runs(shop: Any, command: str) -> None:
    text = workflow(f"- command: {command}", "- policy: {blocked_commands: [touch]}", inputs=INPUT)
    told = problem(await shop.run(text, {"x": "touch ran"}))
    assert told.kind == "denied"
    assert not (shop.ws / "ran").exists()


async def test_a_blocked_path_is_seen_from_the_folder_that_the_step_runs_in(shop: Any) -> None:
    (shop.ws / "inner").mkdir()
    told = problem(
        await shop.run(workflow("- command: echo a >file", "- cwd: inner", "- policy: {blocked_paths: [inner/file]}"))
    )
    assert told.kind == "denied"
    assert not (shop.ws / "inner/file").exists()


async def test_a_person_is_asked_and_sees_the_final_text(shop: Any) -> None:
    somebody = shop.somebody(Answer(approved=True), Answer(approved=False, reason="not today"))
    text = workflow("- command: echo ${x}", "- policy: {require_approval: [echo]}", inputs=INPUT)
    result = await shop.run(text, {"x": "a b"}, people=somebody)
    assert (await given(shop, result))["stdout"] == "a b"
    assert "echo 'a b'" in somebody.asked[0].detail
    told = problem(await shop.run(text, {"x": "c"}, people=somebody))
    assert (told.kind, "not today" in told.message) == ("denied", True)


# -- the parts --------------------------------------------------------------------------------------------------------


def test_all_missing_values_are_named_at_once() -> None:
    with pytest.raises(templates.Unresolved) as caught:
        shell.fill({"command": "echo ${a} ${b}", "stdin": "${c}"}, {"x": 1})
    assert [one.template for one in caught.value.missing] == ["${a}", "${b}", "${c}"]
    with pytest.raises(Unquotable):
        shell.fill({"command": "echo `${a}`"}, {"a": 1})


@pytest.mark.parametrize(
    ("sources", "is_own"),
    [
        ({"command": "ls"}, True),
        ({"command": "ls ${x}"}, True),
        ({"command": "${x}"}, False),
        ({"command": " ${x}\n"}, False),
        ({"command": ["ls", "a"]}, True),
        ({"command": ["ls", "${x}"]}, False),
        ({"command": "bash", "stdin": "text"}, True),
        ({"command": "bash", "stdin": "${x}"}, False),
        ({"command": "python3 -", "stdin": "${x}"}, False),
        ({"command": "cat | sh -s", "stdin": "${x}"}, False),
        ({"command": "python3 -c 'print(input())'", "stdin": "${x}"}, True),
        ({"command": "python3 script.py", "stdin": "${x}"}, True),
        ({"command": "jq .a", "stdin": "${x}"}, True),
        ({"command": 'eval "$X"', "env": {"X": "${x}"}}, False),
        ({"command": 'bash -c "$X"', "env": {"X": "${x}"}}, False),
        ({"command": "$X a", "env": {"X": "${x}"}}, False),
        ({"command": 'grep "$X" file', "env": {"X": "${x}"}}, True),
    ],
)
def test_data_that_is_run_is_not_the_authors_own_text(sources: dict[str, Any], is_own: bool) -> None:
    text = sources["command"] if isinstance(sources["command"], str) else " ".join(sources["command"])
    assert shell.is_own(sources, text) is is_own


def test_its_schema_tells_a_form_what_there_is() -> None:
    schema = json.dumps(msgspec.json.schema(shell.Shell))
    for field in shell.Shell.__struct_fields__:
        assert field in schema
    assert "A script for bash" in schema


def test_the_workspace_is_not_left_by_name(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    assert shell._folder("a", tmp_path.resolve()) == tmp_path.resolve() / "a"
    assert shell._folder("", tmp_path) == tmp_path
