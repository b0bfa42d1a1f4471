"""The step `approval`: the workflow continues once a person has approved, chosen or filled in a form."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from leadrope.runs.approvals import forms
from leadrope.workflows.language import templates
from leadrope.workflows.steps.base import Kind, StepConfig, StepContext, StepDone, StepFailed, StepQuestion

MOST_FIELDS = 50


class FieldConfig(StepConfig, frozen=True, kw_only=True):
    type: Annotated[forms.FieldType, Meta(description="What can be given.")] = "text"
    label: Annotated[str, Meta(description="What the person reads (default: the name of the field).")] = ""
    required: Annotated[bool, Meta(description="An answer without it is refused.")] = True
    default: Annotated[Any, Meta(description="The default value, which makes the field optional.")] = UNSET
    choices: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=100)]],
        Meta(max_length=100, description="Of a `choice`: what can be chosen."),
    ] = []


class ApprovalConfig(StepConfig, frozen=True, kw_only=True):
    message: Annotated[str, Meta(description="What the person is asked.")]
    values: Annotated[dict[str, Any], Meta(description="Shown beside it, as they are.")] = {}
    choices: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=100)]],
        Meta(max_length=20, description="What can be chosen; left out: yes or no."),
    ] = []
    fields: Annotated[
        dict[str, FieldConfig],
        Meta(description="A form to fill in: each field with its `type` (text, number, choice, boolean)."),
    ] = {}


def branches(parameters: Mapping[str, Any]) -> tuple[str, ...] | None:
    if "choices" not in parameters:
        return ("approved", "denied")
    choices = templates.settled(parameters).get("choices")
    return (*map(templates.as_text, choices), "denied") if isinstance(choices, list) else None


def mistakes(parameters: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    choices = parameters.get("choices")
    for choice in {str(one) for one in choices if choices.count(one) > 1} if isinstance(choices, list) else ():
        yield "choices", f"{choice!r} is there twice"
    if choices and isinstance(choices, list) and "denied" in choices:
        yield "choices", "`denied` is the branch of a no, and cannot be a choice"
    fields = parameters.get("fields")
    for name, field in fields.items() if isinstance(fields, Mapping) else ():
        for mistake in _field_mistakes(str(name), field):
            yield "fields", mistake


def _field_mistakes(name: str, field: Any) -> Iterator[str]:
    if not name.isidentifier():
        yield f"{name!r} is not a name for a field. Use letters, digits and _."
    if not isinstance(field, Mapping):
        return
    known = templates.settled(field)
    choices = known.get("choices", UNSET if "choices" in field else [])
    if known.get("type", "text") == "choice" and choices == []:
        yield f"{name}: a choice needs `choices`"
    if known.get("type", "text") != "choice" and isinstance(choices, list) and choices:
        yield f"{name}: `choices` are for a field of type choice"
    if "default" in known:
        try:
            config = msgspec.convert({**known, "default": None}, FieldConfig, strict=False)
            forms.value_of(_field(name, config), known["default"])
        except (ValueError, msgspec.ValidationError) as error:
            yield f"{name}: default: {error}"


def _field(name: str, config: FieldConfig) -> forms.FormField:
    default: Any | UnsetType = config.default
    return forms.FormField(
        name=name,
        type=config.type,
        label=config.label,
        required=config.required,
        default=default,
        choices=tuple(config.choices),
    )


def _fields(config: ApprovalConfig) -> tuple[forms.FormField, ...]:
    """Return the form's fields with defaults of the right type: a template may have given a number as text."""
    found = []
    for name, one in config.fields.items():
        field = _field(name, one)
        if field.default is not UNSET and field.default is not None:
            try:
                field = msgspec.structs.replace(field, default=forms.value_of(field, field.default))
            except ValueError as error:
                raise StepFailed(f"the default of {name}: {error}", kind="bad_input") from None
        found.append(field)
    if len(found) > MOST_FIELDS:
        raise StepFailed(f"a form has at most {MOST_FIELDS} fields, and this one has {len(found)}", kind="bad_input")
    return tuple(found)


_TYPES = {"text": "string", "number": "number", "choice": "string", "boolean": "boolean"}


def outputs_of(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of `answer`: the fields with their types."""
    fields = parameters.get("fields", {})
    if not isinstance(fields, Mapping):
        return {}
    properties = {
        str(name): {"type": _TYPES.get(str(field.get("type", "text")), "string")} if isinstance(field, Mapping) else {}
        for name, field in fields.items()
    }
    return {"answer": {"type": "object", "properties": properties, "additionalProperties": False}}


async def run(config: ApprovalConfig, context: StepContext) -> StepDone:
    """Ask the person. A denial takes the branch `denied` if there is one, and otherwise fails the step."""
    fields = _fields(config)
    seen = (config.message, config.values, config.choices, *((fields,) if fields else ()))
    content = msgspec.json.encode(seen, order="deterministic")
    answer = await context.ask(
        StepQuestion(
            kind="step",
            title=context.key.step,
            detail=config.message,
            choices=tuple(config.choices),
            fields=fields,
            values=config.values,
            fingerprint=hashlib.sha256(content).hexdigest(),
        )
    )
    branch = answer.choice or ("approved" if answer.approved else "denied")
    outputs = {
        "approved": answer.approved,
        "choice": answer.choice,
        "answer": answer.answers,
        "reason": answer.reason,
        "by": answer.by,
    }
    if not answer.approved and "denied" not in context.branches:
        why = f": {answer.reason}" if answer.reason else ""
        raise StepFailed(
            f"{context.key.step}: denied by {answer.by}{why}",
            kind="denied",
            hint="A `next` with the branch `denied` continues after a denial.",
            outputs=outputs,
        )
    return StepDone(outputs=outputs, branch=branch)


KIND = Kind(
    name="approval",
    summary="A person approves, chooses, or fills in a form.",
    config=ApprovalConfig,
    outputs={
        "approved": {"type": "boolean"},
        "choice": {"type": "string"},
        "answer": {"type": "object"},
        "reason": {"type": "string"},
        "by": {"type": "string"},
    },
    run=run,
    mistakes=mistakes,
    branches=branches,
    outputs_of=outputs_of,
)
