"""A tool call as the rules see it: its class, paths, hosts, and the programs that its command would start."""

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

# Tools whose `command` is a bash command line, and tools that run text that is not parsed here.
SHELL_TOOLS = ("Bash", "Monitor")
UNREADABLE_TOOLS = ("PowerShell", "REPL")
# Redirections to these leave nothing behind.
NOWHERE = ("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty")
_WRITTEN_FIELDS = ("content", "new_string", "new_source")
# Programs that change what their arguments name without writing to it. The reader reports what is written.
_CHANGERS = frozenset(
    "chgrp chmod chown install mkdir mkfifo mknod mktemp rm rmdir shred touch truncate unlink".split()  # noqa: SIM905
)
# git commands that replace or remove what they name.
_GIT_CHANGERS = frozenset(
    ("checkout", "restore", "rm", "mv", "clean", "init", "update-index", "read-tree", "checkout-index")
)
# These read the paths that git changes from standard input.
_GIT_FED = frozenset(("--index-info", "--stdin", "--pathspec-from-file", "read-tree"))
_EVERYTHING = ("", ".", "./", ":/")
SEARCHES = ("Grep", "Glob", "LS")
"""Tools that search a folder: the one they name, or the working directory."""
# Searches that name files in another field than the folder to start in.
_PATH_PATTERNS = {"Glob": "pattern", "Grep": "glob"}
_LINKING_COPY = regex(r"-[A-Za-z]*[ls]|--(?:li|sy)")
_STARS = frozenset("*?[")
_FILE_ADDRESS = regex(r"file:(?://[^/]*)?", re.IGNORECASE)
_MOST_STRINGS = 1000
_UNKNOWN = "?"


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known apart from the call itself."""

    person: bool = True
    """Whether somebody can be asked. What nobody can approve is denied."""
    sandboxed: bool = False
    """The call runs in a sandbox: blocked programs and paths are masked in it, protected paths are read-only."""
    tool_calls: int = 0
    """Number of calls that were allowed before this one."""
    home: str | None = None
    """The user's home, for `~/` in patterns; None for the home of this process."""
    is_own: bool = False
    """The text is unchanged from a file that the user wrote and started; no agent and no input contributed to it."""
    is_masked: bool = False
    """It runs in a sandbox in which no blocked program can be started, whatever the command's words are."""
    which: Callable[[str], str | None] | None = None
    """Finds a program on the agent's PATH. None: not checked, and a plain name counts as an installed program."""
    git_is_plain: bool = False
    """The git settings where the call uses git name no program that reading (`status`, `diff`, `log`) would start."""
    variables: frozenset[str] = frozenset()
    """The variables in the agent's environment: one of them may name a program, or a file of options."""
    finds: Callable[[str, Sequence[str]], str | None] | None = None
    """Returns the first path below a folder that matches one of these patterns. None: not checked, so there may be
    one."""
    expands: Callable[[str], Sequence[str] | None] | None = None
    """Expands a pattern of absolute paths as the shell would; it returns None if there are too many to check."""
    has_above: Callable[[str, Sequence[str]], bool] | None = None
    """Whether a file with one of these names is in a folder or one above it. None: not checked, so there may be one."""
    not_public: str = ""
    """Why the host of a WebFetch leads to an address that is not public, according to its resolved addresses."""
    is_request: bool = False
    """A workflow's own HTTP request: any method and body, to addresses that the step checks before it connects."""
    holds_secret: Callable[[str], bool] | None = None
    """Whether a text contains a secret of the run. None: the run has no secrets."""


class Look:
    """A call and what follows from it for the rules; every property is computed on first use and cached."""

    def __init__(self, call: ToolCall, ground: Ground) -> None:
        self.call = call
        self.ground = ground

    @functools.cached_property
    def kind(self) -> ToolClass:
        """The tool's class, with edits divided into inside and outside. An edit without a path is outside."""
        kind = class_of(self.call.name)
        if kind != "edit":
            return kind
        path = edited_path(self.call)
        # Only a shell expands a `~`; to an edit tool it is a name, or an error.
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
        """The names of the line's programs, including those that an unknown one may start; None if one is unknown.

        It lets callers skip rules about other programs, a hundred of which are checked for each line.
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
        """What the call would start; None for tools that start nothing from text."""
        if self.call.name not in SHELL_TOOLS + UNREADABLE_TOOLS:
            return None
        from leadrope.policy.shell import reader  # noqa: PLC0415  # its parser takes 30 ms to load, and many runs start no command

        if self.call.name in UNREADABLE_TOOLS:
            return reader.Reading(programs=(), opaque=(f"{self.call.name} runs text that is not a shell's",), writes=())
        if self.command is None:
            return reader.Reading(programs=(), opaque=("the call has no command",), writes=())
        return reader.read(self.command)

    @functools.cached_property
    def placed(self) -> Reading | None:
        """The reading relative to the root if the agent's shell has left the workspace: `cd /`, then `rm -rf *`."""
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
        """The spellings of each path in the call's own fields."""
        named = [value for field in PATH_FIELDS if isinstance(value := self.call.input.get(field), str)]
        if class_of(self.call.name) == "other" or self.call.name == "LSP":
            # The tool's fields are unknown: any of its texts may be a path, or the address of a file.
            named += itertools.islice(_strings(self.call.input), _MOST_STRINGS)
        return tuple(found for path in dict.fromkeys(named) if (found := self.ground.spellings(_as_path(path))))

    @functools.cached_property
    def searched_paths(self) -> tuple[tuple[str, ...], ...]:
        """The spellings of a search's file pattern, treated as a path."""
        pattern = self.call.input.get(_PATH_PATTERNS.get(self.call.name, ""))
        where = edited_path(self.call)
        return tuple(self._spelled([(pattern, where)])) if isinstance(pattern, str) else ()

    @functools.cached_property
    def written(self) -> tuple[tuple[str, ...], ...]:
        """The spellings of each path that the call would write or change, as far as its text shows."""
        if self.is_edit or self.kind == "other":
            return self.paths
        return tuple(self._spelled(self._written_words()))

    @functools.cached_property
    def writes_unknown(self) -> bool:
        """Whether the command writes to an unknown place."""
        if any(_UNKNOWN in (path, cwd) for path, cwd in self._written_words() if not path.startswith("/")):
            return True
        return any(source is None for source, _, _ in self._links)

    @functools.cached_property
    def written_patterns(self) -> tuple[tuple[str, str | None], ...]:
        """The written paths whose names the shell completes."""
        return tuple(found for found in self._written_words() if not _STARS.isdisjoint(found[0]) and found[0] != "?")

    @functools.cached_property
    def changed_trees(self) -> tuple[tuple[str, str | None], ...]:
        """Folders that are moved, deleted or written to as a whole."""
        found: list[tuple[str, str | None]] = []
        for program in self.reading.programs if self.reading is not None else ():
            name = (program.words[0] or "").rpartition("/")[2]
            operands = [word for word in program.words[1:] if word is not None and not word.startswith("-")]
            walks = any(_walks(word) for word in program.words[1:])
            # A file can be changed through a second name.
            links = name == "cp" and _makes_links(program)
            if name == "mv" or links or (name in ("rm", "chmod", "chown") and walks):
                found += [(word, program.cwd) for word in operands]
            elif name == "git" and "mv" in program.words:
                found += [(word, _git_folder(program)) for word in operands if word != "mv"]
            elif name == "rsync" or (name == "cp" and walks):
                found += [(word, program.cwd) for word in operands[-1:]]
        for deletion in self.reading.deletes if self.reading is not None else ():
            path = deletion.path
            # `git checkout -- DIR` rewrites a tree; without a folder it only restores what was committed.
            whole = path.is_tree if deletion.kind == "delete" else path.prefix not in _EVERYTHING
            if whole and not path.is_unknown:
                found.append((path.prefix, path.cwd))
        return tuple(found)

    def _written_words(self) -> Iterator[tuple[str, str | None]]:
        if self.reading is None:
            return
        # The reader has already applied the line's `cd`: these paths are relative to where the line began.
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
        """Whether the line creates links."""
        return bool(self._links)

    @functools.cached_property
    def _links(self) -> tuple[tuple[str | None, str, str | None], ...]:
        """The links that the line itself creates: target, new name, and the folder that both are relative to."""
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
        """Adds the paths that a name leads to through links created by the same line."""
        more: list[str] = []
        for source, name, cwd in self._links if self.reading is not None else ():
            made = self.ground.spellings(name, cwd=cwd)[:1]
            rest = [spelling[len(made[0]) :] for spelling in spellings if made and _starts(spelling, made[0])]
            # The text of a link is relative to the folder of the link.
            beside = posixpath.dirname(made[0]) if made else None
            more += [path for r in rest for path in self.ground.spellings((source or "") + r, cwd=beside)]
            more += [path for r in rest for path in self.ground.spellings((source or "") + r, cwd=cwd)]
        return tuple(dict.fromkeys((*more, *spellings))) if more else spellings

    def only_reads(self, facts: Facts) -> bool:
        """Whether the command changes nothing: all its programs are known to only read, and are the usual ones."""
        reading = self.reading
        if self.command is None or reading is None or self.leaves_agent_sandbox:
            return False
        if re.match(r"/+(?:proc|dev)(?:/|\Z)", self.call.cwd or ""):
            return False  # what is read there is not a file of a project
        from leadrope.policy.programs.read_only import reads_only  # noqa: PLC0415  # loads the tables of programs

        needed = reads_only(reading)
        if needed is None or (needed.uses_git and not facts.git_is_plain):
            return False
        if not facts.variables.isdisjoint(needed.unset):
            return False
        if any(self._is_pinned(folder, files, facts) for folder, files in needed.pinned):
            return False
        return all(self._is_installed(name, facts) for name in needed.programs)

    def _is_pinned(self, folder: str | None, files: Sequence[str], facts: Facts) -> bool:
        """Whether a file of the project may decide which program the name starts."""
        if facts.has_above is None:
            return True
        where = self.ground.spellings(folder or ".")
        return not where or any(facts.has_above(spelling, files) for spelling in where)

    def _is_installed(self, name: str, facts: Facts) -> bool:
        """Whether the name leads to a program outside of what the agent can write."""
        if facts.which is None and "/" not in name:
            return True
        path = name if "/" in name or facts.which is None else facts.which(name)
        if path is None or not posixpath.isabs(path):
            return False
        spellings = self.ground.spellings(path)
        return bool(spellings) and not any(self.ground.holds((found,)) or _is_shim(found) for found in spellings)

    @property
    def leaves_agent_sandbox(self) -> bool:
        """Whether the call asks to run outside of the agent's own sandbox."""
        return self.call.input.get("dangerouslyDisableSandbox") is True

    @functools.cached_property
    def size(self) -> int:
        """Number of bytes of text that the call would write."""
        return sum(len(text.encode("utf-8", "surrogatepass")) for text in _texts(self.call.input))

    @functools.cached_property
    def host(self) -> str | None:
        """The host of a WebFetch; None if it cannot be determined."""
        return hosts.host_of(self.call.input.get("url"))

    @functools.cached_property
    def searched(self) -> tuple[str | None, ...]:
        """The hosts to which a WebSearch is limited."""
        wanted = self.call.input.get("allowed_domains")
        if not isinstance(wanted, list):
            return ()
        return tuple(hosts.host_of(f"http://{host}") if isinstance(host, str) else None for host in wanted)

    def described(self) -> str:
        """Describes how the command was read, for people."""
        reading = self.reading
        if reading is None:
            return ""
        lines = [f"runs {_shown(program)}" for program in reading.programs]
        lines += [f"writes {'somewhere' if path == _UNKNOWN else path}" for path in reading.writes]
        lines += [f"cannot be read: {why}" for why in reading.opaque]
        lines += [f"is not known: {why}" for why in reading.unknown]
        # A newline inside a word must not look like the start of a new line.
        return "\n".join(line.replace("\n", "\\n") for line in lines) or "runs nothing"


def _is_shim(path: str) -> bool:
    """Whether a version manager's shim is at this path, which starts what a file of the project says."""
    from leadrope.policy.programs.read_tables import SHIM_FOLDERS, SHIM_PROGRAMS  # noqa: PLC0415  # only needed for commands that read

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
    """Whether this option of cp, rm or chmod makes it recursive."""
    if word is None or word.startswith("--"):
        return word is None or word in ("--recursive", "--archive")
    return word.startswith("-") and not {"r", "R", "a"}.isdisjoint(word)


def _makes_links(program: Program) -> bool:
    name = (program.words[0] or "").rpartition("/")[2]
    return name == "ln" or (name == "cp" and any(_LINKING_COPY.match(word or "") for word in program.words[1:]))


def _git_folder(program: Program) -> str | None:
    """The folder in which git works: each `-C` is relative to the previous one."""
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
