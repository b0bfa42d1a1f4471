"""Converts the CLI's own session file (`projects/<folder>/<id>.jsonl`) to our events. Opens no file.

The file is a record, not a protocol: it has prompts, answers, calls and results with their times, but no turns, costs
or end of the process. Turns are inferred from prompts; missing data is omitted, never made up.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import msgspec

from leadrope.core import events
from leadrope.core.cost.usage import Usage
from leadrope.providers.claude_code import decode, transcripts, unreadable
from leadrope.providers.claude_code.transcripts import LineEvents, Log, Read, debug
from leadrope.regex import regex

LOOK_AHEAD = 200
"""Lines searched for the session's description. The model is in the first answer, after about twenty lines of the CLI's
own notes; a longer search keeps more lines in memory for a field that may be missing.
"""

OUTPUT_TOOL = "StructuredOutput"
_INTERRUPTED = "[Request interrupted by user"
_NOTIFICATION = "<task-notification>"
_LOCAL = ("<command-", "<local-command-")
_TAG = regex(r"<(task-id|tool-use-id|status|summary)>(.*?)</\1>", re.DOTALL)

# The CLI's own notes, and their most informative field. Unlisted kinds are kept completely.
_NOTES: dict[str, str] = {
    "agent-color": "agentColor",
    "agent-name": "agentName",
    "agent-setting": "agentSetting",
    "ai-title": "aiTitle",
    "api-request": "id",
    "api-request-blob": "hash",
    "api-request-shape": "shapeHash",
    "atis-latch": "atis",
    "attachment": "attachment",
    "attribution-snapshot": "",
    "content-replacement": "",
    "cost-state": "totalCostUSD",
    "custom-title": "customTitle",
    "file-history-snapshot": "messageId",
    "last-prompt": "lastPrompt",
    "mode": "mode",
    "permission-mode": "permissionMode",
    "pr-link": "prUrl",
    "progress": "",
    "queue-operation": "operation",
    "tag": "tag",
    "tools-used": "tools",
    "worktree-state": "",
}


class SubagentFile(msgspec.Struct, frozen=True, kw_only=True):
    """A subagent's own file next to the session's."""

    agent_id: str
    lines: Iterable[bytes] = ()
    call_id: str = ""
    description: str = ""
    kind: str = ""


def read_session(
    lines: Iterable[bytes], *, run_id: str, start: float = 0.0, agents: Sequence[SubagentFile] = ()
) -> Iterator[Read]:
    """Read a session and merge the files of its subagents by time."""
    stream = _by_time([lines, *(agent.lines for agent in agents)], start)
    head = list(islice(stream, LOOK_AHEAD))
    log = Log(run_id, start)
    reader = _Session(_facts([line for _, line in head]), {agent.agent_id: agent for agent in agents})
    for log.time, line in chain(head, stream):
        yield from log.of(reader.read(line), line)
    yield from log.derived(reader.close())


def _by_time(files: Sequence[Iterable[bytes]], start: float) -> Iterator[tuple[float, bytes]]:
    def dated(lines: Iterable[bytes]) -> Iterator[tuple[float, bytes]]:
        now = start
        for line in lines:
            if line.strip():
                # A file is written in order, even if the clock was set back.
                now = max(now, transcripts.time_of(line) or now)
                yield now, line

    return heapq.merge(*(dated(lines) for lines in files), key=lambda dated: dated[0])


def _facts(lines: Iterable[bytes]) -> events.SessionStarted | None:
    """Return the session's description from the first lines; None if they have none."""
    found: dict[str, str] = {}
    for line in lines:
        value = _object(line)
        message = value.get("message")
        told = {
            "session_id": value.get("sessionId"),
            "cwd": value.get("cwd"),
            "agent_version": value.get("version"),
            "mode": value.get("permissionMode"),
            "model": message.get("model") if isinstance(message, dict) else None,
        }
        for name, text in told.items():
            # An answer that the program wrote itself has a model in angle brackets.
            if isinstance(text, str) and not text.startswith("<"):
                found.setdefault(name, text)
    if "session_id" not in found:
        return None
    return events.SessionStarted(provider=transcripts.PROVIDER, **found)  # type: ignore[arg-type]  # texts, all of them


def _object(line: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(line)
    except unreadable.ERRORS:
        mended = unreadable.mend(line)
        try:
            value = msgspec.json.decode(mended) if mended is not None else None
        except unreadable.ERRORS:
            return {}
    return value if isinstance(value, dict) else {}


class _Turn:
    """The result of one turn, as far as its lines show it."""

    def __init__(self, number: int, *, background: bool) -> None:
        self.number = number
        self.background = background
        self.text = ""
        self.is_error = False
        self.is_answered = False
        """Whether the main agent's last action was a message, not a call."""
        self.interrupted = False
        self.stop_reason: str | None = None
        self.messages: set[str] = set()
        self.output: Any = msgspec.UNSET
        self.cost_usd = 0.0


class _Session:
    def __init__(self, facts: events.SessionStarted | None, agents: dict[str, SubagentFile]) -> None:
        self._facts = facts
        self._agents = agents
        self._decoder = decode.Decoder()
        self._started = False
        self._turns = 0
        self._turn: _Turn | None = None
        self._counted: set[str] = set()
        self._seen_agents: set[str] = set()
        self._total_cost = 0.0

    def read(self, line: bytes) -> LineEvents:
        before: list[events.Event] = []
        if not self._started and self._facts is not None:
            self._started = True
            before.append(self._facts)
        value = _object(line)
        kind = value.get("type")
        if kind in ("user", "assistant") and isinstance(value.get("message"), dict):
            return self._said(kind, value, line, before)
        if kind == "system":
            return LineEvents(own=self._decoded(line) or [transcripts.said_nothing(line)], before=before)
        if kind == "summary":
            return LineEvents(
                own=[events.Notice(level="info", code="summary", message=str(value.get("summary", "")))], before=before
            )
        if isinstance(kind, str) and kind in _NOTES:
            self._cost(value)
            return LineEvents(own=[debug(kind, _note(kind, value))], before=before)
        return LineEvents(own=[unreadable.unrecognised(unreadable.why(line), line)], before=before)

    def close(self) -> list[events.Event]:
        return self._end_turn()

    # -- messages

    def _said(self, kind: str, value: dict[str, Any], line: bytes, before: list[events.Event]) -> LineEvents:
        agent_id = value.get("agentId") or ("sidechain" if value.get("isSidechain") is True else None)
        if agent_id is not None and agent_id not in self._seen_agents:
            before += self._agent_started(str(agent_id))
        own = self._decoded(msgspec.json.encode(_as_printed(kind, value, agent_id)))
        if kind == "user" and not any(isinstance(event, events.ToolCompleted) for event in own):
            return self._prompted(value, agent_id, line, before)
        if agent_id is None:
            self._follow(value, own)
        own += self._agent_result(value, own)
        return LineEvents(own=own or [transcripts.said_nothing(line)], before=before)

    def _decoded(self, line: bytes) -> list[events.Event]:
        # Session files contain no signals: those belong to the control protocol, or to `init`.
        return [item for item in self._decoder.feed([line]) if isinstance(item, events.Event)]

    def _prompted(self, value: dict[str, Any], agent_id: Any, line: bytes, before: list[events.Event]) -> LineEvents:
        text = transcripts.text_of(value.get("message"))
        if agent_id is not None:
            return LineEvents(own=[debug("subagent_prompt", text)], before=before)
        if text.startswith(_INTERRUPTED):
            if self._turn is not None:
                self._turn.interrupted = True
            return LineEvents(own=[debug("interrupted", text)], before=before)
        if value.get("isMeta") is True or value.get("isCompactSummary") is True or text.startswith(_LOCAL):
            return LineEvents(own=[debug("local_command" if text.startswith(_LOCAL) else "note", text)], before=before)
        before += self._end_turn()
        self._turns += 1
        notified = text.startswith(_NOTIFICATION)
        self._turn = _Turn(self._turns, background=notified)
        before.append(events.TurnStarted(turn=self._turns))
        if notified:
            return LineEvents(own=[*_notified(text), debug("task_notification", text)], before=before)
        return LineEvents(own=[transcripts.prompt(text)], before=before)

    def _follow(self, value: dict[str, Any], own: list[events.Event]) -> None:
        """Update the turn with a line of the main agent, and count its tokens, once per message."""
        message = value["message"]
        message_id = message.get("id")
        turn = self._turn
        if value.get("type") == "assistant" and isinstance(message_id, str):
            if turn is not None:
                turn.messages.add(message_id)
                stop = message.get("stop_reason")
                turn.stop_reason = stop if isinstance(stop, str) else turn.stop_reason
            usage = _usage(message.get("usage"))
            if usage.total_tokens and message_id not in self._counted:
                self._counted.add(message_id)
                model = message.get("model")
                own.append(events.UsageUpdated(message_id=message_id, model=str(model or ""), usage=usage))
        if turn is None:
            return
        for event in own:
            match event:
                case events.MessageCompleted():
                    turn.text, turn.is_error, turn.is_answered = event.text, event.is_error, True
                case events.ToolRequested(call=call):
                    turn.is_answered = call.name == OUTPUT_TOOL
                    turn.output = call.input if turn.is_answered else msgspec.UNSET
                case events.ToolCompleted():
                    # A rejected structured answer is retried; an accepted one ends the turn without a message.
                    turn.is_answered = turn.output is not msgspec.UNSET and not event.is_error
                case _:
                    pass

    def _end_turn(self) -> list[events.Event]:
        """End the turn; no event for one that was cut off, since it is unknown how it ended."""
        turn, self._turn = self._turn, None
        if turn is None or not (turn.is_answered or turn.interrupted):
            return []
        problem = None
        if turn.interrupted:
            problem = events.Problem(kind="stopped", outcome="stopped")
        elif turn.is_error:
            problem = events.Problem(kind="api_error")
        return [
            events.TurnEnded(
                turn=turn.number,
                is_error=problem is not None,
                reason="interrupted" if turn.interrupted else "error" if turn.is_error else "success",
                text=turn.text,
                stop_reason=turn.stop_reason,
                output=turn.output,
                steps=len(turn.messages),
                cost_usd=turn.cost_usd,
                background=turn.background,
                problem=problem,
            )
        ]

    def _cost(self, value: dict[str, Any]) -> None:
        total = value.get("totalCostUSD")
        if isinstance(total, int | float) and self._turn is not None:
            self._turn.cost_usd += max(0.0, total - self._total_cost)
            self._total_cost = max(self._total_cost, total)

    # -- subagents

    def _agent_started(self, agent_id: str, call_id: str = "") -> list[events.Event]:
        self._seen_agents.add(agent_id)
        known = self._agents.get(agent_id) or SubagentFile(agent_id=agent_id, call_id=call_id)
        return [
            events.SubagentStarted(
                agent_id=agent_id, call_id=known.call_id, description=known.description, kind=known.kind
            )
        ]

    def _agent_result(self, value: dict[str, Any], own: list[events.Event]) -> list[events.Event]:
        """Read, from the result of a call that started an agent, which agent it was and whether it is done."""
        result = value.get("toolUseResult")
        agent_id = result.get("agentId") if isinstance(result, dict) else None
        if not isinstance(result, dict) or not isinstance(agent_id, str):
            return []
        call_id = next((event.call_id for event in own if isinstance(event, events.ToolCompleted)), "")
        found = [] if agent_id in self._seen_agents else self._agent_started(agent_id, call_id)
        status, tokens = result.get("status"), result.get("totalTokens")
        if status == "completed":
            found.append(
                events.SubagentEnded(
                    agent_id=agent_id,
                    call_id=call_id,
                    status="completed",
                    tokens=tokens if isinstance(tokens, int) else 0,
                )
            )
        return found


def _as_printed(kind: str, value: dict[str, Any], agent_id: Any) -> dict[str, Any]:
    """Return the line in the form in which the CLI would have printed it."""
    message = value["message"]
    line: dict[str, Any] = {"type": kind, "message": message, "agent_id": agent_id}
    if value.get("isApiErrorMessage") is True:
        line["is_api_error_message"] = True
    denied = value.get("toolDenialKind")
    if isinstance(denied, str):
        content = message.get("content")
        line["tool_result_meta"] = [
            {"id": block["tool_use_id"], "non_execution_kind": denied}
            for block in (content if isinstance(content, list) else ())
            if isinstance(block, dict) and isinstance(block.get("tool_use_id"), str)
        ]
    return line


def _notified(text: str) -> list[events.Event]:
    told = dict(_TAG.findall(text))
    if "task-id" not in told:
        return []
    return [
        events.SubagentEnded(
            agent_id=told["task-id"],
            call_id=told.get("tool-use-id", ""),
            status=told.get("status", ""),
            summary=told.get("summary", ""),
        )
    ]


def _note(kind: str, value: dict[str, Any]) -> str:
    told = value.get(_NOTES[kind])
    if kind == "attachment" and isinstance(told, dict):
        # What the model was shown in addition to the conversation.
        rendered = value.get("rendered")
        texts = (
            [each.get("content") for each in rendered if isinstance(each, dict)] if isinstance(rendered, list) else []
        )
        return "\n".join([str(told.get("type", "")), *(text for text in texts if isinstance(text, str))])
    if isinstance(told, list):
        return ", ".join(str(each) for each in told)
    return "" if told is None else str(told)


def _usage(told: Any) -> Usage:
    counts = told if isinstance(told, dict) else {}
    creation = counts.get("cache_creation")
    hour = creation.get("ephemeral_1h_input_tokens") if isinstance(creation, dict) else 0
    names = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    known = {name: count for name in names if isinstance(count := counts.get(name), int)}
    return Usage(**known, cache_creation_1h_input_tokens=hour if isinstance(hour, int) else 0)
