"""The pool for a workflow that begins with a command, opened while the engine is still being loaded; knows no engine.

A pool takes some 40 ms to come up, in processes of its own, and the engine about as long to be imported: side by side
they cost half.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from leadrope import errors
from leadrope.core import config as configs
from leadrope.runtime.commands import Commands
from leadrope.runtime.sandboxing.access import Access
from leadrope.workflows import model

KINDS = ("shell", "code")


class Ahead(NamedTuple):
    execution_id: str
    """Of the execution to come: all that its commands start is found by it."""
    commands: Commands
    """Under the rules of the workflow itself, which `rules_of` gives."""


def rules_of(workflow: model.Workflow) -> tuple[dict[str, Any], ...]:
    """The layers of its steps that have none of their own."""
    return (workflow.settings.policy,) if workflow.settings.policy else ()


def begins_with_a_command(workflow: model.Workflow) -> bool:
    """Surely: nobody is asked before it, and nothing is looked at."""
    first = workflow.steps[0]
    return first.type in KINDS and not first.policy and not first.approval and first.when is None


@contextlib.asynccontextmanager
async def opened(
    workflow: model.Workflow,
    *,
    workspace: Path,
    environ: Mapping[str, str],
    config: configs.Config,
    home: Path,
    access: Access | None = None,
) -> AsyncIterator[Ahead | None]:
    """Returns while the processes of the pool start.

    What goes wrong is told to the step that needs it, which tries it again: an execution has to exist by then.
    """
    execution_id = uuid.uuid4().hex
    async with contextlib.AsyncExitStack() as stack:
        commands = Commands(
            workspace,
            policies=rules_of(workflow),
            environ=environ,
            config=config,
            home=home,
            tag=execution_id,
            access=access,
        )
        try:
            await stack.enter_async_context(commands)
        except errors.LeadropeError:
            yield None
            return
        await commands.warm()
        yield Ahead(execution_id, commands)
