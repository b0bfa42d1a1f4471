"""Converts bytes to step values: text if they decode, otherwise base64, and detects media types. Pure."""

from __future__ import annotations

import base64
import binascii
from urllib.parse import quote

from leadrope.regex import regex
from leadrope.workflows.steps.base import StepFailed

OCTETS = "application/octet-stream"
_TEXT_TYPES = frozenset(
    {
        *("application/json", "application/xml", "application/javascript", "application/ecmascript"),
        *("application/yaml", "application/x-yaml", "application/toml", "application/sql", "application/graphql"),
        *("application/x-www-form-urlencoded", "application/x-ndjson", "application/jsonl", "application/csv"),
        *("application/rtf", "application/x-sh", "application/xhtml+xml"),
    }
)
_TEXT_SUFFIXES = ("+json", "+xml", "+yaml", "+text")
_PACKINGS = {
    "gzip": "application/gzip",
    "bzip2": "application/x-bzip2",
    "xz": "application/x-xz",
    "compress": "application/x-compress",
}
_MEDIA_TYPE = regex(r"[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+(;[\t\x20-\x7e]*)?")


def charset_of(content_type: str) -> str:
    named = [part.strip() for part in content_type.split(";")[1:]]
    return next((part[8:].strip("\"' ") for part in named if part.lower().startswith("charset=")), "utf-8")


def text_of(data: bytes, charset: str = "utf-8") -> str | None:
    """Decode bytes in a charset; None if they do not decode. Characters are never replaced."""
    for name in dict.fromkeys((charset, "utf-8")):
        try:
            return data.decode(name)
        except LookupError:
            continue  # an unknown charset
        except (UnicodeError, ValueError):
            return None
    return None


def is_text_type(media_type: str) -> bool:
    """Return whether this media type is for text; an empty one counts as text."""
    return (
        not media_type
        or media_type.startswith("text/")
        or media_type in _TEXT_TYPES
        or media_type.endswith(_TEXT_SUFFIXES)
    )


def as_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def type_of(name: str, *, is_text: bool) -> str:
    """Return a file's media type by its name, independent of the machine; if the suffix is unknown, by its content."""
    import mimetypes  # noqa: PLC0415  # 5 ms, and few steps need it

    # Without the system's own tables, so that a workflow behaves the same on every machine.
    found, packing = mimetypes.MimeTypes(filenames=()).guess_type(f"file:///{quote(name)}", strict=True)
    if packing is not None:
        return _PACKINGS.get(packing, OCTETS)
    return found or ("text/plain" if is_text else OCTETS)


def from_base64(text: str, parameter: str) -> bytes:
    """Decode base64; line breaks and spaces, which many programs insert, are ignored."""
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise StepFailed(
            f"{parameter}: not base64: {error}",
            kind="bad_input",
            hint="Give the base64 of an output (`${step.body_base64}`), or name a file.",
        ) from None


def check_type(text: str, parameter: str) -> str:
    if text and not _MEDIA_TYPE.fullmatch(text):
        raise StepFailed(
            f"{parameter}: {text[:60]!r} is not a media type", kind="bad_input", hint="Write for example image/png."
        )
    return text
