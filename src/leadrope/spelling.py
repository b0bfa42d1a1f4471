"""How options and commands are spelled where the user works: `--mode edit` at the terminal, `mode="edit"` in Python,
and `.venv/bin/leadrope` where `leadrope` alone would not be found.

Errors and hints are written below both, so they ask here.
"""

from __future__ import annotations

import functools
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from leadrope.regex import regex

FlagOf = Callable[[str], str]
_FLAG_OF: ContextVar[FlagOf | None] = ContextVar("leadrope_flag_of", default=None)
"""How the terminal spells an option of a request: `core.request.flag_of`, which is above this module."""

_SWITCHES = ("broker",)


# The program in a command of a hint: a lower-case word follows, and no verb of a sentence about leadrope.
_COMMAND = regex(
    r"(?<![\w/.-])leadrope (?=(?:run|runs|chat|flow|approvals|top|stats|export|sessions|demo|events|import-transcript"
    r"|agents|connections|policy|trust|login|setup-token|completion|doctor|COMMAND|--help)(?![\w-]))"
)


@contextmanager
def at_terminal(flag_of: FlagOf) -> Iterator[None]:
    """Inside of this, and in tasks started there, options are spelled as flags."""
    token = _FLAG_OF.set(flag_of)
    try:
        yield
    finally:
        _FLAG_OF.reset(token)


def credential_hint() -> str:
    """How a program hands in a credential itself; nothing at the terminal, where none may stand in a command line."""
    return "" if _FLAG_OF.get() else " A program can also pass `credential=leadrope.Secret(...)`."


def option(field: str, value: str = "") -> str:
    """An option of a run, with its value if one is given.

    >>> option("billing", "api_key")
    'billing="api_key"'
    >>> option("limits.idle_s")
    'limits.idle_s'
    """
    flag_of = _FLAG_OF.get()
    if flag_of is not None:
        return f"{flag_of(field)} {value}".rstrip()
    if field in _SWITCHES:
        return f"{field}=True"
    if field == "secret_variables" and value:
        return f'secret_variables=("{value}",)'
    return f'{field}="{value}"' if value else field


def runnable(text: str) -> str:
    """A text of ours in which each `leadrope COMMAND` can be typed here as it is printed.

    For screens only. What is stored, and JSON, keeps the plain name: it may be read elsewhere.
    """
    return _COMMAND.sub(lambda _: f"{program()} ", text)


@functools.cache
def program() -> str:
    """What to type for the leadrope that runs: its name, or its path if PATH has none or another one."""
    called = Path(sys.argv[0])
    if called.name != "leadrope":
        called = Path(sys.executable).with_name("leadrope")
    if not called.is_file() or not os.access(called, os.X_OK):
        return f"{_shown(Path(sys.executable))} -m leadrope"
    found = shutil.which("leadrope")
    if found is not None and called.samefile(found):
        return "leadrope"
    return _shown(called)


def _shown(path: Path) -> str:
    """Relative below the current folder, where it needs a slash to be found; otherwise whole."""
    whole = path.absolute()
    if not whole.is_relative_to(Path.cwd()):
        return shlex.quote(str(whole))
    near = str(whole.relative_to(Path.cwd()))
    return shlex.quote(near if os.sep in near else f".{os.sep}{near}")


def close_matches(word: str, known: Iterable[str], n: int = 1, cutoff: float = 0.6) -> list[str]:
    """The names that somebody may have meant by `word`, the likeliest first."""
    import difflib  # noqa: PLC0415  # only where something is misspelt

    return difflib.get_close_matches(word, list(known), n=n, cutoff=cutoff)
