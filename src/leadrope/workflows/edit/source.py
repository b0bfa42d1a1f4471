"""A workflow's text with the line numbers of each entry and parameter, for replacing lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from leadrope import errors
from leadrope.core.text import yaml_values
from leadrope.workflows import model
from leadrope.workflows.language import markdown, markdown_blocks
from leadrope.workflows.language.markdown_blocks import Entry, Fence, Parameter
from leadrope.workflows.problems import BadWorkflow, Findings, nearest

_BOM = "\ufeff"


class SourcePart(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter or a block with all of its lines; `end` is the line after the last one. Lines count from 0."""

    key: str
    start: int
    end: int
    is_block: bool


class Lines(msgspec.Struct, frozen=True, kw_only=True):
    """One entry: a step, an output, or the settings section."""

    section: str
    name: str
    level: int
    """Of its heading."""
    start: int
    """The line of its heading."""
    own_end: int
    """The line after its last one, not counting the steps inside it."""
    end: int
    parts: tuple[SourcePart, ...]
    group: str | None = None

    def part(self, key: str) -> SourcePart | None:
        wanted = model.attribute(key) or key
        return next((one for one in self.parts if (model.attribute(one.key) or one.key) == wanted), None)


class Source:
    """Raises BadWorkflow for a text that cannot be read completely: an edit could lose what was not understood."""

    def __init__(self, text: str, dialect: model.Dialect = "flow") -> None:
        document = markdown.read(text, dialect=dialect)
        if not is_readable(document):
            raise BadWorkflow("the workflow", document.problems)
        self.text = text
        self.dialect = dialect
        self.workflow = document.workflow
        # A byte order mark belongs to no line; it is restored when the text is put together.
        self.lines = _split(text.removeprefix(_BOM))
        self._mark = text[: len(text) - len(text.removeprefix(_BOM))]
        self.newline = "\r\n" if self.lines and self.lines[0].endswith("\r\n") else "\n"
        self.entries = tuple(self._found(markdown_blocks.outline(text, Findings(), dialect)))

    def step(self, name: str) -> Lines:
        for entry in self.entries:
            if entry.section == "steps" and entry.name == name and entry.level > 2:
                return entry
        raise unknown_step(name, self.workflow)

    def section(self, name: str) -> Lines | None:
        return next((entry for entry in self.entries if entry.section == name and entry.level == 2), None)

    def joined(self, *changes: tuple[int, int, str]) -> str:
        """Returns the text with changes, each with its first line, the line after its last, and the new text."""
        lines = list(self.lines)
        for start, end, text in sorted(changes, reverse=True):
            lines[start:end] = [text.replace("\n", self.newline)]
        return self._mark + "".join(lines)

    def inserted(self, at: int, text: str) -> tuple[int, int, str]:
        """Returns a change that inserts an entry before a line, with an empty line on both sides."""
        before = self.lines[at - 1] if at > 0 else "\n"
        lead = "\n\n" if not before.endswith("\n") else "\n" if before.strip() else ""
        return at, at, f"{lead}{text}\n" + ("\n" if at < len(self.lines) else "")

    def content_end(self, entry: Lines) -> int:
        """Returns the line after the entry's last non-empty one."""
        end = entry.own_end
        while end > entry.start + 1 and not self.lines[end - 1].strip():
            end -= 1
        return end

    def _found(self, outline: markdown_blocks.Outline) -> Iterator[Lines]:
        every = list(_flat(outline.sections, 2, "", None))
        for number, (section, level, group, entry) in enumerate(every):
            after = [(one[1], one[3].place.line - 1) for one in every[number + 1 :] if not _is_implied(one[3])]
            own_end = after[0][1] if after else len(self.lines)
            end = next((line for other, line in after if other <= level), len(self.lines))
            yield Lines(
                section=section,
                name=entry.name if level > 2 else "",
                level=level,
                start=entry.place.line - 1,
                own_end=own_end,
                end=end,
                parts=tuple(_parts(entry)),
                group=group,
            )


def is_readable(document: markdown.WorkflowDocument) -> bool:
    """Whether everything was understood; a file without steps is one that can get its first step."""
    return all(one.kind == "no_steps" for one in document.problems if one.severity == "error")


def unknown_step(name: str, workflow: model.Workflow) -> errors.BadValue:
    names = [step.id for step in workflow.every_step]
    near = nearest(name, names)
    return errors.BadValue(
        "step",
        f"there is no step {name!r}",
        hint=f"Did you mean {near}?" if near else f"The steps are: {', '.join(names)}.",
    )


def _flat(
    entries: Sequence[Entry], level: int, section: str, group: str | None
) -> Iterator[tuple[str, int, str | None, Entry]]:
    for entry in entries:
        here = section or entry.name.strip().lower()
        yield here, level, group, entry
        yield from _flat(entry.entries, level + 1, here, entry.name if level > 2 else None)


def _is_implied(entry: Entry) -> bool:
    return isinstance(entry, markdown_blocks.Section) and entry.is_implied


def _parts(entry: Entry) -> Iterator[SourcePart]:
    every: list[Parameter | Fence] = [*entry.parameters, *entry.fences]
    for said in sorted(every, key=lambda one: one.place.line):
        if isinstance(said, Fence):
            if said.parameter is not None:
                start = said.place.line - 1
                yield SourcePart(key=said.parameter, start=start, end=said.last_line, is_block=True)
            continue
        start = said.key_place.line - 1
        key = said.key if said.key[0] != '"' else str(yaml_values.load(said.key).value)
        yield SourcePart(key=key, start=start, end=start + 1 + len(said.more), is_block=False)


def _split(text: str) -> list[str]:
    """Splits into lines, with line ends. Only a line feed ends a line, as for the parser."""
    *whole, last = text.split("\n")
    return [f"{line}\n" for line in whole] + ([last] if last else [])
