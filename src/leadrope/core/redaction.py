"""Secrets as a type that cannot be printed, and the one function that cleans text that leaves the process."""

from __future__ import annotations

import re
from collections.abc import Iterable

MASK = "[redacted]"

# Shapes that are keys whoever holds them. Each needs a long random tail, so that prose about keys survives.
_KEY_SHAPES = re.compile(
    r"""
      sk-ant-[A-Za-z0-9_\-]{16,}
    | sk-(?:proj-|svcacct-)?[A-Za-z0-9_\-]{20,}
    | pplx-[A-Za-z0-9]{20,}
    | gh[pousr]_[A-Za-z0-9]{20,}
    | github_pat_[A-Za-z0-9_]{20,}
    | glpat-[A-Za-z0-9_\-]{16,}
    | xox[abprs]-[A-Za-z0-9\-]{10,}
    | (?:AKIA|ASIA)[A-Z0-9]{16}
    | AIza[A-Za-z0-9_\-]{30,}
    | eyJ[A-Za-z0-9_\-]{10,}\.[A-Za-z0-9_\-]{10,}\.[A-Za-z0-9_\-]{10,}
    | -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----.+?-----END[ ][A-Z ]*PRIVATE[ ]KEY-----
    """,
    re.VERBOSE | re.DOTALL,
)
_BEARER = re.compile(r"(?i)\b((?:proxy-)?authorization:?\s*(?:bearer|basic)\s+|x-api-key:?\s+)[^\s\"',;]{8,}")


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
        known = sorted({s for s in secrets if len(s) >= 6}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None

    def clean(self, text: str) -> str:
        if self._known:
            text = self._known.sub(MASK, text)
        text = _KEY_SHAPES.sub(MASK, text)
        return _BEARER.sub(rf"\1{MASK}", text)


redact = Redactor().clean
"""Removes what looks like a key from a text whose secrets are not known."""
