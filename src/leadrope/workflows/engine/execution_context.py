"""What all steps of one execution share: the service, the folder, the people, the sandbox of their commands."""

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
    """Who sits before a workflow while it runs."""

    @property
    def approver(self) -> Approver | None:
        """Asked for the calls of agents."""
        ...

    async def ask(self, asked: StepQuestion, approval_id: str) -> Answer | None:
        """Their answer, or None where they leave it for later."""
        ...


def secrets_around(service: Service, environ: Mapping[str, str]) -> list[str]:
    """What no execution may keep, whoever prints it: secrets of the environment and of the user's connections."""
    known = {**home.load_env(service.home), **environ}
    return [*ambient_secrets(known), *named_secrets(service.config.connections, known)]


class ExecutionContext:
    """Lives as long as the outermost workflow; workflows inside it use the same one."""

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
        """`access`: what its commands may use besides the workspace.

        `on_ask`: where a person is needed and none is there, the workflow is put aside, or the answer is no. `called`
        are the texts of called workflows; `takes_change`: one that was begun continues by its changed file.
        `rehearsal`: its model is a script.
        """
        self.rehearsal = rehearsal
        self.service = service
        self.tag = tag
        """The id of the outermost execution; all that its commands start is found by it."""
        self.workspace = workspace
        self.environ = environ
        self.people = people
        self._show = show
        self.gate = ExecutionGate()
        self.log: EventLog | None = None
        self.told: frozenset[tuple[str, str]] = frozenset()
        """What the log has from an earlier claim: executions that were started, and steps of them that were ended."""
        self.answered: set[str] = set()
        """Approvals whose answer the log has."""
        self.on_ask = on_ask
        self._secrets = frozenset[str]()
        self.redactor = Redactor()
        self.learn(secrets)
        self.learn(secrets_around(service, environ))
        self.concurrency = concurrency
        self.access = access or Access()
        self.shared_answers = SharedAnswers()
        self.auto_approved: Mapping[str, str] = {}
        """Steps of the outermost file whose own approval was given beforehand, with their choice."""
        self.uses_cache = True
        """Whether outputs of earlier executions are used; new ones are cached in any case."""
        given = accesses.command_variables(self.access, environ, service.home)
        self.learn(spellings(given[name] for name in self.access.secrets if name in given))
        self._called = called or CalledTexts()
        self._takes_change = takes_change
        self.notices: tuple[Caution, ...] = ()
        """Warnings of the sandbox, for the result."""
        self.parked: set[str] = set()
        """Approvals that steps of this execution, and of those that it has called, were put aside for."""
        self._commands: dict[bytes, asyncio.Future[Commands | None]] = {}
        """None: whoever opened them was ended before they were there."""
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
        """`info` is the outermost execution, as it was claimed."""
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
        """The beginning of a long text for an event."""
        return self.redactor.clean_start(text, MOST_TEXT)

    def notify(self, notice: Notice, *, step: str = "") -> None:
        """What the user should know about the sandbox of a step, or of all commands."""
        if notice.level != "warning":
            return
        message = self.cut(notice.message)
        caution = Caution(kind=notice.code, message=message)
        if caution not in self.notices:  # each server of a step finds the same
            self.notices = (*self.notices, caution)
            self.tell(StepWarning(step=step, kind=notice.code, message=message))

    async def close_commands(self) -> None:
        """The last command has ended: what the others left behind is told before the execution ends."""
        for opening in self._commands.values():
            if (commands := await asyncio.shield(opening)) is not None:
                await commands.begin_closing()

    def learn(self, secrets: Iterable[str]) -> None:
        """From now on nothing that is kept holds these; what is too short to tell from a word is left aside."""
        new = {secret for secret in secrets if len(secret) >= SHORTEST} - self._secrets
        if new:
            self._secrets |= new
            self.redactor = Redactor(sorted(self._secrets))

    def secret_values(self) -> SecretValues:
        """What `${secret.NAME}` may stand for in a step."""
        allowed = (*self.access.secrets, *self.service.config.forward_env)
        return SecretValues(allowed, self.environ, self.service.home)

    def adopt(self, policies: tuple[dict[str, Any], ...], commands: Commands) -> None:
        """Commands that were opened before; whoever has opened them closes them."""
        opened = self._commands[_named(policies)] = asyncio.get_running_loop().create_future()
        opened.set_result(commands)
        commands.tell_notices(self.notify)

    async def commands_under(self, policies: tuple[dict[str, Any], ...]) -> Commands:
        """The commands of all steps with the same rules run side by side in the same sandbox."""
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
            if isinstance(error, Exception):  # told to whoever waits for the same rules as well
                opening.set_exception(error)
                opening.exception()
            else:  # only the one that opened was ended: the next one tries again
                opening.set_result(None)
            raise
        return commands


def _named(policies: tuple[dict[str, Any], ...]) -> bytes:
    return msgspec.json.encode(policies, order="deterministic")
