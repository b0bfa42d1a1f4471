"""Monitors the total memory of a run's processes. Reports only; the caller decides what follows.

Linux only: elsewhere there is no /proc, and a run has no such limit.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from leadrope.process import guardian, reaper

LOOK_S = 2.0
"""Polling interval. One check takes a fraction of a millisecond for a handful of processes."""
CLOSE_LOOK_S = 0.25
"""Polling interval above half of the limit: runaway allocation takes a gigabyte per second."""
MIB = 1 << 20


class MemoryUse(msgspec.Struct, frozen=True, kw_only=True):
    """Memory used by a process tree."""

    total: int = 0
    processes: int = 0
    largest: int = 0
    name: str = ""
    """The system's name for the process that uses most; the agent can choose it."""

    def say(self, limit_mb: float) -> str:
        return (
            f"the run's processes hold {self.total / MIB:,.0f} MiB of memory, and may hold {limit_mb:,.0f}; "
            f"most of it is {self.name or 'a process'}'s: {self.largest / MIB:,.0f} MiB"
        )


async def watch(pid: int, limit_mb: float, on_over: Callable[[str], None]) -> None:
    """Monitor the agent `pid` and its processes until they exceed the limit, which is reported once."""
    if sys.platform != "linux":
        return
    root = holder_of(pid)
    limit = limit_mb * MIB
    while True:
        found = look(root, limit)
        if found.total > limit:
            on_over(found.say(limit_mb))
            return
        await asyncio.sleep(CLOSE_LOOK_S if found.total > limit / 2 else LOOK_S)


def holder_of(pid: int) -> int:
    """Return our child that is the ancestor of all processes of the run, even orphaned ones: the guardian."""
    me = os.getpid()
    while (found := reaper.process(pid)) is not None and found.parent > 1:
        if found.parent == me:
            return pid
        pid = found.parent
    return pid


def look(root: int, limit: float) -> MemoryUse:
    """Measure the memory of all processes below `root`, exactly only if it matters.

    Resident pages are counted once per process that has them, so forked processes look larger than they are. Each one's
    proportional share is expensive to get, and is only read if the sum exceeds the limit.
    """
    held = {pid: _resident(pid) for pid in _tree(root)}
    if sum(held.values()) > limit:
        held = {pid: min(whole, _share(pid, whole)) for pid, whole in held.items()}
    if not held:
        return MemoryUse()
    largest = max(held, key=held.__getitem__)
    return MemoryUse(total=sum(held.values()), processes=len(held), largest=held[largest], name=_name(largest))


def _tree(root: int) -> list[int]:
    if not Path(f"/proc/self/task/{os.getpid()}/children").exists():  # a kernel without CONFIG_PROC_CHILDREN
        return [root, *(found.pid for found in reaper.descendants(root))]
    below: list[int] = []
    todo = guardian.children(root)
    while todo:
        pid = todo.pop()
        below.append(pid)
        todo += guardian.children(pid)
    return [root, *below]


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):  # it has ended in the meantime
        return 0


def _share(pid: int, whole: int) -> int:
    """Return the proportional set size: a page of three processes counts a third for each. If unreadable, `whole`."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_bytes().splitlines():
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        return whole
    return whole


def _name(pid: int) -> str:
    try:
        name = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return ""
    return "".join(character if character.isprintable() else "?" for character in name)
