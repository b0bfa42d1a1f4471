"""`leadrope run`: flags, config and prompt become one request; the run is shown, and its outcome is the exit code."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from leadrope import errors
from leadrope.cli import live, options, values
from leadrope.cli.exits import INTERRUPTED, exit_code
from leadrope.cli.render import Renderer, billing_line, ending_lines
from leadrope.cli.screen import Screen
from leadrope.core import config as configs
from leadrope.core import events, home
from leadrope.core.request import RunRequest, check_text
from leadrope.core.request_secrets import redactor_of
from leadrope.core.result import RunResult

_HELP = """Run an agent on PROMPT, under supervision.

PROMPT is the task; `-` reads it from standard input. Text streams as it comes. A tool call that no rule has settled is
held and asked for here; where nobody can answer, it is denied. Ctrl-C interrupts the turn, a second one stops the run.
"""
_EPILOG = """\b
Examples:
  leadrope run "why does test_login fail?" --mode plan
  leadrope run "fix it" --mode edit --tools Read,Edit,Bash --max-turns 20
  git diff | leadrope run - --purpose review --output json
  leadrope run "list the routes" --schema routes.schema.json -o json
  leadrope run "go on" --continue
  leadrope run "try it another way" --fork 7f1f9d3e
  leadrope run "upgrade the dependencies" --worktree --detach
  leadrope run "review change.diff" --mode plan --ci --junit leadrope.xml

\b
Exit codes:
  0 succeeded or degraded   1 failed (or degraded, with --strict)   2 usage
  3 denied   5 over budget   6 timed out   75 parked by a usage limit
  130 interrupted

Weakest to strongest: built-in defaults, [run] of config.toml, the profile, flags.
"""


@click.command(
    "run",
    cls=options.GroupedCommand,
    params=[click.Argument(["prompt"], required=False), *options.FLAGS],
    help=_HELP,
    epilog=_EPILOG,
    short_help="Run an agent on a prompt, under supervision.",
)
def command(prompt: str | None, **given: Any) -> int:
    environ = dict(os.environ)
    environ = {**home.load_env(home.leadrope_home(environ)), **environ}
    config = configs.load(environ)
    request = build(prompt, given, config, environ)
    kept = _kept(given)
    output = given["output"] or "text"
    is_quiet, is_strict = bool(given["quiet"]), bool(given["strict"])
    if given["detach"]:
        return _detach(request, kept, Screen.of_process(environ))
    is_reported = bool(given["ci"] or given["junit"])

    def go(screen: Screen, see: Callable[[events.Recorded], None] | None) -> RunResult:
        show = shower(output, screen, quiet=is_quiet, resumable=request.persist_session)
        try:
            result = asyncio.run(_run(request, screen, _both(show, see), config, environ, kept))
        except errors.BadValue as error:
            raise options.in_flags(error, given) from None
        if output == "json":
            _write_json(result)
        return result

    try:
        result = _reported(request, given, environ, go) if is_reported else go(Screen.of_process(environ), None)
    except asyncio.CancelledError:
        return INTERRUPTED
    return exit_code(result, strict=is_strict)


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
    from leadrope.cli import ci  # noqa: PLC0415  # only --ci and --junit need it
    from leadrope.runs import recover  # noqa: PLC0415  # the same

    job = ci.Job(environ, is_ci=bool(given["ci"]), output=given["output"] or "text", junit_file=given["junit"])
    title = redactor_of(request, environ).clean(given["title"] or request.prompt)
    told: dict[str, Any] = {"strict": bool(given["strict"]), "cwd": request.cwd or str(Path.cwd())}
    try:
        with job:
            result = go(job.screen, job.see)
    except errors.LeadropeError as error:
        job.tell(title, recover.not_started(error), **told)
        raise
    job.tell(title, result, **told)
    return result


def build(
    prompt: str | None, given: Mapping[str, Any], config: configs.Config, environ: Mapping[str, str]
) -> RunRequest:
    """One request out of the prompt, the flags and the config; what is wrong is raised before anything is started."""
    fields = options.overrides(given)
    fields["prompt"] = _prompt(prompt, given.get("file"))
    return with_config(fields, given, config, environ)


def with_config(
    fields: dict[str, Any], given: Mapping[str, Any], config: configs.Config, environ: Mapping[str, str]
) -> RunRequest:
    """The flags' own fields above the config's and the profile's."""
    options.one_session(given)
    if given.get("continue"):
        fields["resume"] = _last_session(given.get("cwd"), environ)
    servers = options.connections(config, given.get("mcp_config"), given.get("mcp_server") or ())
    if servers is not None:
        fields["connections"] = servers
    try:
        check_text({"variables": fields.get("variables")})  # the one field that may come from the environment
        return configs.apply(config, given.get("profile"), fields, environ=environ)
    except errors.BadValue as error:
        raise options.in_flags(error, given) from None


def _last_session(cwd: str | None, environ: Mapping[str, str]) -> str:
    from leadrope.runtime.sessions import Sessions  # noqa: PLC0415  # only --continue asks for it

    folder = Path(cwd).expanduser() if cwd is not None else Path.cwd()
    found = Sessions.of(environ).last(folder)
    if found is None:
        raise errors.BadValue(
            "--continue", f"no session was used in {folder}", hint="See `leadrope sessions list`, and use --resume ID."
        )
    return found.id


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
) -> RunResult:
    # The caller's own environment goes to the run: it knows what leadrope's .env adds, and tells the two apart.
    with live.logs(screen, environ), live.person(screen) as approver:
        return await live.drive(request, show=show, screen=screen, approver=approver, config=config, **kept)


def _kept(given: Mapping[str, Any]) -> dict[str, Any]:
    """What the service is told beside the request."""
    if given["detach"]:
        for name in ("ci", "junit"):
            if given[name] is not None:
                raise errors.BadValue(f"--{name}", "reports the end of a run, and --detach does not wait for it")
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
    return {"title": given["title"] or "", "priority": given["priority"] or 0, "place": {"wanted": wanted}}


def _detach(request: RunRequest, kept: dict[str, Any], screen: Screen) -> int:
    from leadrope.core.request import check  # noqa: PLC0415  # only here
    from leadrope.runs import detached  # noqa: PLC0415  # only here
    from leadrope.runs.stored_requests import placed  # noqa: PLC0415  # only here

    request = check(request)
    if request.resume is not None:
        from leadrope.runtime.sessions import Sessions  # noqa: PLC0415  # only a resumed session has a folder of its own

        request, notices = Sessions.of().settle(request)
        for notice in notices:
            screen.line(notice.message)
    # The folder of this terminal: the owner's own is another.
    request = placed(msgspec.structs.replace(request, cwd=request.cwd or "."))
    run_id = detached.hand_over(home.leadrope_home(os.environ), request, dict(os.environ), **kept)
    print(run_id)
    screen.line(screen.style.dim(f"watch it with: leadrope runs logs -f {run_id[:8]}"))
    return 0


def shower(output: str, screen: Screen, *, quiet: bool, resumable: bool = True) -> Callable[[events.Recorded], None]:
    """What is done with each event, by the form of output."""
    if output == "text":
        return Renderer(screen, quiet=quiet, resumable=resumable).show
    if output == "json":
        return Renderer(screen, quiet=quiet, answer=False, resumable=resumable).show
    encoder = msgspec.json.Encoder()
    out = sys.stdout.buffer

    def stream(recorded: events.Recorded) -> None:
        out.write(encoder.encode(recorded) + b"\n")
        out.flush()
        match recorded.event:
            case events.SessionStarted() as started if not quiet:
                screen.line(billing_line(started))
            case events.RunEnded(result=result):
                for line in ending_lines(result):
                    screen.line(line)
            case _:
                pass

    return stream


def _write_json(result: RunResult) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(result) + b"\n")
    sys.stdout.buffer.flush()
