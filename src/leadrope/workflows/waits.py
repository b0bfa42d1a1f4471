"""What an execution asks of people: kept under a token, answered here or anywhere, for days if need be."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from leadrope import errors
from leadrope.runs.flows import FlowInfo, Wait
from leadrope.workflows import happenings
from leadrope.workflows.host import Host
from leadrope.workflows.report import Waiting
from leadrope.workflows.steps.base import Asked, Parked, StepFailed, Word
from leadrope.workflows.units import Key

LOOK_S = 2.0
"""Between two looks for an answer from another process that rang no bell here."""


class Waits:
    def __init__(self, host: Host, info: FlowInfo) -> None:
        self._host = host
        self._info = info
        self._flows = host.service.flows

    async def ask(self, key: Key, asked: Asked) -> tuple[str, Word]:
        """A word that was given before, of somebody who is there, or of whoever answers elsewhere meanwhile.

        Parked is raised where nobody is there. The token comes with the word, for `give_back`.
        """
        if self._host.on_ask == "deny" and self._host.people is None:
            return "", Word(approved=False, by="leadrope", reason="nobody is there, and the workflow is not to wait")
        told = msgspec.to_builtins(asked)
        wait = await self._flows.add_wait(self._info, key, told, asked.fingerprint, self._host.redactor)
        if wait.state == "pending":
            self._host.show(
                happenings.StepWaits(
                    flow_id=self._info.id,
                    step=key.step,
                    iteration=key.iteration,
                    item=key.item,
                    token=wait.token,
                    asked=asked,
                )
            )
            wait = await self._heard(wait, asked)
        if not await self._flows.use_wait(wait.token):
            raise errors.WrongState(f"the answer {wait.token} was used already", hint="It is asked anew.")
        return wait.token, Word(approved=wait.state == "approved", choice=wait.choice, reason=wait.reason, by=wait.by)

    async def give_back(self, tokens: Sequence[str]) -> None:
        """Answers that led to nothing yet: the same questions find them again."""
        await self._flows.give_back([token for token in tokens if token])

    async def _heard(self, wait: Wait, asked: Asked) -> Wait:
        """The first word counts, wherever it comes from."""
        if self._host.people is None:
            raise self._parked(wait.token)
        here = asyncio.ensure_future(self._host.people.ask(asked, wait.token))
        elsewhere = asyncio.ensure_future(self._decided(wait.token))
        try:
            await asyncio.wait((here, elsewhere), return_when=asyncio.FIRST_COMPLETED)
            if elsewhere.done():
                return elsewhere.result()
            word = here.result()
            if word is None:
                raise self._parked(wait.token)
            return await self._decide(wait.token, word)
        finally:
            for task in (here, elsewhere):
                task.cancel()
            await asyncio.wait((here, elsewhere))

    def _parked(self, token: str) -> Exception:
        """An execution that could never go on is not put aside."""
        if "inputs" not in self._flows.texts(self._host.tag).redacted:
            return Parked(token)
        return StepFailed(
            "a person is needed who is not there, and the workflow cannot wait: one of its inputs is a secret, and "
            "secrets are not kept",
            kind="cannot_wait",
            hint="Run it at a terminal where somebody answers, or with --no-wait.",
        )

    async def _decide(self, token: str, word: Word) -> Wait:
        try:
            return await self._flows.decide_wait(
                token,
                "approved" if word.approved else "denied",
                choice=word.choice,
                reason=word.reason,
                by=word.by,
                redactor=self._host.redactor,
            )
        except errors.WrongState:
            return self._flows.wait(token)  # somebody else was quicker, and the first answer counts

    async def _decided(self, token: str) -> Wait:
        """Once somebody has answered it, in whatever process."""
        with self._host.service.store.bell.listen() as heard:
            while (wait := self._flows.wait(token)).state == "pending":
                await heard.wait(LOOK_S)
        return wait

    # -- what is open -------------------------------------------------------------------------------------------------

    def steps(self) -> set[str]:
        """Those that an answer is still missing for, be it inside a workflow that they call."""
        inside = {child.parent_key.partition("#")[0] for child in self._children(self._info.id)}
        return inside | {wait.step for wait in self._flows.waits(flow_id=self._info.id)}

    def open(self) -> tuple[Waiting, ...]:
        """All that is asked, here and inside."""
        found: list[Wait] = []
        todo = [self._info.id]
        while todo:
            flow_id = todo.pop()
            found += self._flows.waits(flow_id=flow_id)
            todo += [child.id for child in self._children(flow_id)]
        return tuple(
            Waiting(
                token=wait.token,
                step=wait.step,
                title=str(wait.asked.get("title", "")),
                detail=str(wait.asked.get("detail", "")),
                choices=tuple(wait.asked.get("choices", ())),
            )
            for wait in found
        )

    def _children(self, flow_id: str) -> list[FlowInfo]:
        return [child for child in self._flows.children(flow_id) if child.state == "waiting"]
