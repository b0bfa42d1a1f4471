"""The model as a workflow's Markdown file, in one canonical form that reads back as the same model."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import UNSET

from leadrope import errors
from leadrope.workflows import model, yaml_values
from leadrope.workflows.markdown_blocks import LANGUAGES, Entry, Parameter, escaped_prose
from leadrope.workflows.markdown_values import YAML_PARAMETERS, Notes, entry_values
from leadrope.workflows.problems import Findings, Place

_LINE_CHARS = 100
"""A list or map that fits is written on the line of its key, a longer one in a block of its own."""
_LANGUAGE_OF = {"command": "shell", "code": "python", "text": "text", "html": "html", "markdown": "markdown"}
_MARKS = re.compile(r"^ {0,3}(`{3,})", re.MULTILINE)
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_UNFIT_FOR_BLOCK = re.compile(r"[\r\ufeff]")


def write(workflow: model.Workflow) -> str:
    """The file's text; read it back with `markdown.read`."""
    parts: list[str] = []
    if workflow.title or workflow.prose:
        parts.append(f"# {workflow.title}".rstrip())
    if workflow.prose:
        parts.append(escaped_prose(workflow.prose, is_top=True))
    entries = {
        "inputs": [_entry(one.name, one.description, _input(one)) for one in workflow.inputs],
        "steps": [_entry(one.id, one.description, _step(one)) for one in workflow.steps],
        "outputs": [_entry(one.name, one.description, [("source", one.source)]) for one in workflow.outputs],
        "settings": [_values(_settings(workflow))],
    }
    for name in model.SECTIONS:
        prose = workflow.section_prose.get(name, "")
        inner = [entry for entry in entries[name] if entry]
        if prose or inner or name == "steps":
            parts.append(f"## {name.capitalize()}")
            parts += [escaped_prose(prose, is_top=False)] if prose else []
            parts += inner
    return "\n\n".join(parts) + "\n"


def _entry(name: str, description: str, said: Iterable[tuple[str, Any]]) -> str:
    prose = escaped_prose(description, is_top=False) if description else ""
    return "\n\n".join(filter(None, (f"### {name}", prose, _values(said))))


def _input(one: model.Input) -> Iterable[tuple[str, Any]]:
    if one.type != "any":
        yield "type", one.type
    if one.required != (one.default is UNSET):
        yield "required", one.required
    if one.default is not UNSET:
        yield "default", one.default
    if one.stdin:
        yield "stdin", True


def _step(step: model.Step) -> Iterable[tuple[str, Any]]:
    yield "type", step.type
    if step.after is not None:
        yield "after", _names(step.after)
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
            yield key, msgspec.to_builtins(getattr(step, key))
    if step.on_error is not None:
        yield "on-error", step.on_error
    if step.next is not None:
        yield "next", _names(step.next)
    if step.branches is not None:
        yield "next", {label: _names(names) for label, names in step.branches.items()}


def _settings(workflow: model.Workflow) -> Iterable[tuple[str, Any]]:
    layout = workflow.settings.layout
    # In the order of the steps: a canvas hands them over in another one each time.
    placed = {step.id: layout[step.id] for step in workflow.steps if step.id in layout}
    yield from msgspec.to_builtins(msgspec.structs.replace(workflow.settings, layout=placed)).items()


def _names(names: tuple[str, ...]) -> Any:
    # A single step called `end` or `a,b` must not be read as something else.
    return names[0] if len(names) == 1 and yaml_values.word(names[0]) == names[0] and names[0] != "end" else list(names)


def _values(said: Iterable[tuple[str, Any]]) -> str:
    lines: list[str] = []
    blocks: list[str] = []
    for key, value in said:
        written = _line(key, value)
        if written is None:
            blocks.append(_block(key, value))
        else:
            lines.append(written)
    return "\n\n".join(filter(None, ("\n".join(lines), *blocks)))


def _line(key: str, value: Any) -> str | None:
    """`- key: value`, or None where a block reads better."""
    is_word = _KEY.fullmatch(key) is not None
    name = key if is_word else yaml_values.quoted(key)
    if isinstance(value, str):
        if "\n" in value and is_word and not _UNFIT_FOR_BLOCK.search(value):
            return None
        return f"- {name}: {value if _reads_back(value) else yaml_values.quoted(value)}"
    written = f"- {name}: {yaml_values.flow(value)}"
    if len(written) > _LINE_CHARS and is_word and isinstance(value, dict | list):
        return None
    return written


def _reads_back(text: str) -> bool:
    """Whether the text without quotes is read as itself, and without a warning."""
    if not text or text != text.strip() or not text.isprintable() or text[0] in "\"'|>&!*[{%@`#":
        return False
    said = Parameter(key="k", key_place=Place(line=1, column=3), first=text, place=Place(line=1, column=6))
    findings = Findings()
    entry = Entry(name="", place=Place(line=1), parameters=[said])
    return entry_values(entry, (), findings, Notes(places={})) == {"k": text} and not list(findings)


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
