"""Runs git without trusting the repository it works in; independent of runs and policies.

A repository may be hostile (an archive that contains a `.git`), and an agent has worked in it. So these calls never
start a hook, file monitor, pager, editor, diff or merge program that the repository configures, and fetch nothing.
Settings of the user and of the system apply; those of the repository only if they name no program.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, cast

import msgspec

from leadrope import errors, spelling
from leadrope.confined import real_path
from leadrope.core import home as homes
from leadrope.regex import regex
from leadrope.runs.leases import Exclusive
from leadrope.runs.workspace import git_folder, git_limits

TIMEOUT_S = 300.0
"""A checkout of a very large tree on a slow disk takes minutes; a git that hangs (a dead network disk) never ends."""

PIPE_S = 5.0
"""After this time, check whether git is blocked on a pipe or a device that somebody put in its way."""

PIPE_LOOKS = 6
LOCK_S = 600.0
MOST_OUTPUT = 256 * 1024 * 1024
ERROR_CHARS = 2000

_KEPT = ("PATH", "HOME", "XDG_CONFIG_HOME", "TMPDIR", "SYSTEMROOT", "USERPROFILE", "GIT_CONFIG_GLOBAL")

_FIXED = {
    "LC_ALL": "C",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": ":",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    # A partial clone would fetch missing objects through programs that its configuration names: allow no transport.
    "GIT_ALLOW_PROTOCOL": "none",
}

_SETTINGS = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.untrackedCache": "false",
    # git detects unchanged files by their times; times that an agent can set must not be sufficient.
    "core.trustctime": "true",
    "core.checkStat": "default",
    "core.quotePath": "false",
    # One flush for all new objects instead of one each: this saves seconds for a thousand files on a busy disk.
    "core.fsyncMethod": "batch",
    "core.sshCommand": "false",
    "submodule.recurse": "false",
    "diff.ignoreSubmodules": "dirty",
    "commit.gpgSign": "false",
    # To verify a signature on an agent's commit, git would run a program that the repository names.
    "merge.verifySignatures": "false",
    "log.showSignature": "false",
    "gpg.program": "false",
    "gpg.openpgp.program": "false",
    "gpg.x509.program": "false",
    "gpg.ssh.program": "false",
    "gpg.ssh.defaultKeyCommand": "false",
    "pull.twohead": "ort",
    "diff.external": "",
    "core.askPass": "false",
    "core.gitProxy": "false",
    "core.alternateRefsCommand": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "advice.detachedHead": "false",
    "init.defaultBranch": "main",
}

_PROGRAM = regex(r"(filter\..+)\.(?:clean|smudge|process|required)|(merge\..+)\.driver", re.DOTALL)
_EMPTIED = regex(r"branch\..+\.mergeoptions|alias\..+|diff\..+\.(?:command|textconv)", re.DOTALL)
"""Further settings that name programs, or options that do."""
_WRITERS = frozenset(
    {
        *("branch", "checkout-index", "commit-tree", "hash-object", "init", "merge", "read-tree", "update-index"),
        *("update-ref", "worktree", "write-tree"),
    }
)
"""The commands used here that write: only these need write limits, which take time to set up."""
_HOOK = regex(r"(hook\..+)\.[a-z]+", re.DOTALL)


class GitResult(msgspec.Struct, frozen=True, kw_only=True):
    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        """The output as one value, such as a path: only the final newline is removed, since a name may contain anything
        else.
        """
        return os.fsdecode(self.out.removesuffix(b"\n"))

    @property
    def items(self) -> list[bytes]:
        """The entries of `-z` output."""
        return [item for item in self.out.split(b"\0") if item]


class Git:
    """git with a fixed environment; `within` returns one bound to a git folder, a tree or an index."""

    def __init__(self, environ: Mapping[str, str] | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        source = os.environ if environ is None else environ
        self.env = {name: source[name] for name in _KEPT if name in source} | _FIXED
        self.settings = dict(_SETTINGS)
        self.timeout_s = timeout_s
        self.writes: tuple[str, ...] = ()
        """Folders below which git may write; empty: wherever the user may."""
        self.switched_off: tuple[str, ...] = ()
        """Disabled filters and merge programs of the repository's own configuration."""

    def within(self, **variables: str | Path) -> Git:
        """Bind GIT_DIR and related variables, so that git never searches a `.git` within an agent's reach."""
        other = Git({}, timeout_s=self.timeout_s)
        other.env = self.env | {name: str(value) for name, value in variables.items()}
        other.settings = dict(self.settings)
        other.switched_off = self.switched_off
        other.writes = self.writes
        return other

    def limited(self, *folders: str | Path) -> Git:
        """Return a git that can write only below these folders, even if links there lead elsewhere."""
        other = self.within()
        other.writes = tuple(map(str, folders))
        return other

    async def distrust(self, cwd: str | Path) -> Git:
        """Return a git that ignores the programs named in the repository's own configuration."""
        listed = await self.run("config", "--list", "--show-scope", "--name-only", "-z", cwd=cwd)
        scopes, names = listed.items[0::2], listed.items[1::2]
        other = self.within()
        found: set[str] = set()
        for scope, name in zip(scopes, map(os.fsdecode, names), strict=True):
            if scope not in (b"local", b"worktree"):
                continue
            if _EMPTIED.fullmatch(name):
                other.settings[name] = ""
            if hook := _HOOK.fullmatch(name):
                other.settings |= {f"{hook[1]}.command": "true", f"{hook[1]}.enabled": "false"}
            match = _PROGRAM.fullmatch(name)
            if match is None:
                continue
            section = match[1] or match[2]
            found.add(section)
            if match[1]:
                empty = {f"{section}.{key}": "" for key in ("clean", "smudge", "process")}
                other.settings |= {**empty, f"{section}.required": "false"}
            else:
                other.settings[name] = "git merge-file -q %A %O %B"  # git's behaviour without a program
        other.switched_off = tuple(sorted(found))
        return other

    async def run(
        self,
        *arguments: str,
        cwd: str | Path,
        stdin: bytes = b"",
        codes: Sequence[int] = (0,),
        into: IO[bytes] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> GitResult:
        """Run git; raises GitFailed with git's message on any other exit code. `into` receives the output instead."""
        program = shutil.which("git", path=self.env.get("PATH", os.defpath))
        if program is None:
            raise errors.CliNotFound("git is not on the PATH", hint="Install git 2.31 or newer.")
        try:
            with git_limits.only_below(self.writes if arguments[0] in _WRITERS else ()) as start:
                process = await asyncio.create_subprocess_exec(
                    *start.words,
                    program,
                    "--no-pager",
                    *arguments,
                    cwd=cwd,
                    env=self._environment() | dict(env or {}),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE if into is None else into,
                    stderr=asyncio.subprocess.PIPE,
                    start_new_session=True,
                    limit=1024 * 1024,
                    pass_fds=start.handles,
                )
        except (NotADirectoryError, FileNotFoundError):
            raise _no_folder(cwd) from None
        words = " ".join(arguments[:2])
        is_over = False
        try:
            async with asyncio.timeout(self.timeout_s):
                out, err = await self._watched(process, stdin, words, cwd)
            is_over = True
        except TimeoutError:
            raise errors.GitFailed(
                f"git {words} in {cwd} did not end within {self.timeout_s:g} s and was stopped",
                hint="Look for a disk that does not answer, or a filter program that hangs.",
            ) from None
        finally:
            if not is_over:
                await asyncio.shield(_finish(process))
        said = err.decode(errors="replace").strip()
        if len(out) > MOST_OUTPUT:
            raise errors.GitFailed(f"git {words} in {cwd} printed more than {MOST_OUTPUT // 2**20} MiB")
        code = process.returncode if process.returncode is not None else -1
        if code not in codes:
            raise errors.GitFailed(
                f"git {words} failed in {cwd} (exit {code}): {said[-ERROR_CHARS:] or 'it said nothing'}",
                hint=_hint(said),
            )
        return GitResult(code=code, out=out, err=said)

    async def _watched(
        self, process: asyncio.subprocess.Process, stdin: bytes, words: str, cwd: str | Path
    ) -> tuple[bytes, bytes]:
        talking = asyncio.ensure_future(_talk(process, stdin))
        try:
            # Checked several times: somebody who keeps swapping a file and a pipe shows the file some of the time.
            for _ in range(PIPE_LOOKS):
                done, _ = await asyncio.wait({talking}, timeout=PIPE_S)
                if done:
                    break
                if git_folder.waits_for_pipe(process.pid) and not talking.done():
                    raise errors.GitFailed(
                        f"git {words} in {cwd} was stopped: a file that it reads has become a pipe",
                        hint="If another program changes files there, stop it, and try again.",
                    )
                names = ("GIT_DIR", "GIT_COMMON_DIR", "GIT_WORK_TREE")
                folders = dict.fromkeys([*(self.env[name] for name in names if name in self.env), str(cwd)])
                endless = await asyncio.to_thread(git_folder.find_endless, folders)
                if endless is not None and not talking.done():
                    raise errors.GitFailed(
                        f"git {words} in {cwd} was stopped: it waits for {endless}",
                        hint="If you did not put it there, remove it.",
                    )
            return await talking
        finally:
            if not talking.done():
                talking.cancel()
                await asyncio.wait({talking})

    def _environment(self) -> dict[str, str]:
        pairs = list(self.settings.items())
        numbered = {f"GIT_CONFIG_KEY_{i}": key for i, (key, _) in enumerate(pairs)}
        values = {f"GIT_CONFIG_VALUE_{i}": value for i, (_, value) in enumerate(pairs)}
        return self.env | {"GIT_CONFIG_COUNT": str(len(pairs))} | numbered | values


class Repository(msgspec.Struct, frozen=True, kw_only=True):
    top: str
    """The root of the checkout."""
    common_dir: str
    """The folder of objects, refs and configuration, shared by all worktrees."""
    git_dir: str
    """The folder of this checkout's own HEAD and index."""
    prefix: str
    """The requested folder relative to `top`; "" for the root."""


async def find(git: Git, folder: str | Path) -> Repository:
    """Find the repository whose checkout contains the folder; BadDirectory says why there is none."""
    asked = await git.run("rev-parse", "--is-bare-repository", "--is-inside-work-tree", cwd=folder, codes=(0, 128))
    if asked.code:
        if "not a git repository" in asked.err:
            raise errors.BadDirectory(
                f"{folder} is not in a git repository",
                hint=f"Run `git init` and make a first commit, or leave {spelling.option('worktree')} out.",
            )
        raise errors.BadDirectory(f"git cannot use {folder}: {asked.err[-ERROR_CHARS:]}", hint=_hint(asked.err))
    bare, inside = asked.out.split()
    if inside != b"true":
        what = "a bare repository: it has no checkout" if bare == b"true" else "inside of a .git folder"
        raise errors.BadDirectory(f"{folder} is {what}", hint="Name a folder of a checkout.")
    top = (await git.run("rev-parse", "--show-toplevel", cwd=folder)).text
    common = (await git.run("rev-parse", "--git-common-dir", cwd=folder)).text
    git_dir = (await git.run("rev-parse", "--absolute-git-dir", cwd=folder)).text
    prefix = (await git.run("rev-parse", "--show-prefix", cwd=folder)).text.rstrip("/")
    if not os.path.lexists(Path(top, ".git")):
        # A hostile repository's core.worktree can name any folder, even "/".
        raise errors.BadDirectory(
            f"the repository of {folder} says that its files lie in {top}, which has no .git",
            hint="Check core.worktree in its configuration.",
        )
    found = Repository(top=top, common_dir=real_path(Path(folder, common)), git_dir=git_dir, prefix=prefix)
    await asyncio.to_thread(git_folder.check, top, git_dir, found.common_dir)
    return found


@contextlib.asynccontextmanager
async def alone(home: Path, common_dir: str, *, timeout_s: float = LOCK_S) -> AsyncIterator[None]:
    """Hold a lock under which only one leadrope process changes the worktrees and refs of a repository."""
    name = hashlib.sha256(os.fsencode(common_dir)).hexdigest()[:24]
    path = homes.ensure(home / "locks") / f"git-{name}.lock"
    try:
        async with asyncio.timeout(timeout_s) as waiting:
            while True:
                with Exclusive(path) as held:
                    if held:
                        waiting.reschedule(None)
                        yield
                        return
                await asyncio.sleep(0.02)
    except TimeoutError:
        if not waiting.expired():
            raise
        raise errors.GitFailed(
            f"another leadrope process has worked on {common_dir} for more than {timeout_s:g} s",
            hint="Look for one that hangs, then try again.",
        ) from None


def names(paths: Sequence[bytes], most: int = 10) -> str:
    """Format names for display; one that is not text, or contains a line break, is escaped."""
    shown = [show(path) for path in paths[:most]]
    return ", ".join(shown) + (f" and {len(paths) - most} more" if len(paths) > most else "")


def show(path: bytes) -> str:
    text = os.fsdecode(path)
    return text if text.isprintable() else repr(text)[1:-1]


def above(path: bytes) -> Iterator[bytes]:
    """Yield the parent folders of a path, nearest first."""
    while b"/" in path:
        path = path.rpartition(b"/")[0]
        yield path


async def _talk(process: asyncio.subprocess.Process, stdin: bytes) -> tuple[bytes, bytes]:
    """Read the output up to a limit; the rest is read and dropped, so that git never blocks."""

    async def feed() -> None:
        pipe = cast("asyncio.StreamWriter", process.stdin)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # git ended first; its exit code says why
            pipe.write(stdin)
            await pipe.drain()
            pipe.close()
            await pipe.wait_closed()

    async def take(stream: asyncio.StreamReader | None) -> bytes:
        kept = bytearray()
        while stream is not None and (chunk := await stream.read(1024 * 1024)):
            if len(kept) <= MOST_OUTPUT:
                kept += chunk
        return bytes(kept)

    async with asyncio.TaskGroup() as group:
        group.create_task(feed())
        out, err = group.create_task(take(process.stdout)), group.create_task(take(process.stderr))
    await process.wait()
    return out.result(), err.result()


async def _finish(process: asyncio.subprocess.Process) -> None:
    """Kill what is left of git and its filters; they share a session, and so a process group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def _no_folder(cwd: str | Path) -> errors.BadDirectory:
    return errors.BadDirectory(f"{cwd} does not exist or is not a folder", hint="Create it, or name another one.")


def _hint(said: str) -> str | None:
    if "dubious ownership" in said:
        return "The repository belongs to another user. If you trust it, do what git says about safe.directory."
    if "index.lock" in said or "Unable to create" in said:
        return "Another git works in the repository, or one died there; wait for it, or remove the lock it names."
    if "promisor" in said or "transport 'none'" in said or "not allowed" in said:
        return "The repository is a partial clone and objects are missing; fetch them first: git fetch --refetch."
    if "No space left" in said:
        return "Free some disk space and try again."
    return None
