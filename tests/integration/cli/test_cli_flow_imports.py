"""What a workflow of commands imports: half of the fixed cost of `flow run` is imports, so each of them is wanted."""

from __future__ import annotations

import re
from typing import Any

WORKFLOW = "## Steps\n\n### only\n\nDoes nothing.\n\n- type: shell\n\n```shell command\ntrue\n```\n"
UNWANTED = re.compile(
    r"difflib|yaml|jsonschema_rs|mcp|opentelemetry|leadrope\.rehearsal\b.*"
    r"|leadrope\.runs\.(?:job|run_recorder|feed|grants|background)"
    r"|leadrope\.runs\.observe\.(?:notify|telemetry|webhook|spans)|leadrope\.runs\.workspace\.run_workspace"
    r"|leadrope\.runs\.approvals\.(?:stored_approver|waiting)|leadrope\.runs\.records\.stored_secrets"
    r"|leadrope\.runtime\.(?:run|attempt|broker|sessions|journal|gate\.console|gate\.call_preview)(?:\..*)?"
    r"|leadrope\.runtime\.agents\.agent_files|leadrope\.core\.fold|leadrope\.core\.output\.schema_flat"
    r"|leadrope\.providers\.claude_code\.(?:provider|session|decode|credentials|locate)"
    r"|leadrope\.policy\.web|leadrope\.net\.addresses"
    r"|leadrope\.workflows\.language\.(?:conditions|shell_contexts)|leadrope\.workflows\.engine\.rehearsed"
    r"|leadrope\.cli\.(?:run\.next_steps|screen\.(?:editing|prompt)|flow\.people)"
)
MOST = 290
"""Of leadrope's own. Each takes 0.2 ms."""


async def test_a_workflow_of_commands_loads_no_agent_no_question_and_no_hint(desk: Any) -> None:
    (desk.project / "test.flow.md").write_text(WORKFLOW)
    said = await desk.leadrope("flow", "run", "test", PYTHONPROFILEIMPORTTIME="1")
    assert said.code == 0, said.err
    imported = re.findall(r"^import time: +\d+ \| +\d+ \| +(\S+)$", said.err, re.MULTILINE)
    assert "leadrope.workflows.engine.engine" in imported
    assert [name for name in imported if UNWANTED.fullmatch(name)] == []
    own = [name for name in imported if name.startswith("leadrope")]
    assert len(own) <= MOST, f"{len(own)} modules: {' '.join(sorted(own))}"
