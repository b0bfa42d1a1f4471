"""A whole run in one call, for programs that want the result and not the events."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar, Unpack, overload

from leadrope import errors
from leadrope.core.output.output_types import schema_of
from leadrope.core.request import RunRequest
from leadrope.core.result import RunResult, TypedResult, with_type
from leadrope.runtime.keywords import RunKeywords
from leadrope.runtime.run import open_run

V = TypeVar("V")


@overload
async def run(prompt: str | RunRequest, *, output_type: type[V], **keywords: Unpack[RunKeywords]) -> TypedResult[V]: ...


@overload
async def run(prompt: str | RunRequest, **keywords: Unpack[RunKeywords]) -> RunResult: ...


async def run(
    prompt: str | RunRequest | None = None,
    *,
    output_type: type[Any] | None = None,
    **keywords: Unpack[RunKeywords],
) -> RunResult:
    """Run to the end and return the result.

    result = await leadrope.run("Say hello", mode="plan")
    invoice = (await leadrope.run("Read invoice.txt", output_type=Invoice)).value

    The keywords are the fields of a `RunRequest`, and `approver`, `config` and `environ` as in `open_run`. Raises what
    prevents the run from starting; a run that starts and ends badly is a result (`result.outcome`, `result.error`).
    """
    return await _run(prompt, output_type, keywords)


@overload
def run_sync(prompt: str | RunRequest, *, output_type: type[V], **keywords: Unpack[RunKeywords]) -> TypedResult[V]: ...


@overload
def run_sync(prompt: str | RunRequest, **keywords: Unpack[RunKeywords]) -> RunResult: ...


def run_sync(
    prompt: str | RunRequest | None = None,
    *,
    output_type: type[Any] | None = None,
    **keywords: Unpack[RunKeywords],
) -> RunResult:
    """The same as `run`, for programs without asyncio.

    result = leadrope.run_sync("Say hello", mode="plan")
    """
    if _is_async():
        raise errors.RunClosed("run_sync was called from async code", hint="Use `await leadrope.run(...)` there.")
    return asyncio.run(_run(prompt, output_type, keywords))


async def _run(prompt: str | RunRequest | None, output_type: type[Any] | None, keywords: RunKeywords) -> RunResult:
    if output_type is not None:
        keywords = _with_schema(prompt, keywords, output_type)
    async with open_run(prompt, **keywords) as opened:  # type: ignore[arg-type]  # without a prompt: refused there
        result = await opened.result()
    return result if output_type is None else with_type(result, output_type)


def _is_async() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _with_schema(prompt: object, keywords: RunKeywords, output_type: type[Any]) -> RunKeywords:
    given = prompt.output_schema if isinstance(prompt, RunRequest) else None
    if keywords.get("output_schema") is not None or given is not None:
        raise errors.BadValue("output_type", "gives the schema itself", hint="Drop output_schema.")
    return {**keywords, "output_schema": schema_of(output_type)}
