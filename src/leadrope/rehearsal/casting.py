"""Chooses the turn that answers a request, by the script's parts and the speaker, and checks what the turn expects.

Pure: without sockets or waiting, so that every rule is covered by table tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from leadrope.rehearsal.script import Expect, Script, ScriptedAnswer, ToolResultExpect, Turn


class Cue(msgspec.Struct, frozen=True, kw_only=True):
    """The turn that answers a request."""

    place: str
    answer: ScriptedAnswer
    failed: tuple[str, ...] = ()
    """The expectations that the request did not meet."""


class NoTurn(msgspec.Struct, frozen=True, kw_only=True):
    """The script has no turn for this request."""

    reason: str


class _Part:
    """One speaker's turns, and how many of them are used."""

    def __init__(self, place: str, turns: Sequence[Turn]) -> None:
        self.place = place
        self.turns = turns
        self.used = [0] * len(turns)

    def take(self, body: dict[str, Any]) -> Cue | NoTurn:
        for index, turn in enumerate(self.turns):
            if turn.repeat != "forever" and self.used[index] >= turn.repeat:
                continue
            failed = tuple(unmet(turn.expect, body)) if turn.expect else ()
            if failed and turn.optional:
                continue  # an optional turn whose expectation does not match is skipped
            # Skipped turns are over: a script never goes back.
            for earlier in range(index):
                turn_before = self.turns[earlier]
                if turn_before.repeat != "forever":
                    self.used[earlier] = max(self.used[earlier], turn_before.repeat)
            self.used[index] += 1
            answer: ScriptedAnswer = turn
            if turn.if_error is not None and any(result.is_error for result in newest_results(body)):
                answer = turn.if_error
            return Cue(place=f"{self.place}[{index}]", answer=answer, failed=failed)
        count = sum(self.used)
        if not self.turns:
            return NoTurn(reason=f"the script has no {self.place}")
        return NoTurn(reason=f"{self.place} is over after {count} {'request' if count == 1 else 'requests'}")

    def unused(self) -> Iterator[str]:
        for index, turn in enumerate(self.turns):
            used = self.used[index]
            wanted = 1 if turn.repeat == "forever" else turn.repeat
            if used < wanted and not turn.optional:
                count = "" if wanted == 1 else f" ({used} of {wanted} times)"
                yield f"{self.place}[{index}] was not used{count}: {describe(turn)}"


class Casting:
    """Hands out the script's turns: by step, otherwise from `turns`; to subagents in the order in which they appear."""

    def __init__(self, script: Script) -> None:
        self._rest = _Group("", script.turns, script.subagents)
        self._steps = {
            name: _Group(f"steps.{name}.", step.turns, step.subagents, step.items)
            for name, step in script.steps.items()
            if step.outputs is None
        }

    def take(
        self, body: dict[str, Any], agent_id: str | None, *, step: str | None = None, item: int | None = None
    ) -> Cue | NoTurn:
        return self._steps.get(step or "", self._rest).take(body, agent_id, item)

    def unused(self) -> list[str]:
        return [text for group in (self._rest, *self._steps.values()) for text in group.unused()]


class _Group:
    """The turns of one step, or of all requests without a step of their own."""

    def __init__(
        self,
        place: str,
        turns: Sequence[Turn],
        subagents: Sequence[Sequence[Turn]],
        items: Sequence[Sequence[Turn]] = (),
    ) -> None:
        self._place = place
        self._main = _Part(f"{place}turns", turns)
        self._parts = [_Part(f"{place}subagents[{index}]", turns) for index, turns in enumerate(subagents)]
        self._items = [_Part(f"{place}items[{index}]", turns) for index, turns in enumerate(items)]
        self._agents: dict[str, int] = {}

    def take(self, body: dict[str, Any], agent_id: str | None, item: int | None) -> Cue | NoTurn:
        if agent_id is None and self._items:
            number = item or 0
            if number >= len(self._items):
                return NoTurn(reason=f"{self._place}items has {len(self._items)}, and this is item {number}")
            return self._items[number].take(body)
        if agent_id is None:
            return self._main.take(body)
        number = self._agents.setdefault(agent_id, len(self._agents))
        if number >= len(self._parts):
            return NoTurn(
                reason=f"the script has {len(self._parts)} subagents and this is number {number + 1} (id {agent_id})"
            )
        return self._parts[number].take(body)

    def unused(self) -> list[str]:
        return [text for part in (self._main, *self._items, *self._parts) for text in part.unused()]


def describe(answer: ScriptedAnswer) -> str:
    """Describes a turn in a few words that the author of the script recognizes."""
    if answer.error is not None:
        return f"error {answer.error.status}"
    tool = answer.tool or (answer.tools[0] if answer.tools else None)
    if tool is not None:
        return f"tool {tool.name}"
    if answer.text is not None:
        return f"text {answer.text[:60]!r}"
    names = ("thinking", "blocks", "size", "empty", "hang", "cut", "bad_sse", "sse_error")
    return next((name for name in names if getattr(answer, name)), "nothing")


class RequestedResult(msgspec.Struct, frozen=True, kw_only=True):
    tool_use_id: str
    text: str
    is_error: bool


def newest_results(body: dict[str, Any]) -> list[RequestedResult]:
    """Returns the tool results in the newest message of a request.

    For models of the newest generation the agent adds messages of its own, in the role `system`, after it.
    """
    messages = [one for one in body.get("messages") or [] if one.get("role") != "system"]
    content = messages[-1].get("content") if messages else None
    if not isinstance(content, list):
        return []
    return [
        RequestedResult(
            tool_use_id=str(block.get("tool_use_id", "")),
            text="\n".join(_texts(block.get("content"))),
            is_error=block.get("is_error") is True,
        )
        for block in content
        if isinstance(block, dict) and block.get("type") == "tool_result"
    ]


def all_text(body: dict[str, Any]) -> str:
    """Returns everything that a model would read in the request, except the tools' descriptions."""
    parts = list(_texts(body.get("system")))
    for message in body.get("messages") or []:
        parts.extend(_texts(message.get("content")))
    return "\n".join(parts)


def _texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for block in content:
            yield from _texts(block)
    elif isinstance(content, dict):
        match content.get("type"):
            case "tool_use":
                yield from _strings(content.get("input"))
            case "tool_result":
                yield from _texts(content.get("content"))
            case _:
                yield from (content[key] for key in ("text", "thinking") if isinstance(content.get(key), str))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


def unmet(expect: Expect, body: dict[str, Any]) -> Iterator[str]:
    """Yields a description of each expectation that the request does not meet."""
    text = all_text(body)
    for wanted in _listed(expect.contains):
        if wanted not in text:
            yield f"expect.contains: {wanted!r} is nowhere in the system prompt or the messages"
    for unwanted in _listed(expect.lacks):
        if unwanted in text:
            yield f"expect.lacks: {unwanted!r} is in the system prompt or the messages"
    if expect.model is not None and body.get("model") != expect.model:
        yield f"expect.model: {expect.model!r} was expected, {body.get('model')!r} was asked for"
    offered = [tool.get("name") for tool in body.get("tools") or [] if isinstance(tool, dict)]
    for name in expect.tools:
        if name not in offered:
            yield f"expect.tools: {name!r} is not offered"
    if expect.tool_result is not None:
        results = newest_results(body)
        if not results:
            yield "expect.tool_result: the newest message holds no tool result"
        elif not any(_fits(expect.tool_result, result) for result in results):
            seen = "; ".join(f"is_error={result.is_error} {result.text[:200]!r}" for result in results)
            yield f"expect.tool_result: no result fits; there are: {seen}"


def _fits(expect: ToolResultExpect, result: RequestedResult) -> bool:
    return all(wanted in result.text for wanted in _listed(expect.contains)) and expect.is_error in (
        None,
        result.is_error,
    )


def _listed(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value


def side_request(body: dict[str, Any]) -> ScriptedAnswer | None:
    """Returns the answer to a request that is not part of the conversation; None for one that is.

    Measured with version 2.1.325 of the CLI and nonessential traffic switched off: an ordinary run, an OAuth token,
    plan and auto mode and a background agent send only the conversation itself. Two other requests occur: the WebSearch
    tool asks a model that has the API's own search tool and nothing else, and a session title is requested (only when a
    `generate_session_title` control request comes) with no tool and a JSON schema. A quota probe, which was not
    observed but is known, asks for a single token.
    """
    tools = body.get("tools") or []
    if len(tools) == 1 and str(tools[0].get("type", "")).startswith("web_search"):
        return ScriptedAnswer(text="The rehearsal has no web: nothing was found.")
    output = body.get("output_config")
    if not tools and isinstance(output, dict) and "format" in output:
        return ScriptedAnswer(text='{"title":"Rehearsal"}')
    if body.get("max_tokens") == 1:
        return ScriptedAnswer(text=".", stop_reason="max_tokens")
    return None
