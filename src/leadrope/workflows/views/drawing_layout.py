"""Positions the boxes and lines of a drawing: in rows from top to bottom, or as placed on the canvas.

A box's row is given by the longest path to it; a line that passes a row gets a narrow box of its own there, so that
nothing is drawn across a step. Within a row boxes are moved towards their neighbours, as near as the others allow.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import msgspec

GAP = 36.0
"""Between two boxes of a row."""
ROW_GAP = 56.0
"""Between two rows; with less, a line's label does not fit."""
_PASSAGE = 14.0
_SWEEPS = 7
"""Odd, so that the last sweep goes down, and a box that leads nowhere is below the one leading to it."""
_PORT_GAP = 34.0
_PASSAGES_MOST = 20_000
"""A drawing with more lines than anyone can follow gets straight lines, which bounds the time."""


class Size(msgspec.Struct, frozen=True):
    width: float
    height: float


class Box(msgspec.Struct, frozen=True):
    """x and y are those of the upper left corner."""

    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        return self.x + self.width / 2

    @property
    def bottom(self) -> float:
        return self.y + self.height

    @property
    def right(self) -> float:
        return self.x + self.width

    def overlaps(self, other: Box) -> bool:
        return self.x < other.right and other.x < self.right and self.y < other.bottom and other.y < self.bottom


class Point(msgspec.Struct, frozen=True):
    x: float
    y: float


class Curve(msgspec.Struct, frozen=True):
    """A cubic segment of a line; a straight one has its control points at its ends."""

    start: Point
    first: Point
    second: Point
    end: Point

    def at(self, share: float) -> Point:
        rest = 1 - share
        weights = (rest**3, 3 * rest**2 * share, 3 * rest * share**2, share**3)
        points = (self.start, self.first, self.second, self.end)
        return Point(
            sum(weight * point.x for weight, point in zip(weights, points, strict=True)),
            sum(weight * point.y for weight, point in zip(weights, points, strict=True)),
        )


Edge = tuple[str, str]


class LayoutPlan(msgspec.Struct, frozen=True, kw_only=True):
    boxes: Mapping[str, Box]
    lines: tuple[tuple[Curve, ...], ...]
    """One per edge, in order."""


def in_rows(sizes: Mapping[str, Size], edges: Sequence[Edge], order: Sequence[str]) -> LayoutPlan:
    """Lays out boxes in rows. `order` has each box after its predecessors; in a cycle one edge leads back up."""
    return _Rows(sizes, edges, order).plan()


class _Rows:
    def __init__(self, sizes: Mapping[str, Size], edges: Sequence[Edge], order: Sequence[str]) -> None:
        self._edges = edges
        self._sizes = dict(sizes)
        self._number = {name: number for number, name in enumerate(order)}
        self._row = self._rows_of(order)
        self._ways: list[list[str]] = []
        """Per edge: the boxes from its upper to its lower end, including its passages."""
        self._passages: set[str] = set()
        self._above: dict[str, list[str]] = {}
        self._below: dict[str, list[str]] = {}
        for number, edge in enumerate(edges):
            self._ways.append(self._way(number, edge))
        self._rows: list[list[str]] = [[] for _ in range(max(self._row.values(), default=-1) + 1)]
        for name, row in self._row.items():
            self._rows[row].append(name)
        self._x: dict[str, float] = {}

    def plan(self) -> LayoutPlan:
        self._arrange()
        self._place()
        top = 0.0
        tops: list[float] = []
        heights = [max(self._sizes[name].height for name in row) for row in self._rows]
        for height in heights:
            tops.append(top)
            top += height + ROW_GAP
        boxes = {}
        for name, x in self._x.items():
            size, row = self._sizes[name], self._row[name]
            is_passage = name in self._passages
            y = tops[row] if is_passage else tops[row] + (heights[row] - size.height) / 2
            boxes[name] = Box(x - size.width / 2, y, size.width, heights[row] if is_passage else size.height)
        lines = self._lines(boxes)
        left = min((box.x for box in boxes.values()), default=0.0)
        shown = {name: _moved(box, -left) for name, box in boxes.items() if name not in self._passages}
        return LayoutPlan(boxes=shown, lines=tuple(tuple(_shifted(curve, -left) for curve in line) for line in lines))

    # -- rows ---------------------------------------------------------------------------------------------------------

    def _rows_of(self, order: Sequence[str]) -> dict[str, int]:
        into: dict[str, list[str]] = {name: [] for name in order}
        for source, target in self._edges:
            upper, lower = self._downwards((source, target))
            into[lower].append(upper)
        found: dict[str, int] = {}
        for name in order:
            found[name] = max((found[upper] + 1 for upper in into[name]), default=0)
        return found

    def _downwards(self, edge: Edge) -> Edge:
        source, target = edge
        return edge if self._number[source] < self._number[target] else (target, source)

    def _way(self, number: int, edge: Edge) -> list[str]:
        upper, lower = self._downwards(edge)
        way = [upper]
        passed = range(self._row[upper] + 1, self._row[lower])
        for row in passed if len(self._passages) + len(passed) <= _PASSAGES_MOST else ():
            name = f"{number} {row}"  # step names contain no space
            self._sizes[name] = Size(_PASSAGE, 0.0)
            self._row[name] = row
            self._passages.add(name)
            way.append(name)
        way.append(lower)
        for one, other in itertools.pairwise(way):
            self._below.setdefault(one, []).append(other)
            self._above.setdefault(other, []).append(one)
        return way

    # -- the order in a row -------------------------------------------------------------------------------------------

    def _arrange(self) -> None:
        """Sorts every row by the neighbours in the previous one, several times down and up, to reduce crossings."""
        for sweep in range(_SWEEPS):
            down = sweep % 2 == 0
            neighbours = self._above if down else self._below
            place = {name: number for row in self._rows for number, name in enumerate(row)}
            for row in self._rows if down else reversed(self._rows):
                wanted = {}
                for name in row:
                    joined = neighbours.get(name, ())
                    wanted[name] = sum(place[one] for one in joined) / len(joined) if joined else float(place[name])
                row.sort(key=lambda name: wanted[name])
                place.update({name: number for number, name in enumerate(row)})

    # -- positions in a row
    # ---------------------------------------------------------------------------------------------

    def _place(self) -> None:
        for row in self._rows:
            x = 0.0
            for number, name in enumerate(row):
                x += self._apart(row, number)
                self._x[name] = x
            middle = (self._x[row[0]] + self._x[row[-1]]) / 2 if row else 0.0
            for name in row:
                self._x[name] -= middle
        for sweep in range(2 * _SWEEPS):
            down = sweep % 2 == 0
            for row in self._rows if down else reversed(self._rows):
                self._settle(row, self._above if down else self._below)

    def _settle(self, row: list[str], neighbours: Mapping[str, list[str]]) -> None:
        """Places boxes as near to the middle of their neighbours as the gaps allow: least squares, in one pass."""
        offsets: list[float] = []
        blocks: list[tuple[float, float, int]] = []
        """Wanted position, weight and number of boxes that are packed together."""
        for number, name in enumerate(row):
            offsets.append((offsets[-1] if offsets else 0.0) + self._apart(row, number))
            joined = neighbours.get(name, ())
            wanted = sum(self._x[one] for one in joined) / len(joined) if joined else self._x[name]
            weight = 1.0 if not joined else 8.0 if name in self._passages else 4.0
            blocks.append((wanted - offsets[-1], weight, 1))
            while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
                place, weight, count = blocks.pop()
                before, other, more = blocks.pop()
                blocks.append(((place * weight + before * other) / (weight + other), weight + other, count + more))
        at = 0
        for place, _, count in blocks:
            for name in row[at : at + count]:
                self._x[name] = place + offsets[at]
                at += 1

    def _apart(self, row: list[str], number: int) -> float:
        if number == 0:
            return 0.0
        one, other = row[number - 1], row[number]
        gap = GAP if not {one, other} & self._passages else GAP / 2
        return (self._sizes[one].width + self._sizes[other].width) / 2 + gap

    # -- lines --------------------------------------------------------------------------------------------------------

    def _lines(self, boxes: Mapping[str, Box]) -> list[list[Curve]]:
        leaving = self._ports(boxes, first=True)
        arriving = self._ports(boxes, first=False)
        lines = []
        for number, (way, edge) in enumerate(zip(self._ways, self._edges, strict=True)):
            at = Point(leaving[number], boxes[way[0]].bottom)
            line: list[Curve] = []
            for name in way[1:-1]:
                passage = boxes[name]
                line.append(_falling(at, Point(passage.middle, passage.y)))
                at = Point(passage.middle, passage.bottom)
                line.append(_straight(line[-1].end, at))
            line.append(_falling(at, Point(arriving[number], boxes[way[-1]].y)))
            if way[0] != edge[0]:
                line = [Curve(one.end, one.second, one.first, one.start) for one in reversed(line)]
            lines.append(line)
        return lines

    def _ports(self, boxes: Mapping[str, Box], *, first: bool) -> list[float]:
        """Returns where each line leaves its upper box or meets its lower one: side by side, ordered by destination."""
        by_box: dict[str, list[int]] = {}
        for number, way in enumerate(self._ways):
            by_box.setdefault(way[0] if first else way[-1], []).append(number)
        found = [0.0] * len(self._ways)
        for name, numbers in by_box.items():
            box = boxes[name]
            numbers.sort(key=lambda number: boxes[self._ways[number][1 if first else -2]].middle)
            gap = min(_PORT_GAP, (box.width - 24) / max(1, len(numbers)))
            for place, number in enumerate(numbers):
                found[number] = box.middle + (place - (len(numbers) - 1) / 2) * gap
        return found


def as_placed(sizes: Mapping[str, Size], edges: Sequence[Edge], placed: Mapping[str, Point]) -> LayoutPlan:
    """Lays out boxes at given positions. One without a position is put after the first box that leads to it."""
    boxes = {name: Box(at.x, at.y, sizes[name].width, sizes[name].height) for name, at in placed.items()}
    for name, size in sizes.items():
        if name not in boxes:
            before = next((boxes[source] for source, target in edges if target == name and source in boxes), None)
            box = Box(before.right + 2 * GAP if before else 0.0, before.y if before else 0.0, size.width, size.height)
            while hit := next((one for one in boxes.values() if one.overlaps(box)), None):
                box = Box(box.x, hit.bottom + GAP, box.width, box.height)
            boxes[name] = box
    lines = [_around(source, target, boxes) for source, target in edges]
    points = [point for line in lines for curve in line for point in (curve.at(0.25), curve.at(0.75))]
    left = min([box.x for box in boxes.values()] + [point.x for point in points], default=0.0)
    top = min([box.y for box in boxes.values()] + [point.y for point in points], default=0.0)
    return LayoutPlan(
        boxes={name: _moved(box, -left, -top) for name, box in boxes.items()},
        lines=tuple(tuple(_shifted(curve, -left, -top) for curve in line) for line in lines),
    )


def _around(source: str, target: str, boxes: Mapping[str, Box]) -> tuple[Curve, ...]:
    """Draws a line between boxes; over or under those in between, if that avoids them."""
    one, other = boxes[source], boxes[target]
    direct = (_between(one, other),)
    others = [box for name, box in boxes.items() if name not in (source, target)]
    hit = [box for box in others if _crosses(direct, box)]
    if not hit:
        return direct
    middle = (one.middle + other.middle) / 2
    for y in (min(box.y for box in hit) - GAP / 2, max(box.bottom for box in hit) + GAP / 2):
        turn = Point(middle, y)
        start = Point(one.middle, one.y if y < one.y else one.bottom)
        end = Point(other.middle, other.y if y < other.y else other.bottom)
        detour = (
            Curve(start, Point(start.x, y), Point((start.x + middle) / 2, y), turn),
            Curve(turn, Point((end.x + middle) / 2, y), Point(end.x, y), end),
        )
        if not any(_crosses(detour, box) for box in others):
            return detour
    return direct


def _crosses(line: Sequence[Curve], box: Box) -> bool:
    points = (curve.at(share / 12) for curve in line for share in range(13))
    return any(box.x < point.x < box.right and box.y < point.y < box.bottom for point in points)


def _between(one: Box, other: Box) -> Curve:
    middle, across = one.y + one.height / 2, other.y + other.height / 2
    if other.x >= one.right:
        return _rightwards(Point(one.right, middle), Point(other.x, across))
    if other.y >= one.bottom:
        return _falling(Point(one.middle, one.bottom), Point(other.middle, other.y))
    if other.right <= one.x:
        # Back to the left: leaves and arrives at the top, above everything in between.
        high = min(one.y, other.y) - ROW_GAP
        start, end = Point(one.middle, one.y), Point(other.middle, other.y)
        return Curve(start, Point(start.x, high), Point(end.x, high), end)
    return _falling(Point(one.middle, one.y), Point(other.middle, other.bottom))


def _falling(start: Point, end: Point) -> Curve:
    half = (end.y - start.y) / 2
    return Curve(start, Point(start.x, start.y + half), Point(end.x, end.y - half), end)


def _rightwards(start: Point, end: Point) -> Curve:
    half = (end.x - start.x) / 2
    return Curve(start, Point(start.x + half, start.y), Point(end.x - half, end.y), end)


def _straight(start: Point, end: Point) -> Curve:
    return Curve(start, start, end, end)


def _moved(box: Box, dx: float, dy: float = 0.0) -> Box:
    return Box(box.x + dx, box.y + dy, box.width, box.height)


def _shifted(curve: Curve, dx: float, dy: float = 0.0) -> Curve:
    moved = [Point(point.x + dx, point.y + dy) for point in (curve.start, curve.first, curve.second, curve.end)]
    return Curve(*moved)
