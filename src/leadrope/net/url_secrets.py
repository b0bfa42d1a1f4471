"""Detects known secrets in URLs. Pure: the caller supplies the secrets."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import unquote

from leadrope.core.secrets.redaction import SHORTEST

_DECODINGS = 2


def holds_secret(url: str, secrets: Iterable[str]) -> bool:
    """Return whether the URL contains one of the secrets, verbatim or percent-encoded once or twice.

    The comparison ignores case, because host names are lowercased in transit. Secrets shorter than `SHORTEST`
    characters are ignored: they would match ordinary words. Other encodings (base64, hex, a secret cut into pieces) are
    not found.

    >>> holds_secret("https://a.example/?q=p%2540ssw0rd", ["p@ssw0rd"])
    True
    """
    wanted = {secret.casefold() for secret in secrets if len(secret) >= SHORTEST}
    if not wanted:
        return False
    spellings = {url}
    for _ in range(_DECODINGS):
        spellings |= {form for text in spellings for form in (unquote(text), unquote(text.replace("+", " ")))}
    # Programs drop line breaks and tabs from a URL before they use it.
    texts = {text.translate(_DROPPED).casefold() for text in spellings} | {text.casefold() for text in spellings}
    return any(secret in text for secret in wanted for text in texts)


_DROPPED = {ord(char): None for char in "\t\r\n"}
