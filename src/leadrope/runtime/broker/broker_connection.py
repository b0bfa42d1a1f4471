"""Handles one connection from the agent: streams requests and answers, and closes one side if the other closes.

It handles no credentials and no budget: the broker decides what is rejected, what waits, how headers are replaced and
how tokens are counted. Both sides are framed anew from what was parsed; a connection is not reused after an error.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Protocol

import msgspec

from leadrope.net import http1
from leadrope.net.connect import ServerConnection, Unreachable
from leadrope.net.upstream import Upstream
from leadrope.runtime.broker import token_counter as tally
from leadrope.runtime.limits.reservations import Estimate, Reservation

# A body up to this size is buffered until the answer begins, so that it can be sent again if the server had closed the
# idle connection in the meantime. A larger one is streamed over a new connection.
_HELD_BODY = 4 * 1024 * 1024
_BODY_S = 60.0
# The model may think for minutes before its first byte; users set the run's own idle limit instead.
_SILENCE_S = 900.0
# Interim answers such as `100 Continue`; a server that sends more never gets to the final answer.
_MOST_INTERIM = 32


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    type: str
    message: str
    is_final: bool = False
    """The agent must not retry."""


class AgentConnection(asyncio.StreamReaderProtocol):
    """A connection from the agent that detects at once when the agent closes it, so that nobody pays for an unread
    answer.
    """

    is_gone = False
    on_gone: Callable[[], object] | None = None

    def eof_received(self) -> bool | None:
        keep = super().eof_received()
        self._gone()
        return keep

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._gone()

    def _gone(self) -> None:
        self.is_gone = True
        if self.on_gone is not None:
            self.on_gone()


class Passing:
    """An admitted request, and what is reserved for it until it is released."""

    def __init__(self, request: http1.RequestHead) -> None:
        self.request = request
        self.number = 0
        """A number unique to each forwarded request."""
        self.estimate = Estimate(usd=0.0)
        self.reservation: Reservation | None = None

    def release(self) -> None:
        if self.reservation is not None:
            self.reservation.release()


class BrokerHost(Protocol):
    """The decisions that an exchange leaves to the broker."""

    upstream: Upstream

    def refuse(self, request: http1.RequestHead) -> Refusal | None: ...

    async def admit(self, request: http1.RequestHead, body: bytes | None) -> Passing | Refusal:
        """Wait for this request's turn. `body` is None if it is too large to be read before sending."""

    def swapped(self, request: http1.RequestHead) -> http1.Headers:
        """Return the headers for the model's server, without those for framing."""

    def tally(self, passing: Passing, answer: http1.AnswerHead) -> tally.Tally | None: ...

    def hung_up(self, passing: Passing) -> None:
        """The request was sent, but the agent disconnected before an answer came."""

    def cannot_meter(self, answer: http1.AnswerHead) -> bool: ...

    def reached(self, problem: Unreachable | None) -> bool:
        """Report a connection attempt; returns True if the failure is reported elsewhere."""

    def complain(self, code: str, message: str) -> None: ...


class Exchange:
    """The requests and answers of one connection, in order."""

    def __init__(self, host: BrokerHost, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._host = host
        self._reader = reader
        self._writer = writer
        protocol = writer.transport.get_protocol()
        if not isinstance(protocol, AgentConnection):
            raise TypeError("a connection of the broker's with a foreign protocol")
        self._client = protocol

    async def serve(self) -> bool:
        """Serve one request; False if it was the last one of this connection."""
        try:
            head = await http1.read_head(self._reader)
            if head is None:
                return False
            request = http1.parse_request(head)
            if request.minor == 0:
                raise http1.BadHttp("HTTP/1.0 is not spoken here")
        except http1.BadHttp as error:
            self._answer(Refusal(status=400, type="invalid_request_error", message=f"leadrope: {error}"))
            return False
        expects = http1.values(request.headers, "expect")
        refusal = self._host.refuse(request)
        if refusal is None and expects and [word.lower() for word in expects] != ["100-continue"]:
            refusal = Refusal(status=417, type="invalid_request_error", message="leadrope: an unknown expectation")
        if refusal is None:
            if expects:
                self._writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            return await self._pass_on(request)
        if not expects:
            # If the answer came before the whole request, a client that is still writing would see a broken connection.
            async with asyncio.timeout(_BODY_S):
                async for _ in http1.pieces(self._reader, request.body):
                    pass
        self._answer(refusal)
        await self._writer.drain()
        return False

    def _answer(self, refusal: Refusal) -> None:
        """Send the rejection and close: after an error it is uncertain where the next request begins."""
        body = msgspec.json.encode(
            {"type": "error", "error": {"type": refusal.type, "message": refusal.message}},
        )
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body))), ("Connection", "close")]
        if refusal.is_final:
            headers.append(("x-should-retry", "false"))
        self._writer.write(http1.write_head(http1.status_line(refusal.status), headers) + body)

    # -- forwarding -------------------------------------------------------------------------------------------------

    async def _pass_on(self, request: http1.RequestHead) -> bool:
        content = http1.pieces(self._reader, request.body)
        try:
            async with asyncio.timeout(_BODY_S):
                held, is_whole = await _collect(content, request.body)
            passing = await self._admitted(request, held if is_whole else None)
            if isinstance(passing, Refusal):
                if not is_whole:
                    async with asyncio.timeout(_BODY_S):
                        async for _ in content:
                            pass
                self._answer(passing)
                await self._writer.drain()
                return False
            try:
                return await self._send(passing, held, None if is_whole else content)
            finally:
                passing.release()
        finally:
            await content.aclose()

    async def _admitted(self, request: http1.RequestHead, body: bytes | None) -> Passing | Refusal:
        """Wait while requests in flight may need what is left of the budget; stop if the client disconnects."""
        waiting = asyncio.ensure_future(self._host.admit(request, body))
        self._client.on_gone = waiting.cancel
        try:
            if self._client.is_gone:
                waiting.cancel()
            return await waiting
        except asyncio.CancelledError:
            if self._client.is_gone:
                raise http1.Closed("the agent has gone") from None
            raise
        finally:
            self._client.on_gone = None

    async def _send(self, passing: Passing, held: bytes, rest: AsyncIterator[bytes] | None) -> bool:
        """Send the request. `rest` follows `held` in a large body, and is sent while the answer may already arrive."""
        upstream, request = self._host.upstream, passing.request
        body = request.body if rest is not None else http1.BodyFraming(kind="length", length=len(held))
        headers = [*self._host.swapped(request), *http1.framing(body)]
        head = http1.write_head(f"POST {upstream.base_path}{request.target} HTTP/1.1", headers)
        try:
            connection = await upstream.take(fresh=rest is not None)
            self._host.reached(None)
            if rest is None:
                return await self._with_held(passing, connection, head + held)
            return await self._with_stream(passing, connection, head, held, rest)
        except Unreachable as error:
            message = f"the model's server {upstream.authority} cannot be reached ({error})"
            if error.is_connected or not self._host.reached(error):
                self._host.complain("model_unreachable", message)
            self._answer(Refusal(status=502, type="api_error", message=f"leadrope: {message}"))
            await self._writer.drain()
            return False

    async def _with_held(self, passing: Passing, connection: ServerConnection, data: bytes) -> bool:
        upstream = self._host.upstream
        with self._watching(connection):
            connection.writer.write(data)
            answer = await self._answer_head(connection)
            if answer is not None:
                is_early = connection.writer.transport.get_write_buffer_size() > 0
                return await self._relay(passing, answer, connection, may_reuse=not is_early)
        connection.abort()
        if self._client.is_gone:
            self._host.hung_up(passing)
            raise http1.Closed("the agent has gone")
        if connection.is_reused:
            # The server had closed the idle connection, so it has not seen this request.
            return await self._with_held(passing, await upstream.take(fresh=True), data)
        raise Unreachable("it closed the connection without an answer")

    async def _with_stream(
        self, passing: Passing, connection: ServerConnection, head: bytes, held: bytes, rest: AsyncIterator[bytes]
    ) -> bool:
        with self._watching(connection):
            sending = asyncio.ensure_future(self._send_body(passing.request.body, connection, head, held, rest))
            try:
                answer = await self._answer_head(connection)
                if answer is None:
                    if self._client.is_gone:
                        self._host.hung_up(passing)
                        raise http1.Closed("the agent has gone")
                    raise Unreachable("it closed the connection without an answer")
                # An answer before the end of the request does not show where the server sees that end.
                keep = await self._relay(passing, answer, connection, may_reuse=sending.done())
            finally:
                is_sent = sending.done()
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
            return keep and is_sent

    async def _send_body(
        self,
        body: http1.BodyFraming,
        connection: ServerConnection,
        head: bytes,
        held: bytes,
        rest: AsyncIterator[bytes],
    ) -> None:
        writer = connection.writer
        framed = http1.chunk if body.kind == "chunked" else bytes
        writer.write(head + (framed(held) if held else b""))
        try:
            async for piece in rest:
                writer.write(framed(piece))
                await writer.drain()
            if body.kind == "chunked":
                writer.write(http1.LAST_CHUNK)
        except (http1.Closed, http1.BadHttp):
            connection.abort()  # the request is incomplete, so there will be no answer
        except ConnectionError:
            pass  # the server stopped reading; its answer says why

    async def _answer_head(self, connection: ServerConnection) -> http1.AnswerHead | None:
        """Read the answer's head; None if the connection was closed before its first byte."""
        try:
            async with asyncio.timeout(_SILENCE_S):
                for _ in range(_MOST_INTERIM + 1):
                    head = await http1.read_head(connection.reader)
                    if head is None:
                        return None
                    answer = http1.parse_answer(head)
                    if answer.status >= 200:
                        return answer
                raise http1.BadHttp(f"over {_MOST_INTERIM} interim answers")
        except ConnectionError:
            return None
        except TimeoutError:
            raise Unreachable(f"it was silent for {_SILENCE_S:g} s") from None
        except (http1.BadHttp, http1.Closed) as error:
            raise Unreachable(f"its answer cannot be read: {error}") from error

    async def _relay(
        self, passing: Passing, answer: http1.AnswerHead, connection: ServerConnection, *, may_reuse: bool
    ) -> bool:
        if self._host.cannot_meter(answer):
            connection.abort()
            message = "leadrope: the model's server sends a compressed answer, which cannot be held to a budget"
            self._host.complain("unmetered", message)
            self._answer(Refusal(status=502, type="api_error", message=message, is_final=True))
            return False
        is_good = 200 <= answer.status < 300
        keep = is_good and may_reuse and passing.request.keeps_alive and answer.body.kind != "until_close"
        headers = http1.end_to_end(answer.headers)
        if answer.status == 401:
            # By default the agent repeats a rejected login for three minutes.
            headers = [*http1.end_to_end(headers, "x-should-retry"), ("x-should-retry", "false")]
        if answer.status not in (204, 304):
            headers += http1.framing(answer.body)
        if not keep:
            headers.append(("Connection", "close"))
        self._writer.write(http1.write_head(http1.status_line(answer.status, answer.phrase), headers))
        is_clean = await self._relay_body(passing, answer, connection)
        if is_good and may_reuse and is_clean and answer.keeps_alive:
            self._host.upstream.give(connection)
        else:
            connection.abort()
        return keep

    async def _relay_body(self, passing: Passing, answer: http1.AnswerHead, connection: ServerConnection) -> bool:
        """Stream the content with our own framing; False if the server sent more than its answer."""
        framing = http1.Framing(answer.body)
        is_chunked = answer.body.kind == "chunked"
        counter = self._host.tally(passing, answer)
        loop = asyncio.get_running_loop()
        read, write, drain = connection.reader.read, self._writer.write, self._writer.drain
        is_cut = True
        try:
            async with asyncio.timeout(_SILENCE_S) as clock:
                while not framing.is_done:
                    data = await read(framing.wants)
                    if not data:
                        if answer.body.kind == "until_close" and not self._client.is_gone:
                            break
                        raise http1.Closed("the answer was cut")
                    for piece in framing.feed(data):
                        write(http1.chunk(piece) if is_chunked else piece)
                        if counter is not None:
                            counter.feed(piece)
                    await drain()
                    clock.reschedule(loop.time() + _SILENCE_S)
            if is_chunked:
                write(http1.LAST_CHUNK)
            is_cut = False
        finally:
            if counter is not None:
                counter.end(is_cut=is_cut)
        return not framing.extra

    @contextlib.contextmanager
    def _watching(self, connection: ServerConnection) -> Iterator[None]:
        """While active, a client that disconnects closes the connection to the server too."""
        self._client.on_gone = connection.abort
        try:
            if self._client.is_gone:
                connection.abort()
            yield
        except BaseException:
            connection.abort()
            raise
        finally:
            self._client.on_gone = None


async def _collect(content: AsyncIterator[bytes], body: http1.BodyFraming) -> tuple[bytes, bool]:
    """Return the body if it is small enough to buffer; otherwise its beginning, and False."""
    if body.length > _HELD_BODY:
        return b"", False
    held: list[bytes] = []
    size = 0
    async for piece in content:
        held.append(piece)
        size += len(piece)
        if size > _HELD_BODY:
            return b"".join(held), False
    return b"".join(held), True
