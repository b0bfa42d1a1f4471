"""What a row may hold: values as JSON, without secrets. Knows no table."""

from __future__ import annotations

from typing import Any

import msgspec

from leadrope.core.redaction import Redactor

_encode = msgspec.json.Encoder().encode
_anything = msgspec.json.Decoder()


def as_json(value: Any, redactor: Redactor) -> str:
    """Cleaned as a whole, where a name stands beside its value; in each of its texts, where that would be no JSON."""
    text = _encode(value).decode()
    found = redactor.clean(text)
    if found == text:
        return text
    try:
        _anything.decode(found)
    except msgspec.DecodeError:
        # A secret that begins like the second half of an escape takes that half with it.
        return _encode(_within(msgspec.to_builtins(value), redactor)).decode()
    return found


def _within(value: Any, redactor: Redactor) -> Any:
    match value:
        case str():
            return redactor.clean(value)
        case dict():
            return {redactor.clean(str(key)): _within(item, redactor) for key, item in value.items()}
        case list() | tuple():
            return [_within(item, redactor) for item in value]
        case _:
            return value
