"""What `leadrope flow run` prints of a result on standard output: all outputs, or the one that was asked for."""

from __future__ import annotations

import time
from typing import Any

import click
import msgspec

from leadrope import errors
from leadrope.cli import json_output
from leadrope.core.execution_events import ExecutionEnded, ExecutionRecord, Failure
from leadrope.workflows import model
from leadrope.workflows.language import templates
from leadrope.workflows.problems import nearest
from leadrope.workflows.report import ExecutionResult, StepError

FORMATS = ("text", "json", "stream-json")


class FormatOrOutput(click.Choice[str]):
    """A format, or the name of an output, which is known when the workflow is."""

    name = "format or output"

    def __init__(self) -> None:
        super().__init__(FORMATS)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:
        return f"[{'|'.join(FORMATS)}|NAME]"


OUTPUT = click.option(
    "-o",
    "--output",
    type=FormatOrOutput(),
    default="text",
    show_default=True,
    help="json: the result as one object; stream-json: one event per line; NAME: the value of this output alone.",
)


class FlowCommand(click.Command):
    """Whoever reads JSON gets an object also from a workflow that could not be started."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            write_unstarted(json_output.wanted(given), errors.RequestError(error.format_message()))
            raise

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except errors.LeadropeError as error:
            write_unstarted(ctx.params["output"], error)
            raise


def write_unstarted(output: str, error: errors.LeadropeError) -> None:
    """The result of an execution that there is not, in the form that was asked for."""
    if output == "json":
        problem = StepError(kind=error.kind, message=error.message, hint=error.hint)
        json_output.write(json_output.whole(ExecutionResult(execution_id="", name="", outcome="failed", error=problem)))
    elif output == "stream-json":
        failure = Failure(kind=error.kind, message=error.message, hint=error.hint)
        ended = ExecutionEnded(outcome="failed", error=failure)
        json_output.write(ExecutionRecord("", 0, 1, time.time(), ended))


def check_name(workflow: model.Workflow, output: str) -> None:
    """Refuse a name that is neither a format nor an output of this workflow."""
    if output in FORMATS:
        return
    names = [one.name for one in workflow.outputs]
    if output in names:
        return
    near = nearest(output, (*names, *FORMATS))
    known = f"The outputs are: {', '.join(names)}." if names else "The workflow declares no outputs."
    raise errors.BadValue(
        "--output", f"there is no output {output!r}", hint=f"Did you mean {near}? {known}" if near else known
    )


def print_outputs(result: ExecutionResult) -> None:
    """One output is printed as it is; of several each has its name. One with `stdout: true` is printed alone."""
    if result.outcome in ("waiting", "stopped"):
        return
    found = [(name, value) for name, value in result.outputs.items() if result.stdout in ("", name)]
    if result.last is not None and result.last.result not in (None, ""):
        click.echo(_shown(result.last.result).rstrip("\n"))
        return
    if len(found) == 1:
        click.echo(_shown(found[0][1]))
        return
    for name, value in found:
        text = _shown(value)
        click.echo(f"{name}: {text}" if "\n" not in text else f"{name}:\n{_indented(text)}")


def print_output(result: ExecutionResult, name: str) -> bool:
    """This output alone; False if it has no value, which the last lines explain."""
    if name not in result.outputs:
        return False
    click.echo(_shown(result.outputs[name]))
    return True


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return msgspec.json.format(msgspec.json.encode(value)).decode()
    return templates.as_text(value)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.split("\n"))
