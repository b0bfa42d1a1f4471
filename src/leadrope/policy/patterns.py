"""The grammar of tool patterns, which are anchored at both ends.

Bash                          every call of the tool
Bash(git push *)              a program and its words; `*` at the end matches any further words, or none
Bash(text:DROP TABLE)         text anywhere in the command, ignoring case
Write(src/**)                 a path, relative to the workspace
WebFetch(domain:example.com)  a host; `*.example.com` for the hosts below it
mcp__github__*                tools of an MCP server; `mcp__github` is all of them
"""

from __future__ import annotations

import fnmatch
import functools
import re
import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from leadrope import errors
from leadrope.core.tools import KNOWN_TOOLS
from leadrope.policy import hosts, paths
from leadrope.policy.call_analysis import SHELL_TOOLS, Look
from leadrope.regex import regex
from leadrope.spelling import close_matches

if TYPE_CHECKING:
    from leadrope.policy.commands import CommandPattern
    from leadrope.policy.shell.reading import Program, Reading

Kind = Literal["command", "path", "domain", "nothing"]
Match = Literal["yes", "named", "maybe", "no"]
"""`named`: the words of an unknown program name it, and the program may start it. `maybe`: too little is known about
the command to say no."""

# What the parentheses of a pattern refer to; for all other tools they must be absent.
_TAKES: dict[str, Kind] = {
    **dict.fromkeys(KNOWN_TOOLS, "nothing"),
    **dict.fromkeys(SHELL_TOOLS, "command"),
    **dict.fromkeys(
        ("Read", "Write", "Edit", "MultiEdit", "NotebookEdit", "NotebookRead", "Glob", "Grep", "LS"), "path"
    ),
    **dict.fromkeys(("WebFetch", "WebSearch"), "domain"),
}
# The same tool with two names: the agent lists one and calls the other.
_SAME = {"Task": "Agent"}

_EXAMPLE = {
    "command": "{}(git push *)",
    "path": "{}(src/**)",
    "domain": "{}(domain:example.com)",
    "nothing": "{}",
}
_FORM = regex(r"([^()\s]+)\s*(?:\((.*)\))?", re.DOTALL)
_TOOL_NAME = regex(r"[A-Z][A-Za-z0-9_]*")
_MCP_NAME = regex(r"mcp__([A-Za-z0-9_.-]+?|\*)(?:__([A-Za-z0-9_.*?-]+))?")
# What these do is in a file, or in a text among their words.
_INTERPRETERS = regex(
    r"python[\d.]*|pypy\d*|node|deno|bun|perl|ruby|irb|php|lua\w*|Rscript|R|julia|tsx|ts-node|java|jshell|groovy|scala"
    r"|tclsh|expect|osascript|pwsh|[bdzk]?a?sh|[bz]sh|fish|t?csh|[gmn]?awk|sed|psql|mysql|sqlite3|mongosh|redis-cli"
)
# Outside of quotes these are shell syntax, never part of one program's words.
_OPERATORS = regex(r"[;&|<>`\n]|\$\(")


class ToolPattern:
    """A parsed pattern. `parse` refuses patterns that could never match, and suggests what to write instead."""

    __slots__ = ("_host", "_kind", "_path", "_text", "_words", "text", "tool")

    def __init__(self, text: str) -> None:
        self.text = text
        self.tool, argument = _split(text)
        self._kind: Kind = "nothing"
        self._words: tuple[str, ...] = ()
        self._text = self._host = ""
        self._path: paths.Glob | None = None
        if argument is None or argument.strip() == "*":
            return
        self._kind = _TAKES.get(self.tool, "nothing")
        argument = _checked(text, self.tool, self._kind, argument)
        if self._kind == "command":
            if argument.lower().startswith("text:"):
                self._text = _one_line(argument[len("text:") :])
            else:
                self._words = command_words(text, argument)
        elif self._kind == "path":
            self._path = paths.glob(argument)
        else:
            self._host = hosts.check(argument[len("domain:") :])

    def __repr__(self) -> str:
        return f"ToolPattern({self.text!r})"

    @property
    def is_bare(self) -> bool:
        """Whether the pattern covers the tool as a whole."""
        return self._kind == "nothing"

    @property
    def is_about_words(self) -> bool:
        return bool(self._words)

    @property
    def gates_commands(self) -> bool:
        return self.tool in SHELL_TOOLS

    def names(self, tool: str) -> bool:
        """Whether the pattern names this tool, whatever the call."""
        if self.tool.startswith("mcp__"):
            # The whole server, unless a star says how far it goes.
            return fnmatch.fnmatchcase(tool, self.tool) or ("*" not in self.tool and tool.startswith(self.tool + "__"))
        return _SAME.get(self.tool, self.tool) == _SAME.get(tool, tool)

    def touches(self, look: Look) -> Match:
        """Whether any part of the call matches, for rules that block or ask.

        A rule for Bash covers every tool that takes a bash command line; otherwise the next such tool would bypass
        it.
        """
        tool = look.call.name
        if not (self.names(tool) or (self.tool == "Bash" and tool in SHELL_TOOLS)):
            return "no"
        if self._path is not None:
            return "yes" if any(self._path.matches_any(each, look.ground) for each in look.paths) else "no"
        if self._host:
            wanted = look.searched if tool == "WebSearch" else (look.host,)
            # An address that cannot be parsed might be this one.
            return "yes" if any(host is None or hosts.blocks(self._host, host) for host in wanted) else "no"
        if self._text:
            return "yes" if self._text in _one_line(look.command or "") else "no"
        if self._words and look.reading is not None:
            found = {self._match(program) for program in look.reading.programs}
            if "yes" not in found and any(self._match(program) == "yes" for program in look.reading.maybe):
                return "named"
            return "yes" if "yes" in found else "maybe" if "maybe" in found else "no"
        return "yes"

    def admits(self, look: Look) -> bool:
        """Whether the pattern covers the whole call, with nothing unknown about it, for rules that allow."""
        if not self.names(look.call.name):
            return False
        if self._path is not None:
            return bool(look.paths) and all(self._path.matches_all(each, look.ground) for each in look.paths)
        if self._host:
            wanted = look.searched if look.call.name == "WebSearch" else (look.host,)
            return bool(wanted) and all(host is not None and hosts.admits(self._host, host) for host in wanted)
        # A single command pattern covers one program; `admitted` judges a line with several.
        return self.is_bare or _covered((self,), look)

    def covers(self, program: Program, *, to_the_last: bool = False) -> bool:
        """Whether the pattern covers the program. With `to_the_last`, no star counts."""
        # A reading has both a wrapper and the program that it starts: both need a pattern.
        if to_the_last:
            return bool(self._words) and self._words == program.words
        return bool(self._words) and match_words(self._words, program.words, exact=True) == "yes"

    def fits_up_to(self, program: Program) -> int:
        """Returns how many words of the program match, starting with its name."""
        count = 0
        for wanted, word in zip(self._words, program.words, strict=False):
            if word is None or not fnmatch.fnmatchcase(word, wanted):
                break
            count += 1
        return count

    def _match(self, program: Program) -> Match:
        found = match_words(self._words, program.words)
        if found == "yes" or self._words[-1] != "*" or any(_is_glob(word) for word in self._words[:-1]):
            return found
        # `git push *` means the same as the command `git push`, which knows git's options.
        pattern = command(shlex.join(self._words[:-1]))
        if pattern.matches(program):
            return "yes"
        return "maybe" if pattern.may_match(program) else found


@functools.lru_cache(maxsize=4096)
def parse(text: str) -> ToolPattern:
    """Parses a pattern, or raises BadValue with a suggestion. Cached: a policy uses the same few repeatedly."""
    return ToolPattern(text)


@functools.lru_cache(maxsize=4096)
def is_tool_pattern(text: str) -> bool:
    """Whether an entry of a mixed list is about a tool, and not about a command (`rm`, `git push`, `text:…`)."""
    name = text.partition("(")[0].strip()
    if name.startswith("mcp__") or name in KNOWN_TOOLS:
        return True
    return "(" in text and _TOOL_NAME.fullmatch(name) is not None


def admitted(entries: Sequence[str], look: Look) -> bool:
    """Whether an allow list covers the call. For a command line, some entry must cover every program."""
    found = [pattern for entry in entries if (pattern := parse(entry)).names(look.call.name)]
    return any(pattern.admits(look) for pattern in found) or _covered(found, look)


def uncovered(entries: Sequence[str], look: Look) -> str:
    """Explains why an allow list does not cover the call, with the first uncovered word."""
    found = [pattern for entry in entries if (pattern := parse(entry)).names(look.call.name)]
    listed = ", ".join(pattern.text for pattern in found)
    if look.reading is None or not any(pattern.is_about_words for pattern in found):
        return f"{look.call.name} is allowed only as {listed}"
    return f"{_left_out(found, look.reading)} is not covered by {listed}"


def _covered(found: Sequence[ToolPattern], look: Look) -> bool:
    if not any(pattern.is_about_words for pattern in found):
        return False
    return look.reading is not None and not _left_out(found, look.reading)


def _left_out(found: Sequence[ToolPattern], reading: Reading) -> str:
    """Returns the first part of a line that no pattern covers; empty if all is covered.

    An unknown program is covered by its words like any other. What an interpreter runs is not covered unless a pattern
    spells out all of its words.
    """
    if reading.opaque:
        return f"a command that cannot be read ({reading.opaque[0]})"
    if not reading.programs:
        return "a command that starts no program"
    # What an unknown program may write is not judged here; a redirection belongs to the line.
    ignored = ("/dev/null", "?") if reading.unknown and not reading.extras else ("/dev/null",)
    if writes := [path for path in reading.writes if path not in ignored]:
        return "writing to a file that is not known" if writes[0] == "?" else f"writing to `{writes[0]}`"
    is_fed = bool(reading.unknown) and any(sign in reading.text for sign in "<|")
    for program in reading.programs:
        is_spelled_out = bool(reading.unknown) and _is_interpreter(program)
        if not any(pattern.covers(program, to_the_last=is_spelled_out) for pattern in found):
            return _named(_first_uncovered(found, program), reading)
        if is_spelled_out and is_fed:
            return f"what `{_shown(program)}` is given to run"
    return ""


def _first_uncovered(found: Sequence[ToolPattern], program: Program) -> str:
    """Returns the first word that the best pattern does not match, or the whole program if there is none."""
    place = max(pattern.fits_up_to(program) for pattern in found)
    word = program.words[place] if place < len(program.words) else None
    return _shown(program) if word is None else word


def _named(word: str, reading: Reading) -> str:
    line = _short(reading.text)
    return f"`{word}`" if word == line else f"`{word}` in `{line}`"


def _is_interpreter(program: Program) -> bool:
    return _INTERPRETERS.fullmatch((program.words[0] or "").rpartition("/")[2]) is not None


def _shown(program: Program) -> str:
    return " ".join("?" if word is None else word for word in program.words)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 80 else f"{line[:79]}…"


def match_words(wanted: Sequence[str], words: Sequence[str | None], *, exact: bool = False) -> Match:
    """Compares word by word. `exact` is for allow rules: `./git` is not git, and an unknown word matches nothing.

    >>> match_words(("git", "push", "*"), ("git", "push"))
    'yes'
    >>> match_words(("git", "push", "*"), ("git", None))
    'maybe'
    """
    has_rest = wanted[-1] == "*"
    fixed = wanted[:-1] if has_rest else wanted
    for place, pattern in enumerate(fixed):
        if place >= len(words):
            return "no"
        word = words[place]
        if word is None:
            # The shell may expand it to any number of words.
            return "no" if exact else "maybe"
        if place == 0 and not exact and "/" not in pattern:
            word = word.rpartition("/")[2]
        if not fnmatch.fnmatchcase(word, pattern):
            return "no"
    rest = words[len(fixed) :]
    if has_rest or not rest:
        return "yes" if not exact or None not in rest else "no"
    return "maybe" if not exact and all(word is None for word in rest) else "no"


def command_words(text: str, argument: str) -> tuple[str, ...]:
    """Splits a command pattern into words, with quotes read as a shell reads them."""
    if _OPERATORS.search(argument):
        raise errors.BadValue(
            "pattern",
            f"{text!r} can never match: each program of a line is compared on its own, without ; & | < > ` and $(",
            hint="Write one pattern per program.",
        )
    if argument.endswith(":*"):
        raise errors.BadValue(
            "pattern", f"{text!r}: `:*` is not supported here", hint=f"Write {text.replace(':*', ' *')}."
        )
    try:
        words = tuple(shlex.split(argument))
    except ValueError as error:
        raise errors.BadValue("pattern", f"{text!r} is not readable: {error}", hint="Close the quote.") from None
    if words and "**" in words[0]:
        raise errors.BadValue(
            "pattern",
            f"{text!r} can never match: a path stands where a program belongs",
            hint="Write Bash(git push *).",
        )
    if not words or words[0] == "*":
        raise errors.BadValue(
            "pattern", f"{text!r} names no program", hint="Write the program first, or the tool alone."
        )
    return words


def _is_glob(word: str) -> bool:
    return any(char in word for char in "*?[")


def _one_line(text: str) -> str:
    return " ".join(text.casefold().split())


def _split(text: str) -> tuple[str, str | None]:
    found = _FORM.fullmatch(text.strip())
    if found is None:
        hint = "Close the parenthesis." if text.count("(") > text.count(")") else _forms()
        raise errors.BadValue("pattern", f"{text!r} is not a tool pattern", hint=hint)
    name, argument = found[1], found[2]
    if name.startswith("mcp__"):
        if not _MCP_NAME.fullmatch(name):
            raise errors.BadValue(
                "pattern", f"{text!r} is not an MCP tool", hint="Write mcp__SERVER__TOOL or mcp__SERVER."
            )
        if argument is not None:
            raise errors.BadValue(
                "pattern", f"{text!r}: an MCP tool takes no parentheses", hint=f"Write {name}, or {name}__*."
            )
        return name, None
    if name not in _TAKES:
        _refuse_unknown(text, name)
    return name, argument


def check_tool(entry: str) -> None:
    """Refuses an entry of a tool list with a misspelt name; entries in the agent's own format are left alone."""
    name = entry.partition("(")[0].strip()
    if not name:
        raise errors.BadValue("pattern", f"{entry!r} is not a tool pattern", hint=_forms())
    if "(" in entry and not entry.rstrip().endswith(")"):
        raise errors.BadValue("pattern", f"{entry!r} is not a tool pattern", hint="Close the parenthesis.")
    if name not in KNOWN_TOOLS and _TOOL_NAME.fullmatch(name) and not name.startswith("mcp__"):
        _refuse_unknown(entry, name)


def _refuse_unknown(text: str, name: str) -> None:
    same = [known for known in KNOWN_TOOLS if known.lower() == name.lower()]
    close = same or close_matches(name, KNOWN_TOOLS, n=1, cutoff=0.75)
    if close:
        raise errors.BadValue(
            "pattern", f"{text!r}: there is no tool {name!r}", hint=f"Did you mean {text.replace(name, close[0], 1)}?"
        )
    # A name unlike any known one may be a tool of a newer agent, whose arguments are unknown.
    if not _TOOL_NAME.fullmatch(name):
        raise errors.BadValue("pattern", f"{text!r} is not a tool pattern", hint=_forms())


def _checked(text: str, tool: str, kind: Kind, argument: str) -> str:
    if not argument.strip():
        raise errors.BadValue(
            "pattern",
            f"{text!r} can never match: the parentheses are empty",
            hint=f"Write {tool} for every call of it.",
        )
    if kind == "nothing":
        raise errors.BadValue(
            "pattern", f"{text!r} can never match: {tool} takes no parentheses", hint=f"Write {tool}."
        )
    if kind == "domain" and not argument.startswith("domain:"):
        host = hosts.host_of(argument) or (argument if hosts.host_of(f"http://{argument}") else "example.com")
        raise errors.BadValue(
            "pattern",
            f"{text!r} can never match: {tool} is limited by a host",
            hint=f"Write {tool}(domain:{host}).",
        )
    if kind == "path" and argument.startswith("domain:"):
        raise errors.BadValue(
            "pattern", f"{text!r} can never match: {tool} takes a path", hint=f"Write {_EXAMPLE[kind].format(tool)}."
        )
    if kind == "command" and argument.lower().startswith("text:") and not argument[len("text:") :].strip():
        raise errors.BadValue(
            "pattern", f"{text!r} can never match: text: is empty", hint="Write Bash(text:DROP TABLE)."
        )
    return argument


def _forms() -> str:
    return "Write Bash, Bash(git push *), Write(src/**), WebFetch(domain:example.com) or mcp__SERVER__TOOL."


# -- commands -----------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def command(text: str) -> CommandPattern:
    """Parses an entry of `blocked_commands` or a similar list: a command (`rm`, `git push`), or `text:…`."""
    from leadrope.policy import commands  # noqa: PLC0415  # loads the shell reader

    try:
        return commands.CommandPattern.parse(text)
    except ValueError as error:
        message, _, hint = str(error).partition("; ")
        raise errors.BadValue("command", message, hint=f"{hint[:1].upper()}{hint[1:]}." if hint else None) from None


_FIRST = regex(r"\s*([A-Za-z0-9_][A-Za-z0-9_.+-]*)(?=\s|\Z)")
# Words that are not a program; the program in question follows them.
_RESERVED = frozenset(
    ("case", "coproc", "do", "for", "function", "if", "in", "select", "then", "time", "until", "while")
)


def worth_asking(entries: tuple[str, ...], look: Look) -> Iterable[str]:
    """Filters out commands of programs that the line does not use: all but one or two of a hundred."""
    by_name, others = _indexed(entries)
    names = look.all_names if look.reading is not None else ()
    if names is None:
        return entries
    found = [place for name in names for place in by_name.get(name, ())]
    return [entries[place] for place in sorted((*others, *found))]


@functools.lru_cache(maxsize=64)
def _indexed(entries: tuple[str, ...]) -> tuple[dict[str, list[int]], tuple[int, ...]]:
    """Returns the positions of commands by program name, and the positions of all other entries."""
    by_name: dict[str, list[int]] = {}
    others: list[int] = []
    for place, entry in enumerate(entries):
        first = None if is_tool_pattern(entry.strip()) else _FIRST.match(entry)
        if first is None or first[1] in _RESERVED:
            others.append(place)
        else:
            by_name.setdefault(first[1], []).append(place)
    return by_name, tuple(others)


def command_touches(text: str, look: Look) -> Match:
    """Whether any program of the line matches."""
    if look.reading is None:
        return "no"
    pattern = command(text)
    if look.all_names is not None and pattern.words and pattern.name not in look.all_names:
        return "no"
    if pattern.found_in(look.reading):
        return "yes"
    if any(pattern.matches(program) for program in look.reading.maybe):
        return "named"
    return "maybe" if any(pattern.may_match(program) for program in look.reading.programs) else "no"
