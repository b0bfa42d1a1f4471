"""The result of checking one rule against a call."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class Finding(msgspec.Struct, frozen=True):
    """`unknown` means that a part of the command that the rule needs is unknown."""

    word: Literal["deny", "ask", "unknown"]
    reason: str
    entry: Any = None
    """The part of the rule's value that matched, to find its layer."""
