"""Converts the model to a canvas graph and back without loss: steps are nodes, links between them edges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from leadrope.workflows import model
from leadrope.workflows.language import model_builder
from leadrope.workflows.links import Links, links_between
from leadrope.workflows.problems import BadWorkflow, Findings

VERSION = 1
_COLUMN = 280.0
_ROW = 140.0
_EDGE_KINDS = ("order", "after", "next", "branch", "error", "data", "route")
"""`order` is implicit, `data` (a template) and `route` (a step named in a pflow file's code) are only shown; the others
are explicit."""
_NODE_KEYS = ("description", "parameters", "starts", "ends", "branches", *model.STEP_KEYS)


def to_graph(workflow: model.Workflow) -> dict[str, Any]:
    """Returns JSON for a canvas.

    An edge of kind `order` is implicit, one of kind `data` is a template; the others are written in the file. A node
    inside a group has it as its `parent`, with a position relative to the group's corner. A node without a position is
    given one, and `placed: false`.
    """
    placed = workflow.settings.layout
    graph: dict[str, Any] = {"version": VERSION, "title": workflow.title, "prose": workflow.prose}
    graph["inputs"] = [msgspec.to_builtins(one) for one in workflow.inputs]
    graph["outputs"] = [msgspec.to_builtins(one) for one in workflow.outputs]
    graph["section_prose"] = dict(workflow.section_prose)
    graph["notes"] = [msgspec.to_builtins(one) for one in workflow.notes]
    graph["frontmatter"] = workflow.frontmatter
    graph["dialect"] = workflow.dialect
    settings = msgspec.structs.replace(workflow.settings, layout={})
    graph["settings"] = msgspec.to_builtins(settings)
    graph["nodes"] = list(_nodes(workflow.steps, workflow.dialect, placed, None))
    edges = list(_edges(workflow.steps, workflow.dialect))
    graph["edges"] = [{"id": f"e{number}", **edge} for number, edge in enumerate(edges)]
    return graph


def from_graph(graph: Mapping[str, Any]) -> model.Workflow:
    """Reads the model from a canvas; BadWorkflow lists everything that is not valid in it.

    An `order` edge that does not follow from the order of the steps becomes an `after`. Additions of the canvas (sizes,
    selection) are ignored.
    """
    findings = Findings()
    shape = model_builder.Shape(findings, ())
    nodes = _listed(graph, "nodes", shape)
    edges = [edge for edge in _listed(graph, "edges", shape) if _is_edge(edge, shape)]
    steps: dict[str, model.Step] = {}
    parents: dict[str, str] = {}
    layout: dict[str, tuple[float, float]] = {}
    for number, node in enumerate(nodes):
        name = node.get("id")
        if not isinstance(name, str) or not model.ID.fullmatch(name):
            shape.wrong(
                "bad_id", f"nodes[{number}] has no id that can name a step", "nodes", str(number), found=str(name)
            )
        elif name in steps:
            shape.wrong("duplicate_id", f"the step {name!r} is there twice", "nodes", str(number), found=name)
        else:
            steps[name] = _step(name, node, edges, model_builder.Shape(findings, ("steps", name)))
            if (at := _position(node, shape)) is not None:
                layout[name] = at
            if node.get("parent") is not None:
                parents[name] = str(node["parent"])
    _check_parents(steps, parents, shape)
    settings = model_builder.settings(_map(graph, "settings", shape), shape)
    dialect: model.Dialect = "pflow" if graph.get("dialect") == "pflow" else "flow"
    workflow = model.Workflow(
        title=_text(graph, "title", shape).strip(),
        prose=model.tidied(_text(graph, "prose", shape)),
        inputs=tuple(_inputs(graph, findings, shape)),
        steps=_nested(steps, parents, None) if not any(one.kind == "bad_parent" for one in findings) else (),
        outputs=tuple(_outputs(graph, findings, shape)),
        settings=msgspec.structs.replace(settings, layout=layout),
        section_prose=_section_prose(graph, shape),
        notes=tuple(_notes(graph, dialect, shape)),
        frontmatter=_frontmatter(graph, shape),
        dialect=dialect,
    )
    if any(problem.severity == "error" for problem in findings):
        raise BadWorkflow("the graph", findings)
    return msgspec.structs.replace(workflow, steps=_with_order(workflow.steps, workflow.dialect, edges))


def _check_parents(steps: Mapping[str, model.Step], parents: Mapping[str, str], shape: model_builder.Shape) -> None:
    for name, parent in parents.items():
        above: list[str] = [name]
        while above[-1] in parents and len(above) <= len(steps):
            above.append(parents[above[-1]])
        if parent not in steps or steps[parent].type != model.GROUP:
            message = f"the parent of {name!r} is {parent!r}, which is not a step of type {model.GROUP!r}"
        elif len(above) > len(steps):
            message = f"the node {name!r} is inside itself"
        elif len(above) - 1 > model.GROUPS_MOST:
            message = f"the node {name!r} is inside {len(above) - 1} groups; at most {model.GROUPS_MOST}"
        else:
            continue
        shape.wrong("bad_parent", message, "nodes", found=parent)


def _nested(steps: Mapping[str, model.Step], parents: Mapping[str, str], parent: str | None) -> tuple[model.Step, ...]:
    mine = [step for name, step in steps.items() if parents.get(name) == parent]
    return tuple(msgspec.structs.replace(step, steps=_nested(steps, parents, step.id)) for step in mine)


def _nodes(
    steps: Sequence[model.Step],
    dialect: model.Dialect,
    placed: Mapping[str, tuple[float, float]],
    parent: str | None,
) -> Iterator[dict[str, Any]]:
    free = _laid_out(links_between(steps, dialect))
    for step in steps:
        node = _node(step, placed.get(step.id), free[step.id])
        yield node if parent is None else {**node, "parent": parent}
        yield from _nodes(step.steps, dialect, placed, step.id)


def _node(step: model.Step, at: tuple[float, float] | None, free: tuple[float, float]) -> dict[str, Any]:
    data = msgspec.to_builtins(step)
    for key in ("id", "type", "after", "next", "on_error", "branches", "steps"):
        data.pop(key, None)
    if step.after == ():
        data["starts"] = True
    if step.next == ():
        data["ends"] = True
    if step.branches is not None:
        data["branches"] = list(step.branches)
    x, y = at or free
    node = {"id": step.id, "type": step.type, "position": {"x": x, "y": y}, "data": data}
    return node if at else {**node, "placed": False}


def _edges(steps: Sequence[model.Step], dialect: model.Dialect) -> Iterator[dict[str, Any]]:
    found = links_between(steps, dialect)
    for link in found.all:
        if link.kind in ("order", "data"):
            yield {"source": link.source, "target": link.target, "kind": link.kind}
    for step in steps:
        # From the steps and not from the links, so that an edge to a removed step is not lost.
        yield from ({"source": name, "target": step.id, "kind": "after"} for name in step.after or ())
        yield from ({"source": step.id, "target": name, "kind": "next"} for name in step.next or ())
        for label, names in (step.branches or {}).items():
            yield from ({"source": step.id, "target": name, "kind": "branch", "label": label} for name in names)
        if step.on_error is not None:
            yield {"source": step.id, "target": step.on_error, "kind": "error"}
    by_name = {step.id: step for step in steps}
    for link in found.all:
        named = by_name[link.source]
        if link.kind == "branch" and named.branches is None and link.target not in (named.next or ()):
            yield {"source": link.source, "target": link.target, "kind": "route", "label": link.label}
    for step in steps:
        yield from _edges(step.steps, dialect)


def _step(name: str, node: Mapping[str, Any], edges: list[dict[str, Any]], shape: model_builder.Shape) -> model.Step:
    data = _map(node, "data", shape)
    shape.known(data, _NODE_KEYS, "data", what="key")
    parameters = _map(data, "parameters", shape)
    values: dict[str, Any] = {} if node.get("type") is None else {"type": node["type"]}
    for key in ("when", "batch", "loop", "retry", "timeout", "cache", "approval", "budget", "policy"):
        if data.get(key) is not None:
            values[key] = data[key]
    for key in parameters:
        if model.attribute(key):
            shape.wrong("reserved_parameter", f"no parameter can be called {key!r}", "parameters", key, found=key)
    step = model_builder.step(name, model.tidied(_text(data, "description", shape)), values, shape)
    into = [edge for edge in edges if edge["target"] == name]
    out = [edge for edge in edges if edge["source"] == name]
    after = tuple(dict.fromkeys(edge["source"] for edge in into if edge["kind"] == "after"))
    following = tuple(dict.fromkeys(edge["target"] for edge in out if edge["kind"] == "next"))
    labels = dict.fromkeys([*(data.get("branches") or ()), *(e["label"] for e in out if e["kind"] == "branch")])
    branches = {
        label: tuple(dict.fromkeys(e["target"] for e in out if e["kind"] == "branch" and e["label"] == label))
        for label in labels
    }
    handlers = [edge["target"] for edge in out if edge["kind"] == "error"]
    if len(handlers) > 1:
        shape.wrong("second_handler", f"{name!r} has {len(handlers)} error edges; a step has one", found=handlers[1])
    if branches and following:
        shape.wrong("mixed_next", f"{name!r} has edges of kind next and of kind branch; only one kind can lead on")
    return msgspec.structs.replace(
        step,
        parameters=dict(parameters),
        after=after or (() if data.get("starts") else None),
        next=following or (() if data.get("ends") else None),
        branches=branches if branches or data.get("branches") == [] else None,
        on_error=handlers[0] if handlers else None,
    )


def _with_order(
    steps: Sequence[model.Step], dialect: model.Dialect, edges: list[dict[str, Any]]
) -> tuple[model.Step, ...]:
    """Makes `order` edges explicit in steps where they differ from the order of the file."""
    understood: dict[str, list[str]] = {}
    drawn: dict[str, list[str]] = {}
    for link in links_between(steps, dialect).all:
        if link.kind == "order":
            understood.setdefault(link.target, []).append(link.source)
    for edge in edges:
        if edge["kind"] == "order":
            drawn.setdefault(edge["target"], []).append(edge["source"])
    found = []
    for step in steps:
        after = step.after
        if sorted(understood.get(step.id, [])) != sorted(set(drawn.get(step.id, []))):
            after = tuple(dict.fromkeys((*(step.after or ()), *drawn.get(step.id, []))))
        found.append(msgspec.structs.replace(step, after=after, steps=_with_order(step.steps, dialect, edges)))
    return tuple(found)


def _is_edge(edge: Mapping[str, Any], shape: model_builder.Shape) -> bool:
    kind = edge.get("kind")
    if kind not in _EDGE_KINDS:
        shape.wrong("bad_edge", f"there is no edge kind {kind!r}", "edges", found=str(kind), available=_EDGE_KINDS)
        return False
    ends = (edge.get("source"), edge.get("target"), *((edge.get("label"),) if kind == "branch" else ()))
    if not all(isinstance(end, str) for end in ends):
        shape.wrong(
            "bad_edge", f"an edge of kind {kind} needs source and target" + (" and label" * (len(ends) > 2)), "edges"
        )
        return False
    return True


def _position(node: Mapping[str, Any], shape: model_builder.Shape) -> tuple[float, float] | None:
    at = node.get("position")
    if at is None or node.get("placed") is False:
        return None
    try:
        found = msgspec.convert(at, dict[str, float])
        return (found["x"], found["y"])
    except (msgspec.ValidationError, KeyError):
        shape.wrong("bad_position", f"the position of {node.get('id')!r} is not x and y", "nodes", found=str(at)[:60])
        return None


def _inputs(graph: Mapping[str, Any], findings: Findings, shape: model_builder.Shape) -> list[model.Input]:
    found = []
    for one in _listed(graph, "inputs", shape):
        name = str(one.get("name", ""))
        values = {key: value for key, value in one.items() if key not in ("name", "description")}
        inner = model_builder.Shape(findings, ("inputs", name))
        # A form on the canvas omits defaults: `required` is true in it, even beside a default.
        values.setdefault("required", True)
        found.append(model_builder.input_(name, model.tidied(_text(one, "description", inner)), values, inner))
    return found


def _outputs(graph: Mapping[str, Any], findings: Findings, shape: model_builder.Shape) -> list[model.Output]:
    found = []
    for one in _listed(graph, "outputs", shape):
        name = str(one.get("name", ""))
        inner = model_builder.Shape(findings, ("outputs", name))
        found.append(model_builder.output(name, model.tidied(_text(one, "description", inner)), one, inner))
    return found


def _notes(graph: Mapping[str, Any], dialect: model.Dialect, shape: model_builder.Shape) -> Iterator[model.Note]:
    for one in _listed(graph, "notes", shape):
        title = _text(one, "title", shape)
        if title != " ".join(title.split()) or title.endswith("#") or not model.is_note(title, dialect):
            shape.wrong("bad_note", f"no note can be called {title!r}", "notes", found=title)
        yield model.Note(title=title, text=model.tidied(_text(one, "text", shape)))


def _frontmatter(graph: Mapping[str, Any], shape: model_builder.Shape) -> str:
    found = _text(graph, "frontmatter", shape)
    if any(line.rstrip() == "---" or line.startswith(("## ", "### ")) for line in found.split("\n")):
        shape.wrong(
            "bad_frontmatter", "the frontmatter contains a line `---` or a heading, which ends it", "frontmatter"
        )
    return found


def _section_prose(graph: Mapping[str, Any], shape: model_builder.Shape) -> dict[model.SectionName, str]:
    given = _map(graph, "section_prose", shape)
    shape.known(given, model.SECTIONS, "section_prose", what="section")
    return {name: model.tidied(str(given[name])) for name in model.SECTIONS if given.get(name)}


def _listed(graph: Mapping[str, Any], key: str, shape: model_builder.Shape) -> list[dict[str, Any]]:
    value = graph.get(key, [])
    if isinstance(value, list) and all(isinstance(one, dict) for one in value):
        return value
    shape.wrong("wrong_type", f"{key!r} is a list of maps", key)
    return []


def _map(graph: Mapping[str, Any], key: str, shape: model_builder.Shape) -> dict[str, Any]:
    value = graph.get(key, {})
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return value
    shape.wrong("wrong_type", f"{key!r} is a map", key)
    return {}


def _text(graph: Mapping[str, Any], key: str, shape: model_builder.Shape) -> str:
    value = graph.get(key, "")
    if isinstance(value, str):
        return value
    shape.wrong("wrong_type", f"{key!r} is a text", key)
    return ""


def _laid_out(links: Links) -> dict[str, tuple[float, float]]:
    """Lays out a column per depth, with a row per step."""
    depth = dict.fromkeys(links.steps, 0)
    for name in links.sorted:
        depth[name] = max((depth[link.source] + 1 for link in links.into[name]), default=0)
    rows: dict[int, int] = {}
    found = {}
    for name in links.steps:
        row = rows.get(depth[name], 0)
        rows[depth[name]] = row + 1
        found[name] = (depth[name] * _COLUMN, row * _ROW)
    return found
