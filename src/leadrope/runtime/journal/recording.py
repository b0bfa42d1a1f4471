"""Where the events of a run go, as the parts that make them see it."""

from __future__ import annotations

from typing import Protocol

from leadrope.core import events


class Recorder(Protocol):
    """Where events go: the agent's into `incoming`, ours through `record`; `publish` makes them visible, by batches."""

    incoming: list[events.Event]

    def record(self, event: events.Event) -> None: ...

    def publish(self, weight: int = 0) -> None: ...

    @property
    def is_full(self) -> bool: ...

    async def room(self) -> None: ...

    def prompted(self, text: str) -> None:
        """The agent was given a prompt."""

    def trace(self, kind: str, data: object) -> None: ...
