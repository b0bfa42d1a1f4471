"""What a decoder says about a value of the wrong type, in the words of somebody who writes TOML or JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, get_args

import msgspec

from leadrope.spelling import close_matches

_KINDS = {
    "str": ("text", 'Write text in quotes: "…".'),
    "int": ("a whole number", "Write a whole number without quotes."),
    "float": ("a number", "Write a number without quotes."),
    "bool": ("true or false", "Write true or false, without quotes."),
    "array": ("a list", 'Write a list: ["…", "…"].'),
    "object": ("a table", "Write it as a table: { name = … }."),
}


def split(error: msgspec.ValidationError) -> tuple[str, str]:
    """The decoder's message, and the path of the value: `.limits.idle_s`, `[0]`, empty for the whole."""
    message, _, path = str(error).partition(" - at `")
    return message, path.rstrip("`").removeprefix("$")


def unknown_key(message: str) -> str | None:
    """The key that the decoder does not know, if that is what it complains about."""
    found = re.fullmatch(r"Object contains unknown field `(.*)`", message)
    return found[1] if found else None


def in_words(message: str, kind: Any = None, path: str = "") -> tuple[str, str | None]:
    """A decoder's `Expected `int`, got `str`` as a sentence, and how to write what is expected.

    With the type that was decoded, the words that it takes at `path` are named.
    """
    if word := re.fullmatch(r"Invalid enum value '(.*)'", message, re.DOTALL):
        return f"{word[1]!r} is not known", suggest(word[1], _words(kind, path))
    if missing := re.fullmatch(r"Object missing required field `(.*)`", message):
        return f"has no {missing[1]}", f"Add {missing[1]}."
    found = re.fullmatch(r"Expected `([^`]+)`, got `([^`]+)`", message)
    expected = [_KINDS[word] for word in found[1].split(" | ") if word in _KINDS] if found else []
    if found is None or not expected:
        return f"{message[:1].lower()}{message[1:]}", None
    got = _KINDS.get(found[2], (found[2], ""))[0]
    return f"expected {' or '.join(name for name, _ in expected)}, got {got}", expected[0][1]


def _words(kind: Any, path: str) -> tuple[str, ...]:
    """The words that a field takes, if it takes only some."""
    fields = msgspec.structs.fields(kind) if kind is not None and hasattr(kind, "__struct_fields__") else ()
    named = [field.type for field in fields if f".{field.encode_name}" == path]
    options = [option for hint in named for option in (hint, *get_args(hint))]
    return tuple(word for option in options for word in get_args(option) if isinstance(word, str))


def suggest(word: str, known: Sequence[str]) -> str | None:
    """`Did you mean …?`, or what is known."""
    close = close_matches(word, known, n=2)
    if close:
        return f"Did you mean {' or '.join(close)}?"
    return f"Known here: {', '.join(known)}." if known else None
