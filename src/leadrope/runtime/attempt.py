"""One agent from its first line to its last: reading, clocks, gate, ending. Does not start it."""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import msgspec

from leadrope import errors
from leadrope.core import events
from leadrope.core.fold import SUSPENDED, TOOL_TIMED_OUT
from leadrope.core.request import RunRequest
from leadrope.core.secrets.redaction import Redactor
from leadrope.policy.decide import Policy
from leadrope.process.peer import Cancelling, Peer
from leadrope.process.sandbox.values import Sight
from leadrope.providers import base
from leadrope.runtime import preflight
from leadrope.runtime.broker.model_watch import ModelWatch
from leadrope.runtime.broker.reachability import Reach
from leadrope.runtime.connections.connection_stderr import ConnectionStderr
from leadrope.runtime.connections.function_server import FunctionServer
from leadrope.runtime.connections.functions import Function
from leadrope.runtime.embedding import hooks
from leadrope.runtime.embedding.hooks import AfterTool, BeforeTool
from leadrope.runtime.gate import replies
from leadrope.runtime.gate.approvers import Approver
from leadrope.runtime.gate.gate import Gate
from leadrope.runtime.gate.machine_facts import MachineFacts
from leadrope.runtime.gate.replies import GateReplies, Replies
from leadrope.runtime.journal.recording import Recorder
from leadrope.runtime.limits import memory
from leadrope.runtime.limits.budget import Meter
from leadrope.runtime.limits.clocks import RunClocks, how_to_raise, why_expired
from leadrope.runtime.limits.unreported import Unreported
from leadrope.runtime.output import Judge, WayOut
from leadrope.runtime.preflight import Cause, TryGate
from leadrope.runtime.sandboxing.sandbox_violations import Watch


class Attempt:
    def __init__(
        self,
        *,
        request: RunRequest,
        launch: base.Start,
        session: base.Session,
        peer: Peer,
        policy: Policy,
        approver: Approver,
        recorder: Recorder,
        prompts: deque[str],
        keep_open: bool,
        started_at: float,
        try_gate: TryGate | None,
        meter: Meter,
        origin: events.Origin = "new",
        sandbox: str = "",
        sight: Sight | None = None,
        is_sandboxed: bool = False,
        surroundings: MachineFacts | None = None,
        corrections: int = 0,
        can_resume: bool = False,
        waits: bool = False,
        connection_stderr: ConnectionStderr | None = None,
        functions: Mapping[str, Function[..., Any]] | None = None,
        redactor: Callable[[], Redactor] = Redactor,
        before_tool: BeforeTool | None = None,
        after_tool: AfterTool | None = None,
        reach: Reach | None = None,
        pid: int | None = None,
    ) -> None:
        """`waits`: a person may take any time to answer, so none of the run's clocks counts it. `pid`: of the agent's
        process, where it has one.
        """
        self._limits = request.limits
        self._request = request
        self._launch = launch
        self._session = session
        is_process = isinstance(launch, base.Launch)
        self._agent = session if is_process and isinstance(session, base.AgentSession) else None
        """None: nothing is asked before the first prompt, and no call can be held."""
        self._asking = session if is_process and isinstance(session, base.AskingSession) else None
        self._peer = peer
        self._pid = pid
        self._recorder = recorder
        self._keep = recorder.incoming.append
        self._heartbeats = 0
        self._prompts = prompts
        self._connection_stderr = connection_stderr
        self._keep_open = keep_open
        self._started_at = started_at
        self._try_gate = try_gate
        self._meter = meter
        self._origin = origin
        self._sandbox = sandbox
        self._watch = Watch(sight) if sight is not None else None
        meter.on_over = self._on_over_budget
        meter.notify = self.emit
        self._unreported = Unreported(meter, launch, request.prompt)
        self._loop = asyncio.get_running_loop()
        self._clocks = RunClocks(self._limits, self._on_expired)
        self._model = ModelWatch(self, reach or Reach(), request, launch, self._clocks)
        self._group: asyncio.TaskGroup | None = None
        self._ending: asyncio.Task[Any] | None = None
        self._checking: asyncio.Task[Any] | None = None
        self._doomed = False
        self._replies = Replies(self._send)
        self._ready = False
        self._in_turn = False
        self._agents = 0
        self._stdin_closed = False
        self._refused_logins = 0
        self._session_told = False
        self._is_paused = False
        self._waits = waits
        self._active_at = asyncio.get_running_loop().time()
        """When the agent, or leadrope, last said something new."""
        self._prompt_held: Callable[[], None] | None = None
        self._ended_by: events.Source = "agent"
        self._judge = (
            Judge(request, made=corrections, can_resume=can_resume) if request.output_schema is not None else None
        )
        self._correction: str | None = None
        """What the agent must be told next about an answer that does not fit its schema."""
        self.after_call: Callable[[str], Awaitable[str | None] | None] | None = None
        """What is to be done when the result of a call has come; what that gives is a warning."""
        self.tool_ran = False
        self.prompts_sent = 0
        self.last_retry: events.RetryScheduled | None = None
        """The agent's own last announcement that it tries a request again."""
        self.gate = Gate(
            policy,
            approver,
            self,
            approval_s=self._limits.approval_s or 0,
            is_sandboxed=is_sandboxed,
            surroundings=surroundings,
            asking=self._asking,
        )
        self.gate.before_tool = before_tool
        self._after_tool = after_tool
        self._after_tasks: set[asyncio.Task[Any]] = set()
        self._functions = (
            FunctionServer(
                functions, allowed=self.gate.allowed_call, spawn=self.spawn, send=self._reply, redactor=redactor
            )
            if functions
            else None
        )
        self._handlers: dict[type, Callable[[Any], None]] = {
            base.Ready: self._on_ready,
            base.Started: self._on_started,
            base.CallHeld: self._on_ungated,
            base.PermissionAsked: self._on_ungated,
            base.Withdrawn: self._on_withdrawn,
            base.Replied: self._replies.came,
            base.Foreign: self._on_foreign,
            base.BackgroundWork: self._on_background,
            base.SessionState: self._on_state,
            base.Unanswerable: self._on_unanswerable,
            base.MessageToServer: self._on_message_to_server,
            events.ToolProgress: self._on_progress,
            events.TurnStarted: self._on_turn_started,
            events.TurnEnded: self._on_turn_ended,
            events.ToolRequested: self._on_tool_requested,
            events.ToolCompleted: self._on_tool_completed,
            events.RetryScheduled: self._on_retry,
            events.UsageUpdated: self._on_usage,
        }
        if self._agent is not None:
            calls = GateReplies(self.gate, self._agent, self._clocks, self._send)
            self._handlers |= {base.CallHeld: calls.held, base.PermissionAsked: calls.asked}
        if self._judge:
            self._handlers[events.MessageCompleted] = self._on_message

    # -- from the start to the end ----------------------------------------------------------------------------------

    async def live(self) -> None:
        """Read until nothing more can come, whatever the reason; then say how it went."""
        self._clocks.start(self._started_at)
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                if self._doomed:
                    self._kill()
                elif self._agent is not None:
                    self._send(self._agent.open())
                else:
                    self._begin()  # there is nothing to hold, and nobody to be asked for it
                pid, memory_mb = self._pid, self._limits.memory_mb
                watching = (
                    self.spawn(memory.watch(pid, memory_mb, self._on_out_of_memory)) if pid and memory_mb else None
                )
                await self._read()
                if watching:
                    watching.cancel()
                self.gate.close("the agent has ended")
                self._close_functions()
                await self._finish_hooks()
                if self._checking:
                    self._checking.cancel()
                self._model.stop_looking()
        except BaseException:
            await self._peer.end(polite_s=0, stop_s=self._limits.stop_s)
            raise
        finally:
            self._clocks.stop()
            self._meter.on_over = None  # other runs may spend from the same budget, and end it later
            self._model.close()
        # Its output ends a moment before the process does: one that is leaving by itself must not get a signal.
        ending = await self._peer.end(polite_s=self._limits.exit_s, stop_s=self._limits.stop_s)
        for told in self._judge.left_over() if self._judge and not self._doomed else ():
            self._recorder.record(told)
        gone = replies.agent_exited(ending, self._peer, self._agent)
        self._recorder.trace("exit code", gone.exit_code)
        self.emit(msgspec.structs.replace(gone, ended_by=self._ended_by, spent_usd=self._meter.spent_usd))

    async def _read(self) -> None:
        heard = False
        while lines := await self._peer.read_whole():
            if not heard:
                heard = True
                self._clocks.heard()
            self._recorder.trace("stdout", lines)
            if self._take(self._session.receive(lines)):
                self._clocks.touch()
                self._active_at = self._loop.time()
            self._recorder.publish(self._peer.last_read_bytes)
            if self._recorder.is_full:
                self._clocks.hold()
                await self._recorder.room()
                self._clocks.release()

    def _take(self, items: list[Any]) -> bool:
        """Handle a batch; True if any of it is more than a heartbeat. This loop sees every event of every run."""
        find, keep = self._handlers.get, self._keep
        self._heartbeats = 0
        for item in items:
            handler = find(type(item))
            if handler is None:
                keep(item)
            else:
                handler(item)
        return len(items) > self._heartbeats

    # -- what the agent says --------------------------------------------------------------------------------------

    def _on_ready(self, ready: base.Ready) -> None:
        if self._agent is None or not preflight.has_gate(self, ready):
            return
        needs_trial = not ready.is_tested and self._try_gate is not None
        if needs_trial or self._request.connections or self._functions:
            self._checking = self.spawn(self._check_before_prompt(ready.version if needs_trial else None))
        else:
            self._begin()

    def _begin(self) -> None:
        self._ready = True
        self._next_prompt()

    async def _check_before_prompt(self, untested: str | None) -> None:
        self.hold()
        if untested is not None and self._try_gate is not None:
            await preflight.check_version(self, untested, self._try_gate)
        if self._agent is not None and (self._request.connections or self._functions) and not self._doomed:
            assert isinstance(self._launch, base.Launch)  # noqa: S101  # whose agent has said that it is ready
            await preflight.check_connections(self, self._request, self._agent, self._launch.own_servers)
        self.release()
        if not self._doomed:
            self._begin()

    def _on_started(self, started: base.Started) -> None:
        if self._session_told:
            return
        self._session_told = True
        told = preflight.session_started(started, self._request, self._launch)
        self._keep(msgspec.structs.replace(told, origin=self._origin, sandbox=self._sandbox))
        preflight.check_key(self, started, self._launch)

    def _on_foreign(self, foreign: base.Foreign) -> None:
        """Whoever writes to the agent's input can take the gate away, so nothing more is decided."""
        self.end(
            "failed",
            "gate_bypassed",
            f"something that leadrope did not send has reached the agent's input: {foreign.what}",
            hint="A command, a hook or a connection of this run may have written there: look at what has run. "
            "`leadrope doctor` says whether commands are kept apart from the agent on this machine.",
        )

    def _on_ungated(self, call: base.CallHeld | base.PermissionAsked) -> None:
        """Of an endpoint, which has no tools: nobody would hear the answer."""
        told = f"{call.call.name} was called over a connection where no call can be held"
        self.end("failed", "gate_unsupported", told, hint="Report it to the author of the provider.")

    def _on_withdrawn(self, withdrawn: base.Withdrawn) -> None:
        self.gate.withdrawn(withdrawn.request_id)
        if self._functions is not None:
            self._functions.cancel(withdrawn.request_id)

    def _on_message_to_server(self, asked: base.MessageToServer) -> None:
        if self._functions is not None:
            self._functions.take(asked.request_id, asked.message, asked.call_id)

    def _reply(self, request_id: str, reply: dict[str, Any]) -> None:
        if isinstance(self._session, base.ServerSession):
            self._send(self._session.answer_message(request_id, reply))

    async def _finish_hooks(self) -> None:
        """What is told of the last calls gets a moment, but cannot hold the end of the run."""
        if self._after_tasks:
            await asyncio.wait(self._after_tasks, timeout=hooks.AFTER_S)
        for task in self._after_tasks:
            task.cancel()

    def _close_functions(self) -> None:
        if self._functions is not None:
            self._functions.close()

    def _on_unanswerable(self, request: base.Unanswerable) -> None:
        self._send(request.answer)

    def _on_background(self, background: base.BackgroundWork) -> None:
        self._agents = background.agents
        is_over = self._ready and not self._in_turn and not self._prompts and not self._keep_open
        if is_over and not self._agents:
            # The last agent has ended. Its report normally opens another turn, which stops this clock.
            self._clocks.leaving()

    def _on_state(self, state: base.SessionState) -> None:
        if not state.idle:
            self._clocks.work_goes_on()

    def _on_turn_started(self, started: events.TurnStarted) -> None:
        self._in_turn = True
        self._clocks.work_goes_on()
        self._keep(started)

    def _on_turn_ended(self, ended: events.TurnEnded) -> None:
        self._in_turn = False
        self._clocks.all_tools_end()
        self._keep(ended)
        self._meter.take(ended)
        self._count(self._unreported.turn_ended(ended))
        if self._judge:
            way_out: WayOut = "ending" if self._doomed else "closed" if self._stdin_closed else "open"
            self._correction = self._judge.rule(ended, self.emit, agents=self._agents, way_out=way_out)
        self._next_prompt()

    def _on_message(self, message: events.MessageCompleted) -> None:
        self._keep(message)
        if self._judge:
            self._judge.heard(message)

    def _on_usage(self, used: events.UsageUpdated) -> None:
        self._keep(used)
        self._meter.take(used)
        self._unreported.used(used)
        self._model.reach.answered()

    def _count_lost(self, *, is_lost: bool, is_reached: bool) -> None:
        if is_lost:
            self._count(self._unreported.lost(is_reached=is_reached))

    def _count(self, estimated: list[events.Event]) -> None:
        for event in estimated:
            self.emit(event)
            self._meter.take(event)

    def _on_over_budget(self, reason: str) -> None:
        hint = "Raise the budget, or resume the session with a new one."
        self.end("over_budget", "over_budget", reason, hint=hint)

    def _on_out_of_memory(self, reason: str) -> None:
        # Mostly in the middle of a tool: what is allowed has begun, and must not be begun once more.
        self.tool_ran = self.tool_ran or bool(self.gate.allowed)
        hint = "Raise the limit (memory_mb), or have the agent do less at once: fewer parallel jobs, smaller inputs."
        self.end("failed", "out_of_memory", reason, hint=hint)

    def _on_progress(self, progress: events.ToolProgress) -> None:
        self._keep(progress)
        self._heartbeats += 1

    def _on_tool_requested(self, requested: events.ToolRequested) -> None:
        self._keep(requested)
        self._unreported.tool_requested(requested.message_id)
        if self._watch is not None:
            self._watch.requested(requested.call)
        if self._asking is not None and requested.call.name in self._asking.asking_tools:
            self._asking.requested(requested.call)
        elif self._judge:
            self._judge.requested(requested.call)

    def _on_tool_completed(self, done: events.ToolCompleted) -> None:
        self._keep(done)
        if self._watch is not None:
            for held in self._watch.completed(done):
                self._recorder.record(held)
        call_id = done.call_id
        if self._after_tool is not None and done.executed and (call := self.gate.seen(call_id)) is not None:
            told = self.spawn(hooks.after(self._after_tool, call, done, self.emit))
            self._after_tasks.add(told)
            told.add_done_callback(self._after_tasks.discard)
        if self.after_call is not None and (work := self.after_call(call_id)) is not None:
            self.spawn(self._after(work))
        if call_id in self._clocks.tools:
            self._clocks.tool_ends(call_id)
        if not done.executed:
            return
        self.tool_ran = True
        if call_id in self.gate.allowed:
            return
        bypassed = self.gate.bypassed_by(done)
        if bypassed:
            self.end(
                "failed",
                "gate_bypassed",
                bypassed,
                hint="This agent version may not honour the gate. Report it, and use a tested version.",
            )

    async def _after(self, work: Awaitable[str | None]) -> None:
        warning = await work
        if warning:
            self.emit(events.Notice(level="warning", code="after_effect", message=warning))

    def _on_retry(self, retry: events.RetryScheduled) -> None:
        self.last_retry = retry
        is_lost = self._unreported.is_lost(retry)
        if self._model.knows_reason(retry):
            self._keep(self._model.explained(retry))
        else:
            self._model.explain(retry, then=functools.partial(self._count_lost, is_lost=is_lost))
        if retry.api_status in (401, 403):
            self._refused_logins += 1
            if self._refused_logins >= self._launch.patience_401:
                preflight.refuse_login(self, retry.api_status)

    # -- what we say ------------------------------------------------------------------------------------------------

    def _send(self, data: bytes) -> None:
        if self._stdin_closed:
            return
        self._recorder.trace("stdin", data)
        try:
            self._peer.write(data)
        except errors.RunClosed:
            # It has ended or closed its input; the end of its output says how that went.
            self._stdin_closed = True

    @property
    def correction_due(self) -> str | None:
        """What the agent must still be told about its answer; this process was gone before it could hear it."""
        return self._judge.due if self._judge and not self._doomed else None

    @property
    def corrections(self) -> int:
        return self._judge.made if self._judge else 0

    @property
    def is_waiting(self) -> bool:
        """The agent has done what it was told, and waits for a prompt."""
        return self._ready and not self._in_turn and not self._prompts and self._correction is None

    def prompt_waiting(self) -> None:
        """A prompt was queued; send it if the agent is free."""
        if self._ready and not self._in_turn:
            self._next_prompt()

    def finish(self) -> None:
        """No more prompts will come: let the agent end after this turn."""
        self._keep_open = False
        if self._ready and not self._in_turn:
            self._next_prompt()

    def pause(self) -> None:
        """What is decided already goes on; the next call and the next prompt wait for `unpause`, and the clocks too."""
        if not self._is_paused:
            self._is_paused = True
            self._clocks.pause()
            self.gate.pause()

    def unpause(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._clocks.unpause()
            self.gate.unpause()
            held, self._prompt_held = self._prompt_held, None
            if held is not None:
                held()

    def _next_prompt(self) -> None:
        """After a turn: the next prompt, or the end of the conversation."""
        if self._is_paused:
            self._prompt_held = self._next_prompt
            return
        correction, self._correction = self._correction, None
        if correction is not None:
            self._prompt(correction)
        elif self._prompts:
            self.prompts_sent += 1
            if self._judge:
                self._judge.prompted()
            self._prompt(self._prompts.popleft())
        elif self._keep_open:
            self._clocks.work_ends()
        elif not self._agents:
            self._close_stdin()

    def _prompt(self, text: str) -> None:
        self._in_turn = True
        self._recorder.prompted(text)
        self._send(self._session.prompt(text))
        self._clocks.work_begins()

    def _close_stdin(self) -> None:
        self._stdin_closed = True
        self._peer.close_input()
        self._clocks.work_ends()
        self._clocks.leaving()

    async def interrupt(self) -> None:
        """End the turn, keep the process; returns when the agent has said that it will."""
        if not self._in_turn or self._ending or self._stdin_closed:
            return
        await self._interrupt()

    async def _interrupt(self) -> None:
        if self._agent is not None:
            await self.ask("interrupt", self._agent.interrupt)
        elif isinstance(self._peer, Cancelling):
            self._peer.cancel()

    async def ask(self, what: str, say: Callable[[str], bytes]) -> base.Replied | None:
        """The agent's reply to a request of ours; None if it does not come."""
        return await self._replies.ask(what, say)

    def end(
        self,
        cause: Cause,
        kind: str,
        message: str,
        *,
        clock: str | None = None,
        api_status: int | None = None,
        hint: str | None = None,
        connection: str | None = None,
        stderr_tail: tuple[str, ...] = (),
        code: str | None = None,
    ) -> None:
        """End the run for a reason of ours; the first reason counts."""
        if self._doomed:
            return
        self._doomed = True
        self._recorder.record(
            events.RunEnding(
                cause=cause,
                kind=kind,
                message=message,
                code=code,
                clock=clock,
                api_status=api_status,
                hint=hint,
                connection=connection,
                stderr_tail=stderr_tail,
            )
        )
        self._recorder.publish()
        if self._group:
            self._kill()

    def is_only_waiting(self, quiet_s: float) -> bool:
        """A person is asked, no tool runs, and nothing else has happened for a while: no subagent is at work."""
        is_quiet = self._loop.time() - self._active_at >= quiet_s
        return self.gate.is_asking and not self._doomed and not self._clocks.tools and is_quiet

    def suspend(self, message: str) -> bool:
        """End the process and leave what a person is asked open, for another process; False if nothing is asked."""
        if self._doomed or not self.gate.is_asking:
            return False
        self._doomed = True
        self.gate.suspend()
        self._recorder.record(events.Notice(level="info", code=SUSPENDED, message=message))
        self._recorder.publish()
        # At once: on SIGTERM the agent would note the call as refused, and ask the model what to do about it.
        self._kill(stop_s=0)
        return True

    def _kill(self, *, stop_s: float | None = None) -> None:
        """Idempotent: the ladder is climbed once, whoever asks."""
        if self._ending:
            return
        self._ended_by = "supervisor"
        self._stdin_closed = True
        self._clocks.stop()
        self.gate.close("the run is ending")
        self._close_functions()
        wait_s = self._limits.stop_s if stop_s is None else stop_s
        self._ending = self.spawn(self._peer.end(polite_s=0, stop_s=wait_s))

    # -- the gate's host ----------------------------------------------------------------------------------------------

    def emit(self, event: events.Event) -> None:
        self._active_at = self._loop.time()
        self._recorder.record(event)
        self._recorder.publish()

    def stderr_of(self, connection: str) -> tuple[str, ...]:
        """The last lines that a connection's server wrote to stderr, as far as they are known."""
        return self._connection_stderr.tail(connection) if self._connection_stderr is not None else ()

    def hold(self) -> None:
        self._clocks.hold(wall=self._waits)

    def release(self) -> None:
        self._clocks.release(wall=self._waits)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        assert self._group is not None, "an attempt spawns only while it lives"  # noqa: S101
        return self._group.create_task(work)

    # -- clocks -------------------------------------------------------------------------------------------------------

    def _on_expired(self, name: str) -> None:
        if name.startswith("tool "):
            self._on_tool_expired(name.removeprefix("tool "))
        elif name == "exit":
            if self._stdin_closed:
                self._kill()
            else:
                self._close_stdin()
        elif name == "unreachable":
            self._model.give_up()
        else:
            hint = f"Raise the limit ({how_to_raise(name)}), or give the agent a smaller task."
            self.end("timed_out", "timed_out", why_expired(name, self._limits), clock=name, hint=hint)

    def _on_tool_expired(self, call_id: str) -> None:
        """A wedged tool ends its turn, not the run: the agent may still say what it has."""
        self.emit(
            events.Notice(
                level="warning",
                code=TOOL_TIMED_OUT,
                message=f"tool call {call_id} ran for more than {self._limits.tool_s:g} s; the turn is interrupted",
            )
        )
        self._clocks.tool_ends(call_id)
        self.spawn(self._interrupt())
