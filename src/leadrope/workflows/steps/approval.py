"""The step `approval`: the workflow goes on when a person has said so; for days, if need be."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from leadrope.workflows import templates
from leadrope.workflows.steps.base import Asked, Config, Context, Done, Kind, StepFailed


class ApprovalConfig(Config, frozen=True, kw_only=True):
    message: Annotated[str, Meta(description="What the person is asked.")]
    values: Annotated[dict[str, Any], Meta(description="Shown beside it, as they are.")] = {}
    choices: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=100)]],
        Meta(max_length=20, description="What can be chosen; left out: yes or no."),
    ] = []


def branches(parameters: Mapping[str, Any]) -> tuple[str, ...] | None:
    if "choices" not in parameters:
        return ("approved", "denied")
    choices = templates.settled(parameters).get("choices")
    return (*map(templates.as_text, choices), "denied") if isinstance(choices, list) else None


def mistakes(parameters: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    choices = parameters.get("choices")
    for choice in {str(one) for one in choices if choices.count(one) > 1} if isinstance(choices, list) else ():
        yield "choices", f"{choice!r} is there twice"
    if choices and isinstance(choices, list) and "denied" in choices:
        yield "choices", "`denied` is the branch of a no, and cannot be a choice"


async def run(config: ApprovalConfig, context: Context) -> Done:
    """A no takes the branch `denied` where there is one, and is a failure where there is none."""
    content = msgspec.json.encode((config.message, config.values, config.choices), order="deterministic")
    word = await context.ask(
        Asked(
            kind="approval",
            title=context.key.step,
            detail=config.message,
            choices=tuple(config.choices),
            values=config.values,
            fingerprint=hashlib.sha256(content).hexdigest(),
        )
    )
    branch = word.choice or ("approved" if word.approved else "denied")
    outputs = {"approved": word.approved, "choice": word.choice, "reason": word.reason, "by": word.by}
    if not word.approved and "denied" not in context.branches:
        why = f": {word.reason}" if word.reason else ""
        raise StepFailed(
            f"{context.key.step}: {word.by} said no{why}",
            kind="denied",
            hint="A `next` with the branch `denied` goes on after a no.",
            outputs=outputs,
        )
    return Done(outputs=outputs, branch=branch)


KIND = Kind(
    name="approval",
    summary="A person says yes or no, or chooses.",
    config=ApprovalConfig,
    outputs={
        "approved": {"type": "boolean"},
        "choice": {"type": "string"},
        "reason": {"type": "string"},
        "by": {"type": "string"},
    },
    run=run,
    mistakes=mistakes,
    branches=branches,
)
