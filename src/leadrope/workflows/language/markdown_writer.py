"""Writes the model as a workflow's Markdown file, in one canonical form that reads back as the same model."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import UNSET

from leadrope import errors
from leadrope.core.text import yaml_values
from leadrope.regex import regex
from leadrope.workflows import model
from leadrope.workflows.language.markdown_blocks import LANGUAGES, Entry, Parameter, escaped_prose
from leadrope.workflows.language.markdown_values import YAML_PARAMETERS, Notes, entry_values
from leadrope.workflows.pflow import values as pflow_values
from leadrope.workflows.problems import Findings, Position

_LINE_CHARS = 100
"""A list or map that fits is written on the line of its key, a longer one in a block."""
_LANGUAGE_OF = {"command": "shell", "code": "python", "text": "text", "html": "html", "markdown": "markdown"}
_MARKS = regex(r"^ {0,3}(`{3,})", re.MULTILINE)
_KEY = regex(r"[A-Za-z_][A-Za-z0-9_-]*")
_UNFIT_FOR_BLOCK = regex(r"[\r\ufeff]")


def write(workflow: model.Workflow) -> str:
    """Returns the file's text, which `markdown.read` reads back."""
    parts: list[str] = [f"---\n{workflow.frontmatter}\n---"] if workflow.frontmatter else []
    if workflow.title or workflow.prose:
        parts.append(f"# {workflow.title}".rstrip())
    if workflow.prose:
        parts.append(escaped_prose(workflow.prose, is_top=True))
    dialect = workflow.dialect
    entries = {
        "inputs": [_entry(one.name, one.description, _input(one), dialect) for one in workflow.inputs],
        "steps": [write_step(one, dialect) for one in workflow.steps],
        "outputs": [_entry(one.name, one.description, _output(one), dialect) for one in workflow.outputs],
        "settings": [_values(_settings(workflow), dialect)],
    }
    for name in model.SECTIONS:
        prose = workflow.section_prose.get(name, "")
        inner = [entry for entry in entries[name] if entry]
        if prose or inner or name == "steps":
            parts.append(f"## {name.capitalize()}")
            parts += [escaped_prose(prose, is_top=False)] if prose else []
            parts += inner
    for note in workflow.notes:
        parts.append(f"## {note.title}")
        parts += [escaped_prose(note.text, is_top=False, is_note=True)] if note.text else []
    return "\n\n".join(parts) + "\n"


def write_step(step: model.Step, dialect: model.Dialect = "flow", level: int = 3) -> str:
    """Returns a step's entry, including the steps inside it, without a final newline."""
    own = _entry(step.id, step.description, said_by(step, dialect), dialect, level)
    return "\n\n".join((own, *(write_step(inner, dialect, level + 1) for inner in step.steps)))


def _entry(name: str, description: str, said: Iterable[tuple[str, Any]], dialect: model.Dialect, level: int = 3) -> str:
    prose = escaped_prose(description, is_top=False, in_group=level > 3) if description else ""
    return "\n\n".join(filter(None, (f"{'#' * level} {name}", prose, _values(said, dialect))))


def _input(one: model.Input) -> Iterable[tuple[str, Any]]:
    if one.type != "any":
        yield "type", one.type
    if one.required != (one.default is UNSET):
        yield "required", one.required
    if one.default is not UNSET:
        yield "default", one.default
    if one.stdin:
        yield "stdin", True
    if one.env:
        yield "env", one.env


def _output(one: model.Output) -> Iterable[tuple[str, Any]]:
    yield "source", one.source
    if one.type != "any":
        yield "type", one.type
    if one.stdout:
        yield "stdout", True


def said_by(step: model.Step, dialect: model.Dialect = "flow") -> Iterable[tuple[str, Any]]:
    """Yields the keys and values of a step's entry as they are written, without the steps inside it."""
    yield "type", step.type
    if step.after is not None:
        yield "after", names_value(step.after)
    for key, value in step.parameters.items():
        if model.attribute(key):
            raise errors.BadValue(
                f"steps.{step.id}.{key}",
                f"no parameter can be called {key!r}; every step has something of that name",
                hint="Give the parameter another name.",
            )
        yield key, value
    for key in ("when", "timeout", "budget", "cache"):
        if getattr(step, key) is not None:
            yield key, getattr(step, key)
    if step.approval:
        yield "approval", "required"
    for key in ("batch", "loop", "retry", "policy"):
        if getattr(step, key) is not None:
            yield key, {**msgspec.to_builtins(getattr(step, key)), **_unsaid(step, key, dialect)}
    if step.on_error is not None:
        yield "on-error", step.on_error
    if step.next is not None:
        yield "next", names_value(step.next)
    if step.branches is not None:
        yield "next", {label: names_value(names) for label, names in step.branches.items()}


def _unsaid(step: model.Step, key: str, dialect: model.Dialect) -> dict[str, Any]:
    """Returns the defaults that can be omitted, but would mean something else in pflow's files."""
    if dialect == "flow" or key != "loop" or step.loop is None:
        return {}
    return {"max_iterations": step.loop.max_iterations}


def _settings(workflow: model.Workflow) -> Iterable[tuple[str, Any]]:
    layout = workflow.settings.layout
    # In the order of the steps: a canvas returns them in a different one each time.
    placed = {step.id: layout[step.id] for step in workflow.every_step if step.id in layout}
    yield from msgspec.to_builtins(msgspec.structs.replace(workflow.settings, layout=placed)).items()


def names_value(names: tuple[str, ...]) -> Any:
    """Returns the value of `next` or `after` for these steps."""
    # A single step called `end` or `a,b` must not be misread.
    return names[0] if len(names) == 1 and yaml_values.word(names[0]) == names[0] and names[0] != "end" else list(names)


def _values(said: Iterable[tuple[str, Any]], dialect: model.Dialect) -> str:
    lines: list[str] = []
    blocks: list[str] = []
    for key, value in said:
        written = write_value(key, value, dialect)
        (lines if written.startswith("- ") else blocks).append(written)
    return "\n\n".join(filter(None, ("\n".join(lines), *blocks)))


def write_value(key: str, value: Any, dialect: model.Dialect = "flow") -> str:
    """Returns `- key: value` on one line, or a fenced block, without a final newline."""
    return _line(key, value, dialect) or _block(key, value)


def _line(key: str, value: Any, dialect: model.Dialect) -> str | None:
    """Returns `- key: value`, or None if a block is more readable."""
    is_word = _KEY.fullmatch(key) is not None
    name = key if is_word else yaml_values.quoted(key)
    if isinstance(value, str):
        if "\n" in value and is_word and not _UNFIT_FOR_BLOCK.search(value):
            return None
        if _reads_back(value, dialect):
            return f"- {name}: {value}"
        quoted = yaml_values.quoted(value)
        # pflow supports few escapes on the line of a key, and all of YAML's below it.
        is_short = dialect == "flow" or pflow_values.single_line(quoted) == value
        return f"- {name}: {quoted}" if is_short else f"- {name}:\n    {quoted}"
    written = f"- {name}: {yaml_values.flow(value)}"
    if len(written) > _LINE_CHARS and is_word and isinstance(value, dict | list):
        return None
    return written


def _reads_back(text: str, dialect: model.Dialect) -> bool:
    """Whether the unquoted text is read back unchanged, without a warning."""
    if not text or text != text.strip() or not text.isprintable() or text[0] in "\"'|>&!*[{%@`#":
        return False
    said = Parameter(key="k", key_place=Position(line=1, column=3), first=text, place=Position(line=1, column=6))
    findings = Findings()
    entry = Entry(name="", place=Position(line=1), parameters=[said])
    values_of = pflow_values.entry_values if dialect == "pflow" else entry_values
    return values_of(entry, (), findings, Notes(places={})) == {"k": text} and not list(findings)


def _block(key: str, value: Any) -> str:
    if isinstance(value, str):
        body = value
        language = _LANGUAGE_OF.get(key) or ("text" if key in LANGUAGES or key in YAML_PARAMETERS else "")
    else:
        body = yaml_values.block(value)
        language = "yaml"
    longest = max((len(found) for found in _MARKS.findall(body)), default=2)
    marks = "`" * max(3, longest + 1)
    return f"{marks}{f'{language} {key}' if language else key}\n{body}\n{marks}"
