"""Writes what follows from the code: docs/cli.md (commands), docs/config.md (settings), docs/python-reference.md (the
Python API), the tables in docs/policy.md and docs/steps.md, and the lists of options and rules that need static types
(option_lists.py, rule_lists.py).

    python tools/reference.py            write all of them (`make docs`)
    python tools/reference.py FOLDER     write them there instead

A test compares the pages with what this script would write, and every key of config.toml needs a description: here in
config_keys.toml, below the field in the source, or as the help of the flag that sets the same field.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import os
import re
import sys
import textwrap
import tomllib
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import click
import msgspec

import option_lists
import python_reference
import rule_lists
import step_tables
from leadrope.cli import main
from leadrope.cli.lazy import LazyGroup
from leadrope.core import config, request
from leadrope.core.request_forms import LimitDefaults
from leadrope.core.request_parts.option import RequestOption, type_of
from leadrope.policy.rules import RULES
from leadrope.runs import settings

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 100
MADE = "<!-- Made by tools/reference.py (`make docs`). Do not edit. -->\n"

# -- the command line --------------------------------------------------------------------------------------------------


def cli() -> str:
    group = LazyGroup(main.COMMANDS, name="leadrope")
    root = click.Context(
        group,
        info_name="leadrope",
        terminal_width=WIDTH,
        max_content_width=WIDTH,
        help_option_names=["-h", "--help"],
    )
    about = (
        "Every command with its `--help`. [run.md](run.md#exit-codes) has the exit codes, and [config.md](config.md)"
        " the settings that give defaults to these flags.\n"
    )
    listed = [f"- [`leadrope {name}`](#leadrope-{name}): {text}" for name, (_, _, text) in main.COMMANDS.items()]
    parts = [MADE, "# Command-line reference\n", about, *listed, ""]
    for name in group.list_commands(root):
        command = group.get_command(root, name)
        assert command is not None
        parts += _described(command, click.Context(command, parent=root, info_name=name), level=2)
    return "\n".join(parts)


def _described(command: click.Command, context: click.Context, *, level: int) -> Iterator[str]:
    yield f"{'#' * level} `{context.command_path}`\n"
    text = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
    yield f"```text\n{text}\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None and not inner.hidden:
                yield from _described(inner, click.Context(inner, parent=context, info_name=name), level=level + 1)


# -- config.toml -------------------------------------------------------------------------------------------------------


class Key(msgspec.Struct, frozen=True):
    name: str
    type: str
    default: str
    text: str


def config_page() -> str:
    said = tomllib.loads((ROOT / "tools/config_keys.toml").read_text())
    parts = [MADE, said["intro"]]
    for section in SECTIONS:
        about = said["sections"][section]
        parts += [f"## {about.get('title') or f'`[{section}]`'}\n", about["text"].strip() + "\n"]
        rows = list(keys(section, about.get("keys", {})))
        if any(row.type for row in rows):
            parts += ["| key | type | default | meaning |", "|---|---|---|---|"]
            parts += [f"| `{row.name}` | {row.type} | {row.default} | {row.text} |" for row in rows]
            parts.append("")
        elif rows:
            parts += ["| key | meaning |", "|---|---|", *(f"| `{row.name}` | {row.text} |" for row in rows), ""]
        if about.get("example"):
            parts.append(f"```toml\n{about['example'].strip()}\n```\n")
    parts.append(said["variables"])
    return "\n".join(parts)


STRUCTS: dict[str, type[msgspec.Struct]] = {
    "run": config.RunDefaults,
    "agents.NAME": config.Agent,
    "run.limits": LimitDefaults,
    "connections.NAME": request.McpServer,
    "service": settings.ServiceSettings,
    "budgets": settings.Budgets,
    "notify": settings.NotifyTable,
    "telemetry": settings.TelemetryTable,
}
"""The sections whose keys are the fields of one struct."""
DEFAULTS: dict[str, type[msgspec.Struct]] = {"run": request.RunRequest, "run.limits": request.Limits}
"""`[run]` only overrides these."""
SECTIONS = (
    "run",
    "run.limits",
    "profiles.NAME",
    "agents.NAME",
    "connections.NAME",
    "forward_env",
    "models",
    "prices",
    "policy",
    "service",
    "budgets",
    "worktree",
    "notify",
    "telemetry",
)


def keys(section: str, said: dict[str, str]) -> Iterator[Key]:
    if section == "policy":
        for rule in RULES:
            yield Key(rule.name, "", "", cell(rule.help))
        return
    struct = STRUCTS.get(section)
    if struct is None:
        yield from (Key(name, "", "", text) for name, text in said.items())
        return
    defaults = DEFAULTS.get(section, struct)
    notes = {**field_notes(defaults), **field_notes(struct)}
    prefix = "limits." if section == "run.limits" else ""
    hints = typing.get_type_hints(struct)
    inherited = config.RunDefaults.__struct_fields__ if struct is config.Agent else ()  # described with [run]
    shown = {field.name: field.default for field in msgspec.structs.fields(defaults)}
    for field in msgspec.structs.fields(struct):
        if field.name in inherited:
            continue
        if struct in OF_A_REQUEST and (option := request.OPTIONS.get(prefix + field.name)):
            usual = option.default or default(shown.get(field.name))
            yield Key(
                field.encode_name, option_type(prefix + field.name, hints[field.name]), usual, cell(option_text(option))
            )
            continue
        text = said.get(field.name) or notes.get(field.name)
        if not text:
            raise SystemExit(f'tools/config_keys.toml: [sections."{section}".keys] needs a line for {field.name}')
        yield Key(field.encode_name, type_name(hints[field.name]), default(shown.get(field.name)), cell(text))
    unknown = sorted(set(said) - set(struct.__struct_fields__))
    if unknown:
        raise SystemExit(f"tools/config_keys.toml: [{section}] has no key {', '.join(unknown)}")


OF_A_REQUEST = (config.RunDefaults, LimitDefaults)


def option_text(option: RequestOption) -> str:
    """The help of an option, with a link to the page that says more."""
    text = option.in_range(option.help)
    if option.grows:
        text += " A profile and a run add to it."
    return f"{text} See [{option.see.partition('#')[0]}]({option.see})." if option.see else text


def option_type(field: str, hint: Any) -> str:
    """As in the file, but with the words of an option that is one of a few."""
    words = typing.get_args(type_of(request.RunRequest, field)) if "." not in field else ()
    return type_name(Literal[words]) if type_name(hint) == "string" and field != "mode" and words else type_name(hint)


def field_notes(struct: type[msgspec.Struct]) -> dict[str, str]:
    """The docstrings below the fields of a struct."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(struct)))
    body = typing.cast("ast.ClassDef", tree.body[0]).body
    return {
        field.target.id: " ".join(note.value.value.split())
        for field, note in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(note, ast.Expr)
        and isinstance(note.value, ast.Constant)
        and isinstance(note.value.value, str)
    }


def type_name(hint: Any) -> str:
    """A type in the words of TOML."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return ", ".join(f'`"{word}"`' for word in inside)
    if origin is tuple:
        return f"list of {_plural(type_name(inside[0]))}"
    if origin is dict:
        return "table"
    if inside:  # a union; None and UNSET are what a missing key means
        names = [type_name(one) for one in inside if one not in (type(None), msgspec.UnsetType)]
        return " or ".join(dict.fromkeys(names))
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return "table"
    return {str: "string", bool: "boolean", int: "integer", float: "number"}.get(hint, "any")


def _plural(name: str) -> str:
    return f"{name}s"


def default(value: Any) -> str:
    if value is None or value is msgspec.NODEFAULT or value is msgspec.UNSET or isinstance(value, msgspec.Struct):
        return ""
    if value in ((), {}, ""):
        return ""
    if isinstance(value, float):
        value = f"{value:g}"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


def python_page() -> str:
    return python_reference.page(MADE)


LISTS = {**option_lists.LISTS, rule_lists.SCHEMA: rule_lists.schema}
"""Code that the pages are made with."""
PAGES = {
    **LISTS,
    rule_lists.PAGE: lambda: rule_lists.page(ROOT),
    step_tables.PAGE: lambda: step_tables.page(ROOT),
    "docs/cli.md": cli,
    "docs/config.md": config_page,
    "docs/python-reference.md": python_page,
}


if __name__ == "__main__":
    os.environ.pop("COLUMNS", None)
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    stale = [name for name, make in LISTS.items() if (ROOT / name).read_text(encoding="utf-8") != make()]
    if stale and folder == ROOT:
        for name in stale:
            (ROOT / name).write_text(LISTS[name](), encoding="utf-8")
        os.execv(sys.executable, [sys.executable, *sys.argv])  # the pages are made with them
    for name, make in PAGES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(make(), encoding="utf-8")
        print(f"wrote {name}")
