"""The model's script: what it will answer, turn by turn, read from YAML or Python values and refused with the place.

Knows nothing of HTTP or of time; `sse` turns a turn into bytes and `model` serves it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from leadrope import errors
from leadrope.core.cost.usage import Usage
from leadrope.core.text import yaml_values


class RehearsalError(errors.LeadropeError):
    """The rehearsal did not go as scripted: requests nobody expected, or turns nobody asked for."""

    kind = "rehearsal_failed"

    def __init__(self, problems: Sequence[str], unused: Sequence[str]) -> None:
        lines = [f"- {text}" for text in (*problems, *unused)]
        super().__init__(
            "the rehearsal did not follow its script:\n" + "\n".join(lines),
            hint="Correct the script, mark a turn `optional: true`, or pass strict=False to look at it yourself.",
        )
        self.problems = tuple(problems)
        self.unused = tuple(unused)


class BadScript(errors.BadValue):
    """The script cannot be played; `field` is the place, for instance `turns[2].tool.name`."""


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    pass


class ScriptedTool(_Part, frozen=True, kw_only=True):
    name: str
    input: dict[str, Any] = {}
    id: str | None = None
    """Made up by the server when missing, the same in every run."""


class AnswerBlock(_Part, frozen=True, kw_only=True):
    """One piece of an answer; exactly one of the three."""

    text: str | None = None
    thinking: str | None = None
    tool: ScriptedTool | None = None


class HttpError(_Part, frozen=True, kw_only=True):
    status: int
    type: str | None = None
    """The API's word for it; None takes the usual one for the status."""
    message: str = "an error from the rehearsal"
    headers: dict[str, str | int | float] = {}


class StreamError(_Part, frozen=True, kw_only=True):
    type: str = "overloaded_error"
    message: str = "Overloaded"


class Drip(_Part, frozen=True, kw_only=True):
    chunk: int | Literal["event"] = "event"
    """Bytes a piece, or `event`: one event of the stream a piece."""
    every_ms: float = 20


class ToolResultExpect(_Part, frozen=True, kw_only=True):
    contains: str | tuple[str, ...] = ()
    is_error: bool | None = None


class Expect(_Part, frozen=True, kw_only=True):
    """What the request must be like; a request that is not gets an error and is a problem."""

    contains: str | tuple[str, ...] = ()
    """Somewhere in the system prompt or the messages."""
    lacks: str | tuple[str, ...] = ()
    """Nowhere in them."""
    model: str | None = None
    tools: tuple[str, ...] = ()
    """Tools that the request must offer."""
    tool_result: ToolResultExpect | None = None
    """About the results in the newest message; one of them must fit."""


class ScriptedAnswer(_Part, frozen=True, kw_only=True):
    """What the model says; at most one way of failing."""

    text: str | None = None
    thinking: str | None = None
    tool: ScriptedTool | None = None
    tools: tuple[ScriptedTool, ...] = ()
    blocks: tuple[AnswerBlock, ...] = ()
    """An explicit order; without it: thinking, text, tools."""
    size: int | None = None
    """A text of that many characters, made by the server."""
    empty: bool = False
    usage: Usage = Usage(input_tokens=100, output_tokens=10)
    stop_reason: str | None = None
    model: str | None = None
    """The model that answers; None says the one that was asked for."""
    headers: dict[str, str | int | float] = {}
    error: HttpError | None = None
    sse_error: StreamError | None = None
    bad_sse: bool = False
    cut: bool = False
    hang: Literal["before_headers", "mid_stream"] | None = None
    drip: Drip | None = None
    wait: str | None = None
    """Held until the test calls `release` with this name."""


class Turn(ScriptedAnswer, frozen=True, kw_only=True):
    """One answer in its place in the script."""

    expect: Expect | None = None
    repeat: int | Literal["forever"] = 1
    optional: bool = False
    if_error: ScriptedAnswer | None = None
    """Said instead when the newest tool results hold an error: the call was denied, or it failed."""


class StepScript(_Part, frozen=True, kw_only=True):
    """What is scripted for one step of a workflow."""

    turns: tuple[Turn, ...] = ()
    """For all requests of the step: every iteration, item and attempt, in the order in which they come."""
    items: tuple[tuple[Turn, ...], ...] = ()
    """One list of turns for each item of a batch, in place of `turns`."""
    subagents: tuple[tuple[Turn, ...], ...] = ()
    outputs: dict[str, Any] | None = None
    """The step is not run, and gives these."""


class Script(_Part, frozen=True, kw_only=True):
    turns: tuple[Turn, ...] = ()
    subagents: tuple[tuple[Turn, ...], ...] = ()
    """One list of turns for each subagent, in the order in which they first speak."""
    steps: dict[str, StepScript] = {}
    """For a workflow, by the id of the step; all other steps take their turns from `turns`."""


ScriptSource = Script | Path | str | Mapping[str, Any] | Sequence[Any]


def load(source: ScriptSource, *, variables: Mapping[str, str] | None = None) -> Script:
    """Read a script and refuse a bad one.

    A Path is a YAML file, a str is YAML text, a mapping is the script itself, a list is its turns.

    >>> load([{"text": "Hello."}]).turns[0].text
    'Hello.'
    """
    if isinstance(source, Script):
        script = source
    else:
        data = read_values(source)
        if isinstance(data, Sequence) and not isinstance(data, str | bytes):
            data = {"turns": list(data)}
        if not isinstance(data, Mapping):
            raise BadScript("script", f"must be a mapping with `turns`, not {type(data).__name__}")
        data = fill(data, variables or {})
        script = _convert(data)
    _check_turns("turns", script.turns)
    for index, turns in enumerate(script.subagents):
        _check_turns(f"subagents[{index}]", turns)
    for name, step in script.steps.items():
        _check_step(f"steps.{name}", step)
    return script


def _check_step(place: str, step: StepScript) -> None:
    answers = [name for name in ("turns", "items", "subagents") if getattr(step, name)]
    if step.outputs is not None and answers:
        raise BadScript(place, f"a step with outputs is not run; remove {answers[0]} or outputs")
    if step.turns and step.items:
        raise BadScript(place, "turns and items both answer the step; keep one")
    if step.outputs is None and not answers:
        raise BadScript(place, "says nothing; give it turns, items or outputs")
    _check_turns(f"{place}.turns", step.turns)
    for word in ("items", "subagents"):
        for index, turns in enumerate(getattr(step, word)):
            _check_turns(f"{place}.{word}[{index}]", turns)


def read_values(source: Path | str | Mapping[str, Any] | Sequence[Any]) -> Any:
    """The plain values of a script, whichever way it is written."""
    if isinstance(source, Path):
        try:
            return _parse_yaml(source.read_text(encoding="utf-8"), str(source))
        except (OSError, UnicodeDecodeError) as error:
            raise BadScript(str(source), f"cannot be read: {error}") from error
    if isinstance(source, str):
        return _parse_yaml(source, "script")
    return source


def _parse_yaml(text: str, name: str) -> Any:
    try:
        return yaml_values.load(text, yaml_values.scalar_1_1, has_aliases=True).value
    except yaml_values.YamlError as error:
        raise BadScript(f"{name}, line {error.line + 1}, column {error.column + 1}", error.message) from error


_VARIABLE = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")


def fill(value: Any, variables: Mapping[str, str], place: str = "") -> Any:
    """A copy with every `{{name}}` in its strings replaced; an unknown name is refused with its place."""
    if isinstance(value, str):

        def replaced(match: re.Match[str]) -> str:
            name = match[1]
            if name not in variables:
                raise BadScript(
                    place or "script",
                    f"the variable {{{{{name}}}}} is not given",
                    hint=f"Pass variables={{{name!r}: ...}}; known here: {', '.join(sorted(variables)) or 'none'}.",
                )
            return str(variables[name])

        return _VARIABLE.sub(replaced, value)
    if isinstance(value, Mapping):
        return {key: fill(item, variables, f"{place}.{key}" if place else str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [fill(item, variables, f"{place}[{index}]") for index, item in enumerate(value)]
    return value


def _shorthands(turns: Any) -> Any:
    """`if_error: some words` says them; `sse_error: true` and `drip: true` take the usual ones."""
    if not isinstance(turns, list):
        return turns
    found = []
    for turn in turns:
        if not isinstance(turn, dict):
            found.append(turn)
            continue
        full = {name: {} if name in ("sse_error", "drip") and value is True else value for name, value in turn.items()}
        if isinstance(full.get("if_error"), str):
            full["if_error"] = {"text": full["if_error"]}
        found.append(full)
    return found


_PLACED = re.compile(r"(?P<what>.*?)(?: - at `\$\.?(?P<place>.*)`)?", re.DOTALL)


def _convert(data: Any) -> Script:
    data = _full(dict(data))
    if isinstance(steps := data.get("steps"), dict):
        data["steps"] = {
            name: _full({"turns": step} if isinstance(step, list) else step) for name, step in steps.items()
        }
    try:
        return msgspec.convert(data, Script)
    except msgspec.ValidationError as error:
        raise placed(error) from error


def _full(part: Any) -> Any:
    """The lists of turns in it without shorthands."""
    if not isinstance(part, dict):
        return part
    found = dict(part)
    if "turns" in found:
        found["turns"] = _shorthands(found["turns"])
    for word in ("items", "subagents"):
        if isinstance(found.get(word), list):
            found[word] = [_shorthands(turns) for turns in found[word]]
    return found


def placed(error: msgspec.ValidationError) -> BadScript:
    """The same complaint with the place first, as the author of a script would say it."""
    match = _PLACED.fullmatch(str(error))
    what, place = (match["what"], match["place"]) if match else (str(error), None)
    return BadScript(place or "script", what[:1].lower() + what[1:])


# One of these is what a turn does; two of them cannot both happen.
_ENDINGS = ("error", "sse_error", "bad_sse", "cut", "hang")


def _check_turns(place: str, turns: Sequence[Turn]) -> None:
    for index, turn in enumerate(turns):
        here = f"{place}[{index}]"
        _check_answer(here, turn)
        if turn.if_error is not None:
            _check_answer(f"{here}.if_error", turn.if_error)
        if isinstance(turn.repeat, int) and turn.repeat < 1:
            raise BadScript(f"{here}.repeat", f"{turn.repeat} is not a count of one or more, nor `forever`")
        if turn.repeat == "forever" and index + 1 < len(turns):
            raise BadScript(f"{place}[{index + 1}]", f"can never be reached: {here} repeats forever")


def _check_answer(here: str, answer: ScriptedAnswer) -> None:
    endings = [name for name in _ENDINGS if getattr(answer, name)]
    if len(endings) > 1:
        raise BadScript(here, f"{' and '.join(endings)} cannot both happen; keep one")
    said = [name for name in ("text", "thinking", "tool", "tools", "size") if getattr(answer, name) not in (None, ())]
    if answer.blocks and said:
        raise BadScript(here, f"blocks already says everything, in order; move {' and '.join(said)} into it")
    if answer.text is not None and answer.size is not None:
        raise BadScript(here, "text and size both say the text; keep one")
    if answer.tool is not None and answer.tools:
        raise BadScript(here, "tool and tools both name calls; put all of them into tools")
    says = bool(said or answer.blocks)
    if answer.empty and says:
        raise BadScript(f"{here}.empty", "an empty answer says nothing; drop it, or the rest")
    if answer.error is not None:
        if says or answer.empty:
            raise BadScript(f"{here}.error", "an HTTP error has no answer beside it; make it a turn of its own")
        if not 400 <= answer.error.status <= 599:
            raise BadScript(f"{here}.error.status", f"{answer.error.status} is not an error (400 to 599)")
    if not says and not answer.empty and not endings:
        raise BadScript(here, "says nothing; give it text, thinking, tool, tools, blocks, size, error, or empty: true")
    if answer.size is not None and not 0 < answer.size <= 256 * 1024 * 1024:
        raise BadScript(f"{here}.size", f"{answer.size} is out of range (1 to 268435456)")
    for index, block in enumerate(answer.blocks):
        if sum(part is not None for part in (block.text, block.thinking, block.tool)) != 1:
            raise BadScript(f"{here}.blocks[{index}]", "needs exactly one of text, thinking, tool")
    for name, tool in _tools(answer):
        if not tool.name:
            raise BadScript(f"{here}.{name}.name", "is empty")
    if answer.drip is not None:
        if isinstance(answer.drip.chunk, int) and answer.drip.chunk < 1:
            raise BadScript(f"{here}.drip.chunk", f"{answer.drip.chunk} is not a number of bytes")
        if answer.drip.every_ms < 0:
            raise BadScript(f"{here}.drip.every_ms", f"{answer.drip.every_ms} is negative")


def _tools(answer: ScriptedAnswer) -> Iterable[tuple[str, ScriptedTool]]:
    if answer.tool is not None:
        yield "tool", answer.tool
    for index, tool in enumerate(answer.tools):
        yield f"tools[{index}]", tool
    for index, block in enumerate(answer.blocks):
        if block.tool is not None:
            yield f"blocks[{index}].tool", block.tool


def blocks_of(answer: ScriptedAnswer) -> tuple[AnswerBlock, ...]:
    """What an answer says, in order: as written in `blocks`, else thinking, text, tools."""
    if answer.blocks:
        return answer.blocks
    found: list[AnswerBlock] = []
    if answer.thinking is not None:
        found.append(AnswerBlock(thinking=answer.thinking))
    if answer.text is not None:
        found.append(AnswerBlock(text=answer.text))
    if answer.size is not None:
        found.append(AnswerBlock(text=generated_text(answer.size)))
    found.extend(AnswerBlock(tool=tool) for _, tool in _tools(answer))
    return tuple(found)


_LINE = "The quick brown fox jumps over the lazy dog, again and again, until the text is long enough.\n"


def generated_text(size: int) -> str:
    return (_LINE * (size // len(_LINE) + 1))[:size]
