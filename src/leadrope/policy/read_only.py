"""Which command lines only read: every program is known to change nothing, with options from a list. Runs nothing."""

from __future__ import annotations

import msgspec

from leadrope.policy.reading import Reading


class ReadOnly(msgspec.Struct, frozen=True):
    """A line that only reads, provided that its programs are the ones that the names usually mean."""

    programs: tuple[str, ...] = ()
    """The programs to be found on PATH (bare names), or given by a path in the system's folders. The caller makes sure
    that each lies outside of what an agent can write. Builtins of the shell are not among them."""
    uses_git: bool = False
    """It holds only if the effective settings of git name no program: fsmonitor, textconv, external diff, filters."""


def reads_only(reading: Reading) -> ReadOnly | None:
    """What the line needs to be a mere read, or None if it may do more than read."""
    return None
