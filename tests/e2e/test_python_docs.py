"""Every example of docs/python.md is run as it stands, with the rehearsal model behind it, and passes mypy --strict."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from leadrope.rehearsal import ModelServer

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
BLOCKS = [
    (heading, code)
    for heading, text in re.findall(r"^##+ (.*?)\n(.*?)(?=^##+ |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    for code in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
]
COMMAND = {"tool": {"name": "Bash", "input": {"command": "touch tidy.txt", "description": "tidy up"}}}
LIST = {"tool": {"name": "Bash", "input": {"command": "ls", "description": "look"}}}
STOCK = {"tool": {"name": "mcp__functions__stock", "input": {"product": "tea"}}}
QUESTION = {
    "tool": {
        "name": "AskUserQuestion",
        "input": {
            "questions": [
                {
                    "question": "Which?",
                    "header": "Which",
                    "options": [{"label": "This", "description": "x"}, {"label": "That", "description": "y"}],
                    "multiSelect": False,
                }
            ]
        },
    }
}
DONE = {"text": "Done."}
# What the model says, and what the program must print for it.
PLAYS: dict[str, tuple[list[Any], str]] = {
    "Run a prompt": ([{"text": "Three files."}], r"^succeeded Three files\. 0\."),
    "Stream events": ([LIST, {"thinking": "SECRET THOUGHT", "text": "Nothing."}], r"\[Bash: allow by .*\]\nNothing"),
    "Approve tool calls": ([COMMAND, DONE], r"^$"),
    "Answer while you iterate": ([COMMAND, QUESTION, DONE], r"^succeeded$"),
    "Answer many runs in one place": ([COMMAND, DONE], r"tidy asks for Bash\nsucceeded"),
    "Give the agent your own functions": (
        [STOCK, {"text": "Twelve.", "expect": {"tool_result": {"contains": "12"}}}],
        r"^Twelve\.$",
    ),
    "Watch and tighten": ([LIST, DONE], r"Bash done"),
    "Run many prompts": ([{"text": "Fine.", "repeat": 3}], r"Review a\.py\. succeeded Fine\.\nReview b"),
    "Hold a conversation": ([DONE, {"text": "Written."}], r"Done\.\nWritten\.\n[0-9a-f-]{36}"),
    "Errors": ([DONE], r"^Done\.$"),
}


@pytest.fixture
def machine(stage: Any) -> Any:
    home = Path(stage.environ["LEADROPE_HOME"])
    home.mkdir()
    (home / ".env").write_text("ANTHROPIC_API_KEY=sk-ant-rehearsal-0000000000\n")
    Path(stage.environ["HOME"], ".config", "leadrope").mkdir(parents=True)
    return stage


@pytest.mark.parametrize(("heading", "code"), BLOCKS, ids=[heading for heading, _ in BLOCKS])
def test_an_example_does_what_the_page_says(machine: Any, heading: str, code: str) -> None:
    script, shown = PLAYS[heading]
    if "output_type" in code:
        script, shown = [{"tool": {"name": "StructuredOutput", "input": {"files": 3}}}], r"^Count\(files=3\)$"
    with ModelServer.in_thread(script) as model:
        config = Path(machine.environ["HOME"], ".config", "leadrope", "config.toml")
        config.write_text(f'[run]\nbase_url = "{model.url}"\n')
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=machine.ws,
            env=machine.environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert re.search(shown, done.stdout.strip()), done.stdout + done.stderr
    assert "SECRET THOUGHT" not in done.stdout


def test_every_example_passes_a_strict_type_check(tmp_path: Path) -> None:
    for number, (_, code) in enumerate(BLOCKS):
        (tmp_path / f"example{number}.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary", "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
