"""What is refused before anything is started, and what passes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from leadrope import errors
from leadrope.core import request_checks
from leadrope.core.request import Limits, McpServer, RunRequest
from leadrope.core.secrets.redaction import Secret

UUID = "11111111-2222-3333-4444-555555555555"


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"mode": "plan"},
        {"mode": "acceptEdits"},
        {"max_turns": 1},
        {"max_turns": 100},
        {"max_thinking_tokens": 1000},
        {"max_thinking_tokens": 100_000},
        {"schema_retries": 0},
        {"schema_retries": 5},
        {"effort": "max"},
        {"billing": "auto"},
        {"session_id": UUID},
        {"resume": "abc.1"},
        {"resume": "abc", "fork": True},
        {"resume": "abc", "fork": True, "session_id": UUID},
        {"output_schema": {"type": "object"}},
        {"output_schema": {"type": "object"}, "max_turns": 2},
        {"output_schema": {"type": "array"}},
        {"output_schema": {"enum": [1, 2]}},
        {"limits": Limits(idle_s=0, wall_s=0.5, budget_usd=0.01)},
        {"connections": {"a-b_1": McpServer(command="x")}},
        {"connections": {"a": McpServer(url="http://x")}},
        {"connections": {"a": McpServer(type="sse", url="https://x")}},
        {"credential": Secret("x")},
        {"base_url": "http://127.0.0.1:8080/v1"},
        {"tools": ()},
    ],
)
def test_passes(fields: dict[str, Any]) -> None:
    request_checks.check(RunRequest(prompt="p", **fields))


@pytest.mark.parametrize("prompt", ["", " ", "\n\t"])
def test_an_empty_prompt_has_its_own_error(prompt: str) -> None:
    with pytest.raises(errors.EmptyPrompt) as caught:
        request_checks.check(RunRequest(prompt=prompt))
    assert caught.value.kind == "empty_prompt"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"mode": "yolo"}, "mode"),
        ({"mode": ""}, "mode"),
        ({"billing": "credit"}, "billing"),
        ({"effort": "extreme"}, "effort"),
        ({"max_turns": 0}, "max_turns"),
        ({"max_turns": 101}, "max_turns"),
        ({"max_thinking_tokens": 999}, "max_thinking_tokens"),
        ({"max_thinking_tokens": 100_001}, "max_thinking_tokens"),
        ({"schema_retries": 6}, "schema_retries"),
        ({"schema_retries": -1}, "schema_retries"),
        ({"attempts": 0}, "attempts"),
        ({"api_retries": -1}, "api_retries"),
        ({"max_structured_retries": 101}, "max_structured_retries"),
        ({"limits": Limits(idle_s=-1)}, "limits.idle_s"),
        ({"limits": Limits(wall_s=float("nan"))}, "limits.wall_s"),
        ({"limits": Limits(tool_s=float("inf"))}, "limits.tool_s"),
        ({"limits": Limits(budget_usd=0)}, "limits.budget_usd"),
        ({"limits": Limits(budget_usd=-5)}, "limits.budget_usd"),
        ({"session_id": "mine"}, "session_id"),
        ({"session_id": UUID.replace("-", "")}, "session_id"),
        ({"session_id": "{" + UUID + "}"}, "session_id"),
        ({"session_id": UUID + "\n"}, "session_id"),
        ({"session_id": UUID, "resume": "abc"}, "session_id"),
        ({"fork": True}, "fork"),
        ({"resume": ""}, "resume"),
        ({"resume": "--help"}, "resume"),
        ({"resume": "../../etc"}, "resume"),
        ({"resume": "a\n"}, "resume"),
        ({"output_schema": {"type": "object"}, "max_turns": 1}, "max_turns"),
        ({"output_schema": True}, "output_schema"),
        ({"output_schema": [1]}, "output_schema"),
        ({"output_schema": {"type": "objekt"}}, "output_schema"),
        ({"output_schema": {"$ref": "https://example.com/x"}}, "output_schema"),
        ({"output_schema": {"oneOf": []}}, "output_schema"),
        ({"output_schema": {}}, "output_schema"),
        ({"variables": {"PIN": "1234"}, "secret_variables": ("PIN",)}, "secret_variables"),
        ({"base_url": "ftp://x"}, "base_url"),
        ({"base_url": "http://"}, "base_url"),
        ({"base_url": "http://x\nX: y"}, "base_url"),
        ({"append_system_prompt": "caf\udce9"}, "append_system_prompt"),
        ({"labels": {"where": "\udcff"}}, "labels"),
        ({"agent_sandbox": {"enabled": True, "excludeCommands": []}}, "agent_sandbox.excludeCommands"),
        ({"agent_sandbox": {"failIfUnavailable": False}}, "agent_sandbox.failIfUnavailable"),
        ({"connections": {"a b": McpServer(command="x")}}, 'connections."a b"'),
        ({"connections": {"": McpServer(command="x")}}, 'connections.""'),
        ({"connections": {"a": McpServer()}}, "connections.a"),
        ({"connections": {"a": McpServer(command="x", url="http://x")}}, "connections.a"),
        ({"connections": {"a": McpServer(url="file:///x")}}, "connections.a.url"),
        ({"connections": {"a": McpServer(type="stdio", url="http://x")}}, "connections.a.type"),
        ({"connections": {"a": McpServer(type="http", command="x")}}, "connections.a.type"),
    ],
)
def test_refused_by_field(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(errors.BadValue) as caught:
        request_checks.check(RunRequest(prompt="p", **fields))
    assert caught.value.field == field
    assert caught.value.kind == "bad_request"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"max_turns": "5"}, "max_turns"),
        ({"tools": "Bash"}, "tools"),
        ({"mode": None}, "mode"),
        ({"limits": None}, "limits"),
        ({"limits": Limits(idle_s="5")}, "limits.idle_s"),  # type: ignore[arg-type]  # the mistake under test
        ({"variables": {"A": 5}}, "variables[...]"),
        ({"credential": "sk-ant-plain-text"}, "credential"),
        ({"output_schema": {"type": object()}}, "request"),
    ],
)
def test_a_value_of_the_wrong_type_is_no_type_error(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(errors.BadValue) as caught:
        request_checks.check(RunRequest(prompt="p", **fields))
    assert caught.value.field == field
    assert "sk-ant-plain" not in str(caught.value)


def test_a_prompt_of_the_wrong_type_is_named() -> None:
    with pytest.raises(errors.BadValue) as caught:
        request_checks.check(RunRequest(prompt=None))  # type: ignore[arg-type]  # the mistake under test
    assert caught.value.field == "prompt"


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        *((name, name) for name in ("plan", "default", "edit", "full", "dontAsk")),
        ("acceptEdits", "edit"),
        ("bypassPermissions", "full"),
        ("auto", "default"),
        ("manual", "default"),
    ],
)
def test_modes_and_the_agents_own_spellings(mode: str, expected: str) -> None:
    assert request_checks.normal_mode(mode) == expected


def test_a_request_with_a_credential_cannot_be_encoded_or_printed() -> None:
    request = RunRequest(prompt="p", credential=Secret("sk-ant-api03-abcdefghijklmnop"))
    assert "abcdefghijklmnop" not in repr(request)
    with pytest.raises(TypeError):
        msgspec.json.encode(request)


def test_a_request_survives_json() -> None:
    request = RunRequest(
        prompt="p", tools=("Read",), connections={"a": McpServer(command="x")}, limits=Limits(wall_s=5), fork=True
    )
    assert msgspec.json.decode(msgspec.json.encode(request), type=RunRequest) == request
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        msgspec.json.decode(b'{"prompt":"p","promt":"q"}', type=RunRequest)
