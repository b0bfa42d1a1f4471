"""The scripted model in front of the real CLI: it is believed, and its errors are final."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from leadrope.rehearsal import ModelServer


class Ran:
    def __init__(self, exit_code: int | None, lines: list[dict[str, Any]], stderr: str) -> None:
        self.exit_code, self.lines, self.stderr = exit_code, lines, stderr

    @property
    def result(self) -> dict[str, Any]:
        results = [line for line in self.lines if line.get("type") == "result"]
        assert len(results) == 1, (self.lines, self.stderr)
        return results[0]


async def run_cli(binary: str, url: str, cwd: Path, *prompts: str) -> Ran:
    """Start the CLI on one conversation with nothing of this machine in its environment."""
    home = cwd.parent / "home"
    home.mkdir(exist_ok=True)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "CLAUDE_CONFIG_DIR": str(home / ".claude"),
        "TMPDIR": str(home),
        "ANTHROPIC_API_KEY": "sk-ant-rehearsal-0000000000",
        "ANTHROPIC_BASE_URL": url,
        "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "IS_SANDBOX": "1",  # bypass as root, as in a container
    }
    flags = "-p --output-format stream-json --verbose --input-format stream-json --permission-prompt-tool stdio"
    process = await asyncio.create_subprocess_exec(
        binary,
        *flags.split(),
        *("--setting-sources", "", "--strict-mcp-config", "--model", "claude-sonnet-4-5"),
        *("--permission-mode", "bypassPermissions"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=cwd,
        env=environment,
    )
    message = {"type": "user", "session_id": "", "parent_tool_use_id": None, "client_composed": True}
    sent = [{**message, "message": {"role": "user", "content": prompt}} for prompt in prompts]
    out, err = await process.communicate("".join(json.dumps(line) + "\n" for line in sent).encode())
    return Ran(process.returncode, [json.loads(line) for line in out.splitlines()], err.decode())


async def test_thinking_tools_a_subagent_and_text_reach_the_real_cli(claude: str, tmp_path: Path) -> None:
    """One start: a tool really runs, a subagent speaks with its own turns, the results come back to the model."""
    cwd = tmp_path / "repo"
    cwd.mkdir()
    script = {
        "turns": [
            {
                "thinking": "I should look.",
                "text": "Making a file.",
                "tool": {
                    "name": "Bash",
                    "input": {"command": "echo made > {{cwd}}/made.txt; echo seen", "description": "x"},
                },
                "expect": {"contains": "please make a file", "model": "claude-sonnet-4-5", "tools": ["Bash"]},
            },
            {
                "tool": {
                    "name": "Agent",
                    "input": {
                        "description": "sub",
                        "prompt": "what is seven times six",
                        "subagent_type": "general-purpose",
                        "run_in_background": False,
                    },
                },
                "expect": {"tool_result": {"contains": "seen", "is_error": False}},
            },
            {"text": "All done.", "expect": {"tool_result": {"contains": "forty-two"}}},
        ],
        "subagents": [[{"text": "forty-two", "expect": {"contains": "seven times six"}}]],
    }
    async with ModelServer(script, variables={"cwd": str(cwd)}) as model:
        ran = await run_cli(claude, model.url, cwd, "please make a file")
    assert ran.exit_code == 0, ran.stderr
    assert (cwd / "made.txt").read_text() == "made\n"
    assert ran.result["result"] == "All done."
    assert ran.result["is_error"] is False
    blocks = [block for line in ran.lines if line["type"] == "assistant" for block in line["message"]["content"]]
    assert [block["type"] for block in blocks] == ["thinking", "text", "tool_use", "tool_use", "text"]
    assert [request.place for request in model.requests] == ["turns[0]", "turns[1]", "subagents[0][0]", "turns[2]"]
    assert model.requests[0].headers["x-api-key"] == "sk-ant-rehearsal-0000000000"
    # No request beside the conversation, else casting.side_request has something to learn.
    assert model.other_requests == []


@pytest.mark.parametrize(
    ("script", "status", "words", "requests"),
    [
        # After a 400 the CLI tries again without a wait, five times with fewer beta features.
        (
            [{"error": {"status": 400, "message": "the script says no"}, "repeat": "forever"}],
            400,
            "the script says no",
            6,
        ),
        ([], 417, "rehearsal: request 1 was not expected: the script has no turns", 1),
    ],
    ids=["a scripted error", "a request too many"],
)
async def test_an_error_ends_the_real_cli_at_once(
    claude: str, tmp_path: Path, script: list[dict[str, Any]], status: int, words: str, requests: int
) -> None:
    """A scripted 400 is not waited for, and our own refusal is not even tried again."""
    cwd = tmp_path / "repo"
    cwd.mkdir()
    async with ModelServer(script, strict=False) as model:
        ran = await run_cli(claude, model.url, cwd, "hello")
    assert ran.exit_code == 1
    assert ran.result["is_error"] is True
    assert ran.result["api_error_status"] == status
    assert words in ran.result["result"]
    assert len(model.requests) <= requests
