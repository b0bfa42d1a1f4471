"""Walls as a run gets them: by request or by policy, with the model as the only way out where that is asked."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from typing import Any

import pytest

from leadrope import Secret, errors, events

pytestmark = pytest.mark.skipif(
    shutil.which("bwrap") is None and os.environ.get("CI", "").lower() != "true", reason="bubblewrap is not installed"
)


# Through the proxy that the environment names: a host that is allowed, and one that is not.
ASK = """
import os, urllib.error, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({{"http": os.environ["HTTP_PROXY"]}}))
print(opener.open("http://127.0.0.1:{port}/", timeout=5).read().decode())
try:
    opener.open("http://127.0.0.2:{port}/", timeout=5)
except urllib.error.HTTPError as error:
    print(error.code)
"""


def bash(command: str) -> dict[str, Any]:
    return {"tool": {"name": "Bash", "input": {"command": command, "description": "try"}}}


@pytest.fixture
async def listener() -> AsyncIterator[int]:
    """Another host, as far as the agent is concerned: a port of this machine's loopback."""

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize("asked", [{"walls": "workspace"}, {"policy": {"sandbox": "required"}}])
async def test_the_agent_works_inside_and_cannot_get_out(stage: Any, asked: dict[str, Any]) -> None:
    secret = stage.home / ".ssh" / "id_rsa"
    secret.parent.mkdir()
    secret.write_text("private")
    outside = stage.home.parent / "outside"
    commands = f"echo in > {stage.ws}/in; cat {secret}; echo out > {outside}; ls {stage.environ['LEADROPE_HOME']}"
    played = await stage.play(
        [bash(commands), {"text": "done", "expect": {"lacks": "private"}}], approver=lambda _: True, **asked
    )
    assert played.result.outcome == "succeeded"
    assert (stage.ws / "in").exists()
    assert not outside.exists()
    assert played.one(events.SessionStarted).walls == "workspace"


async def test_read_only_walls_let_nothing_be_written(stage: Any) -> None:
    played = await stage.play(
        [bash(f"touch {stage.marker}"), {"text": "done"}], walls="read-only", approver=lambda _: True
    )
    assert played.result.outcome == "succeeded"
    assert not stage.marker.exists()


async def test_a_blocked_program_is_masked(stage: Any) -> None:
    """Also where the command that starts it could not be read."""
    command = f'x=unl; "${{x}}ink" {stage.marker}'
    stage.marker.touch()
    played = await stage.play(
        [bash(command), {"text": "done"}],
        approver=lambda _: True,
        walls="workspace",
        policy={"blocked_commands": ["unlink"]},
    )
    assert played.result.outcome == "succeeded"
    assert stage.marker.exists()


@pytest.mark.parametrize("credential", ["sk-ant-rehearsal-0000000000000000", "sk-ant-oat01-rehearsal-00000000000000"])
async def test_model_only_reaches_the_model_and_nothing_else(stage: Any, listener: int, credential: str) -> None:
    out = stage.ws / "out.txt"
    say = f"import socket; socket.create_connection(('127.0.0.1', {listener}), 5); print('hello')"
    command = f'python3 -c "{say}" > {out} 2>&1; echo ended >> {out}'
    played = await stage.play(
        [bash(command), {"text": "done"}],
        approver=lambda _: True,
        network="model-only",
        credential=Secret(credential),
    )
    assert played.result.outcome == "succeeded"
    assert played.result.text == "done"
    assert "hello" not in out.read_text()
    assert "ended" in out.read_text()
    assert played.model.requests[0].headers.get("x-api-key", played.model.requests[0].headers.get("authorization"))


async def test_model_only_reaches_an_allowed_host_through_the_proxy(stage: Any, listener: int) -> None:
    out = stage.ws / "out.txt"
    script = stage.ws / "ask.py"
    script.write_text(ASK.format(port=listener))
    command = f"python3 {script} > {out} 2>&1"
    played = await stage.play(
        [bash(command), {"text": "done"}],
        approver=lambda _: True,
        network="model-only",
        policy={"network": {"allowed_hosts": ["127.0.0.1"]}},
    )
    assert played.result.outcome == "succeeded"
    assert out.read_text() == "hello\n403\n"
    assert [n.code for n in played.of(events.Notice) if n.level == "warning"] == ["host_refused"]


async def test_walls_that_are_required_cannot_be_turned_off(stage: Any) -> None:
    with pytest.raises(errors.BadValue, match="walls"):
        await stage.play([], walls="off", policy={"sandbox": "required"})


async def test_no_bubblewrap_no_run(stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Required walls that cannot be built start nothing; preferred ones only warn."""
    from leadrope.process import sandbox_trial

    gone = sandbox_trial.Availability(ok=False, reason="bwrap is not installed", hint="Install bubblewrap.")
    monkeypatch.setattr(sandbox_trial, "_known", gone)
    with pytest.raises(errors.SandboxUnavailable, match="bwrap is not installed"):
        await stage.play([], policy={"sandbox": "required"})
    played = await stage.play([{"text": "ok"}], policy={"sandbox": "preferred"})
    assert "no_walls" in [w.kind for w in played.result.warnings]
    assert played.one(events.SessionStarted).walls == ""
