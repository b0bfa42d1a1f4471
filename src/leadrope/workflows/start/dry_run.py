"""What a workflow would do, without starting anything: its steps in order, what is cached, and what would be asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from leadrope import errors
from leadrope.confined import real_path
from leadrope.core.tools import ToolCall
from leadrope.runs.executions.values import ExecutionInfo, UnitOutcome
from leadrope.runs.service import Service
from leadrope.runtime.sandboxing.access import Access
from leadrope.workflows import model
from leadrope.workflows.engine import journal_mapping
from leadrope.workflows.engine.execution_context import ExecutionContext
from leadrope.workflows.engine.ledger import report_of
from leadrope.workflows.engine.step_attempt import Unit
from leadrope.workflows.engine.unit_progress import Key
from leadrope.workflows.language import templates
from leadrope.workflows.library import Loaded
from leadrope.workflows.links import Links, links_between
from leadrope.workflows.start import auto_approval, start
from leadrope.workflows.steps import registry, shell
from leadrope.workflows.steps.base import StepFailed

_ASKING_MODES = (None, "ask", "edit")


class PlannedStep(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    type: str
    depth: int = 0
    """Of the groups around it."""
    runs: bool = True
    """False: --only or --from leaves it out."""
    conditions: tuple[str, ...] = ()
    """It runs only if these hold."""
    repeats: str = ""
    asks: tuple[str, ...] = ()
    """What a person would be asked, as far as that is known before it runs."""
    is_cached: bool = False
    last_state: str | None = None
    last_duration_s: float | None = None
    last_cost_usd: float | None = None


class Last(msgspec.Struct, frozen=True, kw_only=True):
    """The last execution of this file."""

    id: str
    outcome: str
    duration_s: float | None
    cost_usd: float


class DryRun(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    title: str
    asks: tuple[str, ...] = ()
    """What the file asks for besides its workspace, and what nobody has allowed yet."""
    steps: tuple[PlannedStep, ...]
    last: Last | None = None


class _Owner:
    """In place of an execution: what is asked of one before a step starts."""

    id = ""
    depth = 0

    def __init__(self, host: ExecutionContext) -> None:
        self.host = host

    def budget_left(self) -> None:
        return None


async def look(
    service: Service,
    loaded: Loaded,
    values: Mapping[str, Any],
    *,
    workspace: Path,
    environ: Mapping[str, str],
    access: Access,
    only: str | None = None,
    begin_at: str | None = None,
    is_forced: bool = False,
    uses_cache: bool = True,
    auto_approved: Mapping[str, str] | None = None,
    asks: tuple[str, ...] = (),
) -> DryRun:
    """The options are those of `starting.prepared`."""
    kept, _ = await start.taken_over(service, loaded, only, begin_at, is_forced=is_forced)
    last = (
        await service.executions.last_of(file=loaded.file)
        if loaded.file
        else await service.executions.last_of(name=loaded.name)
    )
    host = ExecutionContext(
        service, tag="dry-run", workspace=Path(real_path(workspace)), environ=environ, access=access
    )
    async with host:
        looker = _Looker(service, host, loaded.workflow, values, auto_approved or {}, uses_cache=uses_cache)
        leaves = {name for name in looker.links.steps if only is not None and name != only} | set(kept)
        steps = [one async for one in looker.steps(await _outcomes(service, last), leaves)]
    return DryRun(name=loaded.name, title=loaded.workflow.title, asks=asks, steps=tuple(steps), last=_last(last))


class _Looker:
    def __init__(
        self,
        service: Service,
        host: ExecutionContext,
        workflow: model.Workflow,
        inputs: Mapping[str, Any],
        approved: Mapping[str, str],
        *,
        uses_cache: bool,
    ) -> None:
        self._service = service
        self._host = host
        self._workflow = workflow
        self._approved = approved
        self._uses_cache = uses_cache
        self._scope: dict[str, Any] = {**inputs, templates.DIALECT: workflow.dialect}
        self.links: Links = links_between(workflow.steps, workflow.dialect)

    async def steps(self, before: Mapping[str, list[UnitOutcome]], leaves: set[str]) -> Any:
        by_id = {step.id: step for step in self._workflow.steps}
        for name in self.links.sorted:
            step = by_id[name]
            told = await self._step(step, self.links, before.get(name, []), runs=name not in leaves)
            yield told
            for inner in _inside(step, self._workflow.dialect, self._approved, runs=told.runs):
                yield inner

    async def _step(self, step: model.Step, links: Links, before: list[UnitOutcome], *, runs: bool) -> PlannedStep:
        planned = _planned(step, links, self._approved, depth=0, runs=runs)
        whole = journal_mapping.wholes(self._workflow, before).get(step.id)
        if whole is not None:
            units = [one for one in before if not one.is_whole] or [whole]
            report = report_of(step.id, step.type, whole, units)
            planned = msgspec.structs.replace(
                planned,
                last_state=report.state,
                last_duration_s=report.duration_s,
                last_cost_usd=round(report.cost_usd, 6),
            )
        if not runs and whole is not None:
            self._scope[step.id] = dict(whole.outputs)
        if not runs or step.batch is not None or step.loop is not None or step.type == model.GROUP:
            return planned
        is_cached, asked = await self._looked_at(step)
        more = (asked,) if asked else ()
        return msgspec.structs.replace(planned, is_cached=is_cached, asks=() if is_cached else (*planned.asks, *more))

    async def _looked_at(self, step: model.Step) -> tuple[bool, str]:
        """Whether the cache has it, and what the policy would ask; neither where its values come from other steps."""
        needed = {link.source for link in self.links.into.get(step.id, ()) if link.kind == "data"}
        if not needed <= self._scope.keys():
            return False, ""
        own = self._workflow.settings.policy
        policies = tuple(one for one in (own, step.policy) if one)
        owner: Any = _Owner(self._host)
        kind = registry.kind_of(step.type, self._workflow.dialect)
        unit = Unit(owner, step, kind, Key(step.id), scope=self._scope, policies=policies)
        try:
            config, key = unit.looked_at()
        except (StepFailed, errors.LeadropeError):
            return False, ""  # a value is missing or wrong, which the step tells when it runs
        found = await self._service.executions.cache_get(key) if key is not None and self._uses_cache else None
        if found is not None:
            self._scope[step.id] = found.outputs["outputs"]
            return True, ""
        if step.type != "shell":
            return False, ""
        commands = await self._host.commands_under(policies)
        text = shell.call_of(config, self._host.workspace)
        call = ToolCall(id=step.id, name="Bash", input={"command": text})
        verdict = commands.judge(call, is_own=shell.is_own(step.parameters, text), has_person=True)
        match verdict.word:
            case "ask":
                return False, f"the policy asks about its command: {verdict.reason}"
            case "deny":
                return False, f"the policy denies its command: {verdict.reason}"
            case _:
                return False, ""


def _inside(
    step: model.Step, dialect: model.Dialect, approved: Mapping[str, str], *, runs: bool, depth: int = 1
) -> Iterator[PlannedStep]:
    if not step.steps:
        return
    links = links_between(step.steps, dialect)
    by_id = {inner.id: inner for inner in step.steps}
    for name in links.sorted:
        yield _planned(by_id[name], links, approved, depth=depth, runs=runs)
        yield from _inside(by_id[name], dialect, approved, runs=runs, depth=depth + 1)


def _planned(step: model.Step, links: Links, approved: Mapping[str, str], *, depth: int, runs: bool) -> PlannedStep:
    conditions = [f"when: {step.when}"] if step.when else []
    ways = [link for link in links.into.get(step.id, ()) if link.kind != "data"]
    if ways and all(link.kind == "error" or link.label for link in ways):
        named = (f"{one.source} fails" if one.kind == "error" else f"{one.source} chooses {one.label}" for one in ways)
        conditions.append(f"if {' or '.join(dict.fromkeys(named))}")
    repeats = "once per item" if step.batch is not None else "in turns" if step.loop is not None else ""
    return PlannedStep(
        id=step.id,
        type=step.type,
        depth=depth,
        runs=runs,
        conditions=tuple(conditions),
        repeats=repeats,
        asks=tuple(_own_questions(step, approved)) if runs else (),
    )


def _own_questions(step: model.Step, approved: Mapping[str, str]) -> Iterator[str]:
    if step.id in approved:
        yield f"approved by {auto_approval.OPTION}" + (f": {approved[step.id]}" if approved[step.id] else "")
    elif step.type == "approval":
        yield f"asks a person: {step.parameters.get('message', '')}"
    elif step.approval:
        yield "asks a person before it starts"
    if step.type in ("agent", "claude-code") and step.parameters.get("mode") in _ASKING_MODES:
        yield "its agent may ask about tool calls"


async def _outcomes(service: Service, last: ExecutionInfo | None) -> dict[str, list[UnitOutcome]]:
    found: dict[str, list[UnitOutcome]] = {}
    for one in await service.executions.outcomes(last.id) if last is not None else ():
        found.setdefault(one.step, []).append(one)
    return found


def _last(last: ExecutionInfo | None) -> Last | None:
    if last is None:
        return None
    took = None if last.ended is None else round(max(0.0, last.ended - last.created), 3)
    return Last(id=last.id, outcome=last.outcome or last.state, duration_s=took, cost_usd=last.cost_usd)
