"""The one place that chooses a store: whether there is one, whether it can be used, and looking without a service."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from leadrope.runs import leases
from leadrope.runs.executions.journal import Executions
from leadrope.runs.queries import Queries
from leadrope.runs.records.sqlite import Sqlite
from leadrope.runs.records.statements import migrations
from leadrope.storage import database

if TYPE_CHECKING:
    from leadrope.runs.executions.protocols import ExecutionStore
    from leadrope.runs.records.protocols import RunStore


class Stores(NamedTuple):
    """Of one home; not opened yet."""

    runs: RunStore
    executions: ExecutionStore


def of(leadrope_home: Path, owner: Callable[[], str] = lambda: "") -> Stores:
    """`owner`: the id of the lease that this process holds while it writes."""
    store = Sqlite(database.path_in(leadrope_home))
    return Stores(store, Executions(store, owner))


def is_there(leadrope_home: Path) -> bool:
    """Asking makes none. A folder that cannot be read is an error, and not a home without a store."""
    path = database.path_in(leadrope_home)
    try:
        return path.exists()
    except OSError as error:
        raise leases.unusable(path, error) from None


def check(leadrope_home: Path, *, makes_one: bool = False) -> None:
    """Raise what keeps the store from being used, or from being made."""
    if makes_one or is_there(leadrope_home):
        database.try_(database.path_in(leadrope_home), migrations())


@contextlib.asynccontextmanager
async def reading(leadrope_home: Path) -> AsyncIterator[Queries | None]:
    """What is stored, for looking alone; None where nothing is. Puts nothing right, and takes nothing up."""
    if not is_there(leadrope_home):
        yield None
        return
    found = of(leadrope_home)
    found.runs.open_read_only()
    try:
        yield Queries(*found)
    finally:
        found.runs.close()
