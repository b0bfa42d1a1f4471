"""The memory that a run's processes hold together, looked at every now and then. Only tells; what follows is others'.

Linux alone: elsewhere there is no /proc to look at, and a run has no such limit.
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
"""Between two looks. One takes a fraction of a millisecond for a handful of processes."""
CLOSE_LOOK_S = 0.25
"""From half of the limit on: what allocates without end gets through a gigabyte in a second."""
MIB = 1 << 20


class MemoryUse(msgspec.Struct, frozen=True, kw_only=True):
    """What a tree of processes has in memory."""

    total: int = 0
    processes: int = 0
    largest: int = 0
    name: str = ""
    """Of the process that holds most, as the system calls it; an agent's own choice."""

    def say(self, limit_mb: float) -> str:
        return (
            f"the run's processes hold {self.total / MIB:,.0f} MiB of memory, and may hold {limit_mb:,.0f}; "
            f"most of it is {self.name or 'a process'}'s: {self.largest / MIB:,.0f} MiB"
        )


async def watch(pid: int, limit_mb: float, on_over: Callable[[str], None]) -> None:
    """Look at the agent `pid` and all that belongs to it until it is over the limit, which is told once."""
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
    """The process of this one's that everything of the run is below of, also what has lost its parent: the guardian."""
    me = os.getpid()
    while (found := reaper.process(pid)) is not None and found.parent > 1:
        if found.parent == me:
            return pid
        pid = found.parent
    return pid


def look(root: int, limit: float) -> MemoryUse:
    """All below `root`; exactly only where it matters.

    Resident pages are counted once for each process that has them, so what was forked looks larger than it is. Each
    one's share of them is dear to get, and is only asked for when the sum is over the limit.
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
    except (OSError, IndexError):  # it has ended meanwhile
        return 0


def _share(pid: int, whole: int) -> int:
    """Pages that three processes have count a third for each. Where that may not be seen, all of them count."""
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
