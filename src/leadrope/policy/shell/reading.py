"""The values that describe a parsed command line: what it names. What is allowed is decided elsewhere."""

from __future__ import annotations

from typing import Literal

import msgspec

from leadrope.regex import regex

_PATTERN_SIGN = regex(r"[*?\[]")


class Program(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """A program that the command line starts."""

    words: tuple[str | None, ...]
    """Its name and arguments; None if a word, or the number of words it expands to, is unknown. A pattern (`*.py`)
    stays as written, `$HOME` becomes `~`."""
    wrappers: tuple[str, ...] = ()
    """The programs through which it is started, outermost first."""
    cwd: str | None = None
    """The working directory at that point of the line: None for the initial one, `?` if unknown."""
    patterns: tuple[int, ...] = ()
    """The positions of words that the shell expands to file names; a quoted `'*.py'` is not included."""


class PathWord(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """A word, or a part of one, that may be a path: an operand, an option's value, the source of a redirection.

    A rule about paths may ignore it only if neither `text` nor anything that it can expand to is a path of the rule.
    """

    text: str
    """The path as written; for a pattern the whole pattern; for an unknown word its known beginning."""
    cwd: str | None = None
    """The folder that it is relative to, as in `Program.cwd`."""
    is_pattern: bool = False
    """The shell replaces it by the names that it matches; each begins with `prefix`."""
    is_unknown: bool = False
    """It may be any path that begins with `prefix`, or no path at all."""
    is_tree: bool = False
    """The program processes everything below it (`grep -r`, `find`, `cp -r`)."""
    may_change: bool = False
    """The program may do anything with the file: a formatter, a compiler, a script."""

    @property
    def prefix(self) -> str:
        """The literal beginning of every path that it can expand to. Empty: it may be any path."""
        if not self.is_pattern:
            return self.text
        found = _PATTERN_SIGN.search(self.text)
        return self.text[: found.start()] if found else self.text


class Deletion(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """Files that a program deletes, whichever program it is."""

    by: str
    """What deletes, as a person would write it: `rm`, `find -delete`, `git clean`."""
    path: PathWord
    kind: Literal["delete", "discard"] = "delete"
    """`discard`: the file stays, but its uncommitted changes are lost (`git reset --hard`)."""


class Reading(msgspec.Struct, frozen=True):
    """What a command line does, as far as its text shows."""

    programs: tuple[Program, ...] = ()
    opaque: tuple[str, ...] = ()
    """Why the list of programs may be incomplete."""
    unknown: tuple[str, ...] = ()
    """Why the effect of a named program is unknown: it is not in our tables, or runs inline code."""
    writes: tuple[str, ...] = ()
    """Files that it writes by redirection or with a program known to write; `?` is an unknown file."""
    text: str = ""
    named: tuple[PathWord, ...] = ()
    """Every word that may be a path, including sources of redirections and parts of words (`-fFILE`, `@FILE`)."""
    deletes: tuple[Deletion, ...] = ()
    maybe: tuple[Program, ...] = ()
    """What a program that is not in our tables would start if it were a wrapper: its words from each name on."""
    assigned: tuple[tuple[str, str | None], ...] = ()
    """Variables that it sets, with their value if known."""
    extras: tuple[str, ...] = ()
    """What it contains besides plain commands joined by `|`, `&&`, `||` and `;`: redirections other than to /dev/null
    or another descriptor, substitutions, loops, functions."""

    @property
    def is_clean(self) -> bool:
        return not self.opaque and not self.unknown
