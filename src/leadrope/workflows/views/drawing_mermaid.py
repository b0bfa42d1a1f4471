"""Writes a workflow as a mermaid flowchart. The content of a file is always text, never markup."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from leadrope.regex import regex
from leadrope.workflows import model
from leadrope.workflows.links import links_between
from leadrope.workflows.views.drawing_lines import colour_of, lines_of, marks, one_line


def mermaid(workflow: model.Workflow, *, all_data: bool = False) -> str:
    """Returns the flowchart's source, which Git hosts and editors can draw. A group is a subgraph."""
    ids = {step.id: f"s{number}" for number, step in enumerate(workflow.every_step)}
    written = []
    if title := one_line(workflow.title, 200):
        quoted = json.dumps(title, ensure_ascii=False).replace("<", r"\u003c")  # it may be embedded in a page
        written += ["---", f"title: {quoted}", "---"]
    written.append("flowchart TD")
    written += _boxes(workflow.steps, ids, "  ")
    failing = []
    found = [links_between(steps, workflow.dialect) for steps in workflow.levels]
    every = [line for level in found for line in lines_of(level, all_data=all_data)]
    for number, line in enumerate(every):
        arrow = "-.->" if line.sort == "data" else "-->"
        said = _entities(one_line(line.label, 80))
        label = f'|"{said}"|' if said else ""  # mermaid does not allow empty labels
        written.append(f"  {ids[line.source]} {arrow}{label} {ids[line.target]}")
        if line.sort == "error":
            failing.append(str(number))
    if failing:
        written.append(f"  linkStyle {','.join(failing)} stroke:#c0282d,stroke-dasharray:6 3")
    return "\n".join(written) + "\n"


def _boxes(steps: Sequence[model.Step], ids: Mapping[str, str], indent: str) -> Iterator[str]:
    for step in steps:
        about = " · ".join([step.type or "?", *marks(step)])
        label = f"{_entities(one_line(step.id, 80))}<br/>{_entities(one_line(about, 80))}"
        if step.steps:
            yield f'{indent}subgraph {ids[step.id]}["{label}"]'
            yield from _boxes(step.steps, ids, indent + "  ")
            yield f"{indent}end"
            continue
        opened, closed = {"condition": ("{{", "}}"), "switch": ("{{", "}}"), "approval": ("[/", "/]")}.get(
            step.type, ("([", "])") if colour_of(step.type) == "mind" else ("[", "]")
        )
        if step.type == "workflow":
            opened, closed = "[[", "]]"
        yield f'{indent}{ids[step.id]}{opened}"{label}"{closed}'


_MERMAID_PLAIN = regex(r"[^A-Za-z0-9 _.,:/·≤…?+=-]")


def _entities(text: str) -> str:
    """Escapes everything that mermaid or HTML could interpret, as numeric entities."""
    text = _MERMAID_PLAIN.sub(lambda found: found[0] if ord(found[0]) > 0xFF else f"#{ord(found[0])};", text)
    # Mermaid draws a text that begins like a list entry as a Markdown error.
    return re.sub(r"^(\d*)([.+-])", lambda found: f"{found[1]}#{ord(found[2])};", text)
