"""A terminal's output as an SVG that plays once: each piece of text is hidden until the time at which it was written.

A viewer that plays no animations, or whose reader wants none, shows all of it at once.

Values in, text out. Knows the escape sequences that leadrope itself writes, and refuses others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import escape
from itertools import groupby
from typing import NamedTuple

COLUMNS = 96
LONGEST_GAP_S = 2.5
SHORTEST_GAP_S = 0.06
CELL_W, LINE_H, SIZE = 8.4, 19, 14
MARGIN, BAR = 18, 34

_SEQUENCE = re.compile(
    r"\x1b\[([?0-9;]*)([A-Za-z])"  # CSI
    r"|\x1b\](?:[^\x07\x1b]*)(?:\x07|\x1b\\)"  # a title
    r"|([\r\n\b\x07])"
    r"|([^\x1b\r\n\b\x07]+)"
)
_COLOURS = {31: "r", 32: "g", 33: "y", 34: "b", 35: "m", 36: "c", 90: "d"}
_STYLE = """
text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#d7dce2;white-space:pre}
.d{fill:#8b949e}.r{fill:#ff7b72}.g{fill:#56d364}.y{fill:#e3b341}.b{fill:#79c0ff}.m{fill:#d2a8ff}.c{fill:#76e3ea}.o{font-weight:700}
.t{animation-name:t}@keyframes t{from,to{opacity:0}}
@media(prefers-reduced-motion:reduce){.t{animation-name:none}}
""".strip()


class Written(NamedTuple):
    """What a program wrote, and when, in seconds."""

    time: float
    text: str


class Cell(NamedTuple):
    char: str
    style: str
    step: int
    """The piece of output that wrote it."""


class UnknownSequence(ValueError):
    pass


class Screen:
    """Lines without an end: what scrolls off a real terminal stays here."""

    def __init__(self) -> None:
        self.lines: list[list[Cell]] = [[]]
        self.row = self.column = 0
        self._codes: set[str] = set()

    def write(self, text: str, step: int) -> None:
        position = 0
        while position < len(text):
            found = _SEQUENCE.match(text, position)
            if found is None:
                raise UnknownSequence(repr(text[position : position + 20]))
            position = found.end()
            arguments, final, control, plain = found.groups()
            if plain:
                self._put(plain, step)
            elif control:
                self._move(control)
            elif final:
                self._control(arguments, final)

    def _put(self, text: str, step: int) -> None:
        line = self.lines[self.row]
        style = " ".join(sorted(self._codes))
        for char in text:
            while len(line) <= self.column:
                line.append(Cell(" ", "", step))
            line[self.column] = Cell(char, style, step)
            self.column += 1

    def _move(self, control: str) -> None:
        if control == "\r":
            self.column = 0
        elif control == "\b":
            self.column = max(0, self.column - 1)
        elif control == "\n":
            self.row += 1
            if self.row == len(self.lines):
                self.lines.append([])

    def _control(self, arguments: str, final: str) -> None:
        numbers = [int(word) for word in arguments.split(";") if word.isdigit()]
        match final:
            case "m":
                self._paint(numbers or [0])
            case "K":
                del self.lines[self.row][0 if numbers == [2] else self.column :]
            case "J":
                del self.lines[self.row][self.column :]
                del self.lines[self.row + 1 :]
            case "A":
                self.row = max(0, self.row - (numbers[0] if numbers else 1))
            case "G":
                self.column = (numbers[0] if numbers else 1) - 1
            case "C":
                self.column += numbers[0] if numbers else 1
            case "D":
                self.column = max(0, self.column - (numbers[0] if numbers else 1))
            case "h" | "l":
                pass  # the cursor, bracketed paste
            case _:
                raise UnknownSequence(f"CSI {arguments}{final}")

    def _paint(self, numbers: list[int]) -> None:
        for number in numbers:
            if number == 0:
                self._codes.clear()
            elif number == 1:
                self._codes.add("o")
            elif number == 2:
                self._codes.add("d")
            elif number in _COLOURS:
                self._codes = {code for code in self._codes if code == "o"} | {_COLOURS[number]}


def svg(output: Iterable[Written], *, title: str) -> str:
    screen, times = Screen(), list[float]()
    for step, written in enumerate(output):
        screen.write(written.text, step)
        times.append(written.time)
    shown = list(_times(times))
    lines = list(screen.lines)
    while lines and not "".join(cell.char for cell in lines[-1]).strip():
        lines.pop()
    columns = max([COLUMNS, *map(len, lines)])
    width, height = round(columns * CELL_W + 2 * MARGIN), BAR + len(lines) * LINE_H + MARGIN
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(title)}">',
            f"<title>{escape(title)}</title>",
            f"<style>{_STYLE}</style>",
            f'<rect width="{width}" height="{height}" rx="9" fill="#14181f"/>',
            *(f'<circle cx="{18 + 18 * n}" cy="17" r="5.5" fill="#3d444d"/>' for n in range(3)),
            *(text for row, line in enumerate(lines) for text in _line(line, row, shown)),
            "</svg>\n",
        ]
    )


def _line(cells: list[Cell], row: int, shown: list[float]) -> Iterator[str]:
    column = 0
    for (style, step), group in groupby(cells, key=lambda cell: (cell.style, cell.step)):
        text = "".join(cell.char for cell in group)
        start = column + len(text) - len(text.lstrip())
        column += len(text)
        if not text.strip():
            continue
        words = text.strip()
        x, y = MARGIN + start * CELL_W, BAR + (row + 1) * LINE_H - 5
        # Whatever font the reader has, a column is a column.
        length = f'textLength="{len(words) * CELL_W:.1f}" lengthAdjust="spacingAndGlyphs"'
        classes = f"t {style}".strip()
        yield (
            f'<text class="{classes}" x="{x:.1f}" y="{y}" {length} style="animation-duration:{shown[step]:.2f}s">'
            f"{escape(words, quote=False)}</text>"
        )


def _times(times: list[float]) -> Iterator[float]:
    """Real gaps, but none too short to see or too long to wait for."""
    now, before = 0.0, times[0] if times else 0.0
    for time in times:
        now += min(max(time - before, SHORTEST_GAP_S), LONGEST_GAP_S)
        before = time
        yield now
