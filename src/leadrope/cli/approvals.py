"""`leadrope approvals`: what waits for a person, answered from any terminal."""

from __future__ import annotations

import sys
import textwrap
import time
from typing import Any

import click
import msgspec

from leadrope import errors
from leadrope.cli import flow_waits, table
from leadrope.cli.runs import has_store, with_service
from leadrope.cli.screen import Screen
from leadrope.cli.who import current_user
from leadrope.core.events import ApprovalRequested, QuestionRequested
from leadrope.runs.flow_values import Wait
from leadrope.runs.service import Service
from leadrope.runs.store import Approval
from leadrope.runtime import call_preview
from leadrope.runtime.approvals import Answer, QuestionAnswer
from leadrope.runtime.shown import clean, describe, exact, one_line

_HELP = """What waits for a person, answered from any terminal, also for detached runs.

The first answer counts, whoever gives it; what nobody answers in time is a no.
"""
_EPILOG = """\b
Examples:
  leadrope approvals list
  leadrope approvals approve 3fa9c1d20b7e-1-approval-1
  leadrope approvals approve 3fa9c1d20b7e-1-approval-1 --pattern
  leadrope approvals deny 3fa9c1d20b7e-1-approval-1 --reason "use the test database"
  leadrope approvals edit 3fa9c1d20b7e-1-approval-1 '{"command": "git push --dry-run"}'
  leadrope approvals approve k3j5x7q2mzd4 --choose staging     what a workflow asks
"""


@click.group("approvals", help=_HELP, epilog=_EPILOG, short_help="See and answer what waits for a person.")
def command() -> None:
    pass


def _asked(found: Approval) -> ApprovalRequested | QuestionRequested:
    shape: Any = ApprovalRequested if found.kind == "approval" else QuestionRequested
    decoded: ApprovalRequested | QuestionRequested = msgspec.json.decode(found.asked, type=shape)
    return decoded


def _in_words(found: Approval) -> str:
    asked = _asked(found)
    if isinstance(asked, ApprovalRequested):
        return one_line(f"{exact(asked.call.name)} {describe(asked.call, cwd=found.cwd, width=200)}", 200)
    if asked.kind == "plan":
        return one_line(exact(f"a plan: {asked.plan}"), 200)
    return one_line(exact("; ".join(question.question for question in asked.questions)), 200)


def _time_left(row: Approval, asked: ApprovalRequested | QuestionRequested) -> str:
    if row.state != "pending" or not asked.expires_s:
        return ""
    left = max(0.0, row.requested + asked.expires_s - time.time())
    return f" · denied in {f'{left / 60:.0f} min' if left >= 90 else f'{left:.0f} s'} without an answer"


def _risk(found: Approval) -> str:
    asked = _asked(found)
    return asked.risk if isinstance(asked, ApprovalRequested) else ""


@command.command("list")
@click.option("--all", "is_all", is_flag=True, help="Also what is settled.")
@click.option("--run", metavar="RUN", help="Only of this run.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
def list_(is_all: bool, run: str | None, output: str) -> int:
    """What waits, the oldest first: of runs, and of workflows."""

    async def look(service: Service) -> tuple[list[Approval], list[Wait]]:
        run_id = service.get(run).id if run else ""
        state = "" if is_all else "pending"
        waits = [] if run else service.flows.waits(state)
        return service.approvals(state=state, run_id=run_id), waits

    found, waits = with_service(look) if has_store() else ([], [])
    if output == "json":
        for row in found:
            told = {
                "id": row.id,
                "run": row.run_id,
                "state": row.state,
                "requested": row.requested,
                "by": row.by,
                "reason": row.reason,
                "asked": msgspec.Raw(row.asked),
            }
            sys.stdout.buffer.write(msgspec.json.encode(told) + b"\n")
        for wait in waits:
            sys.stdout.buffer.write(msgspec.json.encode(flow_waits.told(wait)) + b"\n")
        return 0
    screen = Screen.of_process()
    if not found and not waits:
        screen.line("Nothing waits for a person.")
        return 0
    every = [(row.requested, row.id, row.state, _risk(row), _in_words(row)) for row in found]
    every += [(wait.requested, wait.token, wait.state, "", flow_waits.in_words(wait)) for wait in waits]
    rows = [(name, state, table.ago(asked), risk, words) for asked, name, state, risk, words in sorted(every)]
    for line in table.table(("ID", "STATE", "AGE", "RISK", "WHAT"), rows, screen.width):
        click.echo(line)
    return 0


@command.command("show")
@click.argument("approval")
def show(approval: str) -> int:
    """All of it: the exact call or question, why it was held, who answered."""

    async def look(service: Service) -> int:
        if wait := flow_waits.found(service, approval):
            for line in flow_waits.lines(wait):
                click.echo(line)
            return 0
        row = service.store.approval(_find(service, approval))
        asked = _asked(row)
        click.echo(f"{row.id}  {row.state}" + (f" by {row.by}" if row.by else _time_left(row, asked)))
        click.echo(f"run {row.run_id[:8]}: {clean(row.title)}\nfolder {exact(row.cwd)}\n")
        # To the letter: a person says yes to exactly this, and what hides in it is written out.
        if isinstance(asked, ApprovalRequested):
            click.echo(f"{exact(asked.call.name)}  risk {asked.risk}\nheld because {exact(asked.reason)}")
            if asked.reading:
                click.echo("read as:\n" + textwrap.indent(exact(asked.reading), "    "))
            click.echo("the call:\n" + textwrap.indent(call_preview.of_call(asked.call), "    "))
            if asked.pattern and row.state == "pending":
                click.echo(f"`--pattern` allows {exact(asked.pattern)} for the rest of the run")
            return 0
        if asked.kind == "plan":
            click.echo(exact(asked.plan))
        for question in asked.questions:
            click.echo(exact(question.question))
            for option in question.options:
                click.echo(f"  - {exact(option.label)}: {exact(option.description)}")
        return 0

    return with_service(look)


@command.command("approve")
@click.argument("approval")
@click.option("--for-run", is_flag=True, help="Also every later call in this run that is exactly the same.")
@click.option("--pattern", is_flag=True, help="Also every later call in this run that the offered pattern covers.")
@click.option("--answer", "answers", multiple=True, metavar="QUESTION=LABEL", help="For a question; repeatable.")
@click.option("--choose", default="", metavar="CHOICE", help="What a workflow offers; see `approvals show`.")
@click.option("--reason", default="", help="Kept with the answer to a workflow.")
def approve(approval: str, for_run: bool, pattern: bool, answers: tuple[str, ...], choose: str, reason: str) -> int:
    """Say yes to a call, a plan, or answer a question."""

    async def act(service: Service) -> int:
        if wait := flow_waits.found(service, approval):
            return await flow_waits.decide(service, wait, "approved", choice=choose, reason=reason, by=current_user())
        if choose:
            raise errors.BadValue("--choose", "is for what a workflow asks", hint="A question takes --answer.")
        found = service.store.approval(_find(service, approval))
        if found.kind == "question":
            given = _answers(_asked(found), answers)
            await service.answer(found.id, QuestionAnswer(answered=True, answers=given, by=current_user()))
        else:
            scope: Any = "run" if for_run else "once"
            granted = _offered(found) if pattern else None
            await service.answer(
                found.id,
                Answer(approved=True, by=current_user(), scope=scope, pattern=granted, fingerprint=found.fingerprint),
            )
            if granted:
                click.echo(f"{found.id} approved; {exact(granted)} is allowed until run {found.run_id[:8]} ends")
                return 0
        click.echo(f"{found.id} approved")
        return 0

    return with_service(act)


@command.command("deny")
@click.argument("approval")
@click.option("--reason", default="", help="The agent reads it.")
def deny(approval: str, reason: str) -> int:
    """Say no."""

    async def act(service: Service) -> int:
        if wait := flow_waits.found(service, approval):
            return await flow_waits.decide(service, wait, "denied", reason=reason, by=current_user())
        found = service.store.approval(_find(service, approval))
        told = reason or "not approved"
        answer: Answer | QuestionAnswer = Answer(approved=False, by=current_user(), reason=told)
        if found.kind == "question":
            answer = QuestionAnswer(answered=False, by=current_user(), reason=told)
        await service.answer(found.id, answer)
        click.echo(f"{found.id} denied")
        return 0

    return with_service(act)


@command.command("edit")
@click.argument("approval")
@click.argument("call", required=False, metavar="[JSON]")
def edit(approval: str, call: str | None) -> int:
    """Say yes to another form of the call: the JSON of its input, or $EDITOR opens with the present one."""

    async def act(service: Service) -> int:
        found = service.store.approval(_find(service, approval))
        asked = _asked(found)
        if not isinstance(asked, ApprovalRequested):
            raise errors.WrongState(f"{found.id} is a question", hint="`leadrope approvals approve --answer`.")
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
        await service.answer(
            found.id, Answer(approved=True, by=current_user(), edited=edited, fingerprint=found.fingerprint)
        )
        click.echo(f"{found.id} approved, edited")
        return 0

    return with_service(act)


def _offered(found: Approval) -> str:
    asked = _asked(found)
    if isinstance(asked, ApprovalRequested) and asked.pattern:
        return asked.pattern
    raise errors.BadValue(
        "--pattern", "none is offered for this call", hint="--for-run allows this exact call for the rest of the run."
    )


def _find(service: Service, prefix: str) -> str:
    """An approval by its id, by the beginning of it, or by a run that waits for exactly one."""
    waiting = [row.id for row in service.approvals(state="") if row.id.startswith(prefix)]
    pending = [row.id for row in service.approvals() if row.id.startswith(prefix)]
    if prefix in waiting:
        return prefix
    for found in (pending, waiting):
        if len(found) == 1:
            return found[0]
    if pending:
        raise errors.UnknownRun(f"several approvals begin with {prefix}: {', '.join(pending[:5])}")
    raise errors.UnknownRun(f"there is no approval {prefix!r}", hint="`leadrope approvals list` shows what waits.")


def _answers(asked: ApprovalRequested | QuestionRequested, given: tuple[str, ...]) -> dict[str, str]:
    assert isinstance(asked, QuestionRequested)  # noqa: S101  # the caller has looked
    if asked.kind == "plan":
        return {}
    found: dict[str, str] = {}
    for text in given:
        key, equals, value = text.rpartition("=")
        if not equals:
            key, value = "", text
        matching = [q.question for q in asked.questions if q.question.startswith(key) or q.header == key]
        if len(matching) != 1:
            raise errors.BadValue(
                "--answer", f"{text!r} does not name one of the questions", hint="See `approvals show`."
            )
        found[matching[0]] = value
    missing = [question.question for question in asked.questions if question.question not in found]
    if missing:
        raise errors.BadValue("--answer", f"is missing for: {missing[0]}", hint="--answer 'QUESTION=LABEL'")
    return found
