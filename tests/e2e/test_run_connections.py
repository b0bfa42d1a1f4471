"""Real MCP servers: their tools are gated like all others, their secrets appear nowhere, a dead one is named."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from leadrope import Limits, McpServer, errors, events

SERVER = str(Path(__file__).parents[1] / "data" / "mcp_server.py")
SECRET = "token-of-the-server-4711"


@contextlib.contextmanager
def serving(kind: str, seen: Path) -> Iterator[str]:
    with subprocess.Popen([sys.executable, SERVER, kind, str(seen)], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{server.stdout.readline().strip()}/mcp"
        server.kill()


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(stage: Any, kind: str) -> Iterator[str]:
    """Of a server of that kind; nothing for one that the agent starts itself."""
    if kind == "stdio":
        yield ""
        return
    with serving(kind, stage.ws / "seen") as address:
        yield address


def connection(kind: str, seen: Path, url: str) -> McpServer:
    if kind == "stdio":
        return McpServer(command=sys.executable, args=(SERVER, "stdio", str(seen)), env={"SERVER_TOKEN": "${TOKEN}"})
    way: Literal["http", "sse"] = "sse" if kind == "sse" else "http"
    return McpServer(type=way, url=url, headers={"Authorization": "Bearer ${TOKEN}"})


@pytest.mark.parametrize("kind", ["stdio", "http", "sse"], indirect=True)
async def test_a_servers_tools_are_gated_and_its_secret_appears_nowhere(
    stage: Any, url: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    stage.environ |= {"TOKEN": SECRET, "LEADROPE_DEBUG_SPAWN": "1"}
    seen = stage.ws / "seen"
    touch = {"name": "mcp__files__touch", "input": {"path": str(stage.marker)}}
    asked: list[str] = []

    def approve(request: events.ApprovalRequested) -> bool:
        assert not stage.marker.exists() or request.call.name == "Bash"
        asked.append(request.call.name)
        return len(asked) > 1

    env_file = stage.ws / "env.txt"
    command = f"env > {env_file}; stat -c %a $TMPDIR/../../launch-*/mcp.json > {env_file}.mode"
    show = {"name": "Bash", "input": {"command": command, "description": "show"}}
    with caplog.at_level(logging.INFO, logger="leadrope.spawn"):
        played = await stage.play(
            [{"tool": touch}, {"tool": touch}, {"tool": show}, {"text": "done"}],
            approver=approve,
            connections={"files": connection(kind, seen, url)},
        )
    assert played.result.outcome == "succeeded"
    assert stage.marker.exists()
    assert asked == ["mcp__files__touch", "mcp__files__touch", "Bash"]
    assert [d.decision for d in played.of(events.ToolDecided)] == ["deny", "allow", "allow"]
    assert SECRET not in env_file.read_text()
    # Root may work for another user, who has to read it; the run's folder around it is closed to everybody else.
    assert Path(f"{env_file}.mode").read_text() == ("644\n" if os.geteuid() == 0 else "600\n")
    assert SECRET in seen.read_text(), "the server itself has it"
    assert SECRET not in str(played.events)
    assert SECRET not in caplog.text
    assert [c.status for c in played.one(events.SessionStarted).connections] == ["connected"]


async def test_a_tool_of_a_server_can_be_granted_by_its_name(stage: Any) -> None:
    stage.environ["TOKEN"] = SECRET
    touch = {"name": "mcp__files__touch", "input": {"path": str(stage.marker)}}
    played = await stage.play(
        [{"tool": touch}, {"text": "done"}],
        tools=("mcp__files__*",),
        connections={"files": connection("stdio", stage.ws / "seen", "")},
    )
    assert stage.marker.exists()
    assert played.of(events.ApprovalRequested) == []


async def test_a_server_in_a_hidden_home_works_with_what_it_loads_and_what_it_is_told(stage: Any) -> None:
    """Its own folder, and a file that an argument names; the rest of the home stays hidden by the sandbox."""
    folder = stage.home / "servers" / "files"
    folder.mkdir(parents=True)
    (folder / "words.py").write_text(Path(SERVER).read_text())
    (folder / "server.py").write_text(
        "import runpy\nimport words\nrunpy.run_path(words.__file__, run_name='__main__')\n"
    )
    settings = stage.home / "settings" / "seen.txt"
    settings.parent.mkdir()
    settings.write_text("")
    (stage.home / "diary").write_text("private")
    secret = stage.home / ".ssh" / "id_rsa"
    secret.parent.mkdir()
    secret.write_text("private")
    command = f"ls {settings}; cat {stage.home}/diary {secret}; ls {settings.parent} | wc -l"
    touch = {"name": "mcp__files__touch", "input": {"path": str(stage.marker)}}
    played = await stage.play(
        [
            {"tool": touch},
            {"tool": {"name": "Bash", "input": {"command": command, "description": "look"}}},
            {"text": "done", "expect": {"lacks": "private"}},
        ],
        approver=lambda _: True,
        connections={
            "files": McpServer(
                command=sys.executable,
                args=(str(folder / "server.py"), "stdio", str(stage.ws / "seen")),
                env={"SETTINGS": str(settings), "KEY_FILE": str(secret), "SERVER_TOKEN": "x"},
            )
        },
    )
    assert stage.marker.exists()
    assert played.one(events.SessionStarted).sandbox == "workspace"
    assert str(settings) in played.of(events.ToolCompleted)[1].text
    assert [n.message for n in played.of(events.Notice) if n.code == "hidden_by_sandbox"] == [
        f"{secret} is named in the settings, and hidden from agents"
    ]


@pytest.mark.parametrize(
    "server",
    [
        McpServer(command=sys.executable, args=(SERVER, "hang")),
        McpServer(command=sys.executable, args=("-c", "raise SystemExit(3)")),
    ],
    ids=["hangs", "crashes"],
)
async def test_a_connection_that_cannot_be_made_ends_in_its_own_error(stage: Any, server: McpServer) -> None:
    played = await stage.play(
        [{"text": "hello"}], strict=False, connections={"broken": server}, limits=Limits(connection_s=1, idle_s=60)
    )
    assert played.result.outcome == "failed"
    assert played.result.error.kind == "connection_failed"
    assert "broken" in played.result.error.message


async def test_a_server_that_takes_a_question_and_is_silent_ends_in_the_same_error(stage: Any) -> None:
    with serving("silent", stage.ws / "seen") as url:
        limits = Limits(connection_s=1, idle_s=60)
        connections = {"silent": McpServer(type="http", url=url)}
        played = await stage.play([{"text": "hello"}], strict=False, connections=connections, limits=limits)
    assert (played.result.outcome, played.result.error.kind) == ("failed", "connection_failed")
    assert "connection silent could not be made" in played.result.error.message
    assert played.model.requests == []


@pytest.mark.parametrize(
    ("server", "why"),
    [
        (McpServer(command="/no/such/server", required=False), "the program '/no/such/server' was not found"),
        (McpServer(command=sys.executable, args=("-c", "raise SystemExit(3)"), required=False), ""),
    ],
    ids=["missing", "crashes"],
)
async def test_a_connection_that_is_not_required_warns_once(stage: Any, server: McpServer, why: str) -> None:
    played = await stage.play([{"text": "hello"}], connections={"broken": server})
    assert played.result.outcome == "succeeded"
    (warning,) = played.result.warnings
    assert (warning.kind, why in warning.message) == ("connection_failed", True)
    assert "connection broken could not be made" in warning.message


async def test_a_missing_program_is_told_before_an_agent_starts(stage: Any) -> None:
    connections = {"broken": McpServer(command="/no/such/server")}
    with pytest.raises(errors.BadValue, match=r"connections\.broken: the program '/no/such/server' was not found"):
        await stage.play([{"text": "hello"}], strict=False, connections=connections)
