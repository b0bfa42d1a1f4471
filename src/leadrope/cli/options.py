"""The flags of a run: those of its options (`core/request.py`), its own, and how they become fields of a request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, get_args

import click

from leadrope import errors
from leadrope.cli import flags, values
from leadrope.core.config import Config
from leadrope.core.request import OPTIONS, McpServer, RunRequest
from leadrope.core.request_parts.option import Form, RequestOption, Section, type_of

TASK, AGENT, SAFETY, TOOLS, SESSION, SHAPE, LIMITS, PAYING, KEEPING, SHOWING = (
    "The task",
    "The agent",
    "What it may do",
    "Connections",
    "The session",
    "Structured output",
    "Limits (seconds; 0 switches a clock off)",
    "Who pays, and what is started",
    "Where it works, and what is kept",
    "What you see",
)
SECTIONS = (TASK, AGENT, SAFETY, TOOLS, SESSION, SHAPE, LIMITS, PAYING, KEEPING, SHOWING)
_HEADINGS: dict[Section, str] = dict(zip(get_args(Section), SECTIONS, strict=True))


class Flag(flags.Renamed):
    """An option that knows its section of the help and, if it is one, the request's field."""

    def __init__(
        self,
        *names: str,
        section: str,
        field: str | None = None,
        read: Callable[[str, Any], Any] | None = None,
        old: tuple[str, ...] = (),
        **attrs: Any,
    ) -> None:
        super().__init__(names, old=old, default=() if attrs.get("multiple") else None, **attrs)
        self.section = section
        self.field = field
        self.read = read

    @property
    def spelling(self) -> str:
        return next(name for name in self.opts if name.startswith("--"))

    def is_given(self, value: object) -> bool:
        return value is not None and value != ()


class GroupedCommand(click.Command):
    """Help with one block of options per section, in the order of SECTIONS."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        blocks: dict[str, list[tuple[str, str]]] = {section: [] for section in SECTIONS}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option):
                blocks[getattr(param, "section", SHOWING)].append(record)
        for section, records in blocks.items():
            if records:
                with formatter.section(section):
                    formatter.write_dl(records)


# -- the table -------------------------------------------------------------------------------------------------------

_TYPES: dict[Any, Any] = {int: int, float: float}
_READ: dict[Form, Callable[[str, Any], Any]] = {
    "texts": values.as_given,
    "list": values.split_list,
    "pairs": values.pairs,
    "variables": values.variables,
    "json": values.json_object,
    "budget": values.budget,
    "secret_file": values.secret_file,
}
_USUAL = RunRequest(prompt="")
_REPEATABLE: tuple[Form, ...] = ("texts", "list", "pairs", "variables")
_UNREAD = ("policy_files",)
"""Passed on as they are: whoever reads the file says on which line it is wrong."""


def _flag(field: str, option: RequestOption) -> Flag:
    """The flag of an option of a request."""
    usual, name = (_USUAL.limits, field.removeprefix("limits.")) if field.startswith("limits.") else (_USUAL, field)
    taken = type_of(type(usual), name)
    is_switch = taken is bool and not option.value
    attrs: dict[str, Any] = {"old": option.old, "metavar": option.value or None}
    if option.form == "choice":
        attrs["type"] = click.Choice(get_args(taken))
    elif option.form == "plain" and taken in _TYPES:
        attrs["type"] = _TYPES[taken]
    if option.form in _REPEATABLE:
        attrs["multiple"] = True
    if option.form in _READ and field not in _UNREAD:
        attrs["read"] = _READ[option.form]
    return Flag(
        *option.flags(name, is_switch=is_switch),
        section=_HEADINGS[option.section],
        field=field,
        callback=flags.or_old("sandbox") if field == "sandbox" else None,
        help=_help(option, name, getattr(usual, name), is_switch=is_switch),
        **attrs,
    )


def _help(option: RequestOption, name: str, default: object, *, is_switch: bool) -> str:
    parts = [option.in_range(option.terminal or option.help)]
    if option.form in _REPEATABLE:
        parts.append("Repeatable.")
    shown = option.default
    if is_switch and isinstance(default, bool):
        on, _, off = option.flags(name, is_switch=True)[0].partition("/")
        shown = (on if default else off).lstrip("-")
    elif not shown and isinstance(default, str | int | float) and not isinstance(default, bool):
        shown = f"{default:g}" if isinstance(default, float) else str(default)
    return " ".join([*parts, *([f"[default: {shown}]"] if shown else [])])


def _file(name: str, field: str, text: str) -> Flag:
    return Flag(name, section=AGENT, field=field, read=values.read_text, metavar="FILE", help=text)


def _switch(*names: str, section: str, text: str) -> Flag:
    return Flag(*names, section=section, is_flag=True, flag_value=True, help=text)


_BESIDE: dict[str, tuple[Flag, ...]] = {
    "system_prompt": (_file("--system-prompt-file", "system_prompt", "The same, from a file."),),
    "append_system_prompt": (_file("--append-system-prompt-file", "append_system_prompt", "The same, from a file."),),
    "secret_variables": (
        Flag(
            "--secret-file",
            section=TASK,
            multiple=True,
            metavar="NAME=FILE",
            help="The same, with the content of a file as its value (without a newline at its end). Repeatable.",
        ),
    ),
    "resume": (_switch("--continue", section=SESSION, text="Continue the session that was last used in this folder."),),
}
"""Other ways to set an option, which stand below it in the help."""
_FIRST = (Flag("--file", "-f", section=TASK, metavar="FILE", help="Read the prompt from a file."),)
_OWN = (
    Flag("--profile", section=TASK, metavar="NAME", help="Use [profiles.NAME] of your config.toml."),
    Flag("--mcp-config", section=TOOLS, metavar="FILE", help="MCP servers from a file shaped like .mcp.json."),
    Flag(
        "--mcp-server",
        section=TOOLS,
        multiple=True,
        metavar="NAME",
        help="[connections.NAME] of your config.toml. Repeatable.",
    ),
    Flag(
        "--output",
        "-o",
        section=SHOWING,
        type=click.Choice(["text", "json", "stream-json"]),
        help="json: the result as one object; stream-json: one event per line [default: text].",
    ),
    _switch(
        *("--detach", "-d"),
        section=KEEPING,
        text="Hand the run to the background and print its id; `leadrope runs logs -f ID` follows it.",
    ),
    Flag(
        "--rehearse",
        section=PAYING,
        metavar="SCRIPT",
        help="Take the model's answers from a script: no account, no config.",
    ),
    _switch(
        *("--worktree", "-w"),
        section=KEEPING,
        text="Work in a git worktree and branch of its own; `leadrope runs diff|apply|discard ID` afterwards.",
    ),
    Flag("--branch", section=KEEPING, metavar="NAME", help="The worktree's branch [default: leadrope/ID]."),
    _switch("--carry", section=KEEPING, text="Copy uncommitted changes into the worktree."),
    Flag(
        "--checkpoint/--no-checkpoint",
        section=KEEPING,
        help="Save the files before the first edit, for `leadrope runs undo ID` [default: checkpoint].",
    ),
    Flag(
        "--title",
        section=KEEPING,
        metavar="TEXT",
        help="The run's name in lists [default: the beginning of the prompt].",
    ),
    Flag(
        "--priority", section=KEEPING, type=int, metavar="N", help="Runs with a higher number start first [default: 0]."
    ),
    _switch("--ci", section=SHOWING, text="For a job that nobody watches: annotations and a job summary on GitHub."),
    Flag("--junit", section=SHOWING, metavar="FILE", help="Write the outcome as a JUnit file; its folder is made."),
    _switch(
        "--fail-on-denied",
        section=SHOWING,
        text="Exit with 3 if any call was denied, whatever else was allowed.",
    ),
    _switch(
        "--strict",
        section=SHOWING,
        text="Exit with 3 if any call was denied, and with 1 if the run is degraded.",
    ),
    _switch("--quiet", "-q", section=SHOWING, text="Print only the answer and errors."),
)
"""Flags of the command itself."""


def _of_request() -> Iterator[Flag]:
    for field, option in OPTIONS.items():
        if option.flag is not None:
            yield _flag(field, option)
            yield from _BESIDE.get(field, ())


FLAGS: tuple[Flag, ...] = (*_FIRST, *_of_request(), *_OWN)


def overrides(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a request that flags were given for; `limits` is nested. Connections are `connections`' matter."""
    found: dict[str, Any] = {}
    limits: dict[str, Any] = {}
    for flag in FLAGS:
        value = given.get(flag.name or "")
        if flag.field is None or not flag.is_given(value):
            continue
        if flag.read is not None:
            value = flag.read(flag.spelling, value)
        if flag.field.startswith("limits."):
            limits[flag.field.removeprefix("limits.")] = value
        elif flag.field in found:
            raise errors.BadValue(flag.spelling, "is given both as text and as a file", hint="Give one of the two.")
        else:
            found[flag.field] = value
    if limits:
        found["limits"] = limits
    if "secret_variables" in found or given.get("secret_file"):
        in_files = values.secret_files("--secret-file", given.get("secret_file") or ())
        found |= _marked(found.get("secret_variables", ()), in_files, found.get("variables", {}))
    if "fork" in found:
        found |= {"resume": found["fork"], "fork": True}
    return found


def _marked(given: Sequence[str], in_files: Mapping[str, str], known: Mapping[str, str]) -> dict[str, Any]:
    """Variables and their marks out of --secret and --secret-file; one that --var has set already is only marked."""
    new = values.secrets("--secret", [text for text in given if text not in known])
    for name in in_files:
        if name in new or name in known:
            raise errors.BadValue("--secret-file", f"{name} is given twice", hint="Give it once.")
    names = (*(text for text in given if text in known), *new, *in_files)
    return {"variables": {**known, **new, **in_files}, "secret_variables": names}


def one_session(given: Mapping[str, Any]) -> None:
    """Of the three ways to go on with a session only one can be meant."""
    named = [name for name in ("--resume", "--continue", "--fork") if given.get(name.strip("-"))]
    if len(named) > 1:
        raise errors.RequestError(f"{' and '.join(named)} were given", hint="Give one of them.")


def connections(config: Config, path: str | None, names: Sequence[str]) -> dict[str, McpServer] | None:
    """The servers of --mcp-config and --mcp-server together; None when neither was given."""
    if path is None and not names:
        return None
    found: dict[str, McpServer] = {}
    for name in names:
        if name not in config.connections:
            known = ", ".join(config.connections)
            raise errors.BadValue(
                "--mcp-server",
                f"{config.source} has no connection {name!r}",
                hint=f"Known there: {known}." if known else f"Add [connections.{name}] to it, or use --mcp-config.",
            )
        found[name] = config.connections[name]
    for name, server in (values.mcp_file("--mcp-config", path) if path is not None else {}).items():
        if name in found:
            raise errors.BadValue("--mcp-config", f"{name!r} is named by --mcp-server too")
        found[name] = server
    return found
