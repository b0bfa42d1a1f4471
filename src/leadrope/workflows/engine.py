"""One execution of a workflow: starts what is ready, keeps each outcome once, and tells honestly what it came to.

What may start is plan's to say, how one unit is done is unit's; what was done stands in the journal before anything
that rests on it begins. So an execution that dies goes on from its journal, and no step that is in it runs again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from leadrope import errors
from leadrope.runs.flows import FlowInfo, UnitOutcome
from leadrope.workflows import choosing, happenings, library, model, outcomes, repeating, templates, unit
from leadrope.workflows.host import Host
from leadrope.workflows.links import Links, links_of
from leadrope.workflows.model import DEPTH_MOST
from leadrope.workflows.plan import Outcome, Plan, Progress
from leadrope.workflows.report import FlowOutcome, FlowResult, StepReport, StepState, Waiting
from leadrope.workflows.reporting import Ledger
from leadrope.workflows.steps import registry
from leadrope.workflows.steps.base import Asked, Done, Parked, StepFailed, Word
from leadrope.workflows.units import WHOLE, Key
from leadrope.workflows.waits import LOOK_S, Waits


class Flow:
    def __init__(
        self,
        workflow: model.Workflow,
        info: FlowInfo,
        host: Host,
        *,
        inputs: Mapping[str, Any],
        known: Mapping[Key, UnitOutcome] | None = None,
        folder: Path | None = None,
        depth: int = 0,
        policies: tuple[dict[str, Any], ...] = (),
        budget_usd: float | None = None,
        only: frozenset[str] | None = None,
        carried: Iterable[str] = (),
        spends: Callable[[float], None] | None = None,
        asking: unit.Asking = contextlib.nullcontext,
    ) -> None:
        """`known` is the journal so far; `folder` is where the workflow's file lies, for workflows that it names.

        `only`: no other step is started. `carried` are steps that another execution has done, and paid for. `spends`
        is told what it has cost, whenever that grows. `asking` is entered while a person is asked.
        """
        self.id = info.id
        self.info = info
        self.host = host
        self.depth = depth
        self._workflow = workflow
        self._steps = {step.id: step for step in workflow.steps}
        self._links: Links = links_of(workflow)
        self._inputs = dict(inputs)
        self._known = dict(known or {})
        self._folder = folder or host.workspace
        own = workflow.settings.policy
        self._policies = (*policies, own) if own else policies
        caps = [cap for cap in (budget_usd, workflow.settings.budget) if cap is not None]
        self._budget_usd = min(caps, default=None)
        self._only = only
        self._spends = spends
        self.asking = asking
        self._values: dict[str, dict[str, Any]] = {}
        self._redacted: set[str] = set()
        """Steps whose outputs lost a secret on their way into the journal, and come from there."""
        self._ledger = Ledger(carried)
        self._tasks: dict[str, asyncio.Task[Outcome | None]] = {}
        self._units: dict[Key, asyncio.Task[Any]] = {}
        self._live_usd: dict[Key, float] = {}
        self._over_budget: set[Key] = set()
        self._waits = Waits(host, info)
        self._parked: dict[str, None] = {}
        self._stop_reason: str | None = None
        self._children: set[Flow] = set()

    # -- its life -----------------------------------------------------------------------------------------------------

    async def run(self) -> FlowResult:
        """To its end, or until a person is needed who is not there. A stop is an end too."""
        began = time.monotonic()
        flows = self.host.service.flows
        self.host.show(
            happenings.FlowStarted(
                flow_id=self.id,
                title=self._workflow.title or self.info.name,
                steps=tuple((step.id, step.type) for step in self._workflow.steps),
                parent=self.info.parent,
                parent_key=self.info.parent_key,
            )
        )
        progress = Progress(self._links, self._replayed())
        try:
            await self._drive(progress)
        except asyncio.CancelledError:
            # Ended from outside, by the step that it is the work of as a rule: whoever resumes that claims this too.
            await self._cancel()
            await flows.set_state(self.info, "interrupted")
            raise
        finally:
            await self._cancel()
        result = self._result(progress.plan(), time.monotonic() - began)
        if result.outcome == "waiting":
            await flows.set_state(self.info, "waiting")
        else:
            await flows.end(self.info, result.outcome, msgspec.to_builtins(result), self.host.redactor)
        self.host.show(
            happenings.FlowEnded(flow_id=self.id, outcome=result.outcome, outputs=result.outputs if result.ok else {})
        )
        return result

    def stop(self, reason: str = "stopped by a person") -> None:
        """Ends every step, with the grace that each kind gives; `run` then returns."""
        if self._stop_reason is None:
            self._stop_reason = reason
            for child in self._children:
                child.stop(reason)
            for task in self._tasks.values():
                task.cancel()

    async def _drive(self, progress: Progress) -> None:
        limit = self._workflow.settings.concurrency or self.host.concurrency
        while True:
            for name in progress.ready if self._stop_reason is None else ():
                if len(self._tasks) >= limit:
                    break
                if self._only is not None and name not in self._only:
                    continue
                progress.start(name)
                self._begin(name)
            self._hear()
            if not self._tasks:
                return
            look_s = LOOK_S if self._parked else None
            done, _ = await asyncio.wait(self._tasks.values(), timeout=look_s, return_when=asyncio.FIRST_COMPLETED)
            for name in [name for name, task in self._tasks.items() if task in done]:
                task = self._tasks.pop(name)
                if task.cancelled() and self._stop_reason is not None:
                    continue
                outcome = task.result()
                if outcome is None:
                    self._parked[name] = None
                else:
                    progress.settle(name, outcome)

    def _begin(self, name: str) -> None:
        self._tasks[name] = asyncio.create_task(self._step(self._steps[name]), name=f"step {name}")

    def _hear(self) -> None:
        """Steps whose answer has come from elsewhere, while others went on, go on too."""
        if self._stop_reason is not None or not self._parked:
            return
        missing = self._waits.steps()
        for name in [name for name in self._parked if name not in missing]:
            del self._parked[name]
            self._begin(name)

    async def _cancel(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._tasks.clear()

    # -- what is known ------------------------------------------------------------------------------------------------

    def _replayed(self) -> dict[str, Outcome]:
        """The steps that the journal has whole."""
        found: dict[str, Outcome] = {}
        for one in self._known.values():  # also of steps that are not done: their items count in the budget
            self._ledger.spent(one)
        for name, whole in outcomes.wholes(self._workflow, self._known.values()).items():
            step = self._steps[name]
            mine = [one for key, one in self._known.items() if key.step == step.id and key.iteration != WHOLE]
            outputs = dict(whole.outputs)
            if step.batch is not None and step.loop is None and whole.status != "skipped":
                outputs = {**outputs, "results": repeating.results(mine, int(outputs.get("count", 0)))}
            if whole.is_redacted or any(one.is_redacted for one in mine):
                self._redacted.add(step.id)
            self._keep(step, whole, outputs, [whole] if whole in mine else mine, is_known=True)
            found[step.id] = outcomes.for_plan(whole)
        return found

    def _keep(
        self, step: model.Step, whole: UnitOutcome, outputs: dict[str, Any], mine: list[UnitOutcome], *, is_known: bool
    ) -> None:
        if whole.status == "failed" and whole.error is not None:
            outputs = {**outputs, "error": msgspec.to_builtins(whole.error)}
        if whole.status != "skipped":
            self._values[step.id] = outputs
        report = self._ledger.settled(step, whole, mine)
        self.host.show(
            happenings.StepEnded(
                flow_id=self.id,
                step=step.id,
                status=whole.status,
                duration_s=report.duration_s,
                cost_usd=report.cost_usd,
                tokens=report.tokens,
                attempts=report.attempts,
                warnings=report.warnings,
                error=report.error.message if report.error else "",
                is_known=is_known,
                is_cached=report.is_cached,
            )
        )

    # -- one step -----------------------------------------------------------------------------------------------------

    async def _step(self, step: model.Step) -> Outcome | None:
        """Its outcome, or None where it waits for a person."""
        began = time.time()
        try:
            whole, outputs, mine = await self._worked(step, began)
        except Parked:
            return None
        self._keep(step, whole, outputs, mine, is_known=False)
        return outcomes.for_plan(whole)

    async def _worked(self, step: model.Step, began: float) -> tuple[UnitOutcome, dict[str, Any], list[UnitOutcome]]:
        scope = self._scope()
        failed: UnitOutcome | None = None
        try:
            if step.when is not None and not choosing.holds(step.when, scope):
                skipped = UnitOutcome(step=step.id, status="skipped", started=began, ended=time.time())
                await self.record(skipped)
                return skipped, {}, [skipped]
            if not repeating.repeats(step):
                self.started(step, None)
                only = await self._unit(step, Key(step.id), scope)
                return only, only.outputs, [only]
            return await repeating.run(step, scope, self, began)
        except (errors.RequestError, StepFailed) as error:
            failed = outcomes.failure(Key(step.id, WHOLE if repeating.repeats(step) else 0), error, began)
        await self.record(failed)
        return failed, {}, [failed]

    def _scope(self) -> dict[str, Any]:
        return {**self._inputs, **self._values}

    def started(self, step: model.Step, count: int | None, done: int = 0) -> None:
        self.host.show(happenings.StepStarted(flow_id=self.id, step=step.id, kind=step.type, count=count, done=done))

    async def one(self, step: model.Step, key: Key, scope: Mapping[str, Any]) -> UnitOutcome:
        """One item or one turn of a step that repeats."""
        outcome = await self._unit(step, key, scope)
        self.host.show(
            happenings.UnitEnded(
                flow_id=self.id,
                step=key.step,
                iteration=key.iteration,
                item=key.item,
                status=outcome.status,
                error=outcome.error.message if outcome.error else "",
            )
        )
        return outcome

    async def _unit(self, step: model.Step, key: Key, scope: Mapping[str, Any]) -> UnitOutcome:
        known = self._known.get(key)
        if known is not None:
            return known
        began = time.time()
        policies = (*self._policies, step.policy) if step.policy else self._policies
        lost = self._redacted & unit.uses(step)
        if lost:
            tried = outcomes.lost_secret(key, min(lost))
        else:
            self.host.service.flows.begin_soon(self.info, key)
            one = unit.Unit(self, step, registry.kind_of(step.type), key, scope=scope, policies=policies)
            tried = await self._guarded(key, one.run(self._cached))
        outcome = outcomes.recordable(key, tried, began)
        await self.record(outcome)
        if tried.cache_key is not None and outcome.status == "succeeded":
            kept = {"outputs": outcome.outputs, "branch": outcome.branch}
            await self.host.service.flows.cache_put(tried.cache_key, step.type, kept, self.host.redactor)
        return outcome

    def _cached(self, key: str) -> Done | None:
        found = self.host.service.flows.cache_get(key)
        if found is None:
            return None
        return Done(outputs=found.outputs["outputs"], branch=found.outputs["branch"], is_cached=True)

    async def _guarded(self, key: Key, work: Any) -> unit.Tried:
        """The unit, which the workflow's budget may end."""
        if self._budget_usd is None:
            try:
                unguarded: unit.Tried = await work
                return unguarded
            finally:
                self._live_usd.pop(key, None)
        task = asyncio.ensure_future(work)
        self._units[key] = task
        try:
            tried: unit.Tried = await task
        except asyncio.CancelledError:
            if not task.done():
                task.cancel()
                await asyncio.wait((task,))
            if key not in self._over_budget or self._stop_reason is not None:
                raise
            cost = self._live_usd.get(key, 0.0)
            message = f"{key.step}: the workflow's budget of {self._budget_usd:g} USD is used up"
            return unit.Tried(failed=unit.Failed(kind="over_budget", message=message), cost_usd=cost)
        finally:
            del self._units[key]
            self._live_usd.pop(key, None)
        return tried

    async def record(self, outcome: UnitOutcome) -> None:
        await self.host.service.flows.settle(self.info, outcome, self.host.redactor)
        self._known[Key(outcome.step, outcome.iteration, outcome.item)] = outcome
        self._ledger.spent(outcome)
        if self._spends is not None and outcome.cost_usd:
            self._spends(self._ledger.cost_usd)

    def known(self, key: Key) -> UnitOutcome | None:
        return self._known.get(key)

    # -- what units ask for -------------------------------------------------------------------------------------------

    def budget_left(self) -> float | None:
        if self._budget_usd is None:
            return None
        left = self._budget_usd - self._ledger.cost_usd - sum(self._live_usd.values())
        if left <= 0:
            raise StepFailed(f"the workflow's budget of {self._budget_usd:g} USD is used up", kind="over_budget")
        return left

    def acts(self, key: Key, action: str, cost_usd: float) -> None:
        if cost_usd:
            self._live_usd[key] = cost_usd
            total = self._ledger.cost_usd + sum(self._live_usd.values())
            if self._spends is not None:
                self._spends(total)
            if self._budget_usd is not None and total >= self._budget_usd:
                for spender in self._live_usd:
                    if spender in self._units and spender not in self._over_budget:
                        self._over_budget.add(spender)
                        self._units[spender].cancel()
        self.host.show(
            happenings.StepActing(
                flow_id=self.id,
                step=key.step,
                iteration=key.iteration,
                item=key.item,
                action=action,
                cost_usd=self._live_usd.get(key, 0.0),
            )
        )

    def retries(self, key: Key, attempt: int, wait_s: float, why: str) -> None:
        self.host.show(
            happenings.StepRetried(
                flow_id=self.id,
                step=key.step,
                iteration=key.iteration,
                item=key.item,
                attempt=attempt,
                wait_s=wait_s,
                why=why,
            )
        )

    async def asked(self, key: Key, asked: Asked) -> tuple[str, Word]:
        return await self._waits.ask(key, asked)

    async def give_back(self, tokens: Sequence[str]) -> None:
        await self._waits.give_back(tokens)

    async def subflow(
        self,
        key: Key,
        name: str,
        inputs: Mapping[str, Any],
        *,
        budget_usd: float | None,
        cost: Callable[[float], None],
        asking: unit.Asking,
    ) -> Done:
        if self.depth + 1 >= DEPTH_MOST:
            raise StepFailed(
                f"{key.step}: {name} would be workflow number {self.depth + 2} inside each other; at most {DEPTH_MOST}",
                kind="too_deep",
                hint="Does it call itself?",
            )
        found = library.find(name, folder=self._folder, leadrope_home=self.host.service.home)
        loaded = library.load(found)
        values = loaded.inputs(inputs)
        flows = self.host.service.flows
        child_id = uuid.uuid5(uuid.UUID(hex=self.id), str(key)).hex
        known = next((child for child in flows.children(self.id) if child.id == child_id), None)
        if known is not None and known.state == "ended" and known.outcome != "stopped":
            # The process died between the end inside and the outcome out here.
            return outcomes.as_done(key, name, outcomes.kept_result(key, name, flows.texts(child_id)))
        if known is not None:
            info = await flows.claim(child_id)
            if loaded.digest != info.digest:  # refused when it was resumed, unless somebody has said so
                info = await flows.change_text(info, loaded.text, self.host.redactor, title=loaded.workflow.title)
        else:
            new = loaded.new(child_id, values, cwd=str(self.host.workspace), parent=self.id, parent_key=str(key))
            info = await flows.add(new, self.host.redactor)
        child = Flow(
            loaded.workflow,
            info,
            self.host,
            inputs=values,
            known=journal_of(self.host, info.id),
            folder=found.parent,
            depth=self.depth + 1,
            policies=self._policies_of(key),
            budget_usd=min((cap for cap in (budget_usd, self.budget_left()) if cap is not None), default=None),
            spends=cost,
            asking=asking,
        )
        self._children.add(child)
        try:
            result = await child.run()
        finally:
            self._children.discard(child)
        return outcomes.as_done(key, name, result)

    def _policies_of(self, key: Key) -> tuple[dict[str, Any], ...]:
        own = self._steps[key.step].policy
        return (*self._policies, own) if own else self._policies

    # -- the end ------------------------------------------------------------------------------------------------------

    def _result(self, plan: Plan, duration_s: float) -> FlowResult:
        outcome: FlowOutcome = plan.ending or "failed"
        waits: tuple[Waiting, ...] = ()
        if self._stop_reason is not None:
            outcome = "stopped"
        elif self._parked:
            outcome = "waiting"
            waits = self._waits.open()
        elif plan.ending is None:
            # Only some steps were to run: they alone are judged, and one that did not run is no success.
            states = {self._ledger.state(name) for name in self._only or ()}
            is_bad = not states <= {"succeeded", "skipped", "degraded"}
            outcome = "failed" if is_bad else "degraded" if "degraded" in states else "succeeded"
        outputs, missing = self._outputs()
        return FlowResult(
            flow_id=self.id,
            name=self.info.name,
            outcome=outcome,
            outputs=outputs,
            missing_outputs=missing,
            steps=tuple(self._reported(step, plan) for step in self._workflow.steps),
            cost_usd=self._ledger.cost_usd,
            tokens=self._ledger.tokens,
            duration_s=round(duration_s, 3),
            waits=waits,
            reason=self._stop_reason or "",
        )

    def _outputs(self) -> tuple[dict[str, Any], tuple[str, ...]]:
        found: dict[str, Any] = {}
        missing: list[str] = []
        for output in self._workflow.outputs:
            try:
                found[output.name] = templates.resolve(output.source, self._scope())
            except templates.Unresolved:
                missing.append(output.name)
        return found, tuple(missing)

    def _reported(self, step: model.Step, plan: Plan) -> StepReport:
        known = self._ledger.report(step.id)
        if known is not None:
            return msgspec.structs.replace(known, is_handled=True) if step.id in plan.handled else known
        state: StepState = "not_run"
        if step.id in self._parked:
            state = "waiting"
        elif step.id in plan.blocked:
            state = "blocked"
        elif step.id in plan.left_out:
            state = "left_out"
        return StepReport(id=step.id, type=step.type, state=state)


def journal_of(host: Host, flow_id: str) -> dict[Key, UnitOutcome]:
    return {Key(one.step, one.iteration, one.item): one for one in host.service.flows.outcomes(flow_id)}
