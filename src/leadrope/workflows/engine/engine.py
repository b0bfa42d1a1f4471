"""The engine: starts the steps that are ready, records each outcome once, and reports the result.

`plan` decides what may start and `step_attempt` runs one unit. An outcome is written to the journal before anything
that depends on it starts, so an execution that dies is resumed from its journal without repeating a step.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from leadrope import errors
from leadrope.core.events import Notice
from leadrope.core.execution_events import ExecutionEvent, ExecutionQueued
from leadrope.core.secrets.redacted_json import clean_value
from leadrope.runs.executions import bodies
from leadrope.runs.executions.values import STEP_TOTAL, ExecutionInfo, NewExecution, Settled, UnitOutcome
from leadrope.runtime.gate.approvers import Answer
from leadrope.workflows import library, model
from leadrope.workflows.check import access_requests
from leadrope.workflows.engine import batch_results, journal_chunks, journal_mapping, repeating, step_attempt
from leadrope.workflows.engine.controls import ControlledExecution
from leadrope.workflows.engine.execution_context import ExecutionContext
from leadrope.workflows.engine.execution_events import Teller
from leadrope.workflows.engine.ledger import Ledger
from leadrope.workflows.engine.limits import ExecutionLimits
from leadrope.workflows.engine.main_output import main_output
from leadrope.workflows.engine.plan import Outcome, Plan, PlanProgress
from leadrope.workflows.engine.unit_progress import Key
from leadrope.workflows.language import choices, templates
from leadrope.workflows.links import Links, links_of
from leadrope.workflows.model import DEPTH_MOST
from leadrope.workflows.people.human_input import LOOK_S, HumanInput
from leadrope.workflows.report import (
    ExecutionOutcome,
    ExecutionResult,
    LastStep,
    PendingApproval,
    StepReport,
    StepState,
)
from leadrope.workflows.steps import registry
from leadrope.workflows.steps.base import Parked, StepDone, StepFailed, StepQuestion

OWNER_ENDED = "its owner was told to end"
PAUSE_LOOK_S = 1.0


class Execution:
    def __init__(
        self,
        workflow: model.Workflow,
        info: ExecutionInfo,
        host: ExecutionContext,
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
        asking: step_attempt.Asking = contextlib.nullcontext,
        limits: ExecutionLimits | None = None,
        is_queued: bool = False,
        redacted: Iterable[str] = (),
    ) -> None:
        """`known` is the journal so far; `folder` is the folder of the workflow's file, against which called workflows
        are found.

        `only` restricts the execution to these steps. `carried` are steps that another execution has done and paid for.
        `spends` is called with the cost whenever it grows. `asking` is entered while a person is being asked. `limits`
        are those of the enclosing execution. `is_queued`: if cancelled, the execution goes back into the queue.
        `redacted` names steps whose values lost a secret.
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
        self.limits = ExecutionLimits(workflow.settings, self._end_units, limits)
        self.asking = functools.partial(self.limits.asking, asking)
        self._is_queued = is_queued
        self._values: dict[str, dict[str, Any]] = {}
        self._redacted = set(redacted)
        """Steps whose outputs were redacted in the journal and are read from there."""
        self._ledger = Ledger(carried)
        self._tasks: dict[str, asyncio.Task[Outcome | None]] = {}
        self._units: dict[Key, asyncio.Task[Any]] = {}
        self._chunks = journal_chunks.Chunks(self._settle_all)
        self._live_usd: dict[Key, float] = {}
        self._over_budget: set[Key] = set()
        self._waits = HumanInput(host, info)
        self._parked: dict[str, None] = {}
        self._stop_reason: str | None = None
        self._children: set[Execution] = set()
        self._teller = Teller(workflow, info, host.tell, host.cut, self._live_of)

    # -- running -------------------------------------------------------------------------------------------------------

    async def run(self) -> ExecutionResult:
        """Run until the end, a stop, or until an absent person's answer is needed.

        A full or locked store is waited for and never counts as a step's failure. If the waiting is cancelled, the
        store's error is raised and the execution can be resumed.
        """
        if self.info.parent is not None:
            return await self._run()
        with self.host.service.patience(self.id[:8], self.host.gate.clocks_stopped).used():
            return await self._run()

    async def _run(self) -> ExecutionResult:
        began = time.monotonic()
        executions, log = self.host.service.executions, self.host.log
        await self._tell_start()
        if log is not None and self.info.parent is None:
            await log.flush()  # so that watchers see the state at once
        progress = PlanProgress(self._links, self._replayed())
        try:
            with self.limits.running(), self._reached():
                await self._drive(progress)
        except asyncio.CancelledError:
            # Cancelled, usually by the step that it runs for: whoever resumes that step claims this execution too.
            await self._cancel()
            if self._is_queued:
                note = f"{OWNER_ENDED}; it continues"
                await executions.requeue(self.info, note=note, log=log, told=[ExecutionQueued(reason=OWNER_ENDED)])
            else:
                await executions.set_state(self.info, "interrupted", log=log, told=[self._teller.interrupted()])
            raise
        finally:
            self._teller.close()
            await self._cancel()
        if self.info.parent is None:
            await self.host.close_commands()
        result = await self._result(progress.plan(), time.monotonic() - began)
        told = [self._teller.ended(result)]
        if result.outcome == "waiting":
            if self.host.gate.is_closed and self.info.parent is None:
                await executions.set_state(self.info, "paused", log=log, told=told)
            else:
                await executions.wait_for(self.info, sorted(self.host.parked), log=log, told=told)
        else:
            kept = msgspec.structs.replace(result, last=None)  # the journal has it already
            body = msgspec.to_builtins(kept)
            await executions.end(self.info, result.outcome, body, self.host.redactor, log=log, told=told)
        if log is not None:
            await log.shown()
        return result

    async def replay(self) -> ExecutionResult:
        """What its journal says that it came to; nothing is done."""
        await self._tell_start()
        return await self._result(PlanProgress(self._links, self._replayed()).plan(), 0.0)

    async def _tell_start(self) -> None:
        is_resumed = self._teller.is_resumed(self.host.told)
        done = await self.host.service.executions.done_units(self.id) if is_resumed else 0
        self._teller.started(self.host.told, self.info.owner or "", done)

    def stop(self, reason: str = "stopped by a person") -> None:
        """End every step, with the grace period of its kind; `run` then returns."""
        if self._stop_reason is None:
            self._stop_reason = reason
            for child in self._children:
                child.stop(reason)
            for task in self._tasks.values():
                task.cancel()

    def _reached(self) -> contextlib.AbstractContextManager[None]:
        """Register for controls from other processes; they reach the outermost execution."""
        if self.info.parent is not None:
            return contextlib.nullcontext()
        return self.host.service.controls.reaching(ControlledExecution(self.host, self.info, self.stop, self.family))

    def family(self) -> list[str]:
        """Return its id and the ids of the running executions inside it."""
        return [self.id, *(execution_id for child in self._children for execution_id in child.family())]

    async def _drive(self, progress: PlanProgress) -> None:
        limit = self._workflow.settings.concurrency or self.host.concurrency
        while True:
            for name in progress.ready if self._stop_reason is None else ():
                if len(self._tasks) >= limit:
                    break
                if self._only is not None and name not in self._only:
                    continue
                progress.start(name)
                self._begin(name)
            await self._hear()
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

    async def _hear(self) -> None:
        """Steps whose answer has come from elsewhere, while others went on, go on too."""
        if self._stop_reason is not None or not self._parked:
            return
        answered = await self._waits.answered_steps()
        for name in [name for name in self._parked if name in answered]:
            del self._parked[name]
            self._begin(name)

    async def _cancel(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._tasks.clear()

    # -- known outcomes ------------------------------------------------------------------------------------------------

    def _replayed(self) -> dict[str, Outcome]:
        """Return the steps that the journal has completely."""
        found: dict[str, Outcome] = {}
        for one in self._known.values():  # includes steps that are not done: their items count in the budget
            self._ledger.spent(one)
        for name, whole in journal_mapping.wholes(self._workflow, self._known.values()).items():
            step = self._steps[name]
            mine = [one for key, one in self._known.items() if key.step == step.id and key.iteration != STEP_TOTAL]
            outputs = dict(whole.outputs)
            if whole.is_redacted or any(one.is_redacted for one in mine):
                self._redacted.add(step.id)
            self._keep(step, whole, outputs, [whole] if whole in mine else mine, is_known=True)
            found[step.id] = journal_mapping.for_plan(whole)
        for name in self._links.sorted:
            self._refill(self._steps[name])
        return found

    def _refill(self, step: model.Step) -> None:
        """Rebuild a batch's results from the journal; the items come from values that are in it as well."""
        outputs = self._values.get(step.id)
        if step.batch is None or step.loop is not None or outputs is None or "count" not in outputs:
            return
        mine = [one for key, one in self._known.items() if key.step == step.id and key.iteration != STEP_TOTAL]
        scope = self._scope(step.id)
        items = batch_results.items_again(step, scope, outputs["count"])
        outputs["results"] = batch_results.results(outputs["count"], mine, items=items, dialect=self._workflow.dialect)
        if self._redacted & {one.root for one in templates.references(step.batch.items)}:
            self._redacted.add(step.id)

    def _keep(
        self, step: model.Step, whole: UnitOutcome, outputs: dict[str, Any], mine: list[UnitOutcome], *, is_known: bool
    ) -> None:
        if whole.status == "failed":
            error = {"error": msgspec.to_builtins(whole.error)} if whole.error is not None else {}
            outputs = templates.FailedOutputs({**outputs, **error}, is_readable=False)
        if whole.status != "skipped":
            self._values[step.id] = outputs
        self._ledger.settled(step, whole, mine)
        if is_known and (self._teller.execution, step.id) not in self.host.told:
            self.host.tell(*self._teller.step_ended(step, whole, mine, is_known=True))

    # -- one step -----------------------------------------------------------------------------------------------------

    async def _step(self, step: model.Step) -> Outcome | None:
        """Return the step's outcome, or None if it waits for a person."""
        await self.host.gate.passed()
        began = time.time()
        try:
            whole, outputs, mine = await self._worked(step, began)
        except Parked:
            return None
        self._keep(step, whole, outputs, mine, is_known=False)
        return journal_mapping.for_plan(whole)

    async def _worked(self, step: model.Step, began: float) -> tuple[UnitOutcome, dict[str, Any], list[UnitOutcome]]:
        scope = self._scope(step.id)
        failed: UnitOutcome | None = None
        try:
            if step.when is not None and not choices.holds(step.when, scope):
                skipped = UnitOutcome(step=step.id, status="skipped", started=began, ended=time.time())
                await self.record(skipped)
                return skipped, {}, [skipped]
            if not repeating.repeats(step):
                self.started(step, None)
                only = await self._unit(step, Key(step.id), scope)
                return only, only.outputs, [only]
            return await repeating.run(step, scope, self, began)
        except (errors.RequestError, StepFailed) as error:
            failed = journal_mapping.failure(Key(step.id, STEP_TOTAL if repeating.repeats(step) else 0), error, began)
        await self.record(failed)
        return failed, {}, [failed]

    def _scope(self, step: str | None = None, plan: Plan | None = None) -> dict[str, Any]:
        """Return the names for templates; outputs of a failed step are visible only to the steps that its failure leads
        to.
        """
        scope: dict[str, Any] = {
            name: templates.Absent(self._why_absent(name, plan))
            for name in self._steps
            if name not in self._values and name != step
        }
        scope |= {**self._inputs, **self._values, templates.DIALECT: self._workflow.dialect}
        for name, outputs in self._values.items():
            if isinstance(outputs, templates.FailedOutputs) and step in self._links.after_error(name):
                scope[name] = templates.FailedOutputs(outputs)
        return scope

    def _why_absent(self, name: str, plan: Plan | None) -> str:
        if self._ledger.state(name) == "skipped":
            return f"the step {name!r} was skipped"
        if plan is not None and name in plan.blocked:
            return f"the step {name!r} did not run, because a step before it failed"
        if plan is not None and name in plan.left_out:
            return f"the step {name!r} did not run, because another branch was taken"
        return f"the step {name!r} has not run"

    def started(self, step: model.Step, count: int | None, done: int = 0) -> None:
        self._teller.step_started(step, count, done)

    async def one(self, step: model.Step, key: Key, scope: Mapping[str, Any]) -> UnitOutcome:
        """Run one item, or one turn, of a step that repeats."""
        outcome = await self._unit(step, key, scope)
        self._teller.counted(outcome)
        return outcome

    async def _unit(self, step: model.Step, key: Key, scope: Mapping[str, Any]) -> UnitOutcome:
        known = self._known.get(key)
        if known is not None:
            return known
        await self.host.gate.passed()
        self.limits.check()
        began = time.time()
        policies = (*self._policies, step.policy) if step.policy else self._policies
        lost = self._redacted & step_attempt.uses(step) if self._redacted else None
        if lost:
            tried = journal_mapping.lost_secret(key, min(lost))
        else:
            kind = registry.kind_of(step.type, self._workflow.dialect)
            one = step_attempt.Unit(self, step, kind, key, scope=scope, policies=policies)
            tried = await self._guarded(key, one.run(self._cached))
        outcome = journal_mapping.recordable(key, tried, began)
        await self.record(outcome)
        if tried.cache_key is not None and outcome.status == "succeeded":
            kept = {"outputs": outcome.outputs, "branch": outcome.branch}
            await self.host.service.executions.cache_put(tried.cache_key, step.type, kept, self.host.redactor)
        return outcome

    async def _cached(self, key: str) -> StepDone | None:
        found = await self.host.service.executions.cache_get(key) if self.host.uses_cache else None
        if found is None:
            return None
        return StepDone(outputs=found.outputs["outputs"], branch=found.outputs["branch"], is_cached=True)

    async def _guarded(self, key: Key, work: Any) -> step_attempt.UnitResult:
        """Run the unit under the workflow's budget and max_seconds, either of which may end it."""
        if self._budget_usd is None and self.limits.seconds is None:
            try:
                unguarded: step_attempt.UnitResult = await work
                return unguarded
            finally:
                self._live_usd.pop(key, None)
        task = asyncio.ensure_future(work)
        self._units[key] = task
        try:
            tried: step_attempt.UnitResult = await task
        except asyncio.CancelledError:
            if not task.done():
                task.cancel()
                await asyncio.wait((task,))
            if self._stop_reason is not None or not (key in self._over_budget or self.limits.is_over):
                raise
            cost = self._live_usd.get(key, 0.0)
            if key not in self._over_budget:
                message = f"{key.step}: {self.limits.message}"
                late = step_attempt.StepFailure(kind="timed_out", message=message, hint=self.limits.hint)
                return step_attempt.UnitResult(failed=late, cost_usd=cost)
            message = f"{key.step}: the workflow's budget of {self._budget_usd:g} USD is used up"
            return step_attempt.UnitResult(
                failed=step_attempt.StepFailure(kind="over_budget", message=message), cost_usd=cost
            )
        finally:
            del self._units[key]
            self._live_usd.pop(key, None)
        return tried

    def _end_units(self) -> None:
        for task in self._units.values():
            task.cancel()

    def begin_turn(self) -> None:
        self.limits.begin_turn()

    async def pause(self, step: model.Step, turn: int, seconds: float) -> None:
        """Wait before a turn of a loop, in short intervals, so that the time limit can end the pause too."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not self.limits.is_over:
            self.acts(Key(step.id, turn), f"next turn in {left:.0f} s", 0.0)
            await asyncio.sleep(min(left, PAUSE_LOOK_S))

    async def record(self, outcome: UnitOutcome) -> None:
        """Record an outcome and its event in one transaction; small batch items are written later, in groups."""
        told = functools.partial(self._told, self._steps[outcome.step], outcome)
        settled = await self.host.service.executions.settled(self.info, outcome, self.host.redactor, told=told)
        if journal_chunks.is_small(outcome):
            await self._chunks.add(settled)
        else:
            await self._settle_all([settled])
        self._known[Key(outcome.step, outcome.iteration, outcome.item)] = outcome
        self._ledger.spent(outcome)
        if outcome.cost_usd:
            self._teller.paid(outcome.step, outcome.cost_usd)
            self._spent()

    async def _settle_all(self, settled: Sequence[Settled]) -> None:
        await self.host.service.executions.settle_all(settled, log=self.host.log)

    async def recorded(self) -> None:
        """Wait until the outcomes of all units so far are in the journal."""
        await self._chunks.written()

    def _told(self, step: model.Step, outcome: UnitOutcome, size: int) -> list[ExecutionEvent]:
        if repeating.repeats(step) and outcome.iteration != STEP_TOTAL and outcome.status != "skipped":
            return self._teller.unit_ended(outcome, size)
        mine = [one for key, one in self._known.items() if key.step == step.id and key.iteration != STEP_TOTAL]
        return self._teller.step_ended(step, outcome, mine or [outcome], size=size)

    def _spent(self) -> None:
        total = self._ledger.cost_usd + sum(self._live_usd.values())
        if self._spends is not None:
            self._spends(total)
        else:
            self._teller.cost(total, self._ledger.tokens)

    def known(self, key: Key) -> UnitOutcome | None:
        return self._known.get(key)

    # -- requests from units -------------------------------------------------------------------------------------------

    def is_named_elsewhere(self, step: str, text: str) -> bool:
        return any(
            text in said
            for one in self._workflow.every_step
            if one.id != step
            for said in model.texts_in(one.parameters)
        )

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
            self._spent()
            total = self._ledger.cost_usd + sum(self._live_usd.values())
            if self._budget_usd is not None and total >= self._budget_usd:
                for spender in self._live_usd:
                    if spender in self._units and spender not in self._over_budget:
                        self._over_budget.add(spender)
                        self._units[spender].cancel()
        self._teller.acts(key, action)

    def _live_of(self, step: str) -> float:
        return sum(cost for key, cost in self._live_usd.items() if key.step == step)

    def begins(self, key: Key, given: Mapping[str, Any]) -> None:
        inputs = bodies.excerpt(given, self.host.redactor)
        self.host.service.executions.begin_soon(self.info, key, inputs)
        if key.iteration > 0 and key.item is None:
            self._teller.acts(key, "")  # so that watchers see which turn it is

    def retries(self, key: Key, attempt: int, wait_s: float, why: str) -> None:
        self._teller.retried(key, attempt, wait_s, why)

    def notify(self, key: Key, notice: Notice) -> None:
        self.host.notify(notice, step=key.step)

    def asks(self, key: Key, run_id: str, approval_id: str, asked: StepQuestion) -> None:
        self._waits.tell(key, run_id, approval_id, asked)

    async def asked(self, key: Key, asked: StepQuestion) -> tuple[str, Answer]:
        return await self._waits.ask(key, asked)

    async def earlier_answer(self, key: Key, asked: StepQuestion, *, is_for_all: bool) -> Answer | None:
        return await self._waits.earlier_answer(key, asked, is_for_all=is_for_all)

    async def give_back(self, approval_ids: Sequence[str]) -> None:
        await self._waits.give_back(approval_ids)

    async def subflow(
        self,
        key: Key,
        name: str,
        inputs: Mapping[str, Any],
        *,
        budget_usd: float | None,
        cost: Callable[[float], None],
        asking: step_attempt.Asking,
    ) -> StepDone:
        if self.depth + 1 >= DEPTH_MOST:
            raise StepFailed(
                f"{key.step}: {name} would be workflow number {self.depth + 2} inside each other; at most {DEPTH_MOST}",
                kind="too_deep",
                hint="Does it call itself?",
            )
        executions = self.host.service.executions
        child_id = uuid.uuid5(uuid.UUID(hex=self.id), str(key)).hex
        known = await self._child(child_id)
        loaded = await self.host.called(name, self._folder, known)
        access_requests.refuse_uncovered(
            loaded,
            self.host.access,
            workspace=self.host.workspace,
            environ=self.host.environ,
            leadrope_home=self.host.service.home,
        )
        values = loaded.inputs(inputs)
        if known is not None and known.state == "ended" and known.outcome != "stopped":
            # The process died after the inner execution ended and before its outcome was recorded here.
            return journal_mapping.as_done(
                key, name, journal_mapping.kept_result(key, name, await executions.texts(child_id))
            )
        if known is not None:
            info = await executions.claim(child_id)
            if loaded.digest != info.digest:  # refused at resume, unless the user accepted the change
                info = await executions.change_text(info, loaded.text, self.host.redactor, title=loaded.workflow.title)
        else:
            new = loaded.new(child_id, values, cwd=str(self.host.workspace), parent=self.id, parent_key=str(key))
            info = await executions.add(new, self.host.redactor)
        child = Execution(
            loaded.workflow,
            info,
            self.host,
            inputs=values,
            known=await journal_of(self.host, info.id),
            folder=Path(loaded.file).parent,
            depth=self.depth + 1,
            policies=self._policies_of(key),
            budget_usd=min((cap for cap in (budget_usd, self.budget_left()) if cap is not None), default=None),
            spends=cost,
            asking=asking,
            limits=self.limits,
        )
        return journal_mapping.as_done(key, name, await self._run_child(child))

    async def run_inside(
        self,
        key: Key,
        scope: Mapping[str, Any],
        *,
        budget_usd: float | None,
        cost: Callable[[float], None],
        asking: step_attempt.Asking,
    ) -> StepDone:
        """Run the steps of a group for one unit, as an execution with a journal of its own."""
        step = self._steps[key.step]
        workflow = model.Workflow(
            title=step.id,
            steps=step.steps,
            settings=model.WorkflowSettings(concurrency=self._workflow.settings.concurrency),
            dialect=self._workflow.dialect,
        )
        from leadrope.workflows.language import markdown_writer  # noqa: PLC0415  # needed by few workflows

        text = markdown_writer.write(workflow)
        executions = self.host.service.executions
        child_id = uuid.uuid5(uuid.UUID(hex=self.id), str(key)).hex
        info = await self._child(child_id)
        has_ended = info is not None and info.state == "ended" and info.outcome != "stopped"
        if info is None:
            # Its inputs are the values known here, and are taken from here again when it is resumed.
            new = NewExecution(
                id=child_id,
                name=step.id,
                title=step.id,
                text=text,
                cwd=str(self.host.workspace),
                parent=self.id,
                parent_key=str(key),
            )
            info = await executions.add(new, self.host.redactor)
        elif not has_ended:
            info = await executions.claim(child_id)
            if library.digest_of(text) != info.digest:  # the file was changed, and the user accepted the change
                info = await executions.change_text(info, text, self.host.redactor)
        child = Execution(
            workflow,
            info,
            self.host,
            inputs=scope,
            known=await journal_of(self.host, child_id),
            folder=self._folder,
            depth=self.depth,
            policies=self._policies_of(key),
            budget_usd=min((cap for cap in (budget_usd, self.budget_left()) if cap is not None), default=None),
            spends=cost,
            asking=asking,
            limits=self.limits,
            redacted=self._redacted,
        )
        # Ended: the process died between the end inside and the outcome out here.
        result = await child.replay() if has_ended else await self._run_child(child)
        if child._redacted - self._redacted:
            self._redacted.add(step.id)
        return journal_mapping.group_done(key, result, child.given())

    def given(self) -> dict[str, dict[str, Any]]:
        """Return the outputs of its steps, without those that failed."""
        states = {name: self._ledger.state(name) for name in self._values}
        return {name: self._values[name] for name, state in states.items() if state in ("succeeded", "degraded")}

    async def _child(self, child_id: str) -> ExecutionInfo | None:
        try:
            return await self.host.service.executions.get(child_id)
        except errors.UnknownRun:
            return None

    async def _run_child(self, child: Execution) -> ExecutionResult:
        self._children.add(child)
        try:
            return await child.run()
        finally:
            self._children.discard(child)

    def _policies_of(self, key: Key) -> tuple[dict[str, Any], ...]:
        own = self._steps[key.step].policy
        return (*self._policies, own) if own else self._policies

    # -- the end ------------------------------------------------------------------------------------------------------

    async def _result(self, plan: Plan, duration_s: float) -> ExecutionResult:
        outcome: ExecutionOutcome = plan.ending or "failed"
        approvals: tuple[PendingApproval, ...] = ()
        if self._stop_reason is not None:
            outcome = "stopped"
        elif self._parked:
            outcome = "waiting"
            approvals = await self._waits.pending()
        elif plan.ending is None:
            # With `only`, just these steps count, and one that did not run is not a success.
            states = {self._ledger.state(name) for name in self._only or ()}
            is_bad = not states <= {"succeeded", "skipped", "degraded"}
            outcome = "failed" if is_bad else "degraded" if "degraded" in states else "succeeded"
        outputs, missing = self._outputs(plan)
        if missing and plan.ending == "succeeded" and outcome == "succeeded":
            outcome = "degraded"
        return ExecutionResult(
            execution_id=self.id,
            name=self.info.name,
            outcome=outcome,
            outputs=outputs,
            missing_outputs=tuple(missing),
            missing_reasons=missing,
            stdout=next((one.name for one in self._workflow.outputs if one.stdout), ""),
            last=self._last() if outcome in ("succeeded", "degraded") and not self._workflow.outputs else None,
            steps=tuple(self._reported(step, plan) for step in self._workflow.steps),
            cost_usd=self._ledger.cost_usd,
            tokens=self._ledger.tokens,
            duration_s=round(duration_s, 3),
            approvals=approvals,
            reason=self._stop_reason or "",
            notices=self.host.notices if self.info.parent is None else (),
        )

    def _outputs(self, plan: Plan) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the outputs that have a value, and the reasons why the others have none."""
        found: dict[str, Any] = {}
        missing: dict[str, str] = {}
        scope = self._scope(plan=plan) if self._workflow.outputs else {}
        for output in self._workflow.outputs:
            try:
                found[output.name] = templates.resolve(output.source, scope)
            except templates.Unresolved as error:
                missing[output.name] = error.missing[0].reason
        return found, missing

    def _last(self) -> LastStep | None:
        """Return the output of the last step in the file that ran."""
        for step in reversed(self._workflow.steps):
            if step.id in self._values and self._ledger.state(step.id) in ("succeeded", "degraded"):
                # Nobody asked for this value by name, so it is shown as it is stored: without secrets.
                result = clean_value(main_output(step, self._values[step.id]), self.host.redactor.clean)
                return LastStep(step=step.id, result=result)
        return None

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


async def journal_of(host: ExecutionContext, execution_id: str) -> dict[Key, UnitOutcome]:
    return {Key(one.step, one.iteration, one.item): one for one in await host.service.executions.outcomes(execution_id)}
