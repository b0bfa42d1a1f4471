"""A workflow's Markdown file as the model, with the place of everything in it. Knows no step type, writes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath

import msgspec

from leadrope.workflows import markdown_blocks, model, shapes
from leadrope.workflows.markdown_blocks import Entry, Section
from leadrope.workflows.markdown_values import Notes, entry_values
from leadrope.workflows.problems import BadWorkflow, Findings, Path, Place, Places, Problem, nearest

SUFFIXES = (".flow.md", ".pflow.md")
CHARS_LIMIT = 4_000_000

_ID_HINT = "A name begins with a letter or _ and goes on with letters, digits, _ and -."
_INPUT_KEYS = ("type", "required", "default", "description", "stdin")
_OUTPUT_KEYS = ("source", "description")
SETTING_KEYS = ("policy", "budget", "concurrency", "layout")


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """What was read, as far as it could be, and all that is wrong with it."""

    workflow: model.Workflow
    places: Places
    problems: tuple[Problem, ...] = ()
    unreadable: frozenset[Path] = frozenset()
    """What is given and could not be read; nothing more is said about it."""
    respelt: Mapping[Path, str] = {}
    """Numbers and truths as they stand in the file, where they would be written another way: `1.10`."""

    @property
    def has_errors(self) -> bool:
        return any(problem.severity == "error" for problem in self.problems)

    def checked(self, name: str) -> model.Workflow:
        """The workflow; BadWorkflow with every problem where it has errors."""
        if self.has_errors:
            raise BadWorkflow(name, self.problems)
        return self.workflow


def is_workflow_file(name: str) -> bool:
    return PurePath(name).name.endswith(SUFFIXES)


def read(text: str) -> Document:
    r"""The model of a file's text, with all problems at once.

    read("### hello\n- type: shell\n- command: echo hello\n").workflow.steps[0].id == "hello"
    """
    places: dict[Path, Place] = {}
    findings = Findings(places)
    if len(text) > CHARS_LIMIT:
        findings.add("too_long", f"the file has {len(text)} characters; at most {CHARS_LIMIT} are read", Place(line=1))
        return Document(workflow=model.Workflow(), places={}, problems=tuple(findings))
    return _Reader(markdown_blocks.outline(text, findings), findings, places).read()


class _Reader:
    def __init__(self, outline: markdown_blocks.Outline, findings: Findings, places: dict[Path, Place]) -> None:
        self._outline = outline
        self._findings = findings
        self._places = places
        self._notes = Notes(places=places)
        self._inputs: list[model.Input] = []
        self._steps: list[model.Step] = []
        self._outputs: list[model.Output] = []
        self._settings = model.Settings()
        self._section_prose: dict[model.SectionName, str] = {}

    def read(self) -> Document:
        seen: dict[str, Section] = {}
        for section in self._outline.sections:
            name = self._section_name(section)
            if name is None:
                continue
            if name in seen:
                line = seen[name].place.line
                self._findings.add(
                    "duplicate_section",
                    f"the section {section.name!r} stands here again",
                    section.place,
                    hint=f"Move its entries to line {line}.",
                )
            seen.setdefault(name, section)
            self._section(name, section)
        if not self._steps:
            self._findings.add(
                "no_steps",
                "the file has no steps",
                seen["steps"].place if "steps" in seen else Place(line=1),
                hint="Write `## Steps` and below it `### name` with `- type: …`.",
            )
        top = self._outline.top
        workflow = model.Workflow(
            title=top.name,
            prose=model.tidied("\n".join(top.prose)),
            inputs=tuple(self._inputs),
            steps=tuple(self._steps),
            outputs=tuple(self._outputs),
            settings=self._settings,
            section_prose=self._section_prose,
        )
        return Document(
            workflow=self._without_stale_layout(workflow),
            places=self._places,
            problems=tuple(self._findings),
            unreadable=frozenset(self._notes.unreadable),
            respelt=self._notes.respelt,
        )

    def _section_name(self, section: Section) -> model.SectionName | None:
        word = section.name.strip().lower()
        titles = tuple(name.capitalize() for name in model.SECTIONS)
        for name in model.SECTIONS:
            if word == name:
                return name
        self._findings.add(
            "unknown_section",
            f"there is no section {section.name!r}",
            section.place,
            found=section.name,
            available=titles,
        )
        # Read as what was probably meant, so that the mistakes inside are told in the same go.
        near = nearest(word, model.SECTIONS)
        return next((name for name in model.SECTIONS if name == near), None)

    def _section(self, name: model.SectionName, section: Section) -> None:
        prose = model.tidied("\n".join(section.prose))
        if prose:
            self._section_prose[name] = "\n\n".join(filter(None, (self._section_prose.get(name), prose)))
        if name == "settings":
            self._places.setdefault(("settings",), section.place)
            values = entry_values(section, ("settings",), self._findings, self._notes)
            self._settings = shapes.settings(values, self._shape(()))
            for entry in section.entries:
                self._findings.add(
                    "unexpected_entry",
                    f"`### {entry.name}` stands below Settings",
                    entry.place,
                    found=entry.name,
                    hint="Settings are written `- key: value`.",
                )
            return
        for place in (*(one.key_place for one in section.parameters), *(one.place for one in section.fences)):
            self._findings.add(
                "outside_entry",
                f"a parameter stands right below `## {section.name}`",
                place,
                hint="Write `### name` above it.",
            )
        taken: dict[str, Place] = {}
        for entry in section.entries:
            if self._is_name(entry, name, taken):
                self._entry(name, entry)

    def _is_name(self, entry: Entry, section: model.SectionName, taken: dict[str, Place]) -> bool:
        word = section[:-1]
        if not model.ID.fullmatch(entry.name):
            slug = shapes.slug(entry.name)
            self._findings.add(
                "bad_id",
                f"{entry.name!r} is no name of {'an' if word[0] in 'aeiou' else 'a'} {word}",
                entry.place,
                found=entry.name,
                suggestion=slug or None,
                hint=_ID_HINT,
            )
            entry.name = slug or f"{word}_{entry.place.line}"
        path = (section, entry.name)
        if entry.name in taken or path in self._places:
            line = self._places[path].line
            self._findings.add(
                "duplicate_id",
                f"the {word} {entry.name!r} stands here again; its first place is line {line}",
                entry.place,
                found=entry.name,
                hint="Give one of them another name.",
            )
            return False
        taken[entry.name] = entry.place
        self._places[path] = entry.place
        return True

    def _entry(self, section: model.SectionName, entry: Entry) -> None:
        path: Path = (section, entry.name)
        values = entry_values(entry, path, self._findings, self._notes)
        description = model.tidied("\n".join(entry.prose))
        shape = self._shape(path)
        if section == "steps":
            if not description:
                self._findings.add(
                    "no_description",
                    f"the step {entry.name!r} has no description",
                    entry.place,
                    path=path,
                    warns=True,
                )
            self._steps.append(shapes.step(entry.name, description, values, shape))
        elif section == "inputs":
            shape.known(values, _INPUT_KEYS)
            self._inputs.append(shapes.input_(entry.name, description, values, shape))
        else:
            shape.known(values, _OUTPUT_KEYS)
            self._outputs.append(shapes.output(entry.name, description, values, shape))

    def _shape(self, path: Path) -> shapes.Shape:
        return shapes.Shape(self._findings, path, self._notes.unreadable)

    def _without_stale_layout(self, workflow: model.Workflow) -> model.Workflow:
        """Whoever takes a step out by hand need not tidy the canvas too."""
        known = {step.id for step in workflow.steps}
        layout = workflow.settings.layout
        if layout.keys() <= known:
            return workflow
        kept = {name: at for name, at in layout.items() if name in known}
        return msgspec.structs.replace(workflow, settings=msgspec.structs.replace(workflow.settings, layout=kept))
