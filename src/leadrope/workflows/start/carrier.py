"""An execution of the queue, carried to its end by a process that nobody sits before."""

from __future__ import annotations

from pathlib import Path

from leadrope import errors
from leadrope.runs.executions.queue import Given, NotHere
from leadrope.runs.executions.values import ExecutionInfo
from leadrope.runs.service import Service
from leadrope.workflows.start import start


async def carry(service: Service, info: ExecutionInfo, given: Given | None) -> None:
    """From its journal, by the texts that are stored with it; to its end, or until a person is needed.

    NotHere where something that it needs is not found: a folder, an account, a secret.
    """
    if not Path(info.cwd).is_dir():
        raise NotHere(f"its folder is gone: {info.cwd}")
    try:
        async with start.carried(service, info, given) as execution:
            await execution.run()
    except (errors.BadConfig, errors.InstallError) as error:
        raise NotHere(error.message, hint=error.hint) from error
