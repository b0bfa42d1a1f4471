"""A whole run in one call, for programs that want the result and not the events."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from leadrope import errors
from leadrope.core.request import RunRequest
from leadrope.core.result import RunResult
from leadrope.runtime.approvals import Approve, Approver
from leadrope.runtime.run import open_run


async def run(
    request: RunRequest | None = None, /, *, approver: Approver | Approve | None = None, **fields: Any
) -> RunResult:
    """Run to the end and return the result.

    result = await leadrope.run(prompt="Say hello", mode="plan")
    """
    async with open_run(_request(request, fields), approver=approver) as opened:
        return await opened.result()


def run_sync(
    request: RunRequest | None = None, /, *, approver: Approver | Approve | None = None, **fields: Any
) -> RunResult:
    """The same for programs without asyncio."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(run(_request(request, fields), approver=approver))
    raise errors.RunClosed("run_sync was called from async code", hint="Use `await leadrope.run(...)` there.")


def _request(request: RunRequest | None, fields: dict[str, Any]) -> RunRequest:
    if request is not None:
        return msgspec.structs.replace(request, **fields) if fields else request
    try:
        return RunRequest(**fields)
    except TypeError as error:
        raise errors.RequestError(str(error)) from None
