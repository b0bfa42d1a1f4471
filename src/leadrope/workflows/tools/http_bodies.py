"""Encodes request bodies: text, JSON, forms and multipart uploads. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import urlencode

import msgspec
from msgspec import Meta

from leadrope.workflows.steps.base import StepConfig, StepFailed
from leadrope.workflows.tools import media

Scalar = str | int | float | bool | None
Values = Scalar | list[Scalar]


class UploadPart(StepConfig, frozen=True, kw_only=True):
    """One part of a multipart upload that is not a plain value."""

    file: Annotated[str, Meta(description="A file of the workspace.")] = ""
    base64: Annotated[str, Meta(description="Bytes in base64.")] = ""
    value: Annotated[Any, Meta(description="A text as it is, any other value as JSON.")] = None
    filename: Annotated[str, Meta(description="The file name sent to the server (default: the file's own).")] = ""
    media_type: Annotated[str, Meta(description="The content type sent to the server.")] = ""


class FormPart(msgspec.Struct, frozen=True, kw_only=True):
    """One encoded part."""

    name: str
    data: bytes
    filename: str = ""
    media_type: str = ""


class RequestBody(msgspec.Struct, frozen=True, kw_only=True):
    data: bytes
    media_type: str


def encoded(values: Mapping[str, Values]) -> str:
    """Encode a query or a form; a list repeats the name, null omits it."""
    pairs = [(name, one) for name, value in values.items() for one in (value if isinstance(value, list) else [value])]
    return urlencode([(name, word(value)) for name, value in pairs if value is not None])


def word(value: Scalar) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def plain(value: Any) -> RequestBody:
    """Encode a text verbatim, and any other value as JSON."""
    if isinstance(value, str):
        try:
            return RequestBody(data=value.encode(), media_type="text/plain; charset=utf-8")
        except UnicodeEncodeError as error:
            raise StepFailed(f"body: it cannot be sent as UTF-8: {error.reason}", kind="bad_input") from None
    return RequestBody(data=msgspec.json.encode(value), media_type="application/json")


def form(values: Mapping[str, Values]) -> RequestBody:
    return RequestBody(data=encoded(values).encode("ascii"), media_type="application/x-www-form-urlencoded")


def multipart(parts: Sequence[FormPart]) -> RequestBody:
    """Encode a multipart body. Equal parts give equal bytes, because an approval covers exactly these bytes."""
    boundary = _boundary(parts)
    lines: list[bytes] = []
    for part in parts:
        head = f'Content-Disposition: form-data; name="{_quoted(part.name)}"'
        if part.filename:
            head += f'; filename="{_quoted(part.filename)}"'
        if part.media_type:
            head += f"\r\nContent-Type: {part.media_type}"
        lines += [f"--{boundary}\r\n{head}\r\n\r\n".encode(), part.data, b"\r\n"]
    lines.append(f"--{boundary}--\r\n".encode())
    return RequestBody(data=b"".join(lines), media_type=f"multipart/form-data; boundary={boundary}")


def _boundary(parts: Sequence[FormPart]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        for piece in (part.name.encode(), part.filename.encode(), part.media_type.encode(), part.data):
            digest.update(len(piece).to_bytes(8, "big") + piece)
    while True:
        boundary = f"leadrope-{digest.hexdigest()[:32]}"
        if not any(boundary.encode() in part.data for part in parts):
            return boundary
        digest.update(b"again")


def _quoted(text: str) -> str:
    """Quote a name as browsers do."""
    return text.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")


def described(data: bytes, media_type: str) -> str:
    """Describe a body for rules and people: its text, or its type and size if it is binary."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        kind = media_type.partition(";")[0].strip() or media.OCTETS
        return f"({len(data):,} bytes of {kind}, SHA-256 {hashlib.sha256(data).hexdigest()})"


def together(names: Sequence[str]) -> str:
    """Say that several mutually exclusive parameters were given."""
    *first, last = names
    return f"{', '.join(first)} and {last} are {'both' if len(first) == 1 else 'all'} given"
