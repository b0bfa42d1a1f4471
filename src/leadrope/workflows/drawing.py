"""A workflow as a picture: SVG that needs nothing else, or the text of a mermaid flowchart. Reads and runs nothing.

Whatever a file says becomes characters of the picture, never mark-up. A template's line is left out where the order of
the steps says as much already, unless all of them are wanted.
"""

from __future__ import annotations

import html
import json
import re
import unicodedata
from collections.abc import Iterable, Sequence

import msgspec

from leadrope.runtime.shown import clean
from leadrope.workflows import drawing_layout, model
from leadrope.workflows.drawing_layout import Box, Curve, Point, Size
from leadrope.workflows.links import Kind, Links, links_of

_GROUPS = {
    "mind": ("agent", "claude-code", "llm"),
    "work": ("shell", "code", "mcp", "http", "email"),
    "person": ("approval",),
    "way": ("condition", "wait", "note", "workflow"),
}
"""What a box's colour tells; all other kinds are about files and data."""
_PLAIN: tuple[Kind, ...] = ("order", "after", "next")
_MARGIN = 24.0
_TEXT_MOST = 34
_LABEL_MOST = 18
_LEGEND = {"plain": "goes on", "branch": "by its choice", "error": "on error", "data": "uses a value"}

_STYLE = """
svg { color-scheme: light dark; font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
.paper { fill: #f6f7f9; } .title { font-size: 17px; font-weight: 600; } text { fill: #1c2128; }
.soft { fill: #5b6572; font-size: 12px; } .box { fill: #fff; stroke: #c3cad3; }
.name { font-weight: 600; } .line { fill: none; stroke: #6b7683; stroke-width: 1.5; } .tip { fill: #6b7683; }
.branch { stroke: #2f5fd0; } .tip-branch { fill: #2f5fd0; } .error { stroke: #c0282d; stroke-dasharray: 6 3; }
.tip-error { fill: #c0282d; } .data { stroke-width: 1.2; stroke: #8e98a4; stroke-dasharray: 1.5 3.5; }
.tip-data { fill: #8e98a4; } .label { font-size: 12px; paint-order: stroke; stroke: #f6f7f9; stroke-width: 5px; }
.l-branch { fill: #2f5fd0; } .l-error { fill: #c0282d; }
.mind { fill: #7a4fd0; } .work { fill: #1a7f4b; } .person { fill: #c77a00; } .way { fill: #6b7683; }
.file { fill: #1b7f9c; }
@media (prefers-color-scheme: dark) {
  .paper { fill: #12151a; } text { fill: #dfe4ea; } .soft { fill: #96a1ae; } .box { fill: #1a1e25; stroke: #3a434f; }
  .line { stroke: #8b97a5; } .tip { fill: #8b97a5; } .branch { stroke: #86a9ff; } .tip-branch { fill: #86a9ff; }
  .error { stroke: #ff8585; } .tip-error { fill: #ff8585; } .data { stroke: #66717e; } .tip-data { fill: #66717e; }
  .label { stroke: #12151a; } .l-branch { fill: #86a9ff; } .l-error { fill: #ff8585; }
  .mind { fill: #b094ff; } .work { fill: #5fca8e; } .person { fill: #e2b055; } .way { fill: #8b97a5; }
  .file { fill: #5cc4e0; }
}
"""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """All links of one sort between the same two steps."""

    source: str
    target: str
    sort: str
    """plain, branch, error or data."""
    label: str = ""


def lines_of(links: Links, *, all_data: bool = False) -> list[Line]:
    found: dict[tuple[str, str, str], list[str]] = {}
    for link in links.all:
        sort = "plain" if link.kind in _PLAIN else link.kind
        if sort == "data" and not all_data:
            continue
        found.setdefault((link.source, link.target, sort), []).append(link.label or "")
    lines = [
        Line(
            source=source,
            target=target,
            sort=sort,
            label=", ".join(dict.fromkeys(labels)) if sort == "branch" else "on error" if sort == "error" else "",
        )
        for (source, target, sort), labels in found.items()
    ]
    if all_data:
        joined = {(line.source, line.target) for line in lines if line.sort != "data"}
        return [line for line in lines if line.sort != "data" or (line.source, line.target) not in joined]
    behind = {name: _behind(name, links) for name in {link.source for link in links.all if link.kind == "data"}}
    return lines + [
        Line(source=link.source, target=link.target, sort="data")
        for link in links.all
        if link.kind == "data" and link.target not in behind[link.source]
    ]


def _behind(name: str, links: Links) -> set[str]:
    """The steps that the order alone puts behind it."""
    found: set[str] = set()
    todo = [name]
    while todo:
        for link in links.out_of[todo.pop()]:
            if link.kind != "data" and link.target not in found:
                found.add(link.target)
                todo.append(link.target)
    return found


def marks(step: model.Step) -> list[str]:
    """What a step says of itself beside its kind, in a word or two each."""
    found = []
    if step.when is not None:
        found.append("when …")
    if step.approval:
        found.append("asks first")
    if step.batch is not None:
        found.append(f"batch, {step.batch.at_once} at once" if step.batch.at_once > 1 else "batch")
    if step.loop is not None:
        found.append(f"loop ≤{step.loop.max_iterations}")
    if step.retry is not None:
        found.append(f"retry {step.retry.max}")
    if step.cache:
        found.append("cached")
    return found


# -- mermaid ----------------------------------------------------------------------------------------------------------


def mermaid(workflow: model.Workflow, *, all_data: bool = False) -> str:
    """The text of a flowchart, as Git hosts and editors draw it."""
    ids = {step.id: f"s{number}" for number, step in enumerate(workflow.steps)}
    written = []
    if title := _one(workflow.title, 200):
        quoted = json.dumps(title, ensure_ascii=False).replace("<", r"\u003c")  # it may be put into a page as it is
        written += ["---", f"title: {quoted}", "---"]
    written.append("flowchart TD")
    for step in workflow.steps:
        about = " · ".join([step.type or "?", *marks(step)])
        label = f"{_entities(_one(step.id, 80))}<br/>{_entities(_one(about, 80))}"
        opened, closed = {"condition": ("{{", "}}"), "approval": ("[/", "/]"), "workflow": ("[[", "]]")}.get(
            step.type, ("([", "])") if _group(step.type) == "mind" else ("[", "]")
        )
        written.append(f'  {ids[step.id]}{opened}"{label}"{closed}')
    failing = []
    for number, line in enumerate(lines_of(links_of(workflow), all_data=all_data)):
        arrow = "-.->" if line.sort == "data" else "-->"
        said = _entities(_one(line.label, 80))
        label = f'|"{said}"|' if said else ""  # mermaid has no empty label
        written.append(f"  {ids[line.source]} {arrow}{label} {ids[line.target]}")
        if line.sort == "error":
            failing.append(str(number))
    if failing:
        written.append(f"  linkStyle {','.join(failing)} stroke:#c0282d,stroke-dasharray:6 3")
    return "\n".join(written) + "\n"


_MERMAID_PLAIN = re.compile(r"[^A-Za-z0-9 _.,:/·≤…?+=-]")


def _entities(text: str) -> str:
    """Everything that mermaid or HTML could read as more than a character is written as its number."""
    text = _MERMAID_PLAIN.sub(lambda found: found[0] if ord(found[0]) > 0xFF else f"#{ord(found[0])};", text)
    # What begins like an entry of a list is drawn as an error of Markdown.
    return re.sub(r"^(\d*)([.+-])", lambda found: f"{found[1]}#{ord(found[2])};", text)


# -- SVG --------------------------------------------------------------------------------------------------------------


def svg(workflow: model.Workflow, *, all_data: bool = False) -> str:
    """One picture, for light and dark; what a box tells in full is shown when one points at it."""
    links = links_of(workflow)
    lines = lines_of(links, all_data=all_data)
    texts = {step.id: _texts(step) for step in workflow.steps}
    sizes = {name: _size(rows) for name, rows in texts.items()}
    plan = _planned(workflow, links, lines, sizes)
    head = _head(workflow)
    top = _MARGIN + 22 * len(head) + (10 if head else 0)
    bottom = max(
        [box.bottom for box in plan.boxes.values()] + [point.y for line in plan.lines for point in _ends(line)],
        default=0.0,
    )
    right = max(
        [box.right for box in plan.boxes.values()] + [point.x for line in plan.lines for point in _ends(line)],
        default=0.0,
    )
    legend = [sort for sort in _LEGEND if any(line.sort == sort for line in lines)]
    legend = legend if len(legend) > 1 else []
    head_width = max((_wide(text) * (1.4 if number == 0 else 0.95) for number, text in enumerate(head)), default=0.0)
    inner = max(right, head_width, 132.0 * len(legend))
    width, height = inner + 2 * _MARGIN, top + bottom + _MARGIN + (34 if legend else 0)
    shift = _MARGIN + (inner - right) / 2
    name = _one(workflow.title, 200) or "workflow"
    size = f'width="{width:.0f}" height="{height:.0f}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {width:.0f} {height:.0f}" {size}>',
        f"<title>{_escaped(name)}</title>",
        f"<style>{_STYLE}</style>",
        _tips(),
        f'<rect class="paper" {size}/>',
    ]
    for number, text in enumerate(head):
        look = "title" if number == 0 else "soft"
        y = _MARGIN + 12 + 22 * number
        parts.append(f'<text class="{look}" x="{_MARGIN:.0f}" y="{y:.0f}">{_escaped(text)}</text>')
    parts.append(f'<g transform="translate({shift:.1f} {top:.1f})">')
    parts += [_drawn_line(line, curves) for line, curves in zip(lines, plan.lines, strict=True)]
    parts += [_drawn_box(step, plan.boxes[step.id], texts[step.id]) for step in workflow.steps]
    parts += _labels(lines, plan.lines, plan.boxes.values())
    parts.append("</g>")
    parts += [
        f'<g transform="translate({_MARGIN + 132 * number:.0f} {height - _MARGIN:.0f})">'
        f'<path class="line {_class(sort)}" d="M0 -4H26"/><text class="soft" x="34">{_LEGEND[sort]}</text></g>'
        for number, sort in enumerate(legend)
    ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _planned(
    workflow: model.Workflow, links: Links, lines: Sequence[Line], sizes: dict[str, Size]
) -> drawing_layout.Plan:
    edges = [(line.source, line.target) for line in lines]
    placed = {name: Point(*at) for name, at in workflow.settings.layout.items() if name in sizes}
    # A place or two say where somebody moved a step, not how the whole is to look.
    if 2 * len(placed) < len(sizes) or not placed:
        known = set(links.sorted)
        return drawing_layout.in_rows(
            sizes, edges, [*links.sorted, *(name for name in links.steps if name not in known)]
        )
    return drawing_layout.as_placed(sizes, edges, placed)


def _head(workflow: model.Workflow) -> list[str]:
    head = [_short(_one(workflow.title, 200), 80)] if workflow.title.strip() else []
    for name, some in (("inputs", workflow.inputs), ("outputs", workflow.outputs)):
        if some:
            if not head:
                head.append("Workflow")
            head.append(_short(f"{name}: {', '.join(_one(one.name, 60) for one in some)}", 100))
    return head


def _texts(step: model.Step) -> list[str]:
    rows = [_short(_one(step.id, 200), _TEXT_MOST), _short(_one(step.type, 60) or "?", _TEXT_MOST)]
    if more := marks(step):
        rows.append(_short(" · ".join(more), _TEXT_MOST + 4))
    return rows


def _size(rows: list[str]) -> Size:
    wide = max(_wide(rows[0]) * 1.06, *(_wide(row) * 0.94 for row in rows[1:]))
    return Size(max(132.0, wide + 34), 50.0 if len(rows) == 2 else 67.0)


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
        f'<rect class="box" x="{box.x:.1f}" {size} width="{box.width:.1f}" rx="7"/>'
        f'<rect class="{_group(step.type)}" x="{box.x + 6:.1f}" y="{box.y + 8:.1f}" height="{box.height - 16:.1f}" '
        f'width="4" rx="2"/>{texts}</g>'
    )


def _told(step: model.Step) -> Iterable[str]:
    for key, value in step.parameters.items():
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        yield f"{key}: {_short(_one(text, 400), 160)}"


def _drawn_line(line: Line, curves: Sequence[Curve]) -> str:
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


def _labels(lines: Sequence[Line], drawn: Sequence[Sequence[Curve]], boxes: Iterable[Box]) -> list[str]:
    """Each on its line, at the first of some places where neither a box nor another label is."""
    taken = list(boxes)
    parts = []
    for line, curves in zip(lines, drawn, strict=True):
        if not line.label:
            continue
        text = _short(_one(line.label, 100), _LABEL_MOST)
        wide = _wide(text) * 0.94
        spots = [curves[0].at(share) for share in (0.5, 0.66, 0.34, 0.8, 0.2, 0.1)]
        spaces = [Box(at.x - wide / 2 - 4, at.y - 8, wide + 8, 16) for at in spots]
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


def _group(kind: str) -> str:
    return next((name for name, kinds in _GROUPS.items() if kind in kinds), "file")


# -- texts ------------------------------------------------------------------------------------------------------------


def _one(text: str, limit: int) -> str:
    """In one line, without what an eye cannot see and what XML has no place for."""
    return " ".join(_clean(text[: limit * 4]).split())[:limit]


def _short(text: str, limit: int) -> str:
    """By columns: a Chinese character is as wide as two others."""
    if _columns(text) <= limit:
        return text
    while _columns(text) > limit - 1:
        text = text[:-1]
    return text + "…"


def _columns(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text)


def _wide(text: str) -> float:
    """A guess in pixels that no common font goes beyond."""
    wide = "mwMWÖÄÜ@%—…"
    return sum(
        13.5 if unicodedata.east_asian_width(one) in "WF" else 13.6 if one in wide else 9.6 if one.isupper() else 7.6
        for one in text
    )


def _escaped(text: str) -> str:
    return html.escape(_clean(text))


def _clean(text: str) -> str:
    return re.sub("[\ufffe\uffff]", "", clean(text))  # XML has no place for these two
