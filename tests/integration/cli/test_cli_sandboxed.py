"""Mode `sandboxed` as a user meets it: where it works, where it is refused, and what it asks before leaving."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

needs_sandbox = pytest.mark.skipif(
    shutil.which("bwrap") is None and os.environ.get("CI", "").lower() != "true", reason="bubblewrap is not installed"
)
pytestmark = needs_sandbox
DONE = {"text": "Done."}


def bash(line: str) -> dict[str, Any]:
    return {"tool": {"name": "Bash", "input": {"command": line, "description": "try"}}}


def configure(desk: Any, text: str) -> None:
    path = desk.home / ".config" / "leadrope" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("config", "flags"),
    [
        ("", ("--mode", "sandboxed")),
        ('[run]\nmode = "sandboxed"\n', ()),
        ('[profiles.day]\nmode = "sandboxed"\n', ("--profile", "day")),
    ],
    ids=["flag", "config", "profile"],
)
async def test_it_works_on_its_own_inside(desk: Any, playing: Any, config: str, flags: tuple[str, ...]) -> None:
    configure(desk, config)
    outside = desk.home / "outside"
    lines = ["x=touch; $x made", f"echo x > {outside}; echo y > made-too", "eval 'touch evaluated'"]
    async with playing(*map(bash, lines), DONE) as model:
        ended = await desk.leadrope("run", "go", *flags, "--base-url", model.url)
        assert ended.code == 0, ended.err
    assert (ended.code, "denied" in ended.err) == (0, False), ended.err
    assert "mode sandboxed" in ended.err
    assert {path.name for path in desk.project.iterdir()} == {"made", "made-too", "evaluated"}
    assert not outside.exists()


async def test_a_layer_that_allows_at_most_this_mode_needs_the_sandbox_too(desk: Any, playing: Any) -> None:
    configure(desk, '[policy]\npermission_mode = "sandboxed"\n')
    async with playing(bash("gradle --version; touch made"), DONE) as model:
        ended = await desk.leadrope("run", "go", "--mode", "full", "--base-url", model.url)
        assert (ended.code, "denied" in ended.err) == (0, False), ended.err
        refused = await desk.leadrope("run", "go", "--mode", "full", "--sandbox", "off", "--base-url", model.url)
    assert (desk.project / "made").exists()
    assert refused.code == 2
    assert "mode sandboxed needs the sandbox" in refused.err
    assert "--mode edit" in refused.err


@pytest.mark.parametrize(
    ("config", "flags", "notes"),
    [
        ("", ("--walls", "off"), ["note: --walls will be removed; use --sandbox"]),
        ('[run]\nwalls = "off"\n', (), ["note: {config}: run.walls will be removed; use run.sandbox"]),
        ('[profiles.a]\nwalls = "off"\n', ("--profile", "a"), ["note: {config}: profiles.a.walls will be removed"]),
        (
            '[run]\nwalls = "off"\n[run.sandbox]\nenabled = false\n',
            (),
            ["run.walls will be removed; use run.sandbox", "run.sandbox will be removed; use run.agent_sandbox"],
        ),
        ('[run]\nsandbox = "off"\n', (), []),
        ("", ("--sandbox", "off"), []),
    ],
)
async def test_the_old_word_for_the_sandbox_still_works_and_says_so(
    desk: Any, playing: Any, config: str, flags: tuple[str, ...], notes: list[str]
) -> None:
    configure(desk, config)
    async with playing(DONE) as model:
        ended = await desk.leadrope("run", "go", "--mode", "full", *flags, "--base-url", model.url, "-o", "stream-json")
    assert ended.code == 0, ended.err
    path = desk.home / ".config" / "leadrope" / "config.toml"
    for note in notes:
        assert note.format(config=path) in ended.err
    assert ended.err.count("will be removed") == len(notes)
    events = [json.loads(line).get("event", {}) for line in ended.out.splitlines()]
    started = next(event for event in events if event.get("type") == "session.started")
    assert "sandbox" not in started, "it has none"


async def without_bubblewrap(desk: Any, *args: str) -> tuple[int, str]:
    """leadrope on a machine like this one, but that bubblewrap cannot be started there."""
    bwrap = shutil.which("bwrap", path="/usr/local/bin:/usr/bin:/bin")
    assert bwrap is not None
    process = await asyncio.create_subprocess_exec(
        *(bwrap, "--dev-bind", "/", "/", "--ro-bind", "/dev/null", bwrap, "--chdir", str(desk.project), "--"),
        *(sys.executable, "-m", "leadrope.cli.main", *args),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=desk.environ,
        start_new_session=True,
    )
    async with asyncio.timeout(90):
        out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode()


async def test_it_is_refused_where_no_sandbox_can_be_built(desk: Any, playing: Any) -> None:
    async with playing(strict=False) as model:
        code, told = await without_bubblewrap(desk, "run", "go", "--mode", "sandboxed", "--base-url", model.url)
    assert code != 0
    assert "mode sandboxed needs a sandbox that holds: bwrap is not installed" in told
    assert "Use --mode edit, which works without a sandbox and asks for commands." in told
    assert model.requests == []


async def test_the_doctor_says_whether_it_can_be_used(desk: Any) -> None:
    ended = await desk.leadrope("doctor")
    assert "mode sandboxed works" in " ".join(ended.out.split())
    _, told = await without_bubblewrap(desk, "doctor")
    assert "mode sandboxed is refused" in " ".join(told.split())
    assert "! sandbox" in told
    assert "apt install bubblewrap" in " ".join(told.split())


async def test_a_shell_completes_it(desk: Any) -> None:
    ended = await desk.leadrope(_LEADROPE_COMPLETE="bash_complete", COMP_WORDS="leadrope run --mode s", COMP_CWORD="3")
    assert ended.out == "plain,sandboxed\n"


async def test_a_workflows_step_runs_in_it(desk: Any, playing: Any) -> None:
    async with playing(bash("x=touch; $x made"), DONE) as model:
        configure(desk, f'[run]\nbase_url = "{model.url}"\n')
        text = (
            "# A\n\nTries a mode.\n\n## Steps\n\n### work\n\nWorks.\n\n- type: agent\n- prompt: go\n- mode: sandboxed\n"
        )
        (desk.project / "a.flow.md").write_text(text)
        ended = await desk.leadrope("flow", "run", "a.flow.md")
        assert ended.code == 0, ended.err + ended.out
    assert (desk.project / "made").exists()


# -- leaving it -------------------------------------------------------------------------------------------------------

CURL = 'curl -sS -m 60 -o said -w "%{http_code}" http://service.example/ || true'


@pytest.mark.parametrize("answer", ["n\n", None], ids=["no", "nobody"])
async def test_a_command_reaches_no_other_host_without_an_answer(desk: Any, playing: Any, answer: str | None) -> None:
    async with playing(bash(CURL), bash(CURL), DONE) as model:
        flags = ("run", "go", "--mode", "sandboxed", "--base-url", model.url)
        if answer is None:
            ended = await desk.leadrope(*flags)
            assert ended.code == 0
            assert "service.example:80 was not reached" in ended.err
        else:
            async with desk.at_terminal(*flags) as terminal:
                await terminal.reads("? Network needs your approval:", "host: service.example", "port: 80")
                await terminal.reads("a command wants to reach a host outside of the sandbox", "Allow?")
                await terminal.asks(answer, "Why?")
                terminal.types("\n")
                assert await terminal.ends() == 0
            assert terminal.seen.count("? Network") == 1, "a host is asked about once in a run"
    assert "not an allowed host" in (desk.project / "said").read_text()


@pytest.mark.parametrize("target", ["127.0.0.1:1", "localhost:1", "169.254.169.254", "10.0.0.1", "box.internal"])
async def test_nobody_is_asked_about_addresses_that_are_not_public(desk: Any, playing: Any, target: str) -> None:
    line = f"curl -sS -m 60 -o said http://{target}/ || true"
    async with playing(bash(line), DONE) as model:
        flags = ("run", "go", "--mode", "sandboxed", "--base-url", model.url)
        async with desk.at_terminal(*flags) as terminal:
            assert await terminal.ends() == 0
    assert "Allow?" not in terminal.seen
    assert "not an allowed" in (desk.project / "said").read_text()


async def test_where_hosts_are_listed_nobody_is_asked_about_others(desk: Any, playing: Any) -> None:
    served: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    configure(desk, '[policy.network]\nallowed_hosts = ["127.0.0.1"]\n')
    direct = f"curl -sS -m 60 --noproxy '*' http://127.0.0.1:{port}/ || true"
    lines = [f"curl -sS -m 60 -o here http://127.0.0.1:{port}/", CURL, direct]
    async with server, playing(*map(bash, lines), DONE) as model:
        flags = ("run", "go", "--mode", "sandboxed", "--base-url", model.url)
        async with desk.at_terminal(*flags) as terminal:
            assert await terminal.ends() == 0
    assert "Allow?" not in terminal.seen
    assert (desk.project / "here").read_text() == "ok"
    assert "not an allowed host" in (desk.project / "said").read_text()
    assert len(served) == 1, "what does not use the proxy reaches nothing"


async def test_a_host_that_waits_is_answered_from_another_terminal(desk: Any, playing: Any) -> None:
    async with playing(bash(CURL), DONE) as model:
        started = await desk.leadrope("run", "go", "--detach", "--mode", "sandboxed", "--base-url", model.url)
        async with asyncio.timeout(60):
            while not (found := (await desk.leadrope("approvals", "list", "-o", "json")).out):
                pass
        asked = json.loads(found)
        assert asked["asked"]["call"]["input"] == {"host": "service.example", "port": 80}
        assert "host: service.example" in (await desk.leadrope("approvals", "show", asked["id"])).out
        await desk.leadrope("approvals", "deny", asked["id"], "--reason", "not that one")
        run = started.out.strip()
        assert (await desk.leadrope("runs", "logs", "-f", run)).code == 0
    assert "not an allowed host" in Path(desk.project / "said").read_text()
