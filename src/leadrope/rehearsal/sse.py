"""Formats an answer of the script as the Messages API sends it: stream events or one JSON message. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from leadrope.rehearsal.script import AnswerBlock, HttpError, ScriptedAnswer, StreamError, blocks_of

# Short texts are sent in small pieces, as from a model that is thinking, so that live rendering has something to do;
# long ones in large pieces, so that a text of 5 MB does not become 200,000 events.
_SMALL_PIECE = 24
_LARGE_PIECE = 16_384
_LONG_TEXT = 4_096

_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def error_body(error: HttpError) -> bytes:
    kind = error.type or _ERROR_TYPES.get(error.status, "api_error" if error.status >= 500 else "invalid_request_error")
    return msgspec.json.encode({"type": "error", "error": {"type": kind, "message": error.message}})


def message(answer: ScriptedAnswer, *, message_id: str, model: str) -> dict[str, Any]:
    """Returns the whole answer as one message, for a request that does not stream."""
    content = [_content(block, message_id, index) for index, block in enumerate(blocks_of(answer))]
    return {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": answer.model or model,
        "content": content,
        "stop_reason": stop_reason(answer),
        "stop_sequence": None,
        "usage": msgspec.to_builtins(answer.usage),
    }


def stop_reason(answer: ScriptedAnswer) -> str:
    if answer.stop_reason is not None:
        return answer.stop_reason
    return "tool_use" if any(block.tool is not None for block in blocks_of(answer)) else "end_turn"


def events(answer: ScriptedAnswer, *, message_id: str, model: str) -> Iterator[bytes]:
    """Yields the answer as stream events, each complete with its empty line."""
    whole = message(answer, message_id=message_id, model=model)
    usage = whole["usage"]
    start = {**whole, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    yield _event("message_start", message=start)
    if answer.bad_sse:
        yield b'event: content_block_start\ndata: {"type":"content_block_start","index":0,\n\n'
        return
    for index, block in enumerate(whole["content"]):
        yield from _block_events(index, block)
    if answer.sse_error is not None:
        yield stream_error(answer.sse_error)
        return
    yield _event("message_delta", delta={"stop_reason": whole["stop_reason"], "stop_sequence": None}, usage=usage)
    yield _event("message_stop")


def stream_error(error: StreamError) -> bytes:
    return _event("error", error={"type": error.type, "message": error.message})


def _block_events(index: int, block: dict[str, Any]) -> Iterator[bytes]:
    opening: dict[str, Any]
    match block["type"]:
        case "text":
            opening = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(block["text"])]
        case "thinking":
            opening = {"type": "thinking", "thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(block["thinking"])]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        case _:
            opening = {**block, "input": {}}
            text = msgspec.json.encode(block["input"]).decode()
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in _pieces(text)]
    yield _event("content_block_start", index=index, content_block=opening)
    for delta in deltas:
        yield _event("content_block_delta", index=index, delta=delta)
    yield _event("content_block_stop", index=index)


def _content(block: AnswerBlock, message_id: str, index: int) -> dict[str, Any]:
    if block.text is not None:
        return {"type": "text", "text": block.text}
    if block.thinking is not None:
        # Any base64 will do; the agent sends it back unchanged.
        return {"type": "thinking", "thinking": block.thinking, "signature": "cmVoZWFyc2Fs"}
    if block.tool is None:
        raise AssertionError("a block without content passed the script's check")
    tool = block.tool
    made_up = f"{message_id.replace('msg_', 'toolu_', 1)}_{index}"
    return {"type": "tool_use", "id": tool.id or made_up, "name": tool.name, "input": tool.input}


def _pieces(text: str) -> Iterator[str]:
    size = _SMALL_PIECE if len(text) < _LONG_TEXT else _LARGE_PIECE
    for start in range(0, len(text), size):
        yield text[start : start + size]


def _event(kind: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode({"type": kind, **fields}))
