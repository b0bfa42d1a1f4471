"""What a repository would like to run on this machine, and whether the user has said yes to exactly that.

A repository's settings, hooks, servers and agents are ignored until they are trusted; the yes holds for the files as
they were then. Any change asks again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from leadrope import errors
from leadrope.confined import Folder, real_path
from leadrope.core import home
from leadrope.core.request_parts import extra_dirs
from leadrope.runtime.trust.files import PROJECT, collect

FILE = "trust.json"
_MOST_BYTES = 64 * 1024 * 1024
STATES = Literal["nothing", "untrusted", "trusted", "changed"]


class Trust(msgspec.Struct, frozen=True, kw_only=True):
    state: STATES
    folder: str
    files: dict[str, str] = {}
    """Path inside the repository -> hash of its content."""
    changed: tuple[str, ...] = ()
    """What is new, gone or different since the yes."""
    folders: tuple[str, ...] = ()
    """Real folders all of whose files are among them."""
    problem: str = ""
    """Why no yes can be given to these files; empty if one can."""

    def kept(self) -> tuple[str, ...]:
        """The real paths that must stay as they are while the yes counts: the agent reads them again as it works."""
        real = {*self.folders, *(real_path(Path(self.folder, name)) for name in self.files)}
        inner = {path for path in real for folder in self.folders if path.startswith(f"{folder}/")}
        return tuple(sorted(real - inner))


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    files: dict[str, str]


def look(leadrope_home: Path, folder: str, user_home: Path | None = None, *, above: bool = True) -> Trust:
    """How things stand for this folder now. The `.claude` of `user_home` is the user's own.

    Without `above` the folders above it are left out, of what is there as of what the yes was given to.
    """
    found = collect(Path(folder), user_home, above=above)
    if not found.files.keys() - {PROJECT}:
        return Trust(state="nothing", folder=folder)
    record = _read(leadrope_home).get(folder)
    known = {name: told for name, told in record.files.items() if above or not name.startswith("../")} if record else {}
    names = sorted({*found.files, *known}) if record is not None else ()
    changed = tuple(name for name in names if found.files.get(name) != known.get(name))
    state: STATES = "changed" if changed else "untrusted" if record is None or found.problem else "trusted"
    return Trust(
        state=state,
        folder=folder,
        files=found.files,
        changed=changed,
        folders=found.folders,
        problem=found.problem,
    )


def of_run(leadrope_home: Path, cwd: str, added: Sequence[str], user_home: Path) -> tuple[Trust, ...]:
    """For the working directory, and for the other folders of a run: the agent reads subagents and skills there too."""
    others = (look(leadrope_home, folder, user_home, above=False) for folder in extra_dirs.paths(added))
    return (look(leadrope_home, cwd, user_home), *others)


def remember(leadrope_home: Path, trust: Trust) -> None:
    """The user's yes to these files as they are in `trust`, not as they may have become meanwhile."""
    if trust.problem:
        raise errors.BadDirectory(
            f"{trust.folder} cannot be trusted: {trust.problem}",
            hint="Nobody could tell when that changes. Make it smaller, or a folder of the repository's own.",
        )
    records = _read(leadrope_home)
    records[trust.folder] = _Record(files=trust.files)
    _write(leadrope_home, records)


def forget(leadrope_home: Path, folder: str) -> bool:
    records = _read(leadrope_home)
    if records.pop(folder, None) is None:
        return False
    _write(leadrope_home, records)
    return True


def _read(leadrope_home: Path) -> dict[str, _Record]:
    try:
        with Folder.open(leadrope_home) as folder:
            return msgspec.json.decode(folder.read_bytes(FILE, most=_MOST_BYTES), type=dict[str, _Record])
    except (OSError, errors.UnsafeFile, msgspec.MsgspecError):
        return {}  # no record is no trust


def _write(leadrope_home: Path, records: dict[str, Any]) -> None:
    with Folder.open(home.ensure(leadrope_home)) as folder:
        folder.replace(FILE, msgspec.json.format(msgspec.json.encode(records), indent=1))
