"""The plan of a box as a value: what is mounted, in which order, and what is refused; nothing is started."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from leadrope import errors
from leadrope.process.guardian import FURNITURE
from leadrope.process.sandbox import git_folders, programs
from leadrope.process.sandbox.command_line import plan, variables
from leadrope.process.sandbox.toolchains import toolchains
from leadrope.process.sandbox.values import Forward, Machine, MachinePath, ProcessLimits, Sandbox, SandboxUser, Socket

HOME = "/home/u"
SPEC = Sandbox(
    workspace=f"{HOME}/project",
    run_dir="/tmp/leadrope-run-1",
    config_dir=f"{HOME}/.local/share/leadrope/sessions/1/config",
    home=HOME,
    hidden=(f"{HOME}/.local/share/leadrope",),
    binary=f"{HOME}/.local/bin/claude",
)
MACHINE = Machine(
    links={"/bin": "usr/bin", "/lib64": "usr/lib64"},
    system=("/usr", "/etc"),
    agent=(MachinePath(name=SPEC.binary, real=f"{HOME}/.local/share/claude/claude", is_dir=False),),
)
ROOT = msgspec.structs.replace(MACHINE, user=SandboxUser(uid=0, gid=0), proc_read_only=("/proc/sys",))


def made(machine: Machine = MACHINE, **fields: Any) -> list[tuple[str, ...]]:
    """The mounts as (option, ..., destination), in their order."""
    words = plan(msgspec.structs.replace(SPEC, **fields), machine)
    mounts: list[tuple[str, ...]] = []
    for index, word in enumerate(words[: words.index("--")]):
        if word in ("--bind", "--ro-bind", "--symlink"):
            mounts.append((word, *words[index + 1 : index + 3]))
        elif word in ("--tmpfs", "--proc", "--dev", "--dir"):
            mounts.append((word, words[index + 1]))
    return mounts


def last(mounts: list[tuple[str, ...]], path: str) -> tuple[str, ...]:
    """What decides about a path: the last mount at or above it. A folder to pass through decides nothing."""
    mounts = [mount for mount in mounts if mount[0] != "--dir"]
    return [mount for mount in mounts if path == mount[-1] or path.startswith(mount[-1].rstrip("/") + "/")][-1]


def with_(**facts: Any) -> Machine:
    return msgspec.structs.replace(MACHINE, **facts)


def test_off_is_no_box_at_all() -> None:
    spec = msgspec.structs.replace(SPEC, level="off")
    assert plan(spec, MACHINE) == ()
    assert variables(spec) == {}


def test_each_place_has_its_last_word() -> None:
    mounts = made()
    assert last(mounts, f"{HOME}/project/src")[0] == "--bind"
    assert last(mounts, f"{SPEC.config_dir}/x")[0] == "--bind"
    assert last(mounts, "/tmp/leadrope-run-1/tmp")[0] == "--bind"
    assert last(mounts, "/usr/bin/git")[0] == "--ro-bind"
    assert last(mounts, f"{HOME}/.ssh/id_rsa") == ("--tmpfs", HOME)
    assert last(mounts, f"{HOME}/.local/share/leadrope/leadrope.db") == ("--tmpfs", HOME)
    assert last(mounts, "/run/docker.sock") == ("--tmpfs", "/run")
    assert last(mounts, "/tmp/other") == ("--tmpfs", "/tmp")
    assert not any(mount[-1] in ("/", "/sys", "/srv", "/mnt") for mount in mounts)


def test_the_binary_is_there_under_both_of_its_names() -> None:
    mounts = made()
    real = f"{HOME}/.local/share/claude/claude"
    assert ("--ro-bind", real, real) in mounts
    assert ("--ro-bind", real, SPEC.binary) in mounts


def test_read_only_leaves_only_the_runs_own_folders_writable() -> None:
    machine = with_(git=("/repo/.git",))
    mounts = made(machine, level="read-only", writable=("/data/more",))
    assert [mount[-1] for mount in mounts if mount[0] == "--bind"] == [SPEC.run_dir, SPEC.config_dir]


def test_nothing_is_mounted_below_what_a_later_mount_covers() -> None:
    mounts = made(with_(toolchains=(MachinePath(name=f"{HOME}/go", real=f"{HOME}/go"),)), workspace=f"{HOME}/go/src/x")
    destinations = [mount[-1] for mount in mounts]
    for index, path in enumerate(destinations):
        assert not any(inner.startswith(f"{path}/") for inner in destinations[:index]), path


def test_secrets_are_covered_where_the_home_is_the_workspace_and_the_own_folders_come_after() -> None:
    secrets = (
        MachinePath(name=f"{HOME}/.ssh", real=f"{HOME}/.ssh"),
        MachinePath(name=f"{HOME}/.netrc", real=f"{HOME}/.netrc", is_dir=False),
        MachinePath(name=SPEC.hidden[0], real=SPEC.hidden[0]),
    )
    mounts = made(with_(secrets=secrets), workspace=HOME)
    assert last(mounts, f"{HOME}/notes")[0] == "--bind"
    assert last(mounts, f"{HOME}/.ssh/id_rsa") == ("--tmpfs", f"{HOME}/.ssh")
    assert last(mounts, f"{HOME}/.netrc") == ("--ro-bind", "/dev/null", f"{HOME}/.netrc")
    assert last(mounts, f"{SPEC.hidden[0]}/leadrope.db") == ("--tmpfs", SPEC.hidden[0])
    assert last(mounts, f"{SPEC.config_dir}/x")[0] == "--bind"
    # Where nothing shows them they need no cover, and a mount point would have to be made.
    assert ("--tmpfs", f"{HOME}/.ssh") not in made(with_(secrets=secrets))


def test_hooks_the_own_python_and_the_binary_are_read_only_inside_a_writable_workspace() -> None:
    hooks, venv, agent = (f"{SPEC.workspace}/{name}" for name in (".git/hooks", ".venv", ".venv/bin/claude"))
    machine = with_(protected=(hooks, venv, "/usr"), agent=(MachinePath(name=agent, real=agent, is_dir=False),))
    mounts = made(machine, binary=agent)
    for path in (hooks, venv, agent):
        assert last(mounts, path)[0] == "--ro-bind"
    assert mounts.count(("--ro-bind", "/usr", "/usr")) == 1


def test_a_hooks_folder_that_is_a_link_opens_nothing() -> None:
    hooks = f"{SPEC.workspace}/.git/hooks"
    mounts = made(with_(protected=(hooks,), places={hooks: MachinePath(name=hooks, real="/root/private")}))
    assert not any("/root/private" in mount for mount in mounts)


def test_a_home_that_does_not_exist_is_not_made_on_the_host() -> None:
    assert ("--tmpfs", "/data/w/home") not in made(workspace="/data/w", home="/data/w/home")
    places = {"/data/w/home": MachinePath(name="/data/w/home", real="/data/w/home")}
    assert ("--tmpfs", "/data/w/home") in made(with_(places=places), workspace="/data/w", home="/data/w/home")


@pytest.mark.parametrize("machine", [MACHINE, ROOT, msgspec.structs.replace(MACHINE, drops_root=True)])
def test_no_capability_and_no_life_without_its_parent(machine: Machine) -> None:
    words = plan(SPEC, machine)
    assert words[words.index("--cap-drop") + 1] == "ALL"
    assert {"--die-with-parent", "--unshare-pid", "--unshare-ipc"} <= set(words)
    assert words[words.index("--remount-ro") + 1] == "/"
    assert "--unshare-net" not in words
    assert "--unshare-net" in plan(msgspec.structs.replace(SPEC, network="model-only"), machine)


def test_root_has_no_user_namespaces_and_a_read_only_proc_sys() -> None:
    words = plan(SPEC, ROOT)
    assert "--disable-userns" in words
    mounts = made(ROOT)
    assert mounts.index(("--proc", "/proc")) < mounts.index(("--ro-bind", "/proc/sys", "/proc/sys"))


def test_others_keep_a_proc_that_a_sandbox_inside_can_mount() -> None:
    assert not any(mount[-1].startswith("/proc/") for mount in made())
    assert "--disable-userns" not in plan(SPEC, MACHINE)


def test_root_becomes_the_owner_before_anything_else_runs() -> None:
    machine = with_(user=SandboxUser(uid=1001, gid=1002), drops_root=True, processes=40)
    words = plan(SPEC, machine)
    inside = words[words.index("--") + 1 :]
    assert inside[:5] == ("/usr/bin/setpriv", "--reuid", "1001", "--regid", "1002")
    assert {"--clear-groups", "--inh-caps=-all", "--bounding-set=-all"} <= set(inside)
    assert "--nproc=2088:2088" in inside
    assert "--unshare-user" not in words
    with pytest.raises(errors.SandboxUnavailable, match="setpriv"):
        plan(SPEC, msgspec.structs.replace(machine, setpriv=None))


def test_limits_are_never_above_what_the_machine_allows() -> None:
    spec = msgspec.structs.replace(SPEC, limits=ProcessLimits(processes=0, open_files=4096, file_size=7))
    inside = plan(spec, with_(most_open_files=1024))
    assert "--nofile=1024:1024" in inside
    assert "--fsize=7:7" in inside
    assert not any(word.startswith("--nproc") for word in inside)


def test_forwarders_are_named_so_that_the_guardian_knows_them() -> None:
    sockets = (Socket(outside="/tmp/p.sock", inside="/run/leadrope/proxy.sock"),)
    words = plan(msgspec.structs.replace(SPEC, sockets=sockets, forwards=(Forward(port=8899),)), MACHINE)
    script = words[words.index("-c") + 1]
    assert FURNITURE.decode() in script
    assert "0100007F:22C30A" in script
    assert script.endswith('exec "$@"')
    assert words[-1] == "leadrope-box"


@pytest.mark.parametrize(
    ("fields", "facts", "message"),
    [
        ({"workspace": "/"}, {}, "its own /"),
        ({"workspace": "/tmp"}, {}, "its own /tmp"),
        ({"writable": ("/etc",)}, {}, "its own /etc"),
        ({"workspace": "/link"}, {"places": {"/link": MachinePath(name="/link", real="/usr")}}, "its own /usr"),
        (
            {"workspace": f"{HOME}/.ssh"},
            {"secrets": (MachinePath(name=f"{HOME}/.ssh", real=f"{HOME}/.ssh"),)},
            "hidden",
        ),
        (
            {"readable": (f"{HOME}/.ssh/x",)},
            {"secrets": (MachinePath(name=f"{HOME}/.ssh", real=f"{HOME}/.ssh"),)},
            "hidden",
        ),
        (
            {"workspace": SPEC.hidden[0]},
            {"secrets": (MachinePath(name=SPEC.hidden[0], real=SPEC.hidden[0]),)},
            "hidden",
        ),
        ({"sockets": (Socket(outside="/x", inside="/etc/x"),)}, {}, "plain name"),
        ({"forwards": (Forward(port=80),)}, {}, "not there"),
        ({"forwards": (Forward(port=80),)}, {"socat": None}, "socat is not installed"),
        ({"forwards": (Forward(port=80),)}, {"masks": ("/usr/bin/socat",)}, "socat cannot be blocked"),
    ],
)
def test_what_cannot_be_is_refused(fields: dict[str, Any], facts: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.LeadropeError, match=message):
        plan(msgspec.structs.replace(SPEC, **fields), with_(**facts))


def test_a_worktree_may_lie_in_leadropes_own_folder() -> None:
    own = SPEC.hidden[0]
    mounts = made(with_(secrets=(MachinePath(name=own, real=own),)), workspace=f"{own}/worktrees/7")
    assert last(mounts, f"{own}/worktrees/7/f")[0] == "--bind"
    assert last(mounts, f"{own}/leadrope.db") == ("--tmpfs", HOME)


# -- what is looked up on the disk ----------------------------------------------------------------------------------


def program(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def shown(path: str, home: Path, **options: Any) -> set[str]:
    return {place.name for place in toolchains(path, str(home), seen=("/usr", "/bin"), **options)}


def test_an_installation_is_shown_whole_and_a_folder_of_scripts_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    program(home / "sdk" / "bin" / "tool")
    (home / "sdk" / "lib").mkdir()
    program(home / "project" / "bin" / "script")
    program(home / "bin" / "mine")
    (home / "lib").mkdir()
    path = f"{home}/sdk/bin:{home}/project/bin:{home}/bin:/usr/bin:relative:{home}/missing"
    assert shown(path, home) == {f"{home}/sdk", f"{home}/project/bin", f"{home}/bin"}


def test_cargo_is_shown_without_its_credentials(tmp_path: Path) -> None:
    home = tmp_path / "home"
    program(home / ".cargo" / "bin" / "cargo")
    (home / ".cargo" / "credentials.toml").write_text("token")
    (home / ".rustup").mkdir()
    assert shown(f"{home}/.cargo/bin", home) == {f"{home}/.cargo/bin", f"{home}/.rustup"}


def test_links_are_followed_to_what_they_need(tmp_path: Path) -> None:
    """pipx, a venv of a pyenv Python, and a single file."""
    home = tmp_path / "home"
    python = program(home / ".pyenv" / "versions" / "3.11" / "bin" / "python3.11")
    (python.parents[1] / "lib" / "python3.11").mkdir(parents=True)
    program(home / ".local" / "share" / "tools" / "venv" / "bin" / "black")
    (home / ".local" / "share" / "tools" / "venv" / "pyvenv.cfg").touch()
    program(home / "notes" / "script.sh")
    local = home / ".local" / "bin"
    local.mkdir(parents=True)
    (local / "black").symlink_to(home / ".local/share/tools/venv/bin/black")
    (local / "script").symlink_to(home / "notes" / "script.sh")
    venv = tmp_path / "venv" / "bin"
    venv.mkdir(parents=True)
    (venv.parent / "pyvenv.cfg").touch()
    (venv / "python").symlink_to(python)
    assert shown(f"{local}:{venv}", home) == {
        str(local),
        f"{home}/.local/share/tools/venv",
        f"{home}/notes/script.sh",
        str(venv.parent),
        f"{home}/.pyenv/versions/3.11",
    }


def test_in_a_writable_folder_only_a_python_is_believed(tmp_path: Path) -> None:
    home, ws = tmp_path / "home", tmp_path / "ws"
    python = program(home / "py" / "bin" / "python3.11")
    (home / "py" / "lib" / "python3.11").mkdir(parents=True)
    program(home / "private" / "bin" / "x")
    (home / "private" / "lib").mkdir()
    (ws / "bin").mkdir(parents=True)
    (ws / "bin" / "python").symlink_to(python)
    (ws / "bin" / "x").symlink_to(home / "private" / "bin" / "x")
    (ws / "bin" / "key").symlink_to(program(home / "key"))
    (ws / "other").symlink_to(home / "private" / "bin")
    assert shown(f"{ws}/bin:{ws}/other", home, writable=(str(ws),)) == {f"{home}/py"}


def test_a_masked_program_is_found_by_every_name(tmp_path: Path) -> None:
    one, two = program(tmp_path / "a" / "evil"), program(tmp_path / "b" / "evil")
    os.link(one, tmp_path / "b" / "innocent")
    (tmp_path / "b" / "link").symlink_to(one)
    path = f"{tmp_path}/a:{tmp_path}/b"
    found = programs.files_of(("evil",), path)
    assert {str(one), str(two), str(tmp_path / "b" / "innocent")} == {
        file for file in found if not file.endswith(programs.MULTI_CALL)
    }
    assert str(two) in programs.files_of((str(two),), path)
    assert programs.files_of((), path) == ()
    with pytest.raises(programs.Cannot):
        programs.files_of(("sh",), path)


def git(*words: str) -> None:
    subprocess.run(["git", "-c", "user.name=A", "-c", "user.email=a@b", *words], check=True, capture_output=True)


def test_a_worktree_tells_its_repository_and_only_a_real_one(tmp_path: Path) -> None:
    main, tree = tmp_path / "main", tmp_path / "tree"
    git("init", "-q", str(main))
    git("-C", str(main), "commit", "-q", "--allow-empty", "-m", "zero")
    git("-C", str(main), "worktree", "add", "-q", str(tree))
    found = git_folders.outer_git_dir(str(tree), writable=[str(tree)])
    assert found == str(main / ".git")
    assert str(main / ".git" / "config") in git_folders.git_risks(found)
    assert git_folders.outer_git_dir(str(main), writable=[str(main)]) is None
    # What lies in a writable place needs no door of its own, and must not be believed.
    assert git_folders.outer_git_dir(str(tree), writable=[str(tree), str(main)]) is None
    (tree / ".git").write_text(f"gitdir: {tmp_path}")
    assert git_folders.outer_git_dir(str(tree), writable=[str(tree)]) is None


def test_a_folder_named_worktrees_gives_an_agent_no_way_to_its_parent(tmp_path: Path) -> None:
    """The workspace is X/worktrees/NAME and pretends to be its own git folder, whose repository would be X."""
    outer = tmp_path / "outer"
    tree = outer / "worktrees" / "name"
    tree.mkdir(parents=True)
    for name in ("objects", "refs"):
        (outer / name).mkdir()
    (outer / "HEAD").touch()
    (tree / ".git").write_text(f"gitdir: {tree}")
    (tree / "gitdir").write_text(f"{tree}/.git")
    assert git_folders.outer_git_dir(str(tree), writable=[str(tree)]) is None
