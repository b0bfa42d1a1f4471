"""`leadrope flow`: workflows run, looked at, kept and gone on with, from the terminal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
import msgspec

from leadrope import errors, spelling
from leadrope.cli import hangup, json_output, values
from leadrope.cli.flow import access as flow_access
from leadrope.cli.flow import result as flow_result
from leadrope.cli.flow.view import ExecutionView
from leadrope.cli.lazy import LazyGroup
from leadrope.cli.run import rehearse
from leadrope.cli.screen.screen import Screen
from leadrope.confined import real_path
from leadrope.core import actors, home
from leadrope.core import config as configs
from leadrope.core.request import Billing
from leadrope.runtime.terminal_text import clean
from leadrope.workflows import inputs as given_inputs
from leadrope.workflows import library
from leadrope.workflows.report import ExecutionResult

if TYPE_CHECKING:
    from leadrope.rehearsal.model import ModelServer
    from leadrope.workflows.start.surroundings import Overrides

_HELP = """Workflows: Markdown files whose steps are agents, commands, requests, files and people.

A workflow is named by its file, or by the name under which it was saved. An execution is named by an ID prefix;
one that waits for a person also by the approval that it printed.
"""
_EPILOG = """\b
Examples:
  leadrope flow run review.flow.md branch=main
  git diff | leadrope flow run review.flow.md -o json
  leadrope flow check *.flow.md
  leadrope flow run review.flow.md --from report     the last steps again
  leadrope flow resume 3fa9 --approve                resume here and approve; an ID prefix works
  leadrope flow report 3fa9 --html -O report.html

\b
Exit codes:
  0 succeeded or degraded   1 failed (or degraded, with --strict)   2 usage
  3 denied   4 waits for a person   5 over budget   6 timed out   130 interrupted
"""
_RUN_EPILOG = """\b
Examples:
  leadrope flow run review.flow.md branch=main
  git diff | leadrope flow run review.flow.md -o json   what is piped in fills the input with `stdin: true`
  leadrope flow run review.flow.md -o verdict           print this output alone
  leadrope flow run nightly --inputs night.json --no-wait
  leadrope flow run review.flow.md --from report        this step and those after it again
  leadrope flow run review.flow.md --rehearse answers.yaml   with scripted answers; no account needed
"""
_RESUME_EPILOG = """\b
Examples:
  leadrope flow resume 3fa9                             after Ctrl-C or a crash; asks for the answer if one is needed
  leadrope flow resume 3fa9 branch=main                 after a failure, with another value for an input
  leadrope flow resume 3fa9 --approve
  leadrope flow resume 3fa9 --choose blue
  leadrope flow resume 3fa9 --deny --reason "not today"
"""
WAITING = 4
STDIN_LOOK_S = 0.1
STDIN_TOLD_S = 1.0
"""Standard input that has not ended by then is waited for, and that is told."""
_BY_KIND = {"denied": 3, "over_budget": 5, "timed_out": 6}

# Name -> module, attribute, one line of help.
_MORE = {
    "check": ("leadrope.cli.flow.inspect", "check", "Validate workflow files without running them."),
    "show": ("leadrope.cli.flow.inspect", "show", "Show the steps of a workflow as a tree."),
    "graph": ("leadrope.cli.flow.inspect", "graph", "Draw a workflow: SVG or Mermaid."),
    "list": ("leadrope.cli.flow.history", "list_", "List the workflows of this folder and the saved ones."),
    "save": ("leadrope.cli.flow.inspect", "save", "Save a workflow under a name, to run it from any folder."),
    "steps": ("leadrope.cli.flow.inspect", "steps", "List the kinds of steps, with their parameters."),
    "history": ("leadrope.cli.flow.history", "history", "List executions, newest first."),
    "stop": ("leadrope.cli.flow.control", "stop", "Stop executions, wherever they run."),
    "pause": ("leadrope.cli.flow.control", "pause", "Pause an execution, wherever it runs."),
    "logs": ("leadrope.cli.flow.logs", "logs", "Show or follow the events of an execution."),
    "values": ("leadrope.cli.flow.logs", "values", "Print what a step was given and what it gave."),
    "report": ("leadrope.cli.flow.history", "report", "Report on one execution, step by step: Markdown or HTML."),
    "data": ("leadrope.cli.flow.data", "data", "List datasets of save-dataset steps, and their rows."),
    "delete": ("leadrope.cli.flow.delete", "delete", "Delete a saved workflow."),
    "delete-data": ("leadrope.cli.flow.delete", "delete_data", "Delete a dataset."),
    "clear-cache": ("leadrope.cli.flow.delete", "clear_cache", "Forget the cached outputs of steps."),
    "run": ("leadrope.cli.flow.flow", "run", "Run a workflow."),
    "resume": (
        "leadrope.cli.flow.flow",
        "resume",
        "Continue an execution that waits, is paused, failed or was cut off.",
    ),
}
command = LazyGroup(
    _MORE, name="flow", help=_HELP, epilog=_EPILOG, short_help="Run workflows, and inspect them.", no_args_is_help=True
)

_MODEL = click.option("-m", "--model", metavar="NAME", help="For steps that name no model: a tier or any model id.")
_BILLING = click.option(
    "--billing", type=click.Choice(get_args(Billing)), help="Who pays for steps that do not say `use_api_key`."
)
_BASE_URL = click.option("--base-url", metavar="URL", help="A gateway or a local model.")
_STRICT = click.option("--strict", is_flag=True, help="Treat a degraded workflow as failed.")
_NO_WAIT = click.option("--no-wait", is_flag=True, help="If no one can answer a question, the answer is no.")
_QUIET = click.option("-q", "--quiet", is_flag=True, help="Only results and errors.")


@click.command("run", cls=flow_result.FlowCommand, epilog=_RUN_EPILOG)
@click.argument("workflow")
@click.argument("inputs", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("--inputs", "inputs_file", metavar="FILE", help="A JSON object with inputs; `-` reads standard input.")
@click.option("-C", "--cwd", metavar="DIR", help="Where the steps work [default: current directory].")
@click.option("--only", metavar="STEP", help="Run only this step, with the values of the last execution.")
@click.option(
    "--from",
    "begin_at",
    metavar="STEP",
    help="Run this step and those after it, with the values of the last execution.",
)
@click.option("--force", is_flag=True, help="With --only and --from: use values of steps that have changed since.")
@click.option(
    "--dry-run", is_flag=True, help="Print the steps in order, what is cached and what would be asked. Starts nothing."
)
@click.option("--no-cache", is_flag=True, help="Run steps with `cache` again; their new outputs are cached.")
@click.option(
    "--auto-approve",
    "auto_approve",
    multiple=True,
    metavar="STEP[=CHOICE]",
    help="Approve this step beforehand. Does not cover what the policy asks about. Repeatable.",
)
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="A label of the execution; repeatable.")
@flow_access.options
@click.option("--rehearse", metavar="SCRIPT", help=rehearse.HELP)
@click.option("--detach", is_flag=True, help="Run it in the background, and print the id of the execution.")
@click.option("--priority", type=int, default=0, show_default=True, help="With --detach: higher ones start first.")
@_MODEL
@_BILLING
@_BASE_URL
@_NO_WAIT
@flow_result.OUTPUT
@_STRICT
@_QUIET
def run(workflow: str, inputs: tuple[str, ...], **given: Any) -> int:
    """Run WORKFLOW, a file or a saved name, with its inputs as NAME=VALUE.

    A step that needs a person asks here; without a terminal the execution waits (exit code 4), and an answer by
    `leadrope approvals` continues it in the background.
    """
    if given["only"] and given["begin_at"]:
        raise errors.RequestError("--only and --from were given", hint="Give one of the two.")
    if given["rehearse"]:
        rehearse.refuse_others(given)
    environ, config, overrides = _surroundings(given)
    folder = Path(given["cwd"]).expanduser() if given["cwd"] else Path.cwd()
    if not folder.is_dir():
        raise errors.BadDirectory(f"there is no folder {folder}")
    own = home.leadrope_home(environ)
    found = library.find(workflow, folder=Path.cwd(), leadrope_home=own)
    loaded = library.load(found, leadrope_home=own, workspace=folder)
    flow_result.check_name(loaded.workflow, given["output"])
    if given["dry_run"] and (given["detach"] or given["output"] not in ("text", "json")):
        other = "--detach" if given["detach"] else f"-o {given['output']}"
        raise errors.RequestError(f"--dry-run was given with {other}", hint="Leave one of the two out.")
    if given["detach"] and given["output"] not in flow_result.FORMATS:
        raise errors.RequestError(
            f"-o {given['output']} was given with --detach, which prints only the id of the execution",
            hint="Leave one of the two out; `leadrope flow report` shows the outputs later.",
        )
    texts = given_inputs.read_words(inputs)
    more = _inputs_file(given["inputs_file"])
    # Read only where it is needed: a pipe that nobody writes to would hold the start for ever.
    unsaid = [one for one in loaded.workflow.inputs if one.stdin and one.name not in (*texts, *more)]
    stdin = _piped(f"the input {unsaid[0].name!r}", f"{unsaid[0].name}=VALUE") if unsaid else None
    unasked: list[str] | None = [] if given["dry_run"] else None
    access, variables = flow_access.settled(
        loaded,
        flow_access.given(given, environ=environ),
        inputs={**more, **texts},
        workspace=folder,
        environ=environ,
        unasked=unasked,
    )
    told = loaded.inputs({**more, **texts}, stdin=stdin, are_texts=True, environ=variables)
    labels = dict(_pair(label) for label in given["labels"])
    if not given["quiet"]:
        _tell_doubts(loaded)
    again: dict[str, Any] = {"only": given["only"], "begin_at": given["begin_at"], "is_forced": bool(given["force"])}
    again["uses_cache"] = not given["no_cache"]
    if given["auto_approve"]:
        from leadrope.workflows.start import auto_approval  # noqa: PLC0415  # only here

        again["auto_approved"] = auto_approval.read(loaded.workflow, given["auto_approve"])
    if given["dry_run"]:
        from leadrope.cli.flow import dry_run  # noqa: PLC0415  # only here

        again |= {"access": access, "asks": tuple(unasked or ())}
        return dry_run.run(loaded, told, folder, environ, config, given, **again)
    if given["detach"]:
        from leadrope.cli.flow import detach  # noqa: PLC0415  # only here

        on_ask = "deny" if given["no_wait"] else "wait"
        more = {"labels": labels, "on_ask": on_ask, "overrides": overrides, "access": access, **again}
        return detach.run(loaded, told, folder, environ, config, given, secrets=_secrets(environ), **more)
    if given["priority"]:
        raise errors.RequestError("--priority was given without --detach", hint="Add --detach, or leave it out.")

    server = _rehearsed(given["rehearse"], loaded, folder, own) if given["rehearse"] else None

    @contextlib.asynccontextmanager
    async def begin(service: Any, **more: Any) -> AsyncIterator[Any]:
        from leadrope.workflows.start import start  # noqa: PLC0415  # the engine, only where it runs

        if server is not None:
            from leadrope.workflows.engine.rehearsed import Rehearsal  # noqa: PLC0415  # the same

            more |= {"rehearsal": Rehearsal(server), "on_ask": "deny"}
        async with (
            server or contextlib.nullcontext(),
            start.started(
                service,
                loaded,
                told,
                workspace=folder,
                environ=environ,
                labels=labels,
                overrides=overrides,
                access=access,
                **again,
                **more,
            ) as execution,
        ):
            yield execution

    is_whole = not (given["only"] or given["begin_at"])
    ahead = _ahead_of(loaded, folder, environ, config, access) if is_whole else None
    return _carried_out(begin, given, environ, config, ahead, server)


def _rehearsed(name: str, loaded: library.Loaded, folder: Path, own: Path) -> ModelServer:
    """The server of a script that fits the workflow; not started yet."""
    from leadrope.rehearsal.model import ModelServer  # noqa: PLC0415  # only rehearsals need it
    from leadrope.rehearsal.script import BadScript  # noqa: PLC0415  # the same
    from leadrope.workflows.engine import called, rehearsed  # noqa: PLC0415  # the same

    script = rehearse.read(name, folder)
    texts = called.gather(loaded.workflow, Path(loaded.file).parent if loaded.file else folder, own)
    try:
        rehearsed.check(script, [loaded.workflow, *map(library.parsed, texts.files.values())])
    except BadScript as error:
        raise errors.BadValue("--rehearse", f"{name}: {error.message}", hint=error.hint) from None
    return ModelServer(script, strict=False)


@click.command("resume", cls=flow_result.FlowCommand, epilog=_RESUME_EPILOG)
@click.argument("execution", metavar="EXECUTION")
@click.argument("inputs", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("--approve", is_flag=True, help="Approve.")
@click.option("--deny", is_flag=True, help="Deny.")
@click.option("--choose", metavar="CHOICE", help="One of the choices that were offered.")
@click.option("--reason", default="", help="Stored with the answer.")
@click.option("--changed", is_flag=True, help="Continue even if the file has changed.")
@flow_access.options
@_MODEL
@_BILLING
@_BASE_URL
@_NO_WAIT
@flow_result.OUTPUT
@_STRICT
@_QUIET
def resume(
    execution: str,
    inputs: tuple[str, ...],
    approve: bool,
    deny: bool,
    choose: str | None,
    reason: str,
    changed: bool,
    **given: Any,
) -> int:
    """Continue an execution that waits for a person, was paused or stopped, has failed, or whose process died.

    It continues in this terminal, and what is done stays done. EXECUTION is an ID prefix, or that of an approval, which
    --approve, --deny or --choose answer; without an answer it is asked here. `leadrope approvals` answers from any
    terminal and continues the execution in the background.

    One that has failed continues from the step that failed, as a new execution with the same inputs; NAME=VALUE
    replaces one of them.
    """
    from leadrope.runtime.gate.approvers import Answer  # noqa: PLC0415  # the engine, only where it runs

    if deny and (approve or choose is not None):
        raise errors.RequestError("--deny was given together with an approval", hint="Give one of the two.")
    is_answered = approve or deny or choose is not None
    if reason and not is_answered:
        raise errors.RequestError("--reason was given without an answer", hint="Add --approve, --deny or --choose.")
    by = actors.system_user()
    answer = Answer(approved=not deny, choice=choose or "", reason=reason, by=by) if is_answered else None
    if not is_answered and (told := _continued_elsewhere(execution)) is not None:
        click.echo(told)
        return 0
    texts = given_inputs.read_words(inputs)
    environ, config, overrides = _surroundings(given)
    access = flow_access.given(given, environ=environ)

    @contextlib.asynccontextmanager
    async def begin(service: Any, **more: Any) -> AsyncIterator[Any]:
        from leadrope.workflows.start import continuing, start  # noqa: PLC0415  # the engine, only where it runs

        if given["output"] not in flow_result.FORMATS:
            flow_result.check_name(await start.workflow_of(service, execution), given["output"])
        failed = await continuing.failed(service, execution) if answer is None else None
        if failed is not None:
            taken: dict[str, Any] = {
                "environ": environ,
                "takes_change": changed,
                "access": access,
                "overrides": overrides,
            }
            async with continuing.continued(service, failed, texts, **taken, **more) as opened:
                yield opened
            return
        if texts:
            raise errors.RequestError(
                "inputs were given, and only an execution that has failed takes them",
                hint="Leave them out, or start the workflow anew with `leadrope flow run`.",
            )
        which = (await service.approval(execution)).id if answer is not None else execution
        async with start.resumed(
            service,
            which,
            environ=environ,
            answer=answer,
            takes_change=changed,
            access=access,
            overrides=overrides,
            **more,
        ) as opened:
            yield opened

    return _carried_out(begin, given, environ, config)


def _continued_elsewhere(name: str) -> str | None:
    """An execution that is paused in another process, or waits in the queue of the background."""
    from leadrope.cli.flow import control  # noqa: PLC0415  # only here
    from leadrope.cli.runs.runs import has_store, with_service  # noqa: PLC0415  # the same

    return with_service(lambda service: control.continued_elsewhere(service, name)) if has_store() else None


_NO_DOUBTS = ("no_description", "unused_input")
"""Warnings of the check that are no sign of another meaning."""


def _tell_doubts(loaded: library.Loaded) -> None:
    """What the file may not mean as it is read; `check` tells all."""
    for problem in loaded.warnings:
        if problem.kind not in _NO_DOUBTS:
            click.echo(clean(f"{loaded.name}: {spelling.runnable(str(problem))}"), err=True)


# -- carrying it out --------------------------------------------------------------------------------------------------


Begin = Callable[..., contextlib.AbstractAsyncContextManager[Any]]
Opening = Callable[[], contextlib.AbstractAsyncContextManager[Any]]


def _ahead_of(
    loaded: library.Loaded, folder: Path, environ: Mapping[str, str], config: configs.Config, access: Any
) -> Opening | None:
    """What can be started before the engine is loaded."""
    from leadrope.workflows.start import prewarm as ahead  # noqa: PLC0415  # only where something runs

    if not ahead.begins_with_a_command(loaded.workflow):
        return None
    workspace, own = Path(real_path(folder)), home.leadrope_home(environ)
    return lambda: ahead.opened(
        loaded.workflow, workspace=workspace, environ=environ, config=config, home=own, access=access
    )


def _carried_out(
    begin: Begin,
    given: Mapping[str, Any],
    environ: Mapping[str, str],
    config: configs.Config,
    ahead: Opening | None = None,
    server: ModelServer | None = None,
) -> int:
    screen = Screen.of_process(environ)
    view = ExecutionView(screen, quiet=bool(given["quiet"]), is_streamed=given["output"] == "stream-json")
    view.is_rehearsed = server is not None
    on_ask = "deny" if given["no_wait"] else "wait"
    try:
        result = asyncio.run(_drive(begin, view, screen, environ, config, on_ask=on_ask, ahead=ahead))
    except asyncio.CancelledError:
        view.tell_interrupted()
        if given["output"] == "json":
            stopped = ExecutionResult(execution_id=view.execution_id, name="", outcome="stopped", reason="interrupted")
            json_output.write(json_output.whole(stopped))
        return 130
    if given["output"] == "text":
        flow_result.print_outputs(result)
    elif given["output"] == "json":
        json_output.write(json_output.whole(result))
    has_output = given["output"] in flow_result.FORMATS or flow_result.print_output(result, given["output"])
    view.tell(result, is_strict=bool(given["strict"]))
    if server is not None and (found := rehearse.mismatches(server, is_whole=result.ok)):
        rehearse.tell(given["rehearse"], found)
        return 1
    return exit_code(result, strict=bool(given["strict"])) or int(not has_output)


async def _drive(
    begin: Begin,
    view: ExecutionView,
    screen: Screen,
    environ: Mapping[str, str],
    config: configs.Config,
    *,
    on_ask: str,
    ahead: Opening | None,
) -> ExecutionResult:
    async with contextlib.AsyncExitStack() as stack:
        warm = await stack.enter_async_context(ahead()) if ahead is not None else None
        from leadrope.cli.run import run_session_ui  # noqa: PLC0415  # the engine, only where it runs
        from leadrope.runs.service import Service  # noqa: PLC0415  # the same
        from leadrope.runtime.gate.approvers import DenyAll  # noqa: PLC0415  # the same

        stack.enter_context(run_session_ui.logs(screen, environ))
        person = stack.enter_context(run_session_ui.person(screen, "allow it in the step or in your policy"))
        stack.enter_context(view)
        service = await stack.enter_async_context(Service(environ, config=config))
        values.note_old_keys(service.config)
        people = None
        if not isinstance(person, DenyAll):
            from leadrope.cli.flow.people import people_at  # noqa: PLC0415  # only where somebody can be asked

            people = people_at(person, view.place_of)
        view.has_person = people is not None
        told = {
            "people": people,
            "show": view.show,
            "on_ask": on_ask,
            "secrets": _secrets(environ),
        }
        if ahead is not None:
            told["ahead"] = warm
        execution = await stack.enter_async_context(begin(service, **told))
        view.replay(await service.executions.all_events(execution.info) if execution.info.last_seq else ())

        def stop(reason: str) -> None:
            service.stop_waiting()
            execution.stop(reason)

        with _stoppable(stop, screen):
            result: ExecutionResult = await execution.run()
            if warm is not None:  # they end while the store is closed
                warm.commands.begin_closing()
            return result


@contextlib.contextmanager
def _stoppable(stop: Callable[[str], None], screen: Screen) -> Iterator[None]:
    """Ctrl-C, a hang-up and SIGTERM end all steps, with the grace that each gives; a second Ctrl-C does not wait."""
    loop = asyncio.get_running_loop()
    main = asyncio.current_task()
    presses = 0

    def end(cause: str) -> None:
        nonlocal presses
        presses += 1
        if presses > 1 and main is not None:
            main.cancel()
            return
        hangup.let_go()
        stop(f"stopped by {cause}")
        by_hand = "stopping; press Ctrl-C again not to wait"
        screen.line(by_hand if cause == "Ctrl-C" else f"stopping, because of {cause}", now=True)

    numbers = (signal.SIGINT, *hangup.signals())
    for number in numbers:
        loop.add_signal_handler(number, end, "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def exit_code(result: ExecutionResult, *, strict: bool = False) -> int:
    match result.outcome:
        case "succeeded":
            return 0
        case "degraded":
            return 1 if strict else 0
        case "waiting":
            return WAITING
        case "stopped":
            return 130
        case _ if result.code is not None:
            return result.code
        case _:
            kinds = {step.error.kind for step in result.failures if step.error is not None}
            return _BY_KIND.get(kinds.pop(), 1) if len(kinds) == 1 else 1


# -- what was given ---------------------------------------------------------------------------------------------------


def _surroundings(given: Mapping[str, Any]) -> tuple[dict[str, str], configs.Config, Overrides]:
    """The environment, the user's configuration, and what was given for this execution, which is in it."""
    from leadrope.workflows.start.surroundings import Overrides  # noqa: PLC0415  # only where something runs

    if given.get("rehearse"):
        environ, config = rehearse.environ(), configs.Config()
    else:
        environ = dict(os.environ)
        config = configs.load({**home.load_env(home.leadrope_home(environ)), **environ})
    if given["model"] is not None and not given["model"].strip():
        raise errors.BadValue("--model", "is empty", hint="Name a tier (opus, sonnet, haiku) or a model.")
    said = Overrides(model=given["model"], billing=given["billing"], base_url=given["base_url"])
    return environ, said.applied(config), said


def _piped(what: str, instead: str) -> str | None:
    """What was piped in; a terminal is no pipe, and neither is nothing."""
    return None if sys.stdin is None or sys.stdin.isatty() else _read_stdin(what, instead) or None


def _read_stdin(what: str, instead: str) -> str:
    """All of it. Whoever writes it may never end, and then nothing would tell what this waits for."""
    told = f"leadrope: waiting for the end of standard input, which is {what} (give {instead} to do without it)"
    tell_at, parts = time.monotonic() + STDIN_TOLD_S, []
    while True:
        # Not one long read: a signal that comes right before it would be noticed after it.
        ready, _, _ = select.select([sys.stdin.fileno()], [], [], STDIN_LOOK_S)
        if not ready and time.monotonic() >= tell_at:
            tell_at = float("inf")
            click.echo(told, err=True)
        if ready:
            part = os.read(sys.stdin.fileno(), 1 << 16)
            if not part:
                break
            parts.append(part)
    try:
        return b"".join(parts).decode()
    except UnicodeDecodeError:
        raise errors.RequestError("what was piped in is not UTF-8 text") from None


def _inputs_file(name: str | None) -> dict[str, Any]:
    if name is None:
        return {}
    text = _read_stdin("--inputs", "--inputs FILE") if name == "-" else values.read_text("--inputs", name)
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise errors.BadValue("--inputs", f"{name} is not a JSON object: {error}") from None


def _pair(label: str) -> tuple[str, str]:
    key, equals, value = label.partition("=")
    if not equals or not key:
        raise errors.BadValue("--label", f"{label!r} is not KEY=VALUE")
    return key, value


def _secrets(environ: Mapping[str, str]) -> list[str]:
    """What no journal may hold: every value of leadrope's own .env, and the credentials of this environment."""
    from leadrope.core.request_secrets import ambient_secrets  # noqa: PLC0415  # only where something runs

    return ambient_secrets({**home.load_env(home.leadrope_home(environ)), **environ})
