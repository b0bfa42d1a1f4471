"""`leadrope run`: flags, config and prompt become one request; the run is shown, and its outcome is the exit code."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from leadrope import errors, spelling
from leadrope.cli import flags, json_output, options, origins, values
from leadrope.cli.exits import FAILED, INTERRUPTED, OK, Demands, exit_code, explain
from leadrope.cli.run import piped, rehearse, resuming, run_session_ui
from leadrope.cli.screen.render import Renderer, billing_line, ending_lines
from leadrope.cli.screen.screen import Screen
from leadrope.core import config as configs
from leadrope.core import events, home
from leadrope.core.request import RunRequest
from leadrope.core.request_checks import check, check_text
from leadrope.core.request_secrets import redactor_of
from leadrope.core.result import RunError, RunResult, not_started
from leadrope.runtime.agents import config_values
from leadrope.runtime.terminal_text import clean

if TYPE_CHECKING:
    from leadrope.rehearsal.model import ModelServer
    from leadrope.runs.continued import Continued

_HELP = """Run an agent on PROMPT, under supervision.

PROMPT is the task. What is piped in goes to the agent after it, as a document (text, at most 1 MiB); `-` reads the
prompt itself from standard input. In a shell loop add `< /dev/null`, so that the loop keeps its own input.

Text streams as it arrives. A tool call that no rule decides waits for your answer; if nobody can answer, it is
denied. Ctrl-C interrupts the turn, a second one stops the run.
"""
_EPILOG = """\b
Examples:
  leadrope run "why does test_login fail?" --mode plan
  leadrope run "fix it" --mode edit --tools Read,Edit,Bash --max-turns 20
  git diff | leadrope run "review this" --purpose review --output json
  leadrope run "list the routes" --schema routes.schema.json -o json
  leadrope run "now the docs" --continue
  leadrope run "try it another way" --fork 7f1f9d3e
  leadrope run "upgrade the dependencies" --worktree --detach
  leadrope run "review change.diff" --mode plan --ci --junit leadrope.xml
  leadrope run "fix it" --mode edit --rehearse answers.yaml    scripted answers; no account needed

\b
Exit codes:
  0 succeeded, or degraded   1 failed, or --schema was not satisfied   2 usage
  3 denied: a call was, and no edit, command or network call was allowed
  5 over budget   6 timed out   75 parked by a usage limit   130 interrupted
  --fail-on-denied: 3 if any call was denied
  --strict: the same, and 1 if the run is degraded

Weakest to strongest: built-in defaults, [run] of config.toml, the profile, flags.
"""


Show = Callable[[events.Recorded], None]
Doing = Callable[[float], list[str]]


class _Run(options.GroupedCommand):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            told = _in_quotes(error, ctx, given)
            _write_unstarted(json_output.wanted(given), errors.RequestError(told.format_message()))
            raise told from None


def _in_quotes(error: click.UsageError, ctx: click.Context, given: list[str]) -> click.UsageError:
    """A prompt of several words is the mistake that is made most often."""
    words = re.search(r"unexpected extra arguments? \((.*)\)", error.message)
    if words is None or ctx.params.get("prompt") is None:
        return error
    prompt = next((word for word in given if word == ctx.params["prompt"]), "")
    told = f'the prompt is more than one argument; put it in quotes: leadrope run "{prompt} {words[1]}"'
    return click.UsageError(told, ctx=ctx)


@click.command(
    "run",
    cls=_Run,
    params=[click.Argument(["prompt"], required=False), *options.FLAGS],
    help=_HELP,
    epilog=_EPILOG,
    short_help="Run an agent on a prompt, under supervision.",
)
@flags.old_walls()
def command(prompt: str | None, **given: Any) -> int:
    output = given["output"] or "text"
    try:
        return _command(prompt, given, output)
    except errors.LeadropeError as error:
        _write_unstarted(output, error)
        raise
    except asyncio.CancelledError:
        _write_unstarted(output, None)
        return INTERRUPTED


def _command(prompt: str | None, given: Mapping[str, Any], output: str) -> int:
    options.one_session(given)
    server: ModelServer | None = None
    if given["rehearse"]:
        server = _scripted(given)
        environ, config = rehearse.environ(), configs.Config()
    else:
        environ = {**home.load_env(home.leadrope_home(os.environ)), **os.environ}
        config = configs.load(environ)
        values.note_old_keys(config)
        config_values.check(config)
    try:
        return _start(prompt, given, output, config, environ, server)
    except errors.LeadropeError as error:
        raise origins.named(error, given, config) from None


def _start(
    prompt: str | None,
    given: Mapping[str, Any],
    output: str,
    config: configs.Config,
    environ: Mapping[str, str],
    server: ModelServer | None,
) -> int:
    named = resuming.session_named(given, environ)
    earlier = resuming.find(named, environ) if named is not None else None
    request = check(build(prompt, given, config, environ, named, earlier))
    kept = _kept(given, earlier)
    if given["junit"] is not None:
        values.check_report_file("--junit", given["junit"])
    if given["detach"]:
        return _detach(request, kept, Screen.of_process(environ), output, config, environ)
    demands = _demands(given, request)
    unstored: list[errors.ResultNotStored] = []

    def go(screen: Screen, see: Callable[[events.Recorded], None] | None) -> RunResult:
        is_quiet = bool(given["quiet"])
        is_data = request.output_schema is not None
        show, doing = shower(output, screen, quiet=is_quiet, is_data=is_data, is_rehearsed=server is not None)
        shown = {**kept, "doing": doing}
        if is_quiet or output == "stream-json":
            shown["ending"] = None
        try:
            result = asyncio.run(_run(request, screen, _both(show, see), config, environ, shown, server))
        except errors.ResultNotStored as error:
            unstored.append(error)
            result = error.result
            screen.say(spelling.runnable(f"leadrope: {error.message}"), hanging="  ")
            screen.say(spelling.runnable(f"  {error.hint}"), hanging="  ")
        if output == "json":
            json_output.write(json_output.whole(result))
        if told := explain(result, demands):
            screen.line(f"{screen.style.bad('✗')} {clean(told)}")
        return result

    is_reported = bool(given["ci"]) or given["junit"] is not None
    result = _reported(request, given, environ, go) if is_reported else go(Screen.of_process(environ), None)
    if any(error.is_timed_out for error in unstored):
        return FAILED  # it was not stopped by a person
    if server is not None and (found := rehearse.mismatches(server, is_whole=result.ok)):
        rehearse.tell(given["rehearse"], found)
        return FAILED
    return exit_code(result, demands) or (FAILED if unstored else OK)


def _scripted(given: Mapping[str, Any]) -> ModelServer:
    from leadrope.rehearsal.model import ModelServer  # noqa: PLC0415  # only rehearsals need it

    rehearse.refuse_others(given)
    script = rehearse.read(given["rehearse"], Path(given["cwd"]).expanduser() if given["cwd"] else Path.cwd())
    if script.steps:
        raise errors.BadValue("--rehearse", "`steps` are for workflows", hint="Write the answers of a run as `turns`.")
    return ModelServer(script, strict=False)


def _demands(given: Mapping[str, Any], request: RunRequest) -> Demands:
    return Demands(
        strict=bool(given["strict"]),
        fail_on_denied=bool(given["fail_on_denied"]),
        schema=request.output_schema is not None,
    )


def _write_unstarted(output: str, error: errors.LeadropeError | None) -> None:
    """Whoever reads JSON gets it also from a run that could not start, or was interrupted before it did."""
    if output == "text":
        return

    problem = RunError(kind="stopped", message="interrupted before the run started")
    stopped = RunResult(run_id="", outcome="stopped", error=problem, attempts=0)
    result = not_started(error) if error is not None else stopped
    line = json_output.line(json_output.whole(result)) if output == "json" else json_output.last_line(result)
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


def _both(
    show: Callable[[events.Recorded], None], see: Callable[[events.Recorded], None] | None
) -> Callable[[events.Recorded], None]:
    if see is None:
        return show

    def both(recorded: events.Recorded) -> None:
        see(recorded)
        show(recorded)

    return both


def _reported(
    request: RunRequest,
    given: Mapping[str, Any],
    environ: Mapping[str, str],
    go: Callable[[Screen, Callable[[events.Recorded], None]], RunResult],
) -> RunResult:
    """The same run, and afterwards its report for the CI service; also where it could not be started."""
    from leadrope.cli.run import ci  # noqa: PLC0415  # only --ci and --junit need it

    job = ci.CiJob(environ, is_ci=bool(given["ci"]), output=given["output"] or "text", junit_file=given["junit"])
    title = redactor_of(request, environ).clean(given["title"] or request.prompt)
    told: dict[str, Any] = {"demands": _demands(given, request), "cwd": request.cwd or str(Path.cwd())}
    try:
        with job:
            result = go(job.screen, job.see)
    except errors.LeadropeError as error:
        job.tell(title, not_started(error), **told)
        raise
    job.tell(title, result, **told)
    return result


def build(
    prompt: str | None,
    given: Mapping[str, Any],
    config: configs.Config,
    environ: Mapping[str, str],
    resume: str | None = None,
    earlier: Continued | None = None,
) -> RunRequest:
    """One request out of the prompt, the flags and the config; what is wrong is raised before anything is started.

    `resume` names the session that is continued, and `earlier` is the stored run whose settings are kept.
    """
    fields = options.overrides(given)
    fields["prompt"] = _prompt(prompt, given.get("file"))
    request = with_config(fields, given, config, environ, resume, earlier)
    if prompt == "-" or not request.prompt.strip():
        return request
    # Last of all: a mistake in a flag is told before anybody waits for a pipe.
    added = piped.read(Screen.of_process(environ))
    return msgspec.structs.replace(request, prompt=piped.with_input(request.prompt, added))


def with_config(
    fields: dict[str, Any],
    given: Mapping[str, Any],
    config: configs.Config,
    environ: Mapping[str, str],
    resume: str | None = None,
    earlier: Continued | None = None,
) -> RunRequest:
    """The flags' own fields above those of the run that is continued, or above the config's and the profile's."""
    if resume is not None:
        fields["resume"] = earlier.run.session_id if earlier is not None and resume == "last" else resume
    servers = options.connections(config, given.get("mcp_config"), given.get("mcp_server") or ())
    if servers is not None:
        fields["connections"] = servers
    try:
        check_text({"variables": fields.get("variables")})  # the one field that may come from the environment
        found = _with_session(resuming.request_of(fields, given.get("profile"), config, environ, earlier), environ)
    except errors.LeadropeError as error:
        raise origins.named(error, given, config) from None
    if earlier is not None and not given["quiet"]:
        _tell_kept(earlier, found, fields, given, config, environ)
    return found


def _tell_kept(
    earlier: Continued,
    request: RunRequest,
    fields: Mapping[str, Any],
    given: Mapping[str, Any],
    config: configs.Config,
    environ: Mapping[str, str],
) -> None:
    """One line about the settings that come from the run that is continued."""
    try:
        other = resuming.request_of(fields, given.get("profile"), config, environ, None)
    except errors.LeadropeError:
        other = RunRequest(prompt="")  # the config's own settings cannot be used, and are not
    if told := resuming.describe(earlier, request, other):
        screen = Screen.of_process(environ)
        screen.line(screen.style.dim(redactor_of(request, environ).clean(told)))


def _with_session(request: RunRequest, environ: Mapping[str, str]) -> RunRequest:
    """The session of --resume or --fork by its whole id; they take the ids of runs too."""
    if request.resume is None or request.provider != "claude-code":
        return request
    from leadrope.runs import session_names  # noqa: PLC0415  # only a resumed session needs them

    known = asyncio.run(session_names.find(request.resume, home.leadrope_home(environ)))
    return msgspec.structs.replace(request, resume=known)


def _prompt(prompt: str | None, file: str | None) -> str:
    if prompt is not None and file is not None:
        raise errors.RequestError("a prompt and --file were given", hint="Give one of the two.")
    if file is not None:
        return values.read_text("--file", file)
    if prompt is None:
        raise errors.EmptyPrompt(
            "there is no prompt", hint='Write leadrope run "…", `-` to read standard input, or --file FILE.'
        )
    if prompt != "-":
        return prompt
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError:
        raise errors.RequestError("the prompt on standard input is not UTF-8 text") from None


async def _run(
    request: RunRequest,
    screen: Screen,
    show: Callable[[events.Recorded], None],
    config: configs.Config,
    environ: Mapping[str, str],
    kept: dict[str, Any],
    server: ModelServer | None = None,
) -> RunResult:
    # The caller's own environment goes to the run: it knows what leadrope's .env adds, and tells the two apart.
    with run_session_ui.logs(screen, environ), run_session_ui.person(screen) as approver:
        if server is not None:
            async with server:
                request = rehearse.request_of(request, server.url)
                kept = {**kept, "environ": environ}
                return await run_session_ui.drive(
                    request, show=show, screen=screen, approver=approver, config=config, **kept
                )
        return await run_session_ui.drive(request, show=show, screen=screen, approver=approver, config=config, **kept)


def _kept(given: Mapping[str, Any], earlier: Continued | None) -> dict[str, Any]:
    """What the service is told beside the request."""
    if given["detach"]:
        for name in ("ci", "junit", "strict", "fail_on_denied"):
            if given[name] is not None:
                flag = f"--{name.replace('_', '-')}"
                raise errors.BadValue(flag, "is about the end of a run, and --detach does not wait for it")
    if not given["worktree"]:
        for name in ("branch", "carry"):
            if given[name] is not None:
                raise errors.BadValue(f"--{name}", "belongs to a worktree", hint="Add --worktree.")
    wanted = {
        "worktree": bool(given["worktree"]),
        "branch": given["branch"],
        "carry": bool(given["carry"]),
        "checkpoint": given["checkpoint"] is not False,
    }
    place: dict[str, Any] = {}
    if earlier is not None and not given["worktree"] and not given["cwd"]:
        place = earlier.place()  # it stays in its worktree
        wanted = {**wanted, **place["wanted"]}
        if given["checkpoint"] is not None:
            wanted["checkpoint"] = given["checkpoint"]
    place |= {"wanted": wanted, "secret_files": secret_files(given, earlier)}
    return {"title": given["title"] or "", "priority": given["priority"] or 0, "place": place}


def secret_files(given: Mapping[str, Any], earlier: Continued | None) -> dict[str, str]:
    """Where secrets can be read again when the run is continued by another process; a pipe is read only once."""
    named = dict(text.split("=", 1) for text in given.get("secret_file") or ())
    if given.get("credential_file"):
        named["credential"] = given["credential_file"]
    found = {name.strip(): str(Path(path).expanduser().absolute()) for name, path in named.items()}
    found = {name: path for name, path in found.items() if not path.startswith(("/dev/", "/proc/"))}
    return {**(earlier.secret_files if earlier is not None else {}), **found}


def _detach(
    request: RunRequest,
    kept: dict[str, Any],
    screen: Screen,
    output: str,
    config: configs.Config,
    environ: Mapping[str, str],
) -> int:
    from leadrope.runs import detached  # noqa: PLC0415  # only here
    from leadrope.runs.records.stored_requests import placed  # noqa: PLC0415  # only here
    from leadrope.runtime import prepare  # noqa: PLC0415  # only here

    if request.resume is not None:
        from leadrope.runtime.sessions.files import Sessions  # noqa: PLC0415  # only a resumed session has a folder of its own

        request, notices = Sessions.of().settle(request)
        for notice in notices:
            screen.say(spelling.runnable(notice.message))
    # The folder of this terminal: the owner's own is another.
    request = placed(msgspec.structs.replace(request, cwd=request.cwd or "."))
    # What is wrong with the words of a command is said here, and not stored as a run that failed.
    prepare.complete(request, config, environ, home.leadrope_home(environ), waits=True)
    run_id = detached.hand_over(
        home.leadrope_home(os.environ),
        request,
        dict(os.environ),
        tell=lambda text: screen.say(spelling.runnable(f"! {text}"), hanging="  "),
        **kept,
    )
    if output == "text":
        print(run_id)
    else:
        json_output.write({"run_id": run_id})
    screen.line(screen.style.dim(spelling.runnable(f"watch it with: leadrope runs logs -f {run_id[:8]}")))
    return 0


def shower(
    output: str, screen: Screen, *, quiet: bool, is_data: bool = False, is_rehearsed: bool = False
) -> tuple[Show, Doing | None]:
    """What is done with each event, by the form of output, and what is shown between them.

    `is_data`: the answer is to be JSON, by a schema.
    """
    if output != "stream-json":
        folded = screen.can_redraw and not quiet
        renderer = Renderer(
            screen, quiet=quiet, answer=output == "text", folded=folded, is_data=is_data, rehearsal=is_rehearsed
        )
        return renderer.show, None if quiet else renderer.live_lines
    out = sys.stdout.buffer

    def stream(recorded: events.Recorded) -> None:
        out.write(json_output.event_line(recorded))
        out.flush()
        match recorded.event:
            case events.SessionStarted() as started if not quiet:
                screen.line(billing_line(started))
            case events.RunEnded(result=result):
                for line in ending_lines(result):
                    screen.line(line)
            case _:
                pass

    return stream, None
