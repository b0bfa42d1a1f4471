"""Handles lines that cannot be decoded: keeps them, repairs damaged text, rejects requests that wait for an answer."""

from __future__ import annotations

import json
import re
from typing import Any, get_args

import msgspec

from leadrope.core import events
from leadrope.providers.claude_code import failures, signals, wire
from leadrope.regex import regex

RAW_LIMIT = 64 * 1024
"""Bytes kept of a line that was not understood. A lower limit would cut JSON that someone will want to read; a higher
one would let a child that prints garbage fill the store.
"""

ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""All errors that decoding a line can raise."""

_REQUEST = msgspec.json.Decoder(wire.AnyRequest)
_DEEP_REQUEST = regex(rb'\{"type":"control_request","request_id":"([A-Za-z0-9_-]+)"')
_DEEP_RESULT = regex(rb'\s*\{"type": ?"result",.*\}\s*\Z', re.DOTALL)
"""A result that is nested too deeply to decode, but is complete."""
_KNOWN_TYPES = frozenset(kind.__struct_config__.tag for kind in get_args(wire.Line))


def unrecognised(reason: str, raw: bytes | bytearray) -> events.Unrecognised:
    text = raw[:RAW_LIMIT].decode("utf-8", "replace")
    looks_like_json = text.lstrip()[:1] in ("{", "[")
    return events.Unrecognised(
        reason=reason,
        raw=text,
        size=len(raw),
        # An incomplete JSON line contains the model's words, which may be about anything.
        problem=failures.explain_text(text) if reason == "not_json" and not looks_like_json else None,
    )


def why(raw: bytes) -> str:
    try:
        # The whole line: `401 Unauthorized` begins like a number, and only its end shows that it is not one.
        value = msgspec.json.decode(raw)
    except ERRORS:
        return "not_json"
    if not isinstance(value, dict):
        return "not_object"
    kind = value.get("type")
    return "wrong_shape" if isinstance(kind, str) and kind in _KNOWN_TYPES else "unknown_type"


def result(raw: bytes) -> tuple[wire.Result, tuple[str, ...]] | None:
    """Decode a `result` line whose fields have unexpected types; returns what is usable, and the names of unusable
    fields.

    It ends a turn, so it must never be dropped: the run would wait for a line that has already come. Unambiguous
    deviations are accepted: a number written as text, 1.0 for 1, one text instead of a list of texts.
    """
    try:
        value = msgspec.json.decode(raw)
    except ERRORS:
        return (wire.Result(), ("line",)) if _DEEP_RESULT.match(raw) else None
    if not isinstance(value, dict) or value.get("type") != "result":
        return None
    read: dict[str, Any] = {}
    wrong: list[str] = []
    for field in msgspec.structs.fields(wire.Result):
        given = value.get(field.encode_name, msgspec.UNSET)
        if given is msgspec.UNSET or field.name == "model_usage":
            continue
        if field.name == "errors" and isinstance(given, str):
            given = [given]
        try:
            read[field.name] = msgspec.convert(given, field.type, strict=False)
        except msgspec.ValidationError:
            wrong.append(field.encode_name)
    return wire.Result(**read), tuple(wrong)


def refusal(raw: bytes) -> signals.OtherControl | None:
    """Return the request to reject if the line is one from the CLI; None for every other line."""
    try:
        request = _REQUEST.decode(raw)
    except RecursionError:
        # An input nested a thousand levels: too deep to decode, but its sender still waits.
        found = _DEEP_REQUEST.match(raw)
        return signals.OtherControl(request_id=found[1].decode("ascii"), subtype="") if found else None
    except ERRORS:
        return None
    if request.type != "control_request":
        return None
    subtype = request.request.get("subtype") if isinstance(request.request, dict) else None
    return signals.OtherControl(request_id=request.request_id, subtype=str(subtype or ""))


def mend(raw: bytes) -> bytes | None:
    """Return the same JSON in clean UTF-8, or None if it is not JSON.

    JavaScript can split a text between the two halves of an emoji and print half of it as an escape that strict parsers
    reject.
    """
    try:
        value = json.loads(raw.decode("utf-8", "replace"))
        text = json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace").encode()
