"""Builds the bubblewrap command line for one agent; pure: the facts about the machine are passed in.

The sandbox starts empty. The system is mounted read-only, the workspace and the run's own folders writable, and of the
user's home only what work needs. Everything not named here does not exist inside. `probe.look` gathers the facts,
`availability.prepare` does both, `availability.try_sandbox` tells whether sandboxes work on this machine.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from leadrope import errors
from leadrope.process import guardian
from leadrope.process.sandbox import git_config_mount
from leadrope.process.sandbox.mounts import (
    MIB,
    SMALL_SIZE,
    TMP_SIZE,
    hide,
    is_below,
    masks,
    mounts_of,
    placed,
    real,
    tmpfs,
)
from leadrope.process.sandbox.values import BASE, INSTALL_HINT, Forward, Machine, Sandbox
from leadrope.regex import regex

SHM_SIZE = 256 * MIB

_SOCKET = regex(r"/run/leadrope/[A-Za-z0-9._-]{1,64}")
_LISTENING = "0A"


def plan(spec: Sandbox, machine: Machine) -> tuple[str, ...]:
    """Returns the command line to put before the agent's own; empty for level `off`."""
    if spec.level == "off":
        return ()
    _refuse(spec, machine)
    mounts = mounts_of(spec, machine)
    return (
        *_views(machine),
        machine.bwrap,
        *_namespaces(spec, machine),
        *_system(machine),
        *_kernel(machine),
        *_emptiness(),
        *(["--ro-bind", machine.resolv, machine.resolv] if machine.resolv else []),
        *placed(mounts, machine),
        *("--perms", "0755", "--dir", "/run/leadrope"),
        *(word for socket in spec.sockets for word in ("--bind", socket.outside, socket.inside)),
        *masks(mounts, machine),
        *("--remount-ro", "/", "--chdir", real(spec.workspace, machine), "--"),
        *_inside(spec, machine),
    )


def variables(spec: Sandbox) -> dict[str, str]:
    """Returns what the sandbox adds to the agent's environment.

    Signing keys are hidden, so a user's `commit.gpgsign` would make every commit fail.
    """
    if spec.level == "off":
        return {}
    return {
        "GIT_CONFIG_COUNT": "2",
        "GIT_CONFIG_KEY_0": "commit.gpgsign",
        "GIT_CONFIG_VALUE_0": "false",
        "GIT_CONFIG_KEY_1": "tag.gpgsign",
        "GIT_CONFIG_VALUE_1": "false",
    }


def _refuse(spec: Sandbox, machine: Machine) -> None:
    opened = {real(path, machine) for path in spec.opened}
    given = {"cwd": (spec.workspace,), "extra_dirs": (*spec.writable, *spec.readable)}
    for field, paths in given.items():
        for path in paths:
            where = real(path, machine)
            if where in BASE:
                raise errors.BadValue(field, f"a sandbox has its own {where}", hint="Name a folder inside of it.")
            for secret in machine.secrets:
                # A workspace may lie in leadrope's home (which holds worktrees), but never in a user's folder of keys.
                is_own = secret.name in spec.hidden
                if where in opened and not is_own:
                    continue  # below a folder of keys
                if where == secret.real or (not is_own and is_below(where, secret.real)):
                    raise errors.BadValue(
                        field, f"{path} is always hidden from agents", hint="Copy what is needed into the workspace."
                    )
    _refuse_masks(spec, machine)
    for socket in spec.sockets:
        if not _SOCKET.fullmatch(socket.inside):
            raise errors.BadValue("sockets", f"{socket.inside} is not a plain name below /run/leadrope")
    if spec.forwards and machine.socat is None:
        raise errors.SandboxUnavailable(
            "socat is not installed, and the sandbox needs it for its network", hint=INSTALL_HINT
        )
    if spec.forwards and machine.socat in machine.masks:
        raise errors.BadValue(
            "masked", "socat cannot be blocked here: the sandbox reaches its network through it", hint="Allow socat."
        )
    known = {socket.inside for socket in spec.sockets}
    for forward in spec.forwards:
        if forward.socket not in known or not 0 < forward.port < 65536:
            raise errors.BadValue("forwards", f"port {forward.port} leads to {forward.socket}, which is not there")
    if machine.drops_root and machine.setpriv is None:
        raise errors.SandboxUnavailable(
            "setpriv is not installed, and root must become another user", hint=INSTALL_HINT
        )


def _refuse_masks(spec: Sandbox, machine: Machine) -> None:
    """Raises if the run itself needs what a policy blocks: no sandbox can provide both."""
    needed = (spec.workspace, spec.run_dir, spec.home, spec.binary, *([spec.config_dir] if spec.config_dir else []))
    places = [*(real(path, machine) for path in needed), *(place.real for place in machine.agent), *machine.system]
    for place in machine.blocked:
        if place.real in BASE or any(path == place.real or is_below(path, place.real) for path in places):
            raise errors.SandboxUnavailable(
                f"the sandbox cannot mask {place.real}, which the policy blocks: the run needs what lies there",
                hint="Name the blocked path more narrowly.",
            )


def _views(machine: Machine) -> Iterator[str]:
    """The words for the guardian, which carries them out before it starts bubblewrap."""
    layered = [cache for cache in machine.caches if cache.layer]
    if machine.views or layered:
        yield git_config_mount.__file__
        for view in machine.views:
            yield from ("link", view.link, view.path)
        for cache in layered:
            kind = "extra" if cache.is_extra else "shown"
            yield from ("layer", kind, cache.place.real, f"{cache.layer}/upper", f"{cache.layer}/work")
        yield "--"


# -- parts of the sandbox ----------------------------------------------------------------------------------------------


def _namespaces(spec: Sandbox, machine: Machine) -> Iterator[str]:
    yield from ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
    if spec.network == "model-only":
        yield "--unshare-net"
    if not machine.drops_root:
        yield "--unshare-user"
        if machine.user.uid == 0:
            # uid 0 owns the kernel's own files. In a user namespace of its own it could mount them again.
            yield "--disable-userns"
    # As root bubblewrap keeps every capability unless told otherwise: remount, umount and mknod would work inside.
    yield from ("--die-with-parent", "--hostname", "leadrope", "--cap-drop", "ALL")
    if machine.drops_root:
        # For setpriv alone, which is the first thing to run inside, and drops them.
        yield from ("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_SETPCAP")


def _system(machine: Machine) -> Iterator[str]:
    for path in machine.system:
        yield from ("--ro-bind", path, path)
    for path, target in machine.links.items():
        yield from ("--symlink", target, path)
    for place in machine.etc_hidden:
        yield from hide(place.real, is_dir=place.is_dir)


def _kernel(machine: Machine) -> Iterator[str]:
    yield from ("--proc", "/proc")
    for path in machine.proc_read_only:
        yield from ("--ro-bind", path, path)
    for place in machine.proc_hidden:
        yield from hide(place.real, is_dir=place.is_dir)
    yield from ("--dev", "/dev")
    yield from tmpfs("/dev/shm", 0o1777, SHM_SIZE)  # noqa: S108  # the box's own


def _emptiness() -> Iterator[str]:
    """Empty file systems, before all binds: a mount point below a bound folder would be created on the host."""
    yield from tmpfs("/tmp", 0o1777, TMP_SIZE)  # noqa: S108
    for path in ("/run", "/var", "/home", "/root"):
        yield from tmpfs(path, 0o755, TMP_SIZE if path == "/var" else SMALL_SIZE)
    yield from ("--perms", "1777", "--dir", "/var/tmp")  # noqa: S108


def _inside(spec: Sandbox, machine: Machine) -> Iterator[str]:
    """Wraps the command; each wrapper becomes the next by exec, so the agent keeps the pid that the guardian knows."""
    if machine.drops_root:
        yield from (str(machine.setpriv), "--reuid", str(machine.user.uid), "--regid", str(machine.user.gid))
        yield from ("--clear-groups", "--inh-caps=-all", "--bounding-set=-all", "--")
    yield from (machine.prlimit, "--core=0:0")
    limits = spec.limits
    for name, wanted, most in (
        ("nofile", limits.open_files, machine.most_open_files),
        ("nproc", limits.processes and limits.processes + machine.processes, machine.most_processes),
        ("fsize", limits.file_size, None),
    ):
        if wanted:
            value = wanted if most is None else min(wanted, most)
            yield f"--{name}={value}:{value}"
    yield "--"
    if spec.forwards:
        yield from ("/bin/sh", "-c", _forwarding(spec.forwards, str(machine.socat)), "leadrope-box")


def _forwarding(forwards: tuple[Forward, ...], socat: str) -> str:
    """Returns a shell script that starts the forwarders, waits until they listen, and becomes the agent."""
    lines = []
    for forward in forwards:
        address = f"TCP-LISTEN:{forward.port},bind=127.0.0.1,fork,reuseaddr"
        words = [socat, guardian.FURNITURE.decode(), address, f"UNIX-CONNECT:{forward.socket}"]
        # Forked twice: otherwise the agent would have to reap a child that it never started.
        lines.append(f"( {shlex.join(words)} </dev/null >/dev/null 2>&1 & )")
    for forward in forwards:
        entry = f"0100007F:{forward.port:04X}{_LISTENING}"
        lines.append(
            "n=0; while [ $n -lt 400 ]; do "
            f'while read -r _ here _ state _; do [ "$here$state" = {entry} ] && n=999; done </proc/net/tcp; '
            "[ $n -lt 400 ] && sleep 0.005; n=$((n+1)); done; "
            f"[ $n -ge 999 ] || {{ echo 'leadrope: nothing listens on port {forward.port} in the box' >&2; exit 1; }}"
        )
    return "\n".join([*lines, 'exec "$@"'])
