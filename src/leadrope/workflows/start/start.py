"""The ways into an execution: a new one, a part of the last one done again, one that goes on. Decides no step."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from leadrope import errors
from leadrope.confined import real_path
from leadrope.core.config import Config
from leadrope.core.request_secrets import is_secret_name
from leadrope.core.secrets.redaction import SHORTEST, Redactor
from leadrope.core.text import rehearsal_label
from leadrope.runs.approvals import answers
from leadrope.runs.executions.queue import Given, NotHere
from leadrope.runs.executions.values import ExecutionInfo, ExecutionTexts, NewExecution
from leadrope.runs.records.values import Approval
from leadrope.runs.service import Service
from leadrope.runtime.gate.approvers import Answer
from leadrope.runtime.sandboxing.access import Access
from leadrope.workflows import library, model
from leadrope.workflows.check import access_requests
from leadrope.workflows.engine import called, journal_mapping, plan
from leadrope.workflows.engine.called import CalledTexts
from leadrope.workflows.engine.engine import Execution, journal_of
from leadrope.workflows.engine.execution_context import ExecutionContext, People, Show, secrets_around
from leadrope.workflows.engine.step_attempt import secrets_in
from leadrope.workflows.language import beside, templates
from leadrope.workflows.library import Loaded
from leadrope.workflows.links import links_of
from leadrope.workflows.problems import nearest
from leadrope.workflows.start import surroundings
from leadrope.workflows.start.prewarm import Ahead, rules_of
from leadrope.workflows.start.surroundings import Overrides
from leadrope.workflows.steps import registry

if TYPE_CHECKING:
    from leadrope.workflows.engine.rehearsed import Rehearsal

_USES_CACHE = "uses_cache"
_AUTO_APPROVED = "auto_approved"


async def prepared(
    service: Service,
    loaded: Loaded,
    values: Mapping[str, Any],
    *,
    workspace: Path,
    environ: Mapping[str, str],
    config: Config | None = None,
    overrides: Overrides = Overrides(),  # noqa: B008  # frozen
    on_ask: Literal["wait", "deny"] = "wait",
    labels: Mapping[str, str] | None = None,
    secrets: Iterable[str] = (),
    only: str | None = None,
    begin_at: str | None = None,
    is_forced: bool = False,
    access: Access | None = None,
    execution_id: str | None = None,
    uses_cache: bool = True,
    auto_approved: Mapping[str, str] | None = None,
    after: ExecutionInfo | None = None,
) -> tuple[NewExecution, list[str]]:
    """A new execution with all that another process needs to carry it out, and the secrets that it may not keep.

    `only`: this one step, with what the last execution gave its inputs. `begin_at`: this step and all behind it, with
    what the last execution gave before it. Both refuse values of steps that were changed since, unless forced. `access`
    is what it may use besides the workspace; a file that asks for more is refused. Without `uses_cache`, steps with
    `cache` run although their outputs are known. `auto_approved`: steps that are approved beforehand, and what is
    chosen for them. `after`: a failed execution, whose steps that are done are not run again.
    """
    access = access or Access()
    access_requests.refuse_uncovered(loaded, access, workspace=workspace, environ=environ, leadrope_home=service.home)
    if only is None and begin_at is None and after is None:
        allowed = (*access.secrets, *service.config.forward_env)
        access_requests.refuse_unknown_secrets(loaded, allowed, environ=environ, leadrope_home=service.home)
    source: ExecutionInfo | None
    if after is not None:
        before = (await service.executions.texts(after.id)).settings
        only, auto_approved = before.get("only"), before.get(_AUTO_APPROVED)
        uses_cache = before.get(_USES_CACHE, True)
        kept, source = await _done_before(service, loaded, after, is_forced=is_forced), after
    else:
        kept, source = await taken_over(service, loaded, only, begin_at, is_forced=is_forced)
    folder = Path(loaded.file).parent if loaded.file else Path(real_path(workspace))
    texts = called.gather(loaded.workflow, folder, service.home)
    hidden = [*secrets, *secrets_around(service, environ), *_secrets_of(loaded.workflow, values)]
    around = surroundings.kept(
        [loaded.workflow, *map(library.parsed, texts.files.values())],
        values,
        environ=environ,
        config=config or service.config,
        overrides=overrides,
        leadrope_home=service.home,
        redactor=Redactor([secret for secret in hidden if len(secret) >= SHORTEST]),
        access=access,
        on_ask=on_ask,
    )
    # Kept, because one that waits or is cut off goes on as what it was started as.
    settings = {"only": only, "carried": kept, "source": source.id if source is not None else None, **around}
    settings |= {} if uses_cache else {_USES_CACHE: False}
    settings |= {_AUTO_APPROVED: dict(auto_approved)} if auto_approved else {}
    new = loaded.new(
        execution_id or uuid.uuid4().hex, values, cwd=real_path(workspace), labels=labels, settings=settings
    )
    return msgspec.structs.replace(new, called=msgspec.to_builtins(texts)), hidden


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
    ahead: Ahead | None = None,
    rehearsal: Rehearsal | None = None,
    **options: Any,
) -> AsyncIterator[Execution]:
    """A new execution, ready to `run`. The other options are those of `prepared`; `ahead` was opened for it already.

    `rehearsal`: the script that stands in for its model. The execution is labelled so, and nobody can continue it.
    """
    if rehearsal is not None:
        on_ask = "deny"  # an answer that came later would find no model
        options["labels"] = {**(options.get("labels") or {}), **rehearsal_label.LABELS}
    new, secrets = await prepared(
        service,
        loaded,
        values,
        workspace=workspace,
        environ=environ,
        on_ask=on_ask,
        execution_id=ahead.execution_id if ahead is not None else None,
        **options,
    )
    host = ExecutionContext(
        service,
        tag=new.id,
        workspace=Path(new.cwd),
        environ=environ,
        people=people,
        show=show,
        on_ask=on_ask,
        secrets=secrets,
        access=msgspec.convert(new.settings["access"], Access),
        called=msgspec.convert(new.called, CalledTexts),
        rehearsal=rehearsal,
    )
    async with host:
        if ahead is not None:
            host.adopt(rules_of(loaded.workflow), ahead.commands)
        info = await service.executions.add(new, host.redactor)
        yield await _execution(host, info, loaded, values, new.settings)


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
    access: Access | None = None,
    overrides: Overrides = Overrides(),  # noqa: B008  # frozen
) -> AsyncIterator[Execution]:
    """An execution that waits, is queued, was interrupted or was stopped goes on from its journal, here.

    `name` is the id of an approval, which `answer` then answers, or of an execution. A file that was changed since is
    refused, unless `takes_change`; the steps that are done stay done. It keeps the access that it was started with, and
    what was said for its models; `access` and `overrides` are added.
    """
    approval = await _approval(service, name, answer)
    execution = (
        await service.executions.get(approval.execution_id)
        if approval is not None
        else await service.executions.find(name)
    )
    outermost = await service.executions.outermost(execution)
    from leadrope.workflows.engine.rehearsed import refuse_continuing  # noqa: PLC0415  # only where one continues

    refuse_continuing(outermost)
    loaded, texts = await _again(service, outermost, takes_change=takes_change)
    if not Path(outermost.cwd).is_dir():
        raise errors.BadDirectory(f"the folder of this workflow is gone: {outermost.cwd}")
    access = msgspec.convert(texts.settings.get("access", {}), Access).joined(access or Access())
    access_requests.refuse_uncovered(
        loaded, access, workspace=Path(outermost.cwd), environ=environ, leadrope_home=service.home
    )
    info = await service.executions.claim(outermost.id)
    if approval is not None and answer is not None:
        # After the claim: an answer to an execution that nobody owns would queue it for the background process.
        try:
            await service.answer(approval.id, answer)
        except BaseException:
            await service.executions.set_state(info, "waiting" if outermost.state == "waiting" else "interrupted")
            raise
    said = overrides.above(surroundings.overrides_of(texts.settings))
    host = ExecutionContext(
        service.configured(said.applied(service.config)),
        tag=info.id,
        workspace=Path(outermost.cwd),
        environ=environ,
        people=people,
        show=show,
        on_ask=on_ask,
        access=access,
        called=_called_now(service, loaded, texts, outermost, takes_change=takes_change),
        takes_change=takes_change,
    )
    async with host:
        if loaded.digest != info.digest:
            info = await service.executions.change_text(info, loaded.text, host.redactor, title=loaded.workflow.title)
        yield await _execution(host, info, loaded, texts.inputs, texts.settings)


@contextlib.asynccontextmanager
async def carried(service: Service, info: ExecutionInfo, given: Given | None) -> AsyncIterator[Execution]:
    """An execution that this process has claimed from the queue; NotHere where it cannot be continued here.

    By the texts that are stored with it, whatever became of the files.
    """
    if info.labels.get(rehearsal_label.LABEL) == rehearsal_label.REHEARSAL:
        raise NotHere("it is a rehearsal, whose script is gone", hint="Start it anew.")
    texts = await service.executions.texts(info.id)
    stored = msgspec.convert(texts.called, CalledTexts)
    if "text" in texts.redacted or "called" in texts.redacted:
        loaded = _unchanged(info)
        stored = called.gather(loaded.workflow, Path(loaded.file).parent, service.home)
    else:
        loaded = library.read(texts.text, name=info.name, file=info.file)
    done = journal_mapping.wholes(loaded.workflow, await service.executions.outcomes(info.id))
    inner = [library.parsed(text) for text in stored.files.values()]
    around = surroundings.restored(service, texts, [loaded.workflow, *inner], given, done=done)
    host = ExecutionContext(
        service.configured(around.config),
        tag=info.id,
        workspace=Path(info.cwd),
        environ=around.environ,
        on_ask=around.on_ask,
        secrets=[*around.secrets, *_secrets_of(loaded.workflow, around.inputs)],
        access=around.access,
        called=stored,
    )
    async with host:
        yield await _execution(host, info, loaded, around.inputs, texts.settings, is_queued=info.recover == "resume")


async def _execution(
    host: ExecutionContext,
    info: ExecutionInfo,
    loaded: Loaded,
    values: Mapping[str, Any],
    settings: Mapping[str, Any],
    *,
    is_queued: bool = False,
) -> Execution:
    kept, only, source = settings.get("carried", ()), settings.get("only"), settings.get("source")
    host.uses_cache = settings.get(_USES_CACHE, True)
    host.auto_approved = settings.get(_AUTO_APPROVED, {})
    if source is not None:  # again and again the same: what is there already stays
        await host.service.executions.carry(await host.service.executions.get(source), info, kept)
    await host.open_log(info)
    return Execution(
        loaded.workflow,
        info,
        host,
        inputs=values,
        known=await journal_of(host, info.id),
        folder=Path(loaded.file).parent if loaded.file else host.workspace,
        only=frozenset((only,)) if only is not None else None,
        carried=kept,
        is_queued=is_queued,
    )


def _unchanged(info: ExecutionInfo) -> Loaded:
    """Its file, for one whose stored text lost a secret."""
    now = _text_now(info)
    if now is None or library.digest_of(now) != info.digest:
        why = "is gone" if now is None else "was changed"
        raise NotHere(f"{info.file or info.name} {why}, and held a secret that was not kept", hint="Put it back.")
    return library.read(now, name=info.name, file=info.file)


def _called_now(
    service: Service, loaded: Loaded, texts: ExecutionTexts, execution: ExecutionInfo, *, takes_change: bool
) -> CalledTexts:
    """As they were; as they are now where somebody has said so, and where they held a secret."""
    if (takes_change or "called" in texts.redacted) and _text_now(execution) is not None:
        return called.gather(loaded.workflow, Path(loaded.file).parent, service.home)
    return msgspec.convert(texts.called, CalledTexts)


def _secrets_of(workflow: model.Workflow, values: Mapping[str, Any]) -> list[str]:
    """What the file and its inputs hold that may not be kept: literal secrets of steps, inputs that are called so."""
    found = [value for name, value in values.items() if isinstance(value, str) and is_secret_name(name)]
    for step in workflow.every_step:
        kind = registry.kind_of(step.type)
        found += [text for text in secrets_in(kind, step.parameters) if not templates.is_template(text)]
    return found


async def _approval(service: Service, name: str, answer: Answer | None) -> Approval | None:
    """The approval of that id, and what is wrong with its answer, before anything is claimed."""
    try:
        approval = await service.known_approval(name.strip().lower())
    except errors.UnknownRun:
        if answer is not None:
            raise
        return None
    if answer is not None:
        if approval.state != "pending":
            raise answers.not_open(approval)
        answers.checked(approval, answer)
    return approval if approval.execution_id else None


async def _meant(service: Service, name: str, approval: Approval | None) -> ExecutionInfo:
    if approval is not None:
        return await service.executions.get(approval.execution_id)
    return await service.executions.find(name)


async def workflow_of(service: Service, name: str) -> model.Workflow:
    """The workflow of an execution, which is named as in `resumed`; as it was when the execution began."""
    approval = await _approval(service, name, None)
    found = (
        await service.executions.get(approval.execution_id)
        if approval is not None
        else await service.executions.find(name)
    )
    execution = await service.executions.outermost(found)
    return library.parsed((await service.executions.texts(execution.id)).text, file=execution.file)


async def _again(service: Service, execution: ExecutionInfo, *, takes_change: bool) -> tuple[Loaded, ExecutionTexts]:
    texts = await service.executions.texts(execution.id)
    now = _text_now(execution)
    for one in await _open_parts(service, execution):
        await _check_text(service, one, _text_now(one), takes_change=takes_change)
    if now is None and "text" in texts.redacted:
        raise errors.WrongState(f"{execution.file or execution.name} is gone, and held a secret that was not kept")
    if "inputs" in texts.redacted:
        raise errors.WrongState("its inputs held a secret, which is not kept", hint="Start it anew.")
    if "settings" in texts.redacted:
        raise errors.WrongState(
            "a variable that it was given held a secret, which is not kept",
            hint="Start it anew, and give the variable with --secret NAME.",
        )
    return library.read(now if now is not None else texts.text, name=execution.name, file=execution.file), texts


def _text_now(execution: ExecutionInfo) -> str | None:
    path = Path(execution.file) if execution.file else None
    return library.whole_text_of(path) if path is not None and path.is_file() else None


async def _open_parts(service: Service, execution: ExecutionInfo) -> list[ExecutionInfo]:
    """It, and the workflows inside it that have not come to their end."""
    found = [execution]
    for one in found:
        inside = await service.executions.children(one.id)
        found += [child for child in inside if child.state != "ended" or child.outcome == "stopped"]
    return found


async def _check_text(service: Service, execution: ExecutionInfo, now: str | None, *, takes_change: bool) -> None:
    if now is None or library.digest_of(now) == execution.digest:
        return
    if not takes_change:
        takes_files = beside.has_files(library.parsed(library.text_of(Path(execution.file)), file=execution.file))
        also = ", or a file that its steps name," if takes_files else ""
        raise errors.WrongState(
            f"{execution.file}{also} was changed since this execution began",
            hint="Put it back, start it anew, or continue with the changed file: --changed.",
        )
    names = {step.id for step in library.parsed(now, file=execution.file).steps}
    lost = sorted({one.step for one in await service.executions.outcomes(execution.id)} - names)
    if lost:
        raise errors.WrongState(
            f"the changed file has no step {lost[0]!r}, which is done already", hint="Start it anew with --from."
        )


async def taken_over(
    service: Service, loaded: Loaded, only: str | None, begin_at: str | None, *, is_forced: bool
) -> tuple[list[str], ExecutionInfo | None]:
    """The steps whose outcomes are taken over, and from which execution."""
    name = only or begin_at
    if name is None:
        return [], None
    steps = {step.id: step for step in loaded.workflow.steps}
    if name not in steps:
        near = nearest(name, steps)
        group = next((one.id for one in steps.values() if name in [inner.id for inner in model.each_of(one.steps)]), "")
        hint = f"Did you mean {near}?" if near else f"The steps are: {', '.join(steps)}."
        raise errors.BadValue(
            "only" if only else "from",
            f"the step {name!r} is inside the group {group!r}" if group else f"there is no step {name!r}",
            hint=f"Name the group: {group}." if group else hint,
        )
    by = {"file": loaded.file} if loaded.file else {"name": loaded.name}
    last = await service.executions.last_of(**by)
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
    done = journal_mapping.wholes(loaded.workflow, await service.executions.outcomes(last.id))
    kept = [step for step in done if step not in again]
    if not is_forced:
        await _refuse_changed(service, last, loaded.workflow, kept)
    state = plan.plan(links, {step: journal_mapping.for_plan(done[step]) for step in kept})
    if name not in state.ready:
        missing = [step for step in steps if step in needed and step not in done]
        why = "came to no way that leads" if name not in state.waiting else f"ended before {missing[0]!r}, on the way"
        raise errors.WrongState(
            f"the last execution {why} to {name!r}", hint="Run it whole, or begin at a step before it."
        )
    return kept, last


async def _done_before(service: Service, loaded: Loaded, execution: ExecutionInfo, *, is_forced: bool) -> list[str]:
    """The steps of a failed execution that need not run again: all but those that failed, and what follows them."""
    links = links_of(loaded.workflow)
    done = journal_mapping.wholes(loaded.workflow, await service.executions.outcomes(execution.id))
    handled = plan.plan(links, {step: journal_mapping.for_plan(one) for step, one in done.items()}).handled
    again = {step for step, one in done.items() if one.status == "failed" and step not in handled}
    for step in list(again):
        again |= links.descendants(step)
    kept = [step for step in done if step not in again]
    if not is_forced:
        await _refuse_changed(
            service, execution, loaded.workflow, kept, "Put it back, start it anew, or say --changed."
        )
    return kept


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


async def _refuse_changed(
    service: Service, last: ExecutionInfo, workflow: model.Workflow, kept: list[str], hint: str = ""
) -> None:
    texts = await service.executions.texts(last.id)
    if "text" in texts.redacted:
        return  # its own words are not known any more; its values are, and these are what was asked for
    before = {step.id: step for step in library.parsed(texts.text, file=last.file).steps}
    for name in kept:
        if name in before and _meaning(before[name]) != _meaning(workflow.step(name)):
            raise errors.WrongState(
                f"the step {name!r} was changed since it ran, and its outputs would be used",
                hint=hint or f"Begin at it (--from {name}), or say --force.",
            )


def _meaning(step: model.Step) -> bytes:
    return msgspec.json.encode(msgspec.structs.replace(step, description=""), order="deterministic")
