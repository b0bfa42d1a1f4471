"""Inspects the machine for the plan of a sandbox: what exists, what is a link, who owns what.

Changes nothing, except that it creates missing hooks folders in repositories: what is missing cannot be protected.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pwd
import resource
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from leadrope import errors
from leadrope.confined import real_path
from leadrope.process import reachable
from leadrope.process.sandbox import configured_paths, git_folders, programs
from leadrope.process.sandbox.toolchains import caches, toolchains
from leadrope.process.sandbox.values import (
    BASE,
    GIT_IDENTITY,
    INSTALL_HINT,
    SECRETS,
    Machine,
    MachinePath,
    Sandbox,
    SandboxUser,
)

SYSTEM = ("/usr", "/etc", "/opt", "/nix", "/gnu", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")

# Needed for uid 0 only, which owns them; all others are refused by the system. And a sandbox inside of this one could
# not mount /proc again if parts of it are covered.
PROC_READ_ONLY = (
    *("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/mtrr"),
    *("/proc/pressure", "/proc/acpi", "/proc/scsi", "/proc/asound"),
)
PROC_HIDDEN = ("/proc/kcore", "/proc/keys", "/proc/key-users", "/proc/timer_list", "/proc/sched_debug")

ETC_HIDDEN = (
    *("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers", "/etc/sudoers.d"),
    *("/etc/ssh", "/etc/ssl/private", "/etc/docker", "/etc/kubernetes", "/etc/wireguard", "/etc/NetworkManager"),
)


def look(spec: Sandbox) -> Machine:
    """Gathers the facts; takes some milliseconds, more if programs are masked or the PATH is long."""
    user, drops_root = _user(spec.workspace)
    system = tuple(path for path in SYSTEM if reachable.is_dir(path) and not reachable.is_symlink(path))
    links = {path: os.readlink(path) for path in SYSTEM if reachable.is_symlink(path)}  # noqa: PTH115  # as it is
    given = (spec.workspace, spec.run_dir, *([spec.config_dir] if spec.config_dir else []), *spec.login)
    needed = (*given, *spec.writable, *spec.readable)
    for path in (spec.binary, *(socket.outside for socket in spec.sockets)):
        _needed(path)
    places = {path: _needed(path) for path in needed}
    writable = [place.real for place in places.values()]
    own = (spec.workspace, *spec.writable, *(path for path in spec.repositories if not _is_only_shown(path, spec)))
    repositories = git_folders.git_dirs(spec.workspace, given=own, writable=writable)
    if spec.level == "workspace":
        for folder in repositories:
            git_folders.fill_gaps(folder, writable=writable)
    risks = [path for folder in repositories for path in git_folders.git_risks(folder, writable=writable)]
    pins = tuple(path for folder in repositories for path in git_folders.git_pins(folder, writable=writable))
    settings = [path for folder in repositories for path in git_folders.git_settings(folder, writable=writable)]
    protected = (*_protected(spec), *risks)
    agent = tuple(_agent(spec.binary, system))
    named = configured_paths.named(
        spec.programs,
        spec.named,
        path=spec.path,
        home=spec.home,
        writable=(*writable, *system),
        taken=BASE,
    )
    path = ":".join([spec.path, *named.folders, *configured_paths.interpreter(spec.binary)])
    chains = (
        *toolchains(path, spec.home, seen=(*system, *links), writable=writable),
        *named.places,
        *_rehearsal(spec.binary),
    )
    secrets = tuple(_secrets(spec))
    shown = tuple(_open_to(user, (place for place in chains if not _is_secret(place, secrets))))
    found = [
        cache
        for cache in caches(spec.home, shown, uid=user.uid, writable=writable)
        if not _is_secret(cache.place, secrets)
    ]
    open_places = set(_open_to(user, (cache.place for cache in found)))
    masked, unmasked = _masks(spec)
    return Machine(
        bwrap=_tool("bwrap"),
        prlimit=_tool("prlimit"),
        setpriv=shutil.which("setpriv", path=SYSTEM_PATH),
        socat=shutil.which("socat", path=SYSTEM_PATH),
        user=user,
        drops_root=drops_root,
        links=links,
        system=system,
        etc_hidden=_etc_hidden(user.uid),
        proc_read_only=tuple(filter(os.path.exists, PROC_READ_ONLY)) if user.uid == 0 else (),
        proc_hidden=tuple(_existing(PROC_HIDDEN)) if user.uid == 0 else (),
        resolv=_resolv(),
        places={**places, **{place.name: place for place in _existing((spec.home, *protected))}},
        identity=tuple(_open_to(user, (place for place in _identity(spec) if not _is_secret(place, secrets)))),
        toolchains=shown,
        caches=tuple(cache for cache in found if cache.place in open_places) if spec.level == "workspace" else (),
        agent=agent,
        git=(*pins, *_above((*spec.kept, *spec.guarded, *spec.blocked), writable)),
        protected=protected,
        settings=tuple(dict.fromkeys(settings)) if spec.level == "workspace" else (),
        plantable=git_folders.plantable([pin for pin in pins if spec.level == "workspace"]),
        guarded=tuple(_existing(spec.guarded)),
        blocked=tuple(_existing(spec.blocked)),
        secrets=secrets,
        unshown=tuple(place.name for place in named.places if _is_secret(place, secrets)),
        masks=masked,
        unmasked=unmasked,
        most_open_files=_most(resource.RLIMIT_NOFILE),
        most_processes=_most(resource.RLIMIT_NPROC),
        processes=_processes_of(user.uid) if drops_root else 0,
    )


SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
"""Not the run's PATH: the sandbox is built with programs of the system."""


def _tool(name: str) -> str:
    found = shutil.which(name, path=SYSTEM_PATH)
    if found is None:
        raise errors.SandboxUnavailable(f"{name} is not installed", hint=INSTALL_HINT)
    return found


def _user(workspace: str) -> tuple[SandboxUser, bool]:
    """Returns the agent's user and whether that drops root.

    Root becomes the owner of the workspace: without its capabilities it could not write there.
    """
    me = SandboxUser(uid=os.geteuid(), gid=os.getegid())
    owner = os.stat(workspace).st_uid  # noqa: PTH116
    if me.uid != 0 or owner == 0:
        return me, False
    try:
        gid = pwd.getpwuid(owner).pw_gid
    except KeyError:
        gid = os.stat(workspace).st_gid  # noqa: PTH116
    return SandboxUser(uid=owner, gid=gid), True


def _needed(path: str) -> MachinePath:
    if not reachable.exists(path):
        raise errors.BadDirectory(f"{path} does not exist, but the sandbox must contain it", hint="Make it first.")
    return MachinePath(name=path, real=real_path(path), is_dir=reachable.is_dir(path))


def _existing(paths: Iterator[str] | tuple[str, ...]) -> Iterator[MachinePath]:
    for path in paths:
        if os.path.exists(path):  # noqa: PTH110  # also for what cannot be inspected
            yield MachinePath(name=path, real=real_path(path), is_dir=os.path.isdir(path))  # noqa: PTH112


def _secrets(spec: Sandbox) -> Iterator[MachinePath]:
    """Yields the folders of keys in the run's home, and in the user's own if that is another one."""
    homes = {spec.home, real_path(spec.home)}
    with contextlib.suppress(KeyError):  # a user without a passwd entry, as in many containers
        homes.add(pwd.getpwuid(os.geteuid()).pw_dir)
    login = {real_path(path) for path in spec.login}
    opened = {real_path(path) for path in spec.opened}
    yield from (place for place in _existing(spec.hidden) if place.real not in login)
    for place in _existing(tuple(f"{home}/{name}" for home in homes for name in SECRETS)):
        if place.real not in login and place.real not in opened:
            yield place


def _identity(spec: Sandbox) -> Iterator[MachinePath]:
    """Yields the user's git configuration with its includes: a work identity is often kept in one."""
    found = [f"{spec.home}/{name}" for name in GIT_IDENTITY]
    is_theirs = spec.home in (spec.workspace, *spec.writable)  # then an agent could have named anything there
    for file in () if is_theirs else (f"{spec.home}/.gitconfig", f"{spec.home}/.config/git/config"):
        found += git_folders.included(file, spec.home)
    yield from _existing(tuple(dict.fromkeys(found)))


def _is_secret(place: MachinePath, secrets: tuple[MachinePath, ...]) -> bool:
    return any(place.real == secret.real or place.real.startswith(f"{secret.real}/") for secret in secrets)


def _protected(spec: Sandbox) -> Iterator[str]:
    """Yields what needs protection if it lies in something writable, which the plan decides."""
    for folder in (spec.workspace, *spec.writable):
        # A file that points to the git folder: a changed one would bring its own hooks and settings.
        if reachable.is_file(Path(folder, ".git")):
            yield str(Path(folder, ".git"))
    yield from (path for path in spec.kept if reachable.exists(path))
    # Whoever can write to the Python installation of leadrope runs outside of every sandbox the next time.
    yield sys.prefix


def _is_only_shown(path: str, spec: Sandbox) -> bool:
    """Whether the path is in a folder that is read-only here: nothing is opened, created or copied for git there."""
    around = [one for one in (spec.workspace, *spec.writable, *spec.readable) if Path(path).is_relative_to(one)]
    return max(around, key=len, default=None) in spec.readable


def _above(paths: tuple[str, ...], writable: list[str]) -> tuple[str, ...]:
    """Returns the folders between a writable folder and these paths.

    If one of them were moved away, the read-only paths would move with it.
    """
    parents = {str(parent) for path in paths for parent in Path(path).parents}
    return tuple(sorted(path for path in parents if any(path.startswith(f"{folder}/") for folder in writable)))


def _agent(binary: str, system: tuple[str, ...]) -> Iterator[MachinePath]:
    real = real_path(binary)
    yield MachinePath(name=binary, real=real, is_dir=False)
    if any(real.startswith(f"{folder}/") for folder in system) or configured_paths.is_elf(real):
        return
    # A script: its dependencies lie beside it, up to the root of its package.
    for folder in Path(real).parents[:4]:
        if reachable.is_file(folder / "package.json"):
            yield MachinePath(name=str(folder), real=str(folder))
            return


def _rehearsal(binary: str) -> Iterator[MachinePath]:
    """Yields this package for a scripted agent, which is run by one of its modules."""
    if not configured_paths.is_elf(binary):
        package = str(Path(real_path(__file__)).parents[2])
        yield MachinePath(name=package, real=package)


@functools.lru_cache(maxsize=4)
def _etc_hidden(uid: int) -> tuple[MachinePath, ...]:
    """Returns the files in /etc that are hidden from uid 0: those that not everybody may read.

    uid 0 owns those files, with or without capabilities.
    """
    hidden = list(_existing(ETC_HIDDEN))
    if uid == 0:
        hidden += _closed_to_others("/etc")
    whole = {place.real: place for place in hidden if place.real.startswith("/etc/")}
    inner = {path for path in whole for other in whole if path.startswith(f"{other}/")}
    return tuple(place for path, place in sorted(whole.items()) if path not in inner)


def _closed_to_others(folder: str) -> Iterator[MachinePath]:
    """Yields everything below the folder that not everybody may read.

    os.walk takes twice as long, and this runs at the start of every sandbox.
    """
    todo = [folder]
    while todo:
        with contextlib.suppress(FileNotFoundError), os.scandir(todo.pop()) as entries:
            for entry in entries:
                if entry.is_symlink():
                    continue
                is_dir = entry.is_dir(follow_symlinks=False)
                if is_dir:
                    todo.append(entry.path)
                with contextlib.suppress(FileNotFoundError):
                    if not entry.stat(follow_symlinks=False).st_mode & stat.S_IROTH:
                        yield MachinePath(name=entry.path, real=entry.path, is_dir=is_dir)


def _resolv() -> str | None:
    """Returns the target of /etc/resolv.conf if that is elsewhere.

    It is a link into /run on machines with systemd-resolved, and without its target no name is resolved.
    """
    real = real_path("/etc/resolv.conf")
    return real if reachable.is_file(real) and not real.startswith(("/etc/", "/usr/")) else None


def _open_to(user: SandboxUser, places: Iterator[MachinePath]) -> Iterator[MachinePath]:
    """Yields the places that the agent's user may read.

    A git configuration that is visible but unreadable makes every git command fail.
    """
    for place in places:
        try:
            found = os.stat(place.real)  # noqa: PTH116
        except OSError:
            continue
        if found.st_uid == user.uid:
            bits = found.st_mode >> 6
        elif found.st_gid == user.gid:
            bits = found.st_mode >> 3
        else:
            bits = found.st_mode
        if bits & 4 and _is_reachable(place.real, user):
            yield place


def _is_reachable(path: str, user: SandboxUser) -> bool:
    """Whether bubblewrap can reach the path.

    It resolves paths as root of a user namespace with a single user: closed folders of other users stay closed.
    """
    if os.geteuid() == 0 and user.uid != 0:  # it resolves paths as the real root, before it becomes the user
        return True
    for parent in Path(path).parents:
        found = os.stat(parent)  # noqa: PTH116
        if found.st_uid != user.uid and not found.st_mode & stat.S_IXOTH:
            return os.access(path, os.R_OK) if user.uid != 0 else False
    return True


def _masks(spec: Sandbox) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the files to mask, and those files of blocked programs that cannot be masked."""
    try:
        files = programs.files_of(spec.masked, spec.path, must=spec.must_mask)
    except programs.Cannot as error:
        raise errors.SandboxUnavailable(
            f"the sandbox cannot mask {error.program}: {error}", hint="Block it by a rule instead."
        ) from None
    return files, () if spec.must_mask else programs.shells_of(spec.masked, spec.path)


def _most(limit: int) -> int | None:
    hard = resource.getrlimit(limit)[1]
    return None if hard == resource.RLIM_INFINITY else hard


def _processes_of(uid: int) -> int:
    """Counts the user's processes, including threads."""
    count = 0
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                if entry.stat().st_uid == uid:
                    count += len(os.listdir(f"{entry.path}/task"))  # noqa: PTH208
            except OSError:
                continue
    return count
