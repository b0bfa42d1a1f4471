"""What in a request must not be shown or kept: its credential, what connections are given, secret variables."""

from __future__ import annotations

from leadrope.core.request import RunRequest

_LAST_WORDS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS")
"""The last word of a variable's name marks it: `DB_PASSWORD`, but not `PASSWORD_FILE` and not `MAX_TOKENS`."""


def is_secret_name(name: str) -> bool:
    """Whether a variable's name says that its value is a secret.

    >>> is_secret_name("STRIPE_API_KEY"), is_secret_name("KEYBOARD")
    (True, False)
    """
    return name.upper().replace("-", "_").rpartition("_")[2] in _LAST_WORDS


def known_secrets(request: RunRequest) -> list[str]:
    """What the request itself holds. A connection that names a variable (`${NAME}`) holds nothing."""
    found = [request.credential.reveal()] if request.credential else []
    found += [value for name, value in request.variables.items() if is_secret_name(name)]
    for server in request.connections.values():
        given = [*server.env.values(), *server.headers.values()]
        found += [word for text in given for word in (text, *text.split()) if len(word) > 8 and "${" not in word]
    return found
