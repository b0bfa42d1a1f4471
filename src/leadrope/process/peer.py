"""The other end of a run, which an attempt reads from and writes to: a process or a connection.

`child.Child` is one, the runtime's `HttpPeer` the other. Clocks, budget, events and result belong to the attempt that
reads it, and are the same for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable


class PeerEnding(Protocol):
    """How the peer ended."""

    @property
    def exit_code(self) -> int | None:
        """The exit code of a process; -n if signal n ended it."""

    @property
    def leftovers_killed(self) -> int: ...

    @property
    def survivors(self) -> int: ...


class Peer(Protocol):
    """The interface of a peer. Call `read_whole` until it returns nothing, then `end`; `end` is safe at any time."""

    @property
    def stderr_head(self) -> tuple[str, ...]: ...

    @property
    def stderr_tail(self) -> tuple[str, ...]: ...

    @property
    def last_read_bytes(self) -> int:
        """Size of the last batch that was read."""

    async def read_whole(self) -> Sequence[Any]:
        """Returns the next batch for the session's `receive`, empty at the end. Not reading blocks the other end."""

    def write(self, data: bytes) -> None:
        """Queues data of the session; raises errors.RunClosed once nobody reads it any more."""

    def close_input(self) -> None:
        """Closes the input after the data written before."""

    async def end(self, *, polite_s: float = ..., stop_s: float = ...) -> PeerEnding:
        """Ends the peer without leaving anything behind.

        It gets `polite_s` to end by itself, and another `stop_s` until it is ended by force. It may be called any
        number of times; a later call can only shorten the waits.
        """


@runtime_checkable
class Cancelling(Protocol):
    """A peer whose response can be cancelled from here. Others are asked to stop through their session's protocol."""

    def cancel(self) -> None:
        """Cancels the current response and tells the session."""
