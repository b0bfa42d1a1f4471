"""The page on workflows shows how a program runs one; what it shows is run as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[3] / "docs" / "workflows.md"
RELEASE = """# Release

## Inputs

### version

- type: string

## Steps

### ask

- type: approval
- message: Release ${version}?

### tag

- type: shell
- command: echo "v${version}"

## Outputs

### tag

- source: ${tag.stdout}
"""


def test_the_example_of_the_page(shop: Any) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    shop.write(RELEASE, "release.flow.md")
    done = program(shop, code)
    assert done.returncode == 0, done.stderr
    asked, ended = done.stdout.splitlines()
    assert re.fullmatch(r"ask asks: [0-9a-f]{12}-step-1", asked)
    assert ended == "succeeded {'tag': 'v1.4.0'}"


CANCELLED = """
import asyncio, sys
import leadrope

async def main():
    started = asyncio.Event()
    executions = []

    def show(record):
        executions.append(record.execution_id)
        if record.event.__struct_config__.tag == "step.started" and record.event.step == "slow":
            started.set()

    async with leadrope.Service() as service:
        running = asyncio.ensure_future(leadrope.run_workflow(service, "slow.flow.md", show=show))
        await started.wait()
        running.cancel()
        try:
            await running
        except asyncio.CancelledError:
            print("cancelled")
        open("go", "w").close()
        result = await leadrope.resume_workflow(service, executions[0])
        print(result.outcome, result.outputs)

asyncio.run(main())
"""
SLOW = """# Slow

## Steps

### first

- type: shell
- command: echo ran >> first; echo 1

### slow

- type: shell
- command: until [ -e go ]; do sleep 0.05; done; echo ${first.stdout}

## Outputs

### n

- source: ${slow.stdout}
"""


def program(shop: Any, code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=shop.ws,
        env=shop.environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_cancelling_interrupts_it_and_it_is_resumed_without_doing_anything_twice(shop: Any) -> None:
    shop.write(SLOW, "slow.flow.md")
    done = program(shop, CANCELLED)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["cancelled", "succeeded {'n': '1'}"]
    assert (shop.ws / "first").read_text() == "ran\n"


def test_a_workflow_with_errors_is_checked_and_is_not_loaded(shop: Any) -> None:
    shop.write("# Bad\n\n## Steps\n\n### one\n\nDoes it.\n\n- type: shel\n- command: 'true'\n", "bad.flow.md")
    shop.write(RELEASE, "release.flow.md")
    code = (
        "import leadrope\n"
        "print([one.kind for one in leadrope.check_workflow('bad.flow.md')])\n"
        "print([one.severity for one in leadrope.check_workflow('release')])\n"
        "try:\n    leadrope.load_workflow('bad.flow.md')\n"
        "except leadrope.BadWorkflow as error:\n    print(error.problems[0].suggestion)\n"
        "try:\n    leadrope.load_workflow('relase')\n"
        "except leadrope.errors.BadValue as error:\n    print(error.hint)\n"
    )
    done = program(shop, code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "['unknown_type']",
        "['warning', 'warning']",
        "shell",
        "Did you mean release?",
    ]
