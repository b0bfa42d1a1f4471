"""`leadrope approvals`: everything that waits for a person, of runs and of workflows, answered from any terminal."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from leadrope import errors
from leadrope.cli import flags, json_output
from leadrope.cli.approvals import text as approval_text
from leadrope.cli.runs.runs import has_store, with_service
from leadrope.cli.screen import table
from leadrope.cli.screen.screen import Screen
from leadrope.core import actors
from leadrope.core.events import QuestionRequested
from leadrope.runs.approvals.requests import CallRequest, Request, StepRequest, request_of
from leadrope.runs.records.values import Approval
from leadrope.runs.service import Service
from leadrope.runtime.gate.approvers import Answer
from leadrope.runtime.terminal_text import exact

_HELP = """List and answer what waits for a person, from any terminal: tool calls, questions, plans, steps of workflows.

ID is an approval's id or the beginning of it, or the id of a run or an execution that waits for one answer only. The
first answer counts, whoever gives it, and what has waited continues. Detached runs and workflows wait without a time
limit, unless one is set; elsewhere a call is denied when its time is over.
"""
_EPILOG = """\b
Examples:
  leadrope approvals list
  leadrope approvals approve 3fa9
  leadrope approvals approve 3fa9c1d20b7e-1-approval-1 --pattern
  leadrope approvals approve 7bd2 --choose staging           a step that offers choices
  leadrope approvals deny 3fa9 --reason "use the test database"
  leadrope approvals edit 3fa9 '{"command": "git push --dry-run"}'
  leadrope approvals answer 7bd2 version=1.4.0 notify=yes    a step with a form
  leadrope approvals answer 3fa9 "Which database?=test"      a question of an agent
"""
_FINGERPRINT = click.option(
    "--fingerprint",
    metavar="HASH",
    help="Answer only if this is still what is asked; `approvals show` prints it, and the beginning of it works.",
)
LEAST_FINGERPRINT = 8


@click.group("approvals", help=_HELP, epilog=_EPILOG, short_help="List and answer what waits for a person.")
def command() -> None:
    pass


@command.command("list")
@click.option("--all", "is_all", is_flag=True, help="Also those that were answered.")
@click.option("--run", metavar="RUN", help="Only those of this run.")
@click.option("--execution", metavar="EXECUTION", help="Only those of this execution of a workflow.")
@flags.output("text", "json", help="json: one object per line.")
def list_(is_all: bool, run: str | None, execution: str | None, output: str) -> int:
    """List what waits for an answer, oldest first."""
    if run and execution:
        raise errors.RequestError("--run and --execution were given", hint="Give one of the two.")

    async def look(service: Service) -> list[Approval]:
        wanted: dict[str, Any] = {"state": "" if is_all else "pending"}
        if run:
            wanted["run_id"] = (await service.get(run)).id
        if execution:
            info = await service.executions.find(execution)
            wanted["outermost_id" if info.parent is None else "execution_id"] = info.id
        return await service.approvals(**wanted)

    found = with_service(look, reads=True) if has_store() else []
    if output == "json":
        for approval in found:
            json_output.write(approval_text.as_object(approval))
        return 0
    screen = Screen.of_process()
    if not found:
        screen.line("Nothing waits for a person.")
        return 0
    rows = [approval_text.row(approval) for approval in found]
    droppable = ("STATE", "KIND", "RISK", "WAITED", "LEFT")
    for line in table.table(approval_text.HEAD, rows, screen.width, droppable=droppable):
        click.echo(line)
    return 0


@command.command("show")
@click.argument("approval", metavar="ID")
@flags.output("text", "json", help="json: one object.")
def show(approval: str, output: str) -> int:
    """Show exactly what is asked, why, by which rule, and who answered."""

    async def look(service: Service) -> int:
        found = await service.approval(approval)
        if output == "json":
            json_output.write(approval_text.as_object(found))
            return 0
        screen = Screen.of_process()
        told = list(approval_text.lines(found))
        head = told.index("")  # what follows is shown exactly as it is asked
        for line in told[:head]:
            for piece in screen.fitted(line, hanging="  "):
                click.echo(piece)
        for line in told[head:]:
            click.echo(line)
        return 0

    return with_service(look, reads=True)


@command.command("approve")
@click.argument("approval", metavar="ID")
@click.option("--for-run", is_flag=True, help="Also every later call in this run that is exactly the same.")
@click.option("--pattern", is_flag=True, help="Also every later call in this run that the offered pattern covers.")
@click.option("--answer", "answers", multiple=True, metavar="QUESTION=LABEL", help="For a question; repeatable.")
@click.option("--choose", default="", metavar="CHOICE", help="For a step that offers choices.")
@click.option("--reason", default="", help="Stored with the answer; a workflow can use it.")
@_FINGERPRINT
def approve(
    approval: str,
    for_run: bool,
    pattern: bool,
    answers: tuple[str, ...],
    choose: str,
    reason: str,
    fingerprint: str | None,
) -> int:
    """Approve a call, a plan or a step."""

    async def act(service: Service) -> int:
        found = await service.approval(approval)
        asked = request_of(found)
        answer = Answer(
            approved=True,
            reason=reason,
            choice=choose,
            answers=_given(found, answers) if answers else {},
            scope="run" if for_run else "once",
            pattern=_offered(asked) if pattern else None,
        )
        if isinstance(asked, StepRequest):
            _require_all(found, asked, answer)
        return await _answer(service, found, answer, fingerprint)

    return with_service(act)


@command.command("deny")
@click.argument("approval", metavar="ID")
@click.option("--reason", default="", help="The agent sees it; a workflow can use it.")
@_FINGERPRINT
def deny(approval: str, reason: str, fingerprint: str | None) -> int:
    """Deny a call, a plan or a step, or decline to answer a question."""

    async def act(service: Service) -> int:
        found = await service.approval(approval)
        told = reason if reason or found.kind == "step" else "not approved"
        return await _answer(service, found, Answer(approved=False, reason=told), fingerprint)

    return with_service(act)


@command.command("edit", short_help="Approve a call with edited input.")
@click.argument("approval", metavar="ID")
@click.argument("call", required=False, metavar="[JSON]")
@_FINGERPRINT
def edit(approval: str, call: str | None, fingerprint: str | None) -> int:
    """Approve a call with edited input: JSON, or without it $EDITOR opens."""

    async def act(service: Service) -> int:
        found = await service.approval(approval)
        asked = request_of(found)
        if not isinstance(asked, CallRequest):
            raise errors.WrongState(
                f"{found.id} is a {found.kind}, and only a tool call can be edited",
                hint=f"`leadrope approvals show {found.id}` tells how it is answered.",
            )
        text = call
        if text is None:
            before = msgspec.json.format(msgspec.json.encode(asked.call.input)).decode()
            text = click.edit(before, extension=".json")
            if text is None or text.strip() == before.strip():
                click.echo("nothing was changed, nothing was answered", err=True)
                return 1
        try:
            edited = msgspec.json.decode(text, type=dict[str, Any])
        except msgspec.MsgspecError as error:
            raise errors.BadValue("call", f"is not a JSON object: {error}") from None
        return await _answer(service, found, Answer(approved=True, edited=edited), fingerprint)

    return with_service(act)


@command.command("answer")
@click.argument("approval", metavar="ID")
@click.argument("values", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("--choose", default="", metavar="CHOICE", help="For a step that offers choices, too.")
@click.option("--reason", default="", help="Stored with the answer; a workflow can use it.")
@_FINGERPRINT
def answer(approval: str, values: tuple[str, ...], choose: str, reason: str, fingerprint: str | None) -> int:
    """Answer a question, or fill in the form of a step.

    A form takes FIELD=VALUE, a question QUESTION=LABEL or, if it is the only one, just the answer.
    """

    async def act(service: Service) -> int:
        found = await service.approval(approval)
        asked = request_of(found)
        chosen, given = choose, values
        if isinstance(asked, StepRequest) and asked.choices and not asked.fields and not choose and len(values) == 1:
            chosen, given = values[0], ()
        elif not _takes_values(asked):
            raise _takes_none(found)
        said = Answer(approved=True, reason=reason, choice=chosen, answers=_given(found, given))
        if isinstance(asked, StepRequest):
            _require_all(found, asked, said)
        return await _answer(service, found, said, fingerprint)

    return with_service(act)


# -- answering --------------------------------------------------------------------------------------------------------


async def _answer(service: Service, found: Approval, answer: Answer, fingerprint: str | None) -> int:
    """An answer to what this process has just read, or to what the person says that it was."""
    answer = msgspec.structs.replace(answer, by=actors.system_user(), fingerprint=_meant(found, fingerprint))
    done = await service.answer(found.id, answer)
    told = f"{done.id} {done.state}"
    if answer.edited is not None:
        told += ", edited"
    elif answer.choice:
        told += f": {exact(answer.choice)}"
    elif answer.pattern:
        told += f"; {exact(answer.pattern)} is allowed until run {done.run_id[:8]} ends"
    click.echo(told)
    if done.outermost_id and (await service.executions.get(done.outermost_id)).state == "queued":
        click.echo(f"  execution {done.outermost_id[:8]} continues in the background", err=True)
    return 0


def _meant(found: Approval, given: str | None) -> str:
    if given is None:
        return found.fingerprint
    given = given.strip().lower()
    if len(given) < LEAST_FINGERPRINT:
        raise errors.BadValue("--fingerprint", f"is too short; give at least {LEAST_FINGERPRINT} characters")
    return found.fingerprint if found.fingerprint.startswith(given) else given


def _offered(asked: object) -> str:
    if isinstance(asked, CallRequest) and asked.pattern:
        return asked.pattern
    raise errors.BadValue(
        "--pattern", "not offered for this", hint="--for-run allows this exact call for the rest of the run."
    )


def _require_all(found: Approval, asked: StepRequest, answer: Answer) -> None:
    """What the service would refuse too, said with the words of the command line."""
    if asked.choices and not answer.choice:
        offered = ", ".join(exact(choice) for choice in asked.choices)
        raise errors.RequestError(f"{found.id} offers choices: {offered}", hint="Say which with --choose.")
    missing = [field for field in asked.fields if field.name not in answer.answers and field.is_needed]
    if missing:
        given = " ".join(f"{field.name}=…" for field in missing)
        raise errors.RequestError(
            f"{found.id} has a form, and {missing[0].name} is missing",
            hint=f"leadrope approvals answer {found.id} {given}",
        )


def _takes_values(asked: Request) -> bool:
    if isinstance(asked, StepRequest):
        return bool(asked.fields)
    return isinstance(asked, QuestionRequested) and asked.kind == "question"


def _takes_none(found: Approval) -> errors.WrongState:
    return errors.WrongState(
        f"{found.id} has no question and no form, and takes no values",
        hint=f"`leadrope approvals approve {found.id}` or `leadrope approvals deny {found.id}`.",
    )


def _given(found: Approval, values: tuple[str, ...]) -> dict[str, Any]:
    """What was given, never left aside: an answer that says more than was asked is refused."""
    asked = request_of(found)
    if not values:
        return {}
    if not _takes_values(asked):
        raise _takes_none(found)
    if isinstance(asked, QuestionRequested):
        return _to_questions(asked, values)
    return dict(_pair(value) for value in values)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise errors.BadValue("NAME=VALUE", f"{text!r} is not of the form NAME=VALUE")
    return name, value


def _to_questions(asked: QuestionRequested, values: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in values:
        key, equals, value = text.rpartition("=")
        names = [question for question in asked.questions if key in (question.question, question.header)]
        if equals and not names:
            names = [question for question in asked.questions if key and question.question.startswith(key)]
        if len(names) != 1 and len(asked.questions) == 1:
            names, value = list(asked.questions), text
        if len(names) != 1:
            raise errors.BadValue(
                "answer", f"{text!r} does not name one of the questions", hint="See `leadrope approvals show`."
            )
        found[names[0].question] = value
    return found
