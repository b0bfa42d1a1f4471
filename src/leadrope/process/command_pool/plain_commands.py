"""Recognizes scripts that are a single program with its arguments, which can be started without bash.

A shell takes twice the time of a small program. Only scripts that bash would pass on unchanged are recognized: no
expansion, redirection, operator or comment, and no name that bash itself defines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from leadrope.regex import regex

_QUOTED = r"'[^'\0]*'"
_WORD = rf"(?:[\w./+,:@%=-]|{_QUOTED})+"
_SCRIPT = regex(rf"[ \t\n]*([\w./]{_WORD}|[\w./])((?:[ \t]+{_WORD})*)[ \t\n]*", re.ASCII)
_SPLIT = regex(_WORD, re.ASCII)
_UNQUOTED = regex(r"'([^'\0]*)'")
_LISTED = """
    . : [ alias bg bind break builtin caller case cd command compgen complete compopt continue coproc declare dirs
    disown do done echo elif else enable esac eval exec exit export false fc fg fi for function getopts hash help
    history if in jobs kill let local logout mapfile popd printf pushd pwd read readarray readonly return select set
    shift shopt source suspend test then time times trap true type typeset ulimit umask unalias unset until wait while
    """
"""What `compgen -bk` lists, except for names that no program can have."""
_OWN_WORDS = frozenset(_LISTED.split())
_OWN_VARIABLES = regex(
    r"BASH.*|SHELLOPTS|POSIXLY_CORRECT|(OLD)?PWD|SHLVL|_|E?UID|PPID|IFS|OPT(IND|ERR|ARG)|S?RANDOM|SECONDS|LINENO|GROUPS",
    re.DOTALL,
)
"""Variables that bash acts on, or does not pass on unchanged."""


def words_of(script: str) -> list[str] | None:
    """Returns the program and its arguments; None if bash is needed to read the script."""
    if (found := _SCRIPT.fullmatch(script)) is None:
        return None
    program = found[1]
    if "=" in program or "'" in program or program in _OWN_WORDS:
        return None
    return [program, *(_UNQUOTED.sub(r"\1", word) for word in _SPLIT.findall(found[2]))]


def is_read_by_bash(variables: Iterable[str]) -> bool:
    """Whether a shell would act on one of these variables."""
    return any(_OWN_VARIABLES.fullmatch(name) for name in variables)
