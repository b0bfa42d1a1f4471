"""What workflows wait for, told and answered beside the approvals of runs. Goes on with no workflow by itself."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any, Literal

import click
import msgspec

from leadrope import errors
from leadrope.runs.flow_values import Wait
from leadrope.runs.service import Service
from leadrope.runtime.shown import clean, exact, one_line

TOKEN_LEAST = 6
"""So much of a token names it."""


def found(service: Service, name: str) -> Wait | None:
    """A wait by its token, the beginning of it, or the execution that waits for exactly one; None where it is none."""
    try:
        return service.flows.wait(name)
    except errors.UnknownRun:
        pass
    pending = service.flows.waits()
    for mine in (
        [wait for wait in pending if len(name) >= TOKEN_LEAST and wait.token.startswith(name.lower())],
        [wait for wait in pending if len(name) >= TOKEN_LEAST and _is_of(service, wait, name.lower())],
    ):
        if len(mine) > 1:
            tokens = ", ".join(wait.token for wait in mine[:5])
            raise errors.UnknownRun(
                f"several answers begin with {name}, or are waited for by it: {tokens}",
                hint="Give one of these tokens.",
            )
        if mine:
            return mine[0]
    return None


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
