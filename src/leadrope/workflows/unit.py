"""One unit of a step, from its parameters to its outcome: filled, approved, tried, timed. Knows no plan, no journal."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from leadrope import errors
from leadrope.core.redaction import Redactor
from leadrope.core.request_secrets import is_secret_name
from leadrope.core.tools import ToolCall, fingerprint
from leadrope.policy.verdicts import Allow, Deny
from leadrope.runs.cleaning import as_json
from leadrope.runs.service import Service
from leadrope.runtime.approvals import Approver, DenyAll
from leadrope.runtime.commands import Commands
from leadrope.workflows import fits, links, model, templates
from leadrope.workflows.host import Host
from leadrope.workflows.steps import registry
from leadrope.workflows.steps.base import Asked, Done, Kind, Parked, StepFailed, Word, brief, told
from leadrope.workflows.units import Key

log = logging.getLogger("leadrope.workflows")

LAST_CLOCK_S = 15.0
"""How long after its own time-out a step that keeps it by itself is ended all the same."""
BACKOFF_MOST_S = 60.0
HIDDEN = "(a secret)"
LONGEST_WORD = 8
"""What is not longer may stand in any text."""
_HEALING = (errors.StoreBusy, errors.QueueFull)
Asking = Callable[[], contextlib.AbstractContextManager[None]]


class Owner(Protocol):
    """What a unit needs of the execution that it belongs to."""

    @property
    def id(self) -> str: ...
    @property
    def depth(self) -> int: ...
    @property
    def host(self) -> Host: ...
    def budget_left(self) -> float | None: ...
    def acts(self, key: Key, action: str, cost_usd: float) -> None: ...
    def retries(self, key: Key, attempt: int, wait_s: float, why: str) -> None: ...
    def asking(self) -> contextlib.AbstractContextManager[None]:
        """While a person is asked: stops the clocks of what this execution is the work of."""
        ...

    async def asked(self, key: Key, asked: Asked) -> tuple[str, Word]:
        """The token under which it was asked, and what was answered."""
        ...

    async def give_back(self, tokens: Sequence[str]) -> None: ...
    async def subflow(
        self,
        key: Key,
        name: str,
        inputs: Mapping[str, Any],
        *,
        budget_usd: float | None,
        cost: Callable[[float], None],
        asking: Asking,
    ) -> Done: ...


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    message: str
    hint: str | None = None
    outputs: dict[str, Any] = {}


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """What a unit came to, with all its attempts."""

    done: Done | None = None
    failed: Failed | None = None
    attempts: int = 1
    cost_usd: float = 0.0
    tokens: int = 0
    run_id: str | None = None
    cache_key: str | None = None
    """Under which its outputs may be kept, where the step says so."""


class Unit:
    """Also the Context that the kind sees."""

    def __init__(
        self,
        owner: Owner,
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
        self._scope = scope
        self.key = key
        self.policies = policies
        self.timeout_s: float | None = None
        self.budget_usd: float | None = None
        self._answers: list[str] = []
        self._commands: Commands | None = None
        self._clock: asyncio.Timeout | None = None
        self._questions = 0
        """That people have been asked, here and in workflows inside, and have not answered."""
        self._left_s: float | None = None
        """Of its time, while people are asked."""

    # -- the context --------------------------------------------------------------------------------------------------

    @property
    def flow_id(self) -> str:
        return self._owner.id

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
        return frozenset(self._step.branches or ())

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
    def host(self) -> Host:
        return self._owner.host

    @property
    def redactor(self) -> Redactor:
        return self._owner.host.redactor

    @property
    def approver(self) -> Approver | None:
        if self.host.people is not None:
            return self.host.people.approver
        return DenyAll("nobody is there, and the workflow is not to wait") if self.host.on_ask == "deny" else None

    @property
    def commands(self) -> Commands:
        if self._commands is None:
            raise RuntimeError("a unit's commands are there from its first attempt on")
        return self._commands

    def say(self, action: str, *, cost_usd: float = 0.0) -> None:
        self._owner.acts(self.key, action, cost_usd)

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
        word = await self.ask(
            Asked(
                kind="command",
                title=f"{self._step.id}: {call.name}",
                detail=told(call),
                reason=verdict.reason,
                fingerprint=fingerprint(call.name, call.input),
            )
        )
        if not word.approved:
            why = f": {word.reason}" if word.reason else ""
            raise StepFailed(f"{self._step.id}: {call.name} was not approved by {word.by}{why}", kind="denied")
        return call

    async def ask(self, asked: Asked) -> Word:
        # What is shown goes to terminals and logs; the fingerprint is of what is meant.
        values = msgspec.json.decode(as_json(asked.values, self.redactor))
        asked = msgspec.structs.replace(asked, values=values, detail=self.redactor.clean(asked.detail))
        try:
            with self.asking():
                token, word = await self._owner.asked(self.key, asked)
            self._answers.append(token)
            return word
        except Parked:
            # Nothing was done yet: what was answered before this question is not asked once more when it goes on.
            await self._owner.give_back(self._answers)
            raise

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """A person's time is not the step's: its clock stands still meanwhile, and so do those of steps around it."""
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

    async def subflow(self, name: str, inputs: Mapping[str, Any]) -> Done:
        return await self._owner.subflow(
            self.key,
            name,
            inputs,
            budget_usd=self.budget_usd,
            cost=lambda cost: self.say(name, cost_usd=cost),
            asking=self.asking,
        )

    # -- the work -----------------------------------------------------------------------------------------------------

    async def run(self, cached: Callable[[str], Done | None]) -> Tried:
        """Never raises for what the step did wrong; only for what ends the whole execution."""
        try:
            given = self._filled()
            config = self._config(given)
            # A person's word counts for the time when it was given.
            cache_key = self._cache_key(given) if self._step.cache and self._step.type != "approval" else None
            if cache_key is not None and (known := cached(cache_key)) is not None:
                return Tried(done=known)
            self._commands = await self.host.commands_under(self.policies)
            if self._kind.has_commands and not self._step.approval:
                await self._commands.warm()
            if self._step.approval:
                await self._approved(given)
        except (StepFailed, errors.LeadropeError) as error:
            return Tried(failed=_failed(error))
        tried = await self._attempts(config)
        return msgspec.structs.replace(tried, cache_key=cache_key) if cache_key else tried

    async def _attempts(self, config: Any) -> Tried:
        retry = self._step.retry
        cost, tokens, attempt = 0.0, 0, 0
        while True:
            attempt += 1
            try:
                done = await self._attempt(config)
            except StepFailed as failure:
                cost, tokens = cost + failure.cost_usd, tokens + failure.tokens
                if retry is None or attempt > retry.max or not failure.can_heal:
                    return Tried(
                        failed=_failed(failure), attempts=attempt, cost_usd=cost, tokens=tokens, run_id=failure.run_id
                    )
                self._answers.clear()  # they were for the attempt that was made
                wait_s = pause_before(retry, attempt)
                self._owner.retries(self.key, attempt + 1, wait_s, failure.message)
                await asyncio.sleep(wait_s)
            else:
                return Tried(
                    done=done,
                    attempts=attempt,
                    cost_usd=cost + done.cost_usd,
                    tokens=tokens + done.tokens,
                    run_id=done.run_id,
                )

    async def _attempt(self, config: Any) -> Done:
        limit = self.timeout_s
        if limit is not None and self._kind.ends_itself:
            limit += LAST_CLOCK_S
        try:
            async with asyncio.timeout(limit) as self._clock:
                done = await self._kind.run(config, self)
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
            raise StepFailed(
                error.message, kind=error.kind, hint=error.hint, can_heal=isinstance(error, _HEALING)
            ) from error
        except Exception as error:
            # The boundary of a unit: a mistake in one kind must not take the other steps along.
            log.exception("step %s failed inside leadrope", self._step.id)
            raise StepFailed(
                f"{self._step.id}: leadrope itself failed: {error!r}",
                kind="internal_error",
                hint="Report it, with the log.",
            ) from error
        finally:
            self._clock = None

    def _filled(self) -> dict[str, Any]:
        fill = self._kind.fill or templates.resolve
        is_literal = model.LITERAL.get(self._step.type, ())
        literal = {name: value for name, value in self._step.parameters.items() if name in is_literal}
        others = {name: value for name, value in self._step.parameters.items() if name not in literal}
        given = {**fill(others, self._scope), **literal}
        self.host.learn(secrets_in(self._kind, given))
        own = {key: getattr(self._step, key) for key in ("timeout", "budget")}
        said = {key: templates.resolve(value, self._scope) for key, value in own.items() if value is not None}
        self.timeout_s = _number(self._step.id, "timeout", said.get("timeout")) or self._kind.default_timeout_s
        budget = _number(self._step.id, "budget", said.get("budget"))
        left = self._owner.budget_left()
        self.budget_usd = min((value for value in (budget, left) if value is not None), default=None)
        fields = self._kind.config.__struct_fields__
        return {**given, **{key: value for key, value in said.items() if key in fields}}

    def _config(self, given: dict[str, Any]) -> Any:
        try:
            return msgspec.convert(_written(given, self._kind), self._kind.config, strict=False)
        except msgspec.ValidationError as error:
            message, _, path = str(error).partition(" - at `$.")
            where = f"{path.rstrip('`')}: " if path else ""
            raise StepFailed(f"{self._step.id}: {where}{message}", kind="bad_input") from None

    async def _approved(self, given: dict[str, Any]) -> None:
        word = await self.ask(
            Asked(
                kind="approval",
                title=f"{self._step.id} ({self._step.type}) is to start",
                detail=self._step.description,
                values={name: HIDDEN if name in self._kind.secret else value for name, value in given.items()},
                reason="the step says `approval: required`",
                fingerprint=_digest(self._step.id, self._step.type, given),
            )
        )
        if not word.approved:
            why = f": {word.reason}" if word.reason else ""
            raise StepFailed(f"{self._step.id}: not approved by {word.by}{why}", kind="denied")

    def _cache_key(self, given: dict[str, Any]) -> str:
        ways = sorted(self.branches)  # what a step chooses can depend on what there is to choose from
        return _digest(self._step.type, given, ways, list(self.policies), str(self.workspace))


def pause_before(retry: model.Retry, attempt: int) -> float:
    """Seconds between the attempt with this number and the next."""
    grows = 2 ** (attempt - 1) if retry.backoff == "exponential" else 1
    return min(retry.wait * grows, BACKOFF_MOST_S)


def _where(verdict: Deny) -> str:
    """The layer of a run is here the workflow's own; `policy explain` knows the others."""
    if verdict.layer == "run":
        return f"The rule is {verdict.rule}, of the policy in the workflow's Settings or in the step."
    return f"The rule is {verdict.rule} ({verdict.layer}); `leadrope policy explain` tells more."


def secrets_in(kind: Kind[Any], given: Mapping[str, Any]) -> list[str]:
    """Texts that are secrets by their place: parameters that are, variables and headers that are called so."""
    found: list[str] = []
    todo = [(name in kind.secret, value) for name, value in given.items()]
    while todo:
        is_secret, value = todo.pop()
        if isinstance(value, str):
            # `Bearer` is no secret, and would be blotted out wherever it stands.
            found += [text for text in (value, *value.split()) if is_secret and len(text) > LONGEST_WORD]
        elif isinstance(value, Mapping):
            todo += [(is_secret or _says_secret(str(name)), inner) for name, inner in value.items()]
        elif isinstance(value, list):
            todo += [(is_secret, inner) for inner in value]
    return found


def _says_secret(name: str) -> bool:
    return is_secret_name(name) or name.lower() in ("authorization", "proxy-authorization", "cookie")


def scope_of_unit(step: model.Step, key: Key, item: Any, carried: Mapping[str, Any]) -> dict[str, Any]:
    """The names that only this unit's templates know."""
    names: dict[str, Any] = {}
    if step.batch is not None and key.item is not None:
        names |= {step.batch.as_: item, "__index__": key.item}
    if step.loop is not None:
        names |= {"__iteration__": key.iteration, **carried}
    return names


def uses(step: model.Step) -> frozenset[str]:
    """The names that the step's templates begin with."""
    return frozenset(reference.root for reference in links.needs(step))


def _failed(error: errors.LeadropeError) -> Failed:
    outputs = error.outputs if isinstance(error, StepFailed) else {}
    return Failed(kind=error.kind, message=error.message, hint=error.hint, outputs=outputs)


def _checked(done: Done) -> Done:
    """Outputs go into a journal: what is no JSON is a mistake of the kind, told here and not at the disk."""
    try:
        return msgspec.structs.replace(done, outputs=msgspec.json.decode(msgspec.json.encode(done.outputs)))
    except (TypeError, ValueError, msgspec.EncodeError) as error:
        raise StepFailed(f"its outputs cannot be kept as JSON: {error}", kind="bad_output") from None


def _written(given: dict[str, Any], kind: Kind[Any]) -> dict[str, Any]:
    """A number or a truth that a template gave where only text fits, as it would stand in a text."""
    schema = registry.step_type(kind).parameters
    found = dict(given)
    for name, value in given.items():
        if isinstance(value, bool | int | float):
            wanted = schema["properties"].get(name)
            if isinstance(wanted, Mapping) and fits.types_of(wanted, schema) <= {"string", "null"}:
                found[name] = templates.as_text(value)
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
