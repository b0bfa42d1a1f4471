"""Events without secrets, where a text comes in pieces: a key that is cut in two is still a key. Knows no store."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from leadrope.core.events import Event, MessageDelta, Recorded, decoder
from leadrope.core.redaction import Redactor
from leadrope.core.result import RunResult
from leadrope.runs.cleaning import as_json


class Masking:
    """One run's events on their way: each comes out once, in its order.

    A piece whose end may be the beginning of a secret waits for the next event; what it is, is known then.
    """

    def __init__(self, redactor: Callable[[], Redactor], *, only_pieces: bool = False) -> None:
        """`only_pieces`: whoever gets them cleans whole events himself."""
        self._redactor = redactor
        self._only_pieces = only_pieces
        self._held: Recorded | None = None
        self._text = ""
        """The held piece's, with what was moved into it."""

    def of(self, records: Iterable[Recorded]) -> list[Recorded]:
        redactor = self._redactor()
        found: list[Recorded] = []
        for record in records:
            event = record.event
            if not isinstance(event, MessageDelta):
                found += self._released(redactor)
                found.append(record if self._only_pieces else _cleaned(record, redactor))
                continue
            if self._held is not None and _stream(self._held.event) != _stream(event):
                found += self._released(redactor)
            whole = self._text + event.text
            end = redactor.open_end(whole)
            sure, rest = whole[:end], whole[end:]
            if self._held is not None:
                found.append(_with(self._held, redactor.clean(sure)))
                sure = ""
            if rest:
                self._held, self._text = record, sure + rest
            else:
                self._held, self._text = None, ""
                found.append(_with(record, redactor.clean(sure)))
        return found

    def _released(self, redactor: Redactor) -> list[Recorded]:
        held, text = self._held, self._text
        self._held, self._text = None, ""
        return [] if held is None else [_with(held, redactor.clean(text))]


def without_known(result: RunResult, redactor: Redactor) -> RunResult:
    """A result for the run's own user: what is known to be a secret is not in it."""
    text = msgspec.json.encode(result).decode()
    known = redactor.only_known()
    return result if known.clean(text) == text else msgspec.json.decode(as_json(result, known), type=RunResult)


def _stream(event: Event) -> tuple[str, str | None, bool] | None:
    return (event.message_id, event.agent_id, event.thinking) if isinstance(event, MessageDelta) else None


def _with(record: Recorded, text: str) -> Recorded:
    event = record.event
    if not isinstance(event, MessageDelta) or event.text == text:
        return record
    return msgspec.structs.replace(record, event=msgspec.structs.replace(event, text=text))


def _cleaned(record: Recorded, redactor: Redactor) -> Recorded:
    text = msgspec.json.encode(record.event).decode()
    if redactor.clean(text) == text:
        return record
    return msgspec.structs.replace(record, event=decoder().decode(as_json(record.event, redactor)))
