"""The step `wait`: waits some seconds, or until a time. It holds no resources, and a stop ends it at once."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

from msgspec import Meta

from leadrope.workflows.language import templates
from leadrope.workflows.steps.base import Kind, StepConfig, StepContext, StepDone, StepFailed, as_mistake

MOST_S = 86_400
MOST_DAYS = 31
_EACH_S = 10.0
"""Seconds between updates about the remaining time; every second in the last minute."""


class WaitConfig(StepConfig, frozen=True, kw_only=True):
    seconds: Annotated[float | None, Meta(description="How long.")] = None
    until: Annotated[
        str | None, Meta(description="A time, like 2030-01-31T08:00 (here) or 2030-01-31T08:00Z; at most 31 days away.")
    ] = None


_ONE_OF_BOTH = "wait takes `seconds` or `until`, one of them"
_EXAMPLE = "For example seconds: 5."


def mistakes(parameters: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if ("seconds" in parameters) == ("until" in parameters):
        yield "until" if "until" in parameters else "type", f"{_ONE_OF_BOTH}. {_EXAMPLE}"
    known = templates.settled(parameters)
    seconds, until = known.get("seconds"), known.get("until")
    if isinstance(seconds, int | float) and not 0 <= seconds <= MOST_S:
        yield "seconds", f"{seconds:g} is out of range. Use 0 to {MOST_S}, or `until`."
    if isinstance(until, str):
        try:
            _time(until)
        except StepFailed as failed:
            yield "until", as_mistake(failed).removeprefix("until: ")


async def run(config: WaitConfig, context: StepContext) -> StepDone:
    if (config.seconds is None) == (config.until is None):
        raise StepFailed(_ONE_OF_BOTH, kind="bad_input", hint=_EXAMPLE)
    began = time.monotonic()
    if config.seconds is not None:
        if not 0 <= config.seconds <= MOST_S:
            raise StepFailed(
                f"seconds: {config.seconds:g} is out of range", kind="bad_input", hint=f"Use 0 to {MOST_S}, or `until`."
            )
        end = began + config.seconds
        await _wait(lambda: end - time.monotonic(), context)
    else:
        when = _time(config.until or "").timestamp()
        if when - time.time() > MOST_DAYS * MOST_S:
            raise StepFailed(
                f"until: {config.until} is more than {MOST_DAYS} days away", kind="bad_input", hint="Check the year."
            )
        # By wall clock: a machine that slept in between wakes up when the time has come.
        await _wait(lambda: when - time.time(), context)
    return StepDone(outputs={"waited_s": round(time.monotonic() - began, 3)})


async def _wait(left: Callable[[], float], context: StepContext) -> None:
    while (remaining := left()) > 0:
        context.say(f"waits, {_told(remaining)} left")
        await asyncio.sleep(min(remaining, _EACH_S if remaining > 60 else 1.0))


def _time(text: str) -> dt.datetime:
    try:
        found = dt.datetime.fromisoformat(text.strip())
        # A time without a zone is local time.
        return found if found.tzinfo is not None else found.astimezone()
    except (ValueError, OverflowError):
        raise StepFailed(
            f"until: {text[:40]!r} is not a time",
            kind="bad_input",
            hint="Write it like 2030-01-31T08:00 or with a zone, +01:00.",
        ) from None


def _told(seconds: float) -> str:
    whole = int(seconds + 0.999)
    if whole < 60:
        return f"{whole} s"
    minutes = whole // 60
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


KIND = Kind(
    name="wait",
    summary="Waits some seconds, or until a time.",
    config=WaitConfig,
    outputs={"waited_s": {"type": "number"}},
    run=run,
    mistakes=mistakes,
)
