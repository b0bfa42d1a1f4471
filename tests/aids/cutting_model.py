"""A model's server that hangs up at a chosen point of every answer, and counts the requests that it has read."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal

Place = Literal["before headers", "reset", "after headers", "at once", "after its start", "in its text"]

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"


class CuttingModel:
    def __init__(self, place: Place, input_tokens: int, first_call: dict[str, Any] | None) -> None:
        self.place = place
        self.first_call = first_call
        self.requests = 0
        self.url = ""
        self._input_tokens = input_tokens

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = head.partition(b"content-length:")[2].split(b"\r\n")[0]
            await reader.readexactly(int(length or 0))
            if b"/v1/messages" in head.split(b"\r\n")[0]:
                self.requests += 1
            await self._answer(writer)
        writer.close()

    async def _answer(self, writer: asyncio.StreamWriter) -> None:
        if self.first_call is not None and self.requests == 1:
            self._call(writer, self.first_call)
            await _seen(writer)
            return
        if self.place == "reset":
            linger: socket.socket = writer.get_extra_info("socket")
            linger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if self.place in ("before headers", "reset"):
            return
        writer.write(_HEAD)
        if self.place == "after headers":
            await _seen(writer)
            return
        self._start(writer)
        if self.place == "at once":
            return
        await _seen(writer)
        if self.place == "after its start":
            return
        _event(writer, "content_block_start", index=0, content_block={"type": "text", "text": ""})
        _event(writer, "content_block_delta", index=0, delta={"type": "text_delta", "text": "half of it"})
        await _seen(writer)

    def _start(self, writer: asyncio.StreamWriter) -> None:
        usage = {"input_tokens": self._input_tokens, "output_tokens": 1}
        message = {"id": f"msg_{self.requests}", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5"}
        _event(writer, "message_start", message={**message, "content": [], "stop_reason": None, "usage": usage})

    def _call(self, writer: asyncio.StreamWriter, call: dict[str, Any]) -> None:
        """A whole answer that calls one tool."""
        writer.write(_HEAD)
        self._start(writer)
        block = {"type": "tool_use", "id": "toolu_1", "name": call["name"], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(call["input"])}
        _event(writer, "content_block_start", index=0, content_block=block)
        _event(writer, "content_block_delta", index=0, delta=delta)
        _event(writer, "content_block_stop", index=0)
        _event(writer, "message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": 1000})
        _event(writer, "message_stop")
        writer.write(b"0\r\n\r\n")


def _event(writer: asyncio.StreamWriter, kind: str, **fields: Any) -> None:
    data = f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))


async def _seen(writer: asyncio.StreamWriter) -> None:
    """A program that gets data and the end together may throw the data away: give it a moment between both."""
    await writer.drain()
    await asyncio.sleep(0.3)


@asynccontextmanager
async def cutting_model(
    place: Place, *, input_tokens: int = 20_000, first_call: dict[str, Any] | None = None
) -> AsyncIterator[CuttingModel]:
    """`first_call`: the first request is answered in full, with this call of a tool."""
    model = CuttingModel(place, input_tokens, first_call)
    server = await asyncio.start_server(model.serve, "127.0.0.1")
    try:
        model.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield model
    finally:
        server.close()
