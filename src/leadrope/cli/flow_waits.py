"""What workflows wait for, told and answered beside the approvals of runs. Goes on with no workflow by itself."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import click
import msgspec

from leadrope import errors
from leadrope.runs.flow_values import FlowInfo, Wait
from leadrope.runs.service import Service
from leadrope.runtime.shown import clean, exact, one_line

TOKEN_LEAST = 6
"""So much of a token names it."""
EXECUTION_LEAST = 4
"""So much of an execution's id is enough for an answer: a yes to another one could not be taken back."""


def found(service: Service, name: str) -> Wait | None:
    """A wait by its token, the beginning of it, or the execution that waits for exactly one; None where it is none.

    An execution that asks nothing is refused as what it is, unless the approval of a run is called so.
    """
    name = name.strip().lower()
    with contextlib.suppress(errors.UnknownRun):
        return service.flows.wait(name)
    if len(name) >= TOKEN_LEAST and (begun := service.flows.waits_beginning(name)):
        return _only(name, begun)
    if not service.flows.ids_beginning(name):
        return None
    of_runs = [row.id for row in service.approvals(state="") if row.id.startswith(name)]
    if len(name) < EXECUTION_LEAST:
        if of_runs:
            return None
        raise errors.UnknownRun(
            f"{name} is too short to answer an execution by", hint=f"Write at least {EXECUTION_LEAST} characters."
        )
    if mine := [wait for wait in service.flows.waits() if _is_of(service, wait, name)]:
        service.flows.find(name)  # where several are called so none is meant, though only one of them asks
        return _only(name, mine, of_runs)
    if of_runs:
        return None
    raise _asks_nothing(service.flows.find(name))


def _only(name: str, waits: Sequence[Wait], of_runs: Sequence[str] = ()) -> Wait:
    called = [*(wait.token for wait in waits), *of_runs]
    if len(called) > 1:
        raise errors.UnknownRun(
            f"several answers begin with {name}, or are waited for by it: {', '.join(called[:5])}",
            hint="Give one of these.",
        )
    return waits[0]


def _asks_nothing(flow: FlowInfo) -> errors.WrongState:
    called = f"the execution {flow.id[:8]} ({clean(flow.name)})"
    go_on = f"`leadrope flow resume {flow.id[:8]}`, without an answer, goes on with it."
    if flow.outcome == "stopped":
        return errors.WrongState(f"{called} was stopped, and asks nothing", hint=go_on)
    if flow.state == "ended":
        return errors.WrongState(
            f"{called} has ended: {flow.outcome}", hint=f"`leadrope flow report {flow.id[:8]}` tells more."
        )
    match flow.state:
        case "interrupted":
            return errors.WrongState(f"{called} was cut off, and asks nothing", hint=go_on)
        case "waiting":
            return errors.WrongState(f"{called} has its answer already", hint=go_on)
        case _:
            return errors.WrongState(
                f"{called} runs, and asks nothing now", hint="`leadrope approvals list` shows what waits."
            )


def _is_of(service: Service, wait: Wait, name: str) -> bool:
    """Whether an execution of this name waits for it, be it in a workflow inside."""
    flow = service.flows.get(wait.flow_id)
    while not flow.id.startswith(name) and flow.parent is not None:
        flow = service.flows.get(flow.parent)
    return flow.id.startswith(name)


def in_words(wait: Wait) -> str:
    asked = wait.asked.get("detail") or wait.asked.get("title") or ""
    return one_line(clean(f"{wait.title or 'workflow'}, {wait.step}: {asked}"), 200)


def told(wait: Wait) -> dict[str, Any]:
    """As JSON; `flow` where an approval of a run has `run`."""
    return {
        "id": wait.token,
        "flow": wait.flow_id,
        "step": wait.step,
        "state": wait.state,
        "requested": wait.requested,
        "by": wait.by,
        "reason": wait.reason,
        "asked": wait.asked,
    }


def lines(wait: Wait) -> Iterator[str]:
    yield f"{wait.token}  {wait.state}" + (f" by {clean(wait.by)}" if wait.by else "")
    yield f"workflow {wait.flow_id[:8]}: {clean(wait.title)}, step {wait.step}"
    yield f"folder {clean(wait.cwd)}"
    yield ""
    # To the letter: a person says yes to exactly this.
    yield exact(str(wait.asked.get("detail") or wait.asked.get("title") or ""))
    if reason := wait.asked.get("reason"):
        yield f"asked because {clean(str(reason))}"
    if values := wait.asked.get("values"):
        yield textwrap.indent(exact(msgspec.json.format(msgspec.json.encode(values)).decode()), "  ")
    if wait.asked.get("choices"):
        yield f"choices: {clean(_choices(wait))}"
    if wait.choice:
        yield f"chosen: {clean(wait.choice)}"


async def decide(
    service: Service,
    wait: Wait,
    state: Literal["approved", "denied"],
    *,
    choice: str = "",
    reason: str = "",
    by: str,
) -> int:
    if state == "approved" and wait.asked.get("choices") and not choice:
        raise errors.RequestError(
            f"{wait.token} offers choices: {clean(_choices(wait))}", hint="Say which with --choose."
        )
    answered = await service.flows.decide_wait(wait.token, state, choice=choice, reason=reason, by=by)
    click.echo(f"{answered.token} {answered.state}" + (f": {clean(answered.choice)}" if answered.choice else ""))
    if service.flows.get(wait.flow_id).state == "waiting":
        click.echo(f"  it goes on with: leadrope flow resume {answered.token}", err=True)
    return 0


def _choices(wait: Wait) -> str:
    return ", ".join(str(one) for one in wait.asked.get("choices") or ())
