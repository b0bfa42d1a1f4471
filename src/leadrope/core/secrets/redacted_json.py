"""JSON without secrets that is still JSON. Knows no table and no file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

_encode = msgspec.json.Encoder().encode
_anything = msgspec.json.Decoder()


def clean_json(text: str, clean: Callable[[str], str]) -> str:
    """Cleaned as a whole, where a name stands beside its value; in each of its texts, where that would not be JSON."""
    found = clean(text)
    if found == text or _is_json(found) or not _is_json(text):
        return found
    # A secret that begins like the second half of an escape takes that half with it.
    return _encode(clean_value(_anything.decode(text), clean)).decode()


def _is_json(text: str) -> bool:
    try:
        _anything.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def clean_value(value: Any, clean: Callable[[str], str]) -> Any:
    """The same value with each of its texts cleaned, names included."""
    match value:
        case str():
            return clean(value)
        case dict():
            return {clean(str(key)): clean_value(item, clean) for key, item in value.items()}
        case list():
            return [clean_value(item, clean) for item in value]
        case _:
            return value
