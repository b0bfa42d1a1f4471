"""HTTP/1.1 for a proxy: parses and writes heads, streams bodies. It handles no particular API and no credentials.

Two parsers that disagree about where a message ends can be made to see different requests (request smuggling), so
anything ambiguous is rejected: two lengths, a length beside chunks, a folded header, a name with a space. Messages that
are passed on are framed anew from what was parsed: `end_to_end` drops every header that says where a message ends,
`framing` writes new ones.
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
"""Maximum size of a head; the agent's own is below 4 KiB. It also bounds what asyncio buffers, to twice this."""
PIECE = 64 * 1024
_MOST_CHUNK = 1 << 40

Headers = list[tuple[str, str]]

_NAME = regex(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# A line break or a NUL inside a value would end it early for a program further along; so would the other control
# characters, which some programs treat as the end of a line.
_BAD_VALUE = regex(r"[\x00-\x08\x0a-\x1f\x7f]")
_BAD_REQUEST_VALUE = regex(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")
_REQUEST = regex(r"([A-Z]{1,20}) ([!-~]{1,8000}) HTTP/1\.([01])")
_STATUS = regex(r"HTTP/1\.([01]) ([1-5][0-9]{2})(?: ([^\r\n]*))?")
_LENGTH = regex(r"[0-9]{1,15}")
_CHUNK_SIZE = regex(rb"([0-9A-Fa-f]{1,11})[ \t]*(;.*)?", re.DOTALL)

# These belong to one connection, not to the message.
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
# What a request's `Connection` header may name. The two headers that say where the body ends are missing: a client must
# not remove them.
_CONNECTION_OPTIONS = HOP_BY_HOP - {"transfer-encoding"} | {"close"}


class BadHttp(Exception):
    """The peer sent HTTP that we do not accept; the connection is closed."""


class Closed(Exception):
    """The peer closed the connection before the message was complete."""


class BodyFraming(msgspec.Struct, frozen=True, kw_only=True):
    """How the end of a body is determined."""

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
    """Return the headers of the message itself, without hop-by-hop headers, framing and the given `names`.

    An underscore counts as a dash: many servers map `Content_Length` and `Content-Length` to the same variable.
    """
    dropped = HOP_BY_HOP | tokens(headers, "connection") | {"content-length", *names}
    return [(key, value) for key, value in headers if key.lower().replace("_", "-") not in dropped]


def framing(body: BodyFraming) -> Headers:
    """Return the one header that says where this body ends. Pass the content through `chunk` if it is chunked."""
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
    """Check the `Connection` header: every proxy drops the headers it names, even ones that somebody relies on."""
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
    if match is None or match[2] == "101":  # no other protocol was requested
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
    """Read the next head; None if the peer closed the connection between two messages."""
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
    """Yield the content of a body as it arrives, without its framing; raises Closed if it is cut off."""
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
            raise BadHttp("more bytes than the body's length")


class Framing:
    """Finds the content and the end of a body in incoming bytes."""

    def __init__(self, body: BodyFraming) -> None:
        self._kind = body.kind
        self._left = body.length
        """Bytes left of the body, or of the current chunk with the line break after it."""
        self._line = b""
        self._state: Literal["size", "data", "trailer"] = "size"
        self._trailers = 0
        self.is_done = body.kind == "none"
        self.extra = 0
        """Number of bytes at the end of the input that do not belong to this body."""

    @property
    def wants(self) -> int:
        """Return how many bytes may be read now: never a byte of the next message if that is known."""
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
