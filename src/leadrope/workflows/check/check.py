"""Checks a workflow before anything runs, against the step types passed in as data."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from leadrope.workflows import links, routing
from leadrope.workflows.check import access, groups, loops, order, routes
from leadrope.workflows.check.order import LOOP_HINT
from leadrope.workflows.check.step import StepCheck, StepType, tagged
from leadrope.workflows.language import habits, schema_match, templates
from leadrope.workflows.language.markdown import WorkflowDocument
from leadrope.workflows.language.markdown_values import KeyLines
from leadrope.workflows.language.model_builder import NOTHING
from leadrope.workflows.language.template_syntax import EACH, Part
from leadrope.workflows.model import Input, Output, Step, Workflow
from leadrope.workflows.problems import Findings, Path, Places, Position, WorkflowProblem, nearest

if TYPE_CHECKING:
    from leadrope.workflows.check.subworkflow_check import CalledWorkflow

_ERROR: Mapping[str, Any] = {
    "type": "object",
    "properties": {"kind": {"type": "string"}, "message": {"type": "string"}, "hint": {"type": ["string", "null"]}},
}
_ITEM: Mapping[str, Any] = {"item": {}, "index": {"type": "integer"}}
BATCH_OUTPUTS: Mapping[str, Any] = {
    "results": {"type": "array"},
    "count": {"type": "integer"},
    "success_count": {"type": "integer"},
    "error_count": {"type": "integer"},
    "errors": {
        "type": "array",
        "items": {"type": "object", "properties": {**_ITEM, **_ERROR["properties"]}},
    },
}
LOOP_OUTPUTS: Mapping[str, Any] = {"iterations": {"type": "integer"}, "loop_stopped": {"type": "string"}}
ERROR_OUTPUTS: Mapping[str, Any] = {"error": _ERROR}
"""The outputs of a step whose error another one handles: `kind`, `message` and `hint` of the error."""

_HALVES = (("batch",), ("loop",))


def check_document(
    document: WorkflowDocument, types: Mapping[str, StepType], inner: Mapping[str, CalledWorkflow] | None = None
) -> tuple[WorkflowProblem, ...]:
    """Returns everything that is wrong with a file, in order; what could not be read is reported once and not checked.

    `inner` describes the workflows that steps call, by step.
    """
    # A `batch` or `loop` with an error inside is not in the model; what it would add is then unknown.
    halves = {one.path[:3] for one in document.problems if one.severity == "error" and one.path[2:3] in _HALVES}
    found = check(
        document.workflow,
        types,
        document.places,
        document.unreadable | halves,
        document.respelt,
        inner,
        document.key_lines,
    )
    is_empty_told = any(one.kind in ("no_steps", "too_long") for one in document.problems)
    every = [*document.problems, *(one for one in found if one.kind != "no_steps" or not is_empty_told)]
    # The same error in other words: with the parameter below it the value is not valid YAML.
    indented = {one.path for one in every if one.kind == "indented_parameter"}
    foreign = {one.path for one in every if one.kind == "foreign_template"}
    every = [one for one in every if one.kind != "not_yaml" or one.path not in (*indented, *foreign)]
    if document.workflow.dialect == "pflow":
        every = [_softened(one) for one in every]
    return tuple(sorted(tagged(every), key=lambda one: (one.line, one.column)))


def _softened(one: WorkflowProblem) -> WorkflowProblem:
    """Downgrades unreachable steps in pflow's files to warnings: pflow accepts them, and they never run."""
    return msgspec.structs.replace(one, severity="warning") if one.kind == "unreachable_step" else one


def check(
    workflow: Workflow,
    types: Mapping[str, StepType],
    places: Places | None = None,
    unreadable: Iterable[Path] = (),
    respelt: Mapping[Path, str] | None = None,
    inner: Mapping[str, CalledWorkflow] | None = None,
    key_lines: Mapping[Path, KeyLines] | None = None,
) -> tuple[WorkflowProblem, ...]:
    """Returns all errors and warnings, without duplicates."""
    findings = Findings(places or {})
    of_steps = StepCheck(
        types, findings, unreadable=frozenset(unreadable), respelt=respelt or {}, key_lines=key_lines or {}
    )
    return tuple(_Checker(workflow, types, places or {}, findings, of_steps, inner or {}).run())


class _Checker:
    def __init__(
        self,
        workflow: Workflow,
        types: Mapping[str, StepType],
        places: Places,
        findings: Findings,
        of_steps: StepCheck,
        inner: Mapping[str, CalledWorkflow],
    ) -> None:
        self._workflow = workflow
        self._types = types
        self._places = places
        self._findings = findings
        self._of_steps = of_steps
        self._every = workflow.every_step
        self._steps = {step.id: step for step in self._every}
        self._groups = groups.Groups(workflow.steps)
        # A second step of the same name has a name that only its problems use.
        self._named = tuple(name for name in self._steps if not of_steps.is_unreadable(("steps", name)))
        self._inputs = {one.name: one for one in workflow.inputs}
        self._inner = inner
        self._levels = [links.links_between(steps, workflow.dialect) for steps in workflow.levels]
        self._used: set[str] = set()

    def run(self) -> Findings:
        self._names()
        for step in self._every:
            self._targets(step)
            self._of_steps.look(step)
            if self._workflow.dialect == "flow":
                self._of_steps.retry(step)
            groups.look(step, self._findings)
            around = [self._steps[name] for name in self._groups.around(step.id)]
            outer = tuple(name for group in around for name in links.scope_names(group))
            own = (*links.scope_names(step), *((step.id,) if step.loop else ()), *outer)
            for key, value in links.templated(step).items():
                if key != "batch":
                    self._templates(value, ("steps", step.id, key), own, self._wanted(step, key))
            loops.look(step, (*self._inputs, *self._steps), self._findings)
            if step.batch is not None:
                self._items(step, step.batch.items, (*(step.loop.carry if step.loop else ()), *outer))
        for output in self._workflow.outputs:
            self._templates(output.source, ("outputs", output.name, "source"), (), None)
            self._source(output)
        self._inside()
        access.look(self._workflow, self._findings)
        for steps in self._workflow.levels:
            level = msgspec.structs.replace(self._workflow, steps=steps)
            order.look(level, self._findings, self._of_steps)
            routes.look(level, self._findings)
        for path, rules in (
            (("settings", "policy"), self._workflow.settings.policy),
            *((("steps", step.id, "policy"), step.policy) for step in self._every),
        ):
            if rules is not None:
                self._of_steps.policy(rules, path)
        for one in self._workflow.inputs:
            self._input(one)
        return self._findings

    def _names(self) -> None:
        if not self._workflow.steps:
            self._findings.add("no_steps", "the workflow has no steps", Position(line=1) if self._places else None)
        for name in self._steps:
            if name.lower() in NOTHING:
                self._findings.add(
                    "bad_id",
                    f"no step can be called {name!r}: after `next` that word means that nothing follows",
                    path=("steps", name),
                    found=name,
                    suggestion=f"{name}-step",
                )
        for section, names in (
            ("steps", [step.id for step in self._every]),
            ("inputs", [one.name for one in self._workflow.inputs]),
            ("outputs", [one.name for one in self._workflow.outputs]),
        ):
            for name in (
                sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else ()
            ):
                self._findings.add("duplicate_id", f"the {section[:-1]} {name!r} is there twice", path=(section, name))
        for name in self._inputs:
            if name in self._steps:
                self._used.add(name)
                self._findings.add(
                    "duplicate_id",
                    f"{name!r} is an input and a step, so ${{{name}}} could be either",
                    path=("steps", name),
                    found=name,
                    hint="Give one of them another name.",
                )
        shown = [one.name for one in self._workflow.outputs if one.stdout]
        for name in shown[1:]:
            self._findings.add(
                "second_stdout",
                f"{name!r} and {shown[0]!r} both go to standard output",
                path=("outputs", name, "stdout"),
            )
        pipes = [one.name for one in self._workflow.inputs if one.stdin]
        for name in pipes[1:]:
            self._findings.add(
                "second_stdin", f"{name!r} and {pipes[0]!r} both take standard input", path=("inputs", name, "stdin")
            )

    def _targets(self, step: Step) -> None:
        chooses = step.next is not None and routing.ways(step, self._workflow.dialect) is not None
        following = [name for name in step.next or () if not (chooses and name == routing.END)]
        named = [*(("after", name) for name in step.after or ()), *(("next", name) for name in following)]
        named += [("next", name) for names in (step.branches or {}).values() for name in names]
        named += [("on-error", step.on_error)] if step.on_error is not None else []
        for key, name in named:
            path = ("steps", step.id, key if key != "on-error" else self._spelled(step, "on-error", "on_error"))
            if name == step.id:
                self._findings.add("cycle", f"{key!r} of {step.id!r} names the step itself", path=path, hint=LOOP_HINT)
            elif name not in self._steps:
                self._findings.add(
                    "unknown_step",
                    f"{key!r} of {step.id!r} names {name!r}, and there is no such step",
                    path=path,
                    found=name,
                    available=self._named,
                )
            elif self._groups.around(name) != self._groups.around(step.id):
                group = (self._groups.around(name) or self._groups.around(step.id))[-1]
                self._findings.add(
                    "other_group",
                    f"{key!r} of {step.id!r} names {name!r}, and only one of the two is inside {group!r}",
                    path=path,
                    found=name,
                    hint="A group is left when its steps are done; what follows is said by the group itself.",
                )

    def _is_half(self, step: Step) -> bool:
        """Whether the step has a `batch` or `loop` that could not be read."""
        return (step.batch is None and self._of_steps.is_unreadable(("steps", step.id, "batch"))) or (
            step.loop is None and self._of_steps.is_unreadable(("steps", step.id, "loop"))
        )

    def _spelled(self, step: Step, *keys: str) -> str:
        return next((key for key in keys if ("steps", step.id, key) in self._places), keys[0])

    def _wanted(self, step: Step, key: str) -> frozenset[str] | None:
        """Returns the types that a parameter accepts, for a single template in it."""
        kind = self._types.get(step.type)
        if key in ("timeout", "budget"):
            return frozenset(("number",))
        if kind is None or key not in step.parameters:
            return None
        schema = kind.parameters.get("properties", {}).get(key)
        return schema_match.types_of(schema, kind.parameters) if isinstance(schema, Mapping) else None

    def _templates(self, value: Any, path: Path, own: tuple[str, ...], wanted: frozenset[str] | None) -> None:
        foreign = {(one.path, one.offset) for one in self._foreign(value, path, own)}
        for one in templates.broken(value):
            if (tuple(map(str, one.path)), one.offset) in foreign:
                continue
            self._findings.add(
                "bad_template",
                f"{one.source} is not a template: {one.message}",
                self._where(path, one),
                path=(*path, *map(str, one.path)),
                found=one.source,
                hint=templates.ESCAPE_HINT,
            )
        for reference in templates.references(value):
            self._reference(reference, path, own, wanted)

    def _foreign(self, value: Any, path: Path, own: tuple[str, ...]) -> Iterator[habits.Braces]:
        """Reports `{{ name }}`, which is not replaced; certainly an error if something has that name."""
        if path[0] == "outputs" and self._meant(value) is not None:
            return  # reported as a source without its marks
        for one in habits.braces(value):
            meant = habits.template_for(one.name, self._named, self._inputs, own)
            self._findings.add(
                "foreign_template",
                f"{one.source} is not a template, and stays as it is",
                self._findings.place((*path, *one.path)).at(one.text, one.offset),
                path=(*path, *one.path),
                found=one.source,
                suggestion=meant or f"${{{one.name.lstrip('$')}}}",
                hint=f"The text itself is written `${{{json.dumps(one.source)}}}`." if meant else None,
                warns=meant is None,
            )
            yield one

    def _source(self, output: Output) -> None:
        """Reports a template without `${}`, which would be an ordinary text and never fail."""
        path = ("outputs", output.name, "source")
        value = output.source
        meant = self._meant(value)
        if meant is not None:
            self._findings.add(
                "no_template",
                f"the source of {output.name!r} is the text {value!r} and no template",
                path=path,
                found=value,
                suggestion=meant,
                hint=f'The text itself is written `${{"{value}"}}`.',
            )
        elif value is not None and not any(templates.texts(value)):
            self._findings.add(
                "constant_output",
                f"the output {output.name!r} is always {templates.as_text(value)[:60]!r}: its source has no template",
                path=path,
                found=templates.as_text(value)[:60],
                warns=True,
                hint="Write `- source: ${step.key}`.",
            )

    def _meant(self, value: Any) -> str | None:
        """Returns `f.stdout` as a template, if something is called `f`."""
        if not isinstance(value, str) or any(templates.texts(value)):
            return None
        meant = f"${{{value.strip(' ${}')}}}"
        named = templates.references(meant)
        known = len(named) == 1 and named[0].is_alone and named[0].root in (*self._inputs, *self._steps)
        return meant if known else None

    def _items(self, step: Step, items: Any, names: tuple[str, ...]) -> None:
        path = ("steps", step.id, "batch", "items")
        self._templates(items, path, names, frozenset(("array",)))
        if (isinstance(items, str) and items.lstrip()[:1] == "[") or templates.broken(items):
            return  # a text that is a list in JSON is accepted
        for misfit in schema_match.misfits(items, {"type": "array"}):
            self._findings.add(
                "wrong_type",
                "batch.items: " + misfit.message.replace("a list", "a list, or a template that gives one"),
                path=path,
                found=misfit.found,
                suggestion=self._meant(items),
                hint=misfit.hint,
            )

    def _where(self, path: Path, one: templates.Reference | templates.Broken) -> Position:
        return self._findings.place((*path, *map(str, one.path))).at(one.text, one.offset)

    def _reference(
        self, one: templates.Reference, path: Path, own: tuple[str, ...], wanted: frozenset[str] | None
    ) -> None:
        where = self._where(path, one)
        here = (*path, *map(str, one.path))
        given: frozenset[str] = frozenset()
        if one.root in self._inputs:
            self._used.add(one.root)
            kind = self._inputs[one.root].type
            given = frozenset((kind,)) if not one.parts else frozenset()
            if kind != "any":
                self._path({"type": kind}, one.parts, one.root, one, here, where)
        elif one.root in self._steps and not (one.root in own and one.root not in path[:2]):
            if self._groups.can_see(here, one.root):
                given = self._output(self._steps[one.root], one, here, where)
                self._may_have_failed(self._steps[one.root], one, here, where)
            else:
                self._out_of_sight(one, here, where)
        elif one.root not in own and access.is_secret(one, path):
            step = self._steps[path[1]]
            access.secret(one, step, self._types, self._findings, path=here, where=where)
        elif one.root not in own and not (path[0] == "steps" and self._is_half(self._steps[path[1]])):
            names = (*own, *self._inputs, *self._named)
            near = nearest(one.root, names)
            likely = f"${{{near}{one.source[len(one.root) :]}}}" if near else None
            self._findings.add(
                "unknown_template",
                f"${{{one.source}}} names {one.root!r}, and nothing is called that here",
                where,
                path=here,
                found=one.root,
                available=names,
                suggestion=habits.template_for(one.source, self._named, self._inputs, own) or likely,
                hint=habits.ROOT_HINTS.get(one.root, templates.ESCAPE_HINT),
            )
        if one.is_alone and not one.path and wanted and not schema_match.can_be(given, wanted):
            self._findings.add(
                "wrong_type",
                f"{path[-1]}: expected {schema_match.spoken(wanted)}, "
                f"and ${{{one.source}}} is {schema_match.spoken(given)}",
                where,
                path=here,
                found=f"${{{one.source}}}",
            )

    def _may_have_failed(self, used: Step, one: templates.Reference, path: Path, where: Position) -> None:
        """Reports a step that runs both after another one and after what handles that one's error."""
        is_guarded = one.has_fallback or one.parts[:1] == ("error",) or "exists(" in one.text
        if used.on_error is None or is_guarded or path[0] != "steps" or used.on_error not in self._steps:
            return
        level = next(level for level in self._levels if used.id in level.into)
        user = self._groups.beside(used.id, path[1])
        if used.on_error in level.into and user in level.led_to((used.on_error,)) - level.after_error(used.id):
            self._findings.add(
                "may_be_missing",
                f"${{{one.source}}} has no value when {used.id!r} fails and {used.on_error!r} takes over",
                where,
                path=path,
                found=f"${{{one.source}}}",
                warns=True,
                hint=templates.FALLBACK_HINT,
            )

    def _out_of_sight(self, one: templates.Reference, path: Path, where: Position) -> None:
        group = self._groups.around(one.root)[-1]
        told = self._groups.told(one.root) + one.source[len(one.root) :]
        self._findings.add(
            "unknown_template",
            f"${{{one.source}}}: the step {one.root!r} is inside the group {group!r}",
            where,
            path=path,
            found=one.root,
            suggestion=f"${{{told}}}" if path[:2] != ("steps", group) else None,
            hint="It has no value before the group has begun." if path[:2] == ("steps", group) else None,
        )

    def _output(self, step: Step, one: templates.Reference, path: Path, where: Position) -> frozenset[str]:
        inner = next((inner for inner in step.steps if one.parts and inner.id == one.parts[0]), None)
        if inner is not None and step.batch is None:
            return self._output(inner, msgspec.structs.replace(one, parts=one.parts[1:]), path, where)
        kind = self._types.get(step.type)
        if kind is None or not one.parts or not isinstance(one.parts[0], str):
            if EACH in one.parts[:1]:
                self._path({"type": "object"}, one.parts, step.id, one, path, where)
            return frozenset(("object",)) if kind is not None and not one.parts else frozenset()
        called = self._inner.get(step.id)
        own = groups.outputs_of(step)
        if called is not None and called.outputs is not None:
            own = {name: {} for name in called.outputs}
        elif kind.own_outputs is not None and (names := kind.own_outputs(step.parameters)) is not None:
            own = {name: {} for name in names}
        outputs = {
            **(_batch_outputs(kind, own) if step.batch else own if own is not None else kind.outputs),
            **(LOOP_OUTPUTS if step.loop else {}),
            **(ERROR_OUTPUTS if step.on_error is not None else {}),
        }
        name = one.parts[0]
        if name not in outputs and self._is_half(step):
            return frozenset()
        if name not in outputs:
            if not kind.has_open_outputs or step.batch or own is not None:
                near = nearest(name, outputs)
                self._findings.add(
                    "unknown_template",
                    f"${{{one.source}}}: the step {step.id!r} ({step.type}) gives no {name!r}",
                    where,
                    path=path,
                    found=name,
                    available=outputs,
                    suggestion=f"${{{step.id}.{near}}}" if near else None,
                    hint=f"{called.file} declares no outputs."
                    if called is not None and own == {} and not step.batch
                    else None,
                )
            return frozenset()
        schema = outputs[name]
        said = step.parameters.get(kind.output_schemas.get(name, ""))
        if kind.outputs_of is not None:
            said = kind.outputs_of(step.parameters).get(name, said)
        if isinstance(said, Mapping) and not step.batch:
            schema = said
        if isinstance(schema, Mapping):
            self._path(schema, one.parts[1:], f"{step.id}.{name}", one, path, where)
        if EACH in one.parts:
            return frozenset(("array",))
        return (
            schema_match.types_of(schema, schema)
            if len(one.parts) == 1 and isinstance(schema, Mapping)
            else frozenset()
        )

    def _path(
        self,
        schema: Mapping[str, Any],
        parts: tuple[Part, ...],
        way: str,
        one: templates.Reference,
        path: Path,
        where: Position,
    ) -> None:
        """Checks the path after an input or an output against its schema; warns only if the value may have more."""
        found = schema_match.dead_end(schema, parts, way)
        if found is not None:
            self._findings.add(
                "unknown_template",
                f"${{{one.source}}}: {found.message}",
                where,
                path=path,
                found=found.part,
                available=found.available,
                suggestion=f"${{{found.suggestion}}}" if found.suggestion else None,
                warns=not found.is_certain,
            )

    def _inside(self) -> None:
        if self._inner:
            from leadrope.workflows.check.subworkflow_check import InsideCheck  # noqa: PLC0415  # few workflows call others

            inside = InsideCheck(self._workflow, self._inner, self._findings, self._of_steps)
            for step in self._every:
                inside.look(step)

    def _input(self, one: Input) -> None:
        path = ("inputs", one.name)
        if one.default is not UNSET and one.default is not None and one.type != "any":
            for misfit in schema_match.misfits(one.default, {"type": one.type}):
                self._findings.add(
                    "wrong_type",
                    f"default: {misfit.message}",
                    path=(*path, "default"),
                    found=misfit.found,
                    hint=self._of_steps.hint(misfit, (*path, "default")),
                )
        if one.name not in self._used:
            self._findings.add("unused_input", f"no step uses the input {one.name!r}", path=path, warns=True)


def _batch_outputs(kind: StepType, own: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the outputs of a batch, whose `results` contain those of the step itself."""
    known = own if own is not None else kind.outputs
    is_open = kind.has_open_outputs and own is None
    properties = {**known, **_ITEM, "error": _ERROR}
    item = {"type": "object", "properties": properties, "additionalProperties": is_open}
    return {**BATCH_OUTPUTS, "results": {"type": "array", "items": item}}
