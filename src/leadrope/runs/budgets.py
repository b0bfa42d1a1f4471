"""Money over time: what a day, an agent or a label may cost beside the cap of each run. Reads the store, holds runs."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import msgspec

from leadrope.runs.records.values import RunInfo
from leadrope.runs.settings import Budgets

if TYPE_CHECKING:
    from leadrope.runs.records.protocols import RunReads


class BudgetHold(msgspec.Struct, frozen=True, kw_only=True):
    note: str
    until: float
    """The next midnight, by local time."""


async def _caps(budgets: Budgets, store: RunReads, run: RunInfo, since: float) -> list[tuple[str, float, float]]:
    """Name, cap and what is spent of it, of every budget that this run falls under."""
    found = []
    if budgets.day_usd is not None:
        found.append(("the day's budget", budgets.day_usd, await store.cost_since(since)))
    if run.agent in budgets.agents:
        cap = budgets.agents[run.agent]
        found.append((f"the budget of agent {run.agent}", cap, await store.cost_since(since, agent=run.agent)))
    for key, value in run.labels.items():
        cap = budgets.labels.get(f"{key}={value}", -1.0)
        if cap >= 0:
            found.append((f"the budget of {key}={value}", cap, await store.cost_since(since, label=(key, value))))
    return found


async def held_by(budgets: Budgets, store: RunReads, run: RunInfo) -> BudgetHold | None:
    """The budget that keeps this run from starting today, if there is one."""
    today, tomorrow = _day()
    for name, cap, spent in await _caps(budgets, store, run, today):
        if spent >= cap:
            return BudgetHold(
                note=f"held until tomorrow: {name} of {cap:.2f} USD is spent ({spent:.2f})", until=tomorrow
            )
    return None


async def remaining(budgets: Budgets, store: RunReads, run: RunInfo) -> float | None:
    """What this run may still spend today; None: as much as its own cap says."""
    today, _ = _day()
    return min((cap - spent for _, cap, spent in await _caps(budgets, store, run, today)), default=None)


def _day() -> tuple[float, float]:
    now = dt.datetime.now().astimezone()
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    return today.timestamp(), (today + dt.timedelta(days=1)).timestamp()
