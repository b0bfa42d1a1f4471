"""Which run a command means: an id, the beginning of one, or the newest run of this folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from leadrope import errors
from leadrope.cli.screen.screen import Screen
from leadrope.runs.records.values import Filter, RunInfo
from leadrope.runtime.terminal_text import clean, one_line

if TYPE_CHECKING:
    from leadrope.runs.service import Service

LAST = "last"
LEAST = 4
"""Characters of an id that a hint shows; fewer are hard to recognise."""


async def named(service: Service, given: str | None, *, changes: bool = False, is_open: bool = False) -> RunInfo:
    """The run with that id; without one, or with `last`, the newest of this folder.

    A command that only looks falls back to the newest run of all. One that `changes` something does not: whoever
    stands in the wrong folder must not undo the work of another. `is_open`: only runs that have not ended are meant.
    """
    if given is not None and given != LAST:
        return await service.get(given)
    here = str(Path.cwd())
    found = await service.listing(Filter(cwd=here, is_open=is_open, limit=1))
    if not found and not changes:
        found = await service.listing(Filter(is_open=is_open, limit=1))
    if not found:
        what = "no run is at work" if is_open else "no run was made"
        newest = await service.listing(Filter(limit=1))
        hint = f"Name the run; the newest of all is {newest[0].id[:8]}, of {newest[0].cwd}." if newest else None
        raise errors.UnknownRun(
            f"{what} in {here}", hint=hint or '`leadrope run "…"` makes one, `leadrope demo` shows how.'
        )
    run = found[0]
    where = "" if run.cwd == here else f" in {clean(run.cwd)}"
    told = f"run {run.id[:8]}{where}: {one_line(clean(run.title), 60)}"
    Screen.of_process().say(told, hanging="  ")
    return run


def is_name(text: str) -> bool:
    """It could be a run's id, and not a prompt."""
    return text == LAST or re.fullmatch(r"[0-9a-fA-F]{1,32}", text) is not None


async def short(service: Service, run_id: str) -> str:
    """As much of an id as names this run and no other, today."""
    for count in range(LEAST, len(run_id)):
        try:
            if (await service.get(run_id[:count])).id == run_id:
                return run_id[:count]
        except errors.UnknownRun:
            continue
    return run_id
