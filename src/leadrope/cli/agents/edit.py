"""`leadrope agents new` and `leadrope agents delete`: entries of config.toml, and nothing else in it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from leadrope import errors, spelling
from leadrope.cli import options, origins
from leadrope.cli.agents import config_edit
from leadrope.cli.screen import confirm
from leadrope.confined import real_path
from leadrope.core import config as configs
from leadrope.core import home
from leadrope.core.request import OPTIONS
from leadrope.regex import regex
from leadrope.runtime.agents import saved_agents

_NAME = regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_FILES = {"system_prompt_file": "system_prompt_file", "append_system_prompt_file": "append_system_prompt_file"}

FLAGS = tuple(flag for flag in options.FLAGS if flag.field and OPTIONS[flag.field].config and OPTIONS[flag.field].agent)
"""The flags of `leadrope run` that set what an agent can set."""

_SAMPLES = {
    "description": ('"When to use it."', ""),
    "model": ('"sonnet"', "opus, sonnet, haiku, or a model id"),
    "purpose": ('"review"', "chooses the model if none is named"),
    "mode": ('"default"', "plan, default, edit, sandboxed, full, dontAsk"),
    "tools": ('["Read", "Grep", "Edit"]', "the only tools; those listed need no approval"),
    "disallowed_tools": ('["WebFetch"]', ""),
    "system_prompt": ('"You are ..."', "the persona, in place of the agent program's own prompt"),
    "append_system_prompt": ('"Answer in one paragraph."', ""),
    "effort": ('"high"', "low, medium, high, xhigh, max"),
    "max_turns": ("20", ""),
    "limits.budget_usd": ("2.0", "stops at this cost"),
    "policy.permission_mode": ('"plan"', "a rule: no flag can loosen it"),
}


@click.command(
    "new",
    cls=options.GroupedCommand,
    params=[
        click.Argument(["name"]),
        options.Flag("--description", section=options.AGENT, metavar="TEXT", help="When to use it; shown in lists."),
        *FLAGS,
        *(flag for flag in options.FLAGS if flag.name == "mcp_server"),
    ],
    short_help="Add an agent to your config.toml.",
    epilog='\b\nExample:\n  leadrope agents new reviewer --model opus --mode plan --system-prompt "Review."',
)
def new(name: str, description: str | None, mcp_server: tuple[str, ...], **given: Any) -> int:
    """Add [agents.NAME] to your config.toml; the rest of the file stays as it is.

    The flags are those of `leadrope run`. What you leave out is written as a comment.
    """
    environ = dict(os.environ)
    environ = {**home.load_env(home.leadrope_home(environ)), **environ}
    config = configs.load(environ)
    path = home.config_file(environ)
    if not _NAME.fullmatch(name):
        raise errors.BadValue("NAME", f"{name!r} cannot be a name", hint="Use letters, digits, - and _.")
    if name in (*config.agents, *config.broken_agents):
        raise errors.BadValue(
            "NAME", f"{path} has an agent {name!r} already", hint=f"Edit it there, or `leadrope agents delete {name}`."
        )
    fields = _fields(given)
    if description is not None:
        fields = {"description": description, **fields}
    if mcp_server:
        fields["connections"] = list(mcp_server)
    lines = _lines(fields)
    _check(path, name, fields, config, given)
    config_edit.add_table(path, "agents", name, lines)
    click.echo(spelling.runnable(f'{path} has the agent {name}. Use it with: leadrope run "…" --agent {name}'))
    return 0


def _fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """The flags as keys of the entry; a file stays a file, so that it can be edited."""
    kept = dict(given)
    named = {field: real_path(Path(kept.pop(flag)).expanduser()) for flag, field in _FILES.items() if kept.get(flag)}
    fields = options.overrides(kept)
    for field, path in named.items():
        if field.removesuffix("_file") in fields:
            raise errors.BadValue(f"--{field.replace('_', '-')}", "is given both as text and as a file")
        fields[field] = path
    return fields


def _check(path: Path, name: str, fields: Mapping[str, Any], config: configs.Config, given: Mapping[str, Any]) -> None:
    import msgspec  # noqa: PLC0415  # only here

    agent = msgspec.convert(dict(fields), configs.Agent)
    saved = saved_agents.Saved(name=name, origin="user", source=str(path), agent=agent)
    for problem in saved_agents.mistakes(saved, config, Path.cwd()):
        error = errors.BadValue(problem.where, problem.message, hint=problem.hint)
        raise origins.named(error, given)


def _lines(fields: Mapping[str, Any]) -> str:
    """The keys that were given, then a comment for each usual one that was not."""
    import tomlkit  # noqa: PLC0415  # 40 ms that only a change costs

    document = tomlkit.document()
    written: list[str] = []
    for key, value in fields.items():
        pairs = value.items() if key == "limits" else [("", value)]
        for inner, one in pairs:
            named = f"limits.{inner}" if inner else key
            item = tomlkit.string(one, multiline=True) if isinstance(one, str) and "\n" in one else _item(one)
            document = tomlkit.document()
            document.add("value", item)
            written.append(f"{named}{tomlkit.dumps(document).rstrip().removeprefix('value')}")
    said = {line.partition(" =")[0] for line in written}
    for key, (sample, about) in _SAMPLES.items():
        if key not in said and f"{key}_file" not in said and not (key == "purpose" and "model" in said):
            written.append(f"# {key} = {sample}{f'  # {about}' if about else ''}")
    return "\n".join(written)


def _item(value: Any) -> Any:
    import tomlkit  # noqa: PLC0415  # the caller has it

    return tomlkit.item(list(value) if isinstance(value, tuple) else value)


@click.command("delete", short_help="Take an agent out of your config.toml.")
@click.argument("agent", metavar="NAME")
@confirm.YES
def delete(agent: str, yes: bool) -> int:
    """Delete [agents.NAME] of your config.toml. Files of .claude/agents are yours to delete."""
    environ = dict(os.environ)
    environ = {**home.load_env(home.leadrope_home(environ)), **environ}
    config = configs.load(environ)
    if agent not in (*config.agents, *config.broken_agents):
        saved = saved_agents.find(agent, config, environ, Path.cwd())
        raise errors.BadValue(
            "NAME", f"the agent {agent!r} is not in {config.source}", hint=f"It is a file; delete {saved.source}."
        )
    confirm.ask(f"Delete the agent {agent} from {config.source}?", yes=yes)
    config_edit.drop_table(Path(config.source), "agents", agent)
    click.echo(f"{config.source} no longer has the agent {agent}.")
    return 0
