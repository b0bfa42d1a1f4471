"""Reads a workflow's Markdown file into the model, with the position of everything in it."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import msgspec

from leadrope.workflows import model
from leadrope.workflows.language import habits, markdown_blocks, model_builder, schema_match
from leadrope.workflows.language.markdown_blocks import Entry, Section
from leadrope.workflows.language.markdown_values import KeyLines, Notes, entry_values, tell_indented
from leadrope.workflows.problems import BadWorkflow, Findings, Path, Places, Position, WorkflowProblem, move, nearest

_SUFFIX_OF: Mapping[model.Dialect, str] = {"flow": ".flow.md", "pflow": ".pflow.md"}
SUFFIXES = tuple(_SUFFIX_OF.values())
CHARS_LIMIT = 4_000_000

_INPUT_KEYS = ("type", "required", "default", "description", "stdin", "env")
_OUTPUT_KEYS = ("source", "type", "stdout", "description")
SETTING_KEYS = ("policy", "budget", "concurrency", "max_seconds", "max_iterations", "layout", "folders", "env")
_KEYS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "inputs": (_INPUT_KEYS, ("default", "description")),
    "outputs": (_OUTPUT_KEYS, ("source", "description")),
}
"""The keys of an entry, and those of them whose value may be any text."""


class WorkflowDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What was read, as far as possible, and everything that is wrong with it."""

    workflow: model.Workflow
    places: Places
    problems: tuple[WorkflowProblem, ...] = ()
    unreadable: frozenset[Path] = frozenset()
    """Values that are present but could not be read; nothing more is reported about them."""
    respelt: Mapping[Path, str] = {}
    """Numbers and booleans as spelled in the file, if they would be written differently: `1.10`."""
    key_lines: Mapping[Path, KeyLines] = {}
    """For parameters of steps: texts with lines that may be parameters themselves, indented by mistake."""
    has_files: bool = False
    """Texts of files beside it have replaced the names of the files."""

    @property
    def has_errors(self) -> bool:
        return any(problem.severity == "error" for problem in self.problems)

    def checked(self, name: str) -> model.Workflow:
        """Returns the workflow; BadWorkflow with every problem if it has errors."""
        if self.has_errors:
            raise BadWorkflow(name, self.problems)
        return self.workflow


def is_workflow_file(name: str) -> bool:
    return PurePath(name).name.endswith(SUFFIXES)


def dialect_of(name: str) -> model.Dialect:
    """Returns the dialect of a file, by its name."""
    return "pflow" if PurePath(name).name.endswith(_SUFFIX_OF["pflow"]) else "flow"


def suffix_of(dialect: model.Dialect) -> str:
    return _SUFFIX_OF[dialect]


def read(text: str, *, dialect: model.Dialect = "flow") -> WorkflowDocument:
    r"""Reads a file's text into the model, collecting all problems.

    read("### hello\n- type: shell\n- command: echo hello\n").workflow.steps[0].id == "hello"
    """
    places: dict[Path, Position] = {}
    findings = Findings(places)
    if len(text) > CHARS_LIMIT:
        findings.add(
            "too_long", f"the file has {len(text)} characters; at most {CHARS_LIMIT} are read", Position(line=1)
        )
        return WorkflowDocument(workflow=model.Workflow(dialect=dialect), places={}, problems=tuple(findings))
    return _Reader(markdown_blocks.outline(text, findings, dialect), findings, places, dialect).read()


class _Reader:
    def __init__(
        self,
        outline: markdown_blocks.Outline,
        findings: Findings,
        places: dict[Path, Position],
        dialect: model.Dialect,
    ) -> None:
        self._dialect = dialect
        self._outline = outline
        self._findings = findings
        self._places = places
        self._notes = Notes(places=places)
        self._inputs: list[model.Input] = []
        self._steps: list[model.Step] = []
        self._outputs: list[model.Output] = []
        self._settings = model.WorkflowSettings()
        self._names = {entry.name for section in outline.sections for entry in _each(section.entries)}
        self._section_prose: dict[model.SectionName, str] = {}
        self._kept: list[model.Note] = []
        cached = [section.note for section in outline.sections if section.note and section.name.lower() == "cache"]
        self._chunks: dict[str, str] = {}
        if cached and dialect == "pflow":
            from leadrope.workflows.pflow import words  # noqa: PLC0415  # only needed for pflow's files

            self._chunks = words.cache_chunks(cached[0])

    def read(self) -> WorkflowDocument:
        seen: dict[str, Section] = {}
        for section in self._outline.sections:
            if section.note is not None:
                self._note(section, section.note)
                continue
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
                seen["steps"].place if "steps" in seen else Position(line=1),
                hint="Write `## Steps` and below it `### name` with `- type: …`.",
            )
        if self._dialect == "pflow":
            from leadrope.workflows.pflow import words  # noqa: PLC0415  # only needed for pflow's files

            words.whole(self._steps, self._findings)
        top = self._outline.top
        workflow = model.Workflow(
            title=top.name,
            prose=model.tidied("\n".join(top.prose)),
            inputs=tuple(self._inputs),
            steps=tuple(self._steps),
            outputs=tuple(self._outputs),
            settings=self._settings,
            section_prose=self._section_prose,
            notes=tuple(self._kept),
            frontmatter=self._outline.frontmatter,
            dialect=self._dialect,
        )
        return WorkflowDocument(
            workflow=self._without_stale_layout(workflow),
            places=self._places,
            problems=tuple(self._findings),
            unreadable=frozenset(self._notes.unreadable),
            respelt=self._notes.respelt,
            key_lines=self._notes.key_lines,
        )

    def _note(self, section: Section, lines: Sequence[str]) -> None:
        self._kept.append(model.Note(title=section.name, text=model.tidied("\n".join(lines))))
        near = nearest(section.name.strip().lower(), (*model.SECTIONS, model.NOTES))
        if near is not None and near != model.NOTES:
            self._findings.add(
                "unknown_section",
                f"there is no section {section.name!r}; it is ignored",
                section.place,
                found=section.name,
                suggestion=near.capitalize(),
                warns=True,
            )

    def _section_name(self, section: Section) -> model.SectionName | None:
        word = section.name.strip().lower()
        titles = tuple(name.capitalize() for name in (*model.SECTIONS, model.NOTES))
        for name in model.SECTIONS:
            if word == name:
                return name
        self._findings.add(
            "unknown_section",
            f"there is no section {section.name!r}",
            section.place,
            found=section.name,
            available=titles,
            suggestion=habits.SECTIONS.get(word),
            hint="Text that is not part of the workflow goes below `## Notes`.",
        )
        # Read as the section that was probably meant, so that errors inside are reported at the same time.
        near = habits.SECTIONS.get(word, nearest(word, (*model.SECTIONS, model.NOTES)) or "").lower()
        return next((name for name in model.SECTIONS if name == near), None)

    def _section(self, name: model.SectionName, section: Section) -> None:
        prose = model.tidied("\n".join(section.prose))
        if prose:
            self._section_prose[name] = "\n\n".join(filter(None, (self._section_prose.get(name), prose)))
        if name == "settings":
            self._places.setdefault(("settings",), section.place)
            values = self._values(section, ("settings",), SETTING_KEYS, ())
            self._settings = model_builder.settings(values, self._shape(()))
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
                warns=self._dialect == "pflow",
            )
        if name == "steps":
            self._steps += self._read_steps(section.entries)
            return
        for entry in section.entries:
            is_new = self._is_name(entry, name)
            self._places[name, entry.name] = entry.place
            if is_new or entry.parameters or entry.fences:
                self._entry(name, entry, is_new=is_new)

    def _read_steps(self, entries: Iterable[Entry]) -> list[model.Step]:
        found: list[model.Step] = []
        for entry in entries:
            is_new = self._is_name(entry, "steps")
            self._places["steps", entry.name] = entry.place
            if is_new or entry.parameters or entry.fences:
                step = self._step(entry)
                inner = self._read_steps(entry.entries)
                found.append(msgspec.structs.replace(step, steps=tuple(inner)) if inner else step)
        return found

    def _step(self, entry: Entry) -> model.Step:
        path: Path = ("steps", entry.name)
        values = self._values(entry, path, None, ())
        if self._dialect == "pflow":
            from leadrope.workflows.pflow import words  # noqa: PLC0415  # only needed for pflow's files

            words.step(
                words.PflowStep(values, path, self._findings, self._places, self._notes.unreadable), self._chunks
            )
        description = model.tidied("\n".join(entry.prose))
        if not description:
            self._findings.add(
                "no_description",
                f"the step {entry.name!r} has no description",
                entry.place,
                path=path,
                warns=True,
            )
        for old, new in model_builder.old_names(values):
            move(self._places, (*path, old), (*path, new))
        return model_builder.step(entry.name, description, values, self._shape(path))

    def _is_name(self, entry: Entry, section: model.SectionName) -> bool:
        """Whether the entry's name can be used; otherwise it is replaced, so that the entry is still checked."""
        word = section[:-1]
        if not model.ID.fullmatch(entry.name):
            slug = model_builder.slug(entry.name)
            self._findings.add(
                "bad_id",
                f"{entry.name!r} cannot be the name of {'an' if word[0] in 'aeiou' else 'a'} {word}",
                entry.place,
                found=entry.name,
                suggestion=slug or None,
                hint=schema_match.NAME_HINT,
            )
            entry.name = slug or f"{word}_{entry.place.line}"
        path = (section, entry.name)
        if path in self._places:
            line = self._places[path].line
            self._findings.add(
                "duplicate_id",
                f"the {word} {entry.name!r} stands here again; its first place is line {line}",
                entry.place,
                found=entry.name,
                hint="Give one of them another name.",
            )
            entry.name = next(
                name
                for name in (f"{entry.name}-{count}" for count in itertools.count(entry.place.line))
                if self._is_free(section, name)
            )
            self._notes.unreadable.add((section, entry.name))
            return False
        return True

    def _is_free(self, section: model.SectionName, name: str) -> bool:
        return (section, name) not in self._places and name not in self._names

    def _entry(self, section: model.SectionName, entry: Entry, *, is_new: bool) -> None:
        path: Path = (section, entry.name)
        known, texts = _KEYS.get(section, (None, ()))
        values = self._values(entry, path, known, texts)
        description = model.tidied("\n".join(entry.prose))
        shape = self._shape(path)
        if section == "inputs":
            shape.known(values, _INPUT_KEYS)
            found = model_builder.input_(entry.name, description, values, shape)
            # Nothing can refer to the second of two, so it is not reported as unused.
            self._inputs += [found] if is_new else []
        else:
            shape.known(values, _OUTPUT_KEYS)
            self._outputs.append(model_builder.output(entry.name, description, values, shape))

    def _values(
        self, entry: Entry, path: Path, known: Collection[str] | None, texts: Collection[str]
    ) -> dict[str, Any]:
        """Returns an entry's values; reports parameters indented by mistake if that is clear without step types."""
        if self._dialect == "pflow":
            from leadrope.workflows.pflow import values as pflow_values  # noqa: PLC0415  # only needed for pflow's files

            values = pflow_values.entry_values(entry, path, self._findings, self._notes)
        else:
            values = entry_values(entry, path, self._findings, self._notes)
        for key in values:
            found = self._notes.key_lines.get((*path, key))
            if found is None or (known is None and model.attribute(key) is None):
                continue
            for line in found.lines:
                if known is not None and line.key not in known:
                    continue
                is_needed = line.key == "source" and line.key not in values
                tell_indented(line, (*path, key), self._findings, warns=key in texts and not is_needed)
                if key not in texts or is_needed:
                    self._notes.unreadable.add((*path, line.key))
                    values[key] = found.first
            del self._notes.key_lines[*path, key]
        return values

    def _shape(self, path: Path) -> model_builder.Shape:
        return model_builder.Shape(self._findings, path, self._notes.unreadable)

    def _without_stale_layout(self, workflow: model.Workflow) -> model.Workflow:
        """Drops the layout of removed steps, so that deleting a step by hand needs no second change."""
        known = {step.id for step in workflow.every_step}
        layout = workflow.settings.layout
        if layout.keys() <= known:
            return workflow
        kept = {name: at for name, at in layout.items() if name in known}
        return msgspec.structs.replace(workflow, settings=msgspec.structs.replace(workflow.settings, layout=kept))


def _each(entries: Iterable[Entry]) -> Iterator[Entry]:
    for entry in entries:
        yield entry
        yield from _each(entry.entries)
