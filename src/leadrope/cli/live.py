"""One run at the terminal: events to the screen, Ctrl-C to the run, questions to the person who sits there."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

from leadrope.cli.screen import Screen, ScreenLog
from leadrope.core.config import Config
from leadrope.core.events import ApprovalRequested, Event, QuestionRequested, Recorded, SessionStarted
from leadrope.core.request import RunRequest
from leadrope.core.result import RunResult
from leadrope.runtime.approvals import Answer, Approver, DenyAll, Reply
from leadrope.runtime.console import Console, NoTerminal
from leadrope.runtime.run import Run, open_run


async def drive(
    request: RunRequest,
    *,
    show: Callable[[Recorded], None],
    screen: Screen,
    approver: Approver,
    environ: Mapping[str, str] | None = None,
    config: Config | None = None,
) -> RunResult:
    """Run to the end. The first Ctrl-C interrupts the turn, the second stops the run; SIGTERM and a hang-up stop it."""
    in_order = AfterShown(approver)
    with _Signals(screen) as signals:
        async with open_run(request, approver=in_order, environ=environ, config=config) as run:
            signals.watch(run)
            async for recorded in run:
                show(recorded)
                in_order.shown(recorded.event)
                signals.saw(recorded.event)
            await signals.finish()
            return await run.result()


class AfterShown:
    """Asks when the person has seen all that led to the question: events reach the screen a moment after the gate."""

    def __init__(self, inner: Approver) -> None:
        self._inner = inner
        self._seen: dict[str, asyncio.Event] = {}

    def shown(self, event: Event) -> None:
        match event:
            case ApprovalRequested():
                self._of(event.approval_id).set()
            case QuestionRequested():
                self._of(event.question_id).set()
            case _:
                pass

    async def approve(self, asked: ApprovalRequested) -> Answer:
        await self._of(asked.approval_id).wait()
        return await self._inner.approve(asked)

    async def answer(self, asked: QuestionRequested) -> Reply:
        await self._of(asked.question_id).wait()
        return await self._inner.answer(asked)

    def _of(self, name: str) -> asyncio.Event:
        return self._seen.setdefault(name, asyncio.Event())


class _Signals:
    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._loop = asyncio.get_running_loop()
        self._main = asyncio.current_task()
        self._run: Run | None = None
        self._has_session = False
        self._presses = 0
        self._work: set[asyncio.Task[Any]] = set()

    def __enter__(self) -> Self:
        self._loop.add_signal_handler(signal.SIGINT, self._pressed)
        for number in (signal.SIGTERM, signal.SIGHUP):
            self._loop.add_signal_handler(number, self._end, signal.Signals(number).name)
        return self

    def __exit__(self, *_: object) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._loop.remove_signal_handler(number)

    def watch(self, run: Run) -> None:
        self._run = run

    def saw(self, event: Event) -> None:
        self._has_session = self._has_session or isinstance(event, SessionStarted)

    async def finish(self) -> None:
        await asyncio.gather(*self._work)

    def _pressed(self) -> None:
        self._presses += 1
        if self._presses > 1 or self._run is None or not self._has_session:
            # Before the session there is no turn to interrupt.
            self._end("Ctrl-C")
            return
        self._screen.line("interrupting the turn; press Ctrl-C again to stop", now=True)
        self._spawn(self._run.interrupt())

    def _end(self, cause: str) -> None:
        if self._run is not None:
            self._screen.line("stopping", now=True)
            self._spawn(self._run.stop(f"stopped by {cause}"))
        elif self._main is not None:
            self._main.cancel()

    def _spawn(self, work: Any) -> None:
        # Awaited by finish(): a run that is over answers both at once.
        self._work.add(self._loop.create_task(work))


@contextmanager
def person(screen: Screen) -> Iterator[Approver]:
    """The person at this terminal, or nobody."""
    try:
        console = Console(colour=screen.style.enabled, before=screen.hold, after=screen.release)
    except NoTerminal as error:
        yield DenyAll(f"nobody is there to approve it: {error}")
        return
    with console:
        yield console


@contextmanager
def logs(screen: Screen, environ: Mapping[str, str]) -> Iterator[None]:
    """Failures always, the trace of the start and of every line with LEADROPE_DEBUG_SPAWN."""
    handler = ScreenLog(screen)
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    root = logging.getLogger("leadrope")
    spawn = logging.getLogger("leadrope.spawn")
    before = root.propagate, spawn.level
    root.addHandler(handler)
    root.propagate = False
    if environ.get("LEADROPE_DEBUG_SPAWN", "").lower() in ("1", "true"):
        spawn.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.propagate, level = before
        spawn.setLevel(level)
