"""`leadrope flow check|show|graph|save|steps`: workflows as files, and what a step can be. Opens no store."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from leadrope import errors, spelling
from leadrope.cli import flags, values
from leadrope.cli.screen import table
from leadrope.cli.screen.screen import PIPED_WIDTH, Style, wants_colour
from leadrope.core import home
from leadrope.runtime.sandboxing.access import Access
from leadrope.workflows import library, model
from leadrope.workflows.check import access_requests
from leadrope.workflows.language.markdown import WorkflowDocument, is_workflow_file
from leadrope.workflows.problems import WorkflowProblem, nearest
from leadrope.workflows.steps import registry

FORMATS = {"svg": (".svg",), "mermaid": (".mmd", ".mermaid", ".md")}
"""How the names of their files end."""
_AS_JSON = flags.output("text", "json", help="json: one object.")
EMPTY = """No workflows here yet. One is a Markdown file whose name ends in .flow.md; this is the smallest:

  ### hello
  - type: shell
  - command: echo hello

Keep it as hello.flow.md, then: leadrope flow run hello
`leadrope flow steps` shows what a step can be."""


def width() -> int:
    return max(40, shutil.get_terminal_size().columns) if sys.stdout.isatty() else PIPED_WIDTH


def style() -> Style:
    return Style(enabled=wants_colour(sys.stdout, os.environ))


def found(name: str) -> Path:
    return library.find(name, folder=Path.cwd(), leadrope_home=home.leadrope_home(os.environ))


def written(data: str, target: str | None) -> None:
    """To a file, which only its owner may read, or to stdout."""
    if target is None or target == "-":
        click.echo(data, nl=False)
        return
    values.write_file("--out", target, data.encode())
    click.echo(f"{target}: {len(data.encode())} bytes", err=True)


# -- check ------------------------------------------------------------------------------------------------------------

_CHECK_EPILOG = """\b
Examples:
  leadrope flow check review.flow.md
  leadrope flow check --strict *.flow.md       for CI
  leadrope flow check                          all workflows of this folder

\b
Exit codes:
  0 no errors   1 warnings, with --strict   2 errors
"""


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    file: str
    ok: bool
    steps: int
    problems: tuple[WorkflowProblem, ...] = ()
    asks: tuple[str, ...] = ()
    """What it needs besides its workspace, and how to give that."""


@click.command("check", epilog=_CHECK_EPILOG)
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@_AS_JSON
def check(files: tuple[str, ...], strict: bool, output: str) -> int:
    """Validate workflow files without running them.

    A FILE may also be a folder, or the name of a saved workflow. Without one, all workflows of this folder are checked.
    """
    names: list[str] = []
    for name in files or (str(Path.cwd()),):
        inside = library.files_in(Path.cwd() / name) if Path(name).is_dir() else None
        names += [name] if inside is None else [_plain(path) for path in inside]
    if not names:
        click.echo(spelling.runnable(EMPTY), err=True)
        return 0
    results = [checked(name) for name in names]
    for result in results:
        if output == "json":
            sys.stdout.buffer.write(msgspec.json.encode(result) + b"\n")
        else:
            _tell(result)
    problems = [problem for result in results for problem in result.problems]
    if not all(result.ok for result in results):
        return 2
    return 1 if strict and problems else 0


def checked(name: str) -> Checked:
    try:
        path = found(name)
        document, problems = judged(path)
    except errors.BadValue as error:
        problem = WorkflowProblem(kind=error.kind, message=error.message, hint=error.hint)
        return Checked(file=name, ok=False, steps=0, problems=(problem,))
    ok = not any(problem.severity == "error" for problem in problems)
    return Checked(
        file=_plain(path),
        ok=ok,
        steps=len(document.workflow.every_step),
        problems=problems,
        asks=tuple(_asks(document.workflow, _plain(path))) if ok else (),
    )


def _asks(workflow: model.Workflow, file: str) -> Iterator[str]:
    try:
        asked = access_requests.asked_by(
            workflow, workspace=Path.cwd(), environ=os.environ, leadrope_home=home.leadrope_home(os.environ)
        )
    except errors.LeadropeError as error:
        yield f"{error.message} {error.hint or ''}".rstrip()
    else:
        if asked != Access():
            how = f"give it with {access_requests.flags(asked)}, or review the file and run `leadrope trust {file}`"
            yield f"asks for {access_requests.described(asked)}; {how}"
    for name in access_requests.secret_names(workflow):
        yield f"uses the secret {name}; give it with --secret {name}"


def judged(path: Path) -> tuple[WorkflowDocument, tuple[WorkflowProblem, ...]]:
    """As far as it can be read, with all that is wrong where it would run here."""
    return library.judged(path, leadrope_home=home.leadrope_home(os.environ), workspace=Path.cwd())


def _tell(result: Checked) -> None:
    paint = style()
    for problem in result.problems:
        told = spelling.runnable(str(problem))
        for word, colour in (("error: ", paint.bad), ("warning: ", paint.warn)):
            told = told.replace(word, colour(word.rstrip()) + " ", 1)
        click.echo(f"{result.file}:{'' if problem.line else ' '}{told}")
    if result.ok:
        count = len(result.problems)
        more = f", {count} warning{'' if count == 1 else 's'}" if count else ""
        for told in result.asks:
            click.echo(f"{result.file}: note: {spelling.runnable(told)}")
        click.echo(f"{result.file}: {paint.good('ok')}: {_steps(result.steps)}{more}")


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"


def _plain(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


# -- show and graph ---------------------------------------------------------------------------------------------------


_SHOW_EPILOG = """\b
Examples:
  leadrope flow show review.flow.md
  leadrope flow show review -o json | jq -r '.nodes[].id'
"""


@click.command("show", epilog=_SHOW_EPILOG)
@click.argument("workflow", metavar="FILE")
@_AS_JSON
def show(workflow: str, output: str) -> int:
    """The workflow as a tree: inputs, steps and the ways between them, outputs.

    What a step chooses between stands below it; where the ways meet again, the tree is back on the same level. With
    -o json it is the graph that a canvas takes.
    """
    from leadrope.cli.flow import tree  # noqa: PLC0415  # only for this
    from leadrope.workflows.views import graph  # noqa: PLC0415  # only for this

    path = found(workflow)
    document, problems = judged(path)
    if output == "json":
        sys.stdout.buffer.write(msgspec.json.encode(graph.to_graph(document.workflow)) + b"\n")
    else:
        for line in tree.lines(document.workflow, width=width(), style=style()):
            click.echo(line)
    return _warned(workflow, problems)


_GRAPH_EPILOG = """\b
Examples:
  leadrope flow graph review.flow.md -O review.svg
  leadrope flow graph review.flow.md             mermaid, for a README
"""


@click.command("graph", epilog=_GRAPH_EPILOG)
@click.argument("workflow", metavar="FILE")
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(list(FORMATS)),
    help="The format [default: by how --out ends; mermaid on standard output].",
)
@click.option("--format", "old_form", type=click.Choice(list(FORMATS)), hidden=True)
@flags.out()
@click.option("--data", is_flag=True, help="Also draw values that the order of the steps already implies.")
def graph(workflow: str, form: str | None, old_form: str | None, out: str | None, data: bool) -> int:
    """Draw a workflow: SVG that needs nothing else, or the text of a mermaid flowchart.

    Places that a canvas has given to the steps are kept, where at least half of them have one.
    """
    from leadrope.workflows.views import drawing, drawing_mermaid  # noqa: PLC0415  # only for this

    if old_form is not None:
        click.echo("note: --format will be removed; use -o", err=True)
        form = form or old_form
    by_name = _form_of(out, is_said=form is not None)
    document, problems = judged(found(workflow))
    draw = drawing.svg if (form or by_name) == "svg" else drawing_mermaid.mermaid
    drawn = draw(document.workflow, all_data=data)
    if draw is drawing_mermaid.mermaid and (out or "").lower().endswith(".md"):
        drawn = f"```mermaid\n{drawn}```\n"  # in a Markdown file a picture stands in a fence
    written(drawn, out)
    return _warned(workflow, problems)


def _form_of(out: str | None, *, is_said: bool) -> str | None:
    if out is not None and is_workflow_file(out):
        raise errors.BadValue("--out", f"{out} is the name of a workflow, and would be lost", hint="Give another name.")
    if is_said:
        return None
    if out is None or out == "-":
        return "mermaid"
    for form, endings in FORMATS.items():
        if out.lower().endswith(endings):
            return form
    known = ", ".join(f"{form} ({' '.join(endings)})" for form, endings in FORMATS.items())
    raise errors.BadValue(
        "--out", f"how {out} ends does not say what to draw", hint=f"There are: {known}. Or say which with -o."
    )


def _warned(name: str, problems: tuple[WorkflowProblem, ...]) -> int:
    """What is shown of a broken file is shown all the same; that it would not run is told."""
    wrong = sum(problem.severity == "error" for problem in problems)
    if wrong:
        count = "1 error" if wrong == 1 else f"{wrong} errors"
        click.echo(spelling.runnable(f"{count} in it; `leadrope flow check {name}` shows them."), err=True)
    return 2 if wrong else 0


# -- save -------------------------------------------------------------------------------------------------------------


_SAVE_EPILOG = """\b
Examples:
  leadrope flow save review.flow.md
  leadrope flow save drafts/new.flow.md --name review --replace
  cd elsewhere && leadrope flow run review
"""


@click.command("save", epilog=_SAVE_EPILOG)
@click.argument("workflow", metavar="FILE")
@click.option("--name", help="Its name [default: the name of the file].")
@click.option("--replace", is_flag=True, help="Replace a saved workflow of this name.")
def save(workflow: str, name: str | None, replace: bool) -> int:
    """Keep a copy of a workflow under a name, to run it from any folder."""
    loaded = library.load(found(workflow))
    path = library.save(loaded, home.leadrope_home(os.environ), name=name, replace=replace)
    called = name or loaded.name
    click.echo(spelling.runnable(f"saved as {called}; run it anywhere with: leadrope flow run {called}"))
    click.echo(f"  {path}", err=True)
    return 0


# -- steps ------------------------------------------------------------------------------------------------------------


_STEPS_EPILOG = """\b
Examples:
  leadrope flow steps
  leadrope flow steps shell
  leadrope flow steps http -o json       the JSON Schema of its parameters
"""


@click.command("steps", epilog=_STEPS_EPILOG)
@click.argument("kind", required=False)
@_AS_JSON
def steps(kind: str | None, output: str) -> int:
    """List the kinds of steps; with KIND, its parameters and outputs.

    With -o json: the JSON Schema of the parameters, for forms and editors.
    """
    if kind is not None and kind not in registry.KINDS:
        near = nearest(kind, registry.KINDS)
        raise errors.BadValue(
            "kind",
            f"there is no step type {kind!r}",
            hint=f"Did you mean {near}?" if near else f"There are: {', '.join(registry.KINDS)}.",
        )
    if output == "json":
        told = {name: _described(name) for name in registry.KINDS} if kind is None else _described(kind)
        sys.stdout.buffer.write(msgspec.json.encode(told) + b"\n")
    elif kind is None:
        rows = [(name, registry.kind_of(name).summary) for name in registry.KINDS]
        for line in table.table(("KIND", "WHAT IT DOES"), rows, width()):
            click.echo(line)
        click.echo(spelling.runnable("\n`leadrope flow steps KIND` shows its parameters and outputs."), err=True)
    else:
        for line in _manual(kind):
            click.echo(line)
    return 0


def _described(name: str) -> dict[str, Any]:
    kind, shape = registry.kind_of(name), registry.TYPES[name]
    return {
        "type": name,
        "summary": kind.summary,
        "parameters": shape.parameters,
        "outputs": dict(kind.outputs),
        "has_open_outputs": kind.has_open_outputs,
    }


def _manual(name: str) -> Iterator[str]:
    kind, shape = registry.kind_of(name), registry.TYPES[name]
    paint = style()
    yield f"{paint.bold(name)}  {kind.summary}"
    yield ""
    yield paint.bold("parameters")
    required = set(shape.parameters.get("required", ()))
    definitions = shape.parameters.get("$defs", {})
    given = shape.parameters.get("properties", {})
    for key, schema in sorted(given.items(), key=lambda item: item[0] not in required):
        kinds = ", ".join(filter(None, (_type(schema, definitions), _bounds(schema), "required" * (key in required))))
        # None, an empty text, list or map: nothing, as where it is left out.
        if (usual := schema.get("default")) in (False, 0) or usual:
            kinds += f" = {msgspec.json.encode(usual).decode()}"
        yield from _entry(key, kinds, str(schema.get("description", "")))
    if not given:
        yield "  none"
    yield ""
    yield paint.bold("outputs")
    for key, schema in kind.outputs.items():
        yield from _entry(key, _type(schema, definitions), str(schema.get("description", "")))
    if kind.has_open_outputs:
        yield "  and whatever else it gives"
    elif not kind.outputs:
        yield "  none"
    yield ""
    more = ", ".join(key.replace("_", "-") for key in model.STEP_KEYS if key != "type" and key not in given)
    yield from textwrap.wrap(f"Every step may also say: {more}.", min(width(), 100))


def _entry(name: str, kinds: str, about: str) -> Iterator[str]:
    """One line where it fits, else the description below."""
    paint = style()
    start, left = f"  {name:<21} ", width() - 24
    first, *rest = textwrap.wrap(kinds, left) or [""]
    fits = not rest and len(start) + len(first) + 2 + len(about) <= width()
    yield start.replace(name, paint.bold(name), 1) + paint.dim(first) + (f"  {about}" if about and fits else "")
    yield from (" " * 24 + paint.dim(line) for line in rest)
    if about and not fits:
        yield from textwrap.wrap(about, width(), initial_indent=" " * 24, subsequent_indent=" " * 24)


def _type(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """A schema in a word or two."""
    if "$ref" in schema:
        return _type(definitions.get(schema["$ref"].rpartition("/")[2], {}), definitions)
    if "enum" in schema:
        return " | ".join(str(one) for one in schema["enum"] if one is not None)
    if "const" in schema:
        return str(schema["const"])
    if some := schema.get("anyOf") or schema.get("oneOf"):
        return " | ".join(dict.fromkeys(_type(one, definitions) for one in some if one.get("type") != "null"))
    kind = schema.get("type", "any")
    if isinstance(kind, list):
        return " | ".join(one for one in kind if one != "null")
    inner = schema.get("items")
    if kind == "array" and isinstance(inner, dict) and inner:
        return f"list of {_type(inner, definitions)}"
    return {"array": "list", "object": "map"}.get(kind, str(kind))


def _bounds(schema: Mapping[str, Any]) -> str:
    inner = next((one for one in schema.get("anyOf", ()) if "minimum" in one or "maximum" in one), schema)
    low, high = inner.get("minimum"), inner.get("maximum")
    if low is not None and high is not None:
        return f"{low} to {high}"
    if high is not None:
        return f"at most {high}"
    return f"at least {low}" if low is not None else ""
