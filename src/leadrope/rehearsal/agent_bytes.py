"""The scripted agent's input and output: reads from the supervisor, and writes exactly the bytes of the script."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

NO_SESSION = "00000000-0000-4000-8000-000000000000"
PIECE = 1024 * 1024
# Up to this size a flood is built completely before it is sent, so that the generator does not slow down its reader; a
# larger one repeats one block of lines.
_PREBUILT = 128 * 1024 * 1024
_BLOCK_LINES = 1000


class InputClosed(Exception):
    """The supervisor closed our stdin while a step was waiting for a message."""


def verbatim(value: Any) -> bytes:
    """Encodes a value: text as it stands, bytes from base64, anything else as compact JSON."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and set(value) == {"base64"}:
        import base64  # noqa: PLC0415  # only for bytes that are not text

        return base64.b64decode(value["base64"])
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view[:PIECE]) :]


class Stdin:
    """Lines from the supervisor, kept until a step wants them; every byte is recorded first."""

    def __init__(self, record: str | None) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._record = os.open(record, flags, 0o600) if record else None
        self._rest = b""
        self._waiting: list[dict[str, Any]] = []
        self._closed = False

    def next(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Returns the first wanted message; the others stay for later steps."""
        while True:
            for index, message in enumerate(self._waiting):
                if wanted(message):
                    return self._waiting.pop(index)
            if self._closed:
                raise InputClosed
            self._read()

    def until_closed(self) -> None:
        while not self._closed:
            self._read()

    def _read(self) -> None:
        data = os.read(0, PIECE)
        if not data:
            self._closed = True
            return
        if self._record is not None:
            write_all(self._record, data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if not line.strip():
                continue
            try:
                message = json.loads(line)
            except ValueError:
                # The real agent also exits on malformed input.
                fail(f"malformed JSON on stdin: {line[:200]!r}")
            if isinstance(message, dict):
                self._waiting.append(message)


def fail(text: str) -> NoReturn:
    write_all(2, f"rehearsal agent: {text}\n".encode())
    os._exit(1)


def flood(value: dict[str, Any]) -> Iterator[bytes]:
    """Yields lines of the requested sizes, in blocks.

    Each line has its own message id, unless the flood is too large to build.
    """
    total, size = value["lines"], value.get("size", 1400)
    low, high = (size, size) if isinstance(size, int) else size
    start = (
        b'{"type":"assistant","message":{"id":"msg_flood_%08d","type":"message","role":"assistant",'
        b'"model":"claude-sonnet-4-5","content":[{"type":"text","text":"'
    )
    end = (
        b'"}],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":100,"output_tokens":1}},'
        b'"parent_tool_use_id":null,"session_id":"%b","uuid":"%b"}\n' % (NO_SESSION.encode(), NO_SESSION.encode())
    )
    filler = b"word " * (high // 5 + 1)
    bare = len(start % 0) + len(end)

    def block(first: int, count: int) -> bytes:
        # 37 is coprime to most spans, so the sizes spread over the whole range.
        return b"".join(
            start % number + filler[: max(1, low + number * 37 % (high - low + 1) - bare)] + end
            for number in range(first, first + count)
        )

    if total * high <= _PREBUILT:
        for first in range(0, total, _BLOCK_LINES):
            yield block(first, min(_BLOCK_LINES, total - first))
        return
    whole = block(0, _BLOCK_LINES)
    for _ in range(total // _BLOCK_LINES):
        yield whole
    if total % _BLOCK_LINES:
        yield block(0, total % _BLOCK_LINES)
