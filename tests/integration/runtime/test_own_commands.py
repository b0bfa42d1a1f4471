"""Commands that no agent asked for: the rules judge them, a sandbox holds them, and they see no secret."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from leadrope import errors
from leadrope.core.tools import ToolCall
from leadrope.process.command_pool import client
from leadrope.process.command_pool.failures import CommandLost
from leadrope.runtime.commands import Commands

Survivors = Callable[[], dict[int, str]]
Until = Callable[[Callable[[], bool]], Awaitable[None]]

SECRETS = {
    "ANTHROPIC_API_KEY": "sk-ant-api03-secret",
    "CLAUDE_CODE_OAUTH_TOKEN": "secret-token",
    "OPENAI_API_KEY": "secret-openai",
    "GITHUB_TOKEN": "secret-github",
    "DATABASE_URL": "postgres://secret",
    "LEADROPE_TOKEN": "secret-own",
}

has_sandbox = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


class Desk:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ws = folder / "ws"
        self.ws.mkdir()
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "LEADROPE_HOME": str(folder / "leadrope"),
            "LANG": "C.UTF-8",
            **SECRETS,
        }

    def say(self, config: str) -> None:
        """The user's own settings."""
        path = self.folder / ".config/leadrope/config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(config)

    def open(self, **rules: Any) -> Commands:
        return Commands(self.ws, policies=(rules,) if rules else (), environ=self.environ)

    @property
    def left(self) -> set[str]:
        return {entry.name for entry in (self.folder / "tmp").iterdir()}


@pytest.fixture(params=[pytest.param("sandbox", marks=has_sandbox), "no sandbox"])
def desk(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    found = Desk(tmp_path)
    # Of its own, and with a long name: the socket in there has a path that no socket could be bound to.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    if request.param == "no sandbox":
        found.say('[policy]\nsandbox = "off"\n')
    yield found
    assert not found.left, "a run's folder was left behind"


@pytest.fixture
def sandboxed(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def bash(command: str) -> ToolCall:
    return ToolCall(id="1", name="Bash", input={"command": command})


# -- running ----------------------------------------------------------------------------------------------------------


async def test_scripts_and_programs_run_in_the_workspace(desk: Desk) -> None:
    async with desk.open() as commands:
        done = await commands.shell("pwd; echo a >file; cat", stdin=b"in")
        assert (done.exit_code, done.stdout) == (0, f"{desk.ws}\nin".encode())
        inner = desk.ws / "inner"
        inner.mkdir()
        there = await commands.run(["cat", "../file"], cwd=inner)
        assert there.stdout == b"a\n"
        many = await asyncio.gather(*(commands.run(["echo", str(n)]) for n in range(20)))
        assert [one.stdout for one in many] == [b"%d\n" % n for n in range(20)]
    assert (desk.ws / "file").read_text() == "a\n"


async def test_code_that_comes_again_does_the_same_each_time(desk: Desk) -> None:
    """It is read once by the process that forks, and run in a fork each time."""
    sources: dict[str, Callable[[int], Any]] = {
        "x: int\nresult: int = x + 1": lambda x: x + 1,
        "x: int\nif x > 1:\n    return [x]\nresult = 'small'": lambda x: [x] if x > 1 else "small",
        "import os\nresult = os.environ['GIVEN']": str,
        "global_list = globals().setdefault('seen', [])\nglobal_list.append(x)\nresult = global_list": lambda x: [x],
    }
    async with desk.open() as commands:
        for source, expected in sources.items():
            for x in range(4):
                done = await commands.code(source, {"x": x}, env={"GIVEN": str(x)})
                assert (done.error, done.value) == (None, expected(x)), source
        for _ in range(4):
            odd = await commands.code("result = x is 1000", {"x": 5})
            assert odd.value is False
            assert b"SyntaxWarning" in odd.stderr, "each time, not only when it is read"
        for source, kind, message in (
            ("x: int\nresult = 1 / x", "code_failed", "line 2: ZeroDivisionError"),
            ("x: str\nresult = x", "bad_input", "input x is declared str"),
            ("result = (", "code_failed", "it is not Python"),
            ("return\nbreak", "code_failed", "it is not Python"),
        ):
            for _ in range(4):
                wrong = await commands.code(source, {"x": 0})
                assert wrong.error is not None
                assert (wrong.error.kind, wrong.error.message[: len(message)]) == (kind, message)


async def test_a_command_sees_no_key_of_the_environment(desk: Desk) -> None:
    async with desk.open() as commands:
        seen = await commands.shell("env; cat /proc/self/environ /proc/$PPID/environ; true", env={"MINE": "mine"})
        said = (seen.stdout + seen.stderr).decode()
        assert "MINE=mine" in said
        assert not any(value in said for value in SECRETS.values())
        assert not any(name in said for name in SECRETS)
        code = await commands.code("import os\nresult = sorted(os.environ)", {})
        assert not set(code.value) & set(SECRETS)


@pytest.mark.parametrize("name", ["PATH", "LD_PRELOAD", "ANTHROPIC_API_KEY", "BASH_ENV", "LEADROPE_RUN", "a b"])
async def test_variables_that_would_turn_it_are_refused(desk: Desk, name: str) -> None:
    async with desk.open() as commands:
        with pytest.raises(errors.VariableRefused, match=name):
            await commands.shell("true", env={name: "x"})


async def test_a_lost_pool_is_opened_again(desk: Desk, survivors: Survivors, marker: str) -> None:
    async with desk.open() as commands:
        with pytest.raises(CommandLost):
            await commands.shell(
                f"setsid bash -c 'exec -a {marker} sleep 1000' & kill -9 -- $(ps -o ppid= $PPID); sleep 9"
            )
        assert (await commands.shell("echo again")).stdout == b"again\n"
    assert survivors() == {}


async def test_commands_that_waited_for_their_turn_get_another_pool(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MOST_AT_ONCE", 1)
    async with desk.open() as commands:
        killer = asyncio.create_task(commands.shell("kill -9 -- $(ps -o ppid= $PPID); sleep 9"))
        waiting = [asyncio.create_task(commands.run(["echo", str(n)])) for n in range(5)]
        with pytest.raises(CommandLost):
            await killer
        assert [(await one).stdout for one in waiting] == [b"%d\n" % n for n in range(5)]


async def test_leaving_ends_what_runs(desk: Desk, survivors: Survivors, marker: str) -> None:
    async with desk.open() as commands:
        started = asyncio.Event()
        script = f"setsid bash -c 'exec -a {marker} sleep 1000' & echo up; wait"
        running = asyncio.create_task(commands.shell(script, on_output=lambda *_: started.set()))
        await started.wait()
    with pytest.raises(CommandLost):
        await running
    assert survivors() == {}


async def test_what_is_no_command_is_refused(desk: Desk) -> None:
    async with desk.open() as commands:
        for argv in ([], [""], ["a\0b"]):
            with pytest.raises(errors.BadValue):
                await commands.run(argv)


async def test_nothing_is_started_before_the_first_command(desk: Desk) -> None:
    async with desk.open() as commands:
        call = ToolCall(id="1", name="Read", input={"file_path": "a"})
        assert commands.judge(call, is_own=True, has_person=False).word == "allow"
        assert commands._place is None


# -- sandbox ----------------------------------------------------------------------------------------------------------


@has_sandbox
async def test_in_the_sandbox_only_the_workspace_can_be_written(sandboxed: Desk) -> None:
    outside = sandboxed.folder / "outside"
    outside.mkdir()
    (sandboxed.folder / ".ssh").mkdir()
    (sandboxed.folder / ".ssh/key").write_text("secret key")
    (sandboxed.folder / ".claude").mkdir()
    (sandboxed.folder / ".claude/login").write_text("secret login")
    async with sandboxed.open() as commands:
        assert commands.is_sandboxed
        done = await commands.shell(
            f"echo a >inside; echo b >{outside}/file; "
            f"cat {sandboxed.folder}/.ssh/key {sandboxed.folder}/.claude/login; "
            f"ls {sandboxed.folder}/leadrope"
        )
        assert b"secret" not in done.stdout + done.stderr
        code = await commands.code(
            "from pathlib import Path\nPath(where, 'file').write_text('x')", {"where": str(outside)}
        )
        assert code.error is not None
    assert (sandboxed.ws / "inside").read_text() == "a\n"
    assert list(outside.iterdir()) == []


@has_sandbox
async def test_a_blocked_program_cannot_be_started_in_whatever_words(sandboxed: Desk) -> None:
    marker = sandboxed.ws / "ran"
    async with sandboxed.open(blocked_commands=["touch"]) as commands:
        assert commands.judge(bash(f"touch {marker}"), is_own=True, has_person=True).word == "deny"
        unread = f'x=tou; eval "$x"ch {marker}'
        assert commands.judge(bash(unread), is_own=True, has_person=False).word == "allow"
        done = await commands.shell(unread)
        assert done.exit_code == 126
    assert not marker.exists()


async def test_a_verdict_that_equal_commands_share_opens_nothing(desk: Desk) -> None:
    """A file that was allowed becomes a link to a blocked one, in the moment between two equal commands."""
    (desk.ws / "hidden").write_text("secret text")
    (desk.ws / "data").write_text("plain text")
    command = bash("cat data")
    async with desk.open(blocked_paths=["**/hidden"]) as commands:
        assert commands.judge(command, is_own=True, has_person=True).word == "allow"
        assert (await commands.shell("cat data")).stdout == b"plain text"
        (desk.ws / "data").unlink()
        (desk.ws / "data").symlink_to("hidden")
        if commands.judge(command, is_own=True, has_person=True).word == "allow":
            assert commands.is_sandboxed
            assert b"secret" not in (await commands.shell("cat data")).stdout
        deadline = time.monotonic() + 60
        while commands.judge(command, is_own=True, has_person=True).word == "allow":
            assert time.monotonic() < deadline


@has_sandbox
async def test_a_required_sandbox_that_cannot_be_built_is_an_error(sandboxed: Desk) -> None:
    async with Commands(Path("/tmp"), policies=({"sandbox": "required"},), environ=sandboxed.environ) as commands:
        with pytest.raises(errors.BadValue, match="sandbox"):
            await commands.shell("true")


@has_sandbox
@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
async def test_root_runs_commands_as_the_owner_of_the_workspace(sandboxed: Desk) -> None:
    sandboxed.folder.chmod(0o755)
    os.chown(sandboxed.ws, 12345, 12345)
    async with sandboxed.open() as commands:
        done = await commands.shell("id -u; touch mine")
        assert (done.stdout, done.exit_code) == (b"12345\n", 0)
        code = await commands.code("import os, json\nopen('too', 'w').close()\nresult = os.getuid()", {})
        assert code.value == 12345
        other = await commands.code("import os\nresult = os.getuid()", {}, python="/usr/bin/python3")
        assert other.value == 12345
    assert {entry.stat().st_uid for entry in sandboxed.ws.iterdir()} == {12345}


@has_sandbox
async def test_a_command_cannot_trace_its_lane(sandboxed: Desk) -> None:
    """It could speak to the supervisor in its name."""
    async with sandboxed.open() as commands:
        done = await commands.shell("ls -l /proc/$PPID/fd; cat /proc/$PPID/mem 2>&1 | head -c 1; true")
        assert b"socket" not in done.stdout


@has_sandbox
async def test_without_a_network_only_the_proxy_is_there(sandboxed: Desk) -> None:
    async with sandboxed.open(network={"reach": "model-only"}, sandbox="required") as commands:
        done = await commands.shell("cat /proc/net/dev | tail -n +3 | cut -d: -f1; echo $HTTP_PROXY")
        assert done.stdout.decode().split() == ["lo"]


# -- the gate ---------------------------------------------------------------------------------------------------------

OPAQUE = 'eval "$X"'


@pytest.mark.parametrize(
    ("rules", "command", "is_own", "has_person", "word"),
    [
        ({}, "git status", True, False, "allow"),
        ({}, "git push", True, True, "ask"),
        ({}, "rm -rf /", True, True, "deny"),
        ({"blocked_commands": ["curl"]}, "a && curl x", True, True, "deny"),
        ({}, OPAQUE, False, True, "ask"),
        ({}, OPAQUE, False, False, "deny"),
        ({"opaque": "deny"}, OPAQUE, True, True, "deny"),
        ({"permission_mode": "plan"}, "ls", True, True, "allow"),
        ({"permission_mode": "plan"}, "mkdir new", True, True, "deny"),
    ],
)
async def test_the_rules_of_all_layers_hold(
    desk: Desk, rules: dict[str, Any], command: str, is_own: bool, has_person: bool, word: str
) -> None:
    async with desk.open(**rules) as commands:
        assert commands.judge(bash(command), is_own=is_own, has_person=has_person).word == word


@pytest.mark.parametrize(
    ("rules", "in_sandbox"),
    [
        ({}, "allow"),
        ({"blocked_commands": ["curl", "nc"]}, "allow"),
        ({"blocked_commands": ["git push"]}, "ask"),
        ({"disallowed_tools": ["Bash(git push *)"]}, "ask"),
        ({"blocked_paths": ["secrets/"]}, "allow"),
        ({"opaque": "deny"}, "deny"),
    ],
)
async def test_own_text_that_cannot_be_read_passes_where_the_sandbox_keeps_all_that_is_blocked(
    desk: Desk, rules: dict[str, Any], in_sandbox: str
) -> None:
    async with desk.open(**rules) as commands:
        word = commands.judge(bash(OPAQUE), is_own=True, has_person=True).word
        without = "deny" if in_sandbox == "deny" else "ask"
        assert word == (in_sandbox if commands.is_sandboxed else without)


async def test_a_layer_that_cannot_be_read_stops_it_all(desk: Desk) -> None:
    desk.say('[policy]\nno_such_rule = "x"\n')
    with pytest.raises(errors.LeadropeError, match="no_such_rule"):
        async with desk.open():
            pass


SUPERVISOR = """
import asyncio, sys
from pathlib import Path
from leadrope.runtime.commands import Commands

async def main():
    async with Commands(Path({ws!r}), environ={environ!r}) as commands:
        leave = "setsid bash -c 'exec -a {marker} sleep 1000' & ( ( bash -c 'exec -a {marker} sleep 1000' & ) & ); "
        code = "import subprocess\\nsubprocess.run(['bash', '-c', 'exec -a {marker} sleep 1000'])"
        await asyncio.gather(commands.shell(leave + "trap '' TERM; sleep 1000"), commands.code(code, {{}}))

asyncio.run(main())
"""


@pytest.mark.fault
@pytest.mark.parametrize("sandbox", [pytest.param("preferred", marks=has_sandbox), "off"])
async def test_nothing_survives_a_supervisor_that_is_killed(
    sandboxed: Desk, survivors: Survivors, marker: str, until: Until, fault_count: int, sandbox: str
) -> None:
    sandboxed.say(f'[policy]\nsandbox = "{sandbox}"\n')
    text = SUPERVISOR.format(ws=str(sandboxed.ws), environ=sandboxed.environ, marker=marker)
    for _ in range(fault_count):
        supervisor = subprocess.Popen([sys.executable, "-c", text], start_new_session=True)  # noqa: ASYNC220
        try:
            await until(lambda: sum(argv.startswith(f"{marker} 1000") for argv in survivors().values()) == 3)
        finally:
            supervisor.kill()
            supervisor.wait()
        await until(lambda: survivors() == {})
