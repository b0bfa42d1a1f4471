"""A failed execution continued from its failed step: a new execution with its inputs and with what it has done."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from leadrope import errors
from leadrope.runs.executions.values import ExecutionInfo, ExecutionTexts
from leadrope.runs.service import Service
from leadrope.runtime.sandboxing.access import Access
from leadrope.workflows import library
from leadrope.workflows.engine.engine import Execution
from leadrope.workflows.engine.rehearsed import refuse_continuing
from leadrope.workflows.start import start, surroundings
from leadrope.workflows.start.surroundings import Overrides


async def failed(service: Service, name: str) -> ExecutionInfo | None:
    """The outermost execution of this name if it has failed; None for a token, and for one in another state."""
    try:
        execution = await service.executions.outermost(await service.executions.find(name))
    except errors.UnknownRun:
        return None
    return execution if execution.state == "ended" and execution.outcome == "failed" else None


@contextlib.asynccontextmanager
async def continued(
    service: Service,
    execution: ExecutionInfo,
    given: Mapping[str, str],
    *,
    environ: Mapping[str, str],
    takes_change: bool = False,
    access: Access | None = None,
    overrides: Overrides = Overrides(),  # noqa: B008  # frozen
    **more: Any,
) -> AsyncIterator[Execution]:
    """A new execution after a failed one, ready to `run`.

    Steps that are done are not run again; `given` are inputs, as texts, that replace those of the failed execution. The
    file is read as it is now, because a mistake in it may have been corrected. A change to a step that is done is
    refused unless `takes_change`.
    """
    refuse_continuing(execution)
    texts = await service.executions.texts(execution.id)
    workspace = Path(execution.cwd)
    if not workspace.is_dir():
        raise errors.BadDirectory(f"the folder of this workflow is gone: {execution.cwd}")
    loaded = _loaded(service, execution, texts, workspace)
    values = _inputs(loaded, execution, texts, given)
    said = overrides.above(surroundings.overrides_of(texts.settings))
    async with start.started(
        service.configured(said.applied(service.config)),
        loaded,
        values,
        workspace=workspace,
        environ=environ,
        labels=execution.labels,
        overrides=said,
        access=msgspec.convert(texts.settings.get("access", {}), Access).joined(access or Access()),
        after=execution,
        is_forced=takes_change,
        **more,
    ) as new:
        yield new


def _loaded(service: Service, execution: ExecutionInfo, texts: ExecutionTexts, workspace: Path) -> library.Loaded:
    path = Path(execution.file) if execution.file else None
    if path is not None and path.is_file():
        return library.load(path, leadrope_home=service.home, workspace=workspace)
    if "text" in texts.redacted:
        raise errors.WrongState(f"{execution.file or execution.name} is gone, and held a secret that was not kept")
    return library.read(texts.text, name=execution.name, file=execution.file)


def _inputs(
    loaded: library.Loaded, execution: ExecutionInfo, texts: ExecutionTexts, given: Mapping[str, str]
) -> dict[str, Any]:
    declared = {one.name for one in loaded.workflow.inputs}
    if "inputs" in texts.redacted:
        secret = [name for name in texts.settings.get(surroundings.SECRET_INPUTS, {}) if name in declared]
        missing = [name for name in secret or declared if name not in given]
        if missing:
            raise errors.WrongState(
                f"its input {missing[0]} was a secret, which is not stored",
                hint=f"Give it again: leadrope flow resume {execution.id[:8]} {missing[0]}=VALUE",
            )
    stored = {name: value for name, value in texts.inputs.items() if name in declared and name not in given}
    return {**loaded.inputs({**stored, **given}, are_texts=True), **stored}
