"""Builds the model from plain values, for files and canvases; reports misfits with their position."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET

from leadrope.regex import regex
from leadrope.workflows import model
from leadrope.workflows.language import habits, schema_match, templates
from leadrope.workflows.problems import Findings, Path, nearest

P = TypeVar("P", bound=msgspec.Struct)

_AT = regex(r" - at `\$(.*)`$")
_VARIABLE = regex(r"[A-Za-z_][A-Za-z0-9_]*")
NOTHING = ("none", "nothing", "end")
"""Used instead of a step in `next` and `after`; no step can have these names."""
_OLD_NAMES: Mapping[str, Mapping[str, str]] = {"agent": {"walls": "sandbox"}}
"""By type: parameters of earlier versions, which files and stored executions may still have."""


class Shape:
    """The path that values come from, and the findings to which errors are added."""

    def __init__(self, findings: Findings, path: Path, unreadable: Collection[Path] = frozenset()) -> None:
        self.findings = findings
        self.path = path
        self._unreadable = unreadable

    def wrong(self, kind: str, message: str, *inner: str, **more: Any) -> None:
        path = (*self.path, *inner)
        if path not in self._unreadable:
            self.findings.add(kind, message, path=path, **more)

    def known(self, values: Mapping[str, Any], keys: Iterable[str], *inner: str, what: str = "parameter") -> None:
        names = tuple(keys)
        for key in values:
            if key not in names:
                self.wrong(
                    f"unknown_{what}",
                    f"there is no {what} {key!r}",
                    *inner,
                    key,
                    found=key,
                    available=names,
                    at_key=True,
                )

    def part(self, kind: type[P], values: Any, key: str) -> P | None:
        """Converts the values to a part of the model; None if they do not fit."""
        if values is None:
            return None
        fields = kind.__struct_encode_fields__
        if not isinstance(values, dict):
            self.wrong(
                "wrong_type", f"{key!r} is a map of {', '.join(fields)}", key, found=templates.as_text(values)[:60]
            )
            return None
        self.known(values, fields, key, what="key")
        try:
            return msgspec.convert({name: value for name, value in values.items() if name in fields}, kind)
        except msgspec.ValidationError as error:
            if self._misfits(kind, values, key):
                return None
            at = _AT.search(str(error))
            inner = [part for part in re.split(r"[.\[\]]", at[1]) if part] if at else []
            message = _AT.sub("", str(error))
            self.wrong("wrong_type", f"{'.'.join((key, *inner))}: {message}", key, *inner)
            return None

    def _misfits(self, kind: type[msgspec.Struct], values: Mapping[str, Any], key: str) -> bool:
        """Reports every misfit, since the types themselves report only the first. Templates count as fitting here."""
        schema = msgspec.json.schema(kind)
        found = [one for one in schema_match.misfits(values, schema) if not one.is_unknown]
        for one in found:
            self.wrong(
                "wrong_type",
                f"{'.'.join((key, *one.path))}: {one.message}",
                key,
                *one.path,
                found=one.found,
                available=one.available,
                suggestion=one.suggestion,
                hint=one.hint,
            )
        return bool(found)


def old_names(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Parameters of a step that have another name now, with that name."""
    kind = values.get("type")
    names = _OLD_NAMES.get(kind, {}) if isinstance(kind, str) else {}
    return [(old, new) for old, new in names.items() if old in values and new not in values]


def step(name: str, description: str, values: Mapping[str, Any], shape: Shape) -> model.Step:
    renamed = dict(old_names(values))
    for old, new in renamed.items():
        shape.wrong("old_name", f"{old!r} will be removed; use {new!r}", old, found=old, at_key=True, warns=True)
    values = {renamed.get(key, key): value for key, value in values.items()}
    said: dict[str, Any] = {}
    parameters: dict[str, Any] = {}
    for key, value in values.items():
        attribute = model.attribute(key)
        if attribute is None:
            parameters[key] = value
        elif attribute in said:
            shape.wrong("duplicate_parameter", f"{key!r} is given twice", key, hint="Remove one of them.", at_key=True)
        else:
            said[attribute] = (key, value)
    of = _Attributes(said, parameters, shape)
    following, branches = of.following()
    return model.Step(
        id=name,
        type=of.step_type(),
        description=description,
        parameters=parameters,
        after=of.names("after"),
        next=following,
        branches=branches,
        on_error=of.on_error(),
        when=of.value("when"),
        batch=of.part("batch", model.Batch),
        loop=of.loop(),
        retry=of.part("retry", model.Retry),
        timeout=of.number("timeout"),
        cache=of.flag("cache"),
        approval=of.approval(),
        budget=of.number("budget"),
        policy=of.mapping("policy"),
    )


def input_(name: str, description: str, values: Mapping[str, Any], shape: Shape) -> model.Input:
    default = values.get("default", UNSET)
    flags = {}
    for key, usual in (("required", default is UNSET), ("stdin", False)):
        flags[key] = values.get(key, usual)
        if not isinstance(flags[key], bool):
            shape.wrong("wrong_type", f"{key!r} is true or false", key, found=templates.as_text(flags[key])[:60])
            flags[key] = usual
    return model.Input(
        name=name,
        type=_type(values, shape, "input"),
        default=default,
        description=description or _text(values, "description"),
        env=_variable(values.get("env", ""), shape),
        **flags,
    )


def _variable(value: Any, shape: Shape) -> str:
    if isinstance(value, str) and (not value or _VARIABLE.fullmatch(value)):
        return value
    shape.wrong(
        "wrong_type",
        "'env' is the name of a variable",
        "env",
        found=templates.as_text(value)[:60],
        hint="Write the name alone, without $.",
    )
    return ""


def _type(values: Mapping[str, Any], shape: Shape, what: str) -> model.InputType:
    word = values.get("type", "any")
    kind = model.TYPE_WORDS.get(word) if isinstance(word, str) else None
    if kind is None:
        shape.wrong(
            "wrong_type",
            f"there is no {what} type {templates.as_text(word)!r}",
            "type",
            found=templates.as_text(word),
            available=model.INPUT_TYPES,
        )
    return kind or "any"


def output(name: str, description: str, values: Mapping[str, Any], shape: Shape) -> model.Output:
    if values.get("source") is None:
        shape.wrong("no_source", f"the output {name!r} has no source", "source", hint="Write `- source: ${step.key}`.")
    is_stdout = values.get("stdout", False)
    if not isinstance(is_stdout, bool):
        shape.wrong("wrong_type", "'stdout' is true or false", "stdout", found=templates.as_text(is_stdout)[:60])
    return model.Output(
        name=name,
        source=values.get("source"),
        type=_type(values, shape, "output"),
        stdout=is_stdout is True,
        description=description or _text(values, "description"),
    )


def settings(values: Mapping[str, Any], shape: Shape) -> model.WorkflowSettings:
    """Builds the settings; `shape` is that of the whole file, as settings have no entry of their own."""
    given = {key: value for key, value in values.items() if value is not None}
    return shape.part(model.WorkflowSettings, given, "settings") or model.WorkflowSettings()


def slug(text: str) -> str:
    found = re.sub(r"[^A-Za-z0-9_]+", "-", text).strip("-").lower()
    return found if model.ID.fullmatch(found) else ""


def _text(values: Mapping[str, Any], key: str) -> str:
    return model.tidied(templates.as_text(values.get(key)))


def _is_type(key: str) -> bool:
    """Whether the key is another tool's name for `type`, such as `uses`."""
    habit = habits.key(key, ())
    return habit is not None and habit.words == ("type",)


class _Attributes:
    """The attributes that every step may have, each read from its key."""

    def __init__(self, said: Mapping[str, tuple[str, Any]], others: Iterable[str], shape: Shape) -> None:
        self._said = said
        self._others = others
        self._shape = shape

    def value(self, name: str) -> Any:
        return self._said[name][1] if name in self._said else None

    def _wrong(self, name: str, message: str, **more: Any) -> None:
        key, value = self._said[name]
        self._shape.wrong("wrong_type", f"{key!r} {message}", key, found=templates.as_text(value)[:60], **more)

    def step_type(self) -> str:
        value = self.value("type")
        if isinstance(value, str) and value:
            return value
        if value is None and "type" not in self._said:
            near = nearest("type", self._others) or next(filter(_is_type, self._others), None)
            likely = habits.type_for(tuple(self._others)) or "…"
            self._shape.wrong(
                "no_type",
                f"the step {self._shape.path[-1]!r} has no type" + (f", but {near!r}" if near else ""),
                *((near,) if near else ("type",)),
                found=near,
                at_key=True,
                suggestion="type" if near else None,
                hint=None if near else f"Write `- type: {likely}` below its heading.",
            )
        else:
            self._wrong("type", "is the name of a step type")
        return ""

    def names(self, name: str) -> tuple[str, ...] | None:
        return None if name not in self._said else self._listed(name, self.value(name))

    def _listed(self, name: str, value: Any) -> tuple[str, ...] | None:
        if value is None or value == []:
            return ()
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",")]
            if len(value) == 1 and value[0].lower() in NOTHING:
                return ()
        if isinstance(value, list) and all(isinstance(one, str) and one for one in value):
            return tuple(dict.fromkeys(value))
        self._wrong(name, "is a step or a list of steps")
        return None

    def following(self) -> tuple[tuple[str, ...] | None, dict[str, tuple[str, ...]] | None]:
        value = self.value("next")
        if not isinstance(value, dict):
            return self.names("next"), None
        return None, {key: self._listed("next", inner) or () for key, inner in value.items()}

    def on_error(self) -> str | None:
        value = self.value("on_error")
        if value is None or isinstance(value, str):
            return value or None
        self._wrong("on_error", "is one step")
        return None

    def part(self, name: str, kind: type[P]) -> P | None:
        return self._shape.part(kind, self.value(name), name)

    def loop(self) -> model.Loop | None:
        found = self.part("loop", model.Loop)
        if found is not None and found.while_ is not None and found.until is not None:
            self._wrong("loop", "has `while` and `until`; one of them ends it")
        for key in ("max_iterations", "wait", "max_seconds"):
            value = getattr(found, key, None)
            if isinstance(value, str) and not templates.is_template(value):
                message = f"loop.{key}: expected a number or a template, found {value!r}"
                self._shape.wrong("wrong_type", message, "loop", key, found=value)
        return found

    def number(self, name: str) -> float | str | None:
        value = self.value(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            return value
        if value is None or (isinstance(value, str) and templates.is_template(value)):
            return value
        self._wrong(name, "is a number above 0, or a template")
        return None

    def flag(self, name: str) -> bool | None:
        value = self.value(name)
        if value is None or isinstance(value, bool):
            return value
        self._wrong(name, "is true or false")
        return None

    def approval(self) -> bool:
        value = self.value("approval")
        if isinstance(value, bool):
            return value
        if value not in (None, "required", "none"):
            self._wrong("approval", "is `required` or `none`", available=("required", "none"))
        return bool(value == "required")

    def mapping(self, name: str) -> dict[str, Any] | None:
        value = self.value(name)
        if value is None or isinstance(value, dict):
            return value
        self._wrong(name, "is a map")
        return None
