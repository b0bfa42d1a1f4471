"""`leadrope flow`: workflows run, looked at, kept and gone on with, from the terminal."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import select
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from leadrope import errors
from leadrope.cli import hangup, values
from leadrope.cli.flow_view import FlowView
from leadrope.cli.lazy import LazyGroup
from leadrope.cli.screen import Screen
from leadrope.core import config as configs
from leadrope.core import home
from leadrope.runs.flow_values import Wait
from leadrope.runtime.shown import clean
from leadrope.workflows import inputs as given_inputs
from leadrope.workflows import library, templates
from leadrope.workflows.report import FlowResult

_HELP = """Workflows: Markdown files whose steps are agents, commands, requests, files and people.

A workflow is named by its file, or by the name under which it was saved. An execution is named by the beginning of
its id; one that waits for a person also by the token that it printed.
"""
_EPILOG = """\b
Examples:
  leadrope flow run review.flow.md branch=main
  git diff | leadrope flow run review.flow.md -o json
  leadrope flow check *.flow.md
  leadrope flow run review.flow.md --from report     the last steps again
  leadrope flow resume k3j5x7q2 --approve            go on after a yes; so much of a token is enough
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
  leadrope flow run nightly --inputs night.json --no-wait
  leadrope flow run review.flow.md --from report        this step and those behind it again
"""
_RESUME_EPILOG = """\b
Examples:
  leadrope flow resume 3fa9                             after Ctrl-C or a crash; asks what is to be answered
  leadrope flow resume k3j5x7q2 --approve
  leadrope flow resume k3j5x7q2 --choose blue
  leadrope flow resume k3j5x7q2 --deny --reason "not today"
"""
WAITING = 4
STDIN_LOOK_S = 0.1
STDIN_TOLD_S = 1.0
"""Standard input that has not ended by then is waited for, and that is told."""
_BY_KIND = {"denied": 3, "over_budget": 5, "timed_out": 6}

# Name -> module, attribute, one line of help.
_MORE = {
    "check": ("leadrope.cli.flow_looks", "check", "Tell all that is wrong with files, and run nothing."),
    "show": ("leadrope.cli.flow_looks", "show", "The steps of a workflow as a tree."),
    "graph": ("leadrope.cli.flow_looks", "graph", "Draw a workflow: SVG or mermaid."),
    "list": ("leadrope.cli.flow_history", "list_", "The workflows of this folder, and those that are saved."),
    "save": ("leadrope.cli.flow_looks", "save", "Keep a workflow under a name, to run it anywhere."),
    "steps": ("leadrope.cli.flow_looks", "steps", "The kinds of steps, with their parameters."),
    "history": ("leadrope.cli.flow_history", "history", "Executions, the newest first."),
    "report": ("leadrope.cli.flow_history", "report", "One execution, step by step: Markdown or HTML."),
    "data": ("leadrope.cli.flow_data", "data", "What save-dataset steps have kept, and its rows."),
    "run": ("leadrope.cli.flow", "run", "Run a workflow."),
    "resume": ("leadrope.cli.flow", "resume", "Go on with an execution that waits, or was cut off."),
}
command = LazyGroup(
    _MORE, name="flow", help=_HELP, epilog=_EPILOG, short_help="Run workflows, and look at them.", no_args_is_help=True
)

_OUTPUT = click.option(
    "-o", "--output", type=click.Choice(["text", "json", "stream-json"]), default="text", help="What stdout gets."
)
_STRICT = click.option("--strict", is_flag=True, help="A degraded workflow is a failure.")
_NO_WAIT = click.option("--no-wait", is_flag=True, help="Where a person is needed and none is there, the answer is no.")
_QUIET = click.option("-q", "--quiet", is_flag=True, help="Only results and errors.")


@click.command("run", epilog=_RUN_EPILOG)
@click.argument("workflow")
@click.argument("inputs", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("--inputs", "inputs_file", metavar="FILE", help="A JSON object with inputs; `-` reads standard input.")
@click.option("--cwd", metavar="DIR", help="Where the steps work; this folder where left out.")
@click.option("--only", metavar="STEP", help="This step alone, with what the last execution gave before it.")
@click.option("--from", "begin_at", metavar="STEP", help="This step and those behind it, with the last values before.")
@click.option("--force", is_flag=True, help="With --only and --from: also values of steps that were changed since.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="For later looks; repeatable.")
@_NO_WAIT
@_OUTPUT
@_STRICT
@_QUIET
def run(workflow: str, inputs: tuple[str, ...], **given: Any) -> int:
    """Run WORKFLOW, a file or a saved name, with its inputs as NAME=VALUE.

    A step that needs a person asks here; where nobody is there, the execution is put aside with a token (exit code 4),
    and `leadrope flow resume TOKEN` goes on with it.
    """
    if given["only"] and given["begin_at"]:
        raise errors.RequestError("--only and --from were given", hint="Give one of the two.")
    environ, config = _surroundings()
    folder = Path(given["cwd"]).expanduser() if given["cwd"] else Path.cwd()
    if not folder.is_dir():
        raise errors.BadDirectory(f"there is no folder {folder}")
    own = home.leadrope_home(environ)
    loaded = library.load(library.find(workflow, folder=Path.cwd(), leadrope_home=own), leadrope_home=own)
    texts = given_inputs.read_words(inputs)
    more = _inputs_file(given["inputs_file"])
    # Read only where it is needed: a pipe that nobody writes to would hold the start for ever.
    unsaid = [one for one in loaded.workflow.inputs if one.stdin and one.name not in (*texts, *more)]
    stdin = _piped(f"the input {unsaid[0].name!r}", f"{unsaid[0].name}=VALUE") if unsaid else None
    told = loaded.inputs({**more, **texts}, stdin=stdin, are_texts=True)
    labels = dict(_pair(label) for label in given["labels"])
    if not given["quiet"]:
        _tell_doubts(loaded)

    @contextlib.asynccontextmanager
    async def begin(service: Any, **more: Any) -> AsyncIterator[Any]:
        from leadrope.workflows import starting  # noqa: PLC0415  # the engine, only where it runs

        async with starting.started(
            service,
            loaded,
            told,
            workspace=folder,
            environ=environ,
            labels=labels,
            only=given["only"],
            begin_at=given["begin_at"],
            is_forced=bool(given["force"]),
            **more,
        ) as flow:
            yield flow

    is_whole = not (given["only"] or given["begin_at"])
    ahead = _ahead_of(loaded, folder, environ, config) if is_whole else None
    return _carried_out(begin, given, environ, config, ahead)


@click.command("resume", epilog=_RESUME_EPILOG)
@click.argument("name", metavar="TOKEN|EXECUTION")
@click.option("--approve", is_flag=True, help="Say yes.")
@click.option("--deny", is_flag=True, help="Say no.")
@click.option("--choose", metavar="CHOICE", help="One of the choices that were offered.")
@click.option("--reason", default="", help="Kept with the answer.")
@click.option("--changed", is_flag=True, help="Go on although the file was changed since.")
@_NO_WAIT
@_OUTPUT
@_STRICT
@_QUIET
def resume(name: str, approve: bool, deny: bool, choose: str | None, reason: str, changed: bool, **given: Any) -> int:
    """Go on with an execution that waits for a person, was stopped, or whose process died.

    What is done stays done. Answer a token with --approve, --deny or --choose; without an answer it is asked here. In
    place of a token its beginning is enough, or the execution, where that waits for one answer only.
    """
    from leadrope.workflows.starting import Answer  # noqa: PLC0415  # the engine, only where it runs

    if deny and (approve or choose is not None):
        raise errors.RequestError("--deny was given, and a yes", hint="Give one of the two.")
    is_answered = approve or deny or choose is not None
    if reason and not is_answered:
        raise errors.RequestError("--reason was given without an answer", hint="Add --approve, --deny or --choose.")
    answer = Answer(approved=not deny, choice=choose or "", reason=reason, by=_me()) if is_answered else None
    environ, config = _surroundings()

    @contextlib.asynccontextmanager
    async def begin(service: Any, **more: Any) -> AsyncIterator[Any]:
        from leadrope.cli import flow_waits  # noqa: PLC0415  # only for an answer
        from leadrope.workflows import starting  # noqa: PLC0415  # the engine, only where it runs

        wait = flow_waits.found(service, name) if answer is not None else None
        token = wait.token if wait is not None else name
        async with starting.resumed(
            service, token, environ=environ, answer=answer, takes_change=changed, **more
        ) as flow:
            yield flow

    return _carried_out(begin, given, environ, config)


_NO_DOUBTS = ("no_description", "unused_input")
"""Warnings of the check that are no sign of another meaning."""


def _tell_doubts(loaded: library.Loaded) -> None:
    """What the file may not mean as it is read; `check` tells all."""
    for problem in loaded.warnings:
        if problem.kind not in _NO_DOUBTS:
            click.echo(clean(f"{loaded.name}: {problem}"), err=True)


# -- carrying it out --------------------------------------------------------------------------------------------------


Begin = Callable[..., contextlib.AbstractAsyncContextManager[Any]]
Opening = Callable[[], contextlib.AbstractAsyncContextManager[Any]]


def _ahead_of(
    loaded: library.Loaded, folder: Path, environ: Mapping[str, str], config: configs.Config
) -> Opening | None:
    """What can be started before the engine is loaded."""
    from leadrope.workflows import ahead  # noqa: PLC0415  # only where something runs

    if not ahead.begins_with_a_command(loaded.workflow):
        return None
    workspace, own = folder.resolve(), home.leadrope_home(environ)
    return lambda: ahead.opened(loaded.workflow, workspace=workspace, environ=environ, config=config, home=own)


def _carried_out(
    begin: Begin,
    given: Mapping[str, Any],
    environ: Mapping[str, str],
    config: configs.Config,
    ahead: Opening | None = None,
) -> int:
    screen = Screen.of_process(environ)
    view = FlowView(screen, quiet=bool(given["quiet"]), is_streamed=given["output"] == "stream-json")
    on_ask = "deny" if given["no_wait"] else "wait"
    try:
        result, waits = asyncio.run(_drive(begin, view, screen, environ, config, on_ask=on_ask, ahead=ahead))
    except asyncio.CancelledError:
        view.tell_interrupted()
        return 130
    if given["output"] == "text":
        _print_outputs(result)
    elif given["output"] == "json":
        sys.stdout.buffer.write(msgspec.json.encode(result) + b"\n")
    view.tell(result, waits, is_strict=bool(given["strict"]))
    return exit_code(result, strict=bool(given["strict"]))


async def _drive(
    begin: Begin,
    view: FlowView,
    screen: Screen,
    environ: Mapping[str, str],
    config: configs.Config,
    *,
    on_ask: str,
    ahead: Opening | None,
) -> tuple[FlowResult, list[Wait]]:
    """What it came to, and what it waits for as it is kept: without the secrets that were asked about."""
    async with contextlib.AsyncExitStack() as stack:
        opened = {"ahead": await stack.enter_async_context(ahead())} if ahead is not None else {}
        from leadrope.cli import live  # noqa: PLC0415  # the engine, only where it runs
        from leadrope.cli.flow_people import people_at  # noqa: PLC0415  # the same
        from leadrope.runs.service import Service  # noqa: PLC0415  # the same

        stack.enter_context(live.logs(screen, environ))
        person = stack.enter_context(live.person(screen))
        stack.enter_context(view)
        service = await stack.enter_async_context(Service(environ, config=config))
        told = {
            "people": people_at(person, view.place_of),
            "show": view.show,
            "on_ask": on_ask,
            "secrets": _secrets(environ),
        }
        flow = await stack.enter_async_context(begin(service, **told, **opened))
        with _stoppable(flow.stop, screen):
            result: FlowResult = await flow.run()
            return result, [service.flows.wait(one.token) for one in result.waits]


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


def exit_code(result: FlowResult, *, strict: bool = False) -> int:
    match result.outcome:
        case "succeeded":
            return 0
        case "degraded":
            return 1 if strict else 0
        case "waiting":
            return WAITING
        case "stopped":
            return 130
        case _:
            kinds = {step.error.kind for step in result.failures if step.error is not None}
            return _BY_KIND.get(kinds.pop(), 1) if len(kinds) == 1 else 1


def _print_outputs(result: FlowResult) -> None:
    """One output is printed as it is; of several each has its name."""
    if result.outcome in ("waiting", "stopped"):
        return
    found = list(result.outputs.items())
    if len(found) == 1:
        click.echo(_shown(found[0][1]))
        return
    for name, value in found:
        text = _shown(value)
        click.echo(f"{name}: {text}" if "\n" not in text else f"{name}:\n{_indented(text)}")


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return msgspec.json.format(msgspec.json.encode(value)).decode()
    return templates.as_text(value)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.split("\n"))


# -- what was given ---------------------------------------------------------------------------------------------------


def _surroundings() -> tuple[dict[str, str], configs.Config]:
    environ = dict(os.environ)
    return environ, configs.load({**home.load_env(home.leadrope_home(environ)), **environ})


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


def _me() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "person"
