"""Limits of a whole execution: seconds, and loop turns in total.

Both count from the start or the resume, so an execution that reached a limit can be resumed. Time spent waiting for
people does not count.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator

from leadrope.workflows.model import WorkflowSettings
from leadrope.workflows.steps.base import StepFailed

Asking = Callable[[], contextlib.AbstractContextManager[None]]


class ExecutionLimits:
    """`over` is called once, when the time is up. `outer` are the limits of the enclosing execution."""

    def __init__(
        self, settings: WorkflowSettings, over: Callable[[], None], outer: ExecutionLimits | None = None
    ) -> None:
        self._settings = settings
        self._over = over
        self._outer = outer
        self._turns = 0
        self._left_s = settings.max_seconds
        self._timer: asyncio.TimerHandle | None = None
        self._questions = 0
        self.is_over = False

    @property
    def seconds(self) -> float | None:
        return self._settings.max_seconds

    # -- time ---------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        self._start()
        try:
            yield
        finally:
            self._pause()

    @contextlib.contextmanager
    def asking(self, outer: Asking) -> Iterator[None]:
        """Stop the clock while a person is asked; `outer` stops the clocks around this one."""
        with outer():
            self._questions += 1
            if self._questions == 1:
                self._pause()
            try:
                yield
            finally:
                self._questions -= 1
                if not self._questions:
                    self._start()

    def check(self) -> None:
        """Raise StepFailed if the time is up, so that nothing starts any more."""
        if self.is_over:
            raise StepFailed(self.message, kind="timed_out", hint=self.hint)

    @property
    def message(self) -> str:
        return f"the workflow's time limit is used up (max_seconds: {self.seconds:g})"

    hint = "Raise `max_seconds` in the Settings, or leave it out."

    def _start(self) -> None:
        if self._left_s is not None and self._timer is None and not self.is_over:
            self._timer = asyncio.get_running_loop().call_later(self._left_s, self._end)

    def _pause(self) -> None:
        if self._timer is not None:
            self._left_s = max(0.0, self._timer.when() - asyncio.get_running_loop().time())
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        self._timer = None
        self.is_over = True
        self._over()

    # -- turns --------------------------------------------------------------------------------------------------------

    def begin_turn(self) -> None:
        """Raise StepFailed if the loops of the execution have used all their turns."""
        if self._outer is not None:
            self._outer.begin_turn()
        most = self._settings.max_iterations
        if most is not None and self._turns >= most:
            raise StepFailed(
                f"the loops of the workflow have had {most} turns together (max_iterations)",
                kind="too_many_turns",
                hint="Raise `max_iterations` in the Settings, or check the loop's condition.",
            )
        self._turns += 1
