"""SandboxLevel as a run gets them: by request or by policy, with the model as the only way out where that is asked."""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from leadrope import Secret, errors, events
from leadrope.process.sandbox import availability

NOBODY = 65534
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


@pytest.mark.parametrize("asked", [{"sandbox": "workspace"}, {"policy": {"sandbox": "required"}}])
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
    assert played.one(events.SessionStarted).sandbox == "workspace"


async def test_a_read_only_sandbox_lets_nothing_be_written(stage: Any) -> None:
    played = await stage.play(
        [bash(f"touch {stage.marker}"), {"text": "done"}], sandbox="read-only", approver=lambda _: True
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
        sandbox="workspace",
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
    assert [(h.kind, h.target) for h in played.of(events.SandboxViolation)] == [("network", f"127.0.0.2:{listener}")]


async def test_a_required_sandbox_cannot_be_turned_off(stage: Any) -> None:
    with pytest.raises(errors.BadValue, match="sandbox"):
        await stage.play([], sandbox="off", policy={"sandbox": "required"})


async def test_no_bubblewrap_no_run(stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A required sandbox that cannot be built starts nothing; a preferred one only warns."""
    gone = availability.SandboxAvailability(ok=False, reason="bwrap is not installed", hint="Install bubblewrap.")
    monkeypatch.setattr(availability, "_known", gone)
    for asked in ({"policy": {"sandbox": "required"}}, {"sandbox": "workspace"}, {"network": "model-only"}):
        with pytest.raises(errors.SandboxUnavailable, match="bwrap is not installed"):
            await stage.play([], **asked)
    played = await stage.play([{"text": "ok"}])
    assert played.one(events.SessionStarted).sandbox == ""
    assert played.result.warnings == ()
    assert [n.level for n in played.of(events.Notice) if n.code == "no_sandbox"] == ["info"]
    config = stage.home / ".config" / "leadrope" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[policy]\nsandbox = "preferred"\n')
    played = await stage.play([{"text": "ok"}])
    assert "no_sandbox" in [w.kind for w in played.result.warnings], "somebody asked for them"


# -- what was held is told ------------------------------------------------------------------------------------------


async def test_each_escape_that_fails_is_an_event(stage: Any) -> None:
    """Nobody asked for a sandbox here: it is the default."""
    (stage.home / "diary").write_text("private")
    outside = stage.home.parent / "outside"
    outside.mkdir()
    commands = f"cat {stage.home}/diary; touch /usr/planted; echo x > {outside}/planted; kill -9 {os.getpid()}"
    script = [
        bash(commands),
        {"tool": {"name": "Read", "input": {"file_path": str(stage.home / "diary")}}},
        {"tool": {"name": "Write", "input": {"file_path": f"{stage.home}/notes", "content": "x"}}},
        {"text": "done", "expect": {"lacks": "private"}},
    ]
    played = await stage.play(script, approver=lambda _: True)
    assert played.result.outcome == "succeeded"
    assert played.one(events.SessionStarted).sandbox == "workspace"
    held = {(event.kind, event.target) for event in played.of(events.SandboxViolation)}
    assert held == {
        ("read", f"{stage.home}/diary"),
        ("write", "/usr/planted"),
        ("write", f"{outside}/planted"),
        ("signal", str(os.getpid())),
        ("write", f"{stage.home}/notes"),
    }
    assert not Path("/usr/planted").exists()
    assert list(outside.iterdir()) == []
    assert not (stage.home / "notes").exists()


async def test_a_host_out_of_reach_is_an_event(stage: Any, listener: int) -> None:
    command = f"python3 -c \"import socket; socket.create_connection(('127.0.0.1', {listener}), 5)\""
    played = await stage.play([bash(command), {"text": "done"}], approver=lambda _: True, network="model-only")
    assert [(event.kind, event.target) for event in played.of(events.SandboxViolation)] == [("network", "127.0.0.1")]


# -- everyday work -------------------------------------------------------------------------------------------------

WORK = """
set -e
test "$(git config user.email)" = work@example.com
git init -q . && git add test_it.py package.json && git commit -qm first
git worktree add -q ../beside && exit 10
git worktree add -q tree && cd tree && git commit -q --allow-empty -m second && cd ..
python3 -m pytest -q -p no:cacheprovider test_it.py
mkdir -p ~/.cache/tool ~/.config/tool ~/.npm && echo x > ~/.cache/tool/x
npm test --silent
getent hosts localhost > /dev/null
test -s /etc/ssl/certs/ca-certificates.crt
echo x > /tmp/scratch && test -n "$TMPDIR" && echo x > "$TMPDIR/scratch"
test ! -e /run/docker.sock
test "$(ulimit -Hn)" -le 4096 && test "$(ulimit -Hf)" = 16777216 && test "$(ulimit -Hc)" = 0
test "$(hello)" = "hello from home"
echo worked > outcome
"""


async def test_everyday_work_goes_on(stage: Any) -> None:
    """A name for work that the git configuration includes, a venv, npm, caches, a tool in ~/.local/bin, names, TLS."""
    (stage.home / ".gitconfig").write_text(
        "[user]\nname = A\nemail = a@example.com\n[commit]\ngpgsign = true\n"
        f'[includeIf "gitdir:{stage.home.parent}/"]\npath = ~/.gitconfig-work\n[include]\npath = .gitconfig-work\n'
    )
    (stage.home / ".gitconfig-work").write_text("[user]\nemail = work@example.com\n")
    tool = stage.home / ".local" / "bin" / "hello"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\necho hello from home\n")
    tool.chmod(0o755)
    stage.environ["PATH"] = f"{Path(sys.executable).parent}:{tool.parent}:/usr/local/bin:/usr/bin:/bin"
    (stage.ws / "test_it.py").write_text("def test_it() -> None:\n    pass\n")
    (stage.ws / "package.json").write_text('{"scripts": {"test": "node -e 0"}}')
    work = WORK if shutil.which("npm", path="/usr/local/bin:/usr/bin:/bin") else WORK.replace("npm test --silent\n", "")
    played = await stage.play([bash(work), {"text": "done"}], approver=lambda _: True)
    said = played.one(events.ToolCompleted).text
    assert (stage.ws / "outcome").exists(), said
    assert played.one(events.SessionStarted).sandbox == "workspace"
    assert [h.kind for h in played.of(events.SandboxViolation)] == ["write"], "a worktree beside the workspace"
    assert not (stage.ws.parent / "beside").exists()


async def test_a_folder_that_cannot_be_sandboxed_is_worked_in_without_a_sandbox(stage: Any) -> None:
    """The sandbox has a /tmp of its own. Nobody asked for a sandbox, so this is told and stops nothing."""
    temporary = tempfile.gettempdir()
    if temporary != "/tmp":
        pytest.skip("the temporary folder of this machine is another one")
    played = await stage.play([{"text": "ok"}], cwd=temporary)
    assert played.result.outcome == "succeeded"
    assert played.one(events.SessionStarted).sandbox == ""
    assert "no_sandbox" in [n.code for n in played.of(events.Notice)]
    with pytest.raises(errors.BadValue, match="a sandbox has its own /tmp"):
        await stage.play([], cwd=temporary, sandbox="workspace")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root works for another user")
async def test_root_does_not_work_for_another_user_without_a_sandbox(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.chown(stage.ws, NOBODY, NOBODY)
    with pytest.raises(errors.BadDirectory, match=f"belongs to user {NOBODY}"):
        await stage.play([], sandbox="off")
    monkeypatch.setattr(availability, "_known", availability.SandboxAvailability(ok=False, reason="not here"))
    with pytest.raises(errors.BadDirectory, match=f"belongs to user {NOBODY}"):
        await stage.play([])


# -- WebFetch ------------------------------------------------------------------------------------------------------


@pytest.fixture
async def website(tmp_path: Path) -> AsyncIterator[tuple[int, Path]]:
    """An https host with a certificate of its own making; the port, and the file to trust."""
    key, certificate = tmp_path / "key.pem", tmp_path / "ca.pem"
    words = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    words += ["-keyout", str(key), "-out", str(certificate), "-subj", "/CN=test"]
    made = await asyncio.create_subprocess_exec(
        "openssl", *words, "-addext", "subjectAltName=IP:127.0.0.1", stderr=subprocess.DEVNULL
    )
    assert await made.wait() == 0
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = b"<html><body>the word is rhubarb</body></html>"
        head = f"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0, ssl=context) as server:
        yield server.sockets[0].getsockname()[1], certificate


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
async def test_model_only_fetches_a_page_of_an_allowed_host(stage: Any, website: tuple[int, Path]) -> None:
    """Through the proxy, with a certificate that lies in a hidden place and is named by a forwarded variable."""
    port, certificate = website
    config = stage.home / ".config" / "leadrope" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('forward_env = ["NODE_EXTRA_CA_CERTS"]\n')
    stage.environ["NODE_EXTRA_CA_CERTS"] = str(certificate)
    fetch = {"name": "WebFetch", "input": {"url": f"https://127.0.0.1:{port}/page", "prompt": "which word?"}}
    played = await stage.play(
        [{"tool": fetch}, {"text": "rhubarb", "expect": {"contains": "the word is rhubarb"}}, {"text": "done"}],
        approver=lambda _: True,
        policy={"network": {"reach": "model-only", "allowed_hosts": ["127.0.0.1"]}},
    )
    assert played.result.text == "done"
    assert played.one(events.ToolCompleted).text == "rhubarb"


# -- the agent's own sandbox ---------------------------------------------------------------------------------------


def escape(stage: Any) -> dict[str, Any]:
    """What only the inner wall keeps back (the home of the box is writable) and what both do."""
    (stage.home.parent / "beside").mkdir()
    return bash(f"echo in > {stage.ws}/in; echo out > {stage.home}/out; echo out > {stage.home.parent}/beside/out")


@pytest.mark.skipif(os.geteuid() == 0, reason="for root the two exclude each other")
async def test_the_agents_own_sandbox_works_inside(stage: Any) -> None:
    own = {"enabled": True}
    script = [escape(stage), {"text": "done"}]
    played = await stage.play(script, approver=lambda _: True, sandbox="workspace", agent_sandbox=own)
    said = played.one(events.ToolCompleted).text
    assert (stage.ws / "in").exists(), said
    assert f"{stage.home}/out: Read-only file system" in said, "the inner one"
    assert f"{stage.home.parent}/beside/out: No such file or directory" in said, "the outer one"
    assert played.one(events.SessionStarted).sandbox == "workspace"


@pytest.mark.skipif(os.geteuid() != 0, reason="is what runs already")
async def test_the_agents_own_sandbox_works_inside_for_an_unprivileged_user(shown_to_all: Any) -> None:
    """The test above as another user, in a mount namespace where that user can reach this Python."""
    with tempfile.TemporaryDirectory(prefix="lr-") as folder:
        os.chown(folder, NOBODY, NOBODY)
        prefix = Path(os.path.realpath(sys.executable)).parents[1]
        show = shown_to_all(prefix, Path(__file__).parents[2])
        command = [
            *("bwrap", "--dev-bind", "/", "/", *show, "--chdir", str(Path(__file__).parents[2]), "--"),
            *("setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", "--inh-caps=-all", "--"),
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=short"),
            *(f"--basetemp={folder}/pytest", f"{__file__}::test_the_agents_own_sandbox_works_inside"),
        ]
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": folder, "TMPDIR": folder, "PYTHONDONTWRITEBYTECODE": "1"}
        env |= {name: os.environ[name] for name in ("PYTHONPATH", "CI") if name in os.environ}
        ran = await asyncio.create_subprocess_exec(*command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        out, _ = await ran.communicate()
    assert ran.returncode == 0, out.decode()[-4000:]
    assert b"1 passed" in out


@pytest.mark.skipif(os.geteuid() != 0, reason="for other users both stand")
async def test_for_root_a_sandbox_that_is_only_preferred_makes_way_for_it(stage: Any) -> None:
    """Never neither: what nobody required is left out, and told; what is required stops the run."""
    own = {"enabled": True}
    played = await stage.play([escape(stage), {"text": "done"}], approver=lambda _: True, agent_sandbox=own)
    assert (stage.ws / "in").exists()
    assert not (stage.home / "out").exists()
    assert list((stage.home.parent / "beside").iterdir()) == []
    assert played.one(events.SessionStarted).sandbox == ""
    assert "no_sandbox" in [n.code for n in played.of(events.Notice)]
    for asked in ({"sandbox": "workspace"}, {"policy": {"sandbox": "required"}}):
        with pytest.raises(errors.BadValue, match="does not work inside leadrope's sandbox"):
            await stage.play([], agent_sandbox=own, **asked)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root works for another user")
async def test_where_root_works_for_another_user_a_weak_one_works_inside(stage: Any) -> None:
    own = {"enabled": True, "enableWeakerNestedSandbox": True}
    os.chown(stage.ws, NOBODY, NOBODY)
    script = [escape(stage), {"text": "done"}]
    played = await stage.play(script, approver=lambda _: True, sandbox="workspace", agent_sandbox=own)
    said = played.one(events.ToolCompleted).text
    assert (stage.ws / "in").stat().st_uid == NOBODY, said
    assert f"{stage.home}/out: Read-only file system" in said
    assert f"{stage.home.parent}/beside/out: No such file or directory" in said


async def test_its_settings_open_nothing_that_the_gate_keeps_shut(stage: Any) -> None:
    """What it would allow by itself, exclude from its sandbox or let out of it is asked for like everything else."""
    own = {
        "enabled": True,
        "autoAllowBashIfSandboxed": True,
        "excludedCommands": ["touch", "touch *"],
        "allowUnsandboxedCommands": True,
    }
    outside = {**stage.touch, "input": {**stage.touch["input"], "dangerouslyDisableSandbox": True}}
    script = [{"tool": stage.touch}, {"tool": outside}, {"text": "done"}]
    played = await stage.play(script, agent_sandbox=own, policy={"require_approval": ["Bash(touch *)"]})
    assert played.result.outcome == "denied"
    assert not stage.marker.exists()
    rules = ["require_approval", "agent_sandbox"]
    assert [(d.decision, d.rule) for d in played.of(events.ToolDecided)] == [("deny", rule) for rule in rules]
