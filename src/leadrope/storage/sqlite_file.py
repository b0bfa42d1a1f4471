"""One SQLite file: read beside its writer, written by one thread, and watched for changes. Knows no table."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from leadrope import errors
from leadrope.storage import database
from leadrope.storage import patience as patiences
from leadrope.storage.change_notifier import ChangeNotifier
from leadrope.storage.reader import Reader
from leadrope.storage.writer import BATCH_S, Then, Writer

if TYPE_CHECKING:
    from leadrope.storage.db import Db

T = TypeVar("T")


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
