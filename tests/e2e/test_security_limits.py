"""What SECURITY.md says does not hold, shown on the real CLI, so that a limit is neither hidden nor outlived."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from leadrope import Secret, events
from leadrope.rehearsal import ModelServer
from process_tree import environments_above

needs_sandbox = pytest.mark.skipif(
    shutil.which("bwrap") is None and os.environ.get("CI", "").lower() != "true", reason="bubblewrap is not installed"
)
SANDBOX = [pytest.param("off", id="no sandbox"), pytest.param("workspace", id="sandbox", marks=needs_sandbox)]
TOKEN = "deploy-token-of-this-run"


def bash(command: str) -> dict[str, Any]:
    return {"tool": {"name": "Bash", "input": {"command": command, "description": "try"}}}


@pytest.mark.parametrize("sandbox", SANDBOX)
async def test_a_program_does_more_than_its_line_says(stage: Any, sandbox: str) -> None:
    for name in ("first", "second"):
        (stage.ws / name).write_text("x")
    (stage.ws / "Makefile").write_text("clean:\n\t@rm first\n")
    played = await stage.play([bash("make clean"), bash("rm second"), {"text": "done"}], mode="full", sandbox=sandbox)
    assert [found.decision for found in played.of(events.ToolDecided)] == ["allow", "deny"]
    assert not (stage.ws / "first").exists()
    assert (stage.ws / "second").exists()


def commit(ws: Path) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", "-C", str(ws)]
    subprocess.run(["git", "init", "-q", str(ws)], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "one"], check=True)


@needs_sandbox
async def test_what_was_committed_of_a_blocked_path_is_in_gits_objects(stage: Any) -> None:
    (stage.ws / "keys").mkdir()
    (stage.ws / "keys" / "one").write_text("TOPSECRET\n")
    commit(stage.ws)
    lines = ["cat keys/one", "git show HEAD:keys/one", "git log -p > out.txt"]
    played = await stage.play(
        [*map(bash, lines), {"text": "done"}], mode="full", sandbox="workspace", policy={"blocked_paths": ["keys/"]}
    )
    assert [found.decision for found in played.of(events.ToolDecided)] == ["deny", "deny", "allow"]
    assert "TOPSECRET" in (stage.ws / "out.txt").read_text()


@pytest.fixture
async def listener() -> AsyncIterator[tuple[int, list[bytes]]]:
    """A service of this machine that asks for no password."""
    heard: list[bytes] = []

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(200))
        writer.close()

    server = await asyncio.start_server(hear, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], heard


LEAVE = """
import json, os, pathlib, socket
home = pathlib.Path(os.environ["HOME"])
found = {{"keys": [name for name in (".netrc", ".ssh/id_ed25519", ".npmrc") if (home / name).exists()]}}
found["token"] = os.environ.get("DEPLOY_TOKEN", "")
try:
    with socket.create_connection(("127.0.0.1", {port}), 5) as connection:
        connection.sendall(b"released")
    found["reached"] = True
except OSError:
    found["reached"] = False
pathlib.Path("out.json").write_text(json.dumps(found))
"""


@needs_sandbox
@pytest.mark.parametrize("network", [{}, {"network": "model-only"}], ids=["network as it ships", "model-only"])
@pytest.mark.parametrize("given", [{}, {"DEPLOY_TOKEN": TOKEN}], ids=["nothing given", "a token given"])
async def test_what_leaves_the_sandbox_needs_a_network_and_credentials_that_were_given(
    stage: Any, listener: tuple[int, list[bytes]], network: dict[str, str], given: dict[str, str]
) -> None:
    port, heard = listener
    (stage.home / ".ssh").mkdir()
    for name in (".netrc", ".ssh/id_ed25519", ".npmrc"):
        (stage.home / name).write_text("a key")
    (stage.ws / "release.py").write_text(LEAVE.format(port=port))
    played = await stage.play([bash("python3 release.py"), {"text": "done"}], mode="full", variables=given, **network)
    assert played.one(events.SessionStarted).sandbox == "workspace", "as every run has it"
    found = json.loads((stage.ws / "out.json").read_text())
    assert found == {"keys": [], "token": given.get("DEPLOY_TOKEN", ""), "reached": not network}
    assert heard == ([] if network else [b"released"])


@pytest.mark.parametrize("mode", ["default", "full"])
async def test_without_a_sandbox_a_command_has_the_users_rights(stage: Any, mode: str) -> None:
    """One that a person approves, and one that mode `full` allows unasked."""
    key = stage.home / ".ssh" / "id_ed25519"
    key.parent.mkdir()
    key.write_text("a key\n")
    token = "sk-ant-oat01-0123456789abcdef0123"
    (stage.ws / "show.sh").write_text(environments_above(os.getpid()))
    lines = [f"cat {key} > key", "bash show.sh > environments", f"kill -USR1 {os.getpid()}"]
    (stage.ws / "Makefile").write_text("look:\n" + "".join(f"\t@{line}\n" for line in lines))
    got: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: got.append(number))
    try:
        played = await stage.play(
            [bash("make look"), {"text": "done"}],
            mode=mode,
            sandbox="off",
            approver=(lambda _: True) if mode == "default" else None,
            credential=Secret(token),
        )
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not played.one(events.ToolCompleted).is_error
    assert (stage.ws / "key").read_text() == "a key\n"
    assert token in (stage.ws / "environments").read_text()
    assert got == [signal.SIGUSR1]


def test_a_secret_is_found_as_it_is_and_not_encoded(stage: Any) -> None:
    """At the terminal, and in what is stored."""
    home = Path(stage.environ["LEADROPE_HOME"])
    home.mkdir()
    (home / ".env").write_text("CLAUDE_CODE_OAUTH_TOKEN=sk-ant-oat01-rehearsal-0000000000\n")
    stage.environ |= {"DEPLOY_TOKEN": TOKEN, "PATH": f"{Path(sys.executable).parent}:{stage.environ['PATH']}"}
    (stage.ws / "Makefile").write_text(
        'show:\n\t@echo "plain $$DEPLOY_TOKEN"; printf %s "$$DEPLOY_TOKEN" | base64\n'
        '\t@printf %s "$$DEPLOY_TOKEN" | od -An -v -tx1 | tr -d " \\n"; echo\n'
        '\t@printf "%.9s then " "$$DEPLOY_TOKEN"; printf %s "$$DEPLOY_TOKEN" | cut -c10-\n'
    )
    words = ["run", "look", "--mode", "full", "--sandbox", "off", "--secret", "DEPLOY_TOKEN", "-o", "stream-json"]
    with ModelServer.in_thread([bash("make show"), {"text": "done"}]) as model:
        config = stage.home / ".config" / "leadrope" / "config.toml"
        config.parent.mkdir(parents=True)
        config.write_text(f'[run]\nbase_url = "{model.url}"\n')
        printed = leadrope(stage, *words)
    run_id = re.findall(r'"run_id":"(\w+)"', printed)[-1]
    for text in (printed, leadrope(stage, "export", run_id)):
        assert "plain [redacted]" in text
        assert TOKEN not in text
        assert base64.b64encode(TOKEN.encode()).decode() in text
        assert TOKEN.encode().hex() in text
        assert f"{TOKEN[:9]} then {TOKEN[9:]}" in text


def leadrope(stage: Any, *words: str) -> str:
    done = subprocess.run(
        ["leadrope", *words],
        cwd=stage.ws,
        env=stage.environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def test_the_agents_own_transcript_is_not_redacted(stage: Any) -> None:
    played = await stage.play(
        [bash('printf %s "$DEPLOY_TOKEN"'), {"text": "done"}],
        sandbox="off",
        approver=lambda _: True,
        variables={"DEPLOY_TOKEN": TOKEN},
    )
    sessions = Path(stage.environ["LEADROPE_HOME"]) / "sessions"
    config = sessions / str(played.result.session_id) / "config"
    assert sessions.stat().st_mode & 0o777 == 0o700
    assert any(TOKEN in path.read_text() for path in config.rglob("*.jsonl"))


WRITE_TO_IT = """
for process in /proc/[0-9]*; do
    if grep -qa -e --input-format "$process/cmdline" 2> /dev/null; then
        if echo '{}' > "$process/fd/0"; then echo written; else echo refused; fi
    fi
done > out 2> /dev/null
"""


@needs_sandbox
async def test_where_commands_are_not_kept_apart_that_is_told_and_the_input_is_a_socket_all_the_same(
    stage: Any,
) -> None:
    """Without a program that could enter a domain, as on a kernel that has none. In a sandbox, where the script finds
    no other agent than its own.
    """
    (stage.ws / "write.sh").write_text(WRITE_TO_IT)
    played = await stage.play(
        [bash("bash write.sh"), {"text": "done"}],
        approver=lambda _: True,
        sandbox="workspace",
        policy={"blocked_commands": ["perl", "python3"]},
    )
    told = [notice.message for notice in played.of(events.Notice) if notice.code == "commands_not_apart"]
    assert len(told) == 1
    assert played.result.outcome == "succeeded"
    assert set((stage.ws / "out").read_text().split()) == {"refused"}


@needs_sandbox
@pytest.mark.parametrize(
    ("policy", "is_whole"),
    [
        ({"blocked_commands": ["sh"]}, False),
        ({"blocked_paths": ["*.pem"]}, False),
        ({"blocked_paths": ["1*.pem"]}, True),
    ],
    ids=["the shell", "201 paths", "111 paths"],
)
async def test_a_sandbox_that_cannot_mask_everything_opens_nothing(
    stage: Any, policy: dict[str, Any], is_whole: bool
) -> None:
    """The system's shell cannot be masked, or nothing would start; so a line is asked for as without a sandbox."""
    for number in range(201):
        (stage.ws / f"{number}.pem").touch()
    played = await stage.play([bash("gradle test; touch made"), {"text": "done"}], mode="full", policy=policy)
    told = [notice.code for notice in played.of(events.Notice) if notice.code == "sandbox_incomplete"]
    assert bool(told) == (not is_whole)
    assert [found.decision for found in played.of(events.ToolDecided)] == ["allow" if is_whole else "deny"]
    assert (stage.ws / "made").exists() == is_whole
