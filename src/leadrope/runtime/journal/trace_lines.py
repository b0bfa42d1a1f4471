"""Formats an agent's lines for LEADROPE_DEBUG_SPAWN, without the pieces of streamed texts. Pure.

A streamed key is split across several lines, so no redactor would find it. The complete message follows, so the trace
loses nothing.
"""

from __future__ import annotations

from typing import Any

import msgspec

_PIECE = b'"delta"'


def without_pieces(line: bytes) -> str:
    r"""Return the line as text, with the content of a `delta` replaced by its length.

    >>> without_pieces(b'{"delta":{"type":"text_delta","text":"sk-ant"},"index":0}')
    '{"delta":{"type":"text_delta","text":"(6 characters)"},"index":0}'
    """
    # An escaped spelling of the word would still be parsed as the word.
    if _PIECE not in line and b"\\u00" not in line:
        return line.decode(errors="replace").rstrip()
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return f"({len(line)} bytes that are not JSON)"
    return msgspec.json.encode(_told(value)).decode()


def _told(value: Any, *, is_piece: bool = False) -> Any:
    match value:
        case str() if is_piece:
            return f"({len(value)} characters)"
        case dict():
            return {
                name: inner if is_piece and name == "type" else _told(inner, is_piece=is_piece or name == "delta")
                for name, inner in value.items()
            }
        case list():
            return [_told(inner, is_piece=is_piece) for inner in value]
        case _:
            return value
