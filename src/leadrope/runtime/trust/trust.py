"""What a repository would like to run on this machine, and whether the user has said yes to exactly that.

A repository's settings, hooks, servers and agents are ignored until they are trusted; the yes holds for the files as
they were then. Any change asks again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from leadrope import errors
from leadrope.confined import real_path
from leadrope.core.request_parts import extra_dirs
from leadrope.runtime.trust.files import PROJECT, collect
from leadrope.runtime.trust.records import TrustRecords

FILE = "trust.json"
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


_RECORDS = TrustRecords(FILE, _Record)
"""By folder."""


def look(leadrope_home: Path, folder: str, user_home: Path | None = None, *, above: bool = True) -> Trust:
    """How things stand for this folder now. The `.claude` of `user_home` is the user's own.

    Without `above` the folders above it are left out, of what is there as of what the yes was given to.
    """
    found = collect(Path(folder), user_home, above=above)
    if not found.files.keys() - {PROJECT}:
        return Trust(state="nothing", folder=folder)
    record = _RECORDS.get(leadrope_home, folder)
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
    _RECORDS.put(leadrope_home, trust.folder, _Record(files=trust.files))


def forget(leadrope_home: Path, folder: str) -> bool:
    return _RECORDS.remove(leadrope_home, folder)
