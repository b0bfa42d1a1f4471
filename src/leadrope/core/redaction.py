"""Secrets as a type that cannot be printed, and the one function that cleans text that leaves the process."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

MASK = "[redacted]"


def _starts(word: str, more: str = "") -> str:
    """Behind `word`: nothing before it that it could be the middle of. In JSON a line break before it is a letter."""
    return rf"(?:(?<![A-Za-z0-9{re.escape(more)}]{word})|(?<=\\[bfnrt]{word}))"


# Shapes that are keys whoever holds them, each behind a word that must be there: looking for a word is a hundred times
# faster than trying a pattern, and most text holds none of them. Each shape needs a long random tail, so that prose
# about keys survives, and does not start inside a word: `task-implement-the-login-page` holds `sk-` too. Every scan is
# bounded or stops at a character that its own start cannot hold, so that a hostile text costs linear time.
_KEY_SHAPES = tuple(
    (word, re.compile(shape, re.VERBOSE))
    for word, shape in (
        ("sk-ant-", r"sk-ant-[A-Za-z0-9_\-]{16,}"),
        ("sk-", rf"sk-{_starts('sk-')}(?=[A-Za-z_\-]{{0,64}}[0-9])[A-Za-z0-9_\-]{{20,}}"),
        ("pplx-", r"pplx-[A-Za-z0-9]{20,}"),
        ("gh", r"gh[pousr]_[A-Za-z0-9]{20,}"),
        ("github_pat_", r"github_pat_[A-Za-z0-9_]{20,}"),
        ("glpat-", r"glpat-[A-Za-z0-9_\-]{16,}"),
        ("xox", r"xox[abprs]-[A-Za-z0-9\-]{10,}"),
        ("AKIA", rf"AKIA{_starts('AKIA')}[A-Z0-9]{{16}}(?![A-Za-z0-9])"),
        ("ASIA", rf"ASIA{_starts('ASIA')}[A-Z0-9]{{16}}(?![A-Za-z0-9])"),
        ("AIza", rf"AIza{_starts('AIza')}[A-Za-z0-9_\-]{{30,}}"),
        (
            "eyJ",
            rf"eyJ{_starts('eyJ', '_-')}[A-Za-z0-9_\-]{{10,}}\.[A-Za-z0-9_\-]{{10,}}\.[A-Za-z0-9_\-]{{10,}}",
        ),
        (
            # Also one whose end is cut off, and one inside JSON, where a line break is written as \n or the lines are
            # a list. Any other quote stays, with its backslash: the JSON around the key must be read again.
            "PRIVATE KEY-----",
            r"""
            -----BEGIN[ ][A-Z ]{0,40}PRIVATE[ ]KEY-----
            (?:(?:\s|\\[rn])*(?:Proc-Type|DEK-Info):[^\r\n\\"]*)*
            (?:[A-Za-z0-9+/=\s]|\\+[nrt/]|","(?=(?:\\[rt])*(?:[A-Za-z0-9+/=]{16,}["\\]|-----END[ ])))*
            (?:-----END[ ][A-Z ]{0,40}PRIVATE[ ]KEY-----)?
            """,
        ),
    )
)
# As a header line, as a field of JSON, and as an assignment.
_BEARER = re.compile(
    r"""(?ix)
    (?:\b|(?<=\\[bfnrt]))(
      (?:proxy-)?authorization \\?["']? \s{0,8} [:=]? \s{0,8} \\?["']? (?:bearer|basic) \s{1,8}
    | x-api-key \\?["']? \s{0,8} [:=] \s{0,8} \\?["']?
    )[^\s"',;\\]{8,}"""
)


class Secret:
    """A value that prints masked. `reveal()` is called where the value leaves for the child, and nowhere else."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return f"Secret({mask(self._value)!r})"

    __str__ = __repr__

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)


def mask(value: str) -> str:
    """Enough to tell two credentials apart, too little to use: the first ten characters and the length.

    >>> mask("sk-ant-api03-abcdefghijklmnopqrstuvwxyz")
    'sk-ant-api… (39 characters)'
    """
    # A short secret shows less: ten characters of a twelve-character password are the password.
    shown = value[: min(10, len(value) // 3)]
    return f"{shown}… ({len(value)} characters)"


class Redactor:
    """Knows this run's secrets; `clean` removes them, and whatever has the shape of a key."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        # Longest first, so that a secret that contains another is removed whole. Short values would
        # redact ordinary words.
        long_enough = {s for s in secrets if len(s) >= 6}
        # Most text that leaves is JSON, where a quote or a line break of the secret is written differently.
        spellings = long_enough | {json.dumps(s)[1:-1] for s in long_enough}
        spellings |= {json.dumps(s, ensure_ascii=False)[1:-1] for s in long_enough}
        self._spellings = tuple(sorted(spellings, key=len, reverse=True))
        self._known = re.compile("|".join(map(re.escape, self._spellings))) if spellings else None

    def clean(self, text: str) -> str:
        if self._known and any(spelling in text for spelling in self._spellings):
            text = self._known.sub(MASK, text)
        for word, shape in _KEY_SHAPES:
            if word in text:
                text = shape.sub(MASK, text)
        lowered = text.lower()
        if "authorization" in lowered or "x-api-key" in lowered:
            text = _BEARER.sub(rf"\1{MASK}", text)
        return text


redact = Redactor().clean
"""Removes what looks like a key from a text whose secrets are not known."""
