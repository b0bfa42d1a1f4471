"""What an MCP server writes to stderr: shown when its connection cannot be made, bounded, and without secrets."""

from __future__ import annotations

import logging
import os
import platform
import shutil
import sys
from pathlib import Path
from typing import Any, Literal

import pytest

from leadrope import Limits, McpServer, events
from leadrope.process.sandbox import command_domain

SERVER = str(Path(__file__).parents[1] / "data" / "mcp_server.py")
SECRET = "token-of-the-server-4711"
MIB = 1024 * 1024

NOBODY = 65534
IN_CI = os.environ.get("CI", "").lower() == "true"

needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None and not IN_CI, reason="bubblewrap is not installed")
SandboxLevel = Literal["workspace", "off"]
both = pytest.mark.parametrize("sandbox", [pytest.param("workspace", marks=needs_bubblewrap), "off"])


WORKS = "exec(open(sys.argv[0] + '.works').read())"


def python(folder: Path, *lines: str, required: bool = True) -> McpServer:
    file = folder / "server.py"
    file.write_text("\n".join(("import os, sys", *lines)) + "\n")
    shutil.copy(SERVER, f"{file}.works")  # a sandbox shows the workspace
    return McpServer(
        command=sys.executable,
        args=(str(file), "stdio", str(folder / "seen")),
        env={"SERVER_TOKEN": SECRET},
        required=required,
    )


@both
async def test_the_error_has_the_end_of_stderr_without_secrets_and_control_characters(
    stage: Any, sandbox: SandboxLevel
) -> None:
    server = python(
        stage.ws,
        "print('line', *range(100), sep='\\n', file=sys.stderr)",
        "print('\\x1b[31mtoken', os.environ['SERVER_TOKEN'] + '\\x1b[0m\\x07', file=sys.stderr)",
        # Without the escape sequence in it, it is the secret.
        f"print({SECRET[:8]!r} + '\\x1b[1m' + {SECRET[8:]!r}, file=sys.stderr)",
        "import no_such_module",
    )
    played = await stage.play([{"text": "hello"}], strict=False, connections={"files": server}, sandbox=sandbox)
    error = played.result.error
    assert (played.result.outcome, error.kind, error.connection) == ("failed", "connection_failed", "files")
    assert error.stderr_tail[-1] == "ModuleNotFoundError: No module named 'no_such_module'"
    assert len(error.stderr_tail) == 20
    assert "token [redacted]" in error.stderr_tail
    assert "[redacted]" in error.stderr_tail
    assert SECRET not in str(played.events)
    assert "\\x1b" not in repr(played.events)
    assert played.model.requests == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root works for another user")
@needs_bubblewrap
async def test_root_that_works_for_another_user_shows_it_too(stage: Any) -> None:
    server = python(stage.ws, "sys.exit(f'no license found for {os.geteuid()}')")
    os.chown(stage.ws, NOBODY, NOBODY)
    played = await stage.play([{"text": "hello"}], strict=False, connections={"files": server}, sandbox="workspace")
    assert played.result.error.stderr_tail == (f"no license found for {NOBODY}",)


async def test_a_connection_that_is_not_required_warns_with_the_end_of_it(stage: Any) -> None:
    server = python(stage.ws, "sys.exit('no license found')", required=False)
    played = await stage.play([{"text": "hello"}], connections={"files": server})
    assert played.result.outcome == "succeeded"
    (warning,) = played.result.warnings
    assert warning.kind == "connection_failed"
    assert warning.message.endswith("(stderr: no license found)")


@both
async def test_a_server_that_floods_stderr_works_and_costs_no_memory(stage: Any, sandbox: SandboxLevel) -> None:
    """64 MB, half of it without a newline."""
    server = python(
        stage.ws,
        f"sys.stderr.write('x' * 32 * {MIB}); sys.stderr.write(('y' * 1000 + '\\n') * 32 * 1000)",
        WORKS,
    )
    touch = {"name": "mcp__files__touch", "input": {"path": str(stage.marker)}}
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    before = peak_mib()
    played = await stage.play(
        [{"tool": touch}, {"text": "done"}], approver=lambda _: True, connections={"files": server}, sandbox=sandbox
    )
    assert played.result.outcome == "succeeded", played.result.error
    assert stage.marker.exists()
    assert [c.status for c in played.one(events.SessionStarted).connections] == ["connected"]
    assert peak_mib() - before < 32


async def test_a_flood_without_an_end_does_not_keep_a_run_from_failing(stage: Any) -> None:
    server = python(stage.ws, f"while True: sys.stderr.write('x' * {MIB})")
    played = await stage.play(
        [{"text": "hello"}], strict=False, connections={"files": server}, limits=Limits(connection_s=1, idle_s=60)
    )
    error = played.result.error
    assert error.kind == "connection_failed"
    (line,) = error.stderr_tail
    assert 4000 < len(line) < 4200


@both
async def test_the_trace_has_its_lines_while_it_works(
    stage: Any, sandbox: SandboxLevel, caplog: pytest.LogCaptureFixture
) -> None:
    stage.environ["LEADROPE_DEBUG_SPAWN"] = "1"
    server = python(
        stage.ws,
        "print('ready with', os.environ['SERVER_TOKEN'], file=sys.stderr)",
        # A line is traced up to 4096 bytes, which would cut this secret in two.
        "print('. ' * 2044 + os.environ['SERVER_TOKEN'], file=sys.stderr)",
        WORKS,
    )
    with caplog.at_level(logging.INFO, logger="leadrope.spawn"):
        played = await stage.play([{"text": "done"}], connections={"files": server}, sandbox=sandbox)
    assert played.result.outcome == "succeeded", played.result.error
    told = [record.getMessage().partition(" ")[2] for record in caplog.records if record.name == "leadrope.spawn"]
    prefix = "stderr of connection files: "
    mine = [line.removeprefix(prefix).strip() for line in told if line.startswith(prefix)]
    assert mine[:2] == ["ready with [redacted]", "." + " ." * 2043]


def peak_mib() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="perl is used on these")
@pytest.mark.parametrize("interpreter", ["perl", "python3"])
async def test_each_wrapper_works(stage: Any, interpreter: str) -> None:
    """Where perl is blocked the wrapper is a Python script."""
    blocked = [] if interpreter == "perl" else ["perl"]
    if not command_domain.look(blocked).interpreter.endswith(interpreter):
        pytest.skip(f"there is no {interpreter} in the folders of the system")
    server = python(stage.ws, "sys.exit('no license found')")
    played = await stage.play(
        [{"text": "hello"}], strict=False, connections={"files": server}, policy={"blocked_commands": blocked}
    )
    assert played.result.error.stderr_tail == ("no license found",)
