"""Which programs a command line would start, read from its text alone. Runs nothing, and judges nothing as good or bad.

A reading without `opaque` is clean: its list of programs is complete as far as the command line itself goes. What a
file of the project does when it is run (`make`, `./build.sh`, `python x.py`) is that file's own matter, unless the same
command line could have written it. The shell is bash; a text for another shell is clean only where both read it alike.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from leadrope.policy.aftermath import Aftermath
from leadrope.policy.shell_scope import Scope
from leadrope.policy.shell_tree import MAX_DEPTH, Tree
from leadrope.policy.shell_words import Variables

if TYPE_CHECKING:
    from tree_sitter import Language, Node

MAX_BYTES = 20_000
# The grammar's time grows with their square: 5,000 took 0.9 s.
MAX_DOCUMENTS = 50
# The same holds for what cannot be parsed: 10,000 pipes that lead nowhere took 11 s. A file of 20 kB that is written by
# a here-document has about 1,000 of these characters.
MAX_MARKS = 2_000
_MARKS = re.compile(rb"[|&;()<>$`{}\[\]=!]")
_FUNCTION_MARKS = 10
"""What one `function` counts for."""

# C0 but tab and newline, DEL, C1, and what is not seen: zero-width, bidi, line and paragraph separators, BOM, tags.
_UNSEEN = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffc\U000e0000-\U000e0fff]"
)
_CONTINUED_WORD = re.compile(rb"(?<![ \t\\])\\\n|\\\\\n")


class Program(msgspec.Struct, frozen=True):
    """One program that the command line starts."""

    words: tuple[str | None, ...]
    """Its name and arguments; None where a word, or how many it becomes, is not known. A pattern (`*.py`) stands as
    written, `$HOME` as `~`."""
    wrappers: tuple[str, ...] = ()
    """The programs through which it is started, the outermost first."""
    cwd: str | None = None
    """Where the command line has gone by then: None is where it began, `?` is not known."""


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

    @property
    def is_clean(self) -> bool:
        return not self.opaque and not self.unknown


def read(command: str) -> Reading:
    """Read a command line as bash would.

    >>> read("cd /srv && env A=1 rm -rf *").programs[-1]
    Program(words=('rm', '-rf', '*'), wrappers=('env',), cwd='/srv')
    """
    return _read(command)


# Several rules ask about the same call; a bound of 64 keeps the longest texts under 2 MB.
@lru_cache(maxsize=64)
def _read(command: str) -> Reading:
    scan = Scan()
    scan.text(command, scope=Scope(), depth=0)
    return scan.reading(command)


@lru_cache(maxsize=1)
def _language() -> Language:
    # Loading the grammar takes about 30 ms; a program that reads no command does not pay for it.
    import tree_sitter  # noqa: PLC0415
    import tree_sitter_bash  # noqa: PLC0415

    return tree_sitter.Language(tree_sitter_bash.language())


def _parse(source: bytes) -> Node:
    from tree_sitter import Parser  # noqa: PLC0415

    # A parser holds state and is cheap: one each time, so that threads share none.
    return Parser(_language()).parse(source).root_node


class Scan:
    """Collects what one command line does, over all texts inside it."""

    def __init__(self) -> None:
        self.programs: list[Program] = []
        self.opaque: dict[str, None] = {}
        self.functions: set[str] = set()
        self.after = Aftermath()
        self.variables = Variables()
        self.full = False

    def reading(self, command: str) -> Reading:
        if self.variables.counted & self.variables.texts:
            self.tell("arithmetic with a variable whose value may run")
        for reason in self.after.reasons():
            self.tell(reason)
        return Reading(tuple(self.programs), tuple(self.opaque), writes=self.after.written(), text=command)

    def program(self, words: tuple[str | None, ...], scope: Scope) -> None:
        self.programs.append(Program(words, scope.wrappers, scope.cwd))

    def tell(self, reason: str) -> None:
        self.opaque[reason] = None

    def text(self, command: str, *, scope: Scope, depth: int) -> None:
        """Read one shell text. What is not readable as a whole gives no programs at all, only a reason."""
        try:
            source = command.encode()
        except UnicodeEncodeError:
            return self.tell("text that is not valid Unicode")
        if len(source) > MAX_BYTES:
            return self.tell(f"over {MAX_BYTES // 1000} kB")
        if _UNSEEN.search(command):
            return self.tell("control or invisible characters")
        if depth > MAX_DEPTH:
            return self.tell("nested too deeply")
        if b"\\\n" in source and _CONTINUED_WORD.search(source):
            # The grammar sees two words where bash joins the lines to one.
            return self.tell("a line that goes on inside a word")
        if source.count(b"<<") > MAX_DOCUMENTS:
            return self.tell(f"over {MAX_DOCUMENTS} here-documents")
        if len(_MARKS.findall(source)) + _FUNCTION_MARKS * source.count(b"function") > MAX_MARKS:
            return self.tell(f"over {MAX_MARKS:,} signs of the shell")
        root = _parse(source)
        if root.has_error:
            return self.tell("text that cannot be read as shell")
        Tree(self, source).statements(root, scope, depth)
        return None
