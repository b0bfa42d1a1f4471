"""Programs of MCP servers are looked up as the agent would find them: with variables filled in."""

from __future__ import annotations

from pathlib import Path

import pytest

from leadrope import McpServer, errors
from leadrope.runtime.connections import programs


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    program = tmp_path / "tools" / "server"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return program.parent


@pytest.mark.parametrize(
    "server",
    [
        McpServer(command="sh"),
        McpServer(command="${TOOLS}/server"),
        McpServer(command="${SERVER:-sh}"),
        McpServer(command="server", env={"PATH": "${TOOLS}:/usr/bin"}),
        McpServer(command="./tools/server"),
        McpServer(command="${NOT_SET}/server"),
        McpServer(type="http", url="http://127.0.0.1:1/mcp"),
    ],
    ids=["on PATH", "variable", "default", "own PATH", "relative", "unset variable", "no program"],
)
def test_a_program_that_is_there_is_found(tools: Path, server: McpServer) -> None:
    environ = {"PATH": "/usr/bin:/bin", "TOOLS": str(tools)}
    assert programs.missing({"docs": server}, str(tools.parent), environ) == {}


def test_a_missing_program_is_named_as_it_is_written(tools: Path) -> None:
    environ = {"PATH": "/usr/bin:/bin", "TOOLS": str(tools)}
    server = McpServer(command="${TOOLS}/other", required=False)
    (notice,) = programs.missing({"docs": server}, str(tools), environ).values()
    assert notice.message == "connection docs could not be made: the program '${TOOLS}/other' was not found"
    with pytest.raises(errors.BadValue, match=r"connections\.docs: the program 'server' was not found on PATH"):
        programs.missing({"docs": McpServer(command="server")}, str(tools), environ)
