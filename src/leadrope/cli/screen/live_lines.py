"""Lines at the bottom of a terminal that change while something is at work, and disappear when it is done."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Self

from leadrope.cli.screen.screen import Screen
from leadrope.cli.screen.table import cut

DRAW_S = 0.1
LIVE_LINES = 8
"""Shown at once; the others are counted."""


def seconds(value: float, *, digits: int = 1) -> str:
    if value >= 90:
        return f"{int(value // 60)}m{int(value % 60):02d}s"
    return f"{value:.{digits}f}s"


class LiveLines:
    """As a context it shows what `lines` says, below everything that the screen writes.

    with LiveLines(screen, lambda: ["⋯ thinking 3s"]): ...

    Nothing is drawn where stderr is not a terminal that can redraw, while a person is asked something, or while an
    answer streams and has not ended its line.
    """

    def __init__(self, screen: Screen, lines: Callable[[float], Sequence[str]], *, wanted: bool = True) -> None:
        """`lines` gets the present time of the monotonic clock."""
        self._screen = screen
        self._lines = lines
        self._is_on = wanted and screen.can_redraw
        self._drawn: list[str] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def is_on(self) -> bool:
        return self._is_on

    def __enter__(self) -> Self:
        if self._is_on:
            self._screen.before = self.erase
            self._task = asyncio.get_running_loop().create_task(self._draw_always())
        return self

    def __exit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            self.erase()
            self._screen.before = None

    async def _draw_always(self) -> None:
        while self._is_on:
            self.draw()
            await asyncio.sleep(DRAW_S)

    def draw(self) -> None:
        if not self._is_on:
            return
        if self._screen.is_held:
            self._drawn = []
            return
        wanted = [] if self._screen.is_in_line else self._fitted(self._lines(time.monotonic()))
        if wanted == self._drawn:
            return
        above = f"\x1b[{len(self._drawn)}A\x1b[J" if self._drawn else ""
        self._write(above + "".join(f"{line}\n" for line in wanted))
        self._drawn = wanted

    def _fitted(self, lines: Sequence[str]) -> list[str]:
        columns, rows = self._screen.size()
        # What has scrolled out of the window cannot be taken away again.
        most = max(0, min(LIVE_LINES + 1, rows - 2))
        shown = list(lines) if len(lines) <= min(LIVE_LINES, most) else list(lines[: max(0, most - 1)])
        if most and len(shown) < len(lines):
            shown.append(f"  … and {len(lines) - len(shown)} more")
        return [self._screen.style.dim(cut(line, columns - 1)) for line in shown]

    def erase(self) -> None:
        if self._drawn:
            self._write(f"\x1b[{len(self._drawn)}A\x1b[J")
            self._drawn = []

    def _write(self, text: str) -> None:
        try:
            self._screen.draw(text)
        except (OSError, ValueError):
            # The terminal is closed. What is drawn here matters to nobody then, and must not hold up the end.
            self._is_on = False
