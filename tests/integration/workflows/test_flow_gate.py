"""No kind of step passes the gate by: what the policy forbids never runs, what it wants approved waits for a person."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from leadrope.runtime.gate.approvers import Answer

SETTINGS = "\n## Settings\n\n- policy: {blocked_commands: [touch]}\n"

PLAIN = "### bad\n\n- type: shell\n- command: touch {marker}\n"
KINDS = {
    "a shell step": PLAIN,
    "a list of words": "### bad\n\n- type: shell\n- command: [touch, {marker}]\n",
    "hidden in a script": (
        "### bad\n\n- type: shell\n\n```shell command\nx=1; if true; then (t''ouch {marker}); fi\n```\n"
    ),
    "through a wrapper": "### bad\n\n- type: shell\n- command: nice env FOO=1 touch {marker}\n",
    "a batch": PLAIN + "- batch: {{items: [1, 2]}}\n",
    "a loop": PLAIN + "- loop: {{max_iterations: 2}}\n",
    "a retried step": PLAIN + "- retry: {{max: 3, wait: 0, retry_on: [exit_code]}}\n",
    "a handler": "### first\n\n- type: read-file\n- file_path: missing\n- on-error: bad\n\n" + PLAIN,
    "a value that becomes the command": (
        "### say\n\n- type: note\n- text: touch {marker}\n\n### bad\n\n- type: shell\n- command: ${{say.text}}\n"
    ),
    "code": (
        "### bad\n\n- type: code\n\n```python code\nimport subprocess\n"
        "result = subprocess.run(['touch', '{marker}']).returncode\n```\n"
    ),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_blocked_command_never_runs(shop: Any, kind: str) -> None:
    marker = shop.ws / "marker"
    result = await shop.run("## Steps\n\n" + KINDS[kind].format(marker=marker) + SETTINGS)
    assert result.outcome in ("failed", "degraded"), result
    assert not marker.exists()
    assert {step.state for step in result.steps if step.id == "bad"} == {"failed"}


async def test_a_blocked_command_in_a_workflow_inside_never_runs(shop: Any) -> None:
    """The rules of the outer one hold inside, and the inner one cannot loosen them."""
    marker = shop.ws / "marker"
    shop.write(
        "## Steps\n\n" + PLAIN.format(marker=marker) + "\n## Settings\n\n- policy: {blocked_commands: []}\n",
        "in.flow.md",
    )
    result = await shop.run("## Steps\n\n### call\n\n- type: workflow\n- workflow: in.flow.md\n" + SETTINGS)
    assert result.outcome == "failed"
    assert not marker.exists()
    assert result.failures[0].error is not None
    assert "forbids" in result.failures[0].error.message
    assert result.failures[0].error.kind == "denied"  # a no keeps its exit code


async def test_a_value_is_data_and_never_code(shop: Any) -> None:
    marker = shop.ws / "marker"
    evil = f"x'; touch {marker}; echo $(touch {marker}) `touch {marker}` \""
    text = """## Inputs

### name

- type: string

## Steps

### say

- type: shell

```shell command
echo ${name}; echo "${name}"; echo '${name}'
cat <<END
${name}
END
```

## Outputs

### said

- source: ${say.stdout}
"""
    result = await shop.run(text, {"name": evil})
    assert (result.outcome, result.outputs["said"]) == ("succeeded", "\n".join([evil] * 4))
    assert not marker.exists()


RULE = "\n## Settings\n\n- policy: {require_approval: ['Bash(touch *)']}\n"


async def test_a_command_that_needs_approval_waits_and_runs_once_after_a_yes(shop: Any) -> None:
    marker: Path = shop.ws / "marker"
    text = "## Steps\n\n" + f"### mark\n\n- type: shell\n- command: touch {marker}; echo x >> log\n" + RULE
    waiting = await shop.run(text)
    assert waiting.outcome == "waiting"
    assert not marker.exists()
    result = await shop.resume(waiting.approvals[0].id, answer=Answer(approved=True))
    assert result.outcome == "succeeded"
    assert (shop.ws / "log").read_text() == "x\n"


@pytest.mark.parametrize("word", [Answer(approved=False), None])
async def test_a_command_that_needs_approval_does_not_run_without_it(shop: Any, word: Answer | None) -> None:
    marker = shop.ws / "marker"
    text = "## Steps\n\n" + f"### mark\n\n- type: shell\n- command: touch {marker}\n" + RULE
    result = await shop.run(text, people=shop.somebody(word))
    assert result.outcome == ("failed" if word is not None else "waiting")
    assert not marker.exists()


async def test_an_answer_counts_for_the_call_that_was_shown_and_for_no_other(shop: Any) -> None:
    marker = shop.ws / "marker"
    text = "## Steps\n\n### mark\n\n- type: shell\n- command: touch NAME\n" + RULE
    waiting = await shop.run(text.replace("NAME", "harmless"))
    shop.write(text.replace("NAME", str(marker)))
    result = await shop.resume(waiting.approvals[0].id, answer=Answer(approved=True), takes_change=True)
    assert result.outcome == "waiting", "another call, so it is asked anew"
    assert not marker.exists()
    assert not (shop.ws / "harmless").exists()


async def test_nobody_there_and_not_to_wait_is_a_no(shop: Any) -> None:
    marker = shop.ws / "marker"
    text = "## Steps\n\n" + f"### mark\n\n- type: shell\n- command: touch {marker}\n" + RULE
    result = await shop.run(text, on_ask="deny")
    assert result.outcome == "failed"
    assert not marker.exists()


async def test_a_step_cannot_loosen_the_rules_of_its_workflow(shop: Any) -> None:
    marker = shop.ws / "marker"
    text = "## Steps\n\n" + PLAIN.format(marker=marker) + "- policy: {blocked_commands: [ls]}\n" + SETTINGS
    result = await shop.run(text)
    assert result.outcome == "failed"
    assert not marker.exists()


async def test_a_denial_says_where_its_rule_stands(shop: Any) -> None:
    result = await shop.run("## Steps\n\n" + PLAIN.format(marker="x") + SETTINGS)
    assert (
        result.steps[0].error.hint
        == "The rule is blocked_commands, of the policy in the workflow's Settings or in the step."
    )
    result = await shop.run("## Steps\n\n### bad\n\n- type: shell\n- command: mkfs /dev/sda\n")
    assert "leadrope policy explain" in result.steps[0].error.hint
