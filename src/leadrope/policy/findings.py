"""What one rule has to say about a call."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class Finding(msgspec.Struct, frozen=True):
    """`unknown`: a part of the command that the rule needs is not known."""

    word: Literal["deny", "ask", "unknown"]
    reason: str
    entry: Any = None
    """The part of the rule's value that said it, to tell its layer."""
