"""HTTP/1.1 for a proxy: heads parsed and written, bodies read piece by piece. Knows no API and no credential.

Two readers that disagree about where a message ends can be made to see different requests, so what is ambiguous is
refused: two lengths, a length beside chunks, a folded header, a name with a space. And what is passed on is framed
anew from what was parsed: `end_to_end` drops every header that says where a message ends, `framing` writes them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Iterable
from http import HTTPStatus
from typing import Literal

import msgspec

from leadrope.regex import regex

HEAD_LIMIT = 64 * 1024
"""The longest head; the agent's own is below 4 KiB. It also bounds what asyncio buffers, to twice this."""
PIECE = 64 * 1024
_MOST_CHUNK = 1 << 40

Headers = list[tuple[str, str]]

_NAME = regex(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# A line break or a NUL inside a value would end it early for somebody further on; so would the other control
# characters, which some programs take for the end of a line.
_BAD_VALUE = regex(r"[\x00-\x08\x0a-\x1f\x7f]")
_BAD_REQUEST_VALUE = regex(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")
_REQUEST = regex(r"([A-Z]{1,20}) ([!-~]{1,8000}) HTTP/1\.([01])")
_STATUS = regex(r"HTTP/1\.([01]) ([1-5][0-9]{2})(?: ([^\r\n]*))?")
_LENGTH = regex(r"[0-9]{1,15}")
_CHUNK_SIZE = regex(rb"([0-9A-Fa-f]{1,11})[ \t]*(;.*)?", re.DOTALL)

# These belong to one connection and not to the message.
HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
# What a `Connection` header of a request may name. Not the two that say where the body ends: they are not the
# client's to take away.
_CONNECTION_OPTIONS = HOP_BY_HOP - {"transfer-encoding"} | {"close"}


class BadHttp(Exception):
    """The other side does not speak HTTP as we understand it; the connection is closed."""


class Closed(Exception):
    """The other side has closed the connection before the message was whole."""


class BodyFraming(msgspec.Struct, frozen=True, kw_only=True):
    """How the end of a body is found."""

    kind: Literal["none", "length", "chunked", "until_close"]
    length: int = 0


NO_BODY = BodyFraming(kind="none")


class RequestHead(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    target: str
    minor: int
    headers: Headers
    body: BodyFraming

    @property
    def keeps_alive(self) -> bool:
        return self.minor == 1 and "close" not in tokens(self.headers, "connection")


class AnswerHead(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    phrase: str
    minor: int
    headers: Headers
    body: BodyFraming

    @property
    def keeps_alive(self) -> bool:
        return self.minor == 1 and "close" not in tokens(self.headers, "connection") and self.body.kind != "until_close"


def values(headers: Headers, name: str) -> list[str]:
    return [value for key, value in headers if key.lower() == name]


def first(headers: Headers, name: str) -> str | None:
    return next((value for key, value in headers if key.lower() == name), None)


def tokens(headers: Headers, name: str) -> set[str]:
    return {word.strip().lower() for value in values(headers, name) for word in value.split(",")} - {""}


def end_to_end(headers: Headers, *names: str) -> Headers:
    """The headers of the message itself: not those of one connection, not its framing, not the `names`.

    An underscore counts as a dash: many servers make the same variable of `Content_Length` and `Content-Length`.
    """
    dropped = HOP_BY_HOP | tokens(headers, "connection") | {"content-length", *names}
    return [(key, value) for key, value in headers if key.lower().replace("_", "-") not in dropped]


def framing(body: BodyFraming) -> Headers:
    """The one header that says where this body ends. Send the content itself with `chunk` where it is chunked."""
    if body.kind == "chunked":
        return [("Transfer-Encoding", "chunked")]
    return [] if body.kind == "until_close" else [("Content-Length", str(body.length))]


def _lines(head: bytes, bad_value: re.Pattern[str]) -> tuple[str, Headers]:
    start, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    headers: Headers = []
    for line in lines:
        name, colon, value = line.partition(":")
        value = value.strip(" \t")
        if not colon or not _NAME.fullmatch(name) or bad_value.search(value):
            raise BadHttp("a header cannot be read")
        headers.append((name, value))
    return start, headers


def _length(headers: Headers) -> int | None:
    lengths = values(headers, "content-length")
    if not lengths:
        return None
    if len(lengths) > 1 or not _LENGTH.fullmatch(lengths[0]):
        raise BadHttp("the length of the body is not one number")
    return int(lengths[0])


def _is_chunked(headers: Headers, minor: int) -> bool:
    encodings = values(headers, "transfer-encoding")
    if not encodings:
        return False
    if [word.lower() for word in encodings] != ["chunked"] or values(headers, "content-length") or minor == 0:
        raise BadHttp("the end of the body is given in two ways, or in an unknown one")
    return True


def _check_connection(headers: Headers) -> None:
    """A header that is named here is dropped by everyone who passes the message on, whoever relies on it."""
    unknown = tokens(headers, "connection") - _CONNECTION_OPTIONS
    if unknown:
        raise BadHttp(f"Connection names {min(unknown)[:80]!r}, which is not a header of one connection only")


def parse_request(head: bytes) -> RequestHead:
    start, headers = _lines(head, _BAD_REQUEST_VALUE)
    match = _REQUEST.fullmatch(start)
    if match is None:
        raise BadHttp("not a request line")
    _check_connection(headers)
    minor = int(match[3])
    if _is_chunked(headers, minor):
        body = BodyFraming(kind="chunked")
    else:
        length = _length(headers)
        body = BodyFraming(kind="length", length=length) if length else NO_BODY
    return RequestHead(method=match[1], target=match[2], minor=minor, headers=headers, body=body)


def parse_answer(head: bytes) -> AnswerHead:
    start, headers = _lines(head, _BAD_VALUE)
    match = _STATUS.fullmatch(start)
    if match is None or match[2] == "101":  # nobody asked for another protocol
        raise BadHttp("not a status line")
    status, minor = int(match[2]), int(match[1])
    is_chunked, length = _is_chunked(headers, minor), _length(headers)
    if status < 200 or status in (204, 304):
        body = NO_BODY
    elif is_chunked:
        body = BodyFraming(kind="chunked")
    elif length is None:
        body = BodyFraming(kind="until_close")
    else:
        body = BodyFraming(kind="length", length=length) if length else NO_BODY
    return AnswerHead(status=status, phrase=match[3] or "", minor=minor, headers=headers, body=body)


async def read_head(reader: asyncio.StreamReader) -> bytes | None:
    """The next head, or None when the other side has closed the connection between two messages."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise Closed("the connection ended inside a head") from error
        return None
    except asyncio.LimitOverrunError as error:
        raise BadHttp(f"a head is longer than {HEAD_LIMIT} bytes") from error


def write_head(start: str, headers: Iterable[tuple[str, str]]) -> bytes:
    return "\r\n".join([start, *(f"{name}: {value}" for name, value in headers), "", ""]).encode("latin-1")


def status_line(status: int, phrase: str = "") -> str:
    if not phrase:
        try:
            phrase = HTTPStatus(status).phrase
        except ValueError:
            phrase = "Error"
    return f"HTTP/1.1 {status} {phrase}"


async def pieces(reader: asyncio.StreamReader, body: BodyFraming) -> AsyncGenerator[bytes, None]:
    """The content of a body as it comes, without its framing; raises Closed if it is cut."""
    framing = Framing(body)
    while not framing.is_done:
        data = await reader.read(framing.wants)
        if not data:
            if body.kind == "until_close":
                return
            raise Closed("the connection ended inside a body")
        for piece in framing.feed(data):
            yield piece
        if framing.extra:
            raise BadHttp("more bytes than the body has")


class Framing:
    """Finds the content and the end of a body in the bytes as they come."""

    def __init__(self, body: BodyFraming) -> None:
        self._kind = body.kind
        self._left = body.length
        """Of the body, or of the chunk at hand with the line break after it."""
        self._line = b""
        self._state: Literal["size", "data", "trailer"] = "size"
        self._trailers = 0
        self.is_done = body.kind == "none"
        self.extra = 0
        """Bytes at the end of what was fed that do not belong to this body."""

    @property
    def wants(self) -> int:
        """How much may be read now: never a byte of the next message where that is known."""
        return min(PIECE, self._left) if self._kind == "length" else PIECE

    def feed(self, data: bytes) -> list[bytes]:
        if self._kind == "length":
            self._left -= len(data)  # never more than `wants`, so never below zero
            self.is_done = self._left <= 0
            return [data]
        if self._kind == "until_close":
            return [data]
        return self._chunks(data)

    def _chunks(self, data: bytes) -> list[bytes]:
        found: list[bytes] = []
        at = 0
        while at < len(data):
            if self.is_done:
                self.extra = len(data) - at
                break
            if self._state == "data":
                part = data[at : at + self._left]
                at += len(part)
                size = max(0, self._left - 2)
                self._left -= len(part)
                if part[:size]:
                    found.append(part[:size])
                self._line += part[size:]
                if not self._left:
                    if self._line != b"\r\n":
                        raise BadHttp("a chunk is longer than its size says")
                    self._state, self._line = "size", b""
                continue
            end = data.find(b"\n", at)
            if end < 0:
                self._line += data[at:]
                if len(self._line) > HEAD_LIMIT:
                    raise BadHttp("a line between chunks is too long")
                break
            line, self._line = self._line + data[at:end], b""
            at = end + 1
            if not line.endswith(b"\r"):
                raise BadHttp("a line between chunks does not end as it should")
            self._end_line(line[:-1])
        return found

    def _end_line(self, line: bytes) -> None:
        if self._state == "trailer":
            self.is_done = not line
            self._trailers += len(line)
            if self._trailers > HEAD_LIMIT:
                raise BadHttp("the framing after the last chunk is too long")
            return
        match = _CHUNK_SIZE.fullmatch(line)
        if match is None or b"\r" in line:
            raise BadHttp("the size of a chunk cannot be read")
        size = int(match[1], 16)
        if size > _MOST_CHUNK:
            raise BadHttp("the size of a chunk cannot be right")
        self._state = "data" if size else "trailer"
        self._left = size + 2 if size else 0


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"
