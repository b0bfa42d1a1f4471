"""Does a URL carry a known secret out? Pure: the caller says which secrets there are."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import unquote

from leadrope.core.secrets.redaction import SHORTEST

_DECODINGS = 2


def holds_secret(url: str, secrets: Iterable[str]) -> bool:
    """Whether one of the secrets stands anywhere in the URL: as it is, or percent-encoded once or twice.

    Upper and lower case count as the same, because a host name loses its case on the way. Secrets shorter than
    `SHORTEST` characters are not looked for: they would match ordinary words. Other encodings (base64, hex, a secret
    cut into pieces) are not found.

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
