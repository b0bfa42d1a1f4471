"""Prepares a sandbox for one run, and tests whether sandboxes work on this machine."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from leadrope import errors
from leadrope.confined import Folder, names
from leadrope.process import child, process_tree
from leadrope.process.sandbox import folders, git_config_copy
from leadrope.process.sandbox.command_line import plan, variables
from leadrope.process.sandbox.mounts import sight
from leadrope.process.sandbox.probe import SYSTEM_PATH, look
from leadrope.process.sandbox.values import INSTALL_HINT, Cache, Machine, Network, Sandbox, SandboxUser, Sight

_EXIT = 42

MEMORY = "sandbox-tried"
_RULES = (
    "/proc/sys/kernel/unprivileged_userns_clone",
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
    "/proc/sys/user/max_user_namespaces",
)


class PreparedSandbox(msgspec.Struct, frozen=True, kw_only=True):
    """What a start needs: `child.start(argv, env={**env, **box.env}, box=box.argv, ...)`."""

    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    user: SandboxUser | None = None
    """The user that the agent runs as; None without a sandbox."""
    unshown: tuple[str, ...] = ()
    """Paths that the user's settings name but that stay hidden."""
    sight: Sight = Sight()
    """What is visible inside."""
    unmasked: tuple[str, ...] = ()
    """Files of blocked programs that can still be started inside."""


class SandboxAvailability(msgspec.Struct, frozen=True, kw_only=True):
    """What was tested and works. `ok` is the sandbox itself; the other fields are optional features."""

    ok: bool
    reason: str = ""
    """Why the sandbox does not work; empty if `ok`."""
    hint: str = ""
    model_only: bool = False
    """A sandbox can have its own network."""
    forwards: bool = False
    """socat is installed, so hosts can be allowed in `model-only`."""
    nested: bool = False
    """The agent's own sandbox works inside of this one."""
    settings: bool = False
    """Git settings can be changed inside, in a copy; otherwise they are read-only."""
    caches: bool = False
    """Package caches are visible and writable inside; otherwise they are read-only or empty."""
    drops_root: bool = False
    """leadrope runs as root, and agents run as the owner of their workspace."""

    def say(self) -> str:
        """Returns one line for people."""
        if not self.ok:
            return f"not available: {self.reason}; mode sandboxed is refused"
        network = "network model-only works" if self.model_only and self.forwards else "no network model-only"
        why = "" if self.forwards else " (socat is missing)"
        mode = "mode sandboxed works" if self.model_only and self.forwards else "mode sandboxed is refused"
        inner = "works inside" if self.nested else "replaces leadrope's if you enable it"
        lacks = [what for what, is_there in (("git config", self.settings), ("caches", self.caches)) if not is_there]
        copies = f"; no private copies of {' and '.join(lacks)}" if lacks else ""
        return f"levels workspace and read-only hold; {network}{why}; {mode}; the agent's own sandbox {inner}{copies}"


def prepare(spec: Sandbox) -> PreparedSandbox:
    """Inspects the machine, plans the sandbox, and as root hands the run's own folders to the agent's user.

    Call it when every folder and socket of `spec` exists. Raises SandboxUnavailable if no sandbox is possible.
    """
    if spec.level == "off":
        return PreparedSandbox()
    machine = look(spec)
    if spec.level == "workspace":
        machine = _with_copies(machine, spec)
    argv = plan(spec, machine)
    if os.geteuid() == 0:
        hand_over(spec, machine)
    return PreparedSandbox(
        argv=argv,
        env=variables(spec),
        user=machine.user,
        unshown=machine.unshown,
        sight=sight(spec, machine),
        unmasked=machine.unmasked,
    )


def _with_copies(machine: Machine, spec: Sandbox) -> Machine:
    """Copies files that the agent may change only for itself into the run's folder, which is removed with the run."""
    own = {place.name: place.real for place in machine.identity if place.name == f"{spec.home}/.gitconfig"}
    return msgspec.structs.replace(
        machine,
        views=git_config_copy.make(machine.settings, spec.run_dir),
        copies={name: made for name, path in own.items() for made in git_config_copy.make([path], spec.run_dir)},
        caches=tuple(_layered(cache, spec.run_dir) for cache in machine.caches),
    )


def _layered(cache: Cache, run_dir: str) -> Cache:
    name = f"cache-{secrets.token_hex(8)}"
    with Folder.open(run_dir) as run, run.folder(name, makes=0o700) as layer:
        for part in ("upper", "work"):
            layer.make(part, mode=0o755)
    return msgspec.structs.replace(cache, layer=f"{run_dir}/{name}")


def hand_over(spec: Sandbox, machine: Machine) -> None:
    """Hands the run's own folders to the agent's user.

    Their content belongs to root, or to the user of an earlier run of the same session. The run's folder itself stays
    root's, so that a later sweep recognizes it as one of leadrope's.
    """
    if machine.drops_root:
        os.chmod(spec.run_dir, 0o711)  # noqa: PTH101, S103  # traversable only; what is inside is closed to others
    for entry in names(spec.run_dir):
        _give(entry.path, machine.user)
    if spec.config_dir:
        _give(spec.config_dir, machine.user)
    for socket in spec.sockets:
        _give(socket.outside, machine.user)


def _give(path: str, user: SandboxUser) -> None:
    with Folder.open(Path(path).parent) as parent:
        parent.give_entry(Path(path).name, user.uid, user.gid)


_known: SandboxAvailability | None = None
"""The result of the complete test in this process."""
_box: SandboxAvailability | None = None
"""The result for the sandbox alone."""


async def try_sandbox(*, whole: bool = True, memory: Path | None = None) -> SandboxAvailability:
    """Tests whether sandboxes work here, by running an agent in one; once per process (about 50 ms for each test).

    Without `whole` only the sandbox itself is tested, and its optional features are reported as missing. A success is
    remembered in the folder `memory` until the machine, the user or bubblewrap changes. A failure is never remembered,
    so that a later installation is noticed.
    """
    global _known, _box
    if _known is None and whole:
        _known = await _try()
    elif _known is None and _box is None:
        file = memory / MEMORY if memory is not None else None
        token = _token()
        if file is not None and _remembers(file, token):
            _box = SandboxAvailability(ok=True, drops_root=os.geteuid() == 0)
        else:
            _box = await _try_box()
            if file is not None and _box.ok:
                _remember(file, token)
    found = _known or _box
    assert found is not None  # noqa: S101  # one of the two was just set
    return found


def _token() -> str:
    """Returns one word for what a sandbox depends on: kernel, its rules for this process, bubblewrap, user."""
    told = [str(os.geteuid()) if hasattr(os, "geteuid") else "", sys.executable]
    for path in ("/proc/sys/kernel/random/boot_id", "/proc/self/attr/current", *_RULES):
        with contextlib.suppress(OSError):
            told.append(Path(path).read_text())
    with contextlib.suppress(OSError):
        status = Path("/proc/self/status").read_text()
        told += [line for line in status.splitlines() if line.startswith(("CapBnd", "Seccomp:", "NoNewPrivs"))]
    for path in ("/proc/self/ns/mnt", "/proc/self/ns/user", *_builders()):
        with contextlib.suppress(OSError):
            found = os.stat(path)  # noqa: PTH116
            told.append(f"{path} {found.st_ino} {found.st_mtime_ns if path.startswith('/usr') else ''} {found.st_size}")
    return hashlib.sha256("\n".join(told).encode()).hexdigest()


def _builders() -> list[str]:
    return [shutil.which(name, path=SYSTEM_PATH) or "" for name in ("bwrap", "prlimit")]


def _remembers(file: Path, token: str) -> bool:
    try:
        return file.read_text() == token
    except (OSError, UnicodeDecodeError):
        return False


def _remember(file: Path, token: str) -> None:
    fresh = file.with_suffix(f".{os.getpid()}")
    try:
        fresh.write_text(token)
        fresh.replace(file)
    except OSError:  # then the next process tests it again
        fresh.unlink(missing_ok=True)


async def _try_box() -> SandboxAvailability:
    if sys.platform != "linux":
        return SandboxAvailability(
            ok=False, reason="there is no bubblewrap on this system", hint="Use Linux, or no sandbox."
        )
    if not process_tree.has_guardian() or not hasattr(os, "pidfd_open"):
        return SandboxAvailability(
            ok=False, reason="this Python cannot start a guardian", hint="Use an ordinary Python."
        )
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return SandboxAvailability(
            ok=False, reason="the kernel is older than 5.3", hint="Use a newer kernel, or no sandbox."
        )
    wrong = (await _trial("host")).wrong
    if wrong is not None:
        return SandboxAvailability(ok=False, reason=wrong.message, hint=wrong.hint or INSTALL_HINT)
    return SandboxAvailability(ok=True, drops_root=os.geteuid() == 0)


async def _try() -> SandboxAvailability:
    box = await _try_box()
    if not box.ok:
        return box
    copies = await _trial("host", first=COPIES)
    return msgspec.structs.replace(
        box,
        model_only=(await _trial("model-only")).wrong is None,
        forwards=shutil.which("socat", path=SYSTEM_PATH) is not None,
        nested=os.geteuid() != 0 and (await _trial("host", first=NESTED)).wrong is None,
        settings="settings" in copies.made,
        caches="caches" in copies.made,
    )


NESTED = "bwrap --ro-bind / / --unshare-pid --proc /proc --dev /dev true"


COPIES = "{ test -L .git/config && touch settings; touch ~/.cache/pip/new && touch caches; true; }"


class _Tried(msgspec.Struct, frozen=True, kw_only=True):
    wrong: errors.LeadropeError | None = None
    """Why a sandbox cannot be built, or why something does not work in it."""
    made: frozenset[str] = frozenset()
    """The files that were created inside."""


async def _trial(network: Network, *, first: str = "true") -> _Tried:
    folder = tempfile.mkdtemp(prefix="leadrope-trial-")
    try:
        workspace, run_dir = Path(folder, "ws"), Path(folder, "run")
        workspace.mkdir()
        run_dir.mkdir()
        home = Path(folder, "home")
        if first == COPIES:
            for name in ("ws/.git/objects", "ws/.git/refs", "home/.cache/pip"):
                Path(folder, name).mkdir(parents=True)
            for name in ("HEAD", "config"):
                Path(workspace, ".git", name).touch()
        spec = Sandbox(
            workspace=str(workspace),
            run_dir=str(run_dir),
            home=str(home),
            binary="/bin/sh",
            network=network,
        )
        box = prepare(spec)
        script = f"{first} && touch made && exit {_EXIT}"
        # No shell of ours interprets external text here: the script is fixed.
        started = await child.start(
            ["/bin/sh", "-c", script],
            env={"PATH": spec.path, "HOME": spec.home, **box.env},
            cwd=str(workspace),
            spool_dir=folder,
            box=box.argv,
        )
        ending = await started.end(polite_s=10.0)
        if ending.exit_code != _EXIT or not (workspace / "made").exists():
            said = " | ".join(started.stderr_tail[-3:]) or f"its trial ended with code {ending.exit_code}"
            return _Tried(wrong=errors.SpawnFailed(f"the sandbox does not work here: {said}", hint=_hint(said)))
        return _Tried(made=frozenset(path.name for path in workspace.iterdir()))
    except errors.LeadropeError as error:
        return _Tried(wrong=error)
    finally:
        folders.remove(folder)


def _hint(said: str) -> str:
    if "namespace" in said or "uid map" in said or "Operation not permitted" in said:
        return (
            "The kernel or a profile forbids user namespaces: look at kernel.unprivileged_userns_clone, "
            "kernel.apparmor_restrict_unprivileged_userns, or the container's own security profile."
        )
    return INSTALL_HINT
