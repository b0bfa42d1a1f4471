"""Which session is to be resumed: by its own id, by the id of one of its runs, or by the beginning of either."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from leadrope import errors
from leadrope.runs.records.values import RunInfo
from leadrope.runtime.sessions.files import LEAST_PREFIX, Sessions
from leadrope.runtime.terminal_text import clean, one_line


async def find(given: str, leadrope_home: Path) -> str:
    """As `resolve`, of all that is stored in this home."""
    from leadrope.runs import stores  # noqa: PLC0415  # a service has its store, and gives its runs

    async with stores.reading(leadrope_home) as queries:
        runs = await queries.with_prefix(given) if queries is not None else []
    return resolve(given, Sessions(leadrope_home), runs)


def resolve(given: str, sessions: Sessions, runs: Sequence[RunInfo]) -> str:
    """The whole id. `runs` are those whose ids begin so. What is not known, or could be several, is refused."""
    known = {info.id for info in sessions.listing()}
    if given in known:
        return given
    if len(given) < LEAST_PREFIX:
        raise errors.BadValue(
            "resume", f"{given!r} is too short for an id", hint=f"Give {LEAST_PREFIX} characters or more."
        )
    names = {name for name in known if name.startswith(given)}
    of_runs = {run.session_id for run in runs if run.session_id}
    if len(names | of_runs) == 1 and not (runs and not of_runs):
        found = (names | of_runs).pop()
        if found in known:
            return found
    if runs and not names and len(runs) == 1:
        raise errors.BadValue(
            "resume",
            f"the session of run {runs[0].id[:8]} is not kept",
            hint=f"`leadrope runs retry {runs[0].id[:8]}` starts the run again from the beginning.",
        )
    if runs or names:
        shown = [f"run {run.id[:12]} ({one_line(clean(run.title), 30)})" for run in runs[:4]]
        shown += [f"session {name}" for name in sorted(names)[:4]]
        raise errors.BadValue("resume", f"{given!r} could be {', '.join(shown)}", hint="Give more of the id.")
    raise errors.BadValue(
        "resume",
        f"no session or run {given!r} is known",
        hint="`leadrope runs list` and `leadrope sessions list` show them. A run with --no-session cannot be resumed.",
    )
