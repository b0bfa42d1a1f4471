"""One SQLite file: read beside its writer, written by one thread, and watched for changes. Knows no table."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from leadrope import errors
from leadrope.storage import database
from leadrope.storage import patience as patiences
from leadrope.storage.change_notifier import ChangeNotifier
from leadrope.storage.writer import BATCH_S, Then, Writer

if TYPE_CHECKING:
    from leadrope.storage.database import Migrations
    from leadrope.storage.db import Db, Parameters

T = TypeVar("T")


class Reader:
    """One connection per thread, beside the writer and never in its way. Changes nothing."""

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


class SqliteFile(Reader):
    """Several processes may have the same file open."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.notifier = ChangeNotifier(self.data_version)
        self._busy_s: float | None = None
        self._writer = Writer(
            path, lambda: database.open_(path, self._migrations(), busy_s=self._busy_s), on_change=self.notifier.ring
        )
        self._inode: int | None = None
        self._reminded: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def start(self, busy_s: float | None = None) -> None:
        """`busy_s`: how long another process that holds the store is waited for."""
        self._busy_s = busy_s
        self._writer.start()
        self._inode = self.path.stat().st_ino

    def open_read_only(self, reason: errors.LeadropeError | None = None) -> None:
        """For looking alone: every write raises `reason`."""
        self._writer.refuse(reason or errors.StoreError(f"the run store {self.path} is open for reading only"))
        super().open_read_only(reason)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._writer.close()
        super().close()

    @property
    def is_removed(self) -> bool:
        """Somebody has deleted the file, or put another one in its place: what is written now, nobody reads."""
        try:
            return self._inode not in (None, self.path.stat().st_ino)
        except FileNotFoundError:
            return True

    @property
    def where(self) -> str:
        return str(self.path)

    @property
    def is_for_this_user(self) -> bool:
        """Whether a process of this user could write it: it owns the file, and may write it and its folder."""
        try:
            if sys.platform != "win32" and self.path.stat().st_uid != os.geteuid():
                return False
        except OSError:
            return False
        return os.access(self.path, os.W_OK) and os.access(self.path.parent, os.W_OK)

    def hurry(self) -> None:
        """Wait for other processes for a moment only; see `Writer.hurry`."""
        self._writer.hurry()

    async def write(
        self,
        work: Callable[[Db], T],
        *,
        weight: int = 0,
        durable: bool = True,
        then: Then | None = None,
    ) -> T:
        """A task with patience tries it again for as long as the store is full or locked; `then` hears how it ended."""
        patience = patiences.current()
        if patience is None:
            return await self._writer.do(work, weight=weight, durable=durable, then=then)
        first = True
        with contextlib.ExitStack() as stack:
            while True:
                try:
                    done = await self._writer.do(work, weight=weight, durable=durable, then=_if_written(then))
                except (errors.StoreFull, errors.StoreBusy) as error:
                    if first:
                        stack.enter_context(patience.holding())
                        first = False
                    try:
                        is_worth_waiting = await patience.is_worth_waiting(error)
                    except asyncio.CancelledError:
                        _tell(then, error)
                        raise
                    if not is_worth_waiting:
                        _tell(then, error)
                        raise
                except Exception as error:
                    _tell(then, error)
                    raise
                else:
                    patience.over()
                    return done

    def write_later(self, work: Callable[[Db], object], then: Then | None = None) -> None:
        """With what is written next, or in a moment; nobody waits for it. A failure is told to `then`."""
        self._writer.later(work, then)
        loop = asyncio.get_running_loop()
        if self._reminded is not loop:
            self._reminded = loop
            loop.call_later(BATCH_S, self._remind)

    def _remind(self) -> None:
        self._reminded = None
        self._writer.hand_in_later()


def _if_written(then: Then | None) -> Then | None:
    """A work that failed may be tried again: only its last failure is told."""
    return None if then is None else lambda error: then(None) if error is None else None


def _tell(then: Then | None, error: BaseException) -> None:
    if then is not None:
        then(error)
