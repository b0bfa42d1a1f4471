"""`leadrope policy`: shows, checks and tries the rules that hold here. Starts no agent and none of its commands."""

from __future__ import annotations

import asyncio
import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from leadrope import errors, spelling
from leadrope.cli import flags
from leadrope.cli.policy import allow as policy_allow
from leadrope.cli.screen.screen import Screen, Style
from leadrope.confined import real_path
from leadrope.core import config as configs
from leadrope.core import home
from leadrope.core.request_checks import normal_mode
from leadrope.core.tools import ToolCall
from leadrope.policy import patterns
from leadrope.policy.call_analysis import Facts
from leadrope.policy.decide import Policy, decide
from leadrope.policy.files import defaults, examples, policy_file, project, sources
from leadrope.policy.files.document import FileProblem, Problems
from leadrope.policy.files.policy_file import PolicyFile
from leadrope.policy.resolve import EffectivePolicy
from leadrope.policy.rules import RULES, Rule
from leadrope.runtime.agents import saved_agents

_HELP = """Show, check and try the rules that hold here.

Rules come in layers: the shipped defaults, [policy] and [agents.NAME.policy] of your config.toml, the project's
leadrope.toml, and --policy FILE. The strictest value counts.
"""
_EPILOG = """\b
Examples:
  leadrope policy show                         what holds, and who says so
  leadrope policy explain "Bash(git push -f)"  what would happen to a call, and why
  leadrope policy allow "Bash(npm test *)"     allow what the mode would ask about
  leadrope policy check rules.toml             errors with file and line
  leadrope policy test                         run the examples of every policy
"""

_F = TypeVar("_F", bound=Callable[..., Any])


@click.group("policy", help=_HELP, epilog=_EPILOG, short_help="Show, check and try the rules that hold here.")
def command() -> None:
    pass


command.add_command(policy_allow.command)


def _layers(function: _F) -> _F:
    """The flags that say which layers there are."""
    for option in (
        click.option("--agent", metavar="NAME", help="With the rules of this saved agent."),
        click.option(
            "--policy", "policies", multiple=True, metavar="FILE", help="A policy of the run's own; repeatable."
        ),
        flags.cwd(),
    ):
        function = option(function)
    return function


@command.command(
    "show",
    short_help="What holds, and who says so.",
    epilog="\b\nExample:\n  leadrope policy show --layer project -o json",
)
@_layers
@click.option(
    "--layer", metavar="NAME", help="Only what this layer says: default, global, agent:NAME, project, run:FILE."
)
@flags.output("text", "json", help="json: one object.")
@flags.old_json()
def show(*, cwd: str, policies: Sequence[str], agent: str | None, layer: str | None, output: str) -> int:
    """Every rule that holds, its value, and the layer that it came from."""
    found = _gather(cwd, policies, agent)
    names = tuple(dict.fromkeys(each.name for each in found.layers))
    if layer is not None:
        if layer not in names:
            raise errors.BadValue("--layer", f"there is no layer {layer!r}", hint=f"There are: {', '.join(names)}.")
        found = msgspec.structs.replace(found, layers=tuple(each for each in found.layers if each.name == layer))
    policy = found.effective()
    if output == "json":
        _write_json({"layers": names, "rules": dict(_as_data(policy)), "notices": found.notices})
        return 0
    screen = Screen.of_process()
    for rule in RULES:
        if rule.name in policy.origin:
            _print_rule(rule, policy, screen)
    if layer is None and "permission_mode" not in policy.origin:
        click.echo(
            screen.style.dim("No layer limits the mode: a run starts in `default` unless its caller says otherwise.")
        )
    for notice in found.notices:
        screen.line(screen.style.warn(f"! {notice}"))
    return 0


@command.command(
    "check",
    short_help="Errors of a policy, with file and line.",
    epilog="\b\nExamples:\n  leadrope policy check\n  leadrope policy check ci/policy.toml",
)
@click.argument("file", required=False)
@flags.cwd()
def check(*, file: str | None, cwd: str) -> int:
    """Check FILE, or your config.toml and the project's leadrope.toml. Errors come with file and line."""
    screen = Screen.of_process()
    failed = False
    for source, read in _readers(file, cwd):
        try:
            policies = read(True)
        except Problems as refused:
            failed = True
            _print_problems(refused.problems, screen.style)
            continue
        count = sum(len(policy.examples) for policy in policies)
        has_rules = any(policy.parts for policy in policies)
        what = f"good, with {count} example{'' if count == 1 else 's'}" if has_rules else "no rules"
        if not Path(source).exists():
            what = "no such file, so no rules"
        click.echo(f"{screen.style.good('✓')} {source}: {what}")
    return 1 if failed else 0


@command.command(
    "test",
    short_help="Run the examples of every policy.",
    epilog="\b\nExample:\n  leadrope policy test --policy rules.toml",
)
@click.option("--policy", "policies", multiple=True, metavar="FILE", help="Also this policy; repeatable.")
@flags.cwd()
@click.option("--quiet", "-q", is_flag=True, help="Only what fails, and the sum.")
def test(*, cwd: str, policies: Sequence[str], quiet: bool) -> int:
    """Run the examples of every policy: the shipped one, your config.toml, the project's, and each --policy."""
    style = Screen.of_process().style
    passed = failed = 0
    for policy in _tested(cwd, policies):
        outcomes = examples.run(policy.effective(), policy.examples)
        good = sum(outcome.holds for outcome in outcomes)
        passed, failed = passed + good, failed + len(outcomes) - good
        if outcomes and not quiet:
            click.echo(style.bold(f"{policy.source}: {_counted(good, len(outcomes) - good)}"))
        for outcome in outcomes:
            if not outcome.holds:
                click.echo(f"  {style.bad('✗')} " + (f"{policy.source}: " if quiet else "") + str(outcome))
            elif not quiet:
                click.echo(f"  {style.good('✓')} {outcome.example.expect:<5} {outcome.example.call}")
    click.echo(_counted(passed, failed))
    return 1 if failed else 0


def _counted(passed: int, failed: int) -> str:
    return f"{passed} passed" + (f", {failed} failed" if failed else "")


@command.command(
    "explain",
    short_help="What would happen to a call, and why.",
    epilog="""\b
Examples:
  leadrope policy explain "Bash(cd / && rm -rf *)"
  leadrope policy explain "Write(.github/workflows/ci.yml)" --mode full
  leadrope policy explain "WebFetch(https://example.com/a)" -o json
""",
)
@click.argument("call")
@_layers
@click.option("--mode", metavar="MODE", default="default", show_default=True, help="The run's mode.")
@click.option("--allow", "allow", multiple=True, metavar="PATTERN", help="As with this grant; repeatable.")
@click.option("--nobody", is_flag=True, help="As if nobody could be asked.")
@click.option("--sandboxed", is_flag=True, help="As if the call ran in a sandbox that holds.")
@click.option("--at", "at", metavar="FOLDER", help="As if the agent's shell were in this folder [default: --cwd].")
@flags.output("text", "json", help="json: one object.")
@flags.old_json()
def explain(
    *,
    call: str,
    cwd: str,
    policies: Sequence[str],
    agent: str | None,
    mode: str,
    allow: Sequence[str],
    nobody: bool,
    sandboxed: bool,
    at: str | None,
    output: str,
) -> int:
    """What would happen to CALL: the verdict, the rule, its layer, and how a command is read. Nothing is run.

    [run] allow of your config.toml counts, as in a run.
    """
    found = _gather(cwd, policies, agent)
    workspace = real_path(cwd)
    wanted = msgspec.structs.replace(examples.call_of(call, id="explain"), cwd=at)
    for pattern in allow:
        patterns.parse(pattern)  # BadValue says what to write instead
    said = configs.load(_environ()).run.allow
    own = said if isinstance(said, tuple) else ()
    policy = Policy(mode=normal_mode(mode), workspace=(workspace,), allow=own, rules=found.effective())
    facts = _explained(wanted, Facts(person=not nobody, sandboxed=sandboxed), workspace)
    verdict = decide(policy, wanted, facts)
    if verdict.rule == "allow":
        verdict = msgspec.structs.replace(verdict, layer="global")  # the grants of config.toml alone cover it
    elif allow:
        verdict = decide(msgspec.structs.replace(policy, allow=(*own, *allow)), wanted, facts)
    assumed = {"cwd": str(Path(workspace, at or "")), "sandboxed": sandboxed, "mode": policy.mode}
    if output == "json":
        _write_json({"verdict": verdict.word, **msgspec.to_builtins(verdict), "assumed": assumed})
        return 0
    screen = Screen.of_process()
    paint = {"allow": screen.style.good, "ask": screen.style.warn, "deny": screen.style.bad}[verdict.word]
    lines = [
        ("verdict", paint(verdict.word)),
        ("rule", verdict.rule),
        ("layer", verdict.layer),
        ("reason", verdict.reason),
        *(("read as" if place == 0 else "", line) for place, line in enumerate(verdict.reading.splitlines())),
        ("assumed", f"in {assumed['cwd']}, mode {policy.mode}, {'inside' if sandboxed else 'without'} a sandbox"),
    ]
    for name, text in lines:
        if text:
            for line in screen.fitted(f"{name:<8} {text}", hanging=" " * 9):
                click.echo(line)
    return 0


def _explained(call: ToolCall, facts: Facts, workspace: str) -> Facts:
    """With what this machine says about programs, git's settings and folders. No host name is looked up."""
    from leadrope.process.environment import passed_on  # noqa: PLC0415  # only for this command
    from leadrope.runtime.gate.machine_facts import MachineFacts  # noqa: PLC0415  # only for this command

    # A GIT_ASKPASS of the terminal (VS Code sets one) does not reach an agent, and must not decide here either.
    config = configs.load(_environ())
    env = passed_on(os.environ, config.forward_env, default_home=Path.home())
    around = MachineFacts(workspace=(workspace,), env=env)
    if call.name == "WebFetch" or not around.takes_time(call):
        return around.at_hand(facts)
    return asyncio.run(around.looked_up(call, facts))


# -- where policies come from -----------------------------------------------------------------------------------------


def _environ() -> dict[str, str]:
    environ = dict(os.environ)
    return {**home.load_env(home.leadrope_home(environ)), **environ}


def _gather(cwd: str, policies: Sequence[str], agent: str | None) -> sources.Sources:
    environ = _environ()
    config = home.config_file(environ)
    of_file: list[dict[str, Any]] = []
    if agent is not None:
        try:
            saved = saved_agents.find(agent, configs.load(environ), environ, _folder(cwd))
        except errors.BadValue as error:
            raise errors.BadValue("--agent", error.message.removeprefix("agent: "), hint=error.hint) from None
        if saved.origin != "config":
            agent, of_file = None, [saved.policy]
    return sources.gather_policy(
        config=config,
        home=home.leadrope_home(environ),
        agent=agent,
        cwd=_folder(cwd),
        policies=[Path(path) for path in policies],
        more=of_file,
    )


def _folder(cwd: str) -> Path:
    folder = Path(cwd)
    if not folder.is_dir():
        raise errors.BadDirectory(f"{cwd} is not a directory", hint="Give an existing folder to --cwd.")
    return folder


Read = Callable[[bool], tuple[PolicyFile, ...]]


def _readers(file: str | None, cwd: str) -> Iterator[tuple[str, Read]]:
    """Each policy source with the function that reads it; the flag says whether its examples are tried."""
    config = home.config_file(_environ())
    if file is None:
        yield str(config), lambda tries: _of_user(config, tries)
        yield str(_folder(cwd) / project.NAME), lambda tries: _of_project(_folder(cwd), tries)
        return
    path = Path(file)
    if path.exists() and config.exists() and path.samefile(config):
        yield file, lambda tries: _of_user(path, tries)
    elif path.name == project.NAME and path.exists():
        yield file, lambda tries: _of_project(path.parent, tries)
    else:
        yield file, lambda tries: (policy_file.read_policy(path, try_examples=tries),)


def _of_user(path: Path, tries: bool) -> tuple[PolicyFile, ...]:
    user = policy_file.read_user(path, try_examples=tries)
    return (user.policy, *user.agents.values())


def _of_project(folder: Path, tries: bool) -> tuple[PolicyFile, ...]:
    found = project.read_project(folder, try_examples=tries)
    if found is None:
        return ()
    for ignored in found.ignored:
        click.echo(f"! {ignored}", err=True)
    return (found.policy,)


def _tested(cwd: str, policies: Sequence[str]) -> Iterator[PolicyFile]:
    """The user's own first: their failures are what one looks for."""
    for path in policies:
        for _, read in _readers(path, cwd):
            yield from read(False)
    for _, read in reversed(list(_readers(None, cwd))):
        yield from read(False)
    yield PolicyFile(source="shipped with leadrope", examples=defaults.examples())


# -- showing ----------------------------------------------------------------------------------------------------------


def _as_data(policy: EffectivePolicy) -> Iterator[tuple[str, Any]]:
    for rule in RULES:
        if rule.name in policy.origin:
            data = {"value": getattr(policy, rule.field), "origin": policy.origin[rule.name], "merge": rule.merged_as}
            if rule.name in policy.entry_origin:
                data["entries"] = policy.entry_origin[rule.name]
            yield rule.name, data


def _print_rule(rule: Rule, policy: EffectivePolicy, screen: Screen) -> None:
    style = screen.style
    origin = policy.origin[rule.name]
    by_entry = policy.entry_origin.get(rule.name)
    if not by_entry:
        value = getattr(policy, rule.field)
        shown = str(value).lower() if isinstance(value, bool) else "none" if value in ((), None) else _plain(value)
        click.echo(f"{rule.name:<24} {shown}  {style.dim('(' + origin + ')')}")
        return
    click.echo(rule.name)
    for layer in dict.fromkeys(by_entry.values()):
        entries = ", ".join(entry for entry, source in by_entry.items() if source == layer)
        first, *more = textwrap.wrap(entries, screen.width - 30, break_on_hyphens=False, break_long_words=False) or [""]
        click.echo(
            f"  {style.dim(f'({layer})'):<22} {first}" if not style.enabled else f"  {style.dim(f'({layer})')} {first}"
        )
        for line in more:
            click.echo(" " * 25 + line)


def _plain(value: Any) -> str:
    return "; ".join(_plain(part) for part in value) if isinstance(value, tuple) else str(value)


def _print_problems(problems: Sequence[FileProblem], style: Style) -> None:
    for problem in problems:
        click.echo(f"{style.bad('✗')} {problem}")
        if problem.hint:
            click.echo(f"  {style.dim(spelling.runnable(problem.hint))}")


def _write_json(data: Any) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(data) + b"\n")
    sys.stdout.buffer.flush()
