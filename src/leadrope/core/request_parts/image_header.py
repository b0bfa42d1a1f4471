"""What the first bytes of an image tell: its sides, and whether all of it is there. Decodes no pixel.

The agent program puts a line of text in the place of an image that it cannot read, and goes on: only the model learns
of it. So what is plainly broken is found before anything starts.
"""

from __future__ import annotations

import struct

CUT_OFF = "it is cut off or damaged"


class BadImage(ValueError):
    """The reason, in words."""


def sides(media_type: str, content: bytes) -> tuple[int, int]:
    """Width and height in pixels; BadImage if it cannot be shown."""
    read = {"image/png": _png, "image/jpeg": _jpeg, "image/gif": _gif, "image/webp": _webp}[media_type]
    try:
        width, height = read(content)
    except (struct.error, IndexError):
        raise BadImage(CUT_OFF) from None
    if not (width and height):
        raise BadImage("it has no pixels")
    return width, height


def _png(content: bytes) -> tuple[int, int]:
    at = 8
    if content[at + 4 : at + 8] != b"IHDR":
        raise BadImage(CUT_OFF)
    width, height = struct.unpack_from(">II", content, at + 8)
    while content[at + 4 : at + 8] != b"IEND":
        (length,) = struct.unpack_from(">I", content, at)
        at += 12 + length
        if at >= len(content):
            raise BadImage(CUT_OFF)
    return width, height


# Start of frame, of every way to code one; the numbers between them are tables.
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_SCAN, _JPEG_END = 0xDA, b"\xff\xd9"


def _jpeg(content: bytes) -> tuple[int, int]:
    at, found = 2, (0, 0)
    while True:
        if content[at] != 0xFF:
            raise BadImage(CUT_OFF)
        while content[at] == 0xFF:  # any number of them may stand before a marker
            at += 1
        marker = content[at]
        (length,) = struct.unpack_from(">H", content, at + 1)
        if marker in _JPEG_FRAMES:
            height, width = struct.unpack_from(">HH", content, at + 4)
            found = (width, height)
        if marker == _JPEG_SCAN:
            # Cameras append their own data after the end, and a thumbnail before has an end of its own.
            if content.find(_JPEG_END, at) < 0:
                raise BadImage(CUT_OFF)
            return found
        at += 1 + length


def _gif(content: bytes) -> tuple[int, int]:
    width, height = struct.unpack_from("<HH", content, 6)
    return width, height


def _webp(content: bytes) -> tuple[int, int]:
    (size,) = struct.unpack_from("<I", content, 4)
    if len(content) < 8 + size:
        raise BadImage(CUT_OFF)
    match content[12:16]:
        case b"VP8X":
            low_w, high_w, low_h, high_h = struct.unpack_from("<HBHB", content, 24)
            return low_w + (high_w << 16) + 1, low_h + (high_h << 16) + 1
        case b"VP8L":
            (bits,) = struct.unpack_from("<I", content, 21)
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", content, 26)
            return width & 0x3FFF, height & 0x3FFF
        case _:
            raise BadImage(CUT_OFF)
