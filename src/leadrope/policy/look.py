"""One call as the rules see it: its class, paths, hosts, and the programs its command would start, each found once."""

from __future__ import annotations

import functools
import posixpath
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from leadrope.core.tools import PATH_FIELDS, ToolCall, ToolClass, class_of, edited_path
from leadrope.policy import hosts
from leadrope.policy.paths import Ground

if TYPE_CHECKING:
    from leadrope.policy.shell import Program, Reading

# Tools whose `command` is a line for bash, and tools that run text which nobody here can read.
SHELL_TOOLS = ("Bash", "Monitor")
UNREADABLE_TOOLS = ("PowerShell", "REPL")
# Written by a redirection without leaving anything behind.
NOWHERE = ("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty")
_WRITTEN_FIELDS = ("content", "new_string", "new_source")
# Programs that change what their arguments name without writing to it. What is written is the reader's to tell.
_CHANGERS = frozenset(("chmod", "chown", "install", "mkdir", "rm", "rmdir", "shred", "touch", "truncate", "unlink"))
# Commands of git that put another version of what they name in its place, or take it away.
_GIT_CHANGERS = frozenset(("checkout", "restore", "rm", "mv", "clean"))
# Where a search names files in another field than the folder to begin at.
_PATH_PATTERNS = {"Glob": "pattern", "Grep": "glob"}
_UNKNOWN = "?"


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known beside the call itself."""

    person: bool = True
    """Somebody can be asked. (An ask that nobody answers is a no, here or later.)"""
    sandboxed: bool = False
    """The call runs in a sandbox that holds: blocked programs and paths are masked in it, protected paths read-only."""
    tool_calls: int = 0
    """Calls that were let through before this one."""
    home: str | None = None
    """The user's home, for `~/` in patterns; None: this process's."""
    is_own: bool = False
    """The text stands so in a file that the user wrote and started himself; no agent and no input had a hand in it."""
    is_masked: bool = False
    """It runs behind walls in which nothing that is blocked can be started, in whatever words."""


class Look:
    """A call, looked at from a ground. Everything is found when it is first asked for, and once."""

    def __init__(self, call: ToolCall, ground: Ground) -> None:
        self.call = call
        self.ground = ground

    @functools.cached_property
    def kind(self) -> ToolClass:
        """The tool's class, with an edit told inside from outside. An edit without a path is outside."""
        kind = class_of(self.call.name)
        if kind != "edit":
            return kind
        path = edited_path(self.call)
        # A `~` is a shell's to expand; to an edit tool it is a name, or an error.
        inside = path is not None and not path.startswith("~") and self.ground.is_inside(path)
        return "edit" if inside else "edit_outside"

    @property
    def is_edit(self) -> bool:
        return self.kind in ("edit", "edit_outside")

    @functools.cached_property
    def command(self) -> str | None:
        """The command line, for tools that have one."""
        if self.call.name not in SHELL_TOOLS:
            return None
        command = self.call.input.get("command")
        return command if isinstance(command, str) else None

    @functools.cached_property
    def program_names(self) -> frozenset[str] | None:
        """What the programs of the line are called; None where one of them is not known.

        Most rules speak of other programs, and a hundred of them are asked about each line.
        """
        names: set[str] = set()
        for program in self.reading.programs if self.reading is not None else ():
            word = program.words[0]
            if word is None:
                return None
            names |= {word.rpartition("/")[2], posixpath.normpath(word).rpartition("/")[2]}
        return frozenset(names)

    @functools.cached_property
    def reading(self) -> Reading | None:
        """What the call would start; None for tools that start nothing by text."""
        if self.call.name not in SHELL_TOOLS + UNREADABLE_TOOLS:
            return None
        from leadrope.policy import shell  # noqa: PLC0415  # its parser costs 30 ms, and many runs start no command

        if self.call.name in UNREADABLE_TOOLS:
            return shell.Reading(programs=(), opaque=(f"{self.call.name} runs text that is not a shell's",), writes=())
        if self.command is None:
            return shell.Reading(programs=(), opaque=("the call has no command",), writes=())
        return shell.read(self.command)

    @functools.cached_property
    def paths(self) -> tuple[tuple[str, ...], ...]:
        """The spellings of each path that the call's own fields name."""
        named = (value for field in PATH_FIELDS if isinstance(value := self.call.input.get(field), str))
        return tuple(found for path in named if (found := self.ground.spellings(path)))

    @functools.cached_property
    def searched_paths(self) -> tuple[tuple[str, ...], ...]:
        """The spellings of a pattern of files that a search names, as if it were a path."""
        pattern = self.call.input.get(_PATH_PATTERNS.get(self.call.name, ""))
        where = edited_path(self.call)
        return tuple(self._spelled([(pattern, where)])) if isinstance(pattern, str) else ()

    @functools.cached_property
    def written(self) -> tuple[tuple[str, ...], ...]:
        """The spellings of each path that the call would write or change, as far as its text tells."""
        return self.paths if self.is_edit else tuple(self._spelled(self._written_words()))

    @functools.cached_property
    def writes_unknown(self) -> bool:
        """The command writes to a place that is not known."""
        return any(_UNKNOWN in (path, cwd) for path, cwd in self._written_words() if not path.startswith("/"))

    @functools.cached_property
    def named_by_command(self) -> tuple[tuple[str, ...], ...]:
        """The spellings of each word of the command that could be a path."""
        programs = self.reading.programs if self.reading else ()
        words = [(path, program.cwd) for program in programs for path in _path_words(program)]
        return tuple(self._spelled((*words, *self._written_words())))

    def _written_words(self) -> Iterator[tuple[str, str | None]]:
        if self.reading is None:
            return
        # The reader has followed the line's `cd`: a write is told from where the line began.
        yield from ((path, None) for path in self.reading.writes if path not in NOWHERE)
        for program in self.reading.programs:
            name = (program.words[0] or "").rpartition("/")[2]
            if name in _CHANGERS or (name == "git" and not _GIT_CHANGERS.isdisjoint(program.words)):
                yield from ((path, program.cwd) for path in _path_words(program))

    def _spelled(self, found: Iterable[tuple[str, str | None]]) -> Iterator[tuple[str, ...]]:
        for path, cwd in found:
            if path != _UNKNOWN and (spellings := self.ground.spellings(path, cwd=cwd)):
                yield spellings

    @functools.cached_property
    def size(self) -> int:
        """Bytes of text that the call would write."""
        return sum(len(text.encode("utf-8", "surrogatepass")) for text in _texts(self.call.input))

    @functools.cached_property
    def host(self) -> str | None:
        """Where a WebFetch leads; None if that cannot be told."""
        return hosts.host_of(self.call.input.get("url"))

    @functools.cached_property
    def searched(self) -> tuple[str | None, ...]:
        """The hosts that a WebSearch limits itself to."""
        wanted = self.call.input.get("allowed_domains")
        if not isinstance(wanted, list):
            return ()
        return tuple(hosts.host_of(f"http://{host}") if isinstance(host, str) else None for host in wanted)

    def described(self) -> str:
        """How the command was read, for people."""
        reading = self.reading
        if reading is None:
            return ""
        lines = [f"runs {_shown(program)}" for program in reading.programs]
        lines += [f"writes {'somewhere' if path == _UNKNOWN else path}" for path in reading.writes]
        lines += [f"cannot be read: {why}" for why in (*reading.opaque, *reading.unknown)]
        return "\n".join(lines) or "runs nothing"


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in _WRITTEN_FIELDS and isinstance(inner, str):
                yield inner
            elif key == "edits":
                yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _path_words(program: Program) -> Iterator[str]:
    for word in program.words[1:]:
        if word is None:
            continue
        if not word.startswith("-"):
            yield word
        # --file=PATH, of=PATH
        _, equals, value = word.partition("=")
        if equals and value:
            yield value


def _shown(program: Program) -> str:
    words = " ".join("?" if word is None else word for word in program.words)
    through = f" (through {' '.join(program.wrappers)})" if program.wrappers else ""
    where = f" (in {program.cwd})" if program.cwd else ""
    return words + through + where
