"""The one thread that writes to the database: small works together in one transaction, each with its own answer."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from leadrope import errors
from leadrope.storage import database

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], Any]
Then = Callable[[BaseException | None], None]
"""Called in the loop, in the order of the commits, with what kept a work from being written; None: it is."""

BATCH_EVENTS = 50
BATCH_S = 0.05
"""Events wait this long for company: a commit costs about as much as fifty inserts."""
MOST_TOGETHER = 200
"""Works of one transaction; the lock is not held longer than that."""
MOST_WAITING = 10_000
"""Works that are not written yet; whoever adds more waits. A run adds one per batch and waits for it."""


class _Answer:
    """For a task of a loop: a fraction of what a Future of another thread costs, with its lock and its chain."""

    __slots__ = ("future", "loop", "then")

    def __init__(self, then: Then | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.then = then

    def set_result(self, value: Any) -> None:
        self._tell(self.future.set_result, value, None)

    def set_exception(self, error: BaseException) -> None:
        self._tell(self.future.set_exception, error, error)

    def _tell(self, word: Callable[[Any], None], value: Any, error: BaseException | None) -> None:
        def tell() -> None:
            # What is handed in is written, also when whoever waits for it is cancelled: a write that may or may not
            # have happened would leave a gap behind it.
            if not self.future.done():
                word(value)
            if self.then is not None:
                self.loop.call_soon(self.then, error)  # after whoever waits has gone on

        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits there any more
            self.loop.call_soon_threadsafe(tell)


class _Unawaited:
    """For a work that nobody waits for."""

    __slots__ = ("loop", "then")

    def __init__(self, then: Then | None) -> None:
        self.loop = asyncio.get_running_loop() if then is not None else None
        self.then = then

    def set_result(self, _: Any) -> None:
        self._tell(None)

    def set_exception(self, error: BaseException) -> None:
        self._tell(error)

    def _tell(self, error: BaseException | None) -> None:
        loop, then = self.loop, self.then
        if loop is not None and then is not None:
            with contextlib.suppress(RuntimeError):  # as above; by the same two steps, so that the order stays
                loop.call_soon_threadsafe(lambda: loop.call_soon(then, error))


class _Item:
    __slots__ = ("answer", "durable", "weight", "work")

    def __init__(self, work: Work, weight: int, answer: Future[Any] | _Answer | _Unawaited, *, durable: bool) -> None:
        self.work = work
        self.weight = weight
        self.durable = durable
        self.answer = answer


class Writer:
    """`connect` is called in the thread, which owns the connection for its whole life."""

    def __init__(self, path: Path, connect: Callable[[], sqlite3.Connection], *, on_change: Callable[[], None]) -> None:
        """`on_change` follows every transaction that has changed something, and no other."""
        self._path = path
        self._connect = connect
        self._on_change = on_change
        self._items: queue.Queue[list[_Item] | None] = queue.Queue(MOST_WAITING)
        self._later: list[_Item] = []
        """What nobody waits for; it goes with the next work, and wakes nobody by itself."""
        self._thread = threading.Thread(target=self._run, name="leadrope store", daemon=True)
        self._opened: Future[None] = Future()
        self._synchronous = ""
        self._door = threading.Lock()
        """Nothing may be handed in behind the last item: nobody would ever answer it."""
        self._is_closed = False
        self._is_last = False
        self._hurried = threading.Event()
        self._refusal: errors.LeadropeError | None = None
        self.commits = 0

    def start(self) -> None:
        self._thread.start()
        self._opened.result()

    def close(self) -> None:
        """What was handed in is written first."""
        with self._door:
            if not self._is_closed:
                self._is_closed = True
                if self._later:
                    self._items.put(self._later)
                self._items.put(None)
        if self._thread.ident is not None:
            self._thread.join()

    def hurry(self) -> None:
        """Wait for other processes for a moment only: what cannot be written then fails."""
        self._hurried.set()

    def submit(self, work: Callable[[sqlite3.Connection], T], *, weight: int = 0, durable: bool = True) -> Future[T]:
        """`weight` is how many events it writes; `durable`: on the disk itself before the answer comes."""
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()  # it cannot be taken back
        self._hand_in(_Item(work, weight, future, durable=durable))
        return future

    async def do(
        self,
        work: Callable[[sqlite3.Connection], T],
        *,
        weight: int = 0,
        durable: bool = True,
        then: Then | None = None,
    ) -> T:
        """`then` is called also where whoever waits is cancelled: the work is done all the same."""
        answer = _Answer(then)
        self._hand_in(_Item(work, weight, answer, durable=durable))
        found: T = await answer.future
        return found

    def later(self, work: Callable[[sqlite3.Connection], object], then: Then | None = None) -> None:
        """With the next work that is handed in, or when `hand_in_later` is called."""
        with self._door:
            self._check_open()
            self._later.append(_Item(work, 0, _Unawaited(then), durable=False))

    def hand_in_later(self) -> None:
        with self._door:
            if self._later and not self._is_closed:
                items, self._later = self._later, []
                self._items.put(items)

    def _hand_in(self, item: _Item) -> None:
        with self._door:
            self._check_open()
            items, self._later = [*self._later, item], []
            self._items.put(items)

    def refuse(self, reason: errors.LeadropeError) -> None:
        """Write nothing, and say why to whoever wants to."""
        self._refusal = reason

    def _check_open(self) -> None:
        if self._refusal is not None:
            raise self._refusal
        if self._is_closed:
            raise errors.StoreError("the run store is closed", hint="Open it again.")

    # -- in the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            connection = self._connect()
        except BaseException as error:  # noqa: BLE001  # raised again where the store is opened
            self._opened.set_exception(error)
            return
        self._opened.set_result(None)
        try:
            while not self._is_last:
                if items := self._gather():
                    self._write(connection, items)
        finally:
            connection.close()

    def _gather(self) -> list[_Item]:
        """The next works that go together; none when the last one was taken before."""
        items: list[_Item] = []
        weight, until = 0, float("inf")
        while not self._is_last and len(items) < MOST_TOGETHER:
            left = until - time.monotonic()
            is_enough = bool(items) and (any(item.durable for item in items) or weight >= BATCH_EVENTS or left <= 0)
            try:
                # What is here already costs no waiting.
                found = self._items.get(block=not is_enough, timeout=left if items and not is_enough else None)
            except queue.Empty:
                break
            if found is None:
                self._is_last = True
                break
            items += found
            weight += sum(item.weight for item in found)
            until = min(until, time.monotonic() + BATCH_S)
        return items

    def _write(self, connection: sqlite3.Connection, items: list[_Item]) -> None:
        before = connection.total_changes
        try:
            answers = self._together(connection, items)
        except BaseException as error:  # noqa: BLE001  # given to whoever asked
            if len(items) == 1 or _is_busy(error):
                for item in items:
                    item.answer.set_exception(self._told(error))
            else:
                # One of them is at fault, and the others must not suffer for it.
                for item in items:
                    self._write(connection, [item])
            return
        self.commits += 1
        if connection.total_changes != before:
            self._on_change()  # before the answers: rung after them, it would wake who has begun to listen since
        for item, answer in zip(items, answers, strict=True):
            item.answer.set_result(answer)

    def _together(self, connection: sqlite3.Connection, items: list[_Item]) -> list[Any]:
        self._sync(connection, "full" if any(item.durable for item in items) else "normal")
        database.begin(connection, self._hurried.is_set)
        try:
            answers = [item.work(connection) for item in items]
            connection.execute("commit")
        except BaseException:
            if connection.in_transaction:
                connection.execute("rollback")
            raise
        return answers

    def _sync(self, connection: sqlite3.Connection, level: str) -> None:
        if level != self._synchronous:
            connection.execute(f"pragma synchronous = {level}")
            self._synchronous = level

    def _told(self, error: BaseException) -> BaseException:
        if not isinstance(error, sqlite3.Error):
            return error
        told = database.named(error, self._path)
        told.__cause__ = error
        return told


def _is_busy(error: BaseException) -> bool:
    """Then each of them alone would wait as long again."""
    return isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
