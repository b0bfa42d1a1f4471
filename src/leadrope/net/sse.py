"""The events of a `text/event-stream`, as the HTML standard defines them. Pure."""

from __future__ import annotations


class EventStream:
    """Server-sent events out of bytes that come in pieces."""

    def __init__(self) -> None:
        self._rest = b""
        self._name = ""
        self._data: list[str] = []

    def feed(self, data: bytes) -> list[tuple[str, str]]:
        """The events that are whole by now, each with its name (`message` where it has none) and its data."""
        found: list[tuple[str, str]] = []
        *lines, self._rest = (self._rest + data).replace(b"\r\n", b"\n").split(b"\n")
        for raw in lines:
            line = raw.decode("utf-8", "replace")
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if not line:
                if self._data:
                    found.append((self._name or "message", "\n".join(self._data)))
                self._name, self._data = "", []
            elif field == "event":
                self._name = value
            elif field == "data":
                self._data.append(value)
        return found
