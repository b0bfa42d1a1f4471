"""Prompts, code and scripts in files beside a workflow, which are read, checked and stored together with it.

A step that names such a file is equivalent to one that contains its text. So everything after the reading (the check,
the engine, a resumed execution, a saved copy) only sees the text: `whole` puts it into the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from leadrope import errors
from leadrope.confined import open_named, real_path
from leadrope.core.text import yaml_values
from leadrope.workflows import model
from leadrope.workflows.language import markdown, templates
from leadrope.workflows.problems import KEY, Findings, Position
from leadrope.workflows.problems import Path as Where

MOST_BYTES = 1_000_000
SUFFIX = model.FILE_SUFFIX
_SCRIPTS = ("command",)
"""A script has its own `${NAME}`: in a file that is never a template, except in pflow's; values are passed with
`env`."""


class BadFile(Exception):
    """Why a file's text cannot be used."""

    def __init__(self, reason: str, hint: str | None = None) -> None:
        super().__init__(reason)
        self.hint = hint


class _Named(msgspec.Struct, frozen=True):
    step: str
    key: str
    """For example `prompt_file`."""
    value: Any
    is_pflow: bool = False

    @property
    def fills(self) -> str:
        return self.key.removesuffix(SUFFIX)

    @property
    def written(self) -> str:
        """The key as in the file: in pflow's files the name of a file takes the place of the text."""
        return self.fills if self.is_pflow else self.key


def has_files(workflow: model.Workflow) -> bool:
    return any(_named(workflow))


def with_files(document: markdown.WorkflowDocument, folder: Path) -> markdown.WorkflowDocument:
    """Returns the document with each file's text in place of its name; unreadable files become problems."""
    places: dict[Where, Position] = dict(document.places)
    findings = Findings(places)
    texts: dict[str, dict[str, Any]] = {}
    for one in _named(document.workflow):
        path = ("steps", one.step, one.key)
        parameters = document.workflow.step(one.step).parameters
        if one.fills in parameters:
            message = f"{one.step!r} has {one.fills!r} and {one.key!r}"
            findings.add("both_given", message, path=path, hint="Remove one of them.", at_key=True)
            continue
        try:
            filled = _filled(one, _text(folder, one.value))
        except BadFile as error:
            findings.add("bad_file", f"{one.written}: {error}", path=path, found=str(one.value)[:60], hint=error.hint)
            if one.fills in model.FILLED_FROM.values():
                continue
            filled = None  # an optional parameter
        texts.setdefault(one.step, {})[one.key] = filled
        places[*path[:2], one.fills] = places[*path[:2], one.fills, KEY] = findings.place(path)
    workflow = _replaced(document.workflow, texts)
    if texts and workflow.dialect == "pflow":
        from leadrope.workflows.pflow import words  # noqa: PLC0415  # of its files alone

        scripts = [step for step in workflow.every_step if f"command{SUFFIX}" in texts.get(step.id, ())]
        words.whole(scripts, findings)
    return msgspec.structs.replace(
        document,
        workflow=workflow,
        places=places,
        problems=(*document.problems, *findings),
        has_files=bool(texts),
    )


def whole(text: str, workflow: model.Workflow) -> str:
    """Returns a file's text with the text of the files beside it, which the workflow already contains."""
    from leadrope.workflows.edit.source import Source  # noqa: PLC0415  # the same
    from leadrope.workflows.edit.steps import first_right  # noqa: PLC0415  # the same
    from leadrope.workflows.language import markdown_writer  # noqa: PLC0415  # needed by few workflows

    source = Source(text, workflow.dialect)
    changes = []
    for one in _named(source.workflow):
        step = source.step(one.step)
        part = step.part(one.key) or step.part(one.written)
        if part is not None:
            value = workflow.step(one.step).parameters[one.fills]
            written = markdown_writer.write_value(one.fills, value, source.dialect)
            changes.append((part.start, part.end, f"{written}\n"))
    return first_right(source, [tuple(changes)], workflow) if changes else text


def _named(workflow: model.Workflow) -> Iterator[_Named]:
    is_pflow = workflow.dialect == "pflow"
    for step in workflow.every_step:
        for name in model.filled_from_files(step.type, workflow.dialect):
            key = name + SUFFIX
            if key in step.parameters:
                yield _Named(step.id, key, step.parameters[key], is_pflow)


def _filled(one: _Named, text: str) -> Any:
    if one.fills == "output_schema":
        try:
            return yaml_values.load(text).value
        except yaml_values.YamlError as error:
            raise BadFile(f"{one.value} is not YAML: {error}") from None
    return templates.escaped(text) if one.fills in _SCRIPTS and not one.is_pflow else text


def _text(folder: Path, name: Any) -> str:
    if not isinstance(name, str) or not name.strip():
        raise BadFile("expected the name of a file", "Write it like prompts/review.md.")
    if templates.is_template(name):
        raise BadFile(f"{name} has a template, and the file is read before anything runs")
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts or "\0" in name:
        raise BadFile(f"{name!r} leads out of the folder of the workflow", "Name a file beside it, or below.")
    path = folder / pure
    root = Path(real_path(folder))
    try:
        if not Path(real_path(path)).is_relative_to(root):
            raise BadFile(f"{name} leads out of the folder of the workflow through a link")
        with open_named(path, workspaces=(*_here(), folder)) as file:
            raw = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise BadFile(f"there is no file {name} beside the workflow") from None
    except errors.UnsafeFile as error:
        raise BadFile(f"{name} {error.reason}", error.hint) from None
    except OSError as error:
        raise BadFile(f"{name} cannot be read: {error.strerror}") from None
    if len(raw) > MOST_BYTES:
        raise BadFile(f"{name} has more than {MOST_BYTES:,} bytes")
    try:
        text = raw.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n")
    except UnicodeDecodeError:
        raise BadFile(f"{name} is not UTF-8 text") from None
    if not text.strip():
        raise BadFile(f"{name} is empty")
    return text


def _here() -> tuple[Path, ...]:
    try:
        return (Path.cwd(),)
    except OSError:  # the file is gone
        return ()


def _replaced(workflow: model.Workflow, texts: Mapping[str, Mapping[str, Any]]) -> model.Workflow:
    def walk(steps: tuple[model.Step, ...]) -> tuple[model.Step, ...]:
        return tuple(msgspec.structs.replace(_step(step, texts), steps=walk(step.steps)) for step in steps)

    return msgspec.structs.replace(workflow, steps=walk(workflow.steps)) if texts else workflow


def _step(step: model.Step, texts: Mapping[str, Mapping[str, Any]]) -> model.Step:
    filled = texts.get(step.id)
    if not filled:
        return step
    others = {name: value for name, value in step.parameters.items() if name not in filled}
    own = {key.removesuffix(SUFFIX): value for key, value in filled.items()}
    return msgspec.structs.replace(step, parameters={**others, **own})
