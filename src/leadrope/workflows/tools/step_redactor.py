"""Removes the known secrets of one step from its texts and values, and nothing else.

`core.secrets` also redacts whatever looks like a key. That is right for logs, but a step's result may be a key that the
next step needs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from leadrope.core.secrets.redaction import MASK, SHORTEST


class KnownSecrets:
    def __init__(self, secrets: Iterable[str]) -> None:
        plain = {secret for secret in secrets if len(secret) >= SHORTEST}
        spelled = plain | {json.dumps(secret)[1:-1] for secret in plain}
        spelled |= {json.dumps(secret, ensure_ascii=False)[1:-1] for secret in plain}
        # Longest first, so that a secret that contains another is removed completely.
        self._spellings = tuple(sorted(spelled, key=len, reverse=True))

    def text(self, text: str) -> str:
        for spelling in self._spellings:
            text = text.replace(spelling, MASK)
        return text

    def data(self, data: bytes) -> bytes:
        """Redact bytes of any kind; a secret in an encoding other than UTF-8 is not found."""
        for spelling in self._spellings:
            data = data.replace(spelling.encode(), MASK.encode())
        return data

    def value(self, value: Any) -> Any:
        """Redact every text in a JSON value, including keys."""
        if not self._spellings:
            return value
        match value:
            case str():
                return self.text(value)
            case list():
                return [self.value(one) for one in value]
            case dict():
                return {self.text(str(name)): self.value(one) for name, one in value.items()}
            case _:
                return value
