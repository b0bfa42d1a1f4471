"""Where the store is: whether there is one, whether it can be used, and reading it without a service."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from leadrope.runs import leases
from leadrope.runs.queries import Queries
from leadrope.runs.records.sqlite import Sqlite
from leadrope.runs.records.statements import migrations
from leadrope.storage import database


def new(leadrope_home: Path) -> Sqlite:
    """The store of this home, not opened yet."""
    return Sqlite(database.path_in(leadrope_home))


def is_there(leadrope_home: Path) -> bool:
    """Asking makes none. A folder that cannot be read is an error, and not a home without a store."""
    path = database.path_in(leadrope_home)
    try:
        return path.exists()
    except OSError as error:
        raise leases.unusable(path, error) from None


def check(leadrope_home: Path) -> None:
    """Raise what keeps the store from being used, if there is one."""
    if is_there(leadrope_home):
        database.try_(database.path_in(leadrope_home), migrations())


@contextlib.asynccontextmanager
async def reading(leadrope_home: Path) -> AsyncIterator[Queries | None]:
    """What is stored, for looking alone; None where nothing is. Puts nothing right, and takes nothing up."""
    if not is_there(leadrope_home):
        yield None
        return
    store = new(leadrope_home)
    store.open_read_only()
    try:
        yield Queries(store)
    finally:
        store.close()
