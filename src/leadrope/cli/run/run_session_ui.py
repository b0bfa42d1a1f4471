"""One run at the terminal: events to the screen, Ctrl-C to the run, questions to the person who sits there."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from leadrope import errors
from leadrope.cli import hangup
from leadrope.cli.screen.live_lines import LiveLines
from leadrope.cli.screen.screen import Screen, ScreenLog
from leadrope.core.config import Config
from leadrope.core.events import ApprovalRequested, Event, QuestionRequested, Recorded, SessionStarted
from leadrope.core.request import RunRequest
from leadrope.core.result import RunResult
from leadrope.runs.observe import jsonlog
from leadrope.runs.service import Service
from leadrope.runtime.gate.approvers import Answer, Approver, DenyAll
from leadrope.runtime.gate.terminal import NoTerminal, open_terminal

if TYPE_CHECKING:
    from leadrope.cli.screen.prompt import Prompt
    from leadrope.runs.job import Job
    from leadrope.runtime.gate.console import Console
    from leadrope.runtime.run import Run


Ending = Callable[[Service, str, RunResult, int], Awaitable[list[str]]]
QUEUED_S = 0.5
"""A run that is not taken up in this time waits for its turn."""


async def _next_steps(service: Service, run_id: str, result: RunResult, width: int) -> list[str]:
    from leadrope.cli.run import next_steps  # noqa: PLC0415  # workflows without agents do not need it

    return await next_steps.lines(service, run_id, result, width)


async def drive(
    request: RunRequest,
    *,
    show: Callable[[Recorded], None],
    screen: Screen,
    approver: Approver,
    environ: Mapping[str, str] | None = None,
    config: Config | None = None,
    run_environ: Mapping[str, str] | None = None,
    doing: Callable[[float], Sequence[str]] | None = None,
    ending: Ending | None = _next_steps,
    **kept: Any,
) -> RunResult:
    """Run to the end. The first Ctrl-C interrupts the turn, the second stops the run; SIGTERM and a hang-up stop it.

    A run that waits for room in the store is ended by any of them. Raises ResultNotStored if a part of it is lost.
    `doing` says what the run is doing at this moment, for the lines that change. `ending` has the last lines: the run,
    what it changed and the next command. `environ` says where the store is, `run_environ` what the agent starts with
    if that is another. `kept` is for the service: title, priority, place.
    """
    from leadrope.runs.records.masking import without_known  # noqa: PLC0415  # workflows without agents do not need it
    from leadrope.runtime.gate.console import Console  # noqa: PLC0415  # the same

    in_order = AfterShown(approver)
    job: Job | None = None
    if isinstance(approver, Console):
        approver.clean = lambda text: job.redactor.only_known().clean(text) if job is not None else text

    def see(recorded: Recorded) -> None:
        show(recorded)
        in_order.shown(recorded.event)
        signals.saw(recorded.event)

    showing = LiveLines(screen, doing or (lambda _: ()), wanted=doing is not None)
    with _Signals(screen) as signals, showing:
        async with Service(environ, config=config) as service:
            asked = approver if isinstance(approver, DenyAll) else in_order
            job = await service.start(request, approver=asked, show=see, environ=run_environ, **kept)
            signals.watch(service, job)
            if await _waits_for_turn(service, job):
                told = await service.waits_for(await service.get(job.id))
                screen.line(screen.style.dim(f"queued: {told} (Ctrl-C takes it back)"))
            result = await job.result()
            await signals.finish()
            has_record = job.unstored is None or not (job.unstored.is_timed_out or service.is_store_removed)
            for line in await ending(service, job.id, result, screen.width) if ending and has_record else ():
                screen.line(screen.style.dim(line))
            result = without_known(result, job.redactor)
            if job.unstored is not None:
                error = job.unstored
                raise errors.ResultNotStored(
                    error.message, result=result, is_timed_out=error.is_timed_out, hint=error.hint
                )
            return result


async def _waits_for_turn(service: Service, job: Job) -> bool:
    """True when the run was not taken up at once: then somebody should be told why."""
    with service.listen() as heard:
        until = asyncio.get_running_loop().time() + QUEUED_S
        while (await service.get(job.id)).state == "queued":
            if not await heard.wait(until - asyncio.get_running_loop().time()):
                return (await service.get(job.id)).state == "queued"
    return False


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

    async def answer(self, asked: QuestionRequested) -> Answer:
        await self._of(asked.question_id).wait()
        return await self._inner.answer(asked)

    def _of(self, name: str) -> asyncio.Event:
        return self._seen.setdefault(name, asyncio.Event())


class _Lines(jsonlog.TextFormatter):
    """Where in the code an error happened is shown with LEADROPE_DEBUG only."""

    def format(self, record: logging.LogRecord) -> str:
        if record.exc_info and os.environ.get("LEADROPE_DEBUG", "").lower() not in ("1", "true"):
            record = logging.makeLogRecord({**record.__dict__, "exc_info": None, "exc_text": None})
        return super().format(record)


class _JsonLog(ScreenLog):
    """For machines: no colour, and whole lines all the same."""

    def emit(self, record: logging.LogRecord) -> None:
        self._screen.line(self.format(record))


class _Signals:
    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._loop = asyncio.get_running_loop()
        self._main = asyncio.current_task()
        self._service: Service | None = None
        self._job: Job | None = None
        self._has_session = False
        self._presses = 0
        self._ending = hangup.signals()
        self._work: set[asyncio.Task[Any]] = set()

    def __enter__(self) -> Self:
        self._loop.add_signal_handler(signal.SIGINT, self._pressed)
        for number in self._ending:
            self._loop.add_signal_handler(number, self._end, number.name)
        return self

    def __exit__(self, *_: object) -> None:
        for number in (signal.SIGINT, *self._ending):
            self._loop.remove_signal_handler(number)

    def watch(self, service: Service, job: Job) -> None:
        self._service, self._job = service, job

    @property
    def _run(self) -> Run | None:
        return self._job.run if self._job is not None else None

    def saw(self, event: Event) -> None:
        self._has_session = self._has_session or isinstance(event, SessionStarted)

    async def finish(self) -> None:
        await asyncio.gather(*self._work)

    @property
    def _waits_for_store(self) -> bool:
        recorder = self._job.recorder if self._job is not None else None
        return recorder is not None and (recorder.is_full or recorder.is_over)

    def _pressed(self) -> None:
        if self._screen.is_lent:
            return
        self._presses += 1
        if self._presses > 1 or self._run is None or not self._has_session or self._waits_for_store:
            # Before the session there is no turn to interrupt, and a run that cannot be recorded has no next one.
            self._end("Ctrl-C")
            return
        self._screen.line("interrupting the turn; press Ctrl-C again to stop", now=True)
        self._spawn(self._run.interrupt())

    def _end(self, cause: str) -> None:
        hangup.let_go()
        if self._service is not None:
            self._service.stop_waiting()
        if self._run is not None:
            self._spawn(self._run.stop(f"stopped by {cause}"))
            self._screen.line("stopping", now=True)
        elif self._service is not None and self._job is not None and not self._job.is_taken:
            self._spawn(self._service.stop(self._job.id, f"stopped by {cause}"))
        elif self._main is not None:
            self._main.cancel()

    def _spawn(self, work: Any) -> None:
        # Awaited by finish(): a run that is over answers both at once.
        self._work.add(self._loop.create_task(work))


@contextmanager
def person(screen: Screen, instead: str = "use --allow, --tools or --mode") -> Iterator[Approver]:
    """The person at this terminal, or nobody; `instead` says what to do then."""
    try:
        terminal = open_terminal()
    except NoTerminal:
        yield DenyAll(f"no terminal to ask on; {instead}")
        return
    from leadrope.cli.screen.editing import TerminalEditor  # noqa: PLC0415  # only at a terminal
    from leadrope.runtime.gate.console import Console  # noqa: PLC0415  # the same

    console = Console(terminal, colour=screen.style.enabled, before=screen.hold, after=screen.release)
    console.editor = TerminalEditor(console.terminal, screen, os.environ)
    with console:
        yield console


@contextmanager
def at_prompt(screen: Screen) -> Iterator[tuple[Prompt, Console]]:
    """The terminal of a conversation: where lines are typed, and where the agent's calls and questions are asked."""
    from leadrope.cli.screen.editing import TerminalEditor  # noqa: PLC0415  # only at a terminal
    from leadrope.cli.screen.prompt import Prompt  # noqa: PLC0415  # POSIX alone has it
    from leadrope.runtime.gate.console import Console  # noqa: PLC0415  # only at a terminal

    try:
        terminal = open_terminal()
    except NoTerminal as error:
        raise errors.RequestError(f"a conversation needs a terminal: {error}", hint="Use `leadrope run`.") from None

    def before() -> None:
        prompt.hold()
        screen.hold()

    def after() -> None:
        screen.release()
        prompt.release()

    # Two descriptors of one terminal: each of them is waited for by itself.
    with Console(colour=screen.style.enabled, before=before, after=after) as console:
        console.editor = TerminalEditor(console.terminal, screen, os.environ)
        try:
            with Prompt(terminal) as prompt:
                yield prompt, console
        finally:
            os.close(terminal)


@contextmanager
def logs(screen: Screen, environ: Mapping[str, str]) -> Iterator[None]:
    """Warnings; with LEADROPE_DEBUG_SPAWN also the start, every line and failures. LEADROPE_LOG=json makes it JSON."""
    is_json = jsonlog.is_wanted(environ)
    handler = _JsonLog(screen) if is_json else ScreenLog(screen)
    handler.setFormatter(jsonlog.JsonFormatter() if is_json else _Lines("%(name)s: %(message)s"))
    root = logging.getLogger("leadrope")
    spawn = logging.getLogger("leadrope.spawn")
    before = root.propagate, spawn.level
    root.addHandler(handler)
    root.propagate = False
    if environ.get("LEADROPE_DEBUG_SPAWN", "").lower() in ("1", "true"):
        spawn.setLevel(logging.INFO)
    elif not is_json:
        # The screen tells how a run failed, in words for people.
        handler.addFilter(lambda record: record.name != "leadrope.run")
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.propagate, level = before
        spawn.setLevel(level)
