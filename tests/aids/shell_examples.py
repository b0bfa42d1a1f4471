"""The shell examples of README and docs: what they say, line by line, and what they show. Runs nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SHELLS = ("sh", "console", "bash", "shell")


class Fence(NamedTuple):
    document: str
    line: int
    info: str
    body: tuple[str, ...]


class Example(NamedTuple):
    document: str
    line: int
    commands: tuple[str, ...]
    shown: tuple[str, ...]
    """Lines that the document says are printed."""

    @property
    def name(self) -> str:
        return f"{self.document}:{self.commands[0].split('  ')[0][:40]}"


def documents() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]


def fences() -> Iterator[Fence]:
    """Those of the outermost level, in lists and quotations too: an example of a document may hold fences itself."""
    for path in documents():
        name = str(path.relative_to(ROOT))
        margin, mark, info, start, body = "", "", "", 0, list[str]()
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            opening = re.fullmatch(r"([ >]*)(`{3,}|~{3,})(.*)", line)
            if not mark and opening:
                margin, mark, info, start, body = opening[1], opening[2], opening[3].strip(), number, []
            elif mark and line.strip(" >") == mark:
                yield Fence(name, start, info, tuple(body))
                mark = ""
            elif mark:
                body.append(line.removeprefix(margin) if line.startswith(margin) else line.lstrip(" >"))


def indented() -> Iterator[tuple[str, int, str]]:
    """Lines of code without a fence: document, line, text. Nothing says what language they are in."""
    for path in documents():
        held = {
            number
            for fence in fences()
            if fence.document == str(path.relative_to(ROOT))
            for number in range(fence.line, fence.line + len(fence.body) + 2)
        }
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            if number not in held and line.startswith(("    ", "\t")):
                yield str(path.relative_to(ROOT)), number, line.strip()


STORIES = ("docs/tutorial.md",)
"""Pages whose examples build on each other; they have tests of their own."""


def examples() -> list[Example]:
    return [
        _example(fence)
        for fence in fences()
        if fence.info.partition(" ")[0] in SHELLS and fence.document not in STORIES
    ]


def _example(fence: Fence) -> Example:
    if fence.info == "console":
        commands = [line[2:] for line in fence.body if line.startswith("$ ")]
        shown = [line for line in fence.body if line.strip() and not line.startswith("$ ")]
    else:
        text = "\n".join(fence.body).replace("\\\n", " ")
        commands, shown = [line for line in text.splitlines() if line.strip()], []
    return Example(fence.document, fence.line, tuple(commands), tuple(shown))
