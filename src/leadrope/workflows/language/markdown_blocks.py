"""Splits a workflow's file into sections, entries, parameters and fenced blocks, without interpreting them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from leadrope.regex import regex
from leadrope.workflows import model
from leadrope.workflows.problems import Findings, Position

LANGUAGES = frozenset(
    (
        *("yaml", "yml", "json", "toml", "xml", "csv", "text", "txt", "plain", "markdown", "md", "html", "css"),
        *("python", "py", "shell", "sh", "bash", "zsh", "fish", "console", "powershell", "javascript", "js", "jsx"),
        *("typescript", "ts", "tsx", "sql", "go", "rust", "java", "kotlin", "swift", "c", "cpp", "csharp", "ruby"),
        *("php", "perl", "lua", "r", "jq", "regex", "diff", "ini", "dockerfile", "makefile", "graphql", "jinja"),
    )
)
"""First words of a fence that name a language; the parameter is then the second word. Any other first word is the
parameter."""

HEADING = regex(r"(#{1,3})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*")
SUBHEADING = regex(r"(#{4,6})[ \t]+(.*?)(?:[ \t]+#+)?[ \t]*")
"""A step inside a group; in other entries it is a line of prose."""
FENCE = regex(r"( {0,3})(`{3,}|~{3,})[ \t]*([^`]*)")
_BULLET = regex(r"( {0,3})-(?:[ \t]+(.*))?")
_PFLOW_KEY = regex(r"(\S+?):[ \t]*")
KEY_LINE = regex(r'([A-Za-z_][A-Za-z0-9_-]*|"(?:[^"\\]|\\.)+")[ \t]*:(?=[ \t]|$)[ \t]*')


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """`- key: value`, with the lines below that belong to it."""

    key: str
    """As written, including quotes."""
    key_place: Position
    first: str
    """The text after the colon."""
    place: Position
    more: tuple[str, ...] = ()
    """The lines below, as written."""


class Fence(msgspec.Struct, frozen=True, kw_only=True):
    info: tuple[str, ...]
    text: str
    place: Position
    """Of the line with the opening fence."""
    last_line: int
    """Of the closing fence."""
    is_closed: bool = True

    @property
    def language(self) -> str:
        return self.info[0].lower() if self.info and self.info[0].lower() in LANGUAGES else ""

    @property
    def parameter(self) -> str | None:
        if not self.language:
            return self.info[0] if self.info else None
        return self.info[1] if len(self.info) > 1 else None


class Entry(msgspec.Struct, kw_only=True):
    """A heading and everything below it: the file itself, a section, or a step."""

    name: str
    place: Position
    prose: list[str] = []
    parameters: list[Parameter] = []
    fences: list[Fence] = []
    entries: list[Entry] = []
    """The entries of a section, or the steps of a group."""
    level: int = 3

    @property
    def is_group(self) -> bool:
        return any(one.key == "type" and one.first.strip("\"'") == model.GROUP for one in self.parameters)


class Section(Entry, kw_only=True):
    is_implied: bool = False
    """A `###` heading without a `##` above it."""
    note: tuple[str, ...] | None = None
    """The lines of a note, as written; a note has no entries."""


class Outline(msgspec.Struct, kw_only=True):
    top: Entry
    sections: list[Section] = []
    frontmatter: str = ""


def outline(text: str, findings: Findings, dialect: model.Dialect = "flow") -> Outline:
    """Returns the file's outline; everything that is not part of one is reported to `findings`."""
    return _Cutter(re.split(r"\r\n|\n", text.removeprefix("\ufeff")), findings, dialect).cut()


def closing(lines: Sequence[str], start: int) -> int | None:
    """Returns the line that closes the fence opened at `start`, or None.

    A fence that runs over a heading into the next fence was left open: the closing line belongs to the other one.
    """
    opening = FENCE.fullmatch(lines[start])
    if opening is None:
        return None
    marks = opening[2]
    saw_heading = False
    for index in range(start + 1, len(lines)):
        line = lines[index]
        if line[:1] == "#" and line.startswith(("## ", "### ")):
            saw_heading = True
        found = FENCE.fullmatch(line)
        if found and found[2][0] == marks[0] and len(found[2]) >= len(marks):
            if not found[3].strip():
                return index
            if saw_heading:
                return None
    return None


class _Cutter:
    def __init__(self, lines: list[str], findings: Findings, dialect: model.Dialect) -> None:
        self._lines = lines
        self._findings = findings
        self._dialect: model.Dialect = dialect
        self._at = 0
        top = Entry(name="", place=Position(line=1))
        self._outline = Outline(top=top)
        self._entry: Entry = top
        self._open: list[Entry] = []
        """The entry being read, preceded by the groups that contain it."""
        self._has_title = False

    def cut(self) -> Outline:
        self._frontmatter()
        while self._at < len(self._lines):
            line = self._lines[self._at]
            is_top = self._entry is self._outline.top
            if heading := HEADING.fullmatch(line):
                self._heading(len(heading[1]), (heading[2] or "").strip())
                self._at += 1
            elif subheading := self._subheading(line):
                self._inner_entry(len(subheading[1]), subheading[2].strip())
                self._at += 1
            elif FENCE.fullmatch(line):
                self._fence(is_prose=is_top)
            elif not is_top and (bullet := _BULLET.fullmatch(line)):
                self._parameter(bullet)
            else:
                self._entry.prose.append(_unescaped(line))
                self._at += 1
        return self._outline

    def _frontmatter(self) -> None:
        if self._lines[0].rstrip() != "---":
            return
        end = next((at for at, line in enumerate(self._lines) if at and line.rstrip() == "---"), None)
        # Two horizontal rules with sections between them are not frontmatter.
        if end is not None and self._next_heading(1) > end:
            self._outline.frontmatter = "\n".join(self._lines[1:end])
            self._at = end + 1

    def _heading(self, level: int, name: str) -> None:
        place = Position(line=self._at + 1)
        outline = self._outline
        if level == 1:
            if self._has_title or outline.sections:
                self._findings.add(
                    "second_title" if self._has_title else "late_title",
                    f"the title `# {name}` stands "
                    + ("here again" if self._has_title else "below the first section or step"),
                    place,
                    hint="A file has one `# Title`, at its top; sections are `##`, steps `###`.",
                    warns=self._dialect == "pflow",
                )
            else:
                outline.top.name, outline.top.place = name, place
            self._has_title = True
        elif level == 2:
            section = Section(name=name, place=place)
            outline.sections.append(section)
            self._entry = section
            self._open = []
            if model.is_note(name, self._dialect):
                section.note = tuple(self._note())
        else:
            if not outline.sections:
                outline.sections.append(Section(name="Steps", place=place, is_implied=True))
            entry = Entry(name=name, place=place)
            outline.sections[-1].entries.append(entry)
            self._entry = entry
            self._open = [entry]

    def _subheading(self, line: str) -> re.Match[str] | None:
        """Returns the heading of a step inside a group, if a group is open."""
        found = SUBHEADING.fullmatch(line) if line.startswith("####") else None
        return found if found and any(one.is_group and one.level < len(found[1]) for one in self._open) else None

    def _inner_entry(self, level: int, name: str) -> None:
        while self._open[-1].level >= level or not self._open[-1].is_group:
            self._open.pop()
        group = self._open[-1]
        if level != group.level + 1:
            wanted = "#" * (group.level + 1)
            self._findings.add(
                "skipped_level",
                f"`{'#' * level} {name}` stands below `{'#' * group.level} {group.name}`",
                Position(line=self._at + 1),
                found=f"{'#' * level} {name}",
                suggestion=f"{wanted} {name}",
            )
        entry = Entry(name=name, place=Position(line=self._at + 1), level=group.level + 1)
        group.entries.append(entry)
        self._open.append(entry)
        self._entry = entry

    def _note(self) -> list[str]:
        """Returns the lines up to the next section, whatever they contain; the last one becomes the current line."""
        found: list[str] = []
        at = self._at + 1
        while at < len(self._lines) and not _is_section(line := self._lines[at]):
            if not (is_fence := FENCE.fullmatch(line)):
                found.append(_unescaped(line))
                at += 1
                continue
            end = closing(self._lines, at)
            if end is None:
                self._tell_unclosed(is_fence, at)
                end = at
            found += self._lines[at : end + 1]
            at = end + 1
        self._at = at - 1
        return found

    def _tell_unclosed(self, opening: re.Match[str], at: int) -> None:
        self._findings.add(
            "unclosed_fence",
            f"the block {opening[0].strip()!r} is not closed",
            Position(line=at + 1, column=len(opening[1]) + 1),
            found=opening[0].strip(),
            hint=f"Close it with a line {opening[2]!r}.",
        )

    def _fence(self, *, is_prose: bool) -> None:
        start = self._at
        opening = FENCE.fullmatch(self._lines[start])
        assert opening is not None  # noqa: S101  # the caller has looked
        end = closing(self._lines, start)
        place = Position(line=start + 1, column=len(opening[1]) + 1)
        if end is None:
            self._tell_unclosed(opening, start)
            # Continues after the error, so that all errors are reported at once.
            end = self._next_heading(start + 1)
            self._at = end
        else:
            self._at = end + 1
        if is_prose:
            self._entry.prose += self._lines[start : self._at]
            return
        indent = len(opening[1])
        body = [line[min(indent, len(line) - len(line.lstrip(" "))) :] for line in self._lines[start + 1 : end]]
        info = tuple(opening[3].split())
        is_closed = self._at == end + 1
        fence = Fence(info=info, text="\n".join(body), place=place, last_line=self._at, is_closed=is_closed)
        self._entry.fences.append(fence)

    def _next_heading(self, start: int) -> int:
        for index in range(start, len(self._lines)):
            if self._lines[index].startswith(("## ", "### ")):
                return index
        return len(self._lines)

    def _parameter(self, bullet: re.Match[str]) -> None:
        number = self._at + 1
        rest = bullet[2] or ""
        begin = bullet.start(2) if bullet[2] is not None else bullet.end()
        is_plain = self._dialect == "flow" or rest[:1] == '"'
        found = (KEY_LINE if is_plain else _PFLOW_KEY).match(rest)
        self._at += 1
        is_block_scalar = found is not None and rest[found.end() : found.end() + 1] in ("|", ">")
        more = self._below(len(bullet[1]) + 2, may_hold_fences=is_block_scalar)
        if found is None:
            self._findings.add(
                "not_a_parameter",
                f"{bullet[0].strip()[:60]!r} is no `- key: value`",
                Position(line=number, column=len(bullet[1]) + 1),
                found=rest[:60],
                hint="A list in a description is written with `*`.",
            )
            return
        self._entry.parameters.append(
            Parameter(
                key=found[1],
                key_place=Position(line=number, column=begin + 1),
                first=rest[found.end() :].rstrip(),
                place=Position(line=number, column=begin + found.end() + 1),
                more=tuple(more),
            )
        )

    def _below(self, indent: int, *, may_hold_fences: bool) -> list[str]:
        """Returns the indented lines below a parameter, with empty lines only if they are between two of them."""
        more: list[str] = []
        while self._at < len(self._lines):
            count = 0
            while self._at + count < len(self._lines) and not self._lines[self._at + count].strip():
                count += 1
            line = self._lines[self._at + count] if self._at + count < len(self._lines) else ""
            is_fence = not may_hold_fences and FENCE.fullmatch(line) is not None
            if is_fence or not line.startswith(" " * indent):
                self._look_for_loose_text(line, count)
                break
            more += ["" for _ in range(count)]
            more.append(line)
            self._at += count + 1
        return more

    def _look_for_loose_text(self, line: str, empty: int) -> None:
        if empty or not line.strip() or HEADING.fullmatch(line) or FENCE.fullmatch(line) or _BULLET.fullmatch(line):
            return
        if self._subheading(line):
            return
        self._findings.add(
            "loose_text",
            f"{line.strip()[:60]!r} stands right below a parameter",
            Position(line=self._at + 1, column=len(line) - len(line.lstrip()) + 1),
            found=line.strip()[:60],
            hint="Indent it by two spaces to continue the value, or leave a line empty before a description.",
            warns=self._dialect == "pflow",
        )


_ESCAPED = regex(r"([ \t]*)\\(?=[-#`~\\])")


def _is_section(line: str) -> bool:
    return (found := HEADING.fullmatch(line)) is not None and len(found[1]) == 2


def _unescaped(line: str) -> str:
    return _ESCAPED.sub(r"\1", line, count=1) if _ESCAPED.match(line) else line


def escaped_prose(prose: str, *, is_top: bool, is_note: bool = False, in_group: bool = False) -> str:
    """Escapes prose so that it is read back unchanged.

    At the top of a file, lists and closed fences need no escaping; in a note, neither do smaller headings.
    """
    lines = prose.split("\n")
    written: list[str] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        is_fence = FENCE.fullmatch(line) is not None
        end = closing(lines, at) if is_fence and (is_top or is_note) else None
        if end is not None:
            written += lines[at : end + 1]
            at = end + 1
            continue
        bare = line.lstrip(" \t")
        is_heading = _is_section(line) if is_note else HEADING.fullmatch(line) is not None
        is_heading = is_heading or (in_group and SUBHEADING.fullmatch(line) is not None)
        is_special = is_fence or is_heading or (bare[:1] == "\\" and bare[1:2] in tuple("-#`~\\"))
        if is_special or (not is_top and not is_note and _BULLET.fullmatch(line)):
            line = line[: len(line) - len(bare)] + "\\" + bare
        written.append(line)
        at += 1
    return "\n".join(written)
