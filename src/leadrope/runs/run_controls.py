"""What other processes ask of a run, done by its owner: at once where it runs, else when it does. Reads no queue."""

from __future__ import annotations

import contextlib
import logging

from leadrope import errors
from leadrope.core import actors
from leadrope.runs.job import Job
from leadrope.runs.records.sqlite import Sqlite
from leadrope.runs.records.values import Order

log = logging.getLogger("leadrope.runs")


async def carry_out(store: Sqlite, job: Job, order: Order) -> None:
    """An order is taken from the store once, so a run that is still being started must not lose it here."""
    if job.run is None or job.keeper is None:
        is_ended = order.kind == "stop" and job.give_up(reason_of(order))
        if not is_ended and order.kind != "interrupt":  # without a turn there is none to interrupt
            job.later.append(order)
        return
    match order.kind:
        case "stop":
            await job.run.stop(reason_of(order))
        case "interrupt":
            await job.run.interrupt()
        case "send":
            with contextlib.suppress(errors.RunClosed):
                await job.run.send(order.body["text"])
        case "revoke":
            job.run.revoke(str(order.body["pattern"]), by=str(order.body.get("by") or actors.USER))
        case "pause":
            job.run.pause()
            job.pauses.begin()
            job.keeper.row.is_paused = True
            await store.set_state(job.info, "paused", "paused by a person")
        case "unpause":
            job.keeper.row.is_paused = False
            await store.set_state(job.info, job.keeper.row.state)
            job.pauses.end()
            job.run.unpause()
        case _:
            log.warning("run %s: nobody knows the order %r", order.run_id[:8], order.kind)


def reason_of(order: Order) -> str:
    return str(order.body.get("reason") or "stopped from another process")
