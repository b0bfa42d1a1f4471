"""What another process has in its store, read and never written: for tests with a loop of their own and without one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from leadrope.runs import leases, stores
from leadrope.runs.records.values import Owner
from leadrope.runs.stores import Stores

T = TypeVar("T")


def read(home: Path, look: Callable[[Stores], Awaitable[T]]) -> T:
    async def do() -> T:
        found = stores.of(home)
        found.runs.open_read_only()
        try:
            return await look(found)
        finally:
            found.runs.close()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(do())).result()


def background_owners(home: Path) -> list[Owner]:
    """Those that are alive; none before the first run."""
    if not stores.is_there(home):
        return []
    found = read(home, lambda found: found.runs.owners())
    return [one for one in found if one.kind == "background" and leases.is_alive(home, one)]
