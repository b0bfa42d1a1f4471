"""Envelopes and items of a universal export: numbers, times, ids and the order of an item. Knows none of our events."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Literal, get_args

import msgspec

from leadrope.core.universal import types as u
from leadrope.core.universal.types import UniversalEvent

_TYPES: dict[str, Any] = {kind.__struct_config__.tag: kind for kind in get_args(UniversalEvent)}


class Open:
    """An item that was started and has not ended."""

    __slots__ = ("item", "pieces", "told")

    def __init__(self, item: u.Item) -> None:
        self.item = item
        self.told = False
        """Whether a delta was sent."""
        self.pieces: list[str] = []


class EnvelopeWriter:
    """Collects the events of one session; `take` hands out those since the last time."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.native_id: str | None = None
        self.raw: str | None = None
        """The line at hand, until an event has taken it."""
        self._time = 0.0
        self._source: u.Source = "agent"
        self._sequence = 0
        self._items = 0
        self._out: list[UniversalEvent] = []

    def at(self, time: float, source: u.Source, raw: str | None) -> None:
        """What comes next was told then, by this one."""
        self._time, self._source, self.raw = time, source, raw

    def take(self) -> list[UniversalEvent]:
        out, self._out = self._out, []
        return out

    def emit(self, kind: str, data: Any, *, synthetic: bool = False) -> None:
        self._sequence += 1
        raw: str | msgspec.UnsetType = msgspec.UNSET
        # The line belongs to what it tells, not to what only keeps the order whole.
        if self.raw is not None and not synthetic:
            raw, self.raw = self.raw, None
        self._out.append(
            _TYPES[kind](
                event_id=f"{self.session_id or 'session'}-{self._sequence}",
                sequence=self._sequence,
                time=_rfc3339(self._time),
                session_id=self.session_id,
                native_session_id=self.native_id,
                source="daemon" if synthetic else self._source,
                synthetic=synthetic,
                data=data,
                raw=raw,
            )
        )

    # -- items ------------------------------------------------------------------------------------------------------

    def item(
        self,
        kind: u.Kind,
        content: Iterable[u.Part] = (),
        *,
        role: u.Role | None = None,
        native_id: str | None = None,
        agent_id: str | None = None,
        parent_id: str | None = None,
        is_error: bool = False,
    ) -> u.Item:
        self._items += 1
        return u.Item(
            id=f"item-{self._items}",
            kind=kind,
            status="in_progress",
            content=tuple(content),
            native_id=native_id or None,
            parent_id=parent_id,
            role=role,
            agent_id=agent_id,
            is_error=is_error,
        )

    def start(self, item: u.Item, *, synthetic: bool = False) -> Open:
        self.emit("item.started", u.ItemData(item=item), synthetic=synthetic)
        return Open(item)

    def delta(
        self, opened: Open, text: str, part: Literal["text", "reasoning", "json"], *, synthetic: bool = False
    ) -> None:
        opened.told = True
        opened.pieces.append(text)
        item = opened.item
        data = u.ItemDeltaData(item_id=item.id, native_item_id=item.native_id, part=part, delta=text)
        self.emit("item.delta", data, synthetic=synthetic)

    def complete(self, opened: Open, status: u.Status, *, synthetic: bool = False, **changes: Any) -> None:
        item = msgspec.structs.replace(opened.item, status=status, **changes)
        self.emit("item.completed", u.ItemData(item=item), synthetic=synthetic)


def _rfc3339(seconds: float) -> str:
    try:
        when = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        # A damaged log may hold any number; the order of its events is still theirs.
        when = datetime.fromtimestamp(0, UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
