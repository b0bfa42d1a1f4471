"""`leadrope flow logs`: the events of an execution, as they were shown when it ran or as they come. Starts nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from leadrope import errors
from leadrope.cli import flags, json_output
from leadrope.core import execution_events as events
from leadrope.core.text import rehearsal_label

if TYPE_CHECKING:
    from leadrope.cli.flow.view import ExecutionView
    from leadrope.runs.executions.values import ExecutionInfo
    from leadrope.runs.service import Service
    from leadrope.workflows.report import ExecutionResult

_EPILOG = """\b
Examples:
  leadrope flow logs 3fa9
  leadrope flow logs -f 3fa9                       watch it from here, to its end
  leadrope flow logs 3fa9 -o stream-json | jq -c 'select(.event.type == "step.ended") | .event'
"""


@click.command("logs", epilog=_EPILOG)
@click.argument("execution", required=False)
@click.option("-f", "--follow", is_flag=True, help="Follow the execution until it ends.")
@click.option("--from", "from_seq", default=1, show_default=True, metavar="SEQ", help="Begin at this event.")
@flags.output("text", "stream-json", help="stream-json: one event per line.")
def logs(execution: str | None, follow: bool, from_seq: int, output: str) -> int:
    """Show the events of an execution. Ctrl-C does not stop the execution.

    EXECUTION is an ID prefix, an approval that it waits for, or the name of a workflow [default: the newest one].
    With -f the exit code is that of the execution.
    """
    from leadrope.cli.flow.names import named  # noqa: PLC0415  # not needed for --help
    from leadrope.cli.flow.view import ExecutionView  # noqa: PLC0415  # the same
    from leadrope.cli.runs.runs import with_service  # noqa: PLC0415  # the same
    from leadrope.cli.screen.screen import Screen  # noqa: PLC0415  # the same

    async def look(service: Service) -> int:
        row = await named(service, execution)
        is_text = output == "text"
        screen = Screen.of_process()
        view = ExecutionView(screen, is_live=follow and is_text)
        view.is_rehearsed = rehearsal_label.is_rehearsed(row.labels)
        with view:
            async for item in service.follow_execution(row.id, from_seq, live=follow):
                if not is_text:
                    json_output.write(item)
                elif isinstance(item, events.ExecutionRecord):
                    if isinstance(item.event, events.StepAsked) and not await _is_pending(
                        service, item.event.approval_id
                    ):
                        view.answered.add(item.event.approval_id)
                    view.show(item)
                else:
                    screen.line(f"· events {item.first_seq} to {item.last_seq} are no longer kept")
        return await _tell_end(service, await service.executions.get(row.id), view, is_text=is_text, follow=follow)

    return with_service(look, stays=follow, reads=True)


async def _is_pending(service: Service, approval_id: str) -> bool:
    try:
        return (await service.known_approval(approval_id)).state == "pending"
    except errors.UnknownRun:
        return False  # of the run of an agent, which was deleted since


async def _tell_end(service: Service, row: ExecutionInfo, view: ExecutionView, *, is_text: bool, follow: bool) -> int:
    from leadrope.cli.flow.flow import exit_code  # noqa: PLC0415  # not needed for --help
    from leadrope.cli.flow.history import approvals_of  # noqa: PLC0415  # the same

    result = _result(await service.executions.result(row.id)) if row.state == "ended" else None
    if is_text and result is not None:
        view.tell(result)
    elif is_text:
        view.tell_open(row, await approvals_of(service, row))
    return exit_code(result) if follow and result is not None else 0


def _result(stored: object) -> ExecutionResult | None:
    from leadrope.workflows.report import ExecutionResult  # noqa: PLC0415  # only here

    try:
        return msgspec.convert(stored, ExecutionResult)
    except msgspec.ValidationError:
        return None  # of another version


_VALUES_EPILOG = """\b
Examples:
  leadrope flow values 3fa9 review
  leadrope flow values 3fa9 each --item 2 | jq .outputs.stdout
"""


@click.command("values", epilog=_VALUES_EPILOG)
@click.argument("execution")
@click.argument("step")
@click.option("--iteration", type=click.IntRange(0), default=0, show_default=True, help="The turn of a loop, from 0.")
@click.option("--item", type=click.IntRange(0), help="The item of a batch, from 0.")
def values(execution: str, step: str, iteration: int, item: int | None) -> int:
    """Print what a step was given and what it gave, as JSON.

    Secrets are masked, and a long value is cut: `{"cut": its beginning, "bytes": its size}`.
    """
    from leadrope.cli.flow.names import named  # noqa: PLC0415  # not needed for --help
    from leadrope.cli.runs.runs import with_service  # noqa: PLC0415  # the same

    async def look(service: Service) -> int:
        json_output.write(await service.executions.unit((await named(service, execution)).id, step, iteration, item))
        return 0

    return with_service(look, reads=True)
