"""Reading a database: one connection per thread, beside the writer and never in its way. Changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from leadrope import errors
from leadrope.storage import database
from leadrope.storage import patience as patiences
from leadrope.storage.database import Migrations

if TYPE_CHECKING:
    from leadrope.storage.db import Parameters

T = TypeVar("T")


class Reader:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._shared: sqlite3.Connection | None = None

    def _migrations(self) -> Migrations:
        """Those of whoever has tables in it."""
        raise NotImplementedError

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
        with self._lock:
            for connection in self._connections:
                connection.close()
            self._connections.clear()
            self._shared = None
            self._local = threading.local()

    def open_read_only(self, reason: errors.LeadropeError | None = None) -> None:
        """Read a store that cannot be written, by one connection for all threads; raises `reason` if that fails."""
        try:
            self._shared = database.open_to_read(self.path, self._migrations())
        except errors.StoreError as error:
            if reason is None:
                raise
            raise reason from error
        self._connections.append(self._shared)

    def _reading(self) -> sqlite3.Connection:
        """One connection per thread: a reader never waits for another, nor for the writer."""
        if self._shared is not None:
            return self._shared
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = database.connect(self.path, read_only=True)
            self._local.connection = connection
            with self._lock:
                self._connections.append(connection)
        return connection

    def data_version(self) -> int:
        """Changes when anything was written, by this process or another."""
        return int(self.fetch_now("pragma data_version", {})[0][0])

    async def fetch(self, statement: str, values: Parameters) -> list[Any]:
        """All rows. A store that is not there is an error, and never no row; a task with patience waits for it."""
        return await self.patiently(lambda: self.fetch_now(statement, values))

    async def patiently(self, read: Callable[[], T]) -> T:
        """A task with patience reads again for as long as the store is full or locked."""
        patience = patiences.current()
        if patience is None:
            return read()
        try:
            return read()
        except (errors.StoreFull, errors.StoreBusy) as error:
            problem: errors.StoreError = error
        with patience.holding():
            while await patience.is_worth_waiting(problem):
                try:
                    found = read()
                except (errors.StoreFull, errors.StoreBusy) as error:
                    problem = error
                else:
                    patience.over()
                    return found
        raise problem

    def fetch_now(self, statement: str, values: Parameters) -> list[Any]:
        try:
            return self._reading().execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise database.named(error, self.path) from error

    def stream(self, statement: str, values: Parameters) -> Generator[Any, None, None]:
        """Row by row, for whoever stops before all of them are in memory."""
        try:
            with contextlib.closing(self._reading().execute(statement, values)) as rows:
                yield from rows
        except sqlite3.Error as error:
            raise database.named(error, self.path) from error

    async def in_thread(self, read: Callable[[], T]) -> T:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(2, thread_name_prefix="leadrope read")
        return await asyncio.get_running_loop().run_in_executor(self._pool, read)
