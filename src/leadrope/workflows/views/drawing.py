"""Draws a workflow as a self-contained SVG, for light and dark mode.

The content of a file is always drawn as text, never as markup. The line of a template is left out if the order of the
steps already implies it, unless all lines are requested.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from leadrope.workflows import model
from leadrope.workflows.links import links_between
from leadrope.workflows.views import drawing_layout
from leadrope.workflows.views.drawing_layout import Box, Curve, Point, Size
from leadrope.workflows.views.drawing_lines import DrawnLine, colour_of, lines_of, marks, one_line, plain, short, wide

_MARGIN = 24.0
_TEXT_MOST = 34
_LABEL_MOST = 18
_INSET = 20.0
"""Between the border of a group and the steps inside it."""
_LEGEND = {"plain": "next", "branch": "by its choice", "error": "on error", "data": "uses a value"}

_STYLE = """
svg { color-scheme: light dark; font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
.paper { fill: #f6f7f9; } .title { font-size: 17px; font-weight: 600; } text { fill: #1c2128; }
.soft { fill: #5b6572; font-size: 12px; } .box { fill: #fff; stroke: #c3cad3; }
.inside { fill: #eef1f5; }
.name { font-weight: 600; } .line { fill: none; stroke: #6b7683; stroke-width: 1.5; } .tip { fill: #6b7683; }
.branch { stroke: #2f5fd0; } .tip-branch { fill: #2f5fd0; } .error { stroke: #c0282d; stroke-dasharray: 6 3; }
.tip-error { fill: #c0282d; } .data { stroke-width: 1.2; stroke: #8e98a4; stroke-dasharray: 1.5 3.5; }
.tip-data { fill: #8e98a4; } .label { font-size: 12px; paint-order: stroke; stroke: #f6f7f9; stroke-width: 5px; }
.l-branch { fill: #2f5fd0; } .l-error { fill: #c0282d; }
.mind { fill: #7a4fd0; } .work { fill: #1a7f4b; } .person { fill: #c77a00; } .way { fill: #6b7683; }
.file { fill: #1b7f9c; }
@media (prefers-color-scheme: dark) {
  .paper { fill: #12151a; } text { fill: #dfe4ea; } .soft { fill: #96a1ae; } .box { fill: #1a1e25; stroke: #3a434f; }
  .inside { fill: #161a20; }
  .line { stroke: #8b97a5; } .tip { fill: #8b97a5; } .branch { stroke: #86a9ff; } .tip-branch { fill: #86a9ff; }
  .error { stroke: #ff8585; } .tip-error { fill: #ff8585; } .data { stroke: #66717e; } .tip-data { fill: #66717e; }
  .label { stroke: #12151a; } .l-branch { fill: #86a9ff; } .l-error { fill: #ff8585; }
  .mind { fill: #b094ff; } .work { fill: #5fca8e; } .person { fill: #e2b055; } .way { fill: #8b97a5; }
  .file { fill: #5cc4e0; }
}
"""


class _Level(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of a file or of one group, with their positions."""

    steps: Sequence[model.Step]
    lines: Sequence[DrawnLine]
    plan: drawing_layout.LayoutPlan
    texts: Mapping[str, list[str]]
    inside: Mapping[str, _Level]

    @property
    def size(self) -> Size:
        points = [point for line in self.plan.lines for point in _ends(line)]
        boxes = self.plan.boxes.values()
        return Size(
            max([box.right for box in boxes] + [point.x for point in points], default=0.0),
            max([box.bottom for box in boxes] + [point.y for point in points], default=0.0),
        )

    @property
    def sorts(self) -> set[str]:
        return {line.sort for line in self.lines}.union(*(level.sorts for level in self.inside.values()))


def svg(workflow: model.Workflow, *, all_data: bool = False) -> str:
    """Returns the picture; hovering over a box shows its complete text."""
    level = _level(workflow.steps, workflow, all_data=all_data)
    size = level.size
    head = _head(workflow)
    top = _MARGIN + 22 * len(head) + (10 if head else 0)
    legend = [sort for sort in _LEGEND if sort in level.sorts]
    legend = legend if len(legend) > 1 else []
    head_width = max((wide(text) * (1.4 if number == 0 else 0.95) for number, text in enumerate(head)), default=0.0)
    inner = max(size.width, head_width, 132.0 * len(legend))
    width, height = inner + 2 * _MARGIN, top + size.height + _MARGIN + (34 if legend else 0)
    shift = _MARGIN + (inner - size.width) / 2
    name = one_line(workflow.title, 200) or "workflow"
    extent = f'width="{width:.0f}" height="{height:.0f}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {width:.0f} {height:.0f}" {extent}>',
        f"<title>{_escaped(name)}</title>",
        f"<style>{_STYLE}</style>",
        _tips(),
        f'<rect class="paper" {extent}/>',
    ]
    for number, text in enumerate(head):
        look = "title" if number == 0 else "soft"
        y = _MARGIN + 12 + 22 * number
        parts.append(f'<text class="{look}" x="{_MARGIN:.0f}" y="{y:.0f}">{_escaped(text)}</text>')
    parts += _drawn(level, Point(shift, top))
    parts += [
        f'<g transform="translate({_MARGIN + 132 * number:.0f} {height - _MARGIN:.0f})">'
        f'<path class="line {_class(sort)}" d="M0 -4H26"/><text class="soft" x="34">{_LEGEND[sort]}</text></g>'
        for number, sort in enumerate(legend)
    ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _level(steps: Sequence[model.Step], workflow: model.Workflow, *, all_data: bool) -> _Level:
    links = links_between(steps, workflow.dialect)
    lines = lines_of(links, all_data=all_data)
    inside = {step.id: _level(step.steps, workflow, all_data=all_data) for step in steps if step.steps}
    texts = {step.id: _texts(step) for step in steps}
    sizes = {name: _size(rows, inside.get(name)) for name, rows in texts.items()}
    edges = [(line.source, line.target) for line in lines]
    placed = {name: Point(*at) for name, at in workflow.settings.layout.items() if name in sizes}
    # A position or two show that somebody moved a step, not how the whole should look.
    if 2 * len(placed) < len(sizes) or not placed:
        known = set(links.sorted)
        order = [*links.sorted, *(name for name in links.steps if name not in known)]
        plan = drawing_layout.in_rows(sizes, edges, order)
    else:
        plan = drawing_layout.as_placed(sizes, edges, placed)
    return _Level(steps=steps, lines=lines, plan=plan, texts=texts, inside=inside)


def _drawn(level: _Level, at: Point) -> list[str]:
    boxes = level.plan.boxes
    parts = [f'<g transform="translate({at.x:.1f} {at.y:.1f})">']
    parts += [_drawn_line(line, curves) for line, curves in zip(level.lines, level.plan.lines, strict=True)]
    for step in level.steps:
        inside = level.inside.get(step.id)
        box, rows = boxes[step.id], level.texts[step.id]
        parts.append(_drawn_box(step, box, rows))
        if inside is not None:
            corner = Point(box.x + (box.width - inside.size.width) / 2, box.y + _size(rows).height)
            parts += _drawn(inside, corner)
    parts += _labels(level.lines, level.plan.lines, boxes.values())
    return [*parts, "</g>"]


def _head(workflow: model.Workflow) -> list[str]:
    head = [short(one_line(workflow.title, 200), 80)] if workflow.title.strip() else []
    for name, some in (("inputs", workflow.inputs), ("outputs", workflow.outputs)):
        if some:
            if not head:
                head.append("Workflow")
            head.append(short(f"{name}: {', '.join(one_line(one.name, 60) for one in some)}", 100))
    return head


def _texts(step: model.Step) -> list[str]:
    rows = [short(one_line(step.id, 200), _TEXT_MOST), short(one_line(step.type, 60) or "?", _TEXT_MOST)]
    if more := marks(step):
        rows.append(short(" · ".join(more), _TEXT_MOST + 4))
    return rows


def _size(rows: list[str], inside: _Level | None = None) -> Size:
    width = max(wide(rows[0]) * 1.06, *(wide(row) * 0.94 for row in rows[1:]))
    own = Size(max(132.0, width + 34), 50.0 if len(rows) == 2 else 67.0)
    if inside is None:
        return own
    return Size(max(own.width, inside.size.width + 2 * _INSET), own.height + inside.size.height + _INSET)


def _drawn_box(step: model.Step, box: Box, rows: list[str]) -> str:
    told = [f"{step.id} ({step.type})", step.description.strip(), *_told(step)]
    texts = "".join(
        f'<text class="{"name" if number == 0 else "soft"}" x="{box.x + 18:.1f}" y="{box.y + 21 + 17 * number:.1f}">'
        f"{_escaped(row)}</text>"
        for number, row in enumerate(rows)
    )
    size = f'y="{box.y:.1f}" height="{box.height:.1f}"'
    return (
        f"<g><title>{_escaped(chr(10).join(filter(None, told)))}</title>"
        f'<rect class="{"box inside" if step.steps else "box"}" x="{box.x:.1f}" {size} width="{box.width:.1f}" rx="7"/>'
        f'<rect class="{colour_of(step.type)}" x="{box.x + 6:.1f}" y="{box.y + 8:.1f}" height="{box.height - 16:.1f}" '
        f'width="4" rx="2"/>{texts}</g>'
    )


def _told(step: model.Step) -> Iterable[str]:
    for key, value in step.parameters.items():
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        yield f"{key}: {short(one_line(text, 400), 160)}"


def _drawn_line(line: DrawnLine, curves: Sequence[Curve]) -> str:
    at = curves[0].start
    path = f"M{at.x:.1f} {at.y:.1f}" + "".join(
        f"C{c.first.x:.1f} {c.first.y:.1f} {c.second.x:.1f} {c.second.y:.1f} {c.end.x:.1f} {c.end.y:.1f}"
        for c in curves
    )
    told = f"{line.source} → {line.target}" + (f": {line.label}" if line.label else "")
    told += " (uses a value)" if line.sort == "data" else ""
    return (
        f'<path class="line {_class(line.sort)}" marker-end="url(#tip-{line.sort})" d="{path}">'
        f"<title>{_escaped(told)}</title></path>"
    )


def _labels(lines: Sequence[DrawnLine], drawn: Sequence[Sequence[Curve]], boxes: Iterable[Box]) -> list[str]:
    """Places each label on its line, at the first of several positions without a box or another label."""
    taken = list(boxes)
    parts = []
    for line, curves in zip(lines, drawn, strict=True):
        if not line.label:
            continue
        text = short(one_line(line.label, 100), _LABEL_MOST)
        width = wide(text) * 0.94
        spots = [curves[0].at(share) for share in (0.5, 0.66, 0.34, 0.8, 0.2, 0.1)]
        spaces = [Box(at.x - width / 2 - 4, at.y - 8, width + 8, 16) for at in spots]
        space = next((one for one in spaces if not any(one.overlaps(other) for other in taken)), spaces[0])
        taken.append(space)
        parts.append(
            f'<text class="label l-{line.sort}" text-anchor="middle" x="{space.middle:.1f}" y="{space.y + 12:.1f}">'
            f"{_escaped(text)}</text>"
        )
    return parts


def _tips() -> str:
    return (
        "<defs>"
        + "".join(
            f'<marker id="tip-{sort}" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="8" markerHeight="8" '
            f'markerUnits="userSpaceOnUse" orient="auto"><path class="tip tip-{sort}" d="M0 0L8 4L0 8z"/></marker>'
            for sort in _LEGEND
        )
        + "</defs>"
    )


def _ends(line: Sequence[Curve]) -> list[Point]:
    return [point for curve in line for point in (curve.start, curve.end)]


def _class(sort: str) -> str:
    return "" if sort == "plain" else sort


def _escaped(text: str) -> str:
    return html.escape(plain(text))
