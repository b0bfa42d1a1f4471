"""Whether the user trusts what a repository would run on this machine.

A repository's settings, hooks, servers and agents are ignored until they are trusted. Trust covers the files as they
were when it was given; any change requires it anew.
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
    """Files added, removed or changed since trust was given."""
    folders: tuple[str, ...] = ()
    """Real folders all of whose files are included."""
    problem: str = ""
    """Why these files cannot be trusted; empty if they can."""

    def kept(self) -> tuple[str, ...]:
        """The real paths that must not change while trust applies: the agent reads them again as it works."""
        real = {*self.folders, *(real_path(Path(self.folder, name)) for name in self.files)}
        inner = {path for path in real for folder in self.folders if path.startswith(f"{folder}/")}
        return tuple(sorted(real - inner))


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    files: dict[str, str]


_RECORDS = TrustRecords(FILE, _Record)
"""By folder."""


def look(leadrope_home: Path, folder: str, user_home: Path | None = None, *, above: bool = True) -> Trust:
    """Return the current trust of this folder. The `.claude` of `user_home` is the user's own and excluded.

    Without `above`, parent folders are ignored, both in the current files and in the trusted ones.
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
    """Return the trust of the working directory and of a run's other folders, where the agent reads subagents and
    skills too.
    """
    others = (look(leadrope_home, folder, user_home, above=False) for folder in extra_dirs.paths(added))
    return (look(leadrope_home, cwd, user_home), *others)


def remember(leadrope_home: Path, trust: Trust) -> None:
    """Store the user's trust in these files as they are in `trust`, not as they may have become since."""
    if trust.problem:
        raise errors.BadDirectory(
            f"{trust.folder} cannot be trusted: {trust.problem}",
            hint="Nobody could tell when that changes. Make it smaller, or a folder of the repository's own.",
        )
    _RECORDS.put(leadrope_home, trust.folder, _Record(files=trust.files))


def forget(leadrope_home: Path, folder: str) -> bool:
    return _RECORDS.remove(leadrope_home, folder)
