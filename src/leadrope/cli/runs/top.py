"""`leadrope top`: the runs of this machine as they are now, drawn again whenever something changes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import date

import click

from leadrope import spelling
from leadrope.cli.runs.runs import cost, with_service
from leadrope.cli.runs.stats import money
from leadrope.cli.screen import table
from leadrope.cli.screen.screen import Screen
from leadrope.core.cost.usage import sum_label
from leadrope.runs.records.values import Filter, RunInfo
from leadrope.runs.service import Service
from leadrope.runtime.terminal_text import clean

_EPILOG = """\b
Examples:
  leadrope top             until q or Ctrl-C
  leadrope top --once      one look, for scripts
"""
RECENT_S = 600
"""How long a run that has ended stays in the picture."""
LOOK_S = 1.0


@click.command("top", epilog=_EPILOG)
@click.option("--once", is_flag=True, help="Print once and exit.")
def command(once: bool) -> int:
    """A live table of runs: state, how long each takes, tokens, cost and what it is doing; `q` quits.

    Shown are all that have not ended, and those that ended within 10 minutes. The sum is today's, as in
    `leadrope stats`.
    """
    is_live = sys.stdout.isatty() and not once

    async def watch(service: Service) -> int:
        if not is_live:
            for line in await _frame(service, Screen.of_process().width):
                click.echo(line)
            return 0
        stopped = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stopped.set)
        # The other screen, without a cursor: what was there before is there again afterwards.
        sys.stdout.write("\x1b[?1049h\x1b[?25l")
        try:
            with service.listen() as heard, _keys(stopped):
                while not stopped.is_set():
                    await _draw(service)
                    rung = asyncio.ensure_future(heard.wait(LOOK_S))
                    ended = asyncio.ensure_future(stopped.wait())
                    await asyncio.wait((rung, ended), return_when=asyncio.FIRST_COMPLETED)
                    for task in (rung, ended):
                        task.cancel()
                    await asyncio.wait((rung, ended))
                    await asyncio.sleep(0.1)  # a burst of events is one picture
        finally:
            sys.stdout.write("\x1b[?25h\x1b[?1049l")
            sys.stdout.flush()
        return 0

    return with_service(watch, stays=is_live, reads=True)


@contextlib.contextmanager
def _keys(stopped: asyncio.Event) -> Iterator[None]:
    """`q` quits, as in other programs of this kind. Ctrl-C stays a signal."""
    if sys.platform == "win32" or not os.isatty(0):
        yield
        return
    import termios  # noqa: PLC0415  # POSIX alone has it
    import tty  # noqa: PLC0415  # the same

    before = termios.tcgetattr(0)

    def pressed() -> None:
        if os.read(0, 1024)[:1] in (b"q", b"Q", b""):
            stopped.set()

    loop = asyncio.get_running_loop()
    tty.setcbreak(0)
    loop.add_reader(0, pressed)
    try:
        yield
    finally:
        loop.remove_reader(0)
        with contextlib.suppress(termios.error):
            termios.tcsetattr(0, termios.TCSADRAIN, before)


async def _today(service: Service) -> str:
    """As `leadrope stats` sums it up."""
    midnight = date.fromtimestamp(time.time())  # noqa: DTZ012  # the user's own day
    spent = [(cost, label) for _, _, _, cost, label, _, _ in await service.spending(time.mktime(midnight.timetuple()))]
    return f"{money(sum(cost for cost, _ in spent))} today ({sum_label(spent)})"


async def _rows(service: Service) -> list[RunInfo]:
    living = await service.listing(Filter(is_open=True, limit=200))
    recent = await service.listing(Filter(state="ended", since=time.time() - RECENT_S, limit=20))
    return [*living, *(row for row in recent if row.ended)]


async def _draw(service: Service) -> None:
    size = shutil.get_terminal_size()
    lines = (await _frame(service, size.columns))[: size.lines - 1]
    sys.stdout.write("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J")
    sys.stdout.flush()


async def _frame(service: Service, width: int) -> list[str]:
    return frame(await _rows(service), width, await service.states(), await _today(service))


def frame(rows: Sequence[RunInfo], width: int, states: dict[str, int], spent: str) -> list[str]:
    """One picture: a line of sums, then the runs."""
    counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "nothing runs"
    head = f"leadrope  {time.strftime('%H:%M:%S')}  {counts}  {spent}"
    if not rows:
        none = spelling.runnable('Start one with `leadrope run --detach "…"`.')
        return [table.cut(head, width), "", *table.wrapped(none, width)]
    cells = [
        (
            row.id[:8],
            row.outcome or row.state,
            table.age((row.ended or time.time()) - (row.started or row.created)),
            _thousands(row.tokens),
            cost(row),
            table.cut(clean(row.title), 24),
            clean(
                " · ".join(filter(None, (row.note, row.last_action)))
                if row.state == "waiting"
                else row.note or row.last_action
            ),
        )
        for row in rows
    ]
    return [
        table.cut(head, width),
        "",
        *table.table(
            ("RUN", "STATE", "TIME", "TOKENS", "COST", "TASK", "NOW"),
            cells,
            width,
            droppable=("TOKENS", "COST", "TASK", "TIME"),
        ),
    ]


def _thousands(count: int) -> str:
    return f"{count / 1000:.1f}k" if count >= 1000 else str(count)
