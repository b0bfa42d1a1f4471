"""The ways into an execution: a new one, a part of the last one done again, one that goes on. Decides no step."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from leadrope import errors
from leadrope.core.request_secrets import is_secret_name
from leadrope.runs.flows import FlowInfo
from leadrope.runs.service import Service
from leadrope.workflows import library, model, outcomes, plan, templates
from leadrope.workflows.engine import Flow, journal_of
from leadrope.workflows.host import Host, People, Show
from leadrope.workflows.library import Loaded
from leadrope.workflows.links import links_of
from leadrope.workflows.problems import nearest
from leadrope.workflows.steps import registry
from leadrope.workflows.unit import secrets_in


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a person says to a workflow that waits."""

    approved: bool
    choice: str = ""
    reason: str = ""
    by: str = "person"


@contextlib.asynccontextmanager
async def started(
    service: Service,
    loaded: Loaded,
    values: Mapping[str, Any],
    *,
    workspace: Path,
    environ: Mapping[str, str],
    people: People | None = None,
    show: Show | None = None,
    on_ask: Literal["wait", "deny"] = "wait",
    labels: Mapping[str, str] | None = None,
    secrets: Iterable[str] = (),
    only: str | None = None,
    begin_at: str | None = None,
    is_forced: bool = False,
) -> AsyncIterator[Flow]:
    """A new execution, ready to `run`.

    `only`: this one step, with what the last execution gave its inputs. `begin_at`: this step and all behind it, with
    what the last execution gave before it. Both refuse values of steps that were changed since, unless forced.
    """
    kept, source = _kept(service, loaded, only, begin_at, is_forced=is_forced)
    host = Host(
        service,
        tag=uuid.uuid4().hex,
        workspace=workspace.resolve(),
        environ=environ,
        people=people,
        show=show,
        on_ask=on_ask,
        secrets=secrets,
    )
    async with host:
        host.learn(_secrets_of(loaded.workflow, values))
        new = loaded.new(host.tag, values, cwd=str(host.workspace), labels=labels)
        info = await service.flows.add(new, host.redactor)
        if source is not None:
            await service.flows.carry(source, info, kept)
        yield Flow(
            loaded.workflow,
            info,
            host,
            inputs=values,
            known=journal_of(host, info.id),
            folder=Path(loaded.file).parent if loaded.file else host.workspace,
            only=frozenset((only,)) if only is not None else None,
            carried=kept,
        )


@contextlib.asynccontextmanager
async def resumed(
    service: Service,
    name: str,
    *,
    environ: Mapping[str, str],
    answer: Answer | None = None,
    people: People | None = None,
    show: Show | None = None,
    on_ask: Literal["wait", "deny"] = "wait",
    secrets: Iterable[str] = (),
    takes_change: bool = False,
) -> AsyncIterator[Flow]:
    """An execution that waits, was interrupted or was stopped goes on from its journal.

    `name` is the token of what a person was asked, or the id of an execution. A file that was changed since is refused,
    unless `takes_change`; the steps that are done stay done.
    """
    flow = _flow_of(service, name, answer)
    outermost = _outermost(service, flow)
    loaded, values = _again(service, outermost, takes_change=takes_change)
    if not Path(outermost.cwd).is_dir():
        raise errors.BadDirectory(f"the folder of this workflow is gone: {outermost.cwd}")
    if answer is not None:
        state: Literal["approved", "denied"] = "approved" if answer.approved else "denied"
        await service.flows.decide_wait(name, state, choice=answer.choice, reason=answer.reason, by=answer.by)
    info = await service.flows.claim(outermost.id)
    host = Host(
        service,
        tag=info.id,
        workspace=Path(outermost.cwd),
        environ=environ,
        people=people,
        show=show,
        on_ask=on_ask,
        secrets=secrets,
    )
    async with host:
        host.learn(_secrets_of(loaded.workflow, values))
        if loaded.digest != info.digest:
            info = await service.flows.change_text(info, loaded.text, host.redactor, title=loaded.workflow.title)
        yield Flow(
            loaded.workflow,
            info,
            host,
            inputs=values,
            known=journal_of(host, info.id),
            folder=Path(loaded.file).parent if loaded.file else host.workspace,
        )


def _secrets_of(workflow: model.Workflow, values: Mapping[str, Any]) -> list[str]:
    """What the file and its inputs hold that may not be kept: literal secrets of steps, inputs that are called so."""
    found = [value for name, value in values.items() if isinstance(value, str) and is_secret_name(name)]
    for step in workflow.steps:
        kind = registry.kind_of(step.type)
        found += [text for text in secrets_in(kind, step.parameters) if not templates.is_template(text)]
    return found


def _flow_of(service: Service, name: str, answer: Answer | None) -> FlowInfo:
    try:
        return service.flows.get(service.flows.wait(name.strip().lower()).flow_id)
    except errors.UnknownRun:
        if answer is not None:
            raise
    return service.flows.find(name)


def _outermost(service: Service, flow: FlowInfo) -> FlowInfo:
    while flow.parent is not None:
        flow = service.flows.get(flow.parent)
    return flow


def _again(service: Service, flow: FlowInfo, *, takes_change: bool) -> tuple[Loaded, dict[str, Any]]:
    texts = service.flows.texts(flow.id)
    path = Path(flow.file) if flow.file else None
    now = library.text_of(path) if path is not None and path.is_file() else None
    if now is not None and library.digest_of(now) != flow.digest and not takes_change:
        raise errors.WrongState(
            f"{flow.file} was changed since this execution began",
            hint="Put it back, start it anew, or go on with the changed file: --changed.",
        )
    if now is None and "text" in texts.redacted:
        raise errors.WrongState(f"{flow.file or flow.name} is gone, and held a secret that was not kept")
    if "inputs" in texts.redacted:
        raise errors.WrongState("its inputs held a secret, which is not kept", hint="Start it anew.")
    loaded = library.read(now if now is not None else texts.text, name=flow.name, file=flow.file)
    if takes_change:
        _check_kept(service, flow, loaded)
    return loaded, texts.inputs


def _check_kept(service: Service, flow: FlowInfo, loaded: Loaded) -> None:
    names = {step.id for step in loaded.workflow.steps}
    lost = sorted({one.step for one in service.flows.outcomes(flow.id)} - names)
    if lost:
        raise errors.WrongState(
            f"the changed file has no step {lost[0]!r}, which is done already", hint="Start it anew with --from."
        )


def _kept(
    service: Service, loaded: Loaded, only: str | None, begin_at: str | None, *, is_forced: bool
) -> tuple[list[str], FlowInfo | None]:
    """The steps whose outcomes are taken over, and from which execution."""
    name = only or begin_at
    if name is None:
        return [], None
    steps = {step.id: step for step in loaded.workflow.steps}
    if name not in steps:
        near = nearest(name, steps)
        raise errors.BadValue(
            "only" if only else "from",
            f"there is no step {name!r}",
            hint=f"Did you mean {near}?" if near else f"The steps are: {', '.join(steps)}.",
        )
    by = {"file": loaded.file} if loaded.file else {"name": loaded.name}
    last = service.flows.last_of(**by)
    links = links_of(loaded.workflow)
    again = {name, *links.descendants(name)}
    needed = _before(name, loaded.workflow)
    if last is None and not needed:
        return [], None
    if last is None:
        raise errors.WrongState(
            f"{loaded.name} has not run yet, so nothing is known of what comes before {name}",
            hint="Run it whole first.",
        )
    done = {one.step for one in service.flows.outcomes(last.id)}
    kept = [step for step in steps if step not in again and step in done]
    if not is_forced:
        _refuse_changed(service, last, loaded.workflow, kept)
    _refuse_unreached(service, last, loaded.workflow, kept, name)
    return kept, last


def _refuse_unreached(service: Service, last: FlowInfo, workflow: model.Workflow, kept: list[str], name: str) -> None:
    found = [one for one in service.flows.outcomes(last.id) if one.step in kept and one.item is None]
    # In this order what a whole step came to stands last, and counts.
    found.sort(key=lambda one: -one.iteration)
    state = plan.plan(links_of(workflow), {one.step: outcomes.for_plan(one) for one in found})
    if name in (*state.blocked, *state.left_out):
        raise errors.WrongState(
            f"the last execution came to no way that leads to {name!r}",
            hint="Run it whole, or begin at a step before it.",
        )


def _before(name: str, workflow: model.Workflow) -> set[str]:
    """Every step that one leads to it."""
    links = links_of(workflow)
    found: set[str] = set()
    todo = [name]
    while todo:
        for link in links.into.get(todo.pop(), ()):
            if link.source not in found:
                found.add(link.source)
                todo.append(link.source)
    return found


def _refuse_changed(service: Service, last: FlowInfo, workflow: model.Workflow, kept: list[str]) -> None:
    texts = service.flows.texts(last.id)
    if "text" in texts.redacted:
        return  # its own words are not known any more; its values are, and these are what was asked for
    before = {step.id: step for step in library.parsed(texts.text).steps}
    for name in kept:
        if name in before and _meaning(before[name]) != _meaning(workflow.step(name)):
            raise errors.WrongState(
                f"the step {name!r} was changed since it ran, and its outputs would be used",
                hint=f"Begin at it (--from {name}), or say --force.",
            )


def _meaning(step: model.Step) -> bytes:
    return msgspec.json.encode(msgspec.structs.replace(step, description=""), order="deterministic")
