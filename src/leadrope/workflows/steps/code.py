"""`code`: the body of a Python function with typed inputs, in a process of its own. Decides nothing about rules.

`${` in the code is no template: values come in through `inputs`, as variables, and never as text of the program.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from leadrope import errors
from leadrope.core.tools import ToolCall
from leadrope.workflows import templates
from leadrope.workflows.steps.base import Config, Context, Done, Kind, StepFailed, brief
from leadrope.workflows.steps.shell import DEFAULT_BYTES, MOST_BYTES, failed_start, timed_out, told

_HINTS: Mapping[str, str] = {
    "bad_input": "Look at the templates in `inputs`, or declare another type at the top of the code.",
    "bad_result": "The result must be JSON: text, number, boolean, null, list or dict of these.",
}


class Code(Config, frozen=True, kw_only=True):
    code: Annotated[
        str,
        Meta(
            min_length=1,
            description="A function's body. `name: type` declares an input; `result = ...` or `return ...` gives.",
        ),
    ]
    inputs: Annotated[dict[str, Any], Meta(description="Values for the variables of the code.")] = msgspec.field(
        default_factory=dict
    )
    python: Annotated[str, Meta(description="Another interpreter; left out, leadrope's own with its packages.")] = ""
    max_output_bytes: Annotated[
        int, Meta(ge=1, le=MOST_BYTES, description="Of the result, and kept of stdout and of stderr.")
    ] = DEFAULT_BYTES


def mistakes(parameters: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Code that leadrope's own Python cannot read; another interpreter may know more."""
    import ast  # noqa: PLC0415  # only where a workflow has code

    source = parameters.get("code")
    if isinstance(source, str) and "python" not in parameters:
        try:
            ast.parse(source)
        except (SyntaxError, ValueError, RecursionError) as error:
            where = f"line {error.lineno}: {error.msg}" if isinstance(error, SyntaxError) else str(error)
            yield "code", f"it is no Python: {where}"
    inputs = parameters.get("inputs")
    for name in inputs if isinstance(inputs, dict) else ():
        if not name.isidentifier():
            yield "inputs", f"{name!r} is no name of a variable. Use letters, digits and _."


async def run(config: Code, context: Context) -> Done:
    for name in config.inputs:
        if not name.isidentifier():
            raise StepFailed(f"input {name!r} is no name of a variable", kind="bad_input", hint="Use letters and _.")
    name = brief(config.code, 60)
    text = f"{shlex.quote(config.python or 'python3')} -c {shlex.quote(config.code)}"
    call = ToolCall(id=str(context.key), name="Bash", input={"command": text})
    is_own = not templates.references(context.sources.get("python", ""))
    allowed = await context.permit(call, is_own=is_own)
    if allowed.input["command"] != text:
        raise StepFailed(
            "the code was changed when it was approved, and code cannot be changed there",
            kind="denied",
            hint="Change it in the file, and start again.",
        )
    context.say(name)
    try:
        done = await context.commands.code(
            config.code,
            config.inputs,
            python=config.python or None,
            timeout_s=context.timeout_s,
            limit_bytes=config.max_output_bytes,
        )
    except errors.LeadropeError as error:
        raise failed_start(error, name) from error
    outputs, warnings = told(done, config.max_output_bytes)
    if done.timed_out:
        raise timed_out(name, context, outputs)
    if done.error is not None:
        trace = f"\n{done.error.detail.rstrip()}" if done.error.detail else ""
        raise StepFailed(
            f"{done.error.message}{trace}",
            kind=done.error.kind,
            hint=_HINTS.get(done.error.kind),
            can_heal=done.error.kind == "code_failed",
            outputs=outputs,
        )
    return Done(outputs={"result": done.value, **outputs}, warnings=warnings)


_TEXT = {"type": "string"}

KIND = Kind(
    name="code",
    summary="Run Python with inputs, and take its result.",
    config=Code,
    outputs={
        "result": {},
        "stdout": _TEXT,
        "stderr": _TEXT,
        "truncated": {"type": "boolean"},
        "leftovers": {"type": "integer"},
    },
    run=run,
    ends_itself=True,
    has_commands=True,
    mistakes=mistakes,
)
