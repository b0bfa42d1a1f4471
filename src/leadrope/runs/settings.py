"""The tables of the user's config that are about many runs, as checked values: `[service]`, `[budgets]` and the others.

A mistake is an error with file, line and the nearest key, before anything is started.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from leadrope import errors
from leadrope.confined import real_path
from leadrope.core import config as configs
from leadrope.core.text.toml_lines import dotted
from leadrope.core.text.wrong_types import in_words, split, suggest, unknown_key
from leadrope.runs.records.values import RunLimits
from leadrope.runtime.agents import config_values

LONGEST_STORE_WAIT_S = 86400.0
SETUP_TIMEOUT_S = 600.0
"""For the set-up commands of a worktree together."""
_T = TypeVar("_T")


class ServiceSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    running: int = 0
    """Runs at once on this machine; 0: four per core. Most of them wait for a model, not for the processor."""
    starting: int = 0
    """Agents that start at once; 0: two per core. Sixteen cold starts together delay the first word of each to 10 s."""
    executions: int = 0
    """Detached executions of workflows at once on this machine; 0: two per core. Their agents count as runs, too."""
    queued: int = 1000
    recover: Literal["resume", "fail"] = "resume"
    """What becomes of a detached run or execution whose owner died. One of a terminal is left for its person."""
    pending: Literal["keep", "deny"] = "keep"
    """Approvals that such a run was waiting for."""
    waiting_agent_s: float = 600
    """How long the agent of a detached run stays while a person is asked; then it is ended, and an answer resumes the
    session. 0: it is never ended. A prompt cache lasts 5 minutes, so a resume costs no more after this time."""
    keep_days: float = 30
    """How long ended runs are kept by `runs prune`."""
    keep_runs: int = 200
    """The newest are kept, however old."""
    store_wait_s: float = 60
    """How long a run waits for a store that is full or locked; then it is stopped, and what is not stored is lost."""
    idle_s: float = 30
    """After this time without work the background owner ends itself."""

    @property
    def executions_at_once(self) -> int:
        return self.executions or 2 * (os.cpu_count() or 2)

    def limits(self) -> RunLimits:
        cores = os.cpu_count() or 2
        return RunLimits(running=self.running or 4 * cores, starting=self.starting or 2 * cores, queued=self.queued)


class Budgets(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """US dollars a day, by local time; what is reached holds the queue until midnight."""

    day_usd: float | None = None
    agents: dict[str, float] = {}
    """By the agent's name."""
    labels: dict[str, float] = {}
    """By `key=value`."""


class NotifyTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[notify]`."""

    bell: bool = False
    command: tuple[str, ...] = ()
    webhook: str = ""
    webhook_timeout_s: float = 5.0
    webhook_tries: int = 4


class TelemetryTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[telemetry]`."""

    endpoint: str = ""
    content: bool = False
    service: str = ""


class WorktreeTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[worktree]`, and below it `[worktree.projects."/path"]` for one repository."""

    setup: tuple[str | tuple[str, ...], ...] = ()
    setup_timeout_s: float = SETUP_TIMEOUT_S
    folder: str | None = None
    projects: dict[str, WorktreeTable] = {}

    def of(self, cwd: Path) -> WorktreeTable:
        """The nearest project that the folder lies in; commands come from the user, never from the repository."""
        here = Path(real_path(cwd))
        known = {Path(real_path(Path(name).expanduser())): found for name, found in self.projects.items()}
        return next((known[folder] for folder in (here, *here.parents) if folder in known), self)


def read(service: object, budgets: object, source: str) -> tuple[ServiceSettings, Budgets]:
    """`[service]` and `[budgets]`."""
    found = table(("service",), service, ServiceSettings, source), table(("budgets",), budgets, Budgets, source)
    for name in ("running", "starting", "executions", "queued", "keep_runs", "waiting_agent_s", "keep_days", "idle_s"):
        if not 0 <= getattr(found[0], name) < math.inf:
            hint = "Use 0 for the default." if name in _FROM_CORES else "Use a number of 0 or more."
            raise refused(source, ("service", name), f"{getattr(found[0], name):g} is out of range", hint)
    if not 0 <= found[0].store_wait_s <= LONGEST_STORE_WAIT_S:
        hint = f"Use a number of seconds from 0 to {LONGEST_STORE_WAIT_S:g}."
        raise refused(source, ("service", "store_wait_s"), f"{found[0].store_wait_s:g} is out of range", hint)
    caps: dict[tuple[str, ...], float | None] = {("day_usd",): found[1].day_usd}
    caps |= {("agents", name): cap for name, cap in found[1].agents.items()}
    caps |= {("labels", name): cap for name, cap in found[1].labels.items()}
    for place, cap in caps.items():
        if cap is not None and not 0 <= cap < math.inf:
            raise refused(source, ("budgets", *place), f"{cap:g} is not an amount", "Write USD a day: 5.00.")
    return found


_FROM_CORES = ("running", "starting", "executions")


def check_others(config: configs.Config) -> None:
    """The tables that are read only when they are needed: a typo there is told now, not at the first approval."""
    notify = table(("notify",), config.notify, NotifyTable, config.source)
    telemetry = table(("telemetry",), config.telemetry, TelemetryTable, config.source)
    for path, url in ((("notify", "webhook"), notify.webhook), (("telemetry", "endpoint"), telemetry.endpoint)):
        if url and not re.match(r"https?://[^\s/]", url):
            hint = "For example http://localhost:4318."
            raise refused(config.source, path, f"{url!r} must start with http:// or https://", hint)
    worktree(config)
    config_values.check(config)


def worktree(config: configs.Config) -> WorktreeTable:
    """`[worktree]`; its projects one by one, so that a mistake is told with the name of its project."""
    data = dict(config.worktree)
    projects = table(("worktree", "projects"), data.pop("projects", {}), dict[str, Any], config.source)
    found = table(("worktree",), data, WorktreeTable, config.source)
    each = {
        name: table(("worktree", "projects", name), value, WorktreeTable, config.source)
        for name, value in projects.items()
    }
    return msgspec.structs.replace(found, projects=each)


def refused(source: str, path: Sequence[str], message: str, hint: str | None = None) -> errors.BadConfig:
    """The error of one key, with its line."""
    return configs.with_line(errors.BadConfig(f"{source}: {dotted(*path)}: {message}", hint=hint), source, path=path)


def table(path: Sequence[str], data: object, kind: type[_T], source: str) -> _T:
    """One table as a value, or an error that names the key, its line and the nearest one that is known."""
    try:
        return msgspec.convert(data or {}, kind)
    except msgspec.ValidationError as error:
        message, inside = split(error)
        inner = [part for part in re.split(r"[.\[\]]+", inside) if part.isidentifier()]
        unknown = unknown_key(message)
        if unknown is None:
            wrong, hint = in_words(message, kind, inside)
            if not inside and hint:
                hint = f"Write [{dotted(*path)}] on a line of its own."
            raise refused(source, (*path, *inner), f"{wrong}", hint) from None
        known: tuple[str, ...] = getattr(kind, "__struct_fields__", ())
        place = (*path, *inner, unknown)
        wrong_key = errors.BadConfig(f"{source}: {dotted(*place)} is not a known key", hint=suggest(unknown, known))
        raise configs.with_line(wrong_key, source, path=place) from None
