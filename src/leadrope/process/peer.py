"""The other end of a run: what an attempt reads from and writes to, whether it is a process or a connection.

`child.Child` is one, the runtime's `HttpPeer` the other. Clocks, budget, events and result belong to the attempt that
reads it, and are the same for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable


class PeerEnding(Protocol):
    """How it went."""

    @property
    def exit_code(self) -> int | None:
        """Of a process; -n when signal n ended it."""

    @property
    def leftovers_killed(self) -> int: ...

    @property
    def survivors(self) -> int: ...


class Peer(Protocol):
    """Read until nothing comes, then `end`, which is also right at every other moment."""

    @property
    def stderr_head(self) -> tuple[str, ...]: ...

    @property
    def stderr_tail(self) -> tuple[str, ...]: ...

    @property
    def last_read_bytes(self) -> int:
        """What the batch that was read last weighs."""

    async def read_whole(self) -> Sequence[Any]:
        """The next batch for the session's `receive`; empty at the end. Not reading holds the other end."""

    def write(self, data: bytes) -> None:
        """Queue what the session wants to say; raises errors.RunClosed when nobody reads it any more."""

    def close_input(self) -> None:
        """Nothing more will be written; when all is read, that is the end."""

    async def end(self, *, polite_s: float = ..., stop_s: float = ...) -> PeerEnding:
        """Leave nothing behind. `polite_s` is for an end of its own, `stop_s` until it is ended by force; any number of
        calls, and each can only shorten the waits.
        """


@runtime_checkable
class Cancelling(Protocol):
    """A peer whose answer is cut short from here. Others are asked for it, in the words of their session."""

    def cancel(self) -> None:
        """End the answer that is under way; the session is told so."""
