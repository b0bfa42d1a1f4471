"""Checks one step against its type: parameters, branches, conditions, policy rules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from leadrope import errors
from leadrope.workflows.language import choices, habits, schema_match, templates
from leadrope.workflows.language.markdown_values import KeyLines, tell_indented
from leadrope.workflows.model import Step, attribute
from leadrope.workflows.problems import Findings, Path, WorkflowProblem, nearest

_OWN_CODES = {"shell": "an exit code of the command", "code": "an exception of the code"}
"""How a step type's program itself can fail."""
_LANGUAGES = {"command": "shell", "code": "python"}
"""The languages of blocks, by the parameter that they set."""


class StepType(msgspec.Struct, frozen=True, kw_only=True):
    """What a step type accepts and returns."""

    parameters: Mapping[str, Any]
    """JSON Schema of its parameters; closed unless it has `additionalProperties`."""
    outputs: Mapping[str, Any] = {}
    """JSON Schemas by output name; `{}` for any value."""
    has_open_outputs: bool = False
    """It may return more than it declares: code that a user wrote, a foreign tool."""
    own_outputs: Callable[[Mapping[str, Any]], Collection[str] | None] | None = None
    """The outputs of a step with these parameters, if the parameters name them; None if unknown."""
    output_schemas: Mapping[str, str] = {}
    """Outputs whose schema is in a parameter: {"result": "output_schema"}."""
    outputs_of: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    """Schemas of outputs that depend on the parameters as written."""
    mistakes: Callable[[Mapping[str, Any]], Iterable[tuple[str, str]]] | None = None
    """Yields errors in the parameters as written that a schema cannot express: the parameter, and what is wrong."""
    branches: Callable[[Mapping[str, Any]], Collection[str] | None] | None = None
    """The branches that a step with these parameters may choose; None if unknown."""
    secret_references: Collection[str] = ()
    """Parameters in which `${secret.NAME}` is allowed."""


class StepCheck:
    """Reports errors within single steps, except in their order and in the names of templates."""

    def __init__(
        self,
        types: Mapping[str, StepType],
        findings: Findings,
        *,
        unreadable: frozenset[Path],
        respelt: Mapping[Path, str],
        key_lines: Mapping[Path, KeyLines],
    ) -> None:
        self._types = types
        self._findings = findings
        self._unreadable = unreadable
        self._respelt = respelt
        self._key_lines = key_lines

    def is_unreadable(self, path: Path) -> bool:
        return path in self._unreadable

    def look(self, step: Step) -> None:
        self._branches(step)
        self._respellings(step)
        self._parameters(step)
        self._mistakes(step)
        self._conditions(step)

    def _parameters(self, step: Step) -> None:
        if not step.type:
            return
        kind = self._types.get(step.type)
        if kind is None:
            self._findings.add(
                "unknown_type",
                f"there is no step type {step.type!r}",
                path=("steps", step.id, "type"),
                found=step.type,
                available=self._types,
                suggestion=habits.TYPES.get(step.type.lower()),
            )
            return
        schema = {"additionalProperties": False, **kind.parameters, "type": "object"}
        given = self._written(step, schema)
        for key in ("timeout", "budget", "cache", "policy"):
            # A type can have its own bounds for what every step may have: an agent gets at least 30 s.
            if key in schema.get("properties", {}) and getattr(step, key) is not None:
                given[key] = getattr(step, key)
        indented = set(self._indented(step, schema))
        every = [
            one for one in schema_match.misfits(given, schema) if ("steps", step.id, *one.path[:1]) not in indented
        ]
        unknown = [misfit for misfit in every if misfit.is_unknown and len(misfit.path) == 1]
        meant = {_meant(misfit.path[0], misfit.available)[0] for misfit in unknown}
        for misfit in every:
            path = ("steps", step.id, *misfit.path)
            if path[:3] in self._unreadable:
                continue
            name = ".".join(misfit.path)
            is_own = len(misfit.path) == 1 and (misfit.is_unknown or misfit.path[0] not in given)
            suggestion, hint, is_answered = misfit.suggestion, self.hint(misfit, path), False
            if is_own and misfit.is_unknown:
                kind_of, message = "unknown_parameter", f"the type {step.type!r} has no parameter {name!r}"
                suggestion, hint = _meant(name, misfit.available)
                is_answered = hint != habits.EVERY_STEP_HINT
            elif is_own and (name in meant or f"{name}_file" in step.parameters):
                continue  # present, but misspelt or in an unreadable file, which is reported already
            elif is_own:
                kind_of, message = "missing_parameter", f"the step {step.id!r} needs the parameter {name!r}"
            else:
                kind_of, message = "wrong_type", f"{name}: {misfit.message}"
            self._findings.add(
                kind_of,
                message,
                path=path,
                found=misfit.found,
                available=() if is_answered else misfit.available,
                suggestion=suggestion,
                hint=hint,
                at_key=misfit.is_unknown,
            )

    def _indented(self, step: Step, schema: Mapping[str, Any]) -> Iterator[Path]:
        """Reports parameters that became part of the one above them; yields the paths that need no further report."""
        known: Mapping[str, Any] = schema.get("properties", {})
        for name in step.parameters:
            path = ("steps", step.id, name)
            kinds = schema_match.types_of(known.get(name, {}), schema)
            lines = self._key_lines[path].lines if path in self._key_lines else ()
            is_script = name == "command" and bool(lines)
            is_bare = is_script and not _is_inside(str(step.parameters[name]).partition(lines[0].text)[0])
            for line in lines:
                if line.key not in known and attribute(line.key) is None:
                    continue
                is_needed = line.key in schema.get("required", ()) and line.key not in step.parameters
                # Only a text may contain such a line.
                can_be_meant = not is_needed and not is_bare and (not kinds or "string" in kinds)
                tell_indented(line, path, self._findings, warns=can_be_meant)
                if not can_be_meant:
                    yield from (path, ("steps", step.id, line.key))

    def _written(self, step: Step, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the parameters, with numbers and booleans as texts where only those fit: `- command: true`."""
        given = dict(step.parameters)
        for name, value in step.parameters.items():
            wanted = schema.get("properties", {}).get(name)
            path = ("steps", step.id, name)
            if isinstance(value, bool | int | float) and isinstance(wanted, Mapping) and path not in self._respelt:
                given[name] = templates.as_text(value) if schema_match.wants_text(wanted, schema) else value
        return given

    def hint(self, misfit: schema_match.Misfit, path: Path) -> str | None:
        return (
            schema_match.QUOTES_HINT.format(self._respelt[path])
            if misfit.hint and path in self._respelt
            else misfit.hint
        )

    def _respellings(self, step: Step) -> None:
        """Reports numbers that change as a text: `env: {VERSION: 1.10}` becomes the text 1.1."""
        kind = self._types.get(step.type)
        parameters = kind.parameters if kind is not None else {}
        for path, text in self._respelt.items():
            kinds = schema_match.types_at(parameters, path[2:], parameters) if path[:2] == ("steps", step.id) else ()
            if "string" in kinds and "boolean" in kinds:
                self._findings.add(
                    "respelt",
                    f"{'.'.join(path[2:])}: {text} is not text, and is written another way",
                    path=path,
                    found=text,
                    warns=True,
                    hint=schema_match.QUOTES_HINT.format(text),
                )

    def _branches(self, step: Step) -> None:
        kind = self._types.get(step.type)
        known = kind.branches(step.parameters) if kind is not None and kind.branches is not None else None
        for label in step.branches or ():
            if known is not None and label not in known and label != "else":
                self._findings.add(
                    "unknown_branch",
                    f"the step {step.id!r} never chooses {label!r}"
                    + ("" if known else f": a step of the type {step.type!r} chooses no branch"),
                    path=("steps", step.id, "next", label),
                    found=label,
                    available=(*known, "else") if known else (),
                    hint=None if known else _how_to_choose(step.type),
                    at_key=True,
                )

    def _mistakes(self, step: Step) -> None:
        kind = self._types.get(step.type)
        for name, message in kind.mistakes(step.parameters) if kind is not None and kind.mistakes else ():
            path = ("steps", step.id, name)
            if path not in self._unreadable:
                said = message if name == "type" else f"{name}: {message}"
                self._findings.add("wrong_value", said, path=path)

    def _conditions(self, step: Step) -> None:
        said: list[tuple[Path, Any]] = [(("when",), step.when)]
        if step.loop is not None:
            said += [(("loop", "while"), step.loop.while_), (("loop", "until"), step.loop.until)]
        for path, value in said:
            wrong = choices.mistake(value)
            if wrong is not None:
                self._findings.add(
                    "bad_condition",
                    f"{'.'.join(path)} cannot be read: {wrong}",
                    path=("steps", step.id, *path),
                    found=str(value)[:60],
                )

    def retry(self, step: Step) -> None:
        """Reports a `retry` that never retries, or not in the cases that its author probably expects."""
        if step.retry is None:
            return
        path = ("steps", step.id, "retry")
        if step.retry.max == 1:
            self._findings.add(
                "no_retry",
                "retry: `max` counts all attempts, so `max: 1` means no retry",
                path=(*path, "max"),
                found="1",
                warns=True,
                hint="Write `max: 2` for one more attempt.",
            )
        elif step.type in _OWN_CODES and not step.retry.retry_on and step.timeout is None:
            self._findings.add(
                "exit_code_not_retried",
                f"retry: {_OWN_CODES[step.type]} is not tried again",
                path=path,
                warns=True,
                hint="Add `retry_on: [exit_code]` if another attempt can help, and may do everything once more.",
            )

    def policy(self, rules: dict[str, Any], path: Path) -> None:
        # Takes 60 ms, which only files with policy rules need; the rules are read again at run time.
        from leadrope.policy.resolve import rules_of  # noqa: PLC0415
        from leadrope.policy.schema import PolicyRules  # noqa: PLC0415

        found = schema_match.misfits(rules, msgspec.json.schema(PolicyRules))
        for misfit in found:
            self._findings.add(
                "bad_policy",
                f"{'.'.join(('policy', *misfit.path))}: {misfit.message}",
                path=(*path, *misfit.path),
                found=misfit.found,
                available=misfit.available,
                suggestion=misfit.suggestion,
                hint=misfit.hint,
                at_key=misfit.is_unknown,
            )
        try:
            if not found:
                rules_of(rules)
        except errors.BadValue as error:
            self._findings.add("bad_policy", error.message, path=path, hint=error.hint)


def _how_to_choose(kind: str) -> str:
    after = "Put a step of the type `condition` after it."
    return f"Set `next` to the branch in the code. {after}" if kind == "code" else after


def tagged(problems: Sequence[WorkflowProblem]) -> Iterator[WorkflowProblem]:
    """Merges a block without a parameter and a missing parameter: one mistake, reported once."""
    merged: set[int] = set()
    fences = {
        one.path: one
        for one in reversed(problems)
        if one.kind == "untagged_fence" and one.path[:1] == ("steps",) and one.found not in ("yaml", "yml", "json")
    }
    for one in problems:
        if one.kind == "missing_parameter" and one.path[:2] in fences:
            fence = fences.pop(one.path[:2])
            name = one.path[-1]
            tag = f"```{_LANGUAGES.get(name, fence.found or '')} {name}".replace("``` ", "```")
            yield msgspec.structs.replace(fence, suggestion=tag, hint=None)
            merged.add(id(fence))
        elif one.kind != "untagged_fence":
            yield one
    yield from (one for one in problems if one.kind == "untagged_fence" and id(one) not in merged)


def _meant(name: str, available: Collection[str]) -> tuple[str | None, str | None]:
    """Returns the key that was probably meant, and another hint."""
    habit = habits.key(name, available)
    if habit is None:
        return nearest(name, (*available, *habits.EVERY_STEP)), habits.EVERY_STEP_HINT
    return habit.words[0] if habit.words else None, habit.hint or None


def _is_inside(script: str) -> bool:
    """Whether what follows may be within a text of the script: a here-document, or quotes that are still open."""
    return "<<" in script or any(script.count(quote) % 2 for quote in "\"'`") or script.rstrip(" -").endswith("\\\n")
