"""What other processes ask of a run, done by its owner: at once where it runs, else when it does. Reads no queue."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from leadrope import errors
from leadrope.core import actors
from leadrope.runs.job import Job
from leadrope.runs.records.values import RunControl

if TYPE_CHECKING:
    from leadrope.runs.records.protocols import RunStore

log = logging.getLogger("leadrope.runs")


async def carry_out(store: RunStore, job: Job, control: RunControl) -> None:
    """An order is taken from the store once, so a run that is still being started must not lose it here."""
    if job.run is None or job.recorder is None:
        is_ended = control.kind == "stop" and job.give_up(reason_of(control))
        if not is_ended and control.kind != "interrupt":  # without a turn there is none to interrupt
            job.later.append(control)
        return
    match control.kind:
        case "stop":
            await job.run.stop(reason_of(control))
        case "interrupt":
            await job.run.interrupt()
        case "send":
            with contextlib.suppress(errors.RunClosed):
                await job.run.send(control.body["text"])
        case "revoke":
            job.run.revoke(str(control.body["pattern"]), by=str(control.body.get("by") or actors.USER))
        case "pause":
            job.run.pause()
            job.pauses.begin()
            job.recorder.row.is_paused = True
            await store.set_state(job.info, "paused", "paused by a person")
        case "unpause":
            job.recorder.row.is_paused = False
            await store.set_state(job.info, job.recorder.row.state)
            job.pauses.end()
            job.run.unpause()
        case _:
            log.warning("run %s: nobody knows the order %r", control.run_id[:8], control.kind)


def reason_of(control: RunControl) -> str:
    return str(control.body.get("reason") or "stopped from another process")
