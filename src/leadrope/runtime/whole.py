"""A whole run in one call, for programs that want the result and not the events."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar, overload

import msgspec

from leadrope import errors
from leadrope.core.request import RunRequest
from leadrope.core.result import RunResult, TypedResult, with_type
from leadrope.core.typed import schema_of
from leadrope.runtime.approvals import Approve, Approver
from leadrope.runtime.run import open_run

V = TypeVar("V")


@overload
async def run(
    request: RunRequest | None = None,
    /,
    *,
    output_type: type[V],
    approver: Approver | Approve | None = None,
    **fields: Any,
) -> TypedResult[V]: ...


@overload
async def run(
    request: RunRequest | None = None, /, *, approver: Approver | Approve | None = None, **fields: Any
) -> RunResult: ...


async def run(
    request: RunRequest | None = None,
    /,
    *,
    output_type: type[Any] | None = None,
    approver: Approver | Approve | None = None,
    **fields: Any,
) -> RunResult:
    """Run to the end and return the result.

    result = await leadrope.run(prompt="Say hello", mode="plan")
    invoice = (await leadrope.run(prompt="Read invoice.txt", output_type=Invoice)).value
    """
    wanted = _request(request, fields, output_type)
    async with open_run(wanted, approver=approver) as opened:
        result = await opened.result()
    return result if output_type is None else with_type(result, output_type)


@overload
def run_sync(
    request: RunRequest | None = None,
    /,
    *,
    output_type: type[V],
    approver: Approver | Approve | None = None,
    **fields: Any,
) -> TypedResult[V]: ...


@overload
def run_sync(
    request: RunRequest | None = None, /, *, approver: Approver | Approve | None = None, **fields: Any
) -> RunResult: ...


def run_sync(
    request: RunRequest | None = None,
    /,
    *,
    output_type: type[Any] | None = None,
    approver: Approver | Approve | None = None,
    **fields: Any,
) -> RunResult:
    """The same for programs without asyncio."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        wanted = _request(request, fields, output_type)
        result = asyncio.run(run(wanted, approver=approver))
        return result if output_type is None else with_type(result, output_type)
    raise errors.RunClosed("run_sync was called from async code", hint="Use `await leadrope.run(...)` there.")


def _request(request: RunRequest | None, fields: dict[str, Any], output_type: Any) -> RunRequest:
    if output_type is not None:
        if fields.get("output_schema") is not None or (request is not None and request.output_schema is not None):
            raise errors.BadValue("output_type", "gives the schema itself", hint="Drop output_schema.")
        fields = {**fields, "output_schema": schema_of(output_type)}
    try:
        return RunRequest(**fields) if request is None else msgspec.structs.replace(request, **fields)
    except TypeError as error:
        raise errors.RequestError(str(error)) from None
