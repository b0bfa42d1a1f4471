"""Counts the tokens of one Messages API answer while its bytes pass. Keeps no text, opens no socket."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from leadrope.core.cost.usage import Usage
from leadrope.regex import regex

Told = Callable[[str, str, Usage], None]
"""Message id, model, and the tokens so far."""

# The two events with counts are smaller than a few kilobytes. A longer block that begins like one is not parsed.
_MOST_BLOCK = 256 * 1024
# An answer that is not streamed has its counts at the end; the longest possible answer fits.
_MOST_WHOLE = 8 * 1024 * 1024

# Bytes around the text in one stream event, and the minimum bytes of text per token: only for an answer that was cut
# off before its count arrived.
_DELTA_FRAME = 110
_TOKEN_BYTES = 4


class _Stored(msgspec.Struct, frozen=True):
    ephemeral_1h_input_tokens: int | None = None


class _Tokens(msgspec.Struct, frozen=True):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_creation: _Stored | None = None

    def usage(self) -> Usage:
        stored = self.cache_creation
        return Usage(
            input_tokens=self.input_tokens or 0,
            output_tokens=self.output_tokens or 0,
            cache_read_input_tokens=self.cache_read_input_tokens or 0,
            cache_creation_input_tokens=self.cache_creation_input_tokens or 0,
            cache_creation_1h_input_tokens=(stored.ephemeral_1h_input_tokens or 0) if stored else 0,
        )


class _Message(msgspec.Struct, frozen=True):
    id: str = ""
    model: str = ""
    usage: _Tokens | None = None


class _Event(msgspec.Struct, frozen=True):
    message: _Message | None = None
    usage: _Tokens | None = None


_EVENT = regex(rb"event: ?([a-z_]+)")
_TYPE = regex(rb'"type" ?: ?"(message_start|message_delta|content_block_delta)"')
_event = msgspec.json.Decoder(_Event).decode
_whole = msgspec.json.Decoder(_Message).decode


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """Expected usage, from the request, for an answer that was cut off before it reported any."""

    model: str = ""
    prompt: Usage = Usage()


class StreamTally:
    """Counts a stream of events: its first event reports the prompt, a later one the output.

    Only those two are decoded. Everything else is scanned just enough to find its end.
    """

    def __init__(self, told: Told, expected: Expected = Expected()) -> None:  # noqa: B008  # frozen
        self._told = told
        self._expected = expected
        self._rest = b""
        self._skipped = 0
        """Bytes of a long block that is not kept."""
        self._skips_delta = False
        self._id = ""
        self._model = ""
        self._usage = Usage()
        self._has_started = False
        self._is_counted = False
        self._written = 0
        """Tokens that the answer would have if it ended here."""

    def feed(self, data: bytes) -> None:
        if b"\r" in data:
            data = data.replace(b"\r", b"")
        blocks = (self._rest + data).split(b"\n\n")
        self._rest = blocks.pop()
        for block in blocks:
            self._block(block)
        if len(self._rest) > _MOST_BLOCK:
            # The last byte is kept: the empty line that ends a block may be split across two pieces.
            if not self._skipped:
                self._skips_delta = _kind(self._rest) == b"content_block_delta"
            self._skipped += len(self._rest) - 1
            self._rest = self._rest[-1:]

    def _block(self, block: bytes) -> None:
        if self._skipped:
            size, self._skipped = self._skipped + len(block), 0
            if self._skips_delta:
                self._wrote(size)
            return
        kind = _kind(block)
        if kind == b"content_block_delta":
            self._wrote(len(block))
        elif kind in (b"message_start", b"message_delta"):
            self._read(block)

    def _wrote(self, size: int) -> None:
        self._written += max(1, (size - _DELTA_FRAME) // _TOKEN_BYTES)

    def _read(self, block: bytes) -> None:
        start = block.find(b"data:")
        if start < 0:
            return
        try:
            event = _event(block[start + 5 :])
        except msgspec.DecodeError:
            return  # the agent will report it; an unreadable stream is billed by its length
        if event.message is not None:
            self._id, self._model = event.message.id, event.message.model
            if event.message.usage is not None:
                self._usage = self._usage.at_least(event.message.usage.usage())
        elif event.usage is not None:
            self._is_counted = True
            self._usage = self._usage.at_least(event.usage.usage())
        self._has_started = True
        self._told(self._id, self._model, self._usage)

    def end(self, *, is_cut: bool = False) -> None:
        """Finish the count. Output written before a cut is billed, but reported nowhere else."""
        if self._has_started and not self._is_counted and self._written:
            self._told(self._id, self._model, self._usage.at_least(Usage(output_tokens=self._written)))
        elif is_cut and not self._has_started:
            self._told("", self._expected.model, self._expected.prompt)


class WholeTally:
    """Counts an answer that is not streamed."""

    def __init__(self, told: Told, expected: Expected = Expected()) -> None:  # noqa: B008  # frozen
        self._told = told
        self._expected = expected
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> None:
        self._size += len(data)
        if self._size <= _MOST_WHOLE:
            self._parts.append(data)

    def end(self, *, is_cut: bool = False) -> None:
        """Finish the count; an answer that was cut off, or is too long to parse, is billed by its length."""
        if is_cut or self._size > _MOST_WHOLE:
            written = Usage(output_tokens=self._size // _TOKEN_BYTES)
            self._told("", self._expected.model, self._expected.prompt + written)
            return
        try:
            message = _whole(b"".join(self._parts))
        except msgspec.DecodeError:
            return  # not a message; nothing in it reports usage
        if message.usage is not None:
            self._told(message.id, message.model, message.usage.usage())


Tally = StreamTally | WholeTally


def _kind(block: bytes) -> bytes:
    """Return the event's type, from its first line or, if a server omits that, from its data."""
    match = _EVENT.match(block) or _TYPE.search(block, 0, 200)
    return match[1] if match else b""
