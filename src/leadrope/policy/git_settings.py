"""Which changes of a repository's git settings may persist after an agent has ended; unlisted ones may not. Pure.

Almost every part of git can be configured to start a program: a file system monitor, a pager, an editor, a filter, a
credential helper, a transport. So only changes that are known to be harmless are kept, value by value. A URL that the
user has set is not changed either: the next `git push` would go elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from leadrope.regex import regex

Values = tuple[str | None, ...]
"""All values of one name, in order; None is a name without a value."""
Settings = Mapping[str, Values]
"""By name as git prints it: `remote.origin.url`, with section and variable in lower case."""

MOST_CHANGES = 200
"""A new clone has five settings, a repository with a hundred branches two hundred. Each change costs a call of git."""
_LONGEST = 2048

_BOOL = frozenset({"true", "false", "yes", "no", "on", "off", "1", "0"})
_PLAIN: Mapping[str, frozenset[str]] = {
    "advice": _BOOL,
    "color.ui": _BOOL | {"auto", "always", "never"},
    "core.autocrlf": _BOOL | {"input"},
    "core.eol": frozenset({"lf", "crlf", "native"}),
    "core.filemode": _BOOL,
    "core.ignorecase": _BOOL,
    "core.longpaths": _BOOL,
    "core.quotepath": _BOOL,
    "core.sparsecheckout": _BOOL,
    "core.sparsecheckoutcone": _BOOL,
    "diff.algorithm": frozenset({"default", "myers", "minimal", "patience", "histogram"}),
    "diff.renames": _BOOL | {"copies"},
    "fetch.prune": _BOOL,
    "fetch.prunetags": _BOOL,
    "index.sparse": _BOOL,
    "lfs.repositoryformatversion": frozenset({"0"}),
    "merge.conflictstyle": frozenset({"merge", "diff3", "zdiff3"}),
    "merge.ff": _BOOL | {"only"},
    "pull.ff": _BOOL | {"only"},
    "pull.rebase": _BOOL | {"merges"},
    "push.autosetupremote": _BOOL,
    "push.default": frozenset({"nothing", "current", "upstream", "simple"}),
    "push.followtags": _BOOL,
    "rebase.autosquash": _BOOL,
    "rebase.autostash": _BOOL,
    "rebase.updaterefs": _BOOL,
    "rerere.enabled": _BOOL,
}
"""Settings that git reads as one of these words, and as nothing else."""

# Only ordinary names of branches and remotes: no space, no quote, nothing that leads above its folder.
_NAME = regex(r"(?!.*\.\.)[\w][\w./+@#=-]{0,199}")
_REF = regex(r"refs/(?!.*\.\.)[\w./+@#=*-]{1,200}")
_REFSPEC = regex(r"\+?refs/(?!.*\.\.)[\w./*-]{1,200}:refs/(?:remotes|tags)/(?!.*\.\.)[\w./*-]{1,200}")
# A host that begins with a dash would be an option of ssh. `x::y` starts a program git-remote-x. A path is a repository
# whose hooks run on a push, and the agent may have created it.
_ADDRESS = regex(
    r"(?:https?|ssh|git)://(?:\w[\w.~%+-]*(?::[\w.~%+!*-]*)?@)?(?:\w[\w.-]*|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?(?:/[\w./~%+@=&?,-]*)?"
    r"|\w[\w.+-]*@\w[\w.-]*:[\w./~][\w./~%+@-]*",
    re.ASCII,
)

Kind = Literal["kept", "dropped"]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    before: Values
    after: Values
    kind: Kind


def judged(before: Settings, after: Settings) -> tuple[Change, ...]:
    """Returns every difference between the two, and whether it is kept."""
    rules = _Rules(before, after)
    names = [name for name in dict.fromkeys((*before, *after)) if before.get(name, ()) != after.get(name, ())]
    found: list[Change] = []
    for name in names:
        kind: Kind = "kept" if len(names) <= MOST_CHANGES and rules.allow(name) else "dropped"
        found.append(Change(name=name, before=before.get(name, ()), after=after.get(name, ()), kind=kind))
    return tuple(found)


class _Rules:
    def __init__(self, before: Settings, after: Settings) -> None:
        self._before, self._after = before, after
        self._parts: dict[str, Callable[[str, str], bool]] = {
            "remote": self._remote,
            "branch": self._branch,
            "submodule": self._submodule,
        }
        self._subsections = {_subsection(name) for name in before}, {_subsection(name) for name in after}

    def allow(self, name: str) -> bool:
        section, _, rest = name.partition(".")
        inner, _, variable = rest.rpartition(".")
        values = self._after.get(name, ())
        if any(value is None or len(value) > _LONGEST for value in values):
            return False
        if not inner:
            if section == "user" and variable in ("name", "email"):
                return all(value is not None and value.isprintable() for value in values)
            allowed = _PLAIN.get(name) or _PLAIN.get(section)
            return allowed is not None and all((value or "").lower() in allowed for value in values)
        part = self._parts.get(section)
        if part is None or not _NAME.fullmatch(inner):
            return False
        was, is_now = self._subsections
        if f"{section}.{inner}" in was and f"{section}.{inner}" not in is_now:
            return True  # the branch, remote or submodule was removed as a whole
        return part(inner, variable)

    def _remote(self, remote: str, variable: str) -> bool:
        name = f"remote.{remote}.{variable}"
        if variable in ("url", "pushurl"):
            is_new = f"remote.{remote}" not in self._subsections[0]
            return is_new and (self._is_moved("remote", variable, name) or self._all(name, _ADDRESS))
        if f"remote.{remote}" not in self._subsections[0] and not self._is_remote(remote):
            return False  # without its URL the rest means nothing
        if variable == "fetch":
            return self._all(name, _REFSPEC)
        if variable in ("prune", "prunetags"):
            return self._words(name, _BOOL)
        return variable == "tagopt" and self._words(name, frozenset({"--tags", "--no-tags"}))

    def _branch(self, branch: str, variable: str) -> bool:
        name = f"branch.{branch}.{variable}"
        if variable in ("remote", "pushremote"):
            known = self._is_mine if self._before.get(name) else self._is_remote
            return all(value == "." or known(value or "") for value in self._after.get(name, ()))
        if variable == "merge":
            return self._all(name, _REF) and self._branch(branch, "remote")
        if variable == "rebase":
            return self._words(name, _BOOL | {"merges"})
        return self._is_moved("branch", variable, name)

    def _submodule(self, module: str, variable: str) -> bool:
        name = f"submodule.{module}.{variable}"
        if variable == "url":
            return not self._before.get(name) and self._all(name, _ADDRESS)
        if variable == "active":
            return self._words(name, _BOOL)
        return variable == "update" and self._words(name, frozenset({"checkout", "rebase", "merge", "none"}))

    def _is_remote(self, remote: str) -> bool:
        """Whether the word names a remote; git takes any other word for a URL."""
        is_new = f"remote.{remote}" not in self._subsections[0]
        return bool(self._after.get(f"remote.{remote}.url")) and (not is_new or self.allow(f"remote.{remote}.url"))

    def _is_mine(self, remote: str) -> bool:
        """Whether the remote is one of the user's, possibly under another name."""
        urls = self._after.get(f"remote.{remote}.url")
        is_old = f"remote.{remote}" in self._subsections[0]
        return self._is_remote(remote) and (is_old or urls in self._all_values("remote", "url"))

    def _is_moved(self, section: str, variable: str, name: str) -> bool:
        """Whether `branch -m` or `remote rename` has moved this setting along."""
        values = self._after.get(name, ())
        return not values or values in self._all_values(section, variable)

    def _all_values(self, section: str, variable: str) -> list[Values]:
        return [
            values
            for name, values in self._before.items()
            if name.startswith(f"{section}.") and name.endswith(f".{variable}")
        ]

    def _all(self, name: str, pattern: re.Pattern[str]) -> bool:
        return all(pattern.fullmatch(value or "") is not None for value in self._after.get(name, ()))

    def _words(self, name: str, words: frozenset[str]) -> bool:
        return all((value or "").lower() in words for value in self._after.get(name, ()))


def _subsection(name: str) -> str:
    return name.rpartition(".")[0]
