"""A schema whose references all point into one flat table, whatever ids, anchors and pointers it was written with.

Pure data in and out; what a reference means is asked of the library that judges values, so both agree.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

_BASE = "https://schema.invalid/"
"""Where a schema without an id of its own is taken to lie. Nothing is fetched from there: the name cannot exist."""

ONE = frozenset(
    (
        *("additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not"),
        *("propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"),
    )
)
"""Keywords that hold a schema."""
MANY = frozenset(("allOf", "anyOf", "oneOf", "prefixItems", "items"))
"""Keywords that hold a list of schemas; `items` holds either, by draft."""
NAMED = frozenset(("properties", "patternProperties", "dependentSchemas", "dependencies"))
"""Keywords that hold schemas by name."""
DYNAMIC = "$dynamic"
"""Stands beside a `$ref` whose target depends on the way by which it is reached; the nearest one is named."""
_REFS = ("$ref", "$dynamicRef", "$recursiveRef")
_PLACES = frozenset(
    ("$id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$schema", "$defs", "definitions", "$vocabulary")
)


class Flat(msgspec.Struct, kw_only=True):
    root: Any
    defs: dict[str, Any]
    """Only what is referred to."""
    is_exact: bool
    """False when a reference depends on the way by which it is reached, and was taken for a plain one."""


def flatten(document: dict[str, Any], library: Any, deny: Callable[[str], Any], *, ignores_beside_ref: bool) -> Flat:
    try:
        registry = library.Registry([(_BASE, document)], retriever=deny)
    except ValueError:
        # The judge has its own way to read it; here it is a schema of which nothing is known.
        return Flat(root=True, defs={}, is_exact=False)
    return _Flattening(document, library, registry.resolver(_BASE), ignores_beside_ref=ignores_beside_ref).flat()


class _Flattening:
    def __init__(self, document: dict[str, Any], library: Any, resolver: Any, *, ignores_beside_ref: bool) -> None:
        self._document = document
        self._library = library
        self._ignores_beside_ref = ignores_beside_ref
        self._is_draft4 = "draft-04" in document.get("$schema", "")
        self._names: dict[tuple[str, str], str] = {}
        self._defs: dict[str, Any] = {}
        self._is_exact = True
        self._resolver = resolver

    def flat(self) -> Flat:
        root = self._node(self._document, self._resolver)
        return Flat(root=root, defs=self._defs, is_exact=self._is_exact)

    def _node(self, node: Any, resolver: Any) -> Any:
        if not isinstance(node, dict):
            return node
        if self._ignores_beside_ref and isinstance(node.get("$ref"), str):
            return self._reference(node["$ref"], resolver)
        own_id = node.get("id" if self._is_draft4 else "$id")
        if isinstance(own_id, str) and not own_id.startswith("#"):
            resolver = self._below(own_id, resolver)
        out: dict[str, Any] = {}
        also: list[Any] = []
        for key, value in node.items():
            if key in _REFS and isinstance(value, str):
                found = self._reference(value, resolver)
                if key != "$ref" and isinstance(found, dict):
                    found[DYNAMIC] = True
                    self._is_exact = False
                if isinstance(found, dict) and "$ref" not in out:
                    out.update(found)
                else:
                    also.append(found)
            elif key in MANY and isinstance(value, list):
                out[key] = [self._node(one, resolver) for one in value]
            elif key in ONE:
                out[key] = self._node(value, resolver)
            elif key in NAMED and isinstance(value, dict):
                out[key] = {name: self._node(one, resolver) for name, one in value.items()}
            elif key not in _PLACES and not (key == "id" and self._is_draft4):
                out[key] = value
        if also:
            out["allOf"] = [*out.get("allOf", ()), *also]
        return out

    def _below(self, own_id: str, resolver: Any) -> Any:
        try:
            return resolver.lookup(own_id).resolver
        except self._library.ReferencingError:
            return resolver

    def _reference(self, ref: str, resolver: Any) -> Any:
        key = (resolver.base_uri, ref)
        name = self._names.get(key)
        if name is None:
            try:
                found = resolver.lookup(ref)
            except self._library.ReferencingError:
                # The judge knows what it means, or the schema would have been refused; here it means anything.
                self._is_exact = False
                return True
            name = self._names[key] = self._new_name(ref)
            self._defs[name] = True  # taken: the schema may refer to itself
            self._defs[name] = self._node(found.contents, found.resolver)
        return {"$ref": f"#/$defs/{name}"}

    def _new_name(self, ref: str) -> str:
        told = re.sub(r"[^A-Za-z0-9_]+", "_", ref.rpartition("/")[2].rpartition("#")[2]).strip("_") or "root"
        name, number = told, 1
        while name in self._defs:
            number += 1
            name = f"{told}_{number}"
        return name
