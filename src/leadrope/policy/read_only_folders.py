"""Finds calls that write, or might write, into a folder that the run may only read."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence

from leadrope.policy import paths
from leadrope.policy.call_analysis import Look
from leadrope.policy.findings import Finding
from leadrope.regex import regex

RULE = "extra_dirs"
_STARS = regex(r"[*?\[]")


def check(folders: Sequence[str], look: Look) -> Iterator[Finding]:
    """Checks the written paths. Of nested folders the innermost counts: a workspace may lie in a read-only folder."""
    for spellings in look.written:
        for path in spellings:
            if folder := _read_only(path, folders, look):
                yield Finding("deny" if _is_certain(look) else "unknown", f"this run can only read {folder}", folder)
    if look.reading is None:
        return
    if look.writes_unknown:
        yield Finding("unknown", "it is not known which file the command writes", folders[0])
    for text, cwd in (*look.written_patterns, *look.changed_trees):
        for path in look.ground.spellings(text, cwd=cwd):
            fixed = _fixed(path)
            below = next((folder for folder in folders if folder.startswith(fixed.rstrip("/") + "/")), None)
            if folder := _read_only(fixed, folders, look) or below:
                yield Finding("unknown", f"the command may change {folder}, and this run can only read that", folder)


def _is_certain(look: Look) -> bool:
    """Whether the writes are certain.

    The texts of an unknown tool need not be paths that it writes, and a link does not change its target.
    """
    return look.is_edit or (look.reading is not None and not look.makes_links)


def _read_only(path: str, folders: Sequence[str], look: Look) -> str | None:
    around = [one for one in (*look.ground.roots, *folders) if paths.is_below(path, one)]
    innermost = max(around, key=len, default=None)
    return innermost if innermost in folders else None


def _fixed(path: str) -> str:
    """Returns the part of a path before the first name with a wildcard."""
    found = _STARS.search(path)
    return posixpath.dirname(path[: found.start()]) if found else path
