"""Which words of a server's command line or address are secrets, judged by their place and their look. Pure.

The rule, as docs/runs.md states it:

- the value of an option or assignment whose name says so: `--token X`, `--api-key=X`, `GITHUB_TOKEN=X`,
  `--header "Authorization: Bearer X"`;
- an address with a password in it, that password, and what looks random in an address's path or query;
- any other word that looks random.

Options, paths and the names of packages are not secrets, wherever they stand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from urllib.parse import unquote, urlsplit

from leadrope.core.secrets.secret_names import is_secret_name
from leadrope.regex import regex

_OPTION_WORDS = frozenset({"PASS", "PWD", "APIKEY", "AUTH", "AUTHORIZATION", "BEARER", "PAT", "DSN", "COOKIE"})
"""The last words of options and headers that hold a secret, beside those of variables."""
_CAMEL = regex(r"(?<=[a-z0-9])(?=[A-Z])")
_ASSIGNED = regex(r"(-{0,2}[A-Za-z_][\w.-]*)=(.+)", re.DOTALL)
_HEADER = regex(r"([A-Za-z][\w-]*):\s*(\S.*)", re.DOTALL)
_PATH = regex(r"(?:/|\.{1,2}/|~|[A-Za-z]:\\|@[\w.-]+/)")
_ADDRESS = regex(r"[A-Za-z][A-Za-z0-9+.-]*://")
_TOKEN = regex(r"[A-Za-z0-9_+=~.-]{16,}")
_PIECES = regex(r"[A-Za-z0-9]+")
_SWITCH = regex(r"(?<=[0-9])(?=[A-Za-z])|(?<=[A-Za-z])(?=[0-9])")
_MIXED = 12
"""Letters and digits in pieces that mix them. `server-gpt4o-k8s` has 8, the shortest keys in use have 16 and more."""


def says_secret(name: str) -> bool:
    """Whether the name of an option or a header says that its value is a secret.

    >>> says_secret("--apiKey"), says_secret("Authorization"), says_secret("--token-file")
    (True, True, False)
    """
    plain = _CAMEL.sub("_", name.lstrip("-")).replace("-", "_").replace(".", "_")
    return is_secret_name(plain) or plain.upper().rpartition("_")[2] in _OPTION_WORDS


def looks_random(word: str) -> bool:
    """Whether a word is more likely a key than a name: pieces in which letters and digits change several times.

    >>> looks_random("Zq81kfL0ppW2mmxT"), looks_random("mcp-server-sqlite3-2024")
    (True, False)
    """
    if not _TOKEN.fullmatch(word):
        return False
    mixed = [piece for piece in _PIECES.findall(word) if len(_SWITCH.findall(piece)) > 1]
    return sum(map(len, mixed)) >= _MIXED


def in_arguments(arguments: Iterable[str]) -> Iterator[str]:
    """The secrets of a command line without its program. What is filled in later (`${NAME}`) is not among them."""
    is_value = False
    for word in arguments:
        assigned = _ASSIGNED.fullmatch(word)
        header = _HEADER.fullmatch(word)
        if is_value and not word.startswith("--"):
            yield from _value(word)
        elif assigned and says_secret(assigned[1]):
            yield from _value(assigned[2])
        elif header and says_secret(header[1]):
            yield from _value(header[2])
        else:
            text = assigned[2] if assigned else word
            inner = _HEADER.fullmatch(text) if assigned else None
            yield from _value(inner[2]) if inner and says_secret(inner[1]) else _by_look(text)
        is_value = word.startswith("-") and not assigned and says_secret(word)


def in_address(address: str) -> Iterator[str]:
    """A password, and what the query or the path of an address holds that is named or looks like a key."""
    try:
        parts = urlsplit(address)
        password = parts.password
    except ValueError:  # half an IPv6 address, for instance: the run is refused where it starts
        return
    if password and "${" not in password:
        yield from (address, password, unquote(password))
    pairs = [pair.partition("=") for pair in re.split("[&;]", parts.query)]
    for name, _, value in (*pairs, *(("", "", piece) for piece in parts.path.split("/"))):
        if value and "${" not in value and (says_secret(name) or looks_random(unquote(value))):
            yield from {value, unquote(value)}


def _value(text: str) -> Iterator[str]:
    """What must be a secret by its place. `Bearer KEY` is two words, and the key alone is one too."""
    if "${" in text or _PATH.match(text):
        return
    yield text
    if _ADDRESS.match(text):
        yield from in_address(text)
    yield from (word for word in text.split() if word != text and len(word) > 8)


def _by_look(text: str) -> Iterator[str]:
    if "${" in text or _PATH.match(text):
        return
    if _ADDRESS.match(text):
        yield from in_address(text)
    elif looks_random(text):
        yield text
