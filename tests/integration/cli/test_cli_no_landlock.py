"""Where the kernel has no Landlock, commands are not kept apart from their agent; doctor and each run say so."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"), reason="the filter is for these kernels"
)

# A seccomp filter under which the kernel answers `landlock_create_ruleset` as one that does not have it.
LAUNCHER = """
import ctypes, os, struct, sys
LANDLOCK_CREATE_RULESET, ENOSYS = 444, 38
load, compare = (0x20, 0, 0, 0), (0x15, 0, 1, LANDLOCK_CREATE_RULESET)
refuse, allow = (0x06, 0, 0, 0x50000 | ENOSYS), (0x06, 0, 0, 0x7FFF0000)
steps = [load, compare, refuse, allow]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, program, 0, 0) == 0, os.strerror(ctypes.get_errno())
os.execv(sys.executable, [sys.executable, "-m", "leadrope.cli.main", *sys.argv[1:]])
"""


async def without_landlock(desk: Any, folder: Path, *args: str, **environ: str) -> tuple[int | None, str, str]:
    launcher = folder / "launcher.py"
    launcher.write_text(LAUNCHER)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(launcher), *args),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=desk.environ | environ,
        cwd=desk.project,
        start_new_session=True,
    )
    async with asyncio.timeout(90):
        out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


def commands(report: str) -> dict[str, str]:
    return next(check for check in json.loads(report)["checks"] if check["name"] == "commands")


async def test_doctor_says_that_commands_are_not_kept_apart(desk: Any, tmp_path: Path) -> None:
    code, out, err = await without_landlock(desk, tmp_path, "doctor", "-o", "json")
    found = commands(out)
    assert found["status"] == "warning", err
    assert "not kept apart from the agent" in found["message"]
    assert "the kernel has no Landlock" in found["message"]
    assert "Linux 5.19" in found["hint"]
    assert code == 0


async def test_doctor_says_that_they_are_where_the_kernel_has_it(desk: Any) -> None:
    found = commands((await desk.leadrope("doctor", "-o", "json", LEADROPE_CLAUDE_BIN="/no/such/agent")).out)
    if found["status"] != "ok" and os.environ.get("CI", "").lower() != "true":
        pytest.skip(f"this machine: {found['message']}")
    assert "Landlock version" in found["message"]


async def test_a_run_says_so_too_and_works(desk: Any, playing: Any, tmp_path: Path) -> None:
    async with playing({"text": "done"}) as server:
        code, out, err = await without_landlock(
            desk, tmp_path, "run", "-o", "stream-json", "--base-url", server.url, "go"
        )
    assert code == 0, err
    assert "commands_not_apart" in out


async def test_a_server_that_crashes_is_named_with_its_stderr(desk: Any, tmp_path: Path) -> None:
    """Redirected by the system's shell, in place of the program that also enters a domain."""
    server = {"command": sys.executable, "args": ["-c", "import no_such_module"]}
    (desk.project / "mcp.json").write_text(json.dumps({"mcpServers": {"docs": server}}))
    given = ("--mcp-config", "mcp.json", "--base-url", "http://127.0.0.1:9")
    code, out, err = await without_landlock(desk, tmp_path, "run", "go", "-o", "json", *given)
    assert code == 1, err
    error = json.loads(out)["error"]
    assert (error["kind"], error["connection"]) == ("connection_failed", "docs")
    assert error["stderr_tail"][-1] == "ModuleNotFoundError: No module named 'no_such_module'"


async def test_a_server_works_as_it_would_without_the_redirection(desk: Any, playing: Any, tmp_path: Path) -> None:
    """Its words reach it unchanged, and its input and output are its own."""
    server = Path(__file__).parents[2] / "data" / "mcp_server.py"
    (desk.project / "works.py").write_text(server.read_text())  # a sandbox shows the workspace
    (desk.project / "server.py").write_text(
        "import json, sys\n"
        "json.dump(sys.argv, open('seen.argv', 'w'))\n"
        "sys.argv[1:] = ['stdio', 'seen']\n"
        "exec(open('works.py').read())\n"
    )
    odd = ["--key=two words", "", "$HOME `id` \"'", "-n"]
    config = {"command": sys.executable, "args": ["server.py", *odd]}
    (desk.project / "mcp.json").write_text(json.dumps({"mcpServers": {"other": config}}))
    call = {"name": "mcp__other__touch", "input": {"path": str(desk.marker)}}
    async with playing({"tool": call}, {"text": "done"}) as model:
        given = ("--mcp-config", "mcp.json", "--base-url", model.url, "--mode", "full", "-o", "json")
        code, out, err = await without_landlock(desk, tmp_path, "run", "go", *given)
    assert code == 0, out + err
    assert desk.marker.exists()
    assert json.loads((desk.project / "seen.argv").read_text())[1:] == odd
