"""The bytes that stand-in agents say: the same lines for every reader, shaped like the real CLI's; reads nothing."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import msgspec

from stage import CALL_ID

LINES = 50_000
SHORTEST, LONGEST = 1300, 1600
MIB = 1024 * 1024

_SESSION = "00000000-0000-4000-8000-000000000000"
_SENTENCE = "The second test reads a file that the first one has removed; it fails only when both run in one process.\n"
_USAGE = {
    "input_tokens": 1843,
    "cache_creation_input_tokens": 2210,
    "cache_read_input_tokens": 15872,
    "cache_creation": {"ephemeral_5m_input_tokens": 2210, "ephemeral_1h_input_tokens": 0},
    "output_tokens": 1,
    "service_tier": "standard",
}
_encode = msgspec.json.Encoder().encode


def line(number: int, size: int) -> bytes:
    """Assistant and user lines in turn; the assistant's are texts and tool calls in turn. `size` bytes or one less."""
    bare = len(_line(number, "")) + 1
    # A user line holds its text twice, as the real one does; a line break in it takes two bytes in JSON.
    copies = 1 + number % 2
    if size < bare:
        raise ValueError(f"a line needs {bare} bytes; {size} were asked for")
    sentences, rest = divmod((size - bare) // copies, len(_SENTENCE) + 1)
    return _line(number, _SENTENCE * sentences + "x" * rest) + b"\n"


def _line(number: int, text: str) -> bytes:
    common = {
        "parent_tool_use_id": None,
        "session_id": _SESSION,
        "uuid": f"00000000-0000-4000-8000-{number:012}",
        "timestamp": "2026-01-01T12:00:00.000Z",
    }
    if number % 2:
        block = {"tool_use_id": CALL_ID, "type": "tool_result", "content": text, "is_error": False}
        told = {"stdout": text, "stderr": "", "interrupted": False, "isImage": False, "noOutputExpected": False}
        meta = {"id": CALL_ID, "permission_decision": {"decision": "accept", "source": "hook", "reason_type": "hook"}}
        asked = {"role": "user", "content": [block]}
        return _encode(
            {"type": "user", "message": asked, **common, "tool_use_result": told, "tool_result_meta": [meta]}
        )
    message = {
        "model": "claude-sonnet-4-5",
        "id": f"msg_bench_{number:08}",
        "type": "message",
        "role": "assistant",
        "content": [
            {"type": "tool_use", "id": CALL_ID, "name": "Write", "input": {"file_path": "/work/a", "content": text}}
            if number % 4
            else {"type": "text", "text": text}
        ],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _USAGE,
        "context_management": None,
    }
    return _encode({"type": "assistant", "message": message, **common, "request_id": "req_bench"})


def ordinary(path: Path, *, lines: int = LINES) -> Path:
    with path.open("wb") as file:
        for number in range(lines):
            # 37 is prime to the span, so the sizes spread over all of it.
            file.write(line(number, SHORTEST + number * 37 % (LONGEST - SHORTEST + 1)))
    return path


def one_long(path: Path, size: int, *, ending: str = "") -> Path:
    """One assistant line of `size` bytes without its line break, written in pieces."""
    head, tail = _line(0, "\0").split(b"\\u0000")
    with path.open("wb") as file:
        file.write(head)
        _fill(file, size - len(head) - len(tail) - len(ending.encode()))
        file.write(ending.encode() + tail + b"\n")
    return path


def _fill(file: BinaryIO, size: int) -> None:
    piece = b"word " * (MIB // 5)
    while size > 0:
        file.write(piece[:size])
        size -= len(piece)
