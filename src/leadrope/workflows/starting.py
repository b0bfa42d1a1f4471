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
from leadrope.runs.flow_values import FlowInfo, FlowTexts
from leadrope.runs.service import Service
from leadrope.workflows import library, model, outcomes, plan, templates
from leadrope.workflows.ahead import Ahead, rules_of
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
    ahead: Ahead | None = None,
) -> AsyncIterator[Flow]:
    """A new execution, ready to `run`.

    `only`: this one step, with what the last execution gave its inputs. `begin_at`: this step and all behind it, with
    what the last execution gave before it. Both refuse values of steps that were changed since, unless forced. `ahead`
    is what was opened for it already.
    """
    kept, source = _kept(service, loaded, only, begin_at, is_forced=is_forced)
    host = Host(
        service,
        tag=ahead.flow_id if ahead is not None else uuid.uuid4().hex,
        workspace=workspace.resolve(),
        environ=environ,
        people=people,
        show=show,
        on_ask=on_ask,
        secrets=secrets,
    )
    async with host:
        if ahead is not None:
            host.adopt(rules_of(loaded.workflow), ahead.commands)
        host.learn(_secrets_of(loaded.workflow, values))
        # Kept, because one that waits or is cut off goes on as what it was started as.
        settings = {"only": only, "carried": kept}
        new = loaded.new(host.tag, values, cwd=str(host.workspace), labels=labels, settings=settings)
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
    loaded, texts = _again(service, outermost, takes_change=takes_change)
    values, only = texts.inputs, texts.settings.get("only")
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
            only=frozenset((only,)) if only is not None else None,
            carried=texts.settings.get("carried", ()),
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


def _again(service: Service, flow: FlowInfo, *, takes_change: bool) -> tuple[Loaded, FlowTexts]:
    texts = service.flows.texts(flow.id)
    now = _text_now(flow)
    for one in _open_parts(service, flow):
        _check_text(service, one, _text_now(one), takes_change=takes_change)
    if now is None and "text" in texts.redacted:
        raise errors.WrongState(f"{flow.file or flow.name} is gone, and held a secret that was not kept")
    if "inputs" in texts.redacted:
        raise errors.WrongState("its inputs held a secret, which is not kept", hint="Start it anew.")
    return library.read(now if now is not None else texts.text, name=flow.name, file=flow.file), texts


def _text_now(flow: FlowInfo) -> str | None:
    path = Path(flow.file) if flow.file else None
    return library.text_of(path) if path is not None and path.is_file() else None


def _open_parts(service: Service, flow: FlowInfo) -> list[FlowInfo]:
    """It, and the workflows inside it that have not come to their end."""
    found = [flow]
    for one in found:
        inside = service.flows.children(one.id)
        found += [child for child in inside if child.state != "ended" or child.outcome == "stopped"]
    return found


def _check_text(service: Service, flow: FlowInfo, now: str | None, *, takes_change: bool) -> None:
    if now is None or library.digest_of(now) == flow.digest:
        return
    if not takes_change:
        raise errors.WrongState(
            f"{flow.file} was changed since this execution began",
            hint="Put it back, start it anew, or go on with the changed file: --changed.",
        )
    names = {step.id for step in library.parsed(now).steps}
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
    done = outcomes.wholes(loaded.workflow, service.flows.outcomes(last.id))
    kept = [step for step in done if step not in again]
    if not is_forced:
        _refuse_changed(service, last, loaded.workflow, kept)
    state = plan.plan(links, {step: outcomes.for_plan(done[step]) for step in kept})
    if name not in state.ready:
        missing = [step for step in steps if step in needed and step not in done]
        why = "came to no way that leads" if name not in state.waiting else f"ended before {missing[0]!r}, on the way"
        raise errors.WrongState(
            f"the last execution {why} to {name!r}", hint="Run it whole, or begin at a step before it."
        )
    return kept, last


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
