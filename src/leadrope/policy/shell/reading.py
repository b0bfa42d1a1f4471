"""The values that a command line is read into. They say what a line names; what is allowed is decided elsewhere."""

from __future__ import annotations

from typing import Literal

import msgspec

from leadrope.regex import regex

_PATTERN_SIGN = regex(r"[*?\[]")


class Program(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """One program that the command line starts."""

    words: tuple[str | None, ...]
    """Its name and arguments; None where a word, or how many it becomes, is not known. A pattern (`*.py`) stands as
    written, `$HOME` as `~`."""
    wrappers: tuple[str, ...] = ()
    """The programs through which it is started, the outermost first."""
    cwd: str | None = None
    """Where the command line has gone by then: None is where it began, `?` is not known."""
    patterns: tuple[int, ...] = ()
    """The places of those words that the shell expands to file names. A quoted `'*.py'` is not among them."""


class PathWord(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """A word, or a part of one, that may be a path: an operand, an option's value, the source of a redirection.

    A rule about paths may ignore it only if neither `text` nor anything that it can stand for is a path of the rule.
    """

    text: str
    """The path as written; of a pattern the whole pattern; of an unknown word what it is known to begin with."""
    cwd: str | None = None
    """The folder that it is relative to, as `Program.cwd`."""
    is_pattern: bool = False
    """The shell replaces it by the names that it matches: each begins with `prefix`."""
    is_unknown: bool = False
    """It may be any path that begins with `prefix`, or no path at all."""
    is_tree: bool = False
    """The program goes through everything below it (`grep -r`, `find`, `cp -r`)."""
    may_change: bool = False
    """The program is one that does whatever it likes with what it is given: a formatter, a compiler, a script."""

    @property
    def prefix(self) -> str:
        """What every path that it can stand for begins with, letter by letter. Empty: it may be any path."""
        if not self.is_pattern:
            return self.text
        found = _PATTERN_SIGN.search(self.text)
        return self.text[: found.start()] if found else self.text


class Deletion(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """Files that one program takes away, under whatever name it does so."""

    by: str
    """What deletes, as a person would write it: `rm`, `find -delete`, `git clean`."""
    path: PathWord
    kind: Literal["delete", "discard"] = "delete"
    """`discard`: the file stays, and changes to it that were not committed are lost (`git reset --hard`)."""


class Reading(msgspec.Struct, frozen=True):
    """What a command line does, as far as its text tells."""

    programs: tuple[Program, ...] = ()
    opaque: tuple[str, ...] = ()
    """Why the list of programs may not be complete."""
    unknown: tuple[str, ...] = ()
    """Why it is not known what a program that it names would do: one that is not in our tables, inline code."""
    writes: tuple[str, ...] = ()
    """Files that it writes by redirection or by a program known to write; `?` is one that is not known."""
    text: str = ""
    named: tuple[PathWord, ...] = ()
    """Every word that may be a path, sources of redirections and parts of words (`-fFILE`, `@FILE`) included."""
    deletes: tuple[Deletion, ...] = ()
    maybe: tuple[Program, ...] = ()
    """What a program that is not in our tables would start if it were a wrapper: its words from each name on."""
    assigned: tuple[tuple[str, str | None], ...] = ()
    """Variables that it sets, with their value where that is known."""
    extras: tuple[str, ...] = ()
    """What it holds besides plain commands joined by `|`, `&&`, `||` and `;`: redirections that are not to /dev/null
    or another descriptor, substitutions, loops, functions."""

    @property
    def is_clean(self) -> bool:
        return not self.opaque and not self.unknown
