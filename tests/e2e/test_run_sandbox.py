"""The real CLI inside the sandbox: its tools work, its commands cannot get out, and it ends as cleanly as outside."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from leadrope import Limits, events, open_run
from leadrope.process import child as processes
from leadrope.process import reaper
from leadrope.process.sandbox import availability
from leadrope.process.sandbox.values import MODEL_SOCKET, Forward, Sandbox, Socket
from leadrope.rehearsal import ModelServer

NOBODY = 65534
MODEL_PORT = 8899

pytestmark = pytest.mark.skipif(
    shutil.which("bwrap") is None and os.environ.get("CI", "").lower() != "true", reason="bubblewrap is not installed"
)

BuildSandbox = Callable[..., None]
start = processes.start


@pytest.fixture
def build_sandbox(stage: Any, monkeypatch: pytest.MonkeyPatch) -> BuildSandbox:
    """From the call on, every agent of this test is started in a box that is made here: no request can ask for one way
    to the model and not for the other.
    """

    def build(env_inside: Mapping[str, str] | None = None, **fields: Any) -> None:
        async def boxed(argv: Sequence[str], *, env: Mapping[str, str], cwd: str, **options: Any) -> processes.Child:
            if reaper.TAG not in env:  # no agent: the trial of whether boxes work here
                return await start(argv, env=env, cwd=cwd, **options)
            spec = Sandbox(
                workspace=cwd,
                run_dir=str(Path(env["TMPDIR"]).parent),
                config_dir=env["CLAUDE_CONFIG_DIR"],
                home=env["HOME"],
                hidden=(stage.environ["LEADROPE_HOME"],),
                binary=argv[0],
                path=env["PATH"],
                **fields,
            )
            box = availability.prepare(spec)
            inside = {**env, **box.env, **(env_inside or {})}
            return await start(argv, env=inside, cwd=cwd, **{**options, "box": box.argv})

        monkeypatch.setattr(processes, "start", boxed)

    return build


def yes(asked: events.ApprovalRequested) -> bool:
    """The sandbox is tried here, so nothing is stopped before it reaches them."""
    return True


def bash(command: str) -> dict[str, Any]:
    return {"tool": {"name": "Bash", "input": {"command": command, "description": "try"}}}


async def test_the_tools_work_inside(stage: Any) -> None:
    (stage.home / ".gitconfig").write_text("[user]\nname = A\nemail = a@b\n[commit]\ngpgsign = true\n")
    file = stage.ws / "f.txt"
    script = [
        {"tool": {"name": "Write", "input": {"file_path": str(file), "content": "one\n"}}},
        {"tool": {"name": "Read", "input": {"file_path": str(file)}}},
        bash(
            "git init -q . && git add f.txt && git commit -qm first && python3 -c 'print(6*7)' > n && ls /proc | wc -l"
        ),
        {"text": "done"},
    ]
    played = await stage.play(script, mode="full", approver=yes, sandbox="workspace")
    assert played.result.outcome == "succeeded", played.result
    assert not any(done.is_error for done in played.of(events.ToolCompleted)), played.of(events.ToolCompleted)
    assert (stage.ws / "n").read_text() == "42\n"
    assert (stage.ws / ".git" / "refs" / "heads").is_dir()


async def test_its_commands_cannot_get_out(stage: Any, tmp_path: Path) -> None:
    (stage.home / ".ssh").mkdir()
    (stage.home / ".ssh" / "id_rsa").write_text("PRIVATE")
    (stage.home / ".netrc").write_text("PRIVATE")
    (tmp_path / "elsewhere").mkdir()
    attempts = f"""
    cat {stage.home}/.ssh/id_rsa {stage.home}/.netrc > got
    echo x > {tmp_path}/elsewhere/made
    cp /bin/sh {stage.environ["LEADROPE_HOME"]}/planted
    kill -9 {os.getpid()} && echo killed >> got
    mount -o remount,rw,bind /usr && echo mounted >> got
    v=$(cat /proc/sys/kernel/core_pattern); echo "$v" > /proc/sys/kernel/core_pattern && echo written >> got
    exit 1
    """
    played = await stage.play(
        [bash(attempts), {"text": "it did not work"}], mode="full", approver=yes, sandbox="workspace"
    )
    assert played.one(events.ToolCompleted).is_error
    assert (stage.ws / "got").read_text() == ""
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert not (Path(stage.environ["LEADROPE_HOME"]) / "planted").exists()
    assert played.result.outcome == "succeeded", played.result


async def test_an_edit_outside_fails_even_when_the_gate_has_allowed_it(stage: Any, tmp_path: Path) -> None:
    target = tmp_path / "outside.txt"
    write = {"tool": {"name": "Write", "input": {"file_path": str(target), "content": "x"}}}
    played = await stage.play([write, {"text": "well"}], mode="full", sandbox="workspace")
    decided = played.one(events.ToolDecided)
    assert (decided.decision, decided.rule) == ("allow", "mode:full"), "nobody was asked"
    assert played.one(events.ToolCompleted).is_error
    assert played.result.outcome == "succeeded", played.result
    assert not target.exists()


async def test_a_stopped_run_ends_cleanly_with_143(stage: Any, marker: str, survivors: Any, until: Any) -> None:
    exited: list[events.AgentExited] = []
    command = f"( env -i $(command -v setsid) bash -c 'exec -a {marker} sleep 1000' & ); tail -f /dev/null"
    async with stage.opened(
        [bash(command), {"text": "stopped", "optional": True}],
        mode="full",
        approver=yes,
        sandbox="workspace",
        limits=Limits(stop_s=10),
    ) as (run, _):
        async for item in run:
            if isinstance(item.event, events.ToolDecided):
                break
        await until(survivors)
        stopping = asyncio.ensure_future(run.stop())
        async for item in run:
            if isinstance(item.event, events.AgentExited):
                exited.append(item.event)
        result = await stopping
    assert result.outcome == "stopped"
    assert survivors() == {}
    assert (exited[0].exit_code, exited[0].survivors) == (143, 0)


async def test_what_a_command_left_in_the_box_is_counted(stage: Any, marker: str, survivors: Any) -> None:
    command = f"( setsid bash -c 'exec -a {marker} sleep 1000' > /dev/null 2>&1 & ) ; echo started"
    played = await stage.play([bash(command), {"text": "done"}], mode="full", approver=yes, sandbox="workspace")
    assert survivors() == {}
    assert played.result.outcome == "succeeded"
    assert played.result.leftovers_killed == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_root_runs_the_agent_as_the_owner_of_the_workspace(stage: Any) -> None:
    os.chown(stage.ws, NOBODY, NOBODY)
    played = await stage.play(
        [bash(f"id -u > {stage.ws}/who"), {"text": "done"}], mode="full", approver=yes, sandbox="workspace"
    )
    assert played.result.outcome == "succeeded", played.result
    assert (stage.ws / "who").read_text() == f"{NOBODY}\n"
    assert (stage.ws / "who").stat().st_uid == NOBODY


@asynccontextmanager
async def bridge(path: Path, port: int) -> AsyncIterator[str]:
    """A unix socket that leads to a port of this machine, as the supervisor's broker will be."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(copy(reader, back), copy(there, writer))

    async with await asyncio.start_unix_server(serve, path):
        yield str(path)


@pytest.mark.parametrize("way", ["unix socket", "forwarded port"])
async def test_model_only_reaches_the_model_and_nothing_else(
    stage: Any, build_sandbox: BuildSandbox, way: str, tmp_path: Path
) -> None:
    """Through the CLI's own support of unix sockets, and through socat where a version has none."""
    async with ModelServer([], strict=False) as other:
        port = int(other.url.rpartition(":")[2])
        script = [
            bash(
                f"for p in {port} 80; do (exec 3<>/dev/tcp/127.0.0.1/$p) && echo REACHED >> got; done; echo over >> got"
            ),
            {"text": "done"},
        ]
        async with ModelServer(script) as model, bridge(tmp_path / "m.sock", int(model.url.rpartition(":")[2])) as path:
            inside = {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{MODEL_PORT}"}
            forwards: tuple[Forward, ...] = ()
            if way == "unix socket":
                inside["ANTHROPIC_UNIX_SOCKET"] = MODEL_SOCKET
            else:
                forwards = (Forward(port=MODEL_PORT, socket=MODEL_SOCKET),)
            build_sandbox(inside, network="model-only", sockets=(Socket(outside=path),), forwards=forwards)
            async with open_run(stage.request(model, mode="full"), approver=yes, environ=stage.environ) as run:
                result = await run.result()
    assert result.outcome == "succeeded", result
    assert result.leftovers_killed == 0
    assert (stage.ws / "got").read_text() == "over\n"
