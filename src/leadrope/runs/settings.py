"""`[service]` and `[budgets]` of the user's config: how many runs at once, and what a day may cost."""

from __future__ import annotations

import os
from typing import Literal

import msgspec

from leadrope import errors
from leadrope.runs.store import Limits


class ServiceSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    running: int = 0
    """Runs at once on this machine; 0: four per core. Most of them wait for a model, not for the processor."""
    starting: int = 0
    """Agents that start at once; 0: two per core. Sixteen cold starts together delay the first word of each to 10 s."""
    queued: int = 1000
    recover: Literal["resume", "fail"] = "resume"
    """What becomes of a detached run whose owner died; one of a terminal is ended, for its person to decide."""
    pending: Literal["keep", "deny"] = "keep"
    """Approvals that such a run was waiting for."""
    keep_days: float = 30
    """How long ended runs are kept by `runs prune`."""
    keep_runs: int = 200
    """The newest are kept, however old."""
    idle_s: float = 30
    """After this time without work the background owner ends itself."""

    def limits(self) -> Limits:
        cores = os.cpu_count() or 2
        return Limits(running=self.running or 4 * cores, starting=self.starting or 2 * cores, queued=self.queued)


class Budgets(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """US dollars a day, by local time; what is reached holds the queue until midnight."""

    day_usd: float | None = None
    agents: dict[str, float] = {}
    """By the agent's name."""
    labels: dict[str, float] = {}
    """By `key=value`."""


def read(service: object, budgets: object, source: str) -> tuple[ServiceSettings, Budgets]:
    """The two tables of the config file as values."""
    try:
        found = msgspec.convert(service or {}, ServiceSettings), msgspec.convert(budgets or {}, Budgets)
    except msgspec.ValidationError as error:
        raise errors.BadConfig(f"{source}: [service] or [budgets]: {error}") from None
    for name in ("running", "starting", "queued", "keep_runs"):
        if getattr(found[0], name) < 0:
            raise errors.BadConfig(f"{source}: [service] {name} is negative", hint="Use 0 for the default.")
    return found
