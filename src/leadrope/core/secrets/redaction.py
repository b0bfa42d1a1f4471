"""Secrets as a type that cannot be printed, and the one function that cleans text that leaves the process."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Iterator

from leadrope.regex import regex

MASK = "[redacted]"
SHORTEST = 6
"""Characters of a secret that can be taken out of texts: a shorter one would take ordinary words with it."""
JSON_DEPTH = 3
"""JSON within JSON: what a server answers is a text in a command's output, which is a text in an event."""


def _starts(word: str, more: str = "") -> str:
    """Behind `word`: nothing before it that it could be the middle of. In JSON a line break before it is a letter."""
    return rf"(?:(?<![A-Za-z0-9{re.escape(more)}]{word})|(?<=\\[bfnrt]{word}))"


# Shapes that are keys whoever holds them, each behind a word that must be there: looking for a word is a hundred times
# faster than trying a pattern, and most text holds none of them. Each shape needs a long random tail, so that prose
# about keys survives, and does not start inside a word: `task-implement-the-login-page` holds `sk-` too. Every scan is
# bounded or stops at a character that its own start cannot hold, so that a hostile text costs linear time.
_KEY_SHAPES = (
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


@functools.cache
def _compiled(shape: str) -> re.Pattern[str]:
    return re.compile(shape, re.VERBOSE)


# As a header line, as a field of JSON, and as an assignment.
_BEARER = regex(
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
        """The value itself."""
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

    def __init__(self, secrets: Iterable[str] = (), *, shapes: bool = True) -> None:
        """Without `shapes` only what is known: an answer with an example of a key in it stays as it is."""
        self._shapes = shapes
        self._secrets = tuple(secrets)
        self._only_known: Redactor | None = None
        # Longest first, so that a secret that contains another is removed whole.
        long_enough = {s for s in self._secrets if len(s) >= SHORTEST}
        spellings = long_enough | {spelling for secret in long_enough for spelling in _as_lines(secret)}
        # Most text that leaves is JSON, where a quote or a line break of the secret is written differently.
        for _ in range(JSON_DEPTH):
            spellings |= {json.dumps(s, ensure_ascii=is_ascii)[1:-1] for s in spellings for is_ascii in (True, False)}
        self._spellings = tuple(sorted(spellings, key=len, reverse=True))
        self._known = re.compile("|".join(map(re.escape, self._spellings))) if spellings else None

    @property
    def secrets(self) -> tuple[str, ...]:
        """Those that it was given, for other checks of the same run; never to be shown."""
        return self._secrets

    @property
    def spellings(self) -> tuple[str, ...]:
        """Each secret that is long enough, as it is and as JSON within JSON writes it; the longest first."""
        return self._spellings

    def clean(self, text: str) -> str:
        if self._known and any(spelling in text for spelling in self._spellings):
            text = self._known.sub(MASK, text)
        if not self._shapes:
            return text
        for word, shape in _KEY_SHAPES:
            if word in text:
                text = _compiled(shape).sub(MASK, text)
        lowered = text.lower()
        if "authorization" in lowered or "x-api-key" in lowered:
            text = _BEARER.sub(rf"\1{MASK}", text)
        return text

    def clean_start(self, text: str, length: int) -> str:
        """The first characters of a text, without a secret and without the first half of one that the cut divides."""
        if len(text) <= length:
            return self.clean(text)
        start = text[:length]
        return self.clean(start[: self.open_end(start)])

    def only_known(self) -> Redactor:
        """The same secrets, without the shapes."""
        if self._only_known is None:
            self._only_known = Redactor(self._secrets, shapes=False)
        return self._only_known

    def open_end(self, text: str) -> int:
        """From where on a text may be the beginning of a secret that its next piece goes on with; else its length."""
        start = min(self.open_known(text), _open_shape(text) if self._shapes else len(text))
        # Never within one that is here already, whole.
        return min((found.start() for found in self._found(text) if found.start() < start < found.end()), default=start)

    def open_known(self, text: str) -> int:
        """From where on a text may be the beginning of a known secret; else its length."""
        start = len(text)
        for spelling in self._spellings:
            place = text.find(spelling[0], max(0, len(text) - len(spelling) + 1))
            while place >= 0:
                if spelling.startswith(text[place:]):
                    start = min(start, place)
                    break
                place = text.find(spelling[0], place + 1)
        return start

    def known_start(self, text: str) -> str:
        """The known secret, in one of its spellings, that a text begins with; empty if there is none."""
        return next((spelling for spelling in self._spellings if text.startswith(spelling)), "")

    def _found(self, text: str) -> Iterator[re.Match[str]]:
        if self._known:
            yield from self._known.finditer(text)
        if self._shapes:
            for word, shape in _KEY_SHAPES:
                if word in text:
                    yield from _compiled(shape).finditer(text)
            yield from _BEARER.finditer(text)


def _as_lines(secret: str) -> Iterator[str]:
    """A secret of several lines as a list or a title shows it, in one, and as a diff or a search does, one by one."""
    if "\n" in secret:
        yield from (folded for folded in (" ".join(secret.split()),) if len(folded) >= SHORTEST)
        yield from (line.strip() for line in secret.split("\n") if len(line.strip()) >= LONG_LINE)


LONG_LINE = 16
"""Characters of one line of a secret that are secret by themselves; shorter ones may be anybody's."""
LONGEST = 8192
"""Characters that a shape may have when it comes in pieces; what has grown longer is given on as it is."""
_OPEN_HEADER = regex(r"(?i)(?:authorization|x-api-key)[^\n]{0,60}\Z")
_OPEN_PEM = regex(
    r"-----BEGIN (?:[A-Z ]{0,40}-{0,4}\Z|[A-Z ]{0,40}PRIVATE KEY-----(?![\s\S]*-----END [A-Z ]{0,40}-----))"
)


def _open_shape(text: str) -> int:
    """A key has no blank in it, so its beginning is in the last word; headers and private keys are of several words."""
    tail = text[-LONGEST:]
    start = len(tail) if not tail or tail[-1].isspace() else len(tail) - len(tail.rsplit(None, 1)[-1])
    near = max(0, len(tail) - 100)
    header = _OPEN_HEADER.search(tail, near)
    if header is not None:
        start = min(start, header.start())
    begin = tail.rfind("-----BEGIN ")
    if begin >= 0 and _OPEN_PEM.match(tail, begin):
        start = min(start, begin)
    # What began before the tail is too long to be waited for.
    return len(text) if start == 0 and len(text) > LONGEST else len(text) - len(tail) + start


redact = Redactor().clean
"""Removes what looks like a key from a text whose secrets are not known."""
