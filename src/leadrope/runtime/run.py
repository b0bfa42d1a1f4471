"""A run, from request to result: the one place where agents are started.

    async with open_run("fix the failing test") as run:
        async for recorded in run:
            print(recorded.event)
    print((await run.result()).text)

Leaving the block ends the agent and everything it started, whether or not the events were read to the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import random
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self, Unpack

import msgspec

from leadrope import errors
from leadrope.core import actors, events, home
from leadrope.core import config as configs
from leadrope.core.request import RunRequest
from leadrope.core.request_checks import check_text, normal_mode
from leadrope.core.request_parts import extra_dirs
from leadrope.core.request_parts.agent_sandbox import AgentSandbox
from leadrope.core.request_secrets import redactor_of
from leadrope.core.result import RunResult
from leadrope.core.secrets.redaction import Redactor
from leadrope.core.tools import ToolCall
from leadrope.policy.decide import Policy
from leadrope.policy.resolve import EffectivePolicy
from leadrope.process import child as processes
from leadrope.process.peer import Peer
from leadrope.providers import base, registry
from leadrope.runtime import gate_trial, prepare, retries
from leadrope.runtime.agents import saved_agents
from leadrope.runtime.attempt import Attempt
from leadrope.runtime.broker.http_peer import HttpPeer
from leadrope.runtime.broker.reachability import Reach
from leadrope.runtime.connections import functions as functions_of
from leadrope.runtime.connections.connection_stderr import ConnectionStderr
from leadrope.runtime.connections.functions import Function
from leadrope.runtime.embedding.hooks import AfterTool, BeforeTool
from leadrope.runtime.gate.approved_writes import ApprovedWrites
from leadrope.runtime.gate.approvers import Answer, Approver, as_approver
from leadrope.runtime.gate.gate import BeforeEffect
from leadrope.runtime.gate.machine_facts import MachineFacts
from leadrope.runtime.gateway import Gateway
from leadrope.runtime.journal.journal import Journal
from leadrope.runtime.journal.watcher import OnEvent, Watcher
from leadrope.runtime.keywords import CallArguments, RunKeywords, read
from leadrope.runtime.limits.budget import Meter
from leadrope.runtime.limits.shared_budget import SharedBudget
from leadrope.runtime.run_session import RunSession, to_resume
from leadrope.runtime.rundir import RunDir
from leadrope.runtime.sandboxing import git_guards, sandboxing
from leadrope.runtime.sandboxing.sandboxed_process import SandboxedProcess
from leadrope.runtime.sessions.files import Sessions

ConfigSource = configs.Config | None | msgspec.UnsetType
"""The configuration of a run: a value, None for no file at all; unset: the one that the environment names."""


def open_run(
    prompt: str | RunRequest,
    *,
    keep_open: bool = False,
    meter: Meter | None = None,
    run_id: str | None = None,
    **keywords: Unpack[RunKeywords],
) -> Run:
    """Prepare a run; `async with` starts it.

    The keywords are the fields of a `RunRequest`; those that are left out take `[run]` of your config.toml. `approver`
    is asked where no rule has settled a call; without one the answer is no. `config` names another file or value, or
    None for no file at all. `keep_open` keeps the agent waiting for `run.send()` after a turn, until `run.finish()`.
    `meter` is the one of an earlier run, whose budget this run shares.
    """
    return opened(read(prompt, keywords), keep_open=keep_open, meter=meter, run_id=run_id)


def opened(
    asked: CallArguments,
    *,
    keep_open: bool = False,
    meter: Meter | None = None,
    run_id: str | None = None,
    shared: SharedBudget | None = None,
) -> Run:
    """The run of a call that was taken apart; `shared` is a budget of more runs than this one."""
    options = asked.options
    return Run(
        asked.request,
        named=asked.named,
        approver=as_approver(options.get("approver")),
        keep_open=keep_open,
        environ=options.get("environ"),
        config=asked.config,
        functions=options.get("functions", ()),
        on_event=options.get("on_event"),
        before_tool=options.get("before_tool"),
        after_tool=options.get("after_tool"),
        meter=meter,
        shared=shared,
        run_id=run_id,
    )


class _Start(NamedTuple):
    """One start of the agent, and the conversation with it."""

    launch: base.Start
    session: base.Session
    peer: Peer


class Run:
    """One supervised run: iterate its events, talk to it, stop it, take its result."""

    def __init__(
        self,
        request: RunRequest,
        *,
        approver: Approver,
        named: frozenset[str] | None = None,
        keep_open: bool = False,
        environ: Mapping[str, str] | None = None,
        config: ConfigSource = msgspec.UNSET,
        meter: Meter | None = None,
        shared: SharedBudget | None = None,
        functions: Sequence[Function[..., Any] | Callable[..., Any]] = (),
        on_event: OnEvent | None = None,
        before_tool: BeforeTool | None = None,
        after_tool: AfterTool | None = None,
        is_trial: bool = False,
        run_id: str | None = None,
        attempt: int = 1,
        earlier: Sequence[events.Recorded] = (),
        before_effect: BeforeEffect | None = None,
        tap: Callable[[list[events.Recorded]], None] | None = None,
        waits: bool = False,
        first: Sequence[events.Event] = (),
        grants: Sequence[str] = (),
        standing: Sequence[str] = (),
    ) -> None:
        """`open_run` is the usual way here.

        `named` are the fields that the caller has set himself: the others take `[run]` of the config. None: the request
        is complete. `is_trial` marks the run that tries an untested agent's gate. `earlier` are the stored events of
        the same run's attempts before this one: log, result and budget continue. `waits`: an approval has no time limit
        unless the request or the policy sets one, and `suspend` can end the agent while one is open. `first` are events
        that come before those of the agent. `grants` are patterns that a person granted before a wait, `standing` the
        subjects of calls that were approved for the run.
        """
        self.id = run_id or uuid.uuid4().hex
        self.request = request
        self._approver = approver
        self._keep_open = self._is_conversation = keep_open
        self._environ = dict(os.environ if environ is None else environ)
        self._config_source = config
        self._named = named
        self._functions = functions_of.collect(functions)
        self._on_event = on_event
        self._before_tool = before_tool
        self._after_tool = after_tool
        self._is_trial = is_trial
        self._given_meter = meter
        self._shared = shared
        self._journal = Journal(self.id, attempt=attempt, earlier=earlier)
        self._journal.tap = tap
        self._earlier = earlier
        self._before_effect = before_effect
        self._waits = waits
        self._first = first
        self._granted, self._standing = tuple(grants), tuple(standing)
        self.is_suspended = False
        """It was ended by `suspend`: it has no result yet, and another process continues it."""
        self._prompts: deque[str] = deque([request.prompt])
        self._attempt: Attempt | None = None
        self._sandboxed: SandboxedProcess | None = None
        self._launch: base.Start | None = None
        self._connection_stderr: ConnectionStderr | None = None
        self._task: asyncio.Task[None] | None = None
        self._result: RunResult | None = None
        self._stopped = asyncio.Event()
        self._is_paused = False
        self._corrections = 0
        """Corrective turns of earlier processes, for the same answer."""
        self._notices: tuple[events.Notice, ...] = ()
        self._tries = retries.Tries()
        self._reach = Reach()

    # -- using it -------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._task is not None:
            raise errors.RunClosed(f"run {self.id} was started before", hint="Open another one with open_run.")
        leadrope_home = home.leadrope_home(self._environ)
        settings = home.load_env(leadrope_home)
        ambient = self._environ
        self._environ = {**settings, **ambient}
        self._config = configs.read(self._config_source, self._environ)
        if self._named is not None:
            self.request = saved_agents.filled(self.request, self._named, self._config, self._environ)
        self._provider = registry.provider(self.request.provider)
        base.require(self._provider, self.request)
        if self._functions:
            self.request = self._with_functions()
        self._session = RunSession(Sessions(leadrope_home), self._journal)
        settled, told = self._session.settle(self.request)
        ready = prepare.complete(settled, self._config, self._environ, leadrope_home, waits=self._waits)
        self.request, self._notices, self._rules = ready.request, (*told, *ready.notices), ready.rules
        self._config = ready.config
        self.request, self._auto_continue = retries.divided(self.request, self._config)
        self._journal.traces = self._environ.get("LEADROPE_DEBUG_SPAWN", "").lower() in ("1", "true")
        self._run_dir = RunDir()
        self.meter = self._given_meter or Meter(self.request.limits.cap_usd, self._config.prices, shared=self._shared)
        for before in self._earlier:
            self.meter.take(before.event)
        self._gateway = Gateway(
            self._run_dir.path,
            meter=self.meter,
            notify=self._journal.notify,
            allowed={name: self._environ[name] for name in self._config.forward_env if name in self._environ},
            hosts=lambda: self._attempt.gate.hosts if self._attempt is not None else None,
            reach=self._reach,
        )
        self._place = base.StartContext(
            run_id=self.id,
            environ=self._environ,
            ambient=ambient,
            settings=settings,
            home=leadrope_home,
            run_dir=self._run_dir.agent,
            launch_dir=self._run_dir.path,  # each start gets its own
            config=self._config,
            open_broker=self._gateway.open_broker,
            is_trusted=ready.is_trusted,
            own_servers=(functions_of.SERVER,) if self._functions else (),
            blocked_programs=tuple(sorted(self._rules.blocked_programs)),
        )
        self._spool = leadrope_home / "spool" / self.id
        self._journal.redactor = redactor_of(self.request, self._environ)
        if self._on_event is not None:
            self._journal.watcher = Watcher(self._on_event, self._journal.notify)
        self._started_at = asyncio.get_running_loop().time()
        for event in self._first:
            self._journal.record(event)
        try:
            begun = await self._start()
        except BaseException:
            await self._gateway.close()
            self._clean_up()
            raise
        self._task = asyncio.create_task(self._supervise(begun), name=f"leadrope run {self.id}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop("the caller left the run")

    def __aiter__(self) -> AsyncIterator[events.Recorded]:
        self._begun()  # else the events would be waited for without an end
        return self._journal.outbox.events()

    def batches(self) -> AsyncIterator[list[events.Recorded]]:
        """The same events, as many at a time as have come together."""
        self._begun()
        return self._journal.outbox.batches()

    @property
    def rules(self) -> EffectivePolicy:
        """What all layers together say about this run, once it has started."""
        return self._rules

    @property
    def redactor(self) -> Redactor:
        """Knows this run's secrets, once it has started."""
        return self._journal.redactor

    async def result(self) -> RunResult:
        """The result, when the run has ended. Events that nobody reads meanwhile are dropped."""
        task = self._begun()
        if self._result is None:
            if self._journal.outbox.is_read:
                self._journal.outbox.let_go()
            else:
                self._journal.outbox.discard()
        await asyncio.shield(task)  # raises what went wrong in leadrope itself
        assert self._result is not None  # noqa: S101  # _supervise always sets it, or has raised above
        return self._result

    def _begun(self) -> asyncio.Task[None]:
        if self._task is None:
            raise errors.RunClosed(
                f"run {self.id} was not started", hint="Use it inside of `async with open_run(...) as run:`."
            )
        return self._task

    async def send(self, text: str) -> None:
        """Queue another prompt; it is sent when the agent has finished its turn."""
        if not text.strip():
            raise errors.EmptyPrompt("the prompt is empty")
        check_text({"prompt": text})
        if self._result is not None:
            raise errors.RunClosed(f"run {self.id} has ended", hint="Resume its session in a new run.")
        self._prompts.append(text)
        if self._attempt:
            self._attempt.prompt_waiting()

    def finish(self) -> None:
        """No more prompts will come (only for `keep_open`): the run ends after this turn."""
        self._keep_open = False
        if self._attempt:
            self._attempt.finish()

    @property
    def is_waiting(self) -> bool:
        """The agent has done what it was told and waits for `send`, and all it said was read."""
        return self._attempt is not None and self._attempt.is_waiting and self._journal.outbox.is_drained

    @property
    def left_s(self) -> float | None:
        """Until the wall clock ends the run; None: it never does."""
        wall_s = self.request.limits.wall_s
        return self._started_at + wall_s - asyncio.get_running_loop().time() if wall_s else None

    def notify(self, notice: events.Notice) -> None:
        """A word of the caller's own among the events."""
        self._journal.notify(notice)

    async def interrupt(self) -> None:
        """End the turn, not the run."""
        if self._attempt:
            await self._attempt.interrupt()

    def pause(self) -> None:
        """Hold the next tool call and the next prompt, and all clocks with them, until `unpause`."""
        self._is_paused = True
        if self._attempt:
            self._attempt.pause()

    def unpause(self) -> None:
        """Let a paused run continue."""
        self._is_paused = False
        if self._attempt:
            self._attempt.unpause()

    async def stop(self, reason: str = "stopped by the caller") -> RunResult:
        """End the run now, and return when nothing of it is left."""
        task = self._begun()
        self._stopped.set()
        # Whoever iterates still sees the last events; what an ending agent says is bounded.
        self._journal.outbox.let_go()
        if self._journal.watcher is not None:
            self._journal.watcher.let_go()
        if self._attempt and self._result is None:
            self._attempt.end("stopped", "stopped", reason)
        await asyncio.shield(task)
        return await self.result()

    @property
    def is_asking(self) -> bool:
        """A person is being asked."""
        return self._attempt is not None and self._attempt.gate.is_asking

    def is_only_waiting(self, quiet_s: float) -> bool:
        """A person's answer is all that it has waited for, for `quiet_s` or longer, and its session can be resumed."""
        can_resume = self.request.persist_session and self._provider.capabilities.sessions
        return can_resume and self._attempt is not None and self._attempt.is_only_waiting(quiet_s)

    async def suspend(self, message: str) -> bool:
        """End the agent while a person is asked, and leave the questions open; False if nothing is asked.

        Returns when nothing of the agent is left. The log has no end then: the next attempt continues it.
        """
        task = self._begun()
        if self._attempt is None or not self._attempt.suspend(message):
            return False
        self.is_suspended = True
        self._stopped.set()
        self._journal.outbox.let_go()
        await asyncio.shield(task)
        return True

    def approve(
        self,
        approval_id: str,
        *,
        edited: dict[str, Any] | None = None,
        scope: events.Scope = "once",
        pattern: str | None = None,
        fingerprint: str | None = None,
        by: str = actors.USER,
    ) -> bool:
        """Answer an `approval.requested`; False if it no longer waits, or if the fingerprint is another call's.

        `pattern` (the one that was offered) also grants what it covers, for the rest of the run.
        """
        answer = Answer(approved=True, by=by, edited=edited, scope=scope, pattern=pattern, fingerprint=fingerprint)
        return self._resolve(approval_id, answer)

    @property
    def grants(self) -> tuple[str, ...]:
        """What was granted at a question of this run, and holds until it ends or is revoked: patterns, and `call:ID`
        for one exact call.
        """
        return self._attempt.gate.grants if self._attempt is not None else ()

    def revoke(self, pattern: str, *, by: str = actors.USER) -> bool:
        """Take back a grant of this run; False if there is no such grant."""
        return self._attempt is not None and self._attempt.gate.revoke(pattern, by=by)

    def deny(self, approval_id: str, reason: str = "not approved", *, by: str = actors.USER) -> bool:
        """Refuse an `approval.requested`; the agent reads the reason. False if it no longer waits."""
        return self._resolve(approval_id, Answer(approved=False, by=by, reason=reason))

    def answer(
        self, question_id: str, answers: dict[str, str] | None = None, *, reject: bool = False, reason: str = ""
    ) -> bool:
        """Answer a `question.requested`; a plan is approved by an answer and turned down by `reject`."""
        return self._resolve(question_id, Answer(approved=not reject, answers=answers or {}, reason=reason))

    def _resolve(self, pending_id: str, answer: Answer) -> bool:
        return self._attempt is not None and self._attempt.gate.resolve(pending_id, answer)

    def _with_functions(self) -> RunRequest:
        if not self._provider.capabilities.functions:
            raise errors.BadValue(
                "functions",
                f"the provider {self._provider.id} cannot call functions of this program",
                hint="Leave functions out, or choose another provider.",
            )
        if functions_of.SERVER in self.request.connections:
            raise errors.BadValue(
                "connections", f"{functions_of.SERVER!r} is the name of the functions", hint="Rename the connection."
            )
        request, names = self.request, self._functions
        return msgspec.structs.replace(
            request,
            allow=functions_of.whole_names(request.allow, names),
            tools=None if request.tools is None else functions_of.whole_names(request.tools, names),
            disallowed_tools=functions_of.whole_names(request.disallowed_tools, names),
        )

    # -- starting and trying again ------------------------------------------------------------------------------------

    async def _start(self) -> _Start:
        """The only start of an agent in this package."""
        fresh = msgspec.structs.replace(self._place, launch_dir=self._run_dir.new_launch())
        self._place = prepare.looked_again(fresh, self.request, self._journal.record)
        sandbox = None
        if self._provider.capabilities.process:
            sandbox = SandboxedProcess(self.request, self._rules, home=self._place.home, notify=self._journal.record)
            await self._gateway.open_doors(await sandbox.grant(), self._rules)
        self._launch = launch = await self._prepare(with_broker=sandbox is not None and sandbox.granted.model_only)
        self._place.config.prices.require(launch.model)
        if unpriced := self.meter.expect(launch.model):
            self._journal.record(unpriced)
        # What an earlier start has been given may still be said by this one.
        known = (*launch.secrets, *self._journal.redactor.secrets)
        self._journal.redactor = redactor_of(self.request, self._environ, known)
        session = self._provider.session(self.request, launch)
        base.check_start(self._provider, launch, session)
        if isinstance(launch, base.Endpoint):
            return _Start(launch, session, self._connect(launch))
        assert sandbox is not None  # noqa: S101  # check_start: only a provider with a process gives a Launch
        return _Start(launch, session, await self._start_process(launch, sandbox))

    async def _start_process(self, launch: base.Launch, sandbox: SandboxedProcess) -> processes.Child:
        self._run_dir.make((*launch.folders, str(self._spool)))
        self._run_dir.write(launch.files)
        self._connection_stderr = ConnectionStderr(
            self._run_dir.make_pipes(launch.stderr_pipes),
            harmless=self._journal.harmless,
            trace=self._journal.tell_connection if self._journal.traces else None,
        )
        self._tell_start(launch, f"start {' '.join(launch.argv)}")
        targets = await asyncio.to_thread(sandbox.search, self.request, self._place)
        sandbox.build(self.request, launch, self._place, self._gateway.doors, targets)
        self._session.open_log(self.request, launch)
        child = await sandbox.start(
            tag=self.id,
            spool_dir=self._spool,
            socket_input=True,
            on_stderr_line=self._journal.tell_stderr if self._journal.traces else None,
        )
        self._sandboxed = sandbox
        return child

    def _connect(self, endpoint: base.Endpoint) -> HttpPeer:
        """No program is started, so there is nothing to sandbox: the requests are the run's own."""
        self._tell_start(endpoint, f"{endpoint.method} {endpoint.url}")
        self._session.open_log(self.request, endpoint)
        return HttpPeer(endpoint, **self._gateway.way_to(endpoint.url))

    def _tell_start(self, launch: base.Start, told: str) -> None:
        self._journal.tell(told)
        if launch.credential:
            self._journal.tell(f"credential {launch.credential.source} {launch.credential.masked}")

    async def _prepare(self, *, with_broker: bool) -> base.Start:
        try:
            return await self._session.prepare(self._provider, self._wanted(with_broker), self._place)
        except errors.SessionLost:
            if not self._rebuild():
                raise
        return await self._session.prepare(self._provider, self._wanted(with_broker), self._place)

    def _wanted(self, with_broker: bool) -> RunRequest:
        if not with_broker:
            return self.request
        return msgspec.structs.replace(self.request, broker=True, network="model-only")

    def _rebuild(self) -> bool:
        rebuilt = self._session.rebuilt(self.request)
        if rebuilt is None:
            return False
        old, self.request = self.request.prompt, rebuilt
        self._prompts = deque(rebuilt.prompt if text == old else text for text in self._prompts)
        return True

    async def _supervise(self, begun: _Start) -> None:
        journal = self._journal
        try:
            while True:
                attempt = await self._live(begun)
                result = await self._diagnosed(begun.launch, journal.fold.result())
                planned = self._plan(result, attempt)
                if planned is None or not await self._wait(planned, result):
                    break
                journal.attempt += 1
                self._go_on(planned, result, attempt)
                begun = await self._start()
        except errors.LeadropeError as error:
            # Only a second start can raise here; the first one's errors went to the caller.
            journal.record(events.RunEnding(cause="failed", kind=error.kind, message=error.message, hint=error.hint))
        finally:
            if journal.watcher is not None:
                await journal.watcher.drain()  # what it fails at is a warning of the result
            self._result = journal.fold.result()
            if self.is_suspended:
                journal.suspend()
            else:
                journal.end(self._result)
                self._session.end(self._result, turns=self._tries.turns)
            if journal.watcher is not None:
                await journal.watcher.close()
            await self._gateway.close()
            self._clean_up()
            if not self._is_conversation and not self.is_suspended:  # whose turns have each been told already
                journal.tell_failure(self._result, self.request, self._launch.model if self._launch else "")

    async def _diagnosed(self, launch: base.Start, result: RunResult) -> RunResult:
        """A program of a version that cannot work fails in any way it likes; what helps is to hear of the version."""
        is_early = result.outcome == "failed" and result.session_id is None and not self._stopped.is_set()
        provider = self._provider
        if self._is_trial or not is_early or not isinstance(provider, base.Diagnosing):
            return result
        if not isinstance(launch, base.Launch):
            return result
        wrong = await provider.why_unusable(launch, self._environ)
        if wrong is None:
            return result
        self._journal.record(events.RunEnding(cause="failed", kind="gate_unsupported", message=wrong))
        return self._journal.fold.result()

    def _plan(self, result: RunResult, attempt: Attempt) -> retries.Again | None:
        if self._stopped.is_set() or self.meter.is_over:
            return None
        if self._is_conversation and attempt.is_waiting:
            return None  # it ended between two turns: nothing is left undone
        can_resume = to_resume(result, self.request, self._provider) is not None
        if attempt.correction_due is not None and can_resume:
            self._corrections = attempt.corrections
            return retries.corrected(attempt.correction_due)
        return self._tries.plan(
            result,
            self.request,
            attempt,
            auto_continue=self._auto_continue,
            can_resume=can_resume,
            now=time.time(),
            left_s=self.left_s,
            chance=random.random(),  # noqa: S311  # jitter, not a secret
        )

    async def _wait(self, planned: retries.Again, result: RunResult) -> bool:
        """True when the time has come; False when the run was stopped meanwhile."""
        self._journal.announce(planned, result, self.request.attempts)
        try:
            await asyncio.wait_for(self._stopped.wait(), planned.delay_s)
        except TimeoutError:
            return True
        told = f"stopped while it waited: {planned.told}"
        self._journal.record(events.RunEnding(cause="stopped", kind="stopped", message=told))
        return False

    def _go_on(self, planned: retries.Again, result: RunResult, attempt: Attempt) -> None:
        self._tries.made(planned, result)
        if planned.prompt is not None:
            session = to_resume(result, self.request, self._provider)
            self.request = self._session.resumed(self.request, session)
            self._prompts.appendleft(planned.prompt)
            return
        if attempt.prompts_sent:
            self._prompts.appendleft(self.request.prompt)
        if planned.reason == "session":
            if not self._rebuild():
                raise errors.SessionLost(result.error.message if result.error else "the session is lost")
        else:
            self.request = self._session.anew(self.request, self._launch)

    async def _live(self, begun: _Start) -> Attempt:
        launch, session, peer = begun
        pid = peer.pid if isinstance(peer, processes.Child) else None
        env = launch.env if isinstance(launch, base.Launch) else {}
        sandboxed = self._sandboxed
        built = sandboxed.built if sandboxed is not None else sandboxing.Built()
        policy = Policy(
            mode=normal_mode(self.request.mode),
            workspace=(launch.cwd, *extra_dirs.writable(self.request.extra_dirs)),
            read_only=extra_dirs.read_only(self.request.extra_dirs),
            tools=self.request.tools,
            disallowed_tools=self.request.disallowed_tools,
            allow=self.request.allow,
            grants=self._granted,
            protected=sandboxed.protected if sandboxed is not None else (),
            agent_sandbox=AgentSandbox.of(self.request.agent_sandbox),
            rules=self._rules,
        )
        self._attempt = Attempt(
            request=self.request,
            launch=launch,
            session=session,
            peer=peer,
            policy=policy,
            approver=self._approver,
            recorder=self._journal,
            prompts=self._prompts,
            keep_open=self._keep_open,
            started_at=self._started_at,
            try_gate=None if self._is_trial else self._try_gate,
            meter=self.meter,
            origin=self._session.origin,
            sandbox=built.level,
            sight=built.sight,
            is_sandboxed=built.holds,
            surroundings=MachineFacts(
                workspace=policy.workspace,
                env=env,
                sandbox_env=built.env,
                secrets=self._journal.redactor.secrets,
                git_is_plain=functools.partial(git_guards.is_plain, env=env, sight=built.sight),
            ),
            before_tool=self._before_tool,
            after_tool=self._after_tool,
            connection_stderr=self._connection_stderr,
            functions=self._functions,
            redactor=lambda: self._journal.redactor,
            corrections=self._corrections,
            can_resume=self.request.persist_session
            and self._provider.capabilities.sessions
            and self._tries.schema_left(self.request),
            waits=self._waits,
            reach=self._reach,
            pid=pid,
        )
        for notice in (*self._notices, *launch.notices):
            self._journal.record(notice)
        if self._stopped.is_set():
            self._attempt.end("stopped", "stopped", "stopped by the caller")
        if self.meter.is_over:  # by another run, while this one was started
            self._attempt.end("over_budget", "over_budget", self.meter.reason, hint="Raise the budget.")
        attempt = self._attempt
        attempt.gate.standing.update(self._standing)
        self._granted = self._standing = ()  # a later attempt of this process asks again
        attempt.gate.before_effect = self._before_effect
        writes = ApprovedWrites(policy, built.sight, pid) if pid is not None else None
        if writes is not None:
            attempt.after_call = writes.after
            if built.level:
                attempt.gate.before_effect = self._before(writes)
        if self._is_paused:
            attempt.pause()
        try:
            await attempt.live()
        finally:
            self._attempt = None
            self._close_connection_stderr()
            if sandboxed is not None and writes is not None:
                await sandboxed.settle(writes.paths)
        return attempt

    def _before(self, writes: ApprovedWrites) -> BeforeEffect:
        """What is done between the yes to a call and the call: the caller's own work, then the sandbox's."""

        async def both(call: ToolCall) -> str | None:
            first = await self._before_effect(call) if self._before_effect is not None else None
            return "; ".join(filter(None, (first, await writes.before(call)))) or None

        return both

    async def _try_gate(self, version: str) -> str | None:
        """Why this untested version cannot be used, or None; asked once per version and home."""
        place, name = self._place, self.request.provider
        if gate_trial.passed(place.home, name, version):
            return None
        program = self._launch.argv[0] if isinstance(self._launch, base.Launch) else ""
        wrong = await gate_trial.try_gate(name, program, self._environ)
        if wrong is None:
            gate_trial.remember(place.home, name, version)
        return wrong

    # -- after it -----------------------------------------------------------------------------------------------------

    def _close_connection_stderr(self) -> None:
        if self._connection_stderr is not None:
            self._connection_stderr.close()
            self._connection_stderr = None

    def _clean_up(self) -> None:
        self._close_connection_stderr()
        if self._launch:
            self._provider.tidy(self._launch)
        self._session.release()
        self._run_dir.remove()
        with contextlib.suppress(OSError):
            self._spool.rmdir()  # stays when a long line was kept there
