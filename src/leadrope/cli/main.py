"""The entry point `leadrope`: finds the command, imports it only then, and turns what goes wrong into an exit code.

Knows no command beyond its name and its one line of help, so that `--version` and `--help` cost next to nothing.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from leadrope.version import __version__

if TYPE_CHECKING:
    import click

    from leadrope.errors import LeadropeError

# Name -> module, attribute, one line of help.
COMMANDS = {
    "run": ("leadrope.cli.run.run", "command", "Run an agent on a prompt, under supervision."),
    "chat": ("leadrope.cli.run.chat", "command", "Talk with an agent, turn by turn."),
    "flow": ("leadrope.cli.flow.flow", "command", "Run workflows, and inspect them."),
    "runs": ("leadrope.cli.runs.runs", "command", "List, follow, stop, resume and export runs."),
    "approvals": ("leadrope.cli.approvals.approvals", "command", "List and answer what waits for a person."),
    "top": ("leadrope.cli.runs.top", "command", "Watch all runs live."),
    "stats": ("leadrope.cli.runs.stats", "command", "Show what runs have cost, by day, model or label."),
    "export": ("leadrope.cli.runs.runs", "export", "Export a run: one page, or its events as JSON lines."),
    "sessions": ("leadrope.cli.runs.sessions", "command", "List, show, export, import and delete sessions."),
    "demo": ("leadrope.cli.run.demo", "command", "Watch a real agent work on a lead rope; no account needed."),
    "events": ("leadrope.cli.runs.events", "command", "Print what happened in a run, line by line."),
    "import-transcript": ("leadrope.cli.runs.transcripts", "command", "Read an agent's recording into events."),
    "agents": ("leadrope.cli.agents.agents", "command", "List, show, make and check saved agents."),
    "connections": ("leadrope.cli.agents.connections", "command", "List and test connections to MCP servers."),
    "policy": ("leadrope.cli.policy.policy", "command", "Show, check and try the rules that hold here."),
    "trust": ("leadrope.cli.policy.trust", "command", "Trust a repository's own settings, hooks and servers."),
    "login": ("leadrope.cli.setup.login", "login", "Log in to Claude with the agent program that leadrope uses."),
    "setup-token": (
        "leadrope.cli.setup.login",
        "setup_token",
        "Make a long-lived token for machines without a browser.",
    ),
    "completion": ("leadrope.cli.setup.completion", "command", "Print the code for Tab completion in your shell."),
    "doctor": ("leadrope.cli.setup.doctor", "command", "Check the installation, and say what to do."),
}

_HELP = """Run coding agents on a lead rope: supervised, and gated before every tool call.

New here? `leadrope demo` shows it at work in ten seconds, without an account.
"""
_EPILOG = "`leadrope COMMAND --help` shows more about a command."


def _flag_of(field: str) -> str:
    from leadrope.core.request import flag_of  # noqa: PLC0415  # only where something is wrong

    return flag_of(field)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    args = list(sys.argv[1:] if argv is None else argv)
    _fill_streams()
    if args in (["--version"], ["version"]):
        # Before click is imported: scripts ask for the version often, and 30 ms each time add up.
        print(f"leadrope {__version__}")
        return 0
    if args[:1] == ["help"]:  # as git and gh have it: `leadrope help runs list`
        args = [*args[1:], "--help"]
    from leadrope import spelling  # noqa: PLC0415  # not for `--version`

    try:
        with spelling.at_terminal(_flag_of):
            return _dispatch(args)
    except KeyboardInterrupt:
        print("leadrope: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader (`| head`) has seen enough.
        _forget_stdout()
        return 1
    except OSError as error:
        if error.errno == errno.EIO and _has_hung_up():
            return 129  # 128 + SIGHUP, as shells report it
        if _debug():
            raise
        # A full disk, a folder that may not be entered, or one that changed while it was looked at.
        told = f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
        if error.errno == errno.ENOSPC:
            if not error.filename:  # a write, and most likely that of the output
                _forget_stdout()
            print(f"leadrope: nothing more could be written: {told}", file=sys.stderr)
        else:
            print(f"leadrope: {told}\n  LEADROPE_DEBUG=1 shows where that happened.", file=sys.stderr)
        return 1


def _fill_streams() -> None:
    """What a caller has closed (`>&-`, some daemons) would else be the next file that is opened, and get our words."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # The lowest free number is that of the first closed stream.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115  # until the exit


def _has_hung_up() -> bool:
    from leadrope.cli import hangup  # noqa: PLC0415  # only where a write has failed

    return hangup.let_go()


def _forget_stdout() -> None:
    """Python would complain once more when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(args: list[str]) -> int:
    import click  # noqa: PLC0415  # not needed for --version

    from leadrope.cli.lazy import LazyGroup  # noqa: PLC0415  # the same
    from leadrope.errors import LeadropeError  # noqa: PLC0415  # the same

    if "_LEADROPE_COMPLETE" in os.environ:
        from leadrope.cli.setup import completion  # noqa: F401, PLC0415  # how our shells split words, before click asks

    settings = {"help_option_names": ["-h", "--help"]}  # inherited by every command
    group = LazyGroup(
        COMMANDS, name="leadrope", help=_HELP, epilog=_EPILOG, no_args_is_help=True, context_settings=settings
    )
    group.params.append(_version_option())
    try:
        _require_text(args)
        code = group.main(args, prog_name="leadrope", standalone_mode=False)
    except click.ClickException as error:
        _show(error)
        return error.exit_code
    except click.Abort:
        return 130
    except LeadropeError as error:
        if _debug():
            raise
        return _tell(error)
    return code if isinstance(code, int) else 0


def _require_text(args: list[str]) -> None:
    """What is kept and told of a run is UTF-8; bytes that are not would fail long after the start."""
    from leadrope.errors import RequestError  # noqa: PLC0415  # imported by the caller already

    for word in args:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise RequestError(
                f"the argument {os.fsencode(word)!r} is not UTF-8 text", hint="Look at the terminal's encoding (LANG)."
            ) from None


def _version_option() -> click.Option:
    import click  # noqa: PLC0415  # the caller has it already

    def show(context: click.Context, param: click.Parameter, value: bool) -> None:
        if value and not context.resilient_parsing:
            click.echo(f"leadrope {__version__}")
            context.exit()

    return click.Option(
        ["--version"], is_flag=True, expose_value=False, is_eager=True, callback=show, help="Show the version."
    )


def _show(error: click.ClickException) -> None:
    import io  # noqa: PLC0415  # imported by click already

    from leadrope.spelling import runnable  # noqa: PLC0415  # imported by the caller already

    text = io.StringIO()
    error.show(file=text)
    print(runnable(text.getvalue()), end="", file=sys.stderr)


def _tell(error: LeadropeError) -> int:
    from leadrope.errors import RequestError  # noqa: PLC0415  # imported by the caller already
    from leadrope.spelling import runnable  # noqa: PLC0415  # the same

    told = [f"leadrope: {error.message}", *([f"  {error.hint}"] if error.hint else [])]
    for line in runnable("\n".join(told)).split("\n"):
        for piece in _broken(line):
            print(piece, file=sys.stderr)
    return 2 if isinstance(error, RequestError) else 1


def _broken(line: str) -> list[str]:
    """Between words, on a terminal; what is read by a program keeps its lines."""
    if not sys.stderr.isatty():
        return [line]
    import shutil  # noqa: PLC0415  # only for people

    from leadrope.cli.screen import table  # noqa: PLC0415  # the same

    return table.wrapped(line, max(40, shutil.get_terminal_size().columns), hanging="  ")


def _debug() -> bool:
    return os.environ.get("LEADROPE_DEBUG", "").lower() in ("1", "true")


def entry() -> NoReturn:
    """What the installed program does.

    Nothing is left to be tidied up when `main` returns: what is kept is on the disk, threads and children have ended.
    Python's own tidying takes 20 to 100 ms more, at every command.
    """
    # Imports make many objects and no garbage: a workflow of 2,000 steps comes to 62,000, and one look at them all
    # takes 16 ms, a twentieth of a short command.
    gc.set_threshold(100_000, 20, 20)
    code = main()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        code = code or 1
    os._exit(code)


if __name__ == "__main__":
    entry()
