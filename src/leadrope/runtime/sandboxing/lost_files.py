"""Finds files that a command wrote to the sandbox's own home or /tmp, and that somebody will miss when they vanish.

Files in caches and dot folders are ignored. A plain file in the home folder is somebody's work, and so is whatever the
command itself names, including in /tmp. Pure.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

SCRATCH = ("/tmp", "/var/tmp")  # noqa: S108  # names; nothing is opened
SLACK_NS = 50_000_000
"""The kernel's clock for file times is a few milliseconds behind."""
MOST_TOLD = 20
_CACHES = (
    *(".cache", ".npm", ".yarn", ".pnpm-store", ".bun", ".deno", ".node-gyp", ".electron-gyp", ".cargo", ".rustup"),
    *(".gradle", ".m2", ".ivy2", ".sbt", ".nuget", ".dotnet", ".composer", ".gem", ".bundle", ".pub-cache", ".conda"),
    *(".matplotlib", ".ipython", ".jupyter", ".keras", ".nv", ".pki", ".java", ".local/state", ".local/share/pnpm"),
    *("go/pkg", "go/bin", "nltk_data", "scikit_learn_data", "perl5", "snap"),
)
"""Folders in a home that programs fill by themselves, whatever the command."""
_ENDS = r"""[^\s'"`;|&<>(){}\[\]*?\\$,]*"""
"""A path as far as it is literal: up to a character that ends a word or that a shell expands."""


class Trace(msgspec.Struct, frozen=True):
    path: str
    is_folder: bool
    changed_ns: int


class NamedPath(msgspec.Struct, frozen=True):
    """A path in the text of a command."""

    path: str
    is_whole: bool
    """False: the text continues with something that a shell expands."""


def read_traces(listing: bytes) -> list[Trace]:
    """Parse the sandbox's listing. A command may have tampered with it, so invalid entries are dropped."""
    found = []
    for entry in listing.split(b"\0"):
        kind, _, rest = entry.partition(b" ")
        time, _, path = rest.partition(b" ")
        if kind in (b"d", b"f") and time.isdigit() and path.startswith(b"/"):
            found.append(Trace(os.fsdecode(path), kind == b"d", int(time)))
    return found


class LostFiles:
    """The lost files of one sandbox; each is reported once."""

    def __init__(self, home: str) -> None:
        self._home = home.rstrip("/")
        self._told: set[str] = set()

    def of(self, text: str, traces: Iterable[Trace], *, since_ns: int, others: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the files that this command has written and that will be missed, a few at most.

        `since_ns`: when it began. `others` are the texts of concurrent commands, which may have written what this one
        does not name.
        """
        fresh = [one for one in traces if one.changed_ns >= since_ns - SLACK_NS and one.path not in self._told]
        named = tuple(named_in(text, self._home)) if fresh else ()
        above = {os.path.dirname(one.path) for one in fresh}  # noqa: PTH120  # text only
        found = [
            one.path
            for one in fresh
            if not (one.is_folder and one.path in above) and self._is_missed(one.path, named, is_alone=not others)
        ]
        self._told.update(found)
        return tuple(sorted(found)[:MOST_TOLD])

    def _is_missed(self, path: str, named: tuple[NamedPath, ...], *, is_alone: bool) -> bool:
        # A file that two commands name is reported once, by the first that ends.
        is_named = any(_names(one, path) for one in named)
        if not _is_at(path, self._home):
            return is_named
        below = path.removeprefix(f"{self._home}/")
        if is_cache(below):
            return False
        is_own_business = any(part.startswith(".") for part in below.split("/"))
        return is_named or (is_alone and not is_own_business)


def is_cache(below_home: str) -> bool:
    return any(_is_at(below_home, cache) for cache in _CACHES)


def named_in(text: str, home: str) -> Iterator[NamedPath]:
    """Yield the paths in the home folder and in /tmp that a command's text contains, in any spelling."""
    roots = {"~": home, "$HOME": home, "${HOME}": home, home: home, **{path: path for path in SCRATCH}}
    spelled = "|".join(re.escape(root) for root in sorted(roots, key=len, reverse=True))
    for found in re.finditer(rf"(?<![\w/.~-])({spelled})(/{_ENDS})", text):
        follows = text[found.end() : found.end() + 1]
        path = os.path.normpath(roots[found[1]] + found[2])
        if found[2].strip("/"):
            yield NamedPath(path, follows not in ("*", "?", "[", "$", "{", "(", "`", "\\"))


def _names(named: NamedPath, path: str) -> bool:
    return _is_at(path, named.path) or (not named.is_whole and path.startswith(named.path))


def _is_at(path: str, place: str) -> bool:
    return path == place or path.startswith(f"{place}/")
