"""The step `condition`: yes or no, by a text, a pattern, an expression or a value, and the branch that follows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta

from leadrope.workflows.language import choices, conditions, templates
from leadrope.workflows.steps.base import Kind, StepConfig, StepContext, StepDone, StepFailed, as_mistake, brief
from leadrope.workflows.tools import timed_regex

_WAYS = ("contains", "regex", "expression")
_NULL = "null is nothing to look for"
_NOTHING_SAID = "the condition says nothing"
_WHAT_TO_SAY = "Give it `text` or `value`, and contains, regex or expression."
_JOIN = "An `expression` can join several with `and`."


class ConditionConfig(StepConfig, frozen=True, kw_only=True):
    text: Annotated[Any, Meta(description="An output; its last line that is not empty is what is looked at.")] = None
    value: Annotated[Any, Meta(description="What is looked at, all of it. Alone: whether it is true.")] = None
    contains: Annotated[str | bool | int | float | None, Meta(description="Yes where this stands in it.")] = None
    regex: Annotated[str | None, Meta(description="Yes where this matches, anywhere in it (Python's dialect).")] = None
    expression: Annotated[
        str | bool | None,
        Meta(description="Yes where this is true: `${review.result.score} > 3 and line contains 'done'`."),
    ] = None
    case_sensitive: Annotated[bool, Meta(description="Of `contains` and `regex`: `A` and `a` are not the same.")] = (
        False
    )
    negate: Annotated[bool, Meta(description="Yes for no.")] = False


_OWN = ("value", "text", "line")
"""Names available only in expressions."""


def mistakes(parameters: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    ways = [name for name in _WAYS if name in parameters]
    if len(ways) > 1:
        yield ways[1], f"{_both(ways)}. {_JOIN}"
    for name in ways:
        if parameters[name] is None:
            yield name, f'{_NULL}; write "null" for the word'
    if not ways and "text" not in parameters and "value" not in parameters:
        yield "type", f"{_NOTHING_SAID}. {_WHAT_TO_SAY}"
    regex = templates.settled(parameters).get("regex")
    if isinstance(regex, str):
        try:
            timed_regex.check(regex)
        except timed_regex.BadPattern as error:
            yield "regex", as_mistake(error)
    expression = parameters.get("expression")
    if isinstance(expression, str):
        wrong = choices.mistake(expression, own=_OWN)
        if wrong is not None:
            yield "expression", wrong


def branches(_parameters: Mapping[str, Any]) -> tuple[str, ...]:
    return ("yes", "no")


def fill(given: Mapping[str, Any], scope: Mapping[str, Any]) -> dict[str, Any]:
    """Resolve the parameters; an expression gets values, never their text, so data cannot change the expression."""
    others = {name: value for name, value in given.items() if name != "expression"}
    filled = templates.resolve(others, scope)
    expression = given.get("expression")
    if not isinstance(expression, str):
        return dict(filled) if expression is None else {**filled, "expression": expression}
    text = templates.as_text(filled.get("text"))
    own = {"value": filled.get("value"), "text": text, "line": last_line(text)}
    # Its own names take precedence; a step called `text` cannot be reached as ${text} anywhere else either.
    return {**filled, "expression": conditions.holds(expression, {**scope, **own})}


async def run(config: ConditionConfig, context: StepContext) -> StepDone:
    ways = [name for name in _WAYS if name in context.sources]
    if len(ways) > 1:
        raise StepFailed(_both(ways), kind="bad_input", hint=_JOIN)
    if ways and getattr(config, ways[0]) is None:
        # Otherwise the result would only say whether there is any text.
        raise StepFailed(f"{ways[0]}: {_NULL}", kind="bad_input", hint="Check what its template returned.")
    has_text, has_value = ("text" in context.sources), ("value" in context.sources)
    if has_text and has_value and config.expression is None:
        raise StepFailed("a condition looks at `text` or at `value`, and both are given", kind="bad_input")
    looked_at = last_line(templates.as_text(config.text)) if has_text else templates.as_text(config.value)
    if ways and not has_text and not has_value and config.expression is None:
        raise StepFailed(f"{ways[0]}: there is nothing to look at", kind="bad_input", hint="Give it `text` or `value`.")
    if config.contains is not None:
        result = _contains(looked_at, templates.as_text(config.contains), is_exact=config.case_sensitive)
    elif config.regex is not None:
        result = await _matches(config.regex, looked_at, is_exact=config.case_sensitive)
    elif config.expression is not None:
        result = templates.is_true(config.expression)
    elif has_text or has_value:
        result = templates.is_true(looked_at if has_text else config.value)
    else:
        raise StepFailed(_NOTHING_SAID, kind="bad_input", hint=_WHAT_TO_SAY)
    result = result != config.negate
    branch = "yes" if result else "no"
    return StepDone(outputs={"result": result, "branch": branch, "line": brief(looked_at, 1000)}, branch=branch)


def _both(ways: Sequence[str]) -> str:
    return f"a condition is one of {' or '.join(ways)}, and both are given"


def last_line(text: str) -> str:
    """Return the last line that is not empty, where an agent puts its verdict."""
    lines = text.rstrip().rsplit("\n", 1)
    return lines[-1].strip()


def _contains(text: str, part: str, *, is_exact: bool) -> bool:
    if not part:
        raise StepFailed(
            "contains: the text to look for is empty", kind="bad_input", hint="Every text contains the empty text."
        )
    return part in text if is_exact else part.casefold() in text.casefold()


async def _matches(pattern: str, text: str, *, is_exact: bool) -> bool:
    try:
        return (await timed_regex.search(pattern, text, ignores_case=not is_exact)).is_match
    except timed_regex.BadPattern as error:
        raise StepFailed(f"regex: {error.message}", kind="bad_input", hint=error.hint) from None
    except timed_regex.PatternTimeout as error:
        raise StepFailed(f"regex: {error.message}", kind=error.kind, hint=error.hint) from None


KIND = Kind(
    name="condition",
    summary="Chooses a branch: yes or no.",
    config=ConditionConfig,
    outputs={"result": {"type": "boolean"}, "branch": {"enum": ["yes", "no"]}, "line": {"type": "string"}},
    run=run,
    fill=fill,
    mistakes=mistakes,
    branches=branches,
)
