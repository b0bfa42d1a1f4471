"""Many turns with one agent: its process stays between them, and comes back by itself when it had to go.

    async with open_conversation(mode="plan") as conversation:
        reply = await conversation.ask("What is in this folder?")
        async for recorded in conversation.say("And which file is the largest?"):
            print(recorded.event)

Starts no agent itself; every process is a run's, with the run's gate and one budget for all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from types import TracebackType
from typing import Any, Self, Unpack

import msgspec

from leadrope import errors
from leadrope.core import actors, events, home
from leadrope.core import config as configs
from leadrope.core.cost.usage import CostLabel, sum_label
from leadrope.core.fold import Fold
from leadrope.core.request import Mode, ModeAlias, RunRequest
from leadrope.core.request_checks import normal_mode, with_tuples
from leadrope.core.request_forms import RunFields
from leadrope.core.result import RunResult
from leadrope.core.secrets.redaction import Redactor
from leadrope.runtime import retries
from leadrope.runtime.gate.approvers import as_approver
from leadrope.runtime.keywords import CallArguments, RunKeywords, RunOptions, read
from leadrope.runtime.limits.budget import Meter
from leadrope.runtime.run import Run, opened

IDLE_CLOSE_S = 600.0
"""A waiting agent holds more than 100 MB; starting it again costs about half a second."""

LEAVE_S = 10.0
"""For an agent to end by itself before it is ended."""

WAITING = "waiting_for_limit"
"""The code of the notice before a wait for the reset of a usage limit."""


Opener = Callable[..., Awaitable[Run]]
"""Starts a run as `open_run` would, with the same arguments; the service's own also keeps it."""


def open_conversation(
    request: RunRequest | None = None,
    *,
    idle_close_s: float | None = None,
    opener: Opener | None = None,
    **keywords: Unpack[RunKeywords],
) -> Conversation:
    """Prepare a conversation; the agent is started with the first thing that is said.

    The request is that of a run without its prompt, or its fields are given as keywords; the other keywords are those
    of `open_run`. `idle_close_s` ends a process that has waited for so long (0: never); what is said next starts
    another one in the same session. Left out: `[run] idle_close_s` of the config, else 600. With an `opener` the
    request is used as it is, without `[run]`.
    """
    given: object = request
    words = given if isinstance(given, str) else request.prompt if request is not None else ""
    if words or "prompt" in keywords:
        raise errors.BadValue("prompt", "a conversation's words are given with say() or ask()", hint="Leave it out.")
    asked = read(RunRequest(prompt="") if request is None else request, keywords)
    return Conversation(asked, idle_close_s=idle_close_s, opener=opener)


class Conversation:
    """One at a time: `say` or `ask`, and when that is over the next one."""

    def __init__(
        self,
        asked: CallArguments,
        *,
        idle_close_s: float | None,
        opener: Opener | None = None,
    ) -> None:
        self._request = request = asked.request
        self._named = asked.named
        self._options = asked.options
        self._asked = asked
        self._config: configs.Config | None = None
        self._opener = opener
        self._idle_close_s = idle_close_s
        self._run: Run | None = None
        self._meter: Meter | None = None
        self._started: events.Recorded | None = None
        """How the process of now has described its session."""
        self._idle_timer: asyncio.TimerHandle | None = None
        self._closing: asyncio.Task[None] | None = None
        self._interrupted = asyncio.Event()
        self._is_speaking = False
        self._is_closed = False
        self.session_id: str | None = None if request.fork else request.resume
        """The session, once the agent has told it."""
        self.turns = 0
        self.starts = 0
        """Processes so far; one, unless it was closed or died between two turns."""
        self.cost_usd = 0.0
        """Of all turns."""
        self.cost_label: CostLabel = "estimate"
        self.last: RunResult | None = None
        """What the last turn came to."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def is_live(self) -> bool:
        """A process waits for the next word."""
        return self._run is not None

    @property
    def redactor(self) -> Redactor:
        """Knows the secrets of the process that is live; without one only what keys look like."""
        return self._run.redactor if self._run is not None else Redactor()

    async def ask(self, text: str) -> RunResult:
        """Say it, and return what the turn came to: its text, outcome, cost and denials are of this turn alone."""
        async for _ in self.say(text):
            pass
        assert self.last is not None  # noqa: S101  # say() sets it before it ends
        return self.last

    async def say(self, text: str) -> AsyncGenerator[events.Recorded, None]:
        """The events of one turn. Leaving it early interrupts the turn."""
        if self._is_closed:
            raise errors.RunClosed("the conversation is closed", hint="Open another one, and resume its session.")
        if self._is_speaking:
            raise errors.RunClosed("the agent is still answering", hint="Wait for the turn to end, or interrupt it.")
        if not text.strip():
            raise errors.EmptyPrompt("the prompt is empty")
        self._is_speaking = True
        self._interrupted.clear()
        is_over = False
        try:
            await self._stay()
            async for recorded in self._turn(text):
                yield recorded
            is_over = True
        finally:
            if not is_over and self._run is not None and not self._run.is_waiting:
                # Whoever left does not want the rest of this turn; nor do we want it at the start of the next.
                await self._leave("the turn was left")
            self._is_speaking = False
            self._wait_idle()

    async def _turn(self, text: str) -> AsyncGenerator[events.Recorded, None]:
        for is_second_try in (False, True):
            run = await self._said(text)
            fold = Fold(run.id)
            if self._started is not None and self._started.run_id == run.id:
                # The agent describes itself once; model, session and who pays hold for its later turns too.
                fold.add(msgspec.structs.replace(self._started, time=time.time()))
            has_begun = has_answered = False
            ended: RunResult | None = None
            waits = 0
            delay_s: float | None = None
            async for recorded in run:
                event = recorded.event
                fold.add(recorded)
                has_begun = has_begun or isinstance(event, events.TurnStarted)
                if isinstance(event, events.SessionStarted):
                    self.session_id = event.session_id
                    self._started = recorded
                if isinstance(event, events.RunEnded):
                    ended = event.result
                yield recorded
                if delay_s is not None and isinstance(event, events.Notice) and event.code == WAITING:
                    # Only now: whoever reads has been told what is waited for.
                    if not await self._sat_out(run, delay_s):
                        self._note(fold.result())
                        return
                    waits, delay_s, has_answered = waits + 1, None, False
                    continue
                # What follows the end of a turn at once, a judgement of its answer for instance, belongs to it.
                has_answered = has_answered or (isinstance(event, events.TurnEnded) and not event.background)
                if has_answered and delay_s is None and run.is_waiting:
                    delay_s = self._until_reset(run, fold.result(), waits)
                    if delay_s is None:
                        self._note(fold.result())
                        return
                    told = f"usage limit of the account; waiting for its reset, {delay_s:.0f} s"
                    run.notify(events.Notice(level="warning", code=WAITING, message=told))
            # The process is gone.
            await self._leave("")
            if not has_begun and not is_second_try and self.can_reopen:
                continue  # it died before it heard this
            self._note(fold.result() if ended is None else ended)
            return

    async def _said(self, text: str) -> Run:
        if self._run is not None:
            try:
                await self._run.send(text)
            except errors.RunClosed:
                await self._leave("")
            else:
                return self._run
        request = msgspec.structs.replace(self._request, prompt=text)
        if self.starts:
            if not self.can_reopen:
                raise errors.RunClosed("the agent has ended, and its session was not kept", hint="Open another one.")
            request = msgspec.structs.replace(
                request, resume=self.session_id, fork=False, session_id=None, attachments=()
            )
            self._named |= {"resume", "fork", "session_id", "attachments"}
        self._run = run = await self._start(request)
        self._meter = run.meter
        self.starts += 1
        return run

    async def _start(self, request: RunRequest) -> Run:
        config = self._settle()
        if self._opener is not None:
            others = {name: value for name, value in self._options.items() if name not in ("approver", "config")}
            return await self._opener(
                request,
                approver=as_approver(self._options.get("approver")),
                keep_open=True,
                config=config,
                meter=self._meter,
                **others,
            )
        settled: RunOptions = {**self._options, "config": config}
        run = opened(
            CallArguments(request=request, named=self._named, options=settled), keep_open=True, meter=self._meter
        )
        return await run.__aenter__()

    def _settle(self) -> configs.Config:
        """Read once: all processes of a conversation have the same settings."""
        if self._config is None:
            given = self._options.get("environ")
            environ = os.environ if given is None else given
            known = {**home.load_env(home.leadrope_home(environ)), **environ}
            self._config = configs.read(self._asked.config, known)
        if self._idle_close_s is None:
            said = self._config.run.idle_close_s
            self._idle_close_s = said if isinstance(said, int | float) else IDLE_CLOSE_S
        return self._config

    @property
    def can_reopen(self) -> bool:
        """The session is kept: another process can continue it, also on another day."""
        return self._request.persist_session and self.session_id is not None

    def _until_reset(self, run: Run, result: RunResult, waits: int) -> float | None:
        """How long this turn waits for a usage limit of the account; None: it does not."""
        if not run.request.wait_for_limit or result.outcome != "parked" or result.resets_at is None:
            return None
        chance = random.random()  # noqa: S311  # jitter, not a secret
        delay = retries.until_reset(result.resets_at, now=time.time(), waits=waits, chance=chance)
        return delay if run.left_s is None or delay < run.left_s else None

    async def _sat_out(self, run: Run, delay_s: float) -> bool:
        """True when the time has come and the agent was told; False when the turn was interrupted meanwhile."""
        try:
            await asyncio.wait_for(self._interrupted.wait(), delay_s)
        except TimeoutError:
            with contextlib.suppress(errors.RunClosed):  # a run that is gone tells of its end itself
                await run.send(retries.AFTER_LIMIT)
            return True
        return False

    def _note(self, result: RunResult) -> None:
        self.last = msgspec.structs.replace(result, session_id=self.session_id)
        self.turns += 1
        self.cost_label = sum_label([(self.cost_usd, self.cost_label), (result.cost_usd, result.cost_label)])
        self.cost_usd += result.cost_usd

    # -- between the turns --------------------------------------------------------------------------------------------

    async def interrupt(self) -> None:
        """End the turn, not the conversation."""
        self._interrupted.set()
        if self._run is not None:
            await self._run.interrupt()

    async def set_model(self, model: str | None) -> None:
        """Use another model from the next turn on; None: the default one."""
        await self.change(model=model)

    async def set_mode(self, mode: Mode | ModeAlias) -> None:
        """Use another mode from the next turn on."""
        normal_mode(mode)
        await self.change(mode=mode)

    async def change(self, **fields: Unpack[RunFields]) -> None:
        """Use other settings from the next turn on. The process is closed and the next turn resumes the session."""
        for name in fields:
            if name not in RunRequest.__struct_fields__:
                raise configs.unknown_field(name)
        self._request = with_tuples(msgspec.structs.replace(self._request, **fields))
        self._named |= fields.keys()
        if not self._is_speaking and self.can_reopen:
            await self._stay()
            await self._leave("")

    def approve(self, approval_id: str, **how: Any) -> bool:
        """As on a run; for an approver that leaves the answer to the caller."""
        return self._run is not None and self._run.approve(approval_id, **how)

    def deny(self, approval_id: str, reason: str = "not approved", *, by: str = actors.USER) -> bool:
        """As on a run."""
        return self._run is not None and self._run.deny(approval_id, reason, by=by)

    def answer(self, question_id: str, answers: dict[str, str] | None = None, **how: Any) -> bool:
        """As on a run."""
        return self._run is not None and self._run.answer(question_id, answers, **how)

    async def close(self) -> None:
        """End the process; the session stays."""
        self._is_closed = True
        await self._stay()
        await self._leave("")

    def _wait_idle(self) -> None:
        if self._run is not None and self._idle_close_s and self._request.persist_session:
            self._idle_timer = asyncio.get_running_loop().call_later(self._idle_close_s, self._close_idle)

    def _close_idle(self) -> None:
        self._idle_timer = None
        self._closing = asyncio.get_running_loop().create_task(self._leave(""))

    async def _stay(self) -> None:
        """No idle close from here on; one that is under way is waited for."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        closing, self._closing = self._closing, None
        if closing is not None:
            await closing

    async def _leave(self, reason: str) -> None:
        """With a reason: now. Without: the agent ends by itself, as it does after its last prompt."""
        run, self._run = self._run, None
        if run is None:
            return
        if not reason:
            run.finish()
            # Work in the background may go on for long; nobody waits for it any more.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(run.result(), LEAVE_S)
        await run.stop(reason or "the conversation was closed")
