"""An HTTP endpoint in place of a process: each prompt is one request, and the events of its answer are the lines.

Data is only read on demand, so a slow consumer slows down the server as it would a process. The session interprets
events and statuses; this module is independent of vendors.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator

import msgspec

from leadrope import errors
from leadrope.net import http1
from leadrope.net.connect import NotConnected, ServerConnection
from leadrope.net.sse import EventStream, EventTooLarge
from leadrope.net.upstream import Upstream
from leadrope.providers.base import AnswerEnd, AnswerEnded, Endpoint, RequestSent
from leadrope.regex import regex
from leadrope.version import __version__

KEPT_BYTES = 64 * 1024
"""Bytes kept of an answer that is not an event stream: enough for a service's error message."""
MOST_BYTES = 16 * 1024 * 1024
"""Maximum size of one event. A server that never ends one must not fill the memory."""
_MOST_INTERIM = 8
"""Interim answers such as `100 Continue` before the final one."""
_EVENTS = "text/event-stream"
_OURS = frozenset({"host", "accept", "accept-encoding", "connection", "content-length", "transfer-encoding"})
_NAME = regex(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = regex(r"[\t\x20-\x7e\x80-\xff]*")

Heard = bytes | RequestSent | AnswerEnded


class HttpEnding(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a session without a process, and so without an exit code."""

    exit_code: None = None
    leftovers_killed: int = 0
    survivors: int = 0


class HttpPeer:
    """One endpoint for one attempt. Every request uses a new connection."""

    stderr_head: tuple[str, ...] = ()
    stderr_tail: tuple[str, ...] = ()

    def __init__(self, endpoint: Endpoint, *, proxy: str | None = None, ca_file: str | None = None) -> None:
        """`proxy` and `ca_file` are passed to `Upstream`. Connects with the first request."""
        self._endpoint = endpoint
        self._headers = [_checked(name, value) for name, value in endpoint.headers]
        self._upstream = Upstream(endpoint.url, proxy=proxy, ca_file=ca_file)
        self._upstream.start()
        self._bodies: deque[bytes] = deque()
        self._answer: AsyncGenerator[list[Heard], None] | None = None
        self._has_more = asyncio.Event()
        self._scope: asyncio.Timeout | None = None
        """The time limit of the read that waits for the server."""
        self._connecting: asyncio.Future[ServerConnection] | None = None
        self._is_closed = False
        self._is_cancelled = False
        self._has_ended = False
        self.last_read_bytes = 0

    async def read_whole(self) -> list[Heard]:
        while not self._has_ended:
            if self._answer is not None:
                heard = await self._next(self._answer)
            elif self._bodies:
                self._answer = self._exchange(self._bodies.popleft())
                heard = [RequestSent()]
            elif self._is_closed:
                break
            else:
                self._has_more.clear()
                await self._has_more.wait()
                continue
            if not self._has_ended:
                self.last_read_bytes = sum(len(one) for one in heard if isinstance(one, bytes))
                return heard
        return []

    def write(self, data: bytes) -> None:
        if self._is_closed or self._has_ended:
            raise errors.RunClosed(f"nothing more is sent to {self._upstream.authority}")
        if data:
            self._bodies.append(data)
            self._has_more.set()

    def close_input(self) -> None:
        self._is_closed = True
        self._has_more.set()

    def cancel(self) -> None:
        if self._answer is not None or self._bodies:
            self._is_cancelled = True
            self._wake()

    async def end(self, *, polite_s: float = 0.0, stop_s: float = 0.0) -> HttpEnding:
        """End at once: the only signal to a server is the end of its connection."""
        self._has_ended = True
        self._wake()
        if self._scope is None and self._answer is not None:  # otherwise the waiting read ends it
            answer, self._answer = self._answer, None
            await answer.aclose()
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait((self._connecting,))
        await self._upstream.close()
        return HttpEnding()

    def _wake(self) -> None:
        self._has_more.set()
        if self._scope is not None:
            self._scope.reschedule(asyncio.get_running_loop().time())

    async def _next(self, answer: AsyncGenerator[list[Heard], None]) -> list[Heard]:
        """Return the next part of an answer, unless it is cancelled in the meantime."""
        heard: list[Heard] = [AnswerEnded(how="cancelled")]
        try:
            if not self._is_cancelled:
                async with asyncio.timeout(None) as self._scope:
                    heard = await anext(answer)
        except TimeoutError:
            if not (self._is_cancelled or self._has_ended):
                raise  # not a time limit of ours
        finally:
            self._scope = None
        if isinstance(heard[-1], AnswerEnded):
            # Now, not with the next read: a later cancellation applies to the next answer.
            self._answer, self._is_cancelled = None, False
            await answer.aclose()
        return heard

    # -- one request and its answer -----------------------------------------------------------------------------------

    async def _exchange(self, body: bytes) -> AsyncGenerator[list[Heard], None]:
        self._connecting = asyncio.ensure_future(self._upstream.take(fresh=True))
        try:
            # Shielded: asyncio loses a socket whose connection completes at the moment it is cancelled.
            connection = await asyncio.shield(self._connecting)
        except asyncio.CancelledError:
            self._connecting.add_done_callback(_abandon)
            raise
        except NotConnected as error:
            yield [AnswerEnded(how="unreachable", reason=f"{self._upstream.authority}: {error}")]
            return
        status, headers = 0, dict[str, str]()
        try:
            # Not drained: a server may reject a long request before it has read it.
            connection.writer.write(self._request(body))
            head = await _final_head(connection.reader)
            status, headers = head.status, {name.lower(): value for name, value in head.headers}
            wrong = _why_no_stream(headers)
            if not 200 <= status < 300 or wrong:
                how: AnswerEnd = "not_a_stream" if 200 <= status < 300 else "refused"
                kept = await _kept(connection.reader, head.body)
                yield [AnswerEnded(how=how, status=status, headers=headers, body=kept, reason=wrong)]
                return
            async for events in _events(connection.reader, head.body):
                yield events
            yield [AnswerEnded(how="whole", status=status, headers=headers)]
        except (http1.BadHttp, http1.Closed, OSError) as error:
            yield [AnswerEnded(how="broken", status=status, headers=headers, reason=str(error) or type(error).__name__)]
        finally:
            connection.abort()

    def _request(self, body: bytes) -> bytes:
        named = {name.lower() for name, _ in self._headers}
        headers = [("Host", self._upstream.authority), *self._headers, ("Accept", _EVENTS)]
        for name, value in (("Content-Type", "application/json"), ("User-Agent", f"leadrope/{__version__}")):
            if name.lower() not in named:
                headers.append((name, value))
        headers += [("Accept-Encoding", "identity"), ("Connection", "close"), ("Content-Length", str(len(body)))]
        return http1.write_head(f"{self._endpoint.method} {self._upstream.base_path or '/'} HTTP/1.1", headers) + body


def _abandon(connecting: asyncio.Future[ServerConnection]) -> None:
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result().abort()


def _checked(name: str, value: str) -> tuple[str, str]:
    """Check a header: a line break in a credential would start a second one."""
    if not _NAME.fullmatch(name) or name.lower() in _OURS:
        raise errors.BadValue("headers", f"the provider cannot set the header {name!r}")
    if not _VALUE.fullmatch(value):
        hint = "If it is the credential, look for a line break or a character that was pasted with it."
        raise errors.BadValue("headers", f"the value of {name} holds what no header can hold", hint=hint)
    return name, value


async def _final_head(reader: asyncio.StreamReader) -> http1.AnswerHead:
    for _ in range(_MOST_INTERIM):
        raw = await http1.read_head(reader)
        if raw is None:
            raise http1.Closed("the connection was closed without an answer")
        head = http1.parse_answer(raw)
        if head.status >= 200:
            return head
    raise http1.BadHttp("the server does not come to an answer")


def _why_no_stream(headers: dict[str, str]) -> str:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _EVENTS:
        return f"the answer is {kind or 'of no type'} and not {_EVENTS}"
    packing = headers.get("content-encoding", "identity").strip().lower()
    return "" if packing == "identity" else f"the answer is packed with {packing}, which was not asked for"


async def _events(reader: asyncio.StreamReader, body: http1.BodyFraming) -> AsyncGenerator[list[Heard], None]:
    stream = EventStream(MOST_BYTES)
    async for piece in http1.pieces(reader, body):
        try:
            found: list[Heard] = [event.data.encode() for event in stream.feed(piece)]
        except EventTooLarge as error:
            raise http1.BadHttp(str(error)) from None
        if found:
            yield found


async def _kept(reader: asyncio.StreamReader, body: http1.BodyFraming) -> bytes:
    kept = bytearray()
    async for piece in http1.pieces(reader, body):
        kept += piece
        if len(kept) >= KEPT_BYTES:
            break
    return bytes(kept[:KEPT_BYTES])
