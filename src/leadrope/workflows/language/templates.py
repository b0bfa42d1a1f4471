"""Fills templates with values, and finds what a value needs first. Evaluates no code and takes linear time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from leadrope import errors
from leadrope.workflows.language import template_syntax as syntax
from leadrope.workflows.problems import LISTED, nearest

ESCAPE_HINT = "Write `$${` for a `${` that is not a template."
FALLBACK_HINT = 'What may be missing has something to fall back on: `${a.b ?? "none"}`.'
ABSENT = "_absent"
"""A key in a step's outputs: reasons, by name, why other outputs are missing this time."""
_MISSING: Any = object()
DIALECT = "the dialect"
"""A key of a scope that no name can equal; its value is `pflow` if texts are filled as pflow fills them."""


class FailedOutputs(dict[str, Any]):
    """The outputs of a failed step or item; `??` and projections treat them as missing, except for `error`.

    With `is_readable`, a template that names only the step gets the value, as in the step that handles the error.
    """

    def __init__(self, outputs: Mapping[str, Any], *, is_readable: bool = True) -> None:
        super().__init__(outputs)
        self.is_readable = is_readable


class Absent(msgspec.Struct, frozen=True):
    """A name in a scope without a value, and why; templates treat it as missing."""

    reason: str


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """Why a template has no value."""

    template: str
    """As written, including `${` and `}`."""
    reason: str
    path: tuple[str | int, ...] = ()
    """Path of the template in the value."""
    available: tuple[str, ...] = ()
    suggestion: str | None = None
    is_inside: bool = False
    """The name exists, but has nothing at the path."""

    def __str__(self) -> str:
        text = f"{self.template}: {self.reason}"
        if self.suggestion is not None:
            text += f"; did you mean ${{{self.suggestion}}}?"
        if self.available:
            more = len(self.available) - LISTED
            text += f" (available: {', '.join(self.available[:LISTED])}" + (f" and {more} more)" if more > 0 else ")")
        return text


class Unresolved(errors.RequestError):
    """Some templates have no value; `missing` lists them."""

    kind = "unresolved_template"

    def __init__(self, missing: tuple[Missing, ...]) -> None:
        hints = dict.fromkeys(FALLBACK_HINT if one.is_inside else ESCAPE_HINT for one in missing)
        super().__init__("\n".join(str(one) for one in missing), hint=" ".join(hints))
        self.missing = missing


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """A name that a value needs."""

    root: str
    parts: tuple[syntax.Part, ...]
    """The path after the name, as far as it is known without values."""
    source: str
    """As written, without `${` and `}`."""
    has_fallback: bool
    """Another operand follows, so the name may be missing."""
    is_alone: bool
    """The text is this single template, so the value keeps its type."""
    path: tuple[str | int, ...]
    """Path of the text in the value."""
    offset: int
    text: str


class Broken(msgspec.Struct, frozen=True, kw_only=True):
    """A text that looks like a template but is not valid."""

    message: str
    source: str
    path: tuple[str | int, ...]
    offset: int
    text: str


def resolve(value: Any, scope: Mapping[str, Any]) -> Any:
    """Returns the value with every template replaced; Unresolved lists all that have no value.

    resolve({"a": "${n}", "b": "n is ${n}"}, {"n": 1}) == {"a": 1, "b": "n is 1"}
    """
    filler = _Filler(scope)
    found = filler.fill(value, ())
    if filler.missing:
        raise Unresolved(tuple(filler.missing))
    return found


def references(value: Any) -> tuple[Reference, ...]:
    """Returns every name used by a value's templates, in order. `broken` lists the invalid ones, left out here."""
    found: list[Reference] = []
    for path, text in texts(value):
        pieces, _ = syntax.scan(text)
        for piece in pieces:
            if isinstance(piece, syntax.Expression):
                for name, has_fallback in _paths(piece):
                    found.append(
                        Reference(
                            root=name.root,
                            parts=name.names,
                            source=name.source,
                            has_fallback=has_fallback,
                            is_alone=len(pieces) == 1 and len(piece.operands) == 1 and piece.operands[0] is name,
                            path=path,
                            offset=piece.offset,
                            text=text,
                        )
                    )
    return tuple(found)


def broken(value: Any) -> tuple[Broken, ...]:
    return tuple(
        Broken(message=one.message, source=one.source, path=path, offset=one.offset, text=text)
        for path, text in texts(value)
        for one in syntax.scan(text)[1]
    )


def is_template(value: Any) -> bool:
    """Whether the text contains a template, so that its value is not yet known."""
    return (
        isinstance(value, str)
        and "${" in value
        and any(isinstance(piece, syntax.Expression) for piece in syntax.scan(value)[0])
    )


def settled(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values without templates, which are already known."""
    found = {}
    for name, value in values.items():
        if not any(is_template(text) for _, text in texts(value)) and not broken(value):
            found[name] = resolve(value, {})
    return found


def escaped(text: str) -> str:
    """Escapes a text so that it resolves to itself."""
    return text.replace("${", "$${")


def is_true(value: Any) -> bool:
    """Interprets a condition's value; a text that a person would call false is false."""
    if isinstance(value, str):
        return value.strip().lower() not in ("", "false", "no", "off", "0", "null", "none")
    return bool(value)


def as_text(value: Any, scope: Mapping[str, Any] | None = None) -> str:
    """Formats a value for a text: texts as they are, null as nothing, others as JSON.

    In pflow's files true is `True`.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool) and scope is not None and scope.get(DIALECT) == "pflow":
        return str(value)
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def opened(value: Any) -> Any:
    """Parses a text that is a list or an object in JSON; returns everything else unchanged."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def opened_inside(
    written: Any,
    filled: Any,
    *,
    allows: Callable[[tuple[str, ...]], bool] = lambda _: True,
    path: tuple[str, ...] = (),
) -> Any:
    """Parses, in a filled map or list, the JSON texts that came from a single template each.

    `allows` tells by the path whether a place can take a list or an object.
    """
    if isinstance(written, Mapping) and isinstance(filled, Mapping):
        return {key: _opened_leaf(written.get(key), inner, allows, (*path, str(key))) for key, inner in filled.items()}
    if isinstance(written, list | tuple) and isinstance(filled, list):
        pairs = enumerate(zip(written, filled, strict=True))
        return [_opened_leaf(one, inner, allows, (*path, str(index))) for index, (one, inner) in pairs]
    return filled


def _opened_leaf(written: Any, filled: Any, allows: Callable[[tuple[str, ...]], bool], path: tuple[str, ...]) -> Any:
    if is_lone(written):
        return opened(filled) if allows(path) else filled
    return opened_inside(written, filled, allows=allows, path=path)


def is_lone(written: Any) -> bool:
    """Whether it is a single template, so that the value keeps its type."""
    if not isinstance(written, str) or "${" not in written:
        return False
    pieces, _ = syntax.scan(written)
    return len(pieces) == 1 and isinstance(pieces[0], syntax.Expression)


def texts(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yields every text inside a value that may contain a template, with its path."""
    if isinstance(value, str):
        if "${" in value:
            yield path, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from texts(inner, (*path, key))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from texts(inner, (*path, index))


def _paths(expression: syntax.Expression) -> Iterator[tuple[syntax.Path, bool]]:
    last = len(expression.operands) - 1
    for index, operand in enumerate(expression.operands):
        if isinstance(operand, syntax.Path):
            yield operand, index < last
            for part in operand.parts:
                if isinstance(part, syntax.Expression):
                    for name, has_fallback in _paths(part):
                        yield name, has_fallback or index < last


class _Filler:
    def __init__(self, scope: Mapping[str, Any]) -> None:
        self._scope = scope
        self.missing: list[Missing] = []
        # Hundreds of keys of one text may be requested, so it is parsed once. The text is kept too, so that its id is
        # not reused.
        self._parsed: dict[int, tuple[str, Any]] = {}

    def fill(self, value: Any, path: tuple[str | int, ...]) -> Any:
        if isinstance(value, str):
            return self._text(value, path) if "${" in value else value
        if isinstance(value, Mapping):
            return {key: self.fill(inner, (*path, key)) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.fill(inner, (*path, index)) for index, inner in enumerate(value)]
        return value

    def _text(self, text: str, path: tuple[str | int, ...]) -> Any:
        pieces, problems = syntax.scan(text)
        self.missing += [Missing(template=one.source, reason=one.message, path=path) for one in problems]
        if len(pieces) == 1 and isinstance(pieces[0], syntax.Expression):
            return self._expression(pieces[0], path)
        return "".join(
            piece if isinstance(piece, str) else as_text(self._expression(piece, path), self._scope) for piece in pieces
        )

    def _expression(self, expression: syntax.Expression, path: tuple[str | int, ...]) -> Any:
        found, missing = self._first(expression, path)
        if found is _MISSING:
            self.missing.append(missing)
            return None
        return found

    def _first(self, expression: syntax.Expression, path: tuple[str | int, ...]) -> tuple[Any, Any]:
        """Returns the first operand that exists; if none does, the reason for the last one."""
        missing = None
        for operand in expression.operands:
            if isinstance(operand, syntax.Literal):
                return operand.value, None
            found, missing = self._named(operand, expression, path)
            if found is not _MISSING:
                return found, None
        return _MISSING, missing

    def _named(self, name: syntax.Path, expression: syntax.Expression, path: tuple[str | int, ...]) -> tuple[Any, Any]:
        source = expression.source
        if name.root not in self._scope:
            known = tuple(key for key, value in self._scope.items() if key != DIALECT and not isinstance(value, Absent))
            near = nearest(name.root, known)
            rest = name.source[len(name.root) :]
            return _MISSING, Missing(
                template=source,
                reason=f"nothing is called {name.root!r} here",
                path=path,
                available=known,
                suggestion=near + rest if near else None,
            )
        value = self._scope[name.root]
        if isinstance(value, Absent):
            return _MISSING, Missing(template=source, reason=value.reason, path=path, is_inside=True)
        is_failed = isinstance(value, FailedOutputs) and name.parts[:1] != ("error",)
        if is_failed and (len(expression.operands) > 1 or not value.is_readable):
            return _MISSING, Missing(
                template=source, reason=f"the step {name.root!r} failed", path=path, is_inside=True
            )
        return self._walk(value, name.parts, name.root, source, path)

    def _walk(
        self,
        value: Any,
        parts: tuple[syntax.Part | syntax.Expression, ...],
        way: str,
        source: str,
        path: tuple[str | int, ...],
    ) -> tuple[Any, Any]:
        for number, part in enumerate(parts):
            value = self._opened(value)
            if isinstance(part, syntax.Each):
                return self._each(value, parts[number + 1 :], way, source, path)
            key: Any = part
            if isinstance(part, syntax.Expression):
                key, missing = self._first(part, path)
                if key is _MISSING:
                    return _MISSING, missing
            found, reason, known = _member(value, key, way)
            if found is _MISSING:
                near = nearest(str(key), known)
                return _MISSING, Missing(
                    template=source,
                    reason=reason,
                    path=path,
                    available=known,
                    suggestion=f"{way}.{near}" if near else None,
                    is_inside=True,
                )
            value = found
            way += f"[{json.dumps(key)}]" if isinstance(key, int) or not syntax.KEY.fullmatch(key) else f".{key}"
        return _plain(value), None

    def _each(
        self,
        value: Any,
        rest: tuple[syntax.Part | syntax.Expression, ...],
        way: str,
        source: str,
        path: tuple[str | int, ...],
    ) -> tuple[Any, Any]:
        if not isinstance(value, list | tuple):
            reason = f"{way} is {_kind(value)}, and `[*]` takes every item of a list"
            return _MISSING, Missing(template=source, reason=reason, path=path, is_inside=True)
        found = []
        for index, item in enumerate(value):
            if isinstance(item, FailedOutputs):
                continue
            one, missing = self._walk(item, rest, f"{way}[{index}]", source, path)
            if one is _MISSING:
                return _MISSING, missing
            found.append(one)
        return found, None

    def _opened(self, value: Any) -> Any:
        """Parses a text that is JSON."""
        if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
            return value
        known = self._parsed.get(id(value))
        if known is None:
            known = self._parsed[id(value)] = (value, opened(value))
        return known[1]


def _why_absent(value: Mapping[str, Any], key: Any, way: str) -> str:
    reasons = value.get(ABSENT)
    reason = reasons.get(key) if isinstance(reasons, Mapping) else None
    return f"{way} has no {key!r}: {reason}" if isinstance(reason, str) else f"{way} has no {key!r}"


def _plain(value: Any) -> Any:
    """Returns failed outputs as an ordinary map."""
    if isinstance(value, FailedOutputs):
        return dict(value)
    if isinstance(value, list):
        return [_plain(one) for one in value] if any(isinstance(one, FailedOutputs) for one in value) else value
    if isinstance(value, dict) and isinstance(value.get("results"), list):
        return {**value, "results": _plain(value["results"])}
    return value


def _member(value: Any, key: Any, way: str) -> tuple[Any, str, tuple[str, ...]]:
    """Returns the value of the key, or the reason why it is missing and the available keys."""
    if isinstance(key, bool) or not isinstance(key, str | int):
        return _MISSING, f"{as_text(key)[:40] or 'null'} is neither a key nor an index of {way}", ()
    if isinstance(value, Mapping):
        found = value.get(key, _MISSING) if isinstance(key, str) else value.get(str(key), _MISSING)
        if found is not _MISSING:
            return found, "", ()
        return found, _why_absent(value, key, way), tuple(str(name) for name in value if name != ABSENT)
    if isinstance(value, list | tuple):
        index = int(key) if isinstance(key, str) and key.isascii() and key.isdecimal() and len(key) < 10 else key
        if not isinstance(index, int):
            return _MISSING, f"{way} is a list, and {key!r} is not an index", ()
        if -len(value) <= index < len(value):
            return value[index], "", ()
        return _MISSING, f"{way} has {len(value)} items and no [{index}]", ()
    return _MISSING, f"{way} is {_kind(value)} and has no {key!r}", ()


def _kind(value: Any) -> str:
    if isinstance(value, Mapping):
        return "a map"
    return "null" if value is None else "a text that is not JSON" if isinstance(value, str) else as_text(value)[:40]
