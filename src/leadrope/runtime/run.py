"""A run, from request to result: the one place where agents are started.

    async with open_run(RunRequest(prompt="fix the failing test")) as run:
        async for recorded in run:
            print(recorded.event)
    print((await run.result()).text)

Leaving the block ends the agent and everything it started, whether or not the events were read to the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
import uuid
from collections import Counter, deque
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import msgspec

from leadrope import errors
from leadrope.core import config as configs
from leadrope.core import events, home
from leadrope.core.fold import Fold
from leadrope.core.redaction import Redactor, Secret
from leadrope.core.request import RunRequest, normal_mode
from leadrope.core.result import RunResult
from leadrope.policy.decide import Policy
from leadrope.process import child as processes
from leadrope.process import lines
from leadrope.providers import base, registry
from leadrope.runtime import gatecheck, prepare, walls
from leadrope.runtime.approvals import Answer, Approve, Approver, Reply, as_approver
from leadrope.runtime.attempt import Attempt
from leadrope.runtime.broker import Broker
from leadrope.runtime.broker import Kind as BrokerKind
from leadrope.runtime.budget import Meter
from leadrope.runtime.outbox import Outbox
from leadrope.runtime.proxy import HostProxy, Refused
from leadrope.runtime.rundir import RunDir
from leadrope.runtime.upstream import proxy_for

log = logging.getLogger("leadrope.run")
spawn_log = logging.getLogger("leadrope.spawn")

# Failures that another try may cure, if no tool has run yet. A refused login, a bad request or a usage limit would
# only be refused again.
HEALABLE = frozenset({"overloaded", "api_error", "connection_failed", "agent_died", "malformed_output"})
RETRY_DELAY_S = 1.0


def open_run(
    request: RunRequest,
    *,
    approver: Approver | Approve | None = None,
    keep_open: bool = False,
    environ: Mapping[str, str] | None = None,
    config: configs.Config | None = None,
) -> Run:
    """Prepare a run; `async with` starts it.

    `approver` is asked where no rule has settled a call; without one the answer is no. `keep_open` keeps the agent
    waiting for `run.send()` after a turn, until `run.finish()`.
    """
    return Run(request, approver=as_approver(approver), keep_open=keep_open, environ=environ, config=config)


class Run:
    """One supervised run: iterate its events, talk to it, stop it, take its result."""

    def __init__(
        self,
        request: RunRequest,
        *,
        approver: Approver,
        keep_open: bool = False,
        environ: Mapping[str, str] | None = None,
        config: configs.Config | None = None,
        is_trial: bool = False,
    ) -> None:
        """`open_run` is the usual way here. `is_trial` marks the run that tries an untested agent's gate."""
        self.id = uuid.uuid4().hex
        self.request = request
        self._approver = approver
        self._keep_open = keep_open
        self._environ = dict(os.environ if environ is None else environ)
        self._config = config
        self._is_trial = is_trial
        self._outbox = Outbox()
        self._fold = Fold(self.id)
        self._tally: Counter[type[events.Event]] = Counter()
        self.incoming: list[events.Event] = []
        """What the agent said and is not numbered yet."""
        self._batch: list[events.Recorded] = []
        self._seq = 0
        self._attempt_no = 1
        self._now = time.time()
        self._prompts: deque[str] = deque([request.prompt])
        self._attempt: Attempt | None = None
        self._broker: Broker | None = None
        self._proxy: HostProxy | None = None
        self._doors = walls.Doors()
        self._walls = walls.Built()
        self._launch: base.Launch | None = None
        self._task: asyncio.Task[None] | None = None
        self._result: RunResult | None = None
        self._stopped = asyncio.Event()
        self._redactor = Redactor()
        self._notices: tuple[events.Notice, ...] = ()
        self._traces = False

    # -- using it -------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        leadrope_home = home.leadrope_home(self._environ)
        settings = home.load_env(leadrope_home)
        ambient = self._environ
        self._environ = {**settings, **ambient}
        if self._config is None:
            self._config = configs.load(self._environ)
        self._provider = registry.provider(self.request.provider)
        ready = prepare.complete(self.request, self._config, self._environ, leadrope_home)
        self.request, self._notices, self._rules = ready.request, ready.notices, ready.rules
        self._traces = self._environ.get("LEADROPE_DEBUG_SPAWN", "").lower() in ("1", "true")
        self._run_dir = RunDir()
        self._place = base.Place(
            run_id=self.id,
            environ=self._environ,
            ambient=ambient,
            settings=settings,
            home=leadrope_home,
            run_dir=self._run_dir.path,
            config=self._config,
            open_broker=self._open_broker,
            is_trusted=ready.is_trusted,
        )
        self._spool = leadrope_home / "spool" / self.id
        self._meter = Meter(self.request.limits.budget_usd, self._config.prices)
        self._started_at = asyncio.get_running_loop().time()
        try:
            launch, child = await self._start()
        except BaseException:
            await self._close_broker()
            self._clean_up()
            raise
        self._task = asyncio.create_task(self._supervise(launch, child), name=f"leadrope run {self.id}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop("the caller left the run")

    def __aiter__(self) -> AsyncIterator[events.Recorded]:
        return self._outbox.events()

    async def result(self) -> RunResult:
        """The result, when the run has ended. Events that nobody reads meanwhile are dropped."""
        assert self._task is not None, "result() is called inside or after `async with open_run(...)`"  # noqa: S101
        if self._result is None:
            if self._outbox.is_read:
                self._outbox.let_go()
            else:
                self._outbox.discard()
        await asyncio.shield(self._task)  # raises what went wrong in leadrope itself
        assert self._result is not None  # noqa: S101  # _supervise always sets it, or has raised above
        return self._result

    async def send(self, text: str) -> None:
        """Queue another prompt; it is sent when the agent has finished its turn."""
        if not text.strip():
            raise errors.EmptyPrompt("the prompt is empty")
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

    async def interrupt(self) -> None:
        """End the turn, not the run."""
        if self._attempt:
            await self._attempt.interrupt()

    async def stop(self, reason: str = "stopped by the caller") -> RunResult:
        """End the run now, and return when nothing of it is left."""
        self._stopped.set()
        # Whoever iterates still sees the last events; what an ending agent says is bounded.
        self._outbox.let_go()
        if self._attempt and self._result is None:
            self._attempt.end("stopped", "stopped", reason)
        assert self._task is not None, "stop() is called inside `async with open_run(...)`"  # noqa: S101
        await asyncio.shield(self._task)
        return await self.result()

    def approve(
        self,
        approval_id: str,
        *,
        edited: dict[str, Any] | None = None,
        scope: events.Scope = "once",
        fingerprint: str | None = None,
        by: str = "person",
    ) -> bool:
        """Answer an `approval.requested`; False if it no longer waits, or if the fingerprint is another call's."""
        answer = Answer(approved=True, by=by, edited=edited, scope=scope, fingerprint=fingerprint)
        return self._resolve(approval_id, answer)

    def deny(self, approval_id: str, reason: str = "not approved", *, by: str = "person") -> bool:
        return self._resolve(approval_id, Answer(approved=False, by=by, reason=reason))

    def answer(
        self, question_id: str, answers: dict[str, str] | None = None, *, reject: bool = False, reason: str = ""
    ) -> bool:
        """Answer a `question.requested`; a plan is approved by an answer and turned down by `reject`."""
        return self._resolve(question_id, Reply(answered=not reject, answers=answers or {}, reason=reason))

    def _resolve(self, pending_id: str, answer: Answer | Reply) -> bool:
        return self._attempt is not None and self._attempt.gate.resolve(pending_id, answer)

    # -- the recorder, for the attempt ------------------------------------------------------------------------------

    def record(self, event: events.Event) -> None:
        """An event of the supervisor; what the agent said before it comes first."""
        self._number_incoming()
        self._number((event,), "supervisor")

    def publish(self, weight: int = 0) -> None:
        self._number_incoming()
        batch, self._batch = self._batch, []
        self._outbox.put(batch, weight)
        self._now = time.time()

    def _number_incoming(self) -> None:
        if self.incoming:
            self._number(self.incoming, "agent")
            self.incoming.clear()

    def _number(self, batch: Sequence[events.Event], source: events.Source) -> None:
        """Whole batches at once: this is done for every event of every run."""
        run_id, attempt, now, first = self.id, self._attempt_no, self._now, self._seq + 1
        recorded = events.Recorded
        self._batch += [recorded(run_id, attempt, seq, now, source, event) for seq, event in enumerate(batch, first)]
        self._seq += len(batch)
        self._tally.update(map(type, batch))
        self._fold.add_batch(batch, run_id=run_id, attempt=attempt, time=now)

    @property
    def is_full(self) -> bool:
        return self._outbox.is_full

    async def room(self) -> None:
        await self._outbox.room()

    def trace(self, kind: str, data: object) -> None:
        if self._traces:
            for line in lines.split(data) if isinstance(data, list) else [data]:
                text = line.decode(errors="replace").rstrip() if isinstance(line, bytes | bytearray) else repr(line)
                spawn_log.info("%s %s %s", self.id[:8], kind, self._redactor.clean(text))

    # -- starting and trying again ------------------------------------------------------------------------------------

    async def _start(self) -> tuple[base.Launch, processes.Child]:
        """The only start of an agent in this package."""
        has_inner = bool((self.request.sandbox or {}).get("enabled"))
        wanted, missing = await walls.grant(walls.wish(self.request, self._rules), has_inner=has_inner)
        if missing:
            told = f"the agent runs without walls: {missing}"
            self.record(events.Notice(level="warning", code="no_walls", message=told))
        self._doors = await self._open_doors(wanted)
        request = msgspec.structs.replace(self.request, broker=True) if wanted.model_only else self.request
        launch = await self._provider.prepare(request, self._place, attempt=self._attempt_no)
        self._place.config.prices.require(launch.model)
        self._redactor = Redactor(launch.secrets)
        self._launch = launch
        for folder in (*launch.folders, str(self._spool)):
            home.ensure(Path(folder))
        for file in launch.files:
            fd = os.open(file.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(fd, "wb") as out:
                out.write(file.content)
        if self._traces:
            spawn_log.info("%s start %s", self.id[:8], self._redactor.clean(" ".join(launch.argv)))
            if launch.credential:
                spawn_log.info("%s credential %s %s", self.id[:8], launch.credential.source, launch.credential.masked)
        self._walls = walls.build(wanted, self.request, launch, self._place, self._rules, self._doors)
        child = await processes.start(
            launch.argv,
            env={**launch.env, **self._walls.env},
            cwd=launch.cwd,
            spool_dir=str(self._spool),
            box=self._walls.argv,
        )
        return launch, child

    async def _open_doors(self, wanted: walls.Wish) -> walls.Doors:
        """Where the agent reaches nothing else: a socket to the model, and one to the hosts that the policy allows."""
        if not wanted.model_only:
            return walls.Doors()
        allowed = walls.allowed_hosts(self._rules.network_allowed_hosts)
        proxy = self._place.run_dir / "proxy.sock" if allowed else None
        if proxy and self._proxy is None:
            host_proxy = HostProxy(allowed, listen=proxy, on_refused=self._on_refused_host)
            self._proxy = await host_proxy.__aenter__()
        return walls.Doors(model=self._place.run_dir / "model.sock", proxy=proxy)

    def _on_refused_host(self, refused: Refused) -> None:
        told = f"{refused.host}:{refused.port} was not reached: {refused.reason}"
        self.notify(events.Notice(level="warning", code="host_refused", message=told))

    async def _supervise(self, launch: base.Launch, child: processes.Child) -> None:
        try:
            while True:
                await self._live(launch, child)
                result = self._fold.result()
                if not self._may_heal(result):
                    break
                self._attempt_no += 1
                if self._attempt and self._attempt.prompts_sent:
                    self._prompts.appendleft(self.request.prompt)
                self.record(
                    events.RetryScheduled(
                        attempt=self._attempt_no,
                        max_attempts=self.request.attempts,
                        delay_s=RETRY_DELAY_S,
                        error=result.error.message if result.error else "",
                        by="supervisor",
                    )
                )
                self.publish()
                try:
                    await asyncio.wait_for(self._stopped.wait(), RETRY_DELAY_S)
                except TimeoutError:
                    launch, child = await self._start()
                else:
                    break
        except errors.LeadropeError as error:
            # Only a second start can raise here; the first one's errors went to the caller.
            self.record(events.RunEnding(cause="failed", kind=error.kind, message=error.message, hint=error.hint))
        finally:
            self._result = self._fold.result()
            self._attempt = None
            self._seq += 1
            ended = events.RunEnded(result=self._result)
            self._batch.append(events.Recorded(self.id, self._attempt_no, self._seq, time.time(), "supervisor", ended))
            self.publish()
            self._outbox.close()
            await self._close_broker()
            self._clean_up()
            self._say_what_failed(self._result)

    async def _live(self, launch: base.Launch, child: processes.Child) -> None:
        cwd = launch.cwd
        policy = Policy(
            mode=normal_mode(self.request.mode),
            workspace=(cwd, *self.request.extra_dirs),
            tools=self.request.tools,
            disallowed_tools=self.request.disallowed_tools,
            rules=self._rules,
        )
        session = self._provider.session(self.request, launch)
        self._attempt = Attempt(
            request=self.request,
            launch=launch,
            session=session,
            child=child,
            policy=policy,
            approver=self._approver,
            recorder=self,
            prompts=self._prompts,
            keep_open=self._keep_open,
            started_at=self._started_at,
            try_gate=None if self._is_trial else self._try_gate,
            meter=self._meter,
            walls=self._walls.level,
            is_sandboxed=bool(self._walls.level) and self._rules.sandbox == "required",
        )
        for notice in (*self._notices, *launch.notices):
            self.record(notice)
        if self._stopped.is_set():
            self._attempt.end("stopped", "stopped", "stopped by the caller")
        await self._attempt.live()

    async def _try_gate(self, version: str) -> str | None:
        """Why this untested version cannot be used, or None; asked once per version and home."""
        place, name = self._place, self.request.provider
        if gatecheck.passed(place.home, name, version):
            return None
        wrong = await gatecheck.try_gate(name, self._launch.argv[0] if self._launch else "", self._environ)
        if wrong is None:
            gatecheck.remember(place.home, name, version)
        return wrong

    def _may_heal(self, result: RunResult) -> bool:
        return (
            self._attempt_no < self.request.attempts
            and result.outcome == "failed"
            and result.error is not None
            and result.error.kind in HEALABLE
            and self._attempt is not None
            and not self._attempt.tool_ran
            and self._attempt.prompts_sent <= 1
            and not self._stopped.is_set()
        )

    async def _open_broker(self, upstream: str, credential: Secret, kind: str) -> base.Brokered:
        """One for the run: a second attempt goes on with the same budget and the same token."""
        if self._broker is None:
            # A corporate proxy is the model's way out only where the user has said that the agent may use it.
            allowed = {name: self._environ[name] for name in self._place.config.forward_env if name in self._environ}
            broker = Broker(
                upstream,
                credential,
                cast("BrokerKind", kind),
                meter=self._meter,
                listen=self._doors.model,
                notify=self.notify,
                proxy=proxy_for(upstream, allowed),
                ca_file=allowed.get("NODE_EXTRA_CA_CERTS") or allowed.get("SSL_CERT_FILE"),
            )
            self._broker = await broker.__aenter__()
        return base.Brokered(url=self._broker.url, token=Secret(self._broker.token))

    async def _close_broker(self) -> None:
        broker, self._broker = self._broker, None
        if broker is not None:
            await broker.close()
        proxy, self._proxy = self._proxy, None
        if proxy is not None:
            await proxy.__aexit__(None, None, None)

    def notify(self, notice: events.Notice) -> None:
        self.record(notice)
        self.publish()

    # -- after it -----------------------------------------------------------------------------------------------------

    def _clean_up(self) -> None:
        if self._launch:
            self._provider.tidy(self._launch)
        self._run_dir.remove()
        with contextlib.suppress(OSError):
            self._spool.rmdir()  # stays when a long line was kept there

    def _say_what_failed(self, result: RunResult) -> None:
        """One compact line for a failed or empty run, whether or not anybody traces."""
        if result.outcome not in ("failed", "timed_out"):
            return
        error = result.error
        log.warning(
            "run %s %s: kind=%s exit=%s model=%s mode=%s prompt=%d text=%d events=%s stderr=%s unread=%s",
            self.id[:8],
            result.outcome,
            error.kind if error else "-",
            error.exit_code if error else "-",
            result.model or self.request.model or "-",
            self.request.mode,
            len(self.request.prompt),
            len(result.text),
            ",".join(sorted(f"{kind.__struct_config__.tag}:{count}" for kind, count in self._tally.items())),
            self._redactor.clean(" | ".join(error.stderr_tail[-5:]) if error else ""),
            self._redactor.clean(" | ".join(self._fold.unread)),
        )
