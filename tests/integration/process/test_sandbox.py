"""Real processes in real boxes: what must not get out does not, and ordinary work goes on.

Each test runs as leadrope's own user; as root it runs again with a workspace of another user, and the whole file once
more as an unprivileged one.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from leadrope import errors
from leadrope.process import sandbox_git, sandbox_trial
from leadrope.process.child import Child, Ending, start
from leadrope.process.sandbox_values import PROXY_SOCKET, Forward, Limits, Sandbox, Socket

Survivors = Callable[[], dict[int, str]]
Until = Callable[[Callable[[], bool]], Awaitable[None]]

NOBODY = 65534
ROOT = os.geteuid() == 0
REPOSITORY = Path(__file__).parents[3]
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"

pytestmark = pytest.mark.skipif(
    shutil.which("bwrap") is None and os.environ.get("CI", "").lower() != "true", reason="bubblewrap is not installed"
)


class Done(msgspec.Struct, frozen=True, kw_only=True):
    ending: Ending
    out: str
    err: str

    @property
    def code(self) -> int:
        return self.ending.exit_code


class Room:
    """A workspace, a home with secrets, leadrope's own folders, and something that is none of the agent's business."""

    def __init__(self, folder: Path, owner: int | None) -> None:
        self.folder = folder
        self.ws, self.run, self.home = folder / "ws", folder / "run", folder / "home"
        self.elsewhere, self.own = folder / "elsewhere", folder / "leadrope"
        self.config = self.own / "sessions" / "s1" / "config"
        for path in (self.ws, self.run / "tmp", self.home / ".ssh", self.home / ".aws", self.elsewhere, self.config):
            path.mkdir(parents=True)
        (self.home / ".ssh" / "id_rsa").write_text("PRIVATE")
        (self.home / ".netrc").write_text("PRIVATE")
        (self.home / "diary").write_text("PRIVATE")
        (self.own / "leadrope.db").write_text("PRIVATE")
        (self.home / ".gitconfig").write_text("[user]\nname = A\nemail = a@b\n[commit]\ngpgsign = true\n")
        (self.elsewhere / "file").write_text("PRIVATE")
        if owner is not None:
            self.give(self.ws, owner)

    @staticmethod
    def give(folder: Path, owner: int) -> None:
        for parent, folders, files in os.walk(folder):
            for path in (parent, *(f"{parent}/{name}" for name in (*folders, *files))):
                os.chown(path, owner, owner, follow_symlinks=False)

    def spec(self, **fields: Any) -> Sandbox:
        given: dict[str, Any] = {
            "workspace": str(self.ws),
            "run_dir": str(self.run),
            "config_dir": str(self.config),
            "home": str(self.home),
            "hidden": (str(self.own),),
            "binary": "/bin/bash",
            "path": SYSTEM_PATH,
        }
        return Sandbox(**(given | fields))

    async def begin(self, script: str, *arguments: str, **fields: Any) -> Child:
        spec = self.spec(**fields)
        box = sandbox_trial.prepare(spec)
        env = {"PATH": spec.path, "HOME": spec.home, "TMPDIR": f"{spec.run_dir}/tmp", **box.env}
        command = ["/bin/bash", "-c", script, "child", *arguments]
        return await start(command, env=env, cwd=spec.workspace, spool_dir=str(self.folder), box=box.argv)

    async def play(self, script: str, *arguments: str, **fields: Any) -> Done:
        child = await self.begin(script, *arguments, **fields)
        lines: list[str] = []
        async with asyncio.timeout(60):
            while batch := await child.read():
                lines += [bytes(line).decode() for line in batch]  # type: ignore[arg-type]  # short lines are bytes
            await child.wait()
        return Done(ending=await child.end(polite_s=20), out="\n".join(lines), err="\n".join(child.stderr_tail))


@pytest.fixture(params=["own", "another's"] if ROOT else ["own"])
def room(request: pytest.FixtureRequest, tmp_path: Path) -> Room:
    return Room(tmp_path, NOBODY if request.param == "another's" else None)


# -- what must not get out ---------------------------------------------------------------------------------------------

SAME_VALUE = 'f=/proc/sys/kernel/core_pattern; v=$(cat $f); echo "$v" > $f && echo ESCAPED'
TRACE = "import ctypes, os, sys; print('ESCAPED' if ctypes.CDLL(None).ptrace(16, {pid}, 0, 0) == 0 else 'no')"

ESCAPES = {
    "write outside": "echo x > {elsewhere}/new && echo ESCAPED",
    "write over a file outside": "echo x > {elsewhere}/file && echo ESCAPED",
    "read outside": "cat {elsewhere}/file",
    "read a key": "cat {home}/.ssh/id_rsa; cat ~/.ssh/id_rsa",
    "read a password": "cat {home}/.netrc",
    "read the rest of the home": "cat {home}/diary",
    "read through a link": "ln -s {home}/.ssh here; cat here/id_rsa; ln -s {elsewhere}/file f; cat f",
    "read leadrope's database": "cat {own}/leadrope.db",
    "read the shadow file": "grep -q . /etc/shadow && echo ESCAPED",
    "read through init's root": "cat /proc/1/root{elsewhere}/file /proc/1/cwd/../elsewhere/file",
    "write to the system": "touch /usr/bin/x /etc/x /opt/x /x && echo ESCAPED; touch /usr/bin/x && echo ESCAPED",
    "write to the home for good": "echo x > {home}/.bashrc; true",
    "kill the supervisor": "kill -9 {pid} && echo ESCAPED",
    "see the supervisor": "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -q '^sleep 1000 ' && echo ESCAPED",
    "trace the supervisor": f'python3 -I -S -c "{TRACE}"',
    "write to /proc/sys": SAME_VALUE,
    "write to /proc/sys again mounted": f"unshare -Urmpf --mount-proc bash -c '{SAME_VALUE}'",
    "press the magic key": "echo h > /proc/sysrq-trigger && echo ESCAPED",
    "read the kernel's memory": "head -c 1 /proc/kcore | grep -q . && echo ESCAPED",
    "mount": "mount -t tmpfs none /tmp && echo ESCAPED",
    "make the system writable": "mount -o remount,rw,bind /usr && touch /usr/x && echo ESCAPED",
    "make the system writable in a namespace": (
        "unshare -Urm bash -c 'mount -o remount,rw,bind /usr && touch /usr/x && echo ESCAPED'"
    ),
    "uncover the home": "umount {home} && cat {home}/diary; umount -l {home} && cat {home}/diary",
    "uncover the home in a namespace": "unshare -Urm bash -c 'umount {home}; umount -l /tmp; cat {home}/diary'",
    "make a device": "mknod /tmp/d b 7 0 && echo ESCAPED; mknod {ws}/d c 1 1 && echo ESCAPED",
    "mount the control groups": (
        "unshare -UrmC bash -c 'mount -t cgroup2 none /mnt && echo 1 > /mnt/cgroup.procs && echo ESCAPED; "
        "mkdir /tmp/c; mount -t cgroup2 none /tmp/c && ls /tmp/c/cgroup.procs && mkdir /tmp/c/x && echo ESCAPED'"
    ),
    "become root": "su -c 'id -u' </dev/null && echo ESCAPED; sudo -n id && echo ESCAPED",
    "gain by a setuid program": "grep -q 'NoNewPrivs:.1' /proc/self/status || echo ESCAPED",
    "use a capability": "grep Cap /proc/self/status | grep -v 0000000000000000 && echo ESCAPED",
    "talk to services in /run": "ls /run /var/run | grep -v leadrope | grep sock && echo ESCAPED",
    "use an open file of the supervisor": (
        "ls -l /proc/self/fd | grep -e '->' | grep -vE ' [012] -> | -> /proc/[0-9]+/fd' && echo ESCAPED"
    ),
    "plant a git hook": "echo x > .git/hooks/pre-commit && echo ESCAPED; mv .git/hooks .git/h && echo ESCAPED",
    "write to raw disks": "ls /dev | grep -E '^(vd|sd|nvme|mem|kmsg)' && echo ESCAPED",
}


@pytest.mark.parametrize("escape", ESCAPES)
async def test_nothing_gets_out(room: Room, escape: str, marker: str) -> None:
    (room.ws / ".git" / "hooks").mkdir(parents=True)
    uid = room.ws.stat().st_uid
    if uid != os.geteuid():
        room.give(room.ws, uid)
    before = {
        path: path.read_bytes() for path in room.folder.rglob("*") if path.is_file() and room.ws not in path.parents
    }
    with subprocess.Popen(["sleep", "1000"]) as host:  # noqa: ASYNC220  # a process of the supervisor's user
        try:
            names = {"pid": host.pid, **vars(room)}
            done = await room.play(ESCAPES[escape].format(**names) + "\necho over")
            assert host.poll() is None
        finally:
            host.kill()
    assert done.out.endswith("over"), done
    assert "ESCAPED" not in done.out
    assert "PRIVATE" not in done.out
    assert (done.code, done.ending.survivors) == (0, 0)
    after = {
        path: path.read_bytes() for path in room.folder.rglob("*") if path.is_file() and room.ws not in path.parents
    }
    assert after == before
    assert not (room.ws / ".git" / "hooks" / "pre-commit").exists()


async def test_in_model_only_no_address_answers_but_the_sockets_of_the_supervisor(room: Room) -> None:
    """Neither another loopback port, nor an abstract socket, nor another network; a socket that was handed in does."""
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as abstract:
        port = tcp.getsockname()[1]
        abstract.bind(f"\0leadrope-{os.getpid()}")
        abstract.listen()
        script = f"""
        (exec 3<>/dev/tcp/127.0.0.1/{port}) && echo ESCAPED
        (exec 3<>/dev/tcp/192.0.2.1/80) && echo ESCAPED
        socat -u OPEN:/dev/null ABSTRACT-CONNECT:leadrope-{os.getpid()} && echo ESCAPED
        ls /sys/class/net 2>/dev/null; tail -n +3 /proc/net/dev | grep -v lo: && echo ESCAPED
        curl -s --max-time 10 --unix-socket /run/leadrope/model.sock http://model/hello
        """
        async with answering(room.run / "model.sock", "the model") as path:
            done = await room.play(script, network="model-only", sockets=(Socket(outside=str(path)),))
    assert done.out == "the model", done


def landlock_version() -> int:
    return int(ctypes.CDLL(None).syscall(444, None, 0, 1))


@pytest.mark.skipif(landlock_version() < 6, reason="the kernel cannot scope abstract sockets")
async def test_abstract_sockets_of_the_machine_are_out_of_reach_also_on_its_network(room: Room, marker: str) -> None:
    with socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0leadrope-{os.getpid()}")
        abstract.listen()
        script = f"""
        socat -u OPEN:/dev/null ABSTRACT-CONNECT:leadrope-{os.getpid()} && echo ESCAPED
        socat -u ABSTRACT-LISTEN:{marker} OPEN:/dev/null & n=0
        until socat -u OPEN:/dev/null ABSTRACT-CONNECT:{marker} 2>/dev/null; do [ $((n++)) -lt 200 ] || exit 1; done
        echo fine
        """
        done = await room.play(script)
    assert done.out == "fine", done


async def test_an_allowed_host_is_reached_through_a_forwarded_port(room: Room) -> None:
    """The forwarder belongs to the box: it is no leftover, and ends with it."""
    async with answering(room.run / "proxy.sock", "the proxy") as path:
        done = await room.play(
            "curl -s --max-time 10 -x http://127.0.0.1:8898 http://allowed.example/; (exec 3<>/dev/tcp/127.0.0.1/8897)",
            network="model-only",
            sockets=(Socket(outside=str(path), inside=PROXY_SOCKET),),
            forwards=(Forward(port=8898),),
        )
    assert done.out == "the proxy", done
    assert "Connection refused" in done.err
    assert done.ending.leftovers_killed == 0


@asynccontextmanager
async def answering(path: Path, text: str) -> AsyncIterator[Path]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n{text}".encode())
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_unix_server(answer, path)
    async with server:
        yield path


async def test_masked_programs_do_not_start_under_any_name(room: Room) -> None:
    """A link, a hard link, a copy with the same name, the loader, a copy made inside: each is the same program."""
    tools, more = room.home / "tools" / "bin", room.home / "more" / "bin"
    for folder in (tools, more):
        folder.mkdir(parents=True)
        shutil.copy("/bin/true", folder / "evil")
    os.link(tools / "evil", tools / "innocent")
    (tools / "link").symlink_to("evil")
    path = f"{tools}:{more}:{SYSTEM_PATH}"
    script = f"""
    for e in evil innocent link {more}/evil {tools}/evil; do $e && echo STARTED; done
    /lib64/ld-linux-x86-64.so.2 {tools}/evil && echo STARTED
    cp {tools}/evil ./copy && chmod +x ./copy && [ -s ./copy ] && ./copy && echo STARTED
    mv {tools}/evil {tools}/e2; rm {tools}/evil && echo STARTED
    true && echo fine
    """
    done = await room.play(script, path=path, masked=("evil",))
    assert done.out == "fine", done
    assert "Permission denied" in done.err
    assert (await room.play("evil && innocent && link && echo fine", path=path)).out == "fine"


async def test_secrets_stay_hidden_when_the_home_itself_is_the_workspace(room: Room) -> None:
    uid = room.ws.stat().st_uid
    room.give(room.home, uid)
    script = "cat .ssh/id_rsa .netrc; ls -A .ssh; cat diary; echo x > new && echo made"
    done = await room.play(script, workspace=str(room.home))
    assert done.out == "PRIVATEmade", done
    assert (room.home / "new").exists()


async def test_read_only_writes_nothing_but_its_own_folders(room: Room) -> None:
    script = "echo x > new || echo no; echo x > $TMPDIR/t && echo x > /tmp/t && echo yes; touch {config}/c && echo kept"
    done = await room.play(script.format(config=room.config), level="read-only")
    assert done.out.split() == ["no", "yes", "kept"], done
    assert not (room.ws / "new").exists()
    assert (room.config / "c").exists()


async def test_limits_hold(room: Room) -> None:
    limits = Limits(processes=300, open_files=100, file_size=1 << 20)
    done = await room.play(
        "ulimit -Hn; ulimit -Hc; ulimit -Hu; head -c 9999999 /dev/zero > big; echo $?", limits=limits
    )
    files, core, processes, code = done.out.split()
    assert (files, core) == ("100", "0")
    assert 300 <= int(processes) < 5000
    assert int(code) == 128 + signal.SIGXFSZ
    assert (room.ws / "big").stat().st_size == 1 << 20


@pytest.mark.skipif(not ROOT, reason="only root can become another user")
async def test_root_becomes_the_owner_of_the_workspace(tmp_path: Path) -> None:
    room = Room(tmp_path, NOBODY)
    done = await room.play(f"id -u; echo x > made; touch {room.config}/kept $TMPDIR/t ~/x")
    assert done.out == str(NOBODY), done
    assert (room.ws / "made").stat().st_uid == (room.run / "tmp").stat().st_uid == NOBODY
    assert room.run.stat().st_uid == 0, "a sweep looks for leadrope's own folders"
    # The next run of the same session has a workspace of root's: its folder is handed back.
    room.give(room.ws, 0)
    done = await room.play(f"id -u; echo y >> {room.config}/kept && cat {room.config}/kept")
    assert done.out.split() == ["0", "y"], done


# -- what must go on ---------------------------------------------------------------------------------------------------

WORK = {
    "git": "git init -q && echo x > f && git add f && git commit -qm one && git log --format=%an",
    "python": "python3 -c 'import ssl, sqlite3, tempfile; tempfile.TemporaryFile(); print(1+1)' | sed s/2/A/",
    "pipes and search": "mkdir d && echo A > d/f && grep -r A d | cut -d: -f2",
    "temporary files": "f=$(mktemp) && echo A > $f && cp $f /tmp/g && cp /tmp/g /var/tmp/h && cat /var/tmp/h",
    "caches in the home": "mkdir -p ~/.cache/x ~/.config/y && echo A > ~/.cache/x/f && cat ~/.cache/x/f",
    "shared memory": "echo A > /dev/shm/f && cat /dev/shm/f",
    "a terminal of its own": "python3 -c 'import pty, os; os.openpty(); print(\"A\")'",
    "names": "getent hosts localhost >/dev/null && id -un >/dev/null && echo A",
    "node": "if command -v node >/dev/null; then node -e 'console.log(\"A\")'; else echo A; fi",
}


@pytest.mark.parametrize("work", WORK)
async def test_work_goes_on(room: Room, work: str) -> None:
    done = await room.play(WORK[work])
    assert (done.out, done.code) == ("A", 0), done


async def test_pytest_runs_with_a_python_below_a_hidden_home(room: Room) -> None:
    """The interpreter of this very test: a venv, whose python may lie in a home that the box does not show."""
    (room.ws / "test_one.py").write_text("def test_one(): assert True\n")
    path = f"{Path(sys.executable).parent}:{SYSTEM_PATH}"
    done = await room.play("python -m pytest -q -p no:cacheprovider | tail -1", path=path)
    assert "1 passed" in done.out, done


async def test_a_toolchain_below_the_home_is_there_and_read_only(room: Room) -> None:
    tool = room.home / "sdk" / "bin" / "hello"
    (room.home / "sdk" / "lib").mkdir(parents=True)
    tool.parent.mkdir()
    (room.home / "sdk" / "lib" / "text").write_text("hello")
    tool.write_text(f"#!/bin/sh\nexec cat {room.home}/sdk/lib/text\n")
    tool.chmod(0o755)
    done = await room.play(f"hello; echo x >> {tool} || echo no; ls -A ~", path=f"{tool.parent}:{SYSTEM_PATH}")
    assert done.out.replace("hello", "").split() == ["no", ".gitconfig", "sdk"], done


async def test_git_works_in_a_worktree_but_its_repository_keeps_its_hooks(room: Room) -> None:
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@b", "-c", "safe.directory=*"]
    main = room.folder / "main"
    for command in (["init", "-q", str(main)], ["-C", str(main), "commit", "-q", "--allow-empty", "-m", "zero"]):
        await asyncio.to_thread(subprocess.run, [*git, *command], check=True)
    owner = room.ws.stat().st_uid
    room.ws.rmdir()
    command = ["-C", str(main), "worktree", "add", "-q", str(room.ws)]
    await asyncio.to_thread(subprocess.run, [*git, *command], check=True)
    (main / ".git" / "hooks").mkdir(exist_ok=True)
    for folder in (main, room.ws) if owner != os.geteuid() else ():
        room.give(folder, owner)
    script = f"""
    echo x > f && git add f && git commit -qm one && git log --format=%s | head -1
    echo x > {main}/.git/hooks/post-commit || echo no
    git config core.fsmonitor /bin/evil || echo no
    ls -A {main}
    """
    done = await room.play(script)
    assert done.out.split() == ["one", "no", "no", ".git"], done


async def git_of(room: Room, *commands: Sequence[str]) -> None:
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@b", "-c", "safe.directory=*"]
    for command in commands:
        await asyncio.to_thread(
            subprocess.run, [*git, "-c", "protocol.file.allow=always", *command], check=True, capture_output=True
        )


GIT_PLANTS = {
    "a hook": "echo x > {git}/hooks/post-commit",
    "another folder of hooks": "mv {git}/hooks {git}/h",
    "a setting": "git config core.fsmonitor /bin/evil",
    "a setting by hand": "echo x >> {git}/config",
    "another file of settings": "echo x > {git}/new && mv {git}/new {git}/config",
    "a worktree's setting": "git config --worktree core.fsmonitor /bin/evil",
    "a setting of the main worktree": "echo x >> {git}/config.worktree",
    "a setting of another worktree": "echo x >> {git}/worktrees/other/config.worktree",
    "another worktree's repository": "echo /x > {git}/worktrees/other/commondir",
    "another folder of worktrees": "mv {git}/worktrees {git}/w",
    "another folder of a worktree": "mv {git}/worktrees/other {git}/worktrees/o",
    "a module's setting": "echo x >> {git}/modules/libs/mod/config",
    "a module's hook": "echo x > {git}/modules/libs/mod/hooks/post-commit",
    "a nested module's hook": "echo x > {git}/modules/libs/mod/modules/inner/hooks/post-commit",
    "a nested module's setting": "echo x >> {git}/modules/libs/mod/modules/inner/config",
    "another folder of modules": "mv {git}/modules {git}/m",
    "another module": "mv {git}/modules/libs/mod {git}/modules/libs/m",
    "another folder for the module": "mv {git}/modules/libs {git}/modules/l",
    "another git folder": "mv .git .g",
}


@pytest.mark.parametrize("is_worktree", [True, False], ids=["worktree", "plain"])
async def test_what_git_runs_later_cannot_be_planted(room: Room, is_worktree: bool) -> None:
    """All of it in one box; a commit still works there."""
    main = room.folder / "main" if is_worktree else room.ws
    inner, mod, other = (room.folder / name for name in ("inner", "mod", "other"))
    owner = room.ws.stat().st_uid
    empty = ("commit", "-q", "--allow-empty", "-m", "zero")
    await git_of(
        room,
        *(command for path in (inner, mod, main) for command in (("init", "-q", str(path)), ("-C", str(path), *empty))),
        ("-C", str(mod), "submodule", "--quiet", "add", str(inner), "inner"),
        ("-C", str(mod), "commit", "-qm", "one"),
        ("-C", str(main), "submodule", "--quiet", "add", str(mod), "libs/mod"),
        ("-C", str(main), "submodule", "--quiet", "update", "--init", "--recursive"),
        ("-C", str(main), "commit", "-qm", "one"),
        ("-C", str(main), "config", "extensions.worktreeConfig", "true"),
        ("-C", str(main), "worktree", "add", "-q", str(other)),
    )
    if is_worktree:
        room.ws.rmdir()
        await git_of(room, ("-C", str(main), "worktree", "add", "-q", str(room.ws)))
    shutil.rmtree(main / ".git" / "hooks")
    assert not (main / ".git" / "config.worktree").exists()
    for folder in (main, room.ws) if owner != os.geteuid() else ():
        room.give(folder, owner)
    git = str(main / ".git")
    script = "echo x > f && git add f && git commit -qm two && git switch -qc topic && git log --format=%s | head -1\n"
    script += "\n".join(f"( {plant.format(git=git)} ) && echo 'PLANTED {name}'" for name, plant in GIT_PLANTS.items())
    plantable = sandbox_trial.prepare(room.spec()).sight.plantable
    done = await room.play(f"{script}\n echo {room.ws} > {git}/commondir")
    assert done.out == "two", done
    now = sandbox_trial.prepare(room.spec()).sight.plantable
    assert f"{git}/commondir" not in now, "what was there before is not taken away"
    assert list(sandbox_git.disarm(plantable)) == [f"{git}/commondir"]
    await git_of(room, ("-C", str(room.ws), "status"), ("-C", str(main), "status"), ("-C", str(other), "status"))
    assert not list((main / ".git" / "hooks").iterdir())
    assert (main / ".git" / "config.worktree").read_text() == ""
    for made in (main / ".git" / "hooks", main / ".git" / "config.worktree"):
        assert made.stat().st_uid == owner


async def test_a_forged_git_file_opens_nothing(room: Room) -> None:
    for text in (f"gitdir: {room.elsewhere}", f"gitdir: {room.ws}/worktrees/x"):
        fake = room.ws / "worktrees" / "x"
        fake.mkdir(parents=True, exist_ok=True)
        (fake / "gitdir").write_text(f"{room.ws}/.git")
        (fake / "commondir").write_text(str(room.elsewhere))
        (room.ws / ".git").write_text(text)
        done = await room.play(f"ls {room.elsewhere} && echo ESCAPED; echo over")
        assert done.out == "over", done


async def test_links_that_an_agent_planted_on_the_path_open_nothing(room: Room) -> None:
    """A run may put anything into a folder of its workspace that is on the PATH of the next one."""
    (room.ws / "bin").mkdir()
    (room.ws / "bin" / "x").symlink_to(room.elsewhere / "file")
    (room.ws / "bin2").symlink_to(room.elsewhere)
    path = f"{room.ws}/bin:{room.ws}/bin2:{SYSTEM_PATH}"
    done = await room.play(f"cat {room.elsewhere}/file; cat bin/x bin2/file; echo over", path=path)
    assert done.out == "over", done


async def test_the_agents_binary_in_its_workspace_cannot_be_changed(room: Room) -> None:
    binary = room.ws / "agent"
    shutil.copy("/bin/true", binary)
    done = await room.play(
        "echo x > agent && echo ESCAPED; rm -f agent && echo ESCAPED; ./agent && echo fine", binary=str(binary)
    )
    assert done.out == "fine", done


# -- its end -----------------------------------------------------------------------------------------------------------

SLEEP = 'bash -c "exec -a $1 sleep 1000"'


async def test_sigterm_reaches_the_agent_itself(room: Room) -> None:
    """The monitor of the box would turn it into a SIGKILL, and the init of its namespace ignores it."""
    child = await room.begin("trap 'echo saved > saved; exit 143' TERM; echo ready; while :; do sleep 0.05; done")
    assert (await child.read())[0] == b"ready"
    ending = await child.end(stop_s=20)
    assert ending == Ending(exit_code=143, leftovers_killed=0, survivors=0, rung="stopped")
    assert (room.ws / "saved").exists()


async def test_sigterm_alone_lets_the_agent_choose_its_end(room: Room) -> None:
    child = await room.begin("trap 'exit 5' TERM; echo ready; while :; do sleep 0.05; done")
    assert (await child.read())[0] == b"ready"
    child.terminate()
    assert await child.wait() == 5
    assert (await child.end()).rung == "stopped"


ENDINGS = {
    "exit 7": (7, "exited", 0),
    "kill -KILL $$": (137, "exited", 0),
    "kill -SEGV $$": (139, "exited", 0),
    f"setsid {SLEEP} & ( ( {SLEEP} & ) & ); env -i setsid {SLEEP} & sleep 0.2; exit 3": (3, "exited", 3),
}


@pytest.mark.parametrize("script", ENDINGS)
async def test_exit_codes_and_leftovers_are_told(room: Room, script: str, marker: str, survivors: Survivors) -> None:
    done = await room.play(script, marker)
    ending = done.ending
    assert (ending.exit_code, ending.rung, ending.leftovers_killed) == ENDINGS[script], done
    assert ending.survivors == 0
    assert survivors() == {}


async def test_an_agent_that_ends_at_once_is_told_from_a_box_that_failed(room: Room, fault_count: int) -> None:
    for _ in range(fault_count):
        assert (await room.play("exit 9")).code == 9
    box = sandbox_trial.prepare(room.spec())
    shutil.rmtree(room.config)
    with pytest.raises(errors.SpawnFailed, match=rf"could not be built.*{room.config}"):
        await start(["true"], env={"PATH": SYSTEM_PATH}, cwd=str(room.ws), spool_dir=str(room.folder), box=box.argv)
    with pytest.raises(errors.BadDirectory, match=f"{room.config} does not exist"):
        sandbox_trial.prepare(room.spec())


@pytest.mark.fault
async def test_what_ignores_sigterm_is_killed_with_everything_below(
    room: Room, marker: str, survivors: Survivors, fault_count: int
) -> None:
    for _ in range(fault_count):
        child = await room.begin(f"trap '' TERM; setsid {SLEEP} & echo ready; while :; do sleep 0.05; done", marker)
        assert (await child.read())[0] == b"ready"
        ending = await child.end(stop_s=0.2)
        assert (ending.exit_code, ending.rung, ending.survivors) == (-9, "killed", 0)
        assert survivors() == {}


async def test_processes_that_fork_without_pause_end_with_the_namespace(
    room: Room, marker: str, survivors: Survivors
) -> None:
    (room.ws / "comet.py").write_text(
        "import os\nos.setsid()\nprint('ready', flush=True)\nwhile True:\n    if os.fork():\n        os._exit(0)\n"
    )
    child = await room.begin(f"python3 -I -S comet.py {marker} & sleep 1000")
    assert (await child.read())[0] == b"ready"
    began = time.monotonic()
    assert (await child.end(stop_s=0.2)).survivors == 0
    assert time.monotonic() - began < 5
    assert survivors() == {}


SUPERVISOR = """
import asyncio, sys
import msgspec
from leadrope.process import sandbox_trial
from leadrope.process.child import start
from leadrope.process.sandbox_values import Sandbox

async def main():
    spec = msgspec.json.decode(sys.argv[1], type=Sandbox)
    box = sandbox_trial.prepare(spec)
    child = await start(["/bin/bash", "-c", sys.argv[2], "child", sys.argv[3]], env={"PATH": spec.path, **box.env},
        cwd=spec.workspace, spool_dir=spec.run_dir, box=box.argv)
    await child.read()
    print("ready", flush=True)
    await child.wait()

asyncio.run(main())
"""


@pytest.mark.fault
async def test_kill_9_of_the_supervisor_leaves_nothing_in_the_box(
    room: Room, marker: str, survivors: Survivors, until: Until, fault_count: int
) -> None:
    tree = f"trap '' TERM; setsid {SLEEP} & ( ( {SLEEP} & ) & ); ( env -i setsid {SLEEP} & ); echo ready; wait"
    for _ in range(fault_count):
        command = [sys.executable, "-c", SUPERVISOR, msgspec.json.encode(room.spec()).decode(), tree, marker]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as supervisor:  # noqa: ASYNC220
            assert supervisor.stdout is not None
            assert await asyncio.to_thread(supervisor.stdout.readline) == b"ready\n"
            assert len(survivors()) > 3
            supervisor.kill()
        await until(lambda: survivors() == {})


async def test_kill_9_of_the_guardian_leaves_nothing_in_the_box(
    room: Room, marker: str, survivors: Survivors, until: Until
) -> None:
    child = await room.begin(f"setsid {SLEEP} & ( env -i setsid {SLEEP} & ); echo ready; wait", marker)
    assert (await child.read())[0] == b"ready"
    guardian = child._hold._process.pid  # type: ignore[union-attr]
    os.kill(guardian, signal.SIGKILL)
    assert await child.wait() == -signal.SIGKILL
    assert (await child.end()).survivors == 0
    await until(lambda: survivors() == {})


async def test_a_start_that_is_cancelled_leaves_no_box(room: Room, marker: str, survivors: Survivors) -> None:
    for wait_s in (0, 0, 0.01, 0.015, 0.02, 0.025, 0.03, 0.05):  # the cancel falls on every step of the start
        task = asyncio.ensure_future(room.begin("sleep 1000", marker))
        await asyncio.sleep(wait_s)
        task.cancel()
        try:
            child = await task
        except asyncio.CancelledError:
            pass
        else:  # it was there already
            await child.end(stop_s=0)
        assert survivors() == {}


# -- whether there is one ----------------------------------------------------------------------------------------------


async def test_available_has_really_tried() -> None:
    found = await sandbox_trial.available()
    assert found.ok, found
    assert found.model_only
    assert found.drops_root == ROOT
    assert found.nested == (not ROOT)
    assert found is await sandbox_trial.available()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can enter; pytest's own is closed to others."""
    with tempfile.TemporaryDirectory(prefix="leadrope-test-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


# All of the file again in one test: on a busy machine that is more than one test's time.
@pytest.mark.timeout(600)
@pytest.mark.skipif(not ROOT, reason="is what runs already")
def test_the_same_holds_for_an_unprivileged_user(open_folder: Path, shown_to_all: Callable[..., list[str]]) -> None:
    """Once more, all of it, in a mount namespace where that user can reach this Python."""
    os.chown(open_folder, NOBODY, NOBODY)
    python = Path(sys.executable)
    prefix = Path(os.path.realpath(python)).parents[1]
    show = shown_to_all(prefix, REPOSITORY)
    command = [
        *("bwrap", "--dev-bind", "/", "/", *show, "--chdir", str(REPOSITORY), "--"),
        *("setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", "--inh-caps=-all", "--"),
        *(str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=short"),
        *(f"--basetemp={open_folder}/pytest", __file__),
    ]
    env = {"PATH": SYSTEM_PATH, "HOME": str(open_folder), "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(open_folder)}
    done = subprocess.run(command, env=env, check=False, capture_output=True, text=True, timeout=570)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


async def test_a_box_that_worked_is_remembered_until_something_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each start of the program would pay for a trial of its own; a memory that fits another machine is not used."""
    monkeypatch.setattr(sandbox_trial, "_known", None)
    monkeypatch.setattr(sandbox_trial, "_box", None)
    assert (await sandbox_trial.available(whole=False, memory=tmp_path)).ok
    memory = tmp_path / sandbox_trial.MEMORY
    known = memory.read_text()
    with monkeypatch.context() as nowhere:
        nowhere.setattr(tempfile, "tempdir", "/no/such/folder")  # no trial could be made
        nowhere.setattr(sandbox_trial, "_box", None)
        assert (await sandbox_trial.available(whole=False, memory=tmp_path)).ok
    memory.write_text("another machine")
    monkeypatch.setattr(sandbox_trial, "_box", None)
    assert (await sandbox_trial.available(whole=False, memory=tmp_path)).ok
    assert memory.read_text() == known
