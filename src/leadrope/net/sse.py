"""Incremental parser for server-sent events. Pure.

    stream = EventStream(most=16 * 1024 * 1024)
    async for piece in answer.pieces(limit):
        for event in stream.feed(piece):
            print(event.name, event.data)

An event of more than `most` bytes raises EventTooLarge.
"""

from __future__ import annotations

from typing import NamedTuple


class EventTooLarge(Exception):
    """An event exceeds the maximum size."""


class ServerEvent(NamedTuple):
    name: str
    """`message` if the server gives none."""
    data: str


class EventStream:
    def __init__(self, most: int) -> None:
        """`most` is the maximum size of one event, in bytes."""
        self._most = most
        self._rest: list[bytes] = []
        self._name = ""
        self._data: list[str] = []
        self._size = 0
        """Size of the current event, including its unfinished line."""

    def feed(self, data: bytes) -> list[ServerEvent]:
        """Feed data and return the events that are complete; raises EventTooLarge."""
        found: list[ServerEvent] = []
        first, *lines = data.split(b"\n")
        self._rest.append(first)
        self._size += len(first)
        for following in lines:
            event = self._line(b"".join(self._rest).removesuffix(b"\r"))
            if event is not None:
                found.append(event)
            self._rest = [following]
            self._size += len(following)
            self._check()
        self._check()
        return found

    def _check(self) -> None:
        if self._size > self._most:
            raise EventTooLarge(f"an event is longer than {self._most} bytes")

    def _line(self, raw: bytes) -> ServerEvent | None:
        if not raw:
            name, data = self._name or "message", self._data
            self._name, self._data, self._size = "", [], 0
            return ServerEvent(name, "\n".join(data)) if data else None
        field, _, value = raw.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            self._name = value
        elif field == "data":
            self._data.append(value)
        return None
