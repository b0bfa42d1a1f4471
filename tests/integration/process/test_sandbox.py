"""Real processes in real boxes: what must not get out does not.

Each test runs as leadrope's own user; as root it runs again with a workspace of another user, and all files about
boxes once more as an unprivileged one.
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
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from leadrope.process.sandbox import availability
from leadrope.process.sandbox.values import PROXY_SOCKET, Forward, ProcessLimits, Socket

NOBODY = 65534
ROOT = os.geteuid() == 0
REPOSITORY = Path(__file__).parents[3]
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


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
async def test_nothing_gets_out(room: Any, escape: str, marker: str) -> None:
    (room.ws / ".git" / "hooks").mkdir(parents=True)
    uid = room.ws.stat().st_uid
    if uid != os.geteuid():
        room.give(room.ws, uid)
    before = room.others()
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
    assert room.others() == before
    assert not (room.ws / ".git" / "hooks" / "pre-commit").exists()


async def test_in_model_only_no_address_answers_but_the_sockets_of_the_supervisor(room: Any) -> None:
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
async def test_abstract_sockets_of_the_machine_are_out_of_reach_also_on_its_network(room: Any, marker: str) -> None:
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


async def test_an_allowed_host_is_reached_through_a_forwarded_port(room: Any) -> None:
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


async def test_masked_programs_do_not_start_under_any_name(room: Any) -> None:
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


async def test_secrets_stay_hidden_when_the_home_itself_is_the_workspace(room: Any) -> None:
    uid = room.ws.stat().st_uid
    room.give(room.home, uid)
    script = "cat .ssh/id_rsa .netrc; ls -A .ssh; cat diary; echo x > new && echo made"
    done = await room.play(script, workspace=str(room.home))
    assert done.out == "PRIVATEmade", done
    assert (room.home / "new").exists()


HIDDEN = {
    *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".npmrc", ".pypirc", ".pgpass", ".config/gh"),
    *(".git-credentials", ".config/git/credentials", ".config/gcloud", ".cargo/credentials.toml", ".gem/credentials"),
    *(".mozilla", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware", ".config/microsoft-edge"),
    *("snap/firefox", "snap/chromium", ".var/app", ".local/share/keyrings", ".bash_history", ".claude", ".claude.json"),
    *(".config/leadrope", ".local/share/leadrope"),
}
"""What people keep their keys in, named here once more: a name that gets lost in the list must be missed."""
HIDDEN_FILES = {".netrc", ".npmrc", ".pypirc", ".pgpass", ".git-credentials", ".bash_history", ".claude.json"}


async def test_each_place_of_keys_is_hidden_though_the_home_is_the_workspace(room: Any) -> None:
    for name in HIDDEN:
        path = room.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name in HIDDEN_FILES or "credentials" in name:
            path.write_text("PRIVATE")
        else:
            path.mkdir(exist_ok=True)
            (path / "key").write_text("PRIVATE")
    (room.home / ".config" / "other").write_text("seen")
    if room.ws.stat().st_uid != os.geteuid():
        room.give(room.home, room.ws.stat().st_uid)
    done = await room.play("grep -rl PRIVATE . ; cat .config/other", workspace=str(room.home))
    assert done.out.split() == ["./diary", "seen"], done


async def test_read_only_writes_nothing_but_its_own_folders(room: Any) -> None:
    script = "echo x > new || echo no; echo x > $TMPDIR/t && echo x > /tmp/t && echo yes; touch {config}/c && echo kept"
    done = await room.play(script.format(config=room.config), level="read-only")
    assert done.out.split() == ["no", "yes", "kept"], done
    assert not (room.ws / "new").exists()
    assert (room.config / "c").exists()


async def test_limits_hold(room: Any) -> None:
    limits = ProcessLimits(processes=300, open_files=100, file_size=1 << 20)
    done = await room.play(
        "ulimit -Hn; ulimit -Hc; ulimit -Hu; head -c 9999999 /dev/zero > big; echo $?", limits=limits
    )
    files, core, processes, code = done.out.split()
    assert (files, core) == ("100", "0")
    assert 300 <= int(processes) < 5000
    assert int(code) == 128 + signal.SIGXFSZ
    assert (room.ws / "big").stat().st_size == 1 << 20


async def test_a_file_has_16_gib_at_most_where_nothing_else_is_said(room: Any) -> None:
    done = await room.play("bash -c 'ulimit -Hf'")
    assert int(done.out) * 1024 == 16 << 30, done


@pytest.mark.skipif(not ROOT, reason="only root can become another user")
@pytest.mark.parametrize("room", ["another's"], indirect=True)
async def test_root_becomes_the_owner_of_the_workspace(room: Any) -> None:
    done = await room.play(f"id -u; echo x > made; touch {room.config}/kept $TMPDIR/t ~/x")
    assert done.out == str(NOBODY), done
    assert (room.ws / "made").stat().st_uid == (room.run / "tmp").stat().st_uid == NOBODY
    assert room.run.stat().st_uid == 0, "a sweep looks for leadrope's own folders"
    # The next run of the same session has a workspace of root's: its folder is handed back.
    room.give(room.ws, 0)
    done = await room.play(f"id -u; echo y >> {room.config}/kept && cat {room.config}/kept")
    assert done.out.split() == ["0", "y"], done


async def test_links_that_an_agent_planted_on_the_path_open_nothing(room: Any) -> None:
    """A run may put anything into a folder of its workspace that is on the PATH of the next one."""
    (room.ws / "bin").mkdir()
    (room.ws / "bin" / "x").symlink_to(room.elsewhere / "file")
    (room.ws / "bin2").symlink_to(room.elsewhere)
    path = f"{room.ws}/bin:{room.ws}/bin2:{SYSTEM_PATH}"
    done = await room.play(f"cat {room.elsewhere}/file; cat bin/x bin2/file; echo over", path=path)
    assert done.out == "over", done


async def test_the_agents_binary_in_its_workspace_cannot_be_changed(room: Any) -> None:
    binary = room.ws / "agent"
    shutil.copy("/bin/true", binary)
    done = await room.play(
        "echo x > agent && echo ESCAPED; rm -f agent && echo ESCAPED; ./agent && echo fine", binary=str(binary)
    )
    assert done.out == "fine", done


async def test_what_is_kept_stays_as_it_is_inside_of_a_writable_workspace(room: Any) -> None:
    """A file, a folder, and those above them: moved away, they would make room for others."""
    for name in ("settings/one", "tools/deep/hook", "tools/other"):
        (room.ws / name).parent.mkdir(parents=True, exist_ok=True)
        (room.ws / name).write_text("kept")
    if room.ws.stat().st_uid != os.geteuid():
        room.give(room.ws, room.ws.stat().st_uid)
    script = """
    echo x > settings/one && echo CHANGED; echo x > settings/two && echo CHANGED; mv settings s && echo CHANGED
    echo x > tools/deep/hook && echo CHANGED; rm -f tools/deep/hook && echo CHANGED
    mv tools/deep tools/d && echo CHANGED; mv tools t && echo CHANGED
    echo y > tools/other && echo y > tools/deep/new && cat tools/deep/hook settings/one
    """
    kept = (str(room.ws / "settings"), str(room.ws / "tools/deep/hook"))
    done = await room.play(script, kept=kept)
    assert done.out == "keptkept", done
    assert (room.ws / "tools/other").read_text() == "y\n"


# -- whether there is one ----------------------------------------------------------------------------------------------


async def test_available_has_really_tried() -> None:
    found = await availability.try_sandbox()
    assert found.ok, found
    assert found.model_only
    assert found.settings
    assert found.caches
    assert found.drops_root == ROOT
    assert found.nested == (not ROOT)
    assert found is await availability.try_sandbox()


TRY = "import asyncio, leadrope; print(asyncio.run(leadrope.try_sandbox()).say())"


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
@pytest.mark.parametrize(
    ("does", "told"),
    [
        ("echo 'No permissions to create a new namespace' >&2; exit 1", "No permissions to create a new namespace"),
        ("exit 0", "bubblewrap said nothing"),
    ],
    ids=["forbidden", "does nothing"],
)
def test_a_bubblewrap_that_is_installed_and_does_not_work_is_not_available(
    tmp_path: Path, does: str, told: str
) -> None:
    """In a mount namespace where another program stands in its place."""
    fake = tmp_path / "bwrap"
    fake.write_text(f"#!/bin/sh\n{does}\n")
    fake.chmod(0o755)
    real = os.path.realpath(str(shutil.which("bwrap")))
    command = ["bwrap", "--dev-bind", "/", "/", "--ro-bind", str(fake), real, "--", sys.executable, "-c", TRY]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("not available: "), done
    assert told in done.stdout


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can enter; pytest's own is closed to others."""
    with tempfile.TemporaryDirectory(prefix="leadrope-test-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


# All of these files again in one test: on a busy machine that is more than one test's time.
@pytest.mark.timeout(600)
@pytest.mark.skipif(not ROOT, reason="is what runs already")
def test_the_same_holds_for_an_unprivileged_user(open_folder: Path, shown_to_all: Callable[..., list[str]]) -> None:
    """Once more, all of it, in a mount namespace where that user can reach this Python."""
    os.chown(open_folder, NOBODY, NOBODY)
    python = Path(sys.executable)
    prefix = Path(os.path.realpath(python)).parents[1]
    show = shown_to_all(prefix, REPOSITORY)
    files = [*Path(__file__).parent.glob("test_sandbox*.py"), REPOSITORY / "tests/unit/runtime/test_rundir.py"]
    command = [
        *("bwrap", "--dev-bind", "/", "/", *show, "--chdir", str(REPOSITORY), "--"),
        *("setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", "--inh-caps=-all", "--"),
        *(str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=short"),
        *(f"--basetemp={open_folder}/pytest", *map(str, files)),
    ]
    env = {"PATH": SYSTEM_PATH, "HOME": str(open_folder), "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(open_folder)}
    done = subprocess.run(command, env=env, check=False, capture_output=True, text=True, timeout=570)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


async def test_a_box_that_worked_is_remembered_until_something_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each start of the program would pay for a trial of its own; a memory that fits another machine is not used."""
    monkeypatch.setattr(availability, "_known", None)
    monkeypatch.setattr(availability, "_box", None)
    assert (await availability.try_sandbox(whole=False, memory=tmp_path)).ok
    memory = tmp_path / availability.MEMORY
    known = memory.read_text()
    with monkeypatch.context() as nowhere:
        nowhere.setattr(tempfile, "tempdir", "/no/such/folder")  # no trial could be made
        nowhere.setattr(availability, "_box", None)
        assert (await availability.try_sandbox(whole=False, memory=tmp_path)).ok
    memory.write_text("another machine")
    monkeypatch.setattr(availability, "_box", None)
    assert (await availability.try_sandbox(whole=False, memory=tmp_path)).ok
    assert memory.read_text() == known
