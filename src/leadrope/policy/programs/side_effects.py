"""How one part of a command line affects a later one: files that it writes, variables that it sets.

A program that does what files say (make, python x.py, ./x, git with its hooks) is no longer harmless once the same
command line could have written those files; no program is once its folder, or PATH, may have changed.
"""

from __future__ import annotations

import functools
import posixpath
import re
from collections import Counter
from collections.abc import Iterator

import msgspec

from leadrope.policy.programs.effects import Role
from leadrope.policy.programs.leftovers import Leftovers, leftovers
from leadrope.policy.shell.words import UNKNOWN_PATH, Word, names
from leadrope.regex import regex

# Each write is compared with each program; this limits the work for a text of nothing but redirections.
MAX_WRITES = 200
_STREAMS = frozenset(("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"))
# Not .txt or .md: test runners take examples from them.
_OUTPUTS = regex(r"[^*?\[]*\.(?:log|out|err|csv|tap|html)\Z")
_LATER = 1 << 30
_PROGRAM_FOLDERS = frozenset(("bin", "sbin", "libexec"))
_SYSTEM = ("/usr", "/lib", "/etc", "/bin", "/sbin", "/opt", "/proc", "/sys")
# Its settings, its hooks, and the files that common hooks read.
_REACHES_GIT = regex(
    r"(?:^|/)(?:\.git(?:/|\Z|attributes|modules|config)|\.husky|hooks/|config\Z|\.config/|\.?lefthook|\.pre-commit"
    r"|\.lintstaged|package\.json)"
)
_HIDES = "where programs are started from"
_DOTTED = regex(r"\.[A-Za-z]\w*\Z")

# Variables that make known programs start others, or change which program a name means. Compiled when a variable is
# first set: that takes 15 ms, a tenth of a short workflow.
_DANGEROUS = (
    r"(?:GCONV_PATH|OPENSSL_\w+|LOCPATH|NLSPATH|MAN\w+|BAT_\w+|CURL_HOME|WGETRC|INPUTRC|TERMINFO\w*|TERMCAP|MAKEFILES"
    r"|\w+_(?:PAGER|EDITOR|BROWSER|ASKPASS|COMMAND|CMD|WRAPPER|SHELL|HOOK)|PATH|HOME|ENV|SHELL|SHELLOPTS|BASHOPTS|PS4|PROMPT_COMMAND|CDPATH|EXECIGNORE|FUNCNEST|POSIXLY_CORRECT|PAGER"
    r"|MANPAGER|BROWSER|EDITOR|VISUAL|FCEDIT|LESS|LESSOPEN|LESSCLOSE|LESSKEY\w*|MORE|MAKEFLAGS|MFLAGS|GNUMAKEFLAGS"
    r"|TAR_OPTIONS|TAPE|RSYNC_\w+|RSH|GIT_\w+|SSH_\w+|GPG\w*|LD_\w+|DYLD_\w+|BASH\w*|PERL\w*|RUBY\w*|NODE_OPTIONS"
    r"|NODE_PATH|NPM_\w+|JAVA\w*|_JAVA\w*|JDK_\w+|XDG_\w+|GREP_\w+|RIPGREP_\w+|ZDOTDIR|FPATH|TMUX\w*|AWK\w*|GAWK\w*"
    r"|PYTHON(?!PATH\Z|DONTWRITEBYTECODE\Z|UNBUFFERED\Z|HASHSEED\Z|WARNINGS\Z|IOENCODING\Z|UTF8\Z)\w*"
    r"|COMP_\w+|COMPREPLY|DIRSTACK|OPTIND|HISTCMD|RANDOM|SRANDOM|SECONDS|LINENO|UID|EUID|PPID|GROUPS|IGNOREEOF|_)\Z"
)
_HARMLESS = names(
    """NODE_ENV CI DEBUG LANG LANGUAGE TZ FORCE_COLOR NO_COLOR TERM PORT RUST_BACKTRACE RUST_LOG LOG_LEVEL COLUMNS
    LINES IFS PYTHONPATH PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED PYTHONHASHSEED PYTHONWARNINGS
    PYTHONIOENCODING PYTHONUTF8 DISPLAY CGO_ENABLED GOOS GOARCH DJANGO_SETTINGS_MODULE FLASK_APP FLASK_ENV
    APP_ENV RAILS_ENV TMPDIR CLICOLOR OPTARG REPLY CARGO_TERM_COLOR CARGO_INCREMENTAL DEBIAN_FRONTEND VERBOSE
    HUSKY NEXT_TELEMETRY_DISABLED PIP_NO_INPUT PYTHONNOUSERSITE PYTEST_XDIST_WORKER"""
)
# Rules of make and of other build tools run what these say.
_TOOLS = names("CC CXX LD AR AS CPP FC LINKER CFLAGS CXXFLAGS LDFLAGS RUSTFLAGS GOFLAGS RUSTC CARGO GO")
_MENTIONS_GIT = regex(r"\.git|COMMIT_EDITMSG|[*?\[]")
_PLAIN_VALUE = regex(r"[\d.:-]*\Z|(?:true|false|yes|no|on|off)\Z", re.IGNORECASE)


@functools.lru_cache(maxsize=1024)
def _is_dangerous(name: str) -> bool:
    return re.match(_DANGEROUS, name, re.IGNORECASE) is not None


class _Write(msgspec.Struct, frozen=True):
    order: int
    target: Word
    path: str
    own: int
    """When the writing program runs: its own output does not affect it."""


class _Start(msgspec.Struct, frozen=True):
    order: int
    role: Role
    name: str
    texts: tuple[str, ...]
    cwd: str | None
    is_sure: bool
    """All its words are known, and none is a pattern."""
    leaves: Leftovers


class Aftermath:
    """Writes, starts and assignments, in the order of the text."""

    def __init__(self) -> None:
        self._order = 1
        self._groups = 0
        self._writes: list[_Write] = []
        self._starts: list[_Start] = []
        self._links: set[str] = set()
        self._reasons: dict[str, None] = {}
        self._carried: list[str] = []
        """Set to something other than a number, and possibly in the environment already."""
        self._passed: list[str] = []
        """Certainly in the environment of what follows."""

    def open_group(self) -> None:
        """Begins a pipeline: its parts run in parallel and count as simultaneous."""
        self._order += not self._groups
        self._groups += 1

    def close_group(self) -> None:
        self._groups -= 1

    def start(self, role: Role, words: list[Word], *, cwd: str | None, loose: bool, fed: bool) -> None:
        self._order += not self._groups
        texts = tuple(word.text for word in words if word.text is not None)
        self._starts.append(
            _Start(
                order=self._order + _LATER * loose,
                role=role,
                name=words[0].text or "",
                texts=texts,
                cwd=cwd,
                is_sure=len(texts) == len(words) and not any(word.glob for word in words),
                leaves=leftovers(role, words, fed=fed),
            )
        )

    def redirect(self, target: Word, cwd: str | None, *, loose: bool) -> None:
        """Notes the output of the program that starts next, which is not affected by its own output."""
        self._note(target, cwd, loose=loose, own=self._order + (not self._groups))

    def write(self, target: Word, cwd: str | None, *, loose: bool) -> None:
        self._note(target, cwd, loose=loose, own=self._order)

    def _note(self, target: Word, cwd: str | None, *, loose: bool, own: int) -> None:
        if target.text in _STREAMS:
            return
        path = UNKNOWN_PATH
        if target.text is not None and not target.splits and not target.glob:
            path = target.text
            if cwd is not None and path[:1] not in "/~":
                path = UNKNOWN_PATH if cwd == UNKNOWN_PATH else posixpath.join(cwd, path)
            if self.is_moved(path, None):
                path = UNKNOWN_PATH
        order = 0 if loose else own
        self._writes.append(_Write(order, target, path, own))

    def link(self, target: Word, cwd: str | None) -> None:
        """Notes that this name has become a link or another file, and leads elsewhere from here on."""
        path = UNKNOWN_PATH if target.text is None or target.splits or target.glob else target.text
        self._links.add(_joined(path, cwd))

    def is_moved(self, path: str, cwd: str | None) -> bool:
        """Whether this path leads over a name that the line has replaced."""
        if not self._links:
            return False
        whole = _joined(path, cwd)
        return UNKNOWN_PATH in (whole, *self._links) or any(
            whole == link or whole.startswith(f"{link}/") for link in self._links
        )

    def assign(self, name: str, value: Word, *, exported: bool) -> None:
        if _is_dangerous(name):
            self._reasons[f"{name} is set, which may change what is started"] = None
        elif name in _HARMLESS or name.startswith("LC_"):
            return
        elif name in _TOOLS and (value.text is None or re.search(r"[\s;&|$`<>(]", value.text)):
            self._reasons[f"{name} is set to a text that a build may run"] = None
        if exported and not (name in _HARMLESS or name.startswith("LC_")):
            self._passed.append(name)
        if (exported or name.isupper()) and (value.text is None or not _PLAIN_VALUE.match(value.text)):
            self._carried.append(name)

    def export(self, name: str) -> None:
        self.assign(name, Word(None), exported=True)

    def written(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(write.path for write in self._writes))

    def reasons(self) -> Iterator[tuple[str, bool]]:
        """Yields why the line is not clean, and whether that hides which programs it starts."""
        for reason in self._reasons:
            yield reason, True
        if self._carried and any(start.role not in ("inert", "builtin", "writer") for start in self._starts):
            yield f"{self._carried[0]} is set, which a program may run", False
        elif self._passed and any(start.role in ("inert", "writer", "git") for start in self._starts):
            yield f"{self._passed[0]} is set, and what a program makes of it is not known here", False
        for reason in self._left_behind():
            yield reason, any(start.name in ("source", ".") for start in self._starts)
        for start in self._starts:
            if start.role == "script" and start.cwd is not None and (start.cwd[:1] in "/~?" or ".." in start.cwd):
                yield f"{start.name} in a folder that is not known", False
        if len(self._writes) > MAX_WRITES:
            yield f"over {MAX_WRITES} files written", True
            return
        moments = Counter(start.order for start in self._starts)
        for write in self._writes:
            if reason := self._after(write, moments):
                yield reason, reason.endswith(_HIDES)

    def _left_behind(self) -> Iterator[str]:
        """Yields why a runner or a script may run what an earlier program of this line has left."""
        for start in self._starts:
            if start.role not in ("runner", "script"):
                continue
            for other in self._starts:
                if other is start or (other.order >= start.order and other.order < _LATER):
                    continue
                reads_git = not start.is_sure or start.cwd is not None or any(map(_MENTIONS_GIT.search, start.texts))
                if other.leaves == "anything" or (other.leaves == "git" and reads_git):
                    yield f"{start.name} after {other.name}, which may have written what it runs"
                elif not start.is_sure and other.leaves not in ("nothing", "project"):
                    yield f"{start.name} with a pattern, after {other.name} may have made files that it matches"

    def _after(self, write: _Write, moments: Counter[int]) -> str:
        """Returns why a program that starts after or during this write may not be what it seems."""
        where = _where(write)
        if where == "programs":
            return f"writes {write.path}, {_HIDES}"
        for start in self._starts:
            alone = start.order == write.own and moments[start.order] == 1
            if start.order < write.order or alone:
                continue
            plain = start.role in ("inert", "writer", "wrapper", "git")
            if plain and where == "anywhere" and len(self._starts) > 1:
                return f"{start.name} after something was written to a place that is not known"
            if start.role == "git" and (where in ("anywhere", "named") or _REACHES_GIT.search(write.path)):
                return f"{start.name} after files that it may obey were written"
            if start.role in ("runner", "script", "unknown") and not _is_output(write, start):
                if start.name in ("source", "."):
                    return f"{start.name} of a file that this line may have written, {_HIDES}"
                return f"{start.name} after files that it may run were written"
        return ""


def _joined(path: str, cwd: str | None) -> str:
    if path == UNKNOWN_PATH or (cwd == UNKNOWN_PATH and path[:1] not in "/~"):
        return UNKNOWN_PATH
    return posixpath.normpath(path if path[:1] in "/~" else posixpath.join(cwd or ".", path))


def _where(write: _Write) -> str:
    """Classifies a path.

    programs: where programs lie; anywhere: unknown; named: unknown, with a known ending; here: a known place.
    """
    path = write.path
    if path == UNKNOWN_PATH:
        if write.target.tail and _DOTTED.search(write.target.tail):
            return "named"
        lead = write.target.lead
        return "named" if write.target.glob and not lead.startswith(("/", "~", "*", "?", "[")) else "anywhere"
    normal = posixpath.normpath(path)
    if _PROGRAM_FOLDERS & set(normal.split("/")) or normal.startswith(_SYSTEM):
        return "programs"
    if normal.startswith(("/tmp/", "/var/tmp/", "/dev/")):  # noqa: S108 - a name in a text, not a file of ours
        return "here"
    return "anywhere" if normal.startswith(("/", "~", "..")) else "here"


def _is_output(write: _Write, start: _Start) -> bool:
    """Whether the write is a text file that the program's words do not name, also not by a pattern."""
    if not _OUTPUTS.match(write.path) or not start.is_sure:
        return False
    name = posixpath.basename(write.path)
    return not any(name in text for text in start.texts)
