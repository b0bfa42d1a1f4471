"""JSON on standard output: one object per line, costs without the noise of binary fractions, all keys where asked."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

if TYPE_CHECKING:
    from leadrope.core.events import Recorded
    from leadrope.core.result import RunResult

T = TypeVar("T")

COST_DIGITS = 8
"""Of a US dollar: a single cached token of the cheapest model costs about 0.0000001."""


def write(value: Any) -> None:
    """One line on stdout, at once."""
    sys.stdout.buffer.write(line(value))
    sys.stdout.buffer.flush()


def line(value: Any) -> bytes:
    """The value as JSON with a newline."""
    return msgspec.json.encode(rounded(value)) + b"\n"


def event_line(recorded: Recorded) -> bytes:
    """One event. The result in the last one has all its keys."""
    from leadrope.core.events import RunEnded  # noqa: PLC0415  # few commands write events

    if isinstance(recorded.event, RunEnded):
        result = whole(recorded.event.result)
        return line({**msgspec.to_builtins(recorded), "event": {"type": "run.ended", "result": result}})
    return line(recorded)


def last_line(result: RunResult) -> bytes:
    """What ends the stream of a run that never started."""
    from leadrope.core.events import Recorded, RunEnded  # noqa: PLC0415  # only here

    return event_line(Recorded(result.run_id, 1, 1, time.time(), "supervisor", RunEnded(result=result)))


def wanted(words: Sequence[str]) -> str:
    """The form of output that a command line asks for which cannot be read as a whole; the last one counts."""
    found = "text"
    for word, after in zip(words, [*words[1:], ""], strict=True):
        if word in ("-o", "--output"):
            found = after
        elif word.startswith(("-o", "--output=")):
            found = word.removeprefix("--output=").removeprefix("-o").removeprefix("=")
    return found if found in ("json", "stream-json") else "text"


def whole(value: Any) -> Any:
    """Plain data with every field of every value, those that have their default included; costs are rounded.

    >>> from leadrope.core.result import RunResult
    >>> whole(RunResult(run_id="r", outcome="succeeded"))["denials"]
    []
    """
    return _every_field(rounded(value))  # Before: in plain data a cost of ours cannot be told from a user's number.


def _every_field(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        config = value.__struct_config__
        tag = {config.tag_field: config.tag} if config.tag_field else {}
        names = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
        return {**tag, **{encoded: _every_field(getattr(value, name)) for name, encoded in names}}
    if isinstance(value, Mapping):
        return {name: _every_field(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_every_field(inner) for inner in value]
    return value


def rounded(value: T) -> T:
    """The same with every cost rounded: fields of ours whose name ends in `usd`. What a user's data holds stays.

    >>> from leadrope.core.result import RunResult
    >>> rounded(RunResult(run_id="r", outcome="succeeded", cost_usd=0.00045000000000000004)).cost_usd
    0.00045
    """
    if isinstance(value, msgspec.Struct):
        changed: dict[str, Any] = {}
        for name in value.__struct_fields__:
            before = getattr(value, name)
            after = _cost(before) if name.endswith("usd") else rounded(before)
            if after is not before:
                changed[name] = after
        return msgspec.structs.replace(value, **changed) if changed else value
    if isinstance(value, dict):
        return _same(value, {key: rounded(inner) for key, inner in value.items()})
    if isinstance(value, list | tuple):
        # Lists of plain texts and numbers are the common case, and hold no cost.
        return _same(value, type(value)(map(rounded, value)))
    return value


def _cost(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, COST_DIGITS)
    return {key: _cost(inner) for key, inner in value.items()} if isinstance(value, dict) else rounded(value)


def _same(before: T, after: Any) -> T:
    return before if after == before else after
