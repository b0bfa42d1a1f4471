"""Determines from a command line's text which programs it would start, without judging them.

A reading without `opaque` names every program, as far as the command line itself shows. It is clean if it is not
`unknown` either: each program is known, and so is what its words make it do. What a file of the project does when it is
run (`make`, `./build.sh`, `python x.py`) is not examined, unless the same command line could have written it. The shell
is bash; a script for another shell is clean only if both read it alike.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from leadrope.core.text.invisible import INVISIBLE
from leadrope.policy.programs.side_effects import Aftermath
from leadrope.policy.shell.reading import Deletion, PathWord, Program, Reading
from leadrope.policy.shell.scope import Scope
from leadrope.policy.shell.tree import MAX_DEPTH, MAX_PROGRAMS, Tree
from leadrope.policy.shell.words import Variables, Word, known
from leadrope.regex import regex

if TYPE_CHECKING:
    from tree_sitter import Language, Node

__all__ = ["MAX_BYTES", "Deletion", "PathWord", "Program", "Reading", "read"]

MAX_BYTES = 20_000
# The grammar needs quadratic time for these: 5,000 took 0.9 s.
MAX_DOCUMENTS = 50
# The same holds for text that cannot be parsed: 10,000 pipes that lead nowhere took 11 s. A here-document that writes a
# file of 20 kB has about 1,000 of these characters.
MAX_MARKS = 2_000
_MARKS = regex(rb"[|&;()<>$`{}\[\]=!]")
_FUNCTION_MARKS = 10
"""How many marks one `function` counts for."""

_PROGRAM_NAME = regex(r"[\w./][\w./+-]*\Z")
_CONTINUED_WORD = regex(rb"(?<![ \t\\])\\\n|\\\\\n")


def read(command: str) -> Reading:
    """Reads a command line as bash would.

    >>> read("cd /srv && env A=1 rm -rf *").programs[-1]
    Program(words=('rm', '-rf', '*'), wrappers=('env',), cwd='/srv', patterns=(2,))
    """
    return _read(command)


# Several rules ask about the same call; a limit of 64 keeps the longest texts under 2 MB.
@lru_cache(maxsize=64)
def _read(command: str) -> Reading:
    scan = Scan()
    scan.text(command, scope=Scope(), depth=0)
    return scan.reading(command)


@lru_cache(maxsize=1)
def _language() -> Language:
    # Loading the grammar takes about 30 ms; a process that reads no command does not pay for it.
    import tree_sitter  # noqa: PLC0415
    import tree_sitter_bash  # noqa: PLC0415

    return tree_sitter.Language(tree_sitter_bash.language())


def _parse(source: bytes) -> Node:
    from tree_sitter import Parser  # noqa: PLC0415

    # A parser has state and is cheap: a new one each time, so that threads share none.
    return Parser(_language()).parse(source).root_node


def _program(words: list[Word], scope: Scope) -> Program:
    shown = tuple(None if word.splits else word.text for word in words)
    if words[0].glob or not words[0].text:
        shown = (None, *shown[1:])
    globs = tuple(place for place, word in enumerate(words) if word.glob)
    return Program(shown, scope.wrappers, scope.cwd, globs)


class Scan:
    """Collects what one command line does, including all scripts inside it."""

    def __init__(self) -> None:
        self.programs: list[Program] = []
        self.opaque: dict[str, None] = {}
        self.unknown: dict[str, None] = {}
        self.named: dict[PathWord, None] = {}
        self.deletes: dict[Deletion, None] = {}
        self.maybe: list[Program] = []
        self.assigned: dict[tuple[str, str | None], None] = {}
        self.extras: dict[str, None] = {}
        self.functions: set[str] = set()
        self.after = Aftermath()
        self.variables = Variables()
        self.full = False
        self.is_fed = False
        """`exec` has given the shell itself an input, which every later program reads."""

    def reading(self, command: str) -> Reading:
        if self.variables.counted & self.variables.texts:
            self.tell("arithmetic with a variable whose value may run")
        for name in self.variables.computed:
            self.after.assign(name, known("1"), exported=False)
            self.assigned[name, None] = None
        for reason, is_opaque in self.after.reasons():
            (self.opaque if is_opaque else self.unknown)[reason] = None
        return Reading(
            programs=tuple(self.programs),
            opaque=tuple(self.opaque),
            unknown=tuple(self.unknown),
            writes=self.after.written(),
            text=command,
            named=tuple(self.named),
            deletes=tuple(self.deletes),
            maybe=tuple(self.maybe),
            assigned=tuple(self.assigned),
            extras=tuple(self.extras),
        )

    def program(self, words: list[Word], scope: Scope) -> None:
        self.programs.append(_program(words, scope))

    def may_start(self, words: list[Word], scope: Scope) -> None:
        """Records what an unknown program with these `words` would start if it starts its words."""
        for place, word in enumerate(words[1:], start=1):
            if len(self.maybe) >= MAX_PROGRAMS:
                return
            if word.text and _PROGRAM_NAME.match(word.text):
                inner = scope.inner(wrappers=(posixpath.basename(words[0].text or ""),))
                self.maybe.append(_program(words[place:], inner))

    def name(self, words: Iterable[PathWord]) -> None:
        self.named.update(dict.fromkeys(words))

    def tell(self, reason: str) -> None:
        self.opaque[reason] = None

    def tell_unknown(self, reason: str) -> None:
        self.unknown[reason] = None

    def text(self, command: str, *, scope: Scope, depth: int) -> None:
        """Reads one shell script. A script that cannot be read as a whole yields no programs, only a reason."""
        try:
            source = command.encode()
        except UnicodeEncodeError:
            return self.tell("text that is not valid Unicode")
        if len(source) > MAX_BYTES:
            return self.tell(f"over {MAX_BYTES // 1000} kB")
        if INVISIBLE.search(command):
            return self.tell("control or invisible characters")
        if depth > MAX_DEPTH:
            return self.tell("nested too deeply")
        if b"\\\n" in source and _CONTINUED_WORD.search(source):
            # The grammar sees two words where bash joins the lines.
            return self.tell("a line that continues inside a word")
        if source.count(b"<<") > MAX_DOCUMENTS:
            return self.tell(f"over {MAX_DOCUMENTS} here-documents")
        if len(_MARKS.findall(source)) + _FUNCTION_MARKS * source.count(b"function") > MAX_MARKS:
            return self.tell(f"over {MAX_MARKS:,} signs of the shell")
        root = _parse(source)
        if root.has_error:
            return self.tell("text that cannot be read as shell")
        Tree(self, source).statements(root, scope, depth)
        return None
