"""Values of workflows as bodies of rows: JSON without secrets, bounded, deflated where that is worth it, and back."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Mapping
from typing import Any

import msgspec

from leadrope import errors
from leadrope.core.secrets.redaction import Redactor
from leadrope.runs.records.redacted_rows import as_json

PACK_BYTES = 4096
MOST_BYTES = 16 * 1024 * 1024
"""Of one unit's outputs, as JSON. A file of this size belongs in the workspace, and its path in the outputs."""
EXCERPT_BYTES = 16 * 1024
"""Of the resolved parameters of a unit that are kept, as JSON: enough to see what it was given."""
ASIDE_BYTES = 256 * 1024
"""Above this, looking for secrets takes milliseconds, which the loop and everything that runs in it would wait for."""

_encode = msgspec.json.Encoder().encode


class RowBody(msgspec.Struct, frozen=True, kw_only=True):
    body: bytes
    packed: bool
    redacted: bool
    size: int
    """Before it was packed."""

    @property
    def columns(self) -> dict[str, Any]:
        return {"body": self.body, "packed": int(self.packed), "redacted": int(self.redacted)}


async def made(value: Any, redactor: Redactor, what: str, *, most: int = MOST_BYTES) -> RowBody:
    """`what` names the value in the errors: it may be no JSON, or too large."""
    text = json_of(value, what, most=most)
    if len(text) > ASIDE_BYTES:
        return await asyncio.to_thread(packed, text, redactor)
    return packed(text, redactor)


def json_of(value: Any, what: str, *, most: int = MOST_BYTES) -> bytes:
    try:
        text = _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise errors.BadValue(what, f"is not JSON: {error}", hint="Use texts, numbers, lists and objects.") from None
    if len(text) > most:
        raise errors.TooLarge(
            what,
            f"{len(text):,} bytes of JSON are more than the {most:,} that are kept",
            hint="Write large data to a file in the workspace, and hand its path on.",
        )
    return text


def text_of(value: Any, redactor: Redactor, what: str) -> str:
    """For a column that is small and is never packed."""
    return as_json(msgspec.json.decode(json_of(value, what)), redactor)


def packed(text: bytes, redactor: Redactor) -> RowBody:
    plain = text.decode()
    is_clean = redactor.clean(plain) == plain
    kept = text if is_clean else as_json(msgspec.json.decode(text), redactor).encode()
    is_packed = len(kept) > PACK_BYTES
    body = zlib.compress(kept, 1) if is_packed else kept
    return RowBody(body=body, packed=is_packed, redacted=not is_clean, size=len(text))


class Excerpt(msgspec.Struct, frozen=True, kw_only=True):
    body: bytes
    """JSON; deflated where that is worth it."""
    size: int
    """Of all of it, as JSON."""


def excerpt(values: Mapping[str, Any], redactor: Redactor, *, most: int = EXCERPT_BYTES) -> Excerpt:
    """The values without secrets; of each that is too long, its beginning and its size: `{"cut": …, "bytes": …}`."""
    try:
        size = len(_encode(values))
        shown = values if size <= most else _shortened(values, redactor, most)
        text = as_json(shown, redactor).encode()
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        return Excerpt(body=b"", size=0)  # a value that is not JSON fails the step by itself
    return Excerpt(body=zlib.compress(text, 1) if len(text) > PACK_BYTES else text, size=size)


def _shortened(values: Mapping[str, Any], redactor: Redactor, most: int) -> dict[str, Any]:
    share = most // max(1, len(values))
    found: dict[str, Any] = {}
    for name, value in values.items():
        text = _encode(value)
        whole = value if isinstance(value, str) else text.decode()
        is_short = len(text) <= share
        found[name] = value if is_short else {"cut": redactor.clean_start(whole, share // 2), "bytes": len(text)}
    return found


def read_excerpt(body: bytes | None, what: str) -> dict[str, Any]:
    if not body:
        return {}
    text = body if body.startswith(b"{") else read(1, body, what)
    return msgspec.json.decode(text, type=dict[str, Any])


def read(packed: int, body: bytes, what: str) -> bytes:
    try:
        return zlib.decompress(body) if packed else body
    except zlib.error as error:
        raise errors.StoreUnreadable(
            f"the run store is damaged: {what} cannot be unpacked ({error})",
            hint="Nothing was overwritten. Put a backup in its place.",
        ) from error
