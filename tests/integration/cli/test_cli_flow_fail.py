"""A workflow that fails on purpose: its message, its exit code, and nothing that looks like a result."""

from __future__ import annotations

import json
from typing import Any

STOPS = """# Stops

## Inputs

### count

- type: integer

## Steps

### look

Looks.

- type: shell
- command: echo looked

### stop

Nothing to do.

- type: fail
- when: ${count} == 0
- message: There is nothing to do.
- code: 17

### work

Works.

- type: shell
- command: echo worked ${count}
"""


async def test_the_exit_code_is_the_authors(desk: Any) -> None:
    (desk.project / "stops.flow.md").write_text(STOPS)
    failed = await desk.leadrope("flow", "run", "stops.flow.md", "count=0")
    assert failed.code == 17, failed.err
    assert failed.err.count("There is nothing to do.") == 1
    assert failed.out == "", "what a step gave before it failed is not the result of the workflow"
    done = await desk.leadrope("flow", "run", "stops.flow.md", "count=2")
    assert (done.code, done.out) == (0, "worked 2\n"), done.err


async def test_json_has_the_code_and_the_kind(desk: Any) -> None:
    (desk.project / "stops.flow.md").write_text(STOPS)
    failed = await desk.leadrope("flow", "run", "stops.flow.md", "count=0", "-o", "json")
    (stop,) = [step for step in json.loads(failed.out)["steps"] if step["id"] == "stop"]
    assert stop["error"] == {"kind": "failed", "message": "There is nothing to do.", "hint": None, "code": 17}
    shown = await desk.leadrope("flow", "report", "stops")
    assert "There is nothing to do." in shown.out
