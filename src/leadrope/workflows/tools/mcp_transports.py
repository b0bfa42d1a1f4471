"""The three MCP transports: a process's pipes, streamable HTTP, and the older HTTP with SSE.

Each carries JSON-RPC messages and declines the server's own requests. Timeouts are up to the caller; the size of a
message is limited here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from pathlib import Path

import msgspec

from leadrope import errors
from leadrope.net import http_client, urls
from leadrope.net.resolver import ask_system
from leadrope.net.sse import EventStream, EventTooLarge, ServerEvent
from leadrope.process import lines
from leadrope.process.child import Child
from leadrope.workflows.tools.mcp_client import Lost, Message, Wire, is_answer, reply_to

MOST_BYTES = 16 * 1024 * 1024
"""Maximum size of one answer. A tool with more data should return its location."""
LEAVE_S = 2.0
STREAM_BYTES = 1 << 40
"""The long-lived stream has no limit; each of its events has."""


class ProcessWire:
    """stdio transport: one JSON value per line."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._lines: deque[lines.Line] = deque()

    def agreed(self, version: str) -> None:
        pass

    async def send(self, message: Message) -> Message | None:
        await self._write(message)
        if "id" not in message:
            return None
        while True:
            found = await self._next()
            if is_answer(found, message):
                return found
            reply = reply_to(found)
            if reply is not None:
                await self._write(reply)

    async def _write(self, message: Message) -> None:
        try:
            self._child.write(msgspec.json.encode(message) + b"\n")
            await self._child.drain()
        except errors.RunClosed:
            raise Lost(await self._why_gone()) from None

    async def _next(self) -> Message:
        while True:
            while not self._lines:
                batch = await self._child.read()
                if not batch:
                    raise Lost(await self._why_gone())
                self._lines += batch
            line = self._lines.popleft()
            if isinstance(line, lines.Spooled):
                if line.path:
                    Path(line.path).unlink(missing_ok=True)
                raise Lost(f"it says more than {MOST_BYTES} bytes at once")
            if len(line) > MOST_BYTES:
                raise Lost(f"it says more than {MOST_BYTES} bytes at once")
            found = _decoded(bytes(line))
            # Some servers print a greeting or their log to stdout, where only messages belong.
            if found:
                return found[0]

    async def _why_gone(self) -> str:
        ended = await self._child.end(polite_s=0.5, stop_s=0.5)
        told = " | ".join(line for line in self._child.stderr_tail[-5:] if line.strip())
        return f"its process ended with exit code {ended.exit_code}" + (f": {told}" if told else "")


class HttpWire:
    """Streamable HTTP: each message is a POST; the answer is JSON, or a short event stream that contains it."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._target = _target(url)
        self._headers = _checked(headers)
        self._own: dict[str, str] = {}
        """Headers that the server and the protocol require on later requests."""

    def agreed(self, version: str) -> None:
        self._own["MCP-Protocol-Version"] = version

    async def send(self, message: Message) -> Message | None:
        async with _exchange(self._request("POST", message)) as answer:
            session = answer.headers.get("mcp-session-id")
            if session and message.get("method") == "initialize":
                self._own["Mcp-Session-Id"] = session
            await _check_status(answer)
            if "id" not in message:
                return None
            if answer.media_type == "text/event-stream":
                return await self._from_stream(answer, message)
            for found in _decoded(await answer.read(MOST_BYTES)):
                if is_answer(found, message):
                    return found
        raise Lost(f"its answer to {message['method']} is not an MCP message")

    async def leave(self) -> None:
        """End the server's session, if it keeps one; errors are ignored."""
        if "Mcp-Session-Id" in self._own:
            with contextlib.suppress(Lost, TimeoutError):
                async with asyncio.timeout(LEAVE_S), _exchange(self._request("DELETE", None)):
                    pass

    async def _from_stream(self, answer: http_client.HttpAnswer, message: Message) -> Message:
        stream = EventStream(MOST_BYTES)
        async for piece in answer.pieces(MOST_BYTES):
            for _, data in stream.feed(piece):
                for found in _decoded(data.encode()):
                    if is_answer(found, message):
                        return found
                    reply = reply_to(found)
                    if reply is not None:
                        await self._answer(reply)
        raise Lost(f"its stream ended before the answer to {message['method']}")

    async def _answer(self, reply: Message) -> None:
        async with _exchange(self._request("POST", reply)) as answer:
            await _check_status(answer)

    def _request(self, method: str, message: Message | None) -> http_client.OutgoingRequest:
        headers = [*self._headers, *self._own.items(), ("Accept", "application/json, text/event-stream")]
        body = None
        if message is not None:
            body = msgspec.json.encode(message)
            headers.append(("Content-Type", "application/json"))
        return http_client.OutgoingRequest(method=method, target=self._target, headers=tuple(headers), body=body)


class StreamWire:
    """The transport before 2025: one long-lived stream carries all answers and announces the URL for requests."""

    def __init__(
        self, target: urls.Target, headers: tuple[tuple[str, str], ...], found: AsyncIterator[Message]
    ) -> None:
        self._target = target
        self._headers = headers
        self._found = found

    def agreed(self, version: str) -> None:
        pass

    async def send(self, message: Message) -> Message | None:
        if "id" not in message:
            await self._post(message)
            return None
        # Concurrently: a server may write its answer to the stream before it acknowledges the request.
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._post(message))
                answer = group.create_task(self._wait_for(message))
        except* Lost as lost:
            raise Lost(str(lost.exceptions[0])) from None
        return answer.result()

    async def _wait_for(self, message: Message) -> Message:
        async for found in self._found:
            if is_answer(found, message):
                return found
            reply = reply_to(found)
            if reply is not None:
                await self._post(reply)
        raise Lost(f"its stream ended before the answer to {message['method']}")

    async def _post(self, message: Message) -> None:
        headers = (*self._headers, ("Content-Type", "application/json"))
        body = msgspec.json.encode(message)
        request = http_client.OutgoingRequest(method="POST", target=self._target, headers=headers, body=body)
        async with _exchange(request) as answer:
            await _check_status(answer)


@contextlib.asynccontextmanager
async def open_http(url: str, headers: Mapping[str, str]) -> AsyncIterator[Wire]:
    wire = HttpWire(url, headers)
    yield wire
    await wire.leave()


@contextlib.asynccontextmanager
async def open_stream(url: str, headers: Mapping[str, str]) -> AsyncIterator[Wire]:
    target, checked = _target(url), _checked(headers)
    request = http_client.OutgoingRequest(
        method="GET", target=target, headers=(*checked, ("Accept", "text/event-stream"))
    )
    async with _exchange(request) as answer:
        await _check_status(answer)
        if answer.media_type != "text/event-stream":
            raise Lost(f"{target.shown} gives no stream of events")
        async with contextlib.aclosing(_events(answer)) as events:
            endpoint = await _endpoint(target, events)
            async with contextlib.aclosing(_messages(events)) as messages:
                yield StreamWire(endpoint, checked, messages)


async def _events(answer: http_client.HttpAnswer) -> AsyncGenerator[ServerEvent, None]:
    stream = EventStream(MOST_BYTES)
    async for piece in answer.pieces(STREAM_BYTES):
        for event in stream.feed(piece):
            yield event


async def _messages(events: AsyncIterator[ServerEvent]) -> AsyncGenerator[Message, None]:
    async for name, data in events:
        if name == "message":
            for message in _decoded(data.encode()):
                yield message


async def _endpoint(target: urls.Target, events: AsyncIterator[ServerEvent]) -> urls.Target:
    """Return the URL for requests. It must be of the same origin, or headers, including the key, would go elsewhere."""
    name, data = "", ""
    while name != "endpoint":
        try:
            name, data = await anext(events)
        except StopAsyncIteration:
            raise Lost("its stream ended before it named an address for messages") from None
    try:
        found = urls.follow(target, data)
    except (urls.BadUrl, urls.Blocked) as error:
        raise Lost(f"the address that it names for messages cannot be used: {error}") from None
    if found.origin != target.origin:
        raise Lost(f"it wants messages to go to another server ({found.shown})")
    return found


@contextlib.asynccontextmanager
async def _exchange(request: http_client.OutgoingRequest) -> AsyncIterator[http_client.HttpAnswer]:
    """Send a request to any address: it is from the user's own configuration, so our address rules do not apply."""
    target = request.target
    where = [str(target.address)]
    if target.address is None:
        try:
            where = list(await ask_system(target.host, target.port))
        except (OSError, UnicodeError) as error:
            told = getattr(error, "strerror", None) or error
            raise Lost(f"{target.host} cannot be resolved: {told}") from None
    try:
        async with http_client.exchange(request, addresses=where) as answer:
            yield answer
    except http_client.HttpFailed as failed:
        raise Lost(str(failed)) from None
    except (http_client.BodyTooLarge, EventTooLarge):
        raise Lost(f"it says more than {MOST_BYTES} bytes at once") from None


async def _check_status(answer: http_client.HttpAnswer) -> None:
    if 200 <= answer.status < 300:
        return
    if 300 <= answer.status < 400:
        raise Lost(f"it redirects (status {answer.status}), which is not followed: the headers may contain a key")
    told = " ".join((await answer.read(65536)).decode("utf-8", "replace").split())[:200]
    raise Lost(f"it answered with status {answer.status}" + (f": {told}" if told else ""))


def _target(url: str) -> urls.Target:
    try:
        return urls.read_url(url)
    except (urls.BadUrl, urls.Blocked) as error:
        raise Lost(f"its url cannot be used: {error}") from None


def _checked(headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    try:
        return tuple(http_client.check_header(name, value) for name, value in headers.items())
    except http_client.BadHeader as error:
        raise Lost(f"its headers cannot be sent: {error}") from None


def _decoded(data: bytes) -> list[Message]:
    """Return the messages in a JSON value: one, in an older version several; none if it is something else."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return []
    return [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, dict)]
