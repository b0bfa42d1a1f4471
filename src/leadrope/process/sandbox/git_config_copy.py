"""Makes private copies of git's settings for a sandbox, and reads back what changed; judging the changes is up to
callers.

The agent gets a copy of each file (see `git_config_mount`). It never gets access to the user's own file, so nothing has
to be repaired if leadrope is killed; only the agent's changes are lost then. The copy is read back as untrusted input:
by its place under the run's folder, without following a link, and with git's own parser.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from leadrope import errors
from leadrope.confined import Folder

PATH = "/usr/local/bin:/usr/bin:/bin"
"""Not the user's PATH: a folder of the workspace may be on it, with a program `git` written by the agent."""
MOST_BYTES = 512 * 1024
TIMEOUT_S = 10.0

Values = tuple[str | None, ...]


class View(msgspec.Struct, frozen=True, kw_only=True):
    """A settings file, and the copy that the agent has in its place."""

    path: str
    run_dir: str
    folder: str
    """The folder of the copy, as a name below the run's folder."""
    was: bytes
    """The content of the file when the copy was made."""
    parent: tuple[int, int] = (0, 0)
    """Device and inode number of the folder that the file is in."""

    @property
    def copy(self) -> str:
        return f"{self.run_dir}/{self.folder}/config"

    @property
    def link(self) -> str:
        """The path of the link to the copy."""
        return f"{self.run_dir}/{self.folder}/link"


class Unreadable(Exception):
    """The agent left something that is not a settings file."""


class RefusedSetting(Exception):
    """Git refused the change; the message is git's own."""


def make(paths: Sequence[str], run_dir: str) -> tuple[View, ...]:
    """Makes copies of those files that can have one; the others stay read-only."""
    return tuple(view for path in paths for view in _make(path, run_dir))


def _make(path: str, run_dir: str) -> Iterator[View]:
    file = Path(path)
    try:
        with Folder.open(file.parent, hard_links=True) as folder:
            parent = _identity(folder)
            was = folder.read_bytes(file.name, most=MOST_BYTES)
    except (OSError, errors.UnsafeFile):  # a link, not ours to read, or too large
        return
    name = f"git-{secrets.token_hex(8)}"
    with Folder.open(run_dir) as run, run.folder(name, makes=0o700) as made:
        made.write_new("config", was, mode=0o644)
        made.link("link", f"{run_dir}/{name}/config")
    yield View(path=path, run_dir=run_dir, folder=name, was=was, parent=parent)


def changed(view: View) -> bytes | None:
    """Returns the copy's content if the agent changed it, else None. Raises Unreadable."""
    try:
        with Folder.open(view.run_dir) as run:
            now = run.read_bytes(f"{view.folder}/config", most=MOST_BYTES)
    except OSError as error:
        raise Unreadable(f"{error.strerror}") from None
    except errors.UnsafeFile as error:
        raise Unreadable(f"it {error.reason}") from None
    return now if now != view.was else None


def read(content: bytes) -> dict[str, Values]:
    """Parses settings with git itself, so that they mean the same; includes are not followed. Raises Unreadable."""
    try:
        listed = _git("--file", "-", "--no-includes", "-z", "--list", stdin=content)
    except RefusedSetting as error:
        raise Unreadable(str(error)) from None
    found: dict[str, Values] = {}
    for entry in filter(None, listed.split(b"\0")):
        name, equals, value = entry.partition(b"\n")
        known = os.fsdecode(name)
        found[known] = (*found.get(known, ()), os.fsdecode(value) if equals else None)
    return found


def write(view: View, name: str, *, before: Values, after: Sequence[str]) -> bool:
    """Writes into the user's own file, with git's own lock; False if its value has changed meanwhile.

    git itself would follow a link that another agent puts there meanwhile. So git changes a copy of ours, which then
    replaces the file by its descriptor. Raises RefusedSetting.
    """
    file = Path(view.path)
    lock = f"{file.name}.lock"
    try:
        with Folder.open(file.parent, hard_links=True) as folder:
            if _identity(folder) != view.parent:
                raise RefusedSetting(f"{file.parent} has become another folder")
            try:
                folder.write_new(lock, b"", mode=0o600)
            except FileExistsError:
                raise RefusedSetting(f"could not lock config file {view.path}: File exists") from None
            try:
                return _replaced(folder, file.name, name, before, after)
            finally:
                folder.unlink(lock)
    except errors.UnsafeFile as error:
        raise RefusedSetting(error.message) from None
    except (OSError, Unreadable) as error:
        raise RefusedSetting(str(error)) from None


def _replaced(folder: Folder, file: str, name: str, before: Values, after: Sequence[str]) -> bool:
    content = folder.read_bytes(file, most=MOST_BYTES)
    standing = read(content).get(name, ())
    if standing != before:
        return standing == tuple(after)
    with tempfile.TemporaryDirectory(prefix="leadrope-settings-") as scratch, Folder.open(scratch) as own:
        own.write_new("config", content)
        if before and not after:
            _git("--file", f"{scratch}/config", "--unset-all", name)
        for place, value in enumerate(after):
            _git("--file", f"{scratch}/config", "--add" if place else "--replace-all", name, value)
        changed = own.read_bytes("config", most=2 * MOST_BYTES)
    folder.replace(file, changed, like=folder.stat(file), syncs=True)
    return True


def _identity(folder: Folder) -> tuple[int, int]:
    found = os.fstat(folder.fileno())
    return found.st_dev, found.st_ino


def _git(*words: str, stdin: bytes = b"") -> bytes:
    """Runs `git config` outside of any repository."""
    program = shutil.which("git", path=PATH)
    if program is None:
        raise RefusedSetting("git is not installed outside of the sandbox")
    try:
        done = subprocess.run(
            [program, "config", *words],
            input=stdin,
            capture_output=True,
            cwd="/",
            env={"PATH": PATH, "LC_ALL": "C", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull},
            timeout=TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RefusedSetting(str(error)) from None
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip()
        raise RefusedSetting(said.splitlines()[-1][:300] if said else f"git config ended with code {done.returncode}")
    return done.stdout
