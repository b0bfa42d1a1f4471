"""The interface through which the parts of a run record events."""

from __future__ import annotations

from typing import Protocol

from leadrope.core import events


class Recorder(Protocol):
    """Receives events: the agent's in `incoming`, ours through `record`; `publish` makes them visible in batches."""

    incoming: list[events.Event]

    def record(self, event: events.Event) -> None: ...

    def publish(self, weight: int = 0) -> None: ...

    @property
    def is_full(self) -> bool: ...

    async def room(self) -> None: ...

    def prompted(self, text: str) -> None:
        """Note that the agent was given a prompt."""

    def trace(self, kind: str, data: object) -> None: ...
