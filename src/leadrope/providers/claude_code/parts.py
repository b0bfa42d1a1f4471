"""Converts parts of a line to our own values: a call, its result, token counts, a time."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from leadrope.core import events
from leadrope.core.cost.usage import ModelShare, Usage
from leadrope.core.tools import ToolCall
from leadrope.providers.claude_code import wire

WRONG_INPUT = "value"
"""A tool call's input is an object; anything else that a model sends is stored under this key."""

_NOTHING = Usage()
_MODELS = msgspec.json.Decoder(dict[str, wire.ModelUsage] | None)
_META = msgspec.json.Decoder(list[wire.ToolResultMeta] | None)


def call(call_id: str | None, name: str | None, tool_input: Any, agent_id: str | None) -> ToolCall:
    if tool_input is None:
        tool_input = {}
    elif not isinstance(tool_input, dict):
        tool_input = {WRONG_INPUT: tool_input}
    return ToolCall(id=call_id or "", name=name or "", input=tool_input, agent_id=agent_id)


def completed(
    told: wire.Block | wire.OldToolResult | wire.ToolResult,
    agent_id: str | None,
    meta: msgspec.Raw | None = None,
) -> events.ToolCompleted:
    call_id = told.tool_use_id or ""
    content = told.content
    if isinstance(content, str):
        text = content
    else:
        text = "\n".join(f"[{block.type}]" if block.text is None else block.text for block in content or ())
    if told.is_error is not True:
        return events.ToolCompleted(call_id=call_id, text=text, agent_id=agent_id)
    return events.ToolCompleted(
        call_id=call_id, is_error=True, text=text, agent_id=agent_id, executed=_was_executed(call_id, text, meta)
    )


def _was_executed(call_id: str, text: str, meta: msgspec.Raw | None) -> bool:
    """Return whether a failed call ran. A call that the CLI rejects before any hook has no entry and this text.

    Both are checked: the text alone could be printed by a command that did run.
    """
    for entry in _META.decode(meta) or () if meta else ():
        if entry.id == call_id:
            return entry.non_execution_kind is None
    return not text.startswith("<tool_use_error>")


def usage(told: wire.Tokens | None, before: Usage = _NOTHING) -> Usage:
    """Return the counts as reported; missing or zero ones keep the earlier value."""
    if told is None:
        return before
    return Usage(
        input_tokens=told.input_tokens or before.input_tokens,
        output_tokens=told.output_tokens or before.output_tokens,
        cache_read_input_tokens=told.cache_read_input_tokens or before.cache_read_input_tokens,
        cache_creation_input_tokens=told.cache_creation_input_tokens or before.cache_creation_input_tokens,
        cache_creation_1h_input_tokens=(told.cache_creation.ephemeral_1h_input_tokens if told.cache_creation else None)
        or before.cache_creation_1h_input_tokens,
    )


def share(told: wire.ModelUsage) -> ModelShare:
    usage = Usage(
        input_tokens=told.input_tokens,
        output_tokens=told.output_tokens,
        cache_read_input_tokens=told.cache_read_input_tokens,
        cache_creation_input_tokens=told.cache_creation_input_tokens,
    )
    return ModelShare(usage=usage, cost_usd=told.cost_usd)


def total_cost(line: wire.Result) -> float | None:
    """Return the cost of the process so far, as the CLI reports it; None if it does not."""
    if line.total_cost_usd is not None:
        return line.total_cost_usd
    try:
        models = _MODELS.decode(line.model_usage) if line.model_usage else None
    except msgspec.MsgspecError:
        return None  # the format of an older CLI
    costs = [model.cost_usd for model in (models or {}).values()]
    return sum(costs) if any(costs) else None


def epoch_seconds(when: float | str | None) -> float | None:
    if isinstance(when, str):
        try:
            return datetime.fromisoformat(when).timestamp()
        except (ValueError, OverflowError):
            return None
    # Milliseconds of any day since 1973 are larger than seconds of any day before the year 5138.
    return when / 1000 if when is not None and when > 1e11 else when
