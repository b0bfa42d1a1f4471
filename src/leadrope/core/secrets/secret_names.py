"""Which names say that a value is a secret; knows names only."""

from __future__ import annotations

_LAST_WORDS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS")
"""The last word of a variable's name marks it: `DB_PASSWORD`, but not `PASSWORD_FILE` and not `MAX_TOKENS`. Any other
name is marked by the request's `secret_variables`."""


def is_secret_name(name: str) -> bool:
    """Whether a variable's name says that its value is a secret.

    >>> is_secret_name("STRIPE_API_KEY"), is_secret_name("KEYBOARD")
    (True, False)
    """
    return name.upper().replace("-", "_").rpartition("_")[2] in _LAST_WORDS
