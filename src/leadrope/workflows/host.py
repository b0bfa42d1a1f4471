"""What all steps of one execution share: the service, the folder, the people, the walls of their commands."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, Self

import msgspec

from leadrope.core.redaction import SHORTEST, Redactor
from leadrope.runs.service import Service
from leadrope.runtime.approvals import Approver
from leadrope.runtime.commands import Commands
from leadrope.workflows.happenings import Happening
from leadrope.workflows.steps.base import Asked, Word

Show = Callable[[Happening], None]


class People(Protocol):
    """Who sits before a workflow while it runs."""

    @property
    def approver(self) -> Approver | None:
        """Asked for the calls of agents."""
        ...

    async def ask(self, asked: Asked, token: str) -> Word | None:
        """Their word, or None where they leave it for later."""
        ...


class Host:
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
    ) -> None:
        """`on_ask`: where a person is needed and none is there, the workflow is put aside, or the answer is no."""
        self.service = service
        self.tag = tag
        """The id of the outermost execution; all that its commands start is found by it."""
        self.workspace = workspace
        self.environ = environ
        self.people = people
        self.show: Show = show or _unseen
        self.on_ask = on_ask
        self._secrets = frozenset[str]()
        self.redactor = Redactor()
        self.learn(secrets)
        self.concurrency = concurrency
        self._commands: dict[bytes, asyncio.Future[Commands | None]] = {}
        """None: whoever opened them was ended before they were there."""
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def learn(self, secrets: Iterable[str]) -> None:
        """From now on nothing that is kept holds these; what is too short to tell from a word is left aside."""
        new = {secret for secret in secrets if len(secret) >= SHORTEST} - self._secrets
        if new:
            self._secrets |= new
            self.redactor = Redactor(sorted(self._secrets))

    def adopt(self, policies: tuple[dict[str, Any], ...], commands: Commands) -> None:
        """Commands that were opened before; whoever has opened them closes them."""
        opened = self._commands[_named(policies)] = asyncio.get_running_loop().create_future()
        opened.set_result(commands)

    async def commands_under(self, policies: tuple[dict[str, Any], ...]) -> Commands:
        """The commands of all steps with the same rules run side by side behind the same walls."""
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
            )
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


def _unseen(happening: Happening) -> None:
    """Nobody watches."""
