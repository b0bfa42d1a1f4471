"""The one-shot form, `claude -p --output-format json`: its output into a reply. Only a decoder; it starts nothing."""

from __future__ import annotations

from typing import Any

import msgspec

from leadrope.core.result import Warning_
from leadrope.providers.claude_code import wire

NO_TEXT = "(No response text returned)"
_DECODER = msgspec.json.Decoder(wire.Oneshot | str)


class OneshotReply(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    is_error: bool = False
    model: str | None = None
    session_id: str | None = None
    turns: int = 0
    cost_usd: float = 0.0
    output: Any = None
    """The structured output, when there is one."""
    exit_code: int = 0
    warnings: tuple[Warning_, ...] = ()


def decode_oneshot(stdout: str | bytes, stderr: str, exit_code: int) -> OneshotReply:
    """Always a reply: what cannot be read is given as it is, with a warning.

    decode_oneshot('{"type":"result","result":"done"}', "", 0).text
    """
    raw = stdout.encode("utf-8", "replace") if isinstance(stdout, str) else stdout
    if exit_code != 0:
        return _failed(raw, stderr, exit_code)
    try:
        told = _DECODER.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        warning = Warning_(kind="claude_code.unreadable_reply", message=f"the CLI's answer is no reply: {error}")
        return OneshotReply(text=raw.decode("utf-8", "replace").strip(), warnings=(warning,))
    if isinstance(told, str):
        return OneshotReply(text=told)
    return _reply(told)


def _reply(told: wire.Oneshot) -> OneshotReply:
    warnings = []
    if told.subtype == "error_max_turns":
        warnings.append(
            Warning_(kind="max_turns", message="the agent reached its limit of turns; the text may be incomplete")
        )
    output = None if told.structured_output is msgspec.UNSET else told.structured_output
    text = _text(told.result)
    if not text and output is not None:
        text = _text(output)
    if not text:
        text = f"Error from Claude: {told.subtype or _text(told.error) or 'unknown'}" if told.is_error else NO_TEXT
    return OneshotReply(
        text=text,
        is_error=told.is_error,
        model=told.model or next(iter(told.model_usage or ()), None),
        session_id=told.session_id,
        turns=told.num_turns or 0,
        cost_usd=told.total_cost_usd if told.total_cost_usd is not None else told.cost_usd or 0.0,
        output=output,
        warnings=tuple(warnings),
    )


def _failed(raw: bytes, stderr: str, exit_code: int) -> OneshotReply:
    """The exit code decides; what the output still tells (a session, a cost, turns used up) is kept."""
    try:
        told = _DECODER.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        told = wire.Oneshot()
    if isinstance(told, str):
        told = wire.Oneshot(result=told)
    known = _reply(told)
    if told.subtype == "error_max_turns":
        # Today's CLI exits with 1 here; what was done in the turns it had is an answer all the same.
        return msgspec.structs.replace(known, exit_code=exit_code)
    said = stderr.strip() or _text(told.result) or told.subtype or ""
    return msgspec.structs.replace(
        known,
        text=f"claude CLI exited with code {exit_code}" + (f": {said}" if said else ""),
        is_error=True,
        exit_code=exit_code,
    )


def _text(value: Any) -> str:
    """A text as it is; an object's own `result` or `text`; anything else as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        for key in ("result", "text", "content"):
            if isinstance(value.get(key), str):
                return str(value[key])
    return msgspec.json.encode(value).decode()
