"""Characters that a terminal acts on or an eye cannot see: one table for what is shown and for what is judged."""

from __future__ import annotations

from leadrope.regex import regex

# Controls but for tab and newline; what reorders text; what has no width; tags; separators that look like newlines;
# halves of a pair.
INVISIBLE = regex(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffc\U000e0000-\U000e0fff\ud800-\udfff]"
)
