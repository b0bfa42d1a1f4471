"""Requests and answers on one connection of the agent's: passed on piece by piece, cut on one side when the other is.

Knows neither the credential nor the budget: the broker says what is refused, what is swapped and who counts.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Protocol

import msgspec

from leadrope.runtime import http1, tally
from leadrope.runtime.upstream import Connection, Unreachable, Upstream

# A body up to this size is held until the answer begins, so that a connection which the server had closed in the
# meantime costs nothing but a second try. A larger one is passed on as it comes, over a new connection.
_HELD_BODY = 4 * 1024 * 1024
_BODY_S = 60.0
# The model may think for minutes before its first byte; the run's own idle clock is the one that people set.
_SILENCE_S = 900.0


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    type: str
    message: str
    is_final: bool = False
    """The agent must not try again."""


class Client(asyncio.StreamReaderProtocol):
    """A connection of the agent's, which tells at once when the agent has closed it: nobody pays for an answer that
    nobody reads.
    """

    is_gone = False
    on_gone: Callable[[], None] | None = None

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


class Host(Protocol):
    """What a broker knows and an exchange asks for."""

    upstream: Upstream

    def number(self) -> int:
        """The number of a request that is passed on; each has its own."""

    def refuse(self, request: http1.RequestHead) -> Refusal | None: ...

    def swapped(self, request: http1.RequestHead) -> http1.Headers: ...

    def tally(self, request: http1.RequestHead, answer: http1.AnswerHead, number: int) -> tally.Tally | None: ...

    def cannot_meter(self, answer: http1.AnswerHead) -> bool: ...

    def complain(self, code: str, message: str) -> None: ...


class Exchange:
    """Requests and answers on one connection of the agent's, one after the other."""

    def __init__(self, host: Host, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._host = host
        self._reader = reader
        self._writer = writer
        protocol = writer.transport.get_protocol()
        if not isinstance(protocol, Client):
            raise TypeError("a connection of the broker's with a foreign protocol")
        self._client = protocol
        self._number = 0

    async def serve(self) -> bool:
        """One request; False when it was the last one of this connection."""
        try:
            head = await http1.read_head(self._reader)
            if head is None:
                return False
            request = http1.parse_request(head)
            if request.minor == 0:
                raise http1.BadHttp("HTTP/1.0 is not spoken here")
        except http1.BadHttp as error:
            self._answer(Refusal(status=400, type="invalid_request_error", message=f"leadrope: {error}"), keep=False)
            return False
        if (http1.first(request.headers, "expect") or "").lower() == "100-continue":
            self._writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        refusal = self._host.refuse(request)
        if refusal is None:
            return await self._pass_on(request)
        # An answer before the whole question would reach a client that is still writing as a broken connection.
        async with asyncio.timeout(_BODY_S):
            async for _ in http1.pieces(self._reader, request.body):
                pass
        self._answer(refusal, keep=request.keeps_alive)
        await self._writer.drain()
        return request.keeps_alive

    def _answer(self, refusal: Refusal, *, keep: bool) -> None:
        body = msgspec.json.encode(
            {"type": "error", "error": {"type": refusal.type, "message": refusal.message}},
        )
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        if refusal.is_final:
            headers.append(("x-should-retry", "false"))
        if not keep:
            headers.append(("Connection", "close"))
        self._writer.write(http1.write_head(http1.status_line(refusal.status), headers) + body)

    # -- passing on -------------------------------------------------------------------------------------------------

    async def _pass_on(self, request: http1.RequestHead) -> bool:
        body = request.body
        is_held = body.kind == "none" or (body.kind == "length" and body.length <= _HELD_BODY)
        held = b""
        if is_held and body.length:
            async with asyncio.timeout(_BODY_S):
                try:
                    held = await self._reader.readexactly(body.length)
                except asyncio.IncompleteReadError as error:
                    raise http1.Closed("the request was cut") from error
        upstream = self._host.upstream
        path = upstream.base_path + request.target
        head = http1.write_head(f"POST {path} HTTP/1.1", self._host.swapped(request))
        try:
            connection = await upstream.take(fresh=not is_held)
            self._number = self._host.number()
            if is_held:
                return await self._with_held(request, connection, head + held)
            return await self._with_stream(request, connection, head)
        except Unreachable as error:
            self._host.complain("model_unreachable", f"the model's server {upstream.authority}: {error}")
            # What is left of a large body is not read any more.
            keep = request.keeps_alive and is_held
            message = f"leadrope: the model's server {upstream.authority} cannot be reached: {error}"
            self._answer(Refusal(status=502, type="api_error", message=message), keep=keep)
            await self._writer.drain()
            return keep

    async def _with_held(self, request: http1.RequestHead, connection: Connection, data: bytes) -> bool:
        upstream = self._host.upstream
        with self._watching(connection):
            connection.writer.write(data)
            answer = await self._answer_head(connection)
            if answer is not None:
                return await self._relay(request, answer, connection)
        connection.abort()
        if self._client.is_gone:
            raise http1.Closed("the agent has gone")
        if connection.is_reused:
            # The server had closed the idle connection; it has not seen this request.
            return await self._with_held(request, await upstream.take(fresh=True), data)
        raise Unreachable("it closed the connection without an answer")

    async def _with_stream(self, request: http1.RequestHead, connection: Connection, head: bytes) -> bool:
        """A large body goes up while the answer may already come down, as it does for a body that is too large."""
        with self._watching(connection):
            sending = asyncio.ensure_future(self._send_body(request, connection, head))
            try:
                answer = await self._answer_head(connection)
                if answer is None:
                    if self._client.is_gone:
                        raise http1.Closed("the agent has gone")
                    raise Unreachable("it closed the connection without an answer")
                keep = await self._relay(request, answer, connection, may_keep=sending.done)
            finally:
                is_sent = sending.done()
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
            return keep and is_sent

    async def _send_body(self, request: http1.RequestHead, connection: Connection, head: bytes) -> None:
        writer = connection.writer
        writer.write(head)
        try:
            async for piece in http1.pieces(self._reader, request.body):
                writer.write(http1.chunk(piece) if request.body.kind == "chunked" else piece)
                await writer.drain()
            if request.body.kind == "chunked":
                writer.write(http1.LAST_CHUNK)
        except (http1.Closed, http1.BadHttp):
            connection.abort()  # the question is cut, so there will be no answer
        except ConnectionError:
            pass  # the server has enough; its answer says why

    async def _answer_head(self, connection: Connection) -> http1.AnswerHead | None:
        """The answer's head; None when the connection was closed before the first byte of it."""
        try:
            async with asyncio.timeout(_SILENCE_S):
                while True:
                    head = await http1.read_head(connection.reader)
                    if head is None:
                        return None
                    answer = http1.parse_answer(head)
                    if answer.status >= 200:
                        return answer
        except ConnectionError:
            return None
        except TimeoutError:
            raise Unreachable(f"it was silent for {_SILENCE_S:g} s") from None
        except (http1.BadHttp, http1.Closed) as error:
            raise Unreachable(f"its answer cannot be read: {error}") from error

    async def _relay(
        self,
        request: http1.RequestHead,
        answer: http1.AnswerHead,
        connection: Connection,
        *,
        may_keep: Callable[[], bool] = lambda: True,
    ) -> bool:
        if self._host.cannot_meter(answer):
            connection.abort()
            message = "leadrope: the model's server sends a compressed answer, which cannot be held to a budget"
            self._host.complain("unmetered", message)
            self._answer(Refusal(status=502, type="api_error", message=message, is_final=True), keep=False)
            return False
        is_framed = answer.body.kind != "until_close"
        keep = request.keeps_alive and is_framed
        headers = http1.without(answer.headers)
        if answer.status == 401:
            # Left alone, the agent repeats a refused login for three minutes.
            headers = [*http1.without(headers, "x-should-retry"), ("x-should-retry", "false")]
        if not keep:
            headers.append(("Connection", "close"))
        self._writer.write(http1.write_head(http1.status_line(answer.status, answer.phrase), headers))
        is_clean = await self._relay_body(request, answer, connection)
        if is_clean and answer.keeps_alive and may_keep():
            self._host.upstream.give(connection)
        else:
            connection.abort()
        return keep

    async def _relay_body(self, request: http1.RequestHead, answer: http1.AnswerHead, connection: Connection) -> bool:
        """Pass the bytes on as they come, framing included; False if the server said more than its answer."""
        framing = http1.Framing(answer.body)
        counter = self._host.tally(request, answer, self._number)
        loop = asyncio.get_running_loop()
        read, write, drain = connection.reader.read, self._writer.write, self._writer.drain
        try:
            async with asyncio.timeout(_SILENCE_S) as clock:
                while not framing.is_done:
                    data = await read(framing.wants)
                    if not data:
                        if answer.body.kind == "until_close" and not self._client.is_gone:
                            break
                        raise http1.Closed("the answer was cut")
                    content = framing.feed(data)
                    write(data[: len(data) - framing.extra])
                    if counter is not None:
                        for piece in content:
                            counter.feed(piece)
                    await drain()
                    clock.reschedule(loop.time() + _SILENCE_S)
        finally:
            if counter is not None:
                counter.end()
        return not framing.extra

    @contextlib.contextmanager
    def _watching(self, connection: Connection) -> Iterator[None]:
        """While this lasts, a client that goes away takes the connection to the server with it."""
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
