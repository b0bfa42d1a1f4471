"""Events without secrets, where a text comes in pieces: a key that is cut in two is still a key. Knows no store."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from leadrope.core.events import (
    Event,
    MessageCompleted,
    MessageDelta,
    Notice,
    OutputChecked,
    Recorded,
    SandboxViolation,
    ThinkingCompleted,
    ThinkingDelta,
    ToolProgress,
    UsageEstimated,
    UsageUpdated,
    decoder,
    is_thought,
)
from leadrope.core.result import RunResult
from leadrope.core.secrets.redaction import MASK, Redactor
from leadrope.runs.records.redacted_rows import as_json

LEAST_BEGUN = 4
"""Characters of a known secret that are masked before the rest has come; fewer say nothing."""
MOST_WAITING = 200
"""Events that wait for the next piece of a message; then they are given on without it."""
_PROGRESS = (Notice, OutputChecked, ToolProgress, UsageEstimated, UsageUpdated, SandboxViolation)
"""Nobody acts on them at once. The agent sends one after every piece of its thinking."""

_PIECES = (MessageDelta, ThinkingDelta)
_Stream = tuple[str, str | None, bool]


class Masking:
    """One run's events on their way: each comes out once, in its order.

    A piece whose end may be the beginning of a secret waits for the next piece of its message; what it is, is known
    then. Events that only tell progress, and pieces of other messages, wait with it. Any other event is given on at
    once, and with it what waits: then the beginning of a known secret is masked before it is complete.
    """

    def __init__(self, redactor: Callable[[], Redactor], *, only_pieces: bool = False) -> None:
        """`only_pieces`: whoever gets them cleans whole events himself."""
        self._redactor = redactor
        self._only_pieces = only_pieces
        self._waiting: list[Recorded] = []
        self._open: dict[_Stream, tuple[int, str]] = {}
        """Which of them waits for the next piece of its message, and its text with what was moved into it."""
        self._begun: dict[_Stream, tuple[str, bool]] = {}
        """What may be the beginning of a known secret and was given on, and whether it was masked."""

    def of(self, records: Iterable[Recorded]) -> list[Recorded]:
        redactor = self._redactor()
        found: list[Recorded] = []
        for record in records:
            event = record.event
            if not self._open and not self._begun and not isinstance(event, _PIECES):
                found.append(record if self._only_pieces else _cleaned(record, redactor))  # as nearly all of them
                continue
            if isinstance(event, _PIECES):
                self._take(record, event, redactor)
            else:
                self._close(_ended(event), redactor)
                if not isinstance(event, _PROGRESS):
                    self._close_all(redactor)
                self._waiting.append(record if self._only_pieces else _cleaned(record, redactor))
            if len(self._waiting) > MOST_WAITING:
                self._close_all(redactor)
            found += self._ready()
        return found

    def _take(self, record: Recorded, event: MessageDelta | ThinkingDelta, redactor: Redactor) -> None:
        stream = (event.message_id, event.agent_id, is_thought(event))
        place, before = self._open.pop(stream, (-1, ""))
        whole = before + self._rest(stream, event.text, redactor)
        end = redactor.open_end(whole)
        sure, rest = whole[:end], whole[end:]
        if place >= 0:
            self._waiting[place] = _with(self._waiting[place], redactor.clean(sure))
            sure = ""
        if rest:
            self._open[stream] = len(self._waiting), sure + rest
        self._waiting.append(_with(record, redactor.clean(sure)))

    def _rest(self, stream: _Stream, text: str, redactor: Redactor) -> str:
        """The text without what belongs to a secret whose beginning was given on already."""
        begun, is_masked = self._begun.pop(stream, ("", False))
        if not begun:
            return text
        whole = begun + text
        secret = redactor.known_start(whole)
        if secret:
            return ("" if is_masked else MASK) + whole[len(secret) :]
        if redactor.open_known(whole) > 0:
            return whole if is_masked else text  # it was none after all
        is_long = len(whole) >= LEAST_BEGUN
        self._begun[stream] = whole, is_long
        return "" if is_masked else MASK if is_long else text

    def _close(self, stream: _Stream | None, redactor: Redactor) -> None:
        """The message has ended: what waits of it is no secret, or a whole one."""
        if stream is None:
            return
        self._begun.pop(stream, None)
        place, text = self._open.pop(stream, (-1, ""))
        if place >= 0:
            self._waiting[place] = _with(self._waiting[place], redactor.clean(text))

    def _close_all(self, redactor: Redactor) -> None:
        for stream, (place, text) in self._open.items():
            start = redactor.open_known(text)
            begun, is_long = text[start:], len(text) - start >= LEAST_BEGUN
            if begun:
                self._begun[stream] = begun, is_long
            shown = text[:start] + MASK if is_long else text
            self._waiting[place] = _with(self._waiting[place], redactor.clean(shown))
        self._open.clear()

    def _ready(self) -> list[Recorded]:
        """Those before the first that waits for its next piece."""
        if not self._open:
            ready, self._waiting = self._waiting, []
            return ready
        count = min((place for place, _ in self._open.values()), default=len(self._waiting))
        ready, self._waiting = self._waiting[:count], self._waiting[count:]
        self._open = {stream: (place - count, text) for stream, (place, text) in self._open.items()}
        return ready


def without_known(result: RunResult, redactor: Redactor) -> RunResult:
    """A result for the run's own user: what is known to be a secret is not in it."""
    text = msgspec.json.encode(result).decode()
    known = redactor.only_known()
    return result if known.clean(text) == text else msgspec.json.decode(as_json(result, known), type=RunResult)


def _ended(event: Event) -> _Stream | None:
    """The message whose last piece has come."""
    match event:
        case MessageCompleted(message_id=message_id, agent_id=agent_id):
            return message_id, agent_id, False
        case ThinkingCompleted(message_id=message_id, agent_id=agent_id):
            return message_id, agent_id, True
        case _:
            return None


def _with(record: Recorded, text: str) -> Recorded:
    event = record.event
    if not isinstance(event, _PIECES) or event.text == text:
        return record
    return msgspec.structs.replace(record, event=msgspec.structs.replace(event, text=text))


def _cleaned(record: Recorded, redactor: Redactor) -> Recorded:
    text = msgspec.json.encode(record.event).decode()
    if redactor.clean(text) == text:
        return record
    return msgspec.structs.replace(record, event=decoder().decode(as_json(record.event, redactor)))
