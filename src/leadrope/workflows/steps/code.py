"""`code`: the body of a Python function with typed inputs, run in a process of its own. Rules are decided elsewhere.

`${` in the code is not a template: values come in as variables through `inputs`, never as program text.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from leadrope import errors
from leadrope.core.tools import ToolCall
from leadrope.workflows import routing
from leadrope.workflows.language import templates
from leadrope.workflows.steps.base import Kind, StepConfig, StepContext, StepDone, StepFailed, brief
from leadrope.workflows.steps.shell import DEFAULT_BYTES, MOST_BYTES, failed_start, limited, sentences, timed_out, told

if TYPE_CHECKING:
    import ast

_HINTS: Mapping[str, str] = {
    "bad_input": "Check the templates in `inputs`, or declare another type at the top of the code.",
    "bad_result": "The result must be JSON: text, number, boolean, null, list or dict of these.",
}


class Code(StepConfig, frozen=True, kw_only=True):
    code: Annotated[
        str,
        Meta(
            min_length=1,
            description="A function's body. `name: type` declares an input; `result = ...` or `return ...` gives; "
            "`next = ...` chooses what follows.",
        ),
    ]
    code_file: Annotated[str | None, Meta(description="A file beside the workflow that holds the code.")] = None
    inputs: Annotated[dict[str, Any], Meta(description="Values for the variables of the code.")] = msgspec.field(
        default_factory=dict
    )
    python: Annotated[str, Meta(description="Another interpreter; left out, leadrope's own with its packages.")] = ""
    max_output_bytes: Annotated[
        int, Meta(ge=1, le=MOST_BYTES, description="Of the result, and kept of stdout and of stderr.")
    ] = DEFAULT_BYTES


def mistakes(parameters: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield syntax errors, as leadrope's own Python sees them; another interpreter may accept more."""
    import ast  # noqa: PLC0415  # only where a workflow has code

    source = parameters.get("code")
    if isinstance(source, str) and "python" not in parameters:
        try:
            yield from _name_mistakes(ast.parse(source), parameters.get("inputs", {}))
        except (SyntaxError, ValueError, RecursionError) as error:
            where = f"line {error.lineno}: {error.msg}" if isinstance(error, SyntaxError) else str(error)
            yield "code", f"it is not Python: {where}"
    inputs = parameters.get("inputs")
    for name in inputs if isinstance(inputs, dict) else ():
        if not name.isidentifier():
            yield "inputs", f"{name!r} cannot be the name of a variable. Use letters, digits and _."


def _name_mistakes(tree: ast.Module, inputs: Any) -> Iterator[tuple[str, str]]:
    from leadrope.workflows.check import code_names  # noqa: PLC0415  # the same

    if isinstance(inputs, dict):  # a template may give any names
        for line, wrong in (*code_names.not_given(tree, inputs), *code_names.undefined(tree, inputs)):
            yield "code", f"line {line}: {wrong}"


async def run(config: Code, context: StepContext) -> StepDone:
    for name in config.inputs:
        if not name.isidentifier():
            raise StepFailed(
                f"input {name!r} cannot be the name of a variable", kind="bad_input", hint="Use letters and _."
            )
    name = brief(config.code, 60)
    text = f"{shlex.quote(config.python or 'python3')} -c {shlex.quote(config.code)}"
    call = ToolCall(id=str(context.key), name="Bash", input={"command": text})
    is_own = not templates.references(context.sources.get("python", ""))
    allowed = await context.permit(call, is_own=is_own)
    if allowed.input["command"] != text:
        raise StepFailed(
            "the code was changed when it was approved, and code cannot be changed there",
            kind="denied",
            hint="Edit it in the file, and start again.",
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
    trace = f"\n{done.error.detail.rstrip()}" if done.error is not None and done.error.detail else ""
    said = outputs["stderr"] if done.error is None else f"{done.error.message}{trace}\n{outputs['stderr']}"
    limits = limited(context, config.code, done, said, has_failed=done.error is not None)
    if done.error is not None:
        raise StepFailed(
            _told_once(done.error.message, done.error.detail),
            kind=done.error.kind,
            hint=sentences(limits) or _HINTS.get(done.error.kind),
            outputs=outputs,
        )
    chosen = _chosen(done.next, context)
    return StepDone(outputs={"result": done.value, **outputs}, warnings=(*warnings, *limits), branch=chosen)


def _chosen(name: str | None, context: StepContext) -> str | None:
    """Return the branch that the code chose; raises StepFailed if the step does not declare it."""
    ways = context.branches
    if name in ways or (name is None and not ways):
        return name
    unsaid = routing.DEFAULT if name is None and routing.DEFAULT in ways else "else"
    if unsaid in ways:
        return unsaid
    named = sorted(ways - {routing.END, routing.DEFAULT})
    wrong = f"the code has set `next` to {name[:60]!r}, which the step does not declare" if name is not None else ""
    raise StepFailed(
        wrong or "the code has not set `next`",
        kind="bad_next",
        hint=f"It can be {', '.join(named)} or {routing.END}." if named else "Declare its steps: `next: [one, other]`.",
    )


def branches(parameters: Mapping[str, Any]) -> tuple[str, ...] | None:
    found = routing.routes_in(parameters)
    return () if found is None else None if found.is_dynamic else found.literals


def _told_once(message: str, trace: str) -> str:
    """Combine error and traceback without repeating the error: it is at the top and at the traceback's end."""
    said = re.sub(r"^line [0-9]+: ", "", message)
    way = trace.rstrip().removesuffix(said).rstrip()
    return f"{message}\n{way}" if way else message


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
    branches=branches,
)
