"""`leadrope connections`: what is configured, whether it works, and what it offers; no secret is shown."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

SERVER = str(Path(__file__).parents[2] / "data/mcp_tools_server.py")
SECRET = "key-of-the-server-4711"


@pytest.fixture
def connected(desk: Any) -> Any:
    (desk.home / "leadrope").mkdir(exist_ok=True)
    (desk.home / "leadrope/config.toml").write_text(
        f"""[connections.good]
command = "{sys.executable}"
args = ["{SERVER}", "stdio"]
env = {{ SERVER_TOKEN = "{SECRET}" }}

[connections.gone]
command = "no-such-program-anywhere"

[connections.remote]
url = "https://user:{SECRET}@mcp.example.com/api?key={SECRET}"
headers = {{ Authorization = "Bearer ${{REMOTE_KEY}}" }}
"""
    )
    desk.environ["LEADROPE_CONFIG"] = str(desk.home / "leadrope/config.toml")
    return desk


async def test_connections_are_listed_without_their_secrets(connected: Any) -> None:
    said = await connected.leadrope("connections", "list")
    assert said.code == 0, said.err
    for word in ("good", "stdio", "gone", "no-such-program-anywhere", "remote", "http", "https://mcp.example.com/api"):
        assert word in said.out, said.out
    assert "remote cannot be used: " in said.err
    assert "REMOTE_KEY" in said.err
    assert SECRET not in said.out + said.err
    rows = [
        json.loads(line) for line in (await connected.leadrope("connections", "list", "-o", "json")).out.splitlines()
    ]
    assert [(row["name"], row["type"], bool(row["problem"])) for row in rows] == [
        ("good", "stdio", False),
        ("gone", "stdio", False),
        ("remote", "http", True),
    ]
    assert SECRET not in json.dumps(rows)


async def test_each_is_tried_and_one_that_fails_is_told(connected: Any) -> None:
    said = await connected.leadrope("connections", "test", "good")
    assert (said.code, said.out.startswith("✓ good: ")) == (0, True), said.out + said.err
    said = await connected.leadrope("connections", "test")
    assert said.code == 1
    assert "✓ good: " in said.out
    assert "✗ gone: no-such-program-anywhere is not on the PATH" in said.out
    assert "✗ remote: " in said.out
    assert SECRET not in said.out + said.err
    rows = [
        json.loads(line) for line in (await connected.leadrope("connections", "test", "-o", "json")).out.splitlines()
    ]
    assert [row["ok"] for row in rows] == [True, False, False]


async def test_tools_are_listed_with_what_they_take(connected: Any) -> None:
    said = await connected.leadrope("connections", "tools", "good", "-o", "json")
    assert said.code == 0, said.err
    found = {tool["name"]: tool for tool in map(json.loads, said.out.splitlines())}
    assert found
    assert all(tool["parameters"].get("type") == "object" for tool in found.values())
    text = await connected.leadrope("connections", "tools", "good")
    assert all(name in text.out for name in found)


async def test_mistakes_name_what_is_there(connected: Any) -> None:
    said = await connected.leadrope("connections", "tools", "godo")
    assert (said.code, "Did you mean good? There are: good, gone, remote." in said.err) == (2, True)
    said = await connected.leadrope("connections", "tools", "gone")
    assert said.code != 0
    assert "connection gone: no-such-program-anywhere is not on the PATH" in said.err


async def test_without_any_it_says_where_they_are_written(desk: Any) -> None:
    for words in (("list",), ("test",)):
        said = await desk.leadrope("connections", *words)
        assert (said.code, "[connections.NAME]" in said.err) == (0, True)
