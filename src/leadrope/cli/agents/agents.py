"""`leadrope agents`: list, show and check saved agents; `edit` makes and deletes them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from leadrope import errors, spelling
from leadrope.cli import flags
from leadrope.cli.agents import edit
from leadrope.cli.screen import table
from leadrope.cli.screen.screen import Screen
from leadrope.core import config as configs
from leadrope.core import home
from leadrope.core.models import resolve_model
from leadrope.core.request import RunRequest
from leadrope.policy.files.document import FileProblem
from leadrope.providers.claude_code import argv, instructions
from leadrope.runtime import prepare
from leadrope.runtime.agents import saved_agents
from leadrope.runtime.agents.saved_agents import AgentEntry
from leadrope.runtime.terminal_text import clean, one_line

_HELP = """Saved agents: a persona with its model, mode, tools and rules, under a name.

An agent is [agents.NAME] of your config.toml, a file of ~/.claude/agents, or one of a trusted repository's
.claude/agents, looked for in this order. `leadrope run --agent NAME` and the `agent` of a workflow step use it.
"""
_EPILOG = """\b
Examples:
  leadrope agents new reviewer --model opus --mode plan --system-prompt-file reviewer.md
  leadrope agents list
  leadrope agents show reviewer --prompt
  leadrope run "review the last commit" --agent reviewer
"""
_OUTPUT = flags.output("text", "json", help="json: one object per line.")
_CWD = flags.cwd("The repository's folder")
_ORIGINS = {"config": "config.toml", "user": "~/.claude/agents", "repository": ".claude/agents"}


@click.group("agents", help=_HELP, epilog=_EPILOG, short_help="List, show, make and check saved agents.")
def command() -> None:
    pass


command.add_command(edit.new)
command.add_command(edit.delete)


class ListedAgent(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    origin: str
    source: str
    description: str
    model: str | None
    mode: str | None
    usable: bool
    hidden: bool
    problems: tuple[FileProblem, ...]


@command.command("list", short_help="The agents that can be used here.")
@_CWD
@_OUTPUT
def list_(cwd: str, output: str) -> int:
    """List the agents that can be used here, and those that cannot, with the reason."""
    environ, config = surroundings()
    entries = saved_agents.listing(config, environ, Path(cwd))
    if output == "json":
        for entry in entries:
            _write_json(_listed(entry))
        return 0
    if not entries:
        Screen.of_process(environ).say(spelling.runnable("No agents yet. `leadrope agents new NAME` makes one."))
        return 0
    screen = Screen.of_process(environ)
    rows = []
    for entry in entries:
        told = _listed(entry)
        note = f"({_wrong(entry.problems[0])}) " if entry.problems else "(hidden: the name is taken) " * told.hidden
        about = one_line(clean(note + told.description), 300) or "-"
        rows.append((clean(told.name), _ORIGINS[told.origin], clean(told.model or "-"), told.mode or "-", about))
    head = ("AGENT", "FROM", "MODEL", "MODE", "ABOUT")
    lines = table.table(head, rows, screen.width, droppable=("FROM", "MODEL"))
    for number, line in enumerate(lines):
        click.echo(screen.style.dim(line) if number == 0 else line)
    return 0


def _wrong(problem: FileProblem) -> str:
    return f"{problem.where}: {problem.message}" if problem.where else problem.message


def _listed(entry: AgentEntry) -> ListedAgent:
    agent = entry.saved.agent if entry.saved is not None else configs.Agent()
    model = _said(agent.model) or (f"purpose:{agent.purpose}" if _said(agent.purpose) else None)
    return ListedAgent(
        name=entry.name,
        origin=entry.origin,
        source=entry.source,
        description=agent.description,
        model=model,
        mode=_said(agent.mode) or (entry.saved.policy.get("permission_mode") if entry.saved else None),
        usable=entry.saved is not None and not entry.problems,
        hidden=entry.is_hidden,
        problems=entry.problems,
    )


def _said(value: Any) -> Any:
    return None if value is msgspec.UNSET else value


@command.command(
    "show",
    short_help="What an agent is, and what a run with it gets.",
    epilog="\b\nExamples:\n  leadrope agents show reviewer\n  leadrope agents show reviewer --prompt > prompt.txt",
)
@click.argument("agent", metavar="NAME")
@click.option("--prompt", "only_prompt", is_flag=True, help="The whole system prompt, as a run here would get it.")
@_CWD
@_OUTPUT
def show(agent: str, only_prompt: bool, cwd: str, output: str) -> int:
    """Show the settings of NAME, and what is in effect in a run in this folder."""
    environ, config = surroundings()
    saved = saved_agents.find(agent, config, environ, Path(cwd))
    for mistake in saved_agents.mistakes(saved, config, Path(cwd)):
        raise errors.BadConfig(str(mistake), hint=mistake.hint)
    asked = saved_agents.request_of(config, {"prompt": "-", "agent": agent, "cwd": cwd}, environ=environ)
    ready = prepare.complete(asked, config, environ, home.leadrope_home(environ))
    prompt = _prompt(ready.request, environ)
    if only_prompt and output == "text":
        if ready.request.system_prompt is None:
            click.echo("The agent program's own system prompt comes first; this is added to it:", err=True)
        click.echo(prompt)
        return 0
    effective = _effective(ready, config)
    if output == "json":
        told = {
            "name": saved.name,
            "origin": saved.origin,
            "source": saved.source,
            "description": saved.agent.description,
            "settings": {
                name: value for name, value in msgspec.to_builtins(saved.agent).items() if name != "description"
            },
            "rules": saved.policy,
            "effective": effective,
            "notices": [*saved.notices, *(notice.message for notice in ready.notices)],
            "prompt": prompt,
            "replaces_prompt": ready.request.system_prompt is not None,
        }
        _write_json(told)
        return 0
    screen = Screen.of_process(environ)
    click.echo(f"{screen.style.bold(clean(saved.name))}  {screen.style.dim(clean(saved.source))}")
    if saved.agent.description:
        for line in screen.fitted(clean(saved.agent.description)):
            click.echo(line)
    first, *_ = prompt.splitlines() or ["-"]
    if ready.request.system_prompt is None:
        first = "the agent program's own, with additions" if prompt else "the agent program's own"
    for name, value in {**effective, "system prompt": first}.items():
        shown = one_line(clean(_plain(value)), max(40, screen.width - 22))
        for line in screen.fitted(f"  {name:<18} {shown}", hanging=" " * 21):
            click.echo(line)
    more = spelling.runnable(f"`leadrope agents show {saved.name} --prompt` prints the whole system prompt.")
    click.echo()
    for line in screen.fitted(screen.style.dim(more)):
        click.echo(line)
    for text in (*saved.notices, *(notice.message for notice in ready.notices)):
        screen.say(screen.style.warn(f"! {clean(spelling.runnable(text))}"), hanging="  ")
    return 0


def _effective(ready: prepare.Prepared, config: configs.Config) -> dict[str, Any]:
    """The values of a run: those that the agent, the configuration and the rules leave it with."""
    request, rules = ready.request, ready.rules
    found: dict[str, Any] = {
        "provider": request.provider,
        "model": resolve_model(request.model, request.purpose, config.tiers()),
        "mode": request.mode,
        "tools": request.tools,
        "disallowed_tools": request.disallowed_tools or None,
        "allow": request.allow or None,
        "effort": request.effort,
        "max_turns": request.max_turns,
        "connections": list(request.connections) or None,
        "extra_dirs": request.extra_dirs or None,
        "variables": list(request.variables) or None,
        "output_schema": request.output_schema,
        "idle_secs": request.limits.idle_s,
        "wall_secs": request.limits.wall_s or None,
        "budget_usd": request.limits.budget_usd,
    }
    # Rules of a file in .claude/agents come with the run.
    own = ("run",) if request.agent_from != "config" else (f"agent:{request.agent}",)
    for name, origin in rules.origin.items():
        value = getattr(rules, name.replace(".", "_"))
        if name in rules.entry_origin and isinstance(value, tuple):  # lists are added up: those of the agent
            value = [entry for entry in value if rules.layer_of(name, entry) in own]
        elif origin not in own:
            continue
        found[f"rule {name}"] = value or None
    return {name: value for name, value in found.items() if value is not None}


def _prompt(request: RunRequest, environ: Mapping[str, str]) -> str:
    """In the order in which the model reads it: the persona, CLAUDE.md and AGENTS.md, what is appended."""
    told = ""
    if request.instructions:
        told = instructions.read(Path(request.cwd or "."), home.user_home(environ), environ).text
    return "\n\n".join(part for part in (request.system_prompt, argv.appended(request, told)) if part)


@command.command("check", short_help="Errors of agents, with file and line.")
@click.argument("agent", metavar="[NAME]", required=False)
@_CWD
@_OUTPUT
def check(agent: str | None, cwd: str, output: str) -> int:
    """Check NAME, or every agent that can be used here. Errors come with file and line."""
    environ, config = surroundings()
    entries = saved_agents.listing(config, environ, Path(cwd))
    if agent is not None and not any(entry.name == agent for entry in entries):
        saved_agents.find(agent, config, environ, Path(cwd))  # says what may be meant
    screen = Screen.of_process(environ)
    failed = False
    for entry in entries:
        if agent is not None and entry.name != agent:
            continue
        failed = failed or bool(entry.problems)
        if output == "json":
            _write_json(_listed(entry))
            continue
        if not entry.problems:
            click.echo(f"{screen.style.good('✓')} {clean(entry.name)}: {clean(entry.source)}")
        for problem in entry.problems:
            click.echo(f"{screen.style.bad('✗')} {clean(entry.name)}: {clean(spelling.runnable(str(problem)))}")
            if problem.hint:
                click.echo(f"  {screen.style.dim(clean(spelling.runnable(problem.hint)))}")
    if not entries and output == "text":
        click.echo("There are no agents.", err=True)
    return 1 if failed else 0


def surroundings() -> tuple[dict[str, str], configs.Config]:
    environ = dict(os.environ)
    environ = {**home.load_env(home.leadrope_home(environ)), **environ}
    return environ, configs.load(environ)


def _plain(value: Any) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(_plain(part) for part in value) or "none"
    if isinstance(value, dict):
        return msgspec.json.encode(value).decode()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _write_json(data: Any) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(data) + b"\n")
    sys.stdout.buffer.flush()
