"""The one-shot form, `claude -p --output-format json`: decodes its output into a reply, and a reply into events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from leadrope.core import events
from leadrope.core.result import Warning_
from leadrope.providers.claude_code import transcripts, wire
from leadrope.providers.claude_code.transcripts import Read

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
    """The structured output, if any."""
    exit_code: int = 0
    reason: str = "success"
    """The agent's reason for the end of the turn."""
    warnings: tuple[Warning_, ...] = ()


def decode_oneshot(stdout: str | bytes, stderr: str, exit_code: int) -> OneshotReply:
    """Decode the output. Always returns a reply: text that cannot be decoded is passed on verbatim, with a warning.

    decode_oneshot('{"type":"result","result":"done"}', "", 0).text
    """
    raw = stdout.encode("utf-8", "replace") if isinstance(stdout, str) else stdout
    if exit_code != 0:
        return _failed(raw, stderr, exit_code)
    try:
        told = _DECODER.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        warning = Warning_(kind="claude_code.unreadable_reply", message=f"the CLI's answer is not a reply: {error}")
        return OneshotReply(text=raw.decode("utf-8", "replace").strip(), warnings=(warning,))
    if isinstance(told, str):
        return OneshotReply(text=told)
    return _reply(told)


def is_oneshot(content: bytes) -> bool:
    """Return whether a file is one reply: a JSON string, or an object that contains an answer."""
    try:
        value = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    if isinstance(value, str):
        return bool(value.strip())
    return isinstance(value, dict) and not _ANSWERS.isdisjoint(value)


_ANSWERS = frozenset(("result", "structured_output", "error"))


def read_oneshot(content: bytes, *, run_id: str, start: float = 0.0) -> Iterator[Read]:
    """Convert the reply to the events of one turn: its session, its message, and its end."""
    reply = decode_oneshot(content, "", 0)
    log = transcripts.Log(run_id, start)
    if reply.session_id or reply.model:
        yield from log.derived([_session(reply, run_id)])
    if reply.text != NO_TEXT:
        told = events.MessageCompleted(text=reply.text, is_error=reply.is_error)
        yield from log.of(transcripts.LineEvents(own=[told]), content)
    ended = events.TurnEnded(
        turn=1,
        is_error=reply.is_error,
        reason=reply.reason,
        text=reply.text if reply.text != NO_TEXT else "",
        output=msgspec.UNSET if reply.output is None else reply.output,
        steps=reply.turns,
        cost_usd=reply.cost_usd,
    )
    yield from log.derived([ended])


def _session(reply: OneshotReply, run_id: str) -> events.SessionStarted:
    return events.SessionStarted(
        session_id=reply.session_id or run_id, provider=transcripts.PROVIDER, model=reply.model or ""
    )


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
        is_bad = told.is_error or told.error not in (None, False, "")
        text = f"Error from Claude: {told.subtype or _text(told.error) or 'unknown'}" if is_bad else NO_TEXT
    is_error = told.is_error or told.error not in (None, False, "")
    return OneshotReply(
        text=text,
        is_error=is_error,
        reason=told.subtype or ("error" if is_error else "success"),
        model=told.model or next(iter(told.model_usage or ()), None),
        session_id=told.session_id,
        turns=told.num_turns or 0,
        cost_usd=told.total_cost_usd if told.total_cost_usd is not None else told.cost_usd or 0.0,
        output=output,
        warnings=tuple(warnings),
    )


def _failed(raw: bytes, stderr: str, exit_code: int) -> OneshotReply:
    """Return a failed reply, based on the exit code; what the output still has (a session, a cost, turns) is kept."""
    try:
        told = _DECODER.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        told = wire.Oneshot()
    if isinstance(told, str):
        told = wire.Oneshot(result=told)
    known = _reply(told)
    if told.subtype == "error_max_turns":
        # Current CLIs exit with 1 here; the work done in the allowed turns is still an answer.
        return msgspec.structs.replace(known, exit_code=exit_code)
    said = stderr.strip() or _text(told.result) or told.subtype or ""
    return msgspec.structs.replace(
        known,
        text=f"claude CLI exited with code {exit_code}" + (f": {said}" if said else ""),
        is_error=True,
        exit_code=exit_code,
    )


def _text(value: Any) -> str:
    """Return a text verbatim, an object's own `result` or `text`, and anything else as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        for key in ("result", "text", "content"):
            if isinstance(value.get(key), str):
                return str(value[key])
    return msgspec.json.encode(value).decode()
