"""State that all steps of one execution share: service, folder, people, and the sandbox of their commands."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

import msgspec

from leadrope.core import home
from leadrope.core.connections import named_secrets
from leadrope.core.events import Notice
from leadrope.core.execution_events import (
    MOST_TEXT,
    ExecutionEvent,
    ExecutionRecord,
    ExecutionStarted,
    StepAnswered,
    StepEnded,
    StepWarning,
)
from leadrope.core.request_secrets import ambient_secrets
from leadrope.core.secrets.redaction import SHORTEST, Redactor
from leadrope.runs.executions.values import ExecutionInfo
from leadrope.runs.service import Service
from leadrope.runtime.commands import Commands
from leadrope.runtime.gate.approvers import Answer, Approver
from leadrope.runtime.sandboxing import access as accesses
from leadrope.runtime.sandboxing.access import Access
from leadrope.workflows import library
from leadrope.workflows.engine.called import CalledTexts
from leadrope.workflows.engine.gate import ExecutionGate
from leadrope.workflows.library import Loaded
from leadrope.workflows.people.shared_answers import SharedAnswers
from leadrope.workflows.steps.base import Caution, StepQuestion
from leadrope.workflows.tools.secret_values import SecretValues, spellings

if TYPE_CHECKING:
    from leadrope.runs.executions.protocols import EventLog
    from leadrope.workflows.engine.rehearsed import Rehearsal

Show = Callable[[ExecutionRecord], None]


class People(Protocol):
    """The people who can be asked while a workflow runs."""

    @property
    def approver(self) -> Approver | None:
        """Decides on the tool calls of agents."""
        ...

    async def ask(self, asked: StepQuestion, approval_id: str) -> Answer | None:
        """Return the answer, or None if it is left for later."""
        ...


def secrets_around(service: Service, environ: Mapping[str, str]) -> list[str]:
    """Return secrets that no execution may store: those of the environment and of the user's connections."""
    known = {**home.load_env(service.home), **environ}
    return [*ambient_secrets(known), *named_secrets(service.config.connections, known)]


class ExecutionContext:
    """Lives as long as the outermost workflow; nested workflows share it."""

    def __init__(
        self,
        service: Service,
        *,
        tag: str,
        workspace: Path,
        environ: Mapping[str, str],
        people: People | None = None,
        show: Show | None = None,
        on_ask: Literal["wait", "deny"] = "wait",
        secrets: Iterable[str] = (),
        concurrency: int = 10,
        access: Access | None = None,
        called: CalledTexts | None = None,
        takes_change: bool = False,
        rehearsal: Rehearsal | None = None,
    ) -> None:
        """`access` is what its commands may use besides the workspace.

        `on_ask` decides what happens if nobody is there to answer: the workflow is parked, or the answer is a denial.
        `called` holds the texts of called workflows; with `takes_change` a called workflow that has started continues
        with its changed file. `rehearsal` is set if a script plays the model.
        """
        self.rehearsal = rehearsal
        self.service = service
        self.tag = tag
        """The id of the outermost execution; every process that its commands start can be found by it."""
        self.workspace = workspace
        self.environ = environ
        self.people = people
        self._show = show
        self.gate = ExecutionGate()
        self.log: EventLog | None = None
        self.told: frozenset[tuple[str, str]] = frozenset()
        """Events that the log has from an earlier owner: executions that started, and their steps that ended."""
        self.answered: set[str] = set()
        """Approvals whose answers are already in the log."""
        self.on_ask = on_ask
        self._secrets = frozenset[str]()
        self.redactor = Redactor()
        self.learn(secrets)
        self.learn(secrets_around(service, environ))
        self.concurrency = concurrency
        self.access = access or Access()
        self.shared_answers = SharedAnswers()
        self.auto_approved: Mapping[str, str] = {}
        """Steps of the outermost file whose own approval was given in advance, with the choice made."""
        self.uses_cache = True
        """Whether outputs of earlier executions are reused; new ones are cached in any case."""
        given = accesses.command_variables(self.access, environ, service.home)
        self.learn(spellings(given[name] for name in self.access.secrets if name in given))
        self._called = called or CalledTexts()
        self._takes_change = takes_change
        self.notices: tuple[Caution, ...] = ()
        """Sandbox warnings, for the result."""
        self.parked: set[str] = set()
        """Approvals that steps of this execution, and of those it calls, are parked for."""
        self._commands: dict[bytes, asyncio.Future[Commands | None]] = {}
        """A future holds None if the task that was opening the commands was cancelled first."""
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def called(self, name: str, folder: Path, begun: ExecutionInfo | None) -> Loaded:
        """A called workflow: as it was when the execution began, or when it was called itself (`begun`)."""
        loaded = self._called.find(name, folder)
        if begun is not None and not self._takes_change:
            texts = await self.service.executions.texts(begun.id)
            if "text" not in texts.redacted:
                return library.read(texts.text, name=begun.name, file=begun.file)
        if loaded is not None:
            return loaded
        return library.load(library.find(name, folder=folder, leadrope_home=self.service.home))

    async def open_log(self, info: ExecutionInfo) -> None:
        """`info` is the outermost execution, as claimed."""
        executions = self.service.executions
        self.log = executions.log_of(info, redactor=lambda: self.redactor, show=self._show)
        self.log.watch = await self.service.watch_execution(info, is_answerable=self.on_ask == "wait")
        told = set()
        for kind in ("execution.started", "step.ended", "step.answered") if info.last_seq else ():
            for record in await executions.all_events(info, type_=kind):
                match record.event:
                    case ExecutionStarted(execution=execution):
                        told.add((execution, ""))
                    case StepEnded(execution=execution, step=step):
                        told.add((execution, step))
                    case StepAnswered(approval_id=approval_id):
                        self.answered.add(approval_id)
                    case _:
                        pass
        self.told = frozenset(told)

    def tell(self, *events: ExecutionEvent) -> None:
        if self.log is not None:
            self.log.tell(*events)

    def cut(self, text: str) -> str:
        """Shorten a text for an event."""
        return self.redactor.clean_start(text, MOST_TEXT)

    def notify(self, notice: Notice, *, step: str = "") -> None:
        """Report a sandbox notice for a step, or for all commands."""
        if notice.level != "warning":
            return
        message = self.cut(notice.message)
        caution = Caution(kind=notice.code, message=message)
        if caution not in self.notices:  # every server of a step reports the same
            self.notices = (*self.notices, caution)
            self.tell(StepWarning(step=step, kind=notice.code, message=message))

    async def close_commands(self) -> None:
        """Close the command pools: what they left behind is reported before the execution ends."""
        for opening in self._commands.values():
            if (commands := await asyncio.shield(opening)) is not None:
                await commands.begin_closing()

    def learn(self, secrets: Iterable[str]) -> None:
        """Redact these secrets in everything stored from now on; values too short to tell from a word are skipped."""
        new = {secret for secret in secrets if len(secret) >= SHORTEST} - self._secrets
        if new:
            self._secrets |= new
            self.redactor = Redactor(sorted(self._secrets))

    def secret_values(self) -> SecretValues:
        """Return the values that `${secret.NAME}` may have in a step."""
        allowed = (*self.access.secrets, *self.service.config.forward_env)
        return SecretValues(allowed, self.environ, self.service.home)

    def adopt(self, policies: tuple[dict[str, Any], ...], commands: Commands) -> None:
        """Use commands that are already open; whoever opened them closes them."""
        opened = self._commands[_named(policies)] = asyncio.get_running_loop().create_future()
        opened.set_result(commands)
        commands.tell_notices(self.notify)

    async def commands_under(self, policies: tuple[dict[str, Any], ...]) -> Commands:
        """Return the commands for these rules; all steps with the same rules share one sandbox."""
        name = _named(policies)
        while (opening := self._commands.get(name)) is not None:
            if (opened := await asyncio.shield(opening)) is not None:
                return opened
        opening = self._commands[name] = asyncio.get_running_loop().create_future()
        try:
            commands = Commands(
                self.workspace,
                policies=policies,
                environ=self.environ,
                config=self.service.config,
                home=self.service.home,
                tag=self.tag,
                access=self.access,
            )
            commands.tell_notices(self.notify)
            opening.set_result(await self._stack.enter_async_context(commands))
        except BaseException as error:
            del self._commands[name]
            if isinstance(error, Exception):  # raised in everyone who waits for the same rules as well
                opening.set_exception(error)
                opening.exception()
            else:  # only the opening task was cancelled: the next one tries again
                opening.set_result(None)
            raise
        return commands


def _named(policies: tuple[dict[str, Any], ...]) -> bytes:
    return msgspec.json.encode(policies, order="deterministic")
