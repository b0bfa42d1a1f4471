"""One convention for the options of all commands: a letter means one thing, and defaults are shown in one way."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from leadrope.cli import flags
from leadrope.cli.lazy import LazyGroup
from leadrope.cli.main import COMMANDS

ONE_MEANING = {
    "-o": "--output",
    "-O": "--out",
    "-C": "--cwd",
    "-n": "--limit",
    "-q": "--quiet",
    "-m": "--model",
    "-r": "--resume",
    "-d": "--detach",
    "-w": "--worktree",
    "-y": "--yes",
}
ALWAYS = {letter: ONE_MEANING[letter] for letter in ("-o", "-O", "-C", "-n", "-y")}
"""`-f` is not here: it is `--file` of a run and `--follow` of its logs, as in `tail -f`."""


def commands() -> Iterator[tuple[str, click.Command]]:
    group = LazyGroup(COMMANDS, name="leadrope")
    yield from _below(group, click.Context(group, info_name="leadrope"))


def _below(command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    yield context.command_path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from _below(found, click.Context(found, info_name=name, parent=context))


def options(command: click.Command) -> list[click.Option]:
    return [param for param in command.params if isinstance(param, click.Option) and not param.hidden]


EVERY = [(f"{path} {option.opts[0]}", option) for path, command in commands() for option in options(command)]


def test_every_command_is_looked_at() -> None:
    paths = {path for path, _ in commands()}
    assert {"leadrope run", "leadrope flow data", "leadrope runs export", "leadrope policy explain"} <= paths
    assert len(EVERY) > 150


def test_a_letter_means_one_thing() -> None:
    wrong = []
    for called, option in EVERY:
        names = {*option.opts, *option.secondary_opts}
        wrong += [f"{called}: {a} is {b} elsewhere" for a, b in ONE_MEANING.items() if a in names and b not in names]
        wrong += [f"{called}: {b} has its letter {a}" for a, b in ALWAYS.items() if b in names and a not in names]
        wrong += [f"{called}: a format is -o" for name in ("--json", "--format") if name in names]
        wrong += [
            f"{called}: is no format" for name in names & {"--output"} if not isinstance(option.type, click.Choice)
        ]
    assert wrong == []


def test_a_default_is_shown_as_default() -> None:
    wrong = []
    for called, option in EVERY:
        told = option.help or ""
        has_none = option.is_flag or option.multiple or option.default in (None, "") or "UNSET" in repr(option.default)
        if not told:
            wrong.append(f"{called}: has no help")
        if not (has_none or option.show_default or "[default: " in told):
            wrong.append(f"{called}: does not show its default")
        if re.search(r"; (?:\d+|off|here|none|the default)\.?$|where left out", told):
            wrong.append(f"{called}: write [default: 300] instead of {told!r}")
    assert wrong == []


def test_a_list_of_commands_cuts_no_sentence() -> None:
    cut = []
    for path, command in commands():
        with click.Context(command, info_name=path, terminal_width=78) as context:
            lines = command.get_help(context).partition("\nCommands:\n")[2].split("\n")
            cut += [f"{path}: {line.strip()}" for line in lines if line.endswith("...")]
    assert cut == []


@pytest.mark.parametrize(
    ("given", "expected", "note"),
    [
        ((), "text None", ""),
        (("-o", "json"), "json None", ""),
        (("--json",), "json None", "note: --json will be removed; use -o json\n"),
        (("-O", "a.txt"), "text a.txt", ""),
        (("--file", "a.txt"), "text a.txt", "note: --file FILE will be removed; use -O FILE\n"),
    ],
)
def test_old_names_work_and_say_so(given: tuple[str, ...], expected: str, note: str) -> None:
    @click.command()
    @flags.output("text", "json", help="h")
    @flags.old_json()
    @flags.out()
    @flags.old_file("--file")
    def command(output: str, out: str | None) -> None:
        click.echo(f"{output} {out}")

    done = CliRunner().invoke(command, given)
    assert (done.stdout.strip(), done.stderr) == (expected, note)


def test_an_old_name_that_says_something_else_than_the_new_one_is_refused() -> None:
    @click.command()
    @flags.old_walls()
    @click.option("--sandbox", callback=flags.or_old("sandbox"))
    def command(sandbox: str | None) -> None:
        click.echo(str(sandbox))

    done = CliRunner().invoke(command, ["--walls", "off", "--sandbox", "workspace"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--sandbox workspace contradicts --walls off" in done.stderr
    assert CliRunner().invoke(command, ["--walls", "off", "--sandbox", "off"]).stdout == "off\n"


def test_each_command_that_a_screen_names_is_spelled_for_this_installation() -> None:
    """Texts of errors go through `main._tell`; help is documentation; everything else calls `spelling.runnable`."""
    command = re.compile(rf"\bleadrope (?:{'|'.join(COMMANDS)})(?![\w-])")
    missed = []
    for path in sorted(Path(flags.__file__).parent.rglob("*.py")):
        tree = ast.parse(path.read_text())
        held = {
            id(inner)
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and _called(node) in SPELLED
            for inner in ast.walk(node)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _called(node) in PRINTS and id(node) not in held:
                missed += [
                    f"{path.name}:{inner.lineno}"
                    for inner in ast.walk(node)
                    if isinstance(inner, ast.Constant) and command.search(str(inner.value)) and id(inner) not in held
                ]
    assert missed == []


SPELLED = ("runnable",)
PRINTS = ("echo", "secho", "line", "print", "_line", "_warn", "_always", "say")


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
