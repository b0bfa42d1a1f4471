"""What people ask of runs, from any process: stop, pause, send, revoke, answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from leadrope import errors
from leadrope.core import actors, events, home
from leadrope.core.secrets.redaction import Redactor, redact
from leadrope.runs import recover, run_controls
from leadrope.runs.approvals import answers, grants
from leadrope.runs.records.values import RESERVED, Approval, Decided, RunControl, RunInfo, State, ended_event
from leadrope.runtime.gate.approvers import Answer
from leadrope.runtime.sessions import session_secrets

if TYPE_CHECKING:
    from leadrope.runs.run_loop import RunsInHand
    from leadrope.runs.service import Service

LOOK_S = 2.0
"""Between two looks for what an owner has done."""


class RunSteering:
    """Done here where the run is nobody's, or this process's own; else by its owner, which is asked."""

    def __init__(self, service: Service, hand: RunsInHand) -> None:
        self._service = service
        self._hand = hand

    async def carry_out(self, control: RunControl) -> None:
        job = self._hand.jobs.get(control.run_id)
        if job is None:
            return
        if control.kind == "stop" and not job.is_taken:
            await self.stop(job.id, run_controls.reason_of(control))
        else:
            await run_controls.carry_out(self._service.store, job, control)

    async def control(self, run_id: str, kind: str, **body: Any) -> None:
        """Ask the run's owner, whoever that is."""
        run = await self._service.store.find(run_id)
        if run.state == "ended":
            raise errors.WrongState(f"run {run.id[:8]} has ended", hint="`leadrope runs show` tells how.")
        await self._service.store.add_control(run, kind, body)

    async def stop(self, run_id: str, reason: str = "stopped by a person") -> None:
        """A run that waits is ended here and now; one that runs is ended by its owner."""
        run = await self._service.store.find(run_id)
        clean = self._cleaner(run)
        job = self._hand.jobs.get(run.id)
        # One that another process has queued is that one's to end: somebody may wait for it there.
        is_reserved = run.owner is not None and run.owner.startswith(RESERVED)
        is_here = run.owner in (None, self._service.lease.owner.id) and not (job is not None and job.is_taken)
        is_here = is_here or is_reserved
        is_suspended = run.state == "waiting" and run.owner is None
        if is_suspended or (run.state in ("queued", "parked") and is_here):
            result = recover.stopped(run, await recover.all_events(self._service.store, run), clean(reason))
            last = ended_event(run.id, run.attempt, run.last_seq + 1, result)
            states: tuple[State, ...] = ("waiting",) if is_suspended else ("queued", "parked")
            if await self._service.store.end_run(run, result, Redactor(), last=last, only=states, unowned=is_suspended):
                job = job or self._hand.suspended.pop(run.id, None)
                if job is not None:
                    self._hand.forget(job)
                    job.settle(result)
                return
        await self.control(run.id, "stop", reason=clean(reason))

    def _cleaner(self, run: RunInfo) -> Callable[[str], str]:
        """For what others say to a run. Where another process has its redactor, its session has the digests."""
        job = self._hand.jobs.get(run.id)
        if job is not None:
            return job.redactor.clean
        try:
            finder = session_secrets.finder(
                self._service.home, home.sessions_dir(self._service.home) / (run.session_id or "")
            )
        except (session_secrets.Unknown, errors.BadConfig):
            return redact
        return lambda text: redact(finder.clean_text(text))

    async def interrupt(self, run_id: str) -> None:
        """End the current turn; the conversation continues."""
        await self.control(run_id, "interrupt")

    async def send(self, run_id: str, text: str) -> None:
        """Send a message to a conversation."""
        if not text.strip():
            raise errors.EmptyPrompt("the prompt is empty")
        if self._cleaner(await self._service.store.find(run_id))(text) != text:
            raise errors.BadValue(
                "text", "holds what looks like a secret, and secrets are not stored", hint="Say it at the run itself."
            )
        await self.control(run_id, "send", text=text)

    async def pause(self, run_id: str) -> None:
        """Hold the next tool call, or the next turn; the clocks stand still until `unpause`."""
        await self.control(run_id, "pause")

    async def unpause(self, run_id: str) -> None:
        """Continue after `pause`."""
        await self.control(run_id, "unpause")

    async def revoke(self, run_id: str, pattern: str, *, by: str = actors.USER) -> None:
        """End a grant of a run, wherever that runs. Returns when it no longer holds; what it let through stays done."""
        run = await self._service.store.find(run_id)
        if run.state == "ended":
            raise errors.WrongState(
                f"run {run.id[:8]} has ended, and its grants with it", hint="Nothing is to be done."
            )
        held = [grant.pattern for grant in await self.held_grants(run.id)]
        if pattern not in held:
            hint = f"It has: {', '.join(held)}." if held else "`leadrope runs show` lists the grants of a run."
            raise errors.BadValue("pattern", f"{pattern!r} is not a grant of run {run.id[:8]}", hint=hint)
        by = actors.read(by)
        revoked = events.GrantRevoked(pattern=pattern, by=by)
        if run.owner is None and await self._service.store.add_event(run, revoked, Redactor()):
            return  # it waits without an agent: the next attempt reads it in the log
        await self.control(run.id, "revoke", pattern=pattern, by=by)
        with self._service.store.notifier.listen() as heard:
            while any(grant.pattern == pattern for grant in await self.held_grants(run.id)):
                await heard.wait(LOOK_S)

    async def held_grants(self, run_id: str) -> list[grants.RunGrant]:
        return [grant for grant in await self._service.grants(run_id) if grant.state == "active"]

    async def answer(self, approval_id: str, answer: Answer) -> Approval:
        """Answer a pending approval, once; the first answer counts, and continues what has waited for it.

        One that does not fit what is asked now is refused, and the approval stays pending.
        """
        found = await self._service.store.approval(approval_id)
        if found.state != "pending":
            raise answers.not_open(found)
        answer = answers.checked(found, answer)
        text = msgspec.json.encode(answer)
        clean = self._cleaner(await self._service.store.find(found.run_id)) if found.run_id else redact
        if clean(text.decode()).encode() != text:
            raise errors.BadValue(
                "answer",
                "holds what looks like a secret, and secrets are not stored",
                hint="Answer in the terminal where it runs.",
            )
        state: Decided = "approved" if answer.approved else "denied"
        # Compared once more by the write itself: what is asked may have changed since it was read.
        if not await self._service.store.decide(
            found.id, state, by=answer.by, reason=answer.reason, answer=text, fingerprint=found.fingerprint
        ):
            now = await self._service.store.approval(found.id)
            raise answers.stale(now.id) if now.state == "pending" else answers.not_open(now)
        return await self._service.store.approval(found.id)
