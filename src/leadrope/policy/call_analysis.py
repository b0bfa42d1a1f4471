"""One call as the rules see it: its class, paths, hosts, and the programs its command would start, each found once."""

from __future__ import annotations

import functools
import itertools
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec

from leadrope.core.tools import PATH_FIELDS, ToolCall, ToolClass, class_of, edited_path
from leadrope.policy import hosts
from leadrope.policy.paths import Ground
from leadrope.regex import regex

if TYPE_CHECKING:
    from leadrope.policy.shell.reading import Program, Reading

# Tools whose `command` is a line for bash, and tools that run text which nobody here can read.
SHELL_TOOLS = ("Bash", "Monitor")
UNREADABLE_TOOLS = ("PowerShell", "REPL")
# Written by a redirection without leaving anything behind.
NOWHERE = ("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty")
_WRITTEN_FIELDS = ("content", "new_string", "new_source")
# Programs that change what their arguments name without writing to it. What is written is the reader's to tell.
_CHANGERS = frozenset(
    "chgrp chmod chown install mkdir mkfifo mknod mktemp rm rmdir shred touch truncate unlink".split()  # noqa: SIM905
)
# Commands of git that put another version of what they name in its place, or take it away.
_GIT_CHANGERS = frozenset(
    ("checkout", "restore", "rm", "mv", "clean", "init", "update-index", "read-tree", "checkout-index")
)
# These take the paths that git changes from standard input.
_GIT_FED = frozenset(("--index-info", "--stdin", "--pathspec-from-file", "read-tree"))
_EVERYTHING = ("", ".", "./", ":/")
SEARCHES = ("Grep", "Glob", "LS")
"""Tools that go through a folder: the one that they name, or the working directory."""
# Where a search names files in another field than the folder to begin at.
_PATH_PATTERNS = {"Glob": "pattern", "Grep": "glob"}
_LINKING_COPY = regex(r"-[A-Za-z]*[ls]|--(?:li|sy)")
_STARS = frozenset("*?[")
_FILE_ADDRESS = regex(r"file:(?://[^/]*)?", re.IGNORECASE)
_MOST_STRINGS = 1000
_UNKNOWN = "?"


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known beside the call itself."""

    person: bool = True
    """Somebody can be asked. What nobody answers is denied."""
    sandboxed: bool = False
    """The call runs in a sandbox that holds: blocked programs and paths are masked in it, protected paths read-only."""
    tool_calls: int = 0
    """Calls that were let through before this one."""
    home: str | None = None
    """The user's home, for `~/` in patterns; None: this process's."""
    is_own: bool = False
    """The text stands so in a file that the user wrote and started himself; no agent and no input had a hand in it."""
    is_masked: bool = False
    """It runs behind sandbox in which nothing that is blocked can be started, in whatever words."""
    which: Callable[[str], str | None] | None = None
    """Where the agent's PATH finds a program. None: nobody looked, and a plain name counts as an installed program."""
    git_is_plain: bool = False
    """Git's settings where the call uses git name no program that reading (`status`, `diff`, `log`) would start."""
    variables: frozenset[str] = frozenset()
    """What the agent's environment sets: a variable may name a program, or a file of options."""
    finds: Callable[[str, Sequence[str]], str | None] | None = None
    """The first path below a folder that one of these patterns matches. None: nobody looked, so there may be one."""
    expands: Callable[[str], Sequence[str] | None] | None = None
    """What a pattern of absolute paths names on the disk, as the shell would find it; None: more than was looked at."""
    has_above: Callable[[str, Sequence[str]], bool] | None = None
    """Is a file of one of these names in a folder, or in one above it? None: nobody looked, so there may be one."""
    not_public: str = ""
    """Why the host of a WebFetch leads to an address that is not public, as resolving its name has shown."""
    is_request: bool = False
    """A workflow's own HTTP request: any method and body, to addresses that the step judges before it connects."""
    holds_secret: Callable[[str], bool] | None = None
    """Does this text hold a secret of the run? None: it has none."""


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
    def all_names(self) -> frozenset[str] | None:
        """What the programs of the line are called, those included that an unknown one may start; None where one of
        them is not known.

        Most rules speak of other programs, and a hundred of them are asked about each line.
        """
        names: set[str] = set()
        for program in (*self.reading.programs, *self.reading.maybe) if self.reading is not None else ():
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
        from leadrope.policy.shell import reader  # noqa: PLC0415  # its parser costs 30 ms, and many runs start no command

        if self.call.name in UNREADABLE_TOOLS:
            return reader.Reading(programs=(), opaque=(f"{self.call.name} runs text that is not a shell's",), writes=())
        if self.command is None:
            return reader.Reading(programs=(), opaque=("the call has no command",), writes=())
        return reader.read(self.command)

    @functools.cached_property
    def placed(self) -> Reading | None:
        """The reading as seen from the root where the agent's shell has left the workspace: `cd /`, then `rm -rf *`."""
        reading, cwd = self.reading, self.call.cwd
        if reading is None or not cwd or self.ground.is_inside(cwd):
            return reading
        programs = tuple(
            msgspec.structs.replace(program, cwd=posixpath.join(cwd, program.cwd or ""))
            for program in reading.programs
            if program.cwd != _UNKNOWN
        )
        writes = tuple(path if path == _UNKNOWN else posixpath.join(cwd, path) for path in reading.writes)
        return msgspec.structs.replace(reading, programs=programs, writes=writes)

    @functools.cached_property
    def paths(self) -> tuple[tuple[str, ...], ...]:
        """The spellings of each path that the call's own fields name."""
        named = [value for field in PATH_FIELDS if isinstance(value := self.call.input.get(field), str)]
        if class_of(self.call.name) == "other" or self.call.name == "LSP":
            # Whose fields are not known: any of its texts may be a path, or the address of a file.
            named += itertools.islice(_strings(self.call.input), _MOST_STRINGS)
        return tuple(found for path in dict.fromkeys(named) if (found := self.ground.spellings(_as_path(path))))

    @functools.cached_property
    def searched_paths(self) -> tuple[tuple[str, ...], ...]:
        """The spellings of a pattern of files that a search names, as if it were a path."""
        pattern = self.call.input.get(_PATH_PATTERNS.get(self.call.name, ""))
        where = edited_path(self.call)
        return tuple(self._spelled([(pattern, where)])) if isinstance(pattern, str) else ()

    @functools.cached_property
    def written(self) -> tuple[tuple[str, ...], ...]:
        """The spellings of each path that the call would write or change, as far as its text tells."""
        if self.is_edit or self.kind == "other":
            return self.paths
        return tuple(self._spelled(self._written_words()))

    @functools.cached_property
    def writes_unknown(self) -> bool:
        """The command writes to a place that is not known."""
        if any(_UNKNOWN in (path, cwd) for path, cwd in self._written_words() if not path.startswith("/")):
            return True
        return any(source is None for source, _, _ in self._links)

    @functools.cached_property
    def written_patterns(self) -> tuple[tuple[str, str | None], ...]:
        """What it writes where the shell completes the name."""
        return tuple(found for found in self._written_words() if not _STARS.isdisjoint(found[0]) and found[0] != "?")

    @functools.cached_property
    def changed_trees(self) -> tuple[tuple[str, str | None], ...]:
        """Folders that are moved away, deleted or written into as a whole."""
        found: list[tuple[str, str | None]] = []
        for program in self.reading.programs if self.reading is not None else ():
            name = (program.words[0] or "").rpartition("/")[2]
            operands = [word for word in program.words[1:] if word is not None and not word.startswith("-")]
            walks = any(_walks(word) for word in program.words[1:])
            # A second name of a file is a way to change it.
            links = name == "cp" and _makes_links(program)
            if name == "mv" or links or (name in ("rm", "chmod", "chown") and walks):
                found += [(word, program.cwd) for word in operands]
            elif name == "git" and "mv" in program.words:
                found += [(word, _git_folder(program)) for word in operands if word != "mv"]
            elif name == "rsync" or (name == "cp" and walks):
                found += [(word, program.cwd) for word in operands[-1:]]
        for deletion in self.reading.deletes if self.reading is not None else ():
            path = deletion.path
            # `git checkout -- DIR` rewrites a tree; without a folder it only brings back what was committed.
            whole = path.is_tree if deletion.kind == "delete" else path.prefix not in _EVERYTHING
            if whole and not path.is_unknown:
                found.append((path.prefix, path.cwd))
        return tuple(found)

    def _written_words(self) -> Iterator[tuple[str, str | None]]:
        if self.reading is None:
            return
        # The reader has followed the line's `cd`: a write is told from where the line began.
        yield from ((path, None) for path in self.reading.writes if path not in NOWHERE)
        for program in self.reading.programs:
            name = (program.words[0] or "").rpartition("/")[2]
            if name in _CHANGERS:
                yield from ((path, program.cwd) for path in _path_words(program))
                if None in program.words:
                    yield _UNKNOWN, program.cwd
            if name == "git" and not _GIT_CHANGERS.isdisjoint(program.words):
                yield from ((path, _git_folder(program)) for path in _path_words(program))
            if name == "git" and not _GIT_FED.isdisjoint(program.words):
                yield _UNKNOWN, program.cwd

    @property
    def makes_links(self) -> bool:
        """The line gives something a second name."""
        return bool(self._links)

    @functools.cached_property
    def _links(self) -> tuple[tuple[str | None, str, str | None], ...]:
        """Second names that the line itself makes: what is meant, the new name, and the folder both are seen from."""
        found: list[tuple[str | None, str, str | None]] = []
        for program in self.reading.programs if self.reading is not None else ():
            if not _makes_links(program):
                continue
            operands = [word for word in program.words[1:] if word is None or not word.startswith("-")]
            if None in operands or program.cwd == _UNKNOWN or any(_has_target(word) for word in program.words[1:]):
                found.append((None, "", program.cwd))
                continue
            sources = [word for word in operands[:-1] if word is not None] or operands
            target = (operands[-1] or "") if len(operands) > 1 else "."
            for source in sources:
                last = (source or "").rstrip("/").rpartition("/")[2]
                found += [(source, posixpath.join(target, last), program.cwd)]
                found += [(source, target, program.cwd)] if len(operands) == 2 else []
        return tuple(found)

    def _spelled(self, found: Iterable[tuple[str, str | None]]) -> Iterator[tuple[str, ...]]:
        for path, cwd in found:
            if path != _UNKNOWN and (spellings := self.ground.spellings(path, cwd=cwd)):
                yield self._through_links(spellings)

    def _through_links(self, spellings: tuple[str, ...]) -> tuple[str, ...]:
        """With the places that a name leads to through links which the same line makes."""
        more: list[str] = []
        for source, name, cwd in self._links if self.reading is not None else ():
            made = self.ground.spellings(name, cwd=cwd)[:1]
            rest = [spelling[len(made[0]) :] for spelling in spellings if made and _starts(spelling, made[0])]
            # The text of a link is seen from the folder that the link is in.
            beside = posixpath.dirname(made[0]) if made else None
            more += [path for r in rest for path in self.ground.spellings((source or "") + r, cwd=beside)]
            more += [path for r in rest for path in self.ground.spellings((source or "") + r, cwd=cwd)]
        return tuple(dict.fromkeys((*more, *spellings))) if more else spellings

    def only_reads(self, facts: Facts) -> bool:
        """A command that changes nothing: every program of it is known to read, and is the one that its name means."""
        reading = self.reading
        if self.command is None or reading is None or self.leaves_agent_sandbox:
            return False
        if re.match(r"/+(?:proc|dev)(?:/|\Z)", self.call.cwd or ""):
            return False  # what is read there is not a file of a project
        from leadrope.policy.programs.read_only import reads_only  # noqa: PLC0415  # with the tables of programs behind it

        needed = reads_only(reading)
        if needed is None or (needed.uses_git and not facts.git_is_plain):
            return False
        if not facts.variables.isdisjoint(needed.unset):
            return False
        if any(self._is_pinned(folder, files, facts) for folder, files in needed.pinned):
            return False
        return all(self._is_installed(name, facts) for name in needed.programs)

    def _is_pinned(self, folder: str | None, files: Sequence[str], facts: Facts) -> bool:
        """May a file of the project say which program the name starts?"""
        if facts.has_above is None:
            return True
        where = self.ground.spellings(folder or ".")
        return not where or any(facts.has_above(spelling, files) for spelling in where)

    def _is_installed(self, name: str, facts: Facts) -> bool:
        """Does this name lead to a program outside of what the agent can write?"""
        if facts.which is None and "/" not in name:
            return True
        path = name if "/" in name or facts.which is None else facts.which(name)
        if path is None or not posixpath.isabs(path):
            return False
        spellings = self.ground.spellings(path)
        return bool(spellings) and not any(self.ground.holds((found,)) or _is_shim(found) for found in spellings)

    @property
    def leaves_agent_sandbox(self) -> bool:
        """The call asks the agent to run it outside of the sandbox that the agent itself has built."""
        return self.call.input.get("dangerouslyDisableSandbox") is True

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
        lines += [f"cannot be read: {why}" for why in reading.opaque]
        lines += [f"is not known: {why}" for why in reading.unknown]
        # A newline inside a word must not look like a line of its own.
        return "\n".join(line.replace("\n", "\\n") for line in lines) or "runs nothing"


def _is_shim(path: str) -> bool:
    """Does a version manager stand at this path, and start what a file of the project says?"""
    from leadrope.policy.programs.read_tables import SHIM_FOLDERS, SHIM_PROGRAMS  # noqa: PLC0415  # only where a command reads

    folder, _, name = path.rpartition("/")
    return name in SHIM_PROGRAMS or not SHIM_FOLDERS.isdisjoint(folder.split("/"))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner)


def _as_path(text: str) -> str:
    found = _FILE_ADDRESS.match(text)
    return unquote(text[found.end() :]) if found else text


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
        # --file=PATH, of=PATH; update-index takes MODE,HASH,PATH
        for sign in "=,":
            value = word.rpartition(sign)[2] if sign == "," else word.partition(sign)[2]
            if sign in word and value:
                yield value


def _walks(word: str | None) -> bool:
    """May this option of cp, rm or chmod make it go through folders?"""
    if word is None or word.startswith("--"):
        return word is None or word in ("--recursive", "--archive")
    return word.startswith("-") and not {"r", "R", "a"}.isdisjoint(word)


def _makes_links(program: Program) -> bool:
    name = (program.words[0] or "").rpartition("/")[2]
    return name == "ln" or (name == "cp" and any(_LINKING_COPY.match(word or "") for word in program.words[1:]))


def _git_folder(program: Program) -> str | None:
    """Where git works: each `-C` is seen from the one before it."""
    where = program.cwd
    for place, word in enumerate(program.words[:-1]):
        if word == "-C":
            value = program.words[place + 1]
            where = _UNKNOWN if value is None or where == _UNKNOWN else posixpath.join(where or "", value)
    return where


def _has_target(word: str | None) -> bool:
    return word is not None and word.startswith(("-t", "--target"))


def _starts(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _shown(program: Program) -> str:
    words = " ".join("?" if word is None else word for word in program.words)
    through = f" (through {' '.join(program.wrappers)})" if program.wrappers else ""
    where = f" (in {program.cwd})" if program.cwd else ""
    return words + through + where
