"""Runs one unit of a step: resolves its parameters, asks for approval, retries, enforces its time-out.

Independent of the plan and the journal.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from leadrope import errors
from leadrope.core.events import Notice
from leadrope.core.request_parts import extra_dirs
from leadrope.core.request_secrets import is_secret_name
from leadrope.core.secrets.redaction import Redactor
from leadrope.core.tools import ToolCall, fingerprint
from leadrope.policy import read_only_folders
from leadrope.policy.offers import risk_of
from leadrope.policy.verdicts import Allow, Deny, Verdict
from leadrope.runs.records.redacted_rows import as_json
from leadrope.runs.service import Service
from leadrope.runtime.commands import Commands
from leadrope.runtime.gate.approvers import Answer, Approver, DenyAll
from leadrope.runtime.sandboxing.access import Access
from leadrope.storage.patience import is_of_the_store
from leadrope.workflows import links, model, routing
from leadrope.workflows.engine.execution_context import ExecutionContext
from leadrope.workflows.engine.unit_progress import Key
from leadrope.workflows.language import schema_match, templates
from leadrope.workflows.people.shown_calls import has_shown
from leadrope.workflows.start import auto_approval
from leadrope.workflows.steps import registry
from leadrope.workflows.steps.base import Kind, Parked, StepDone, StepFailed, StepQuestion, brief, told
from leadrope.workflows.tools.secret_values import spellings

if TYPE_CHECKING:
    from leadrope.workflows.engine.rehearsed import Rehearsal

log = logging.getLogger("leadrope.workflows")

LAST_CLOCK_S = 15.0
"""Grace period after the time-out of a step that enforces it itself; then the engine ends it."""
BACKOFF_MOST_S = 60.0
HIDDEN = "(a secret)"
LONGEST_WORD = 8
"""Words up to this length may occur in any text."""
_HEALING = (errors.QueueFull,)
Asking = Callable[[], contextlib.AbstractContextManager[None]]


class AttemptOwner(Protocol):
    """What a unit needs from the execution it belongs to."""

    @property
    def id(self) -> str: ...
    @property
    def depth(self) -> int: ...
    @property
    def host(self) -> ExecutionContext: ...
    def budget_left(self) -> float | None: ...
    def is_named_elsewhere(self, step: str, text: str) -> bool: ...
    def acts(self, key: Key, action: str, cost_usd: float) -> None: ...
    def begins(self, key: Key, given: Mapping[str, Any]) -> None:
        """Report the start, with the resolved parameters; empty if they could not be resolved."""
        ...

    def retries(self, key: Key, attempt: int, wait_s: float, why: str) -> None: ...
    def notify(self, key: Key, notice: Notice) -> None: ...
    def asks(self, key: Key, run_id: str, approval_id: str, asked: StepQuestion) -> None: ...
    def asking(self) -> contextlib.AbstractContextManager[None]:
        """Stops the clocks of enclosing executions while a person is asked."""
        ...

    async def asked(self, key: Key, asked: StepQuestion) -> tuple[str, Answer]:
        """Return the approval's id and the answer."""
        ...

    async def earlier_answer(self, key: Key, asked: StepQuestion, *, is_for_all: bool) -> Answer | None:
        """To the same question of another unit; raises Parked while that is still open and nobody is here."""
        ...

    async def give_back(self, approval_ids: Sequence[str]) -> None: ...
    async def subflow(
        self,
        key: Key,
        name: str,
        inputs: Mapping[str, Any],
        *,
        budget_usd: float | None,
        cost: Callable[[float], None],
        asking: Asking,
    ) -> StepDone: ...
    async def run_inside(
        self,
        key: Key,
        scope: Mapping[str, Any],
        *,
        budget_usd: float | None,
        cost: Callable[[float], None],
        asking: Asking,
    ) -> StepDone: ...


class StepFailure(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    message: str
    hint: str | None = None
    outputs: dict[str, Any] = {}
    code: int | None = None


class UnitResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a unit, over all its attempts."""

    done: StepDone | None = None
    failed: StepFailure | None = None
    attempts: int = 1
    cost_usd: float = 0.0
    tokens: int = 0
    run_id: str | None = None
    cache_key: str | None = None
    """Key for caching the outputs, if the step is cached."""


class Unit:
    """Also implements the StepContext that the kind receives."""

    def __init__(
        self,
        owner: AttemptOwner,
        step: model.Step,
        kind: Kind[Any],
        key: Key,
        *,
        scope: Mapping[str, Any],
        policies: tuple[dict[str, Any], ...],
    ) -> None:
        self._owner = owner
        self._step = step
        self._kind = kind
        self._scope = _counted_from_one(scope) if scope.get(templates.DIALECT) == "pflow" else scope
        self.key = key
        self.policies = policies
        self.timeout_s: float | None = None
        self.budget_usd: float | None = None
        self.used_secrets: tuple[str, ...] = ()
        self._attempt_number = 0
        self._runs = 0
        """Number of agent runs in this attempt."""
        self._answers: list[str] = []
        """Answered approvals that this attempt has used."""
        self._approved_values: dict[str, Any] | None = None
        """The parameters that a person has seen and approved, if the step says `approval: required`."""
        self._commands: Commands | None = None
        self._clock: asyncio.Timeout | None = None
        self._questions = 0
        """Number of open questions, here and in nested workflows."""
        self._left_s: float | None = None
        """Time left while people are asked."""

    # -- the context --------------------------------------------------------------------------------------------------

    @property
    def execution_id(self) -> str:
        return self._owner.id

    @property
    def outermost_id(self) -> str:
        return self._owner.host.tag

    def run_name(self) -> str:
        self._runs += 1
        return f"{self.key}:{self._attempt_number}:{self._runs}"

    @property
    def workspace(self) -> Path:
        return self._owner.host.workspace

    @property
    def environ(self) -> Mapping[str, str]:
        return self._owner.host.environ

    @property
    def home(self) -> Path:
        return self._owner.host.service.home

    @property
    def branches(self) -> frozenset[str]:
        return frozenset(routing.ways(self._step, self._dialect) or ())

    @property
    def _dialect(self) -> model.Dialect:
        return "pflow" if self._scope.get(templates.DIALECT) == "pflow" else "flow"

    @property
    def depth(self) -> int:
        return self._owner.depth

    @property
    def sources(self) -> Mapping[str, Any]:
        return self._step.parameters

    @property
    def service(self) -> Service:
        return self._owner.host.service

    @property
    def host(self) -> ExecutionContext:
        return self._owner.host

    @property
    def access(self) -> Access:
        return self._owner.host.access

    @property
    def rehearsal(self) -> Rehearsal | None:
        return self.host.rehearsal

    @property
    def redactor(self) -> Redactor:
        return self._owner.host.redactor

    @property
    def approver(self) -> Approver | None:
        if self.host.people is not None:
            return self.host.people.approver
        return (
            DenyAll("no one can answer, and the workflow was started without waiting")
            if self.host.on_ask == "deny"
            else None
        )

    @property
    def commands(self) -> Commands:
        if self._commands is None:
            raise RuntimeError("a unit's commands are there from its first attempt on")
        return self._commands

    def retries(self, attempt: int, wait_s: float, why: str) -> None:
        self._owner.retries(self.key, attempt, wait_s, why)

    def is_named_elsewhere(self, text: str) -> bool:
        return self._owner.is_named_elsewhere(self._step.id, text)

    def say(self, action: str, *, cost_usd: float = 0.0) -> None:
        self._owner.acts(self.key, action, cost_usd)

    def notify(self, notice: Notice) -> None:
        self._owner.notify(self.key, notice)

    def asks(self, run_id: str, approval_id: str, asked: StepQuestion) -> None:
        self._owner.asks(self.key, run_id, approval_id, asked)

    async def permit(self, call: ToolCall, *, is_own: bool = True) -> ToolCall:
        has_person = self.host.on_ask == "wait"
        verdict = self.commands.judge(call, is_own=is_own, has_person=has_person)
        if isinstance(verdict, Allow):
            return call
        if isinstance(verdict, Deny):
            raise StepFailed(
                f"{self._step.id}: the policy forbids `{brief(told(call))}`: {verdict.reason}",
                kind="denied",
                hint=_where(verdict),
            )
        if self._approved_values is not None and has_shown(self._approved_values, call, self.workspace):
            return call  # a person has approved exactly this already
        asked = self._about(call, verdict)
        answer = await self._ask_once(asked) if is_own and self._is_the_same_for_all(call) else await self.ask(asked)
        if not answer.approved:
            why = f": {answer.reason}" if answer.reason else ""
            raise StepFailed(f"{self._step.id}: {call.name} was not approved by {answer.by}{why}", kind="denied")
        return call if answer.edited is None else self._edited(call, answer.edited)

    def _about(self, call: ToolCall, verdict: Verdict) -> StepQuestion:
        shown = msgspec.structs.replace(call, input=msgspec.json.decode(as_json(call.input, self.redactor)))
        return StepQuestion(
            kind="tool_call",
            title=f"{self._step.id}: {call.name}",
            detail=told(call),
            reason=verdict.reason,
            rule=verdict.rule,
            layer=verdict.layer,
            call=shown,
            risk=risk_of(call, (str(self.workspace),)),
            reading=self.redactor.clean(verdict.reading),
            # An edit of the redacted call would put the redaction marks into it.
            is_editable=self._step.type != "code" and shown.input == call.input,
            fingerprint=fingerprint(call.name, call.input),
        )

    def _edited(self, call: ToolCall, input_: dict[str, Any]) -> ToolCall:
        """Apply a person's edit, which must not turn the call into one that the rules forbid."""
        call = msgspec.structs.replace(call, input=input_)
        verdict = self.commands.judge(call, is_own=False, has_person=True)
        if isinstance(verdict, Deny):
            raise StepFailed(
                f"{self._step.id}: the edited call is forbidden: {verdict.reason}", kind="denied", hint=_where(verdict)
            )
        return call

    def _is_the_same_for_all(self, call: ToolCall) -> bool:
        """Return whether an answer covers all items: always for code, the author's text; for commands if equal."""
        return self._step.type == "code" or (self._step.batch is not None and call.name == "Bash")

    async def _ask_once(self, asked: StepQuestion) -> Answer:
        """Ask once per distinct question: code for the whole execution, commands for the items of this batch."""
        is_for_all = self._step.type == "code"
        place = "" if is_for_all else f"{self.execution_id} {self._step.id} {self.key.iteration} "
        with self.asking():  # also while another unit asks
            return await self.host.shared_answers.ask(
                place + asked.fingerprint,
                lambda: self._owner.earlier_answer(self.key, asked, is_for_all=is_for_all),
                lambda: self.ask(asked),
            )

    def _approved_beforehand(self, asked: StepQuestion) -> Answer | None:
        # Called workflows may have steps of the same name, which were not meant.
        return auto_approval.answer(self.host.auto_approved, self._step.id, asked) if self.depth == 0 else None

    async def ask(self, asked: StepQuestion) -> Answer:
        if given := self._approved_beforehand(asked):
            return given
        asked = self._shown(asked)
        try:
            with self.asking():
                approval_id, answer = await self._owner.asked(self.key, asked)
            self._answers.append(approval_id)
            return answer
        except Parked:
            # Nothing has been done yet: hand back the answers used so far, so that they are not asked for again on
            # resume.
            await self._owner.give_back(self._answers)
            raise

    def _shown(self, asked: StepQuestion) -> StepQuestion:
        """Redact what is shown, since it goes to terminals and logs; the fingerprint covers the original."""
        values = msgspec.json.decode(as_json(asked.values, self.redactor))
        return msgspec.structs.replace(asked, values=values, detail=self.redactor.clean(asked.detail))

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """Stop the step's clock, and those of enclosing steps, while a person is asked."""
        now = asyncio.get_running_loop().time
        with self._owner.asking():
            self._questions += 1
            if self._questions == 1 and self._clock is not None and (when := self._clock.when()) is not None:
                self._left_s = when - now()
                self._clock.reschedule(None)
            try:
                yield
            finally:
                self._questions -= 1
                if not self._questions and self._clock is not None and self._left_s is not None:
                    self._clock.reschedule(now() + self._left_s)
                    self._left_s = None

    async def subflow(self, name: str, inputs: Mapping[str, Any]) -> StepDone:
        return await self._owner.subflow(
            self.key,
            name,
            inputs,
            budget_usd=self.budget_usd,
            cost=lambda cost: self.say(name, cost_usd=cost),
            asking=self.asking,
        )

    async def run_inside(self) -> StepDone:
        return await self._owner.run_inside(
            self.key,
            self._scope,
            budget_usd=self.budget_usd,
            cost=lambda cost: self.say("", cost_usd=cost),
            asking=self.asking,
        )

    # -- the attempts --------------------------------------------------------------------------------------------------

    async def run(self, cached: Callable[[str], Awaitable[StepDone | None]]) -> UnitResult:
        """Never raises for what the step did wrong; only for what ends the whole execution."""
        try:
            given = self._given()
            config = self._config(given)
            cache_key = self._cache_key(given) if self._is_cacheable else None
            if cache_key is not None and (known := await cached(cache_key)) is not None:
                return UnitResult(done=known)
            self._commands = await self.host.commands_under(self.policies)
            if self._kind.has_commands and not self._step.approval:
                await self._commands.warm()
            if self._step.approval:
                await self._approved(given)
        except (StepFailed, errors.LeadropeError) as error:
            if is_of_the_store(error):
                raise
            return UnitResult(failed=_failed(error))
        tried = await self._attempts(config)
        return msgspec.structs.replace(tried, cache_key=cache_key) if cache_key else tried

    def looked_at(self) -> tuple[Any, str | None]:
        """Return the configuration and the cache key, if any; raises if a value is unknown. Starts nothing."""
        given = self._filled()
        return self._config(given), self._cache_key(given) if self._is_cacheable else None

    @property
    def _is_cacheable(self) -> bool:
        # An approval counts only at the time it is given, and a group has no parameters to compute a key from. Scripted
        # outputs must never be mistaken for a step's own later.
        is_real = self.rehearsal is None
        return is_real and bool(self._step.cache) and self._step.type not in ("approval", model.GROUP)

    async def _attempts(self, config: Any) -> UnitResult:
        retry = self._step.retry
        cost, tokens, attempt = 0.0, 0, 0
        while True:
            attempt += 1
            self._attempt_number, self._runs = attempt, 0
            try:
                done = await self._attempt(config)
            except StepFailed as failure:
                cost, tokens = cost + failure.cost_usd, tokens + failure.tokens
                if retry is None or attempt >= retry.max or not self._can_heal(failure, retry):
                    return UnitResult(
                        failed=_failed(failure), attempts=attempt, cost_usd=cost, tokens=tokens, run_id=failure.run_id
                    )
                self._answers.clear()  # they were for the previous attempt
                wait_s = pause_before(retry, attempt)
                self._owner.retries(self.key, attempt + 1, wait_s, failure.message)
                await asyncio.sleep(wait_s)
            else:
                return UnitResult(
                    done=done,
                    attempts=attempt,
                    cost_usd=cost + done.cost_usd,
                    tokens=tokens + done.tokens,
                    run_id=done.run_id,
                )

    def _can_heal(self, failure: StepFailed, retry: model.Retry) -> bool:
        is_pflow_code = self._dialect == "pflow" and failure.kind == "code_failed"
        return failure.can_heal or is_retried(failure, retry) or is_pflow_code

    async def _attempt(self, config: Any) -> StepDone:
        limit = self.timeout_s
        if limit is not None and self._kind.ends_itself:
            limit += LAST_CLOCK_S
        try:
            await self.host.gate.passed()
            async with asyncio.timeout(limit) as self._clock:
                with self.host.gate.clock(self.asking):
                    scripted = self.rehearsal.outputs(self._step.id) if self.rehearsal is not None else None
                    done = await self._kind.run(config, self) if scripted is None else StepDone(outputs=scripted)
            return _checked(done)
        except TimeoutError:
            if self._clock is None or not self._clock.expired():
                raise StepFailed(f"{self._step.id}: it took too long", kind="timed_out", can_heal=True) from None
            raise StepFailed(
                f"{self._step.id}: not done after {self.timeout_s:g} s",
                kind="timed_out",
                hint="Raise its `timeout`, or do less in one step.",
                can_heal=True,
            ) from None
        except (StepFailed, Parked):
            raise
        except errors.LeadropeError as error:
            if is_of_the_store(error):
                raise  # not the outcome of a step
            raise StepFailed(
                error.message, kind=error.kind, hint=error.hint, can_heal=isinstance(error, _HEALING)
            ) from error
        except Exception as error:
            # Error boundary of a unit: a bug in one kind must not take the other steps down.
            log.exception("step %s failed inside leadrope", self._step.id)
            raise StepFailed(
                f"{self._step.id}: leadrope itself failed: {error!r}",
                kind="internal_error",
                hint="This is a bug in leadrope. LEADROPE_DEBUG=1 shows where it happened.",
            ) from error
        finally:
            self._clock = None

    def _given(self) -> dict[str, Any]:
        given: dict[str, Any] = {}
        try:
            given = self._filled()
        finally:
            self._owner.begins(self.key, self._without_secrets(given))
        return given

    def _without_secrets(self, given: Mapping[str, Any]) -> dict[str, Any]:
        return {name: HIDDEN if name in self._kind.secret else value for name, value in given.items()}

    def _filled(self) -> dict[str, Any]:
        fill = self._kind.fill or templates.resolve
        is_literal = model.LITERAL.get(self._step.type, ())
        literal = {name: value for name, value in self._step.parameters.items() if name in is_literal}
        others = {name: value for name, value in self._step.parameters.items() if name not in literal}
        secrets = self.host.secret_values()
        names = self._names()
        # An input or step named `secret` takes precedence.
        scope = {model.SECRET: secrets, **names} if self._kind.secret_references else names
        given = {**self._opened(fill(others, scope)), **literal}
        self.used_secrets = tuple(dict.fromkeys(secrets.used))
        self.host.learn((*secrets_in(self._kind, given), *spellings(self.used_secrets)))
        own = {key: getattr(self._step, key) for key in ("timeout", "budget")}
        said = {key: templates.resolve(value, self._scope) for key, value in own.items() if value is not None}
        self.timeout_s = _number(self._step.id, "timeout", said.get("timeout")) or self._kind.default_timeout_s
        budget = _number(self._step.id, "budget", said.get("budget"))
        left = self._owner.budget_left()
        self.budget_usd = min((value for value in (budget, left) if value is not None), default=None)
        fields = self._kind.config.__struct_fields__
        return {**given, **{key: value for key, value in said.items() if key in fields}}

    def _names(self) -> Mapping[str, Any]:
        """Return the names that the templates of its parameters may use."""
        own = self._step.parameters.get(self._kind.names_in) if self._kind.names_in else None
        return {**self._scope, **templates.resolve(own, self._scope)} if isinstance(own, Mapping) else self._scope

    def _opened(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Parse texts that are JSON, inside the maps and lists of parameters that accept JSON; in pflow's dialect in
        all.
        """
        kind, written = self._kind, self._step.parameters
        names = set(written) if self._dialect == "pflow" else set(kind.opens)
        schema = registry.step_type(kind).parameters

        def allows(path: tuple[str, ...]) -> bool:
            kinds = schema_match.types_at(schema, path, schema)
            return not kinds or bool(kinds & {"array", "object"})

        return {
            name: templates.opened_inside(written.get(name), value, allows=allows, path=(name,))
            if name in names and name not in kind.opens_itself
            else value
            for name, value in given.items()
        }

    def _config(self, given: dict[str, Any]) -> Any:
        try:
            return msgspec.convert(_written(given, self._kind), self._kind.config, strict=False)
        except msgspec.ValidationError as error:
            message, _, path = str(error).partition(" - at `$.")
            where = f"{path.rstrip('`')}: " if path else ""
            raise StepFailed(f"{self._step.id}: {where}{message}", kind="bad_input") from None

    async def _approved(self, given: dict[str, Any]) -> None:
        asked = self._shown(
            StepQuestion(
                kind="step",
                title=f"{self._step.id} ({self._step.type}) is to start",
                detail=self._step.description,
                values=self._without_secrets(given),
                reason="the step says `approval: required`",
                rule="approval",
                layer="workflow",
                fingerprint=_digest(self._step.id, self._step.type, given),
            )
        )
        answer = await self.ask(asked)
        if not answer.approved:
            why = f": {answer.reason}" if answer.reason else ""
            raise StepFailed(f"{self._step.id}: not approved by {answer.by}{why}", kind="denied")
        if self._approved_beforehand(asked) is None:
            self._approved_values = asked.values  # as shown to the person

    def _cache_key(self, given: dict[str, Any]) -> str:
        ways = sorted(self.branches)  # a step's choice can depend on its branches
        return _digest(self._step.type, given, ways, list(self.policies), str(self.workspace))


def _counted_from_one(scope: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the scope with loop turns counted from one, as pflow does."""
    turn = scope.get("__iteration__")
    return {**scope, "__iteration__": turn + 1} if isinstance(turn, int) else scope


def pause_before(retry: model.Retry, attempt: int) -> float:
    """Return the seconds between this attempt and the next."""
    grows = 2 ** (attempt - 1) if retry.backoff == "exponential" else 1
    return min(retry.wait * grows, BACKOFF_MOST_S)


def is_retried(failure: StepFailed, retry: model.Retry) -> bool:
    """Whether the step's `retry` covers this failure of its own program."""
    if failure.kind == "command_failed":
        return "exit_code" in retry.retry_on or failure.outputs.get("exit_code") in retry.retry_on
    return failure.kind == "code_failed" and "exit_code" in retry.retry_on


def _where(verdict: Deny) -> str:
    """Name the layer of a rule. The run layer is the workflow's own here; `policy explain` knows the others."""
    if verdict.rule == read_only_folders.RULE:
        return f"Give the folder without {extra_dirs.READ_ONLY}, or write into the workspace."
    if verdict.layer == "run":
        return f"The rule is {verdict.rule}, of the policy in the workflow's Settings or in the step."
    return f"The rule is {verdict.rule} ({verdict.layer}); see `leadrope policy explain`."


def secrets_in(kind: Kind[Any], given: Mapping[str, Any]) -> list[str]:
    """Return texts that are secret by position: secret parameters, and variables and headers with such names."""
    found: list[str] = []
    todo = [(name in kind.secret, value) for name, value in given.items()]
    while todo:
        is_secret, value = todo.pop()
        if isinstance(value, str):
            # `Bearer` is not a secret and would be redacted wherever it occurs.
            found += [text for text in (value, *value.split()) if is_secret and len(text) > LONGEST_WORD]
        elif isinstance(value, Mapping):
            todo += [(is_secret or _says_secret(str(name)), inner) for name, inner in value.items()]
        elif isinstance(value, list):
            todo += [(is_secret, inner) for inner in value]
    return found


def _says_secret(name: str) -> bool:
    return is_secret_name(name) or name.lower() in ("authorization", "proxy-authorization", "cookie")


def scope_of_unit(step: model.Step, key: Key, item: Any, carried: Mapping[str, Any]) -> dict[str, Any]:
    """Return the names that only this unit's templates can use."""
    names: dict[str, Any] = {}
    if step.batch is not None and key.item is not None:
        names |= {step.batch.as_: item, "__index__": key.item}
    if step.loop is not None:
        names |= {"__iteration__": key.iteration, **carried}
    return names


def uses(step: model.Step) -> frozenset[str]:
    """Return the names that the step's own templates start with; nested steps are checked when they start."""
    return frozenset(reference.root for reference in templates.references(links.templated(step)))


def _failed(error: errors.LeadropeError) -> StepFailure:
    if not isinstance(error, StepFailed):
        return StepFailure(kind=error.kind, message=error.message, hint=error.hint)
    return StepFailure(kind=error.kind, message=error.message, hint=error.hint, outputs=error.outputs, code=error.code)


def _checked(done: StepDone) -> StepDone:
    """Check that outputs are JSON: a mistake of the kind is reported here, not when the journal is written."""
    try:
        return msgspec.structs.replace(done, outputs=msgspec.json.decode(msgspec.json.encode(done.outputs)))
    except (TypeError, ValueError, msgspec.EncodeError) as error:
        raise StepFailed(f"its outputs cannot be stored as JSON: {error}", kind="bad_output") from None


def _written(given: dict[str, Any], kind: Kind[Any]) -> dict[str, Any]:
    """Convert template values to what the parameter expects: a number to text where only text fits, JSON to a list or
    map.
    """
    schema = registry.step_type(kind).parameters
    found = dict(given)
    for name, value in given.items():
        wanted = schema["properties"].get(name)
        kinds = schema_match.types_of(wanted, schema) - {"null"} if isinstance(wanted, Mapping) else frozenset()
        if isinstance(value, bool | int | float) and kinds == {"string"}:
            found[name] = templates.as_text(value)
        elif isinstance(value, str) and kinds and kinds <= {"array", "object"}:
            found[name] = templates.opened(value)
    return found


def _number(step: str, key: str, value: Any) -> float | None:
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if isinstance(value, bool) or not 0 < number < 1e9:
        raise StepFailed(f"{step}: {key} is {templates.as_text(value)!r}, and not a number above 0", kind="bad_input")
    return number


def _digest(*parts: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()
