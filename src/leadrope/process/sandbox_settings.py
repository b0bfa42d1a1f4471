"""Private copies of git's settings for a box, and what is taken back from them; which changes those are, others judge.

The agent gets a copy of each file (`sandbox_views` says how). The user's own file is never in its hands, so nothing is
to be put right if leadrope is killed; only what the agent has set is lost then. The copy is read back as something that
a stranger wrote: by its place under the run's folder, without following a link, and by git's own reader.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from leadrope import errors
from leadrope.confined import Folder

PATH = "/usr/local/bin:/usr/bin:/bin"
"""Not the user's PATH: a folder of the workspace may be on it, with a program `git` that the agent has made."""
MOST_BYTES = 512 * 1024
TIMEOUT_S = 10.0

Values = tuple[str | None, ...]


class View(msgspec.Struct, frozen=True, kw_only=True):
    """One file of settings, and the copy that the agent has in its place."""

    path: str
    run_dir: str
    folder: str
    """Of the copy, by its name below the run's folder."""
    was: bytes
    """What the file held when the copy was made."""
    owner: tuple[int, int]

    @property
    def copy(self) -> str:
        return f"{self.run_dir}/{self.folder}/config"

    @property
    def link(self) -> str:
        """Leads to the copy."""
        return f"{self.run_dir}/{self.folder}/link"


class Unreadable(Exception):
    """What the agent has left is no file of settings."""


class Refused(Exception):
    """Git did not do it; its own words."""


def make(paths: Sequence[str], run_dir: str) -> tuple[View, ...]:
    """Copies of those files that can have one; the others stay read-only."""
    return tuple(view for path in paths for view in _make(path, run_dir))


def _make(path: str, run_dir: str) -> Iterator[View]:
    file = Path(path)
    try:
        with Folder.open(file.parent, hard_links=True) as folder:
            found = folder.stat(file.name)
            was = folder.read_bytes(file.name, most=MOST_BYTES)
    except (OSError, errors.UnsafeFile):  # a link, not ours to read, or too large
        return
    name = f"git-{secrets.token_hex(8)}"
    with Folder.open(run_dir) as run, run.folder(name, makes=0o700) as made:
        made.write_new("config", was, mode=0o644)
        made.link("link", f"{run_dir}/{name}/config")
    yield View(path=path, run_dir=run_dir, folder=name, was=was, owner=(found.st_uid, found.st_gid))


def changed(view: View) -> bytes | None:
    """What the agent has made of its copy; None if nothing. Raises Unreadable."""
    try:
        with Folder.open(view.run_dir) as run:
            now = run.read_bytes(f"{view.folder}/config", most=MOST_BYTES)
    except OSError as error:
        raise Unreadable(f"{error.strerror}") from None
    except errors.UnsafeFile as error:
        raise Unreadable(f"it {error.reason}") from None
    return now if now != view.was else None


def read(content: bytes) -> dict[str, Values]:
    """By git itself, so that it means here what it means there. Nothing is included. Raises Unreadable."""
    try:
        listed = _git("--file", "-", "--no-includes", "-z", "--list", stdin=content)
    except Refused as error:
        raise Unreadable(str(error)) from None
    found: dict[str, Values] = {}
    for entry in filter(None, listed.split(b"\0")):
        name, equals, value = entry.partition(b"\n")
        known = os.fsdecode(name)
        found[known] = (*found.get(known, ()), os.fsdecode(value) if equals else None)
    return found


def write(view: View, name: str, *, before: Values, after: Sequence[str]) -> bool:
    """Into the user's own file, with git's own lock; False if another value stands there by now. Raises Refused."""
    file = Path(view.path)
    try:
        with Folder.open(file.parent, hard_links=True) as folder:
            standing = read(folder.read_bytes(file.name, most=MOST_BYTES)).get(name, ())
    except errors.UnsafeFile as error:  # git would write to whatever it leads to
        raise Refused(error.message) from None
    except (OSError, Unreadable) as error:
        raise Refused(str(error)) from None
    if standing != before:
        return standing == tuple(after)
    if before and not after:
        _git("--file", view.path, "--unset-all", name, owner=view.owner)
    for place, value in enumerate(after):
        _git("--file", view.path, "--add" if place else "--replace-all", name, value, owner=view.owner)
    return True


def _git(*words: str, stdin: bytes = b"", owner: tuple[int, int] | None = None) -> bytes:
    """`git config` without any repository. Root does it as the owner: a file of root's would be left otherwise."""
    program = shutil.which("git", path=PATH)
    if program is None:
        raise Refused("git is not installed outside of the sandbox")
    is_for_another = owner is not None and os.geteuid() == 0 and owner[0] != 0
    try:
        done = subprocess.run(
            [program, "config", *words],
            input=stdin,
            capture_output=True,
            cwd="/",
            env={"PATH": PATH, "LC_ALL": "C", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull},
            timeout=TIMEOUT_S,
            check=False,
            user=owner[0] if owner and is_for_another else None,
            group=owner[1] if owner and is_for_another else None,
            extra_groups=[] if is_for_another else None,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Refused(str(error)) from None
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip()
        raise Refused(said.splitlines()[-1][:300] if said else f"git config ended with code {done.returncode}")
    return done.stdout
