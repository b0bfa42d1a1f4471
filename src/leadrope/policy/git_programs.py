"""The programs that git's settings name: their files, and whether a reading command starts any. Pure.

Git takes programs from its settings: hooks, filters, drivers, helpers, aliases, editors. A workspace file that is named
there runs the next time the user calls git, so writing it needs approval.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
from collections.abc import Iterable, Iterator

import msgspec

from leadrope.regex import regex

FOLDERS = ("core.hookspath", "init.templatedir")
INCLUDES = ("include.path", "includeif.*.path")
COMMANDS = (
    *("alias.*", "browser.*.cmd", "core.alternaterefscommand", "core.askpass", "core.editor", "core.fsmonitor"),
    *("core.gitproxy", "core.pager", "core.sshcommand", "credential.helper", "credential.*.helper", "diff.external"),
    *("diff.*.command", "diff.*.textconv", "difftool.*.cmd", "difftool.*.path", "filter.*.clean", "filter.*.process"),
    *(
        "filter.*.smudge",
        "gpg.program",
        "gpg.*.program",
        "gpg.ssh.defaultkeycommand",
        "guitool.*.cmd",
        "hook.*.command",
    ),
    *("interactive.difffilter", "man.*.cmd", "merge.*.driver", "mergetool.*.cmd", "mergetool.*.path", "pager.*"),
    *("remote.*.receivepack", "remote.*.uploadpack", "sendemail.*cmd", "sequence.editor", "submodule.*.update"),
    *("tar.*.command", "trailer.*.cmd", "trailer.*.command", "uploadpack.packobjectshook"),
)
"""Settings whose value is, or may be, a command line."""

# What `git status`, `git diff`, `git log` and `git show` run by themselves. No pager: their output is not a terminal.
READING = (
    *("core.fsmonitor", "diff.external", "diff.*.command", "diff.*.textconv"),
    *("filter.*.clean", "filter.*.process", "filter.*.smudge"),
)
FORMATS = ("format.pretty", "pretty.*")
_OFF = ("false", "no", "off", "0", "")
_LFS = regex(r"git-lfs (?:clean -- %f|smudge(?: --skip)? -- %f|filter-process(?: --skip)?)")
"""What `git lfs install` writes; it runs a program of the system."""

_WRAPPERS = frozenset({"env", "exec", "command", "nice", "time", "sudo"})
_INTERPRETERS = regex(r"(?:ba|da|k|z)?sh|python[\d.]*|node|deno|bun|ruby|perl|php|uv|npx|tsx")
_SEPARATORS = regex(r"&&|\|\||[;|&()\n]")


Setting = tuple[str, str | None, str]
"""The name as git prints it, the value, and the file that contains it (empty if none does)."""


class NamedByGit(msgspec.Struct, frozen=True, kw_only=True):
    """Absolute paths named by settings, whether or not they exist."""

    files: tuple[str, ...] = ()
    includes: tuple[str, ...] = ()
    """Further settings files."""
    folders: tuple[str, ...] = ()
    """Folders of hooks."""


def named(settings: Iterable[Setting], *, top: str, home: str) -> NamedByGit:
    """Returns the paths that the settings name. `top` is the folder in which git runs its programs."""
    files: dict[str, None] = {}
    includes: dict[str, None] = {}
    folders: dict[str, None] = {}
    for name, value, file in settings:
        if not value:
            continue
        if _is(name, FOLDERS):
            folders.setdefault(_absolute(value, top, home))
        elif _is(name, INCLUDES):
            where = os.path.dirname(file) if file else top  # noqa: PTH120
            includes.setdefault(_absolute(value, where, home))
        elif _is(name, COMMANDS) and (value.startswith("!") or not name.startswith("alias.")):
            for word in _programs(value.removeprefix("!")):
                files.setdefault(_absolute(word, top, home))
    return NamedByGit(files=tuple(files), includes=tuple(includes), folders=tuple(folders))


def runs_by_reading(settings: Iterable[Setting]) -> str | None:
    """Returns the first setting that makes a reading command start a program; None if there is none."""
    shows_signatures = False
    for name, given, _ in settings:
        value = (given if given is not None else "true").strip()
        is_on = value.lower() not in _OFF
        if _is(name, READING) and is_on and not _LFS.fullmatch(value):
            return name
        # Objects missing in a partial clone are fetched when needed, also by `git show`.
        if name == "extensions.partialclone" or fnmatch.fnmatchcase(name, "remote.*.promisor"):
            return name
        # A format may include signatures, which the signing program verifies.
        if _is(name, FORMATS) and "%g" in value.lower():
            return name
        if name == "log.showsignature":
            shows_signatures = is_on
    return "log.showsignature" if shows_signatures else None


def may_start(name: str) -> bool:
    """Whether this setting names a program, or leads to hooks or to further settings."""
    return _is(name, (*COMMANDS, *FOLDERS, *INCLUDES, *READING))


def hooks_path(settings: Iterable[Setting], *, top: str, home: str) -> str | None:
    """Returns the last value of the hooks path; None if hooks are in the git folder."""
    found = [value for name, value, _ in settings if name == "core.hookspath" and value]
    return _absolute(found[-1], top, home) if found else None


def _is(name: str, patterns: tuple[str, ...]) -> bool:
    # A plain name is compared directly: compiling all of them takes longer than git itself.
    name = name.lower()
    return any(fnmatch.fnmatchcase(name, pattern) if "*" in pattern else name == pattern for pattern in patterns)


def _absolute(path: str, folder: str, home: str) -> str:
    if path == "~" or path.startswith("~/"):
        path = home + path[1:]
    return os.path.normpath(os.path.join(folder, path))  # noqa: PTH118


def _programs(command: str) -> Iterator[str]:
    """Yields the programs and interpreter scripts in a command line that may be files of a folder."""
    for piece in _SEPARATORS.split(command):
        try:
            words = shlex.split(piece)
        except ValueError:
            words = piece.split()
        is_script = False
        for word in words:
            name = os.path.basename(word)  # noqa: PTH119
            if not is_script and re.fullmatch(r"\w+=.*", word, re.DOTALL):
                continue
            if is_script and word.startswith("-"):
                continue
            if "/" in word or is_script:
                yield word
            if name in _WRAPPERS or _INTERPRETERS.fullmatch(name):
                is_script = True
                continue
            break
