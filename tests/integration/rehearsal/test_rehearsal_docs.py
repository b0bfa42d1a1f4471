"""Every example of docs/rehearsal.md is run, and its tables name every key there is."""

from __future__ import annotations

import asyncio
import http.client
import inspect
import json
import re
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from leadrope.rehearsal import ModelServer, executable, script, write_executable

PAGE = (Path(__file__).parents[3] / "docs" / "rehearsal.md").read_text()
EXAMPLES = re.findall(r"^```(yaml model|yaml agent|python)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
assert PAGE.count("\n```") == 2 * len(EXAMPLES), "a fence of a kind that no test runs"


def of(kind: str) -> list[str]:
    return [text for found, text in EXAMPLES if found == kind]


@pytest.mark.parametrize("code", of("python"))
def test_python_examples_run(code: str) -> None:
    names: dict[str, Any] = {}
    exec(compile(code, "docs/rehearsal.md", "exec"), names)
    tests = [value for name, value in names.items() if name.startswith("test_")]
    assert tests
    for test in tests:
        outcome = test()
        if inspect.iscoroutine(outcome):
            asyncio.run(outcome)


def fitting(turn: script.Turn) -> dict[str, Any]:
    """A request that meets the turn's expectation."""
    expect = turn.expect or script.Expect()
    wanted = [expect.contains] if isinstance(expect.contains, str) else list(expect.contains)
    content: list[dict[str, Any]] = [{"type": "text", "text": " ".join(wanted)}]
    if result := expect.tool_result:
        content.append(
            {"type": "tool_result", "tool_use_id": "t", "content": result.contains, "is_error": bool(result.is_error)}
        )
    return {
        "model": expect.model or "m",
        "stream": True,
        "tools": [{"name": name} for name in expect.tools],
        "messages": [{"role": "user", "content": content}],
    }


def ask(url: str, body: dict[str, Any], headers: dict[str, str]) -> int:
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.netloc)
    try:
        connection.request("POST", f"{where.path}/v1/messages", json.dumps(body), headers)
        answer = connection.getresponse()
        try:
            answer.read()
        except http.client.IncompleteRead:
            return -1
        return answer.status
    finally:
        connection.close()


@pytest.mark.parametrize("text", of("yaml model"))
def test_model_examples_can_be_played_to_the_end(text: str) -> None:
    with ModelServer.in_thread(text, variables={"cwd": "/repo"}) as model:
        server = model.server
        parts: list[tuple[str, tuple[script.Turn, ...], dict[str, str]]] = [(server.url, server.script.turns, {})]
        parts += [
            (server.url, turns, {"x-claude-code-agent-id": f"a{number}"})
            for number, turns in enumerate(server.script.subagents)
        ]
        for step, scripted in server.script.steps.items():
            parts.append((server.step_url(step), scripted.turns, {}))
            parts += [(server.step_url(step, item), turns, {}) for item, turns in enumerate(scripted.items)]
        for url, turns, headers in parts:
            for turn in turns:
                for _ in range(2 if turn.repeat == "forever" else turn.repeat):
                    wanted = turn.error.status if turn.error else -1 if turn.cut else 200
                    assert ask(url, fitting(turn), headers) == wanted


@pytest.mark.parametrize("text", of("yaml agent"))
def test_agent_examples_can_be_played_to_the_end(text: str, tmp_path: Path) -> None:
    claude = write_executable(tmp_path / "claude", text, variables={"scratch": str(tmp_path)})
    hooks = {"PreToolUse": [{"matcher": None, "hookCallbackIds": ["h"]}]}
    begin = {"type": "control_request", "request_id": "i", "request": {"subtype": "initialize", "hooks": hooks}}
    allow = {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow"}}
    with subprocess.Popen([claude], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def send(line: dict[str, Any]) -> None:
            assert process.stdin is not None
            process.stdin.write(json.dumps(line).encode() + b"\n")
            process.stdin.flush()

        send(begin)
        send({"type": "user", "message": {"role": "user", "content": "go"}})
        for line in process.stdout:
            if line.startswith(b'{"type":"control_request"'):
                response = {"subtype": "success", "request_id": json.loads(line)["request_id"], "response": allow}
                send({"type": "control_response", "response": response})
            elif b'"type":"result"' in line:
                process.stdin.close()
    assert process.returncode in (0, 1)


TABLED: list[type[msgspec.Struct]] = [
    script.Turn,
    script.Expect,
    script.HttpError,
    script.Drip,
    executable._AgentScript,
    executable._Step,
    executable._Initialize,
    executable._Call,
    executable._Hook,
    executable._Ask,
    executable._Spawn,
    executable._Flood,
    executable._Play,
    executable._ToolResult,
]


@pytest.mark.parametrize("kind", TABLED)
def test_every_key_of_a_script_is_described(kind: type[msgspec.Struct]) -> None:
    prose = re.sub(r"^```.*?^```$", "", PAGE, flags=re.MULTILINE | re.DOTALL)
    words = set(re.findall(r"[a-z_]+", " ".join(re.findall(r"`([^`]+)`", prose))))
    assert set(kind.__struct_fields__) - words == set()
