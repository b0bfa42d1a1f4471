"""Regular expressions with a time limit: Python's own engine, in a process that can be killed. Independent of steps.

A pattern like `(a+)+$` takes longer than the age of the universe on forty letters, and Python's matcher cannot be
interrupted: it holds the interpreter while it runs. So each match runs in a short process of its own (20 ms), whose
limit counts its own CPU time and not that of a busy machine. A linear engine would need no process, but one more
package (re2, 600 kB) and another dialect, without look-ahead and back-references. Patterns that cannot explode are
matched in this process, at no cost.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys

import msgspec

from leadrope import errors
from leadrope.regex import regex

MATCH_S = 1.0
"""CPU time for one match. Ordinary patterns need milliseconds."""
WAIT_S = 30.0
"""Wall-clock limit, for a machine so busy that the process does not run, and where CPU time cannot be limited."""
PATTERN_CHARS = 10_000
TEXT_CHARS = 1_000_000

_GROWS = regex(r"[*+{]|\\[0-9]|\(\?[A-Za-z(]")
"""Constructs that may take more than linear time: repetition, back-references, flags. Escaped ones count too."""
_FLAGS = regex(r"\(\?[A-Za-z]")
_QUICK_CHARS = 1000
_CHOICES = 6
_HERE_CHARS = 10_000

_PROGRAM = """
import json, re, signal, sys
try:
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
except (ImportError, ValueError, OSError):
    pass
given = json.load(sys.stdin)
if hasattr(signal, "setitimer"):
    signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_VIRTUAL, given["seconds"])
try:
    pattern = re.compile(given["pattern"], given["flags"])
except re.error as error:
    print(json.dumps({"error": error.msg, "at": error.pos}))
except (OverflowError, RecursionError, ValueError) as error:
    print(json.dumps({"error": str(error), "at": None}))
else:
    found = pattern.search(given["text"])
    print(json.dumps({"found": None if found is None else found[0][:1000]}))
"""


class BadPattern(errors.RequestError):
    """The pattern is invalid or too long. `column` counts from 1; 0 if it is not known."""

    kind = "bad_regex"

    def __init__(self, message: str, *, column: int = 0, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.column = column


class PatternTimeout(errors.LeadropeError):
    """The match exceeded its time limit."""

    kind = "regex_timeout"


class RegexMatch(msgspec.Struct, frozen=True, kw_only=True):
    is_match: bool
    text: str = ""
    """The first match, cut at 1,000 characters."""


async def search(pattern: str, text: str, *, ignores_case: bool = False, limit_s: float = MATCH_S) -> RegexMatch:
    """Search the text for the pattern.

        found = await search("^PASS(ED)?$", line)

    Raises PatternTimeout after `limit_s` of work.
    """
    flags = re.IGNORECASE if ignores_case else 0
    _check_length(pattern)
    if len(text) > TEXT_CHARS:
        raise BadPattern(
            f"the text has {len(text)} characters, and at most {TEXT_CHARS} are searched",
            hint="Search a part of it: one line, one field.",
        )
    if len(text) <= _HERE_CHARS and cannot_explode(pattern, ignores_case=ignores_case):
        try:
            found = re.search(pattern, text, flags)
        except re.error as error:
            raise _bad(pattern, error.msg, error.pos) from None
        return RegexMatch(is_match=found is not None, text=found[0][:1000] if found else "")
    return await _in_process({"pattern": pattern, "flags": flags, "text": text, "seconds": limit_s})


def check(pattern: str) -> None:
    """Raise BadPattern if that can be decided quickly; sets without case are slow to compile."""
    _check_length(pattern)
    if len(pattern) <= _QUICK_CHARS and not _FLAGS.search(pattern):
        try:
            re.compile(pattern)
        except re.error as error:
            raise _bad(pattern, error.msg, error.pos) from None
        except (OverflowError, RecursionError, ValueError) as error:
            raise _bad(pattern, str(error), None) from None


def _check_length(pattern: str) -> None:
    if len(pattern) > PATTERN_CHARS:
        raise BadPattern(f"the pattern has {len(pattern)} characters, and at most {PATTERN_CHARS} are read")


def cannot_explode(pattern: str, *, ignores_case: bool = False) -> bool:
    """Return whether a pattern has no repetition: it can match only in as many ways as it has alternatives.

    Sets without case are excluded too: Python visits each of their characters when it compiles them.
    """
    if ignores_case and "[" in pattern:
        return False
    return _GROWS.search(pattern) is None and pattern.count("|") + pattern.count("?") <= _CHOICES


def _bad(pattern: str, why: str, at: int | None) -> BadPattern:
    where = "" if at is None else f" (column {at + 1})"
    return BadPattern(
        f"{pattern[:100]!r} is not a regular expression: {why}{where}",
        column=0 if at is None else at + 1,
        hint="It is Python's dialect; a character that is meant as it stands has a backslash before it.",
    )


async def _in_process(given: dict[str, object]) -> RegexMatch:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", "-X", "utf8", "-c", _PROGRAM),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={name: os.environ[name] for name in ("SYSTEMROOT",) if name in os.environ},
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(WAIT_S):
            out, err = await process.communicate(json.dumps(given).encode())
    except TimeoutError:
        raise _given_up(given) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode == -signal.SIGVTALRM:
        raise _given_up(given)
    if process.returncode != 0:
        last = err.decode(errors="replace").strip().rpartition("\n")[2] or f"it ended with {process.returncode}"
        raise PatternTimeout(
            f"the pattern {str(given['pattern'])[:100]!r} could not be matched: {last}",
            hint="It needs more memory or depth than a condition may have; write it simpler.",
        )
    told = json.loads(out)
    if "error" in told:
        raise _bad(str(given["pattern"]), told["error"], told["at"])
    return RegexMatch(is_match=told["found"] is not None, text=told["found"] or "")


def _given_up(given: dict[str, object]) -> PatternTimeout:
    return PatternTimeout(
        f"the pattern {str(given['pattern'])[:100]!r} was given up after {given['seconds']} s on a text of "
        f"{len(str(given['text']))} characters",
        hint="It has repetitions inside or beside each other that match the same text, like (a+)+; write it so that "
        "each character can be matched in one way, or use `contains`.",
    )
