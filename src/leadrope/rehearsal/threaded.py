"""The model server for code without an event loop: the same server, in a thread that ends with its `with` block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from leadrope.rehearsal.model import ModelRequest, ModelServer


class ModelThread:
    """A ModelServer that runs in its own thread; the same methods, without `await`."""

    def __init__(self, server: ModelServer) -> None:
        self.server = server
        self._thread = threading.Thread(target=self._run, name="rehearsal-model", daemon=True)
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._stop is not None:
            self._call(self._stop.set)
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        self.server.check(error)

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def requests(self) -> list[ModelRequest]:
        return self.server.requests

    @property
    def other_requests(self) -> list[ModelRequest]:
        return self.server.other_requests

    @property
    def problems(self) -> list[str]:
        return self.server.problems

    @property
    def unused(self) -> list[str]:
        return self.server.unused

    def release(self, name: str) -> None:
        self.server._gate(name)  # noqa: SLF001  # an unknown name is refused here, in the caller's thread
        self._call(lambda: self.server.release(name))

    def held(self, name: str, timeout: float = 60) -> None:
        """Returns when a turn with `wait: name` is held; TimeoutError if none is in time."""
        if self._loop is None:
            raise RuntimeError("the rehearsal is not running; use it inside its `with` block")
        asyncio.run_coroutine_threadsafe(self.server.held(name), self._loop).result(timeout)

    def _call(self, function: Callable[[], None]) -> None:
        if self._loop is None:
            raise RuntimeError("the rehearsal is not running; use it inside its `with` block")
        self._loop.call_soon_threadsafe(function)

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:  # noqa: BLE001  # passed to the thread that waits for this one
            self._failure = error
            self._ready.set()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        strict, self.server.strict = self.server.strict, False
        async with self.server:
            self._ready.set()
            await self._stop.wait()
        self.server.strict = strict  # judged by the caller's thread, which knows whether the test itself failed
