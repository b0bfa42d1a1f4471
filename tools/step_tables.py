"""The tables of parameters in docs/steps.md, from the kinds of steps. `make docs` writes them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from leadrope.workflows.steps import registry

PAGE = "docs/steps.md"
HEAD = "| parameter | type | default | meaning |\n|---|---|---|---|\n"
MIB = 1024 * 1024


def page(root: Path) -> str:
    """docs/steps.md with the parameters of each kind below the heading that names it."""
    start, *parts = re.split(r"^(?=## )", (root / PAGE).read_text(encoding="utf-8"), flags=re.MULTILINE)
    return start + "".join(map(_section, parts))


def _section(text: str) -> str:
    kinds = [name for name in re.findall(r"`([a-z-]+)`", text.partition("\n")[0]) if name in registry.KINDS]
    if not kinds:
        return text
    rows = "".join(f"{row}\n" for row in parameters(kinds[0]))
    return re.sub(rf"^{re.escape(HEAD)}(?:\|.*\n)*", lambda _: HEAD + rows, text, count=1, flags=re.MULTILINE)


def type_of(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return type_of(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"] if one is not None)
    if some := schema.get("anyOf"):
        words = dict.fromkeys(type_of(one, definitions) for one in some if one.get("type") != "null")
        return " or ".join(words)
    kind = schema.get("type", "any")
    inner = type_of(schema["items"], definitions) if schema.get("items") else ""
    word = {"array": f"list of {inner}" if inner and " or " not in inner else "list", "object": "map"}.get(kind, kind)
    return f"{word}{bounds_of(schema)}"


def bounds_of(schema: Mapping[str, Any]) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f", {told(low)} to {told(high)}"
    return ", above 0" if "exclusiveMinimum" in schema else ""


def default_of(name: str, schema: Mapping[str, Any], required: list[str]) -> str:
    if name in required:
        return "required"
    usual = schema.get("default")
    if usual in (None, "", [], {}):
        return ""
    return f"`{told(usual)}`"


def told(value: Any) -> str:
    """As people write it: sizes in MiB, words without quotes."""
    if isinstance(value, bool | str):
        return json.dumps(value).strip('"')
    return (
        f"{value // MIB} MiB"
        if value >= MIB and value % MIB == 0
        else f"{value:,g}"
        if value < 10_000
        else f"{value:,}"
    )


def parameters(kind: str) -> list[str]:
    """The rows of a kind's table, what is required first."""
    shape = registry.TYPES[kind].parameters
    required = shape.get("required", [])
    return [
        f"| `{name}` | {type_of(schema, shape['$defs'])} | {default_of(name, schema, required)} "
        f"| {schema.get('description', '')} |"
        for name, schema in sorted(shape["properties"].items(), key=lambda item: item[0] not in required)
    ]
