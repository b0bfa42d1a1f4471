"""Decodes the CLI's `system` lines: turn starts, retries, refusals, subagents, background tasks and notes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from leadrope.core import events
from leadrope.providers.claude_code import signals, unreadable, wire

Level = Literal["debug", "info", "warning", "error"]

_LEVELS: dict[str, Level] = {"warning": "warning", "error": "error", "debug": "debug"}
_WORDS = {
    "session_writes_lost": "the agent could not save all of its own record of the session",
    "file_attachments_missing": "the agent could not find all attached files",
}
"""Texts for notes that the agent sends without one."""
_DECODERS = {subtype: msgspec.json.Decoder(kind) for subtype, kind in wire.SYSTEM.items()}
_NOTE = msgspec.json.Decoder(wire.SystemNote)


class SystemLines:
    """Decodes one process's `system` lines in order."""

    def __init__(self, tell: signals.Tell) -> None:
        self._tell = tell
        self.agents: dict[str, str] = {}
        """The call that started a subagent -> the subagent's id."""
        self._turns = 0
        self._tasks: dict[str, bool] = {}
        """Open background tasks; True for an agent."""
        self._handlers: dict[str, Callable[[Any, list[Any]], None]] = {
            "init": self._init,
            "api_retry": self._api_retry,
            "permission_denied": self._permission_denied,
            "background_tasks_changed": self._background_tasks,
            "task_started": self._task_started,
            "task_notification": self._task_notification,
            "session_state_changed": self._session_state,
        }

    def read(self, line: wire.System, raw: bytes | bytearray, out: list[Any]) -> None:
        subtype = line.subtype
        decoder = _DECODERS.get(subtype)
        if decoder is not None:
            self._handlers[subtype](decoder.decode(raw), out)
        elif subtype in wire.NOTES_FOR_USERS or subtype in wire.QUIET_NOTES:
            note = _NOTE.decode(raw)
            level: Level = "debug"
            if subtype in wire.NOTES_FOR_USERS:
                level = _LEVELS.get(note.level or wire.NOTES_FOR_USERS[subtype], "info")
            told = (note.content, note.message, note.status, note.description, note.title, note.hook_name)
            text = next((text for text in told if isinstance(text, str) and text.strip()), "")
            if not text and level != "debug":
                text = _WORDS.get(subtype, f"the agent reports: {subtype.replace('_', ' ')}")
            out.append(events.Notice(level=level, code=subtype, message=text))
        else:
            out.append(unreadable.unrecognised("unknown_subtype", raw))

    def _init(self, line: wire.SystemInit, out: list[Any]) -> None:
        self._turns += 1
        servers = line.mcp_servers or ()
        self._tell(
            out,
            signals.Init(
                session_id=line.session_id,
                model=line.model or "",
                mode=line.permission_mode or "",
                cwd=line.cwd or "",
                tools=tuple(line.tools or ()),
                connections=tuple(events.Connection(name=server.name, status=server.status) for server in servers),
                api_key_source=line.api_key_source or "",
                version=line.claude_code_version or "",
            ),
        )
        out.append(events.TurnStarted(turn=self._turns))

    def _api_retry(self, line: wire.SystemApiRetry, out: list[Any]) -> None:
        out.append(
            events.RetryScheduled(
                attempt=line.attempt,
                max_attempts=line.max_retries,
                delay_s=line.retry_delay_ms / 1000,
                api_status=line.error_status,
                error=line.error or "",
            )
        )

    def _permission_denied(self, line: wire.SystemPermissionDenied, out: list[Any]) -> None:
        why = line.message or line.decision_reason or "no reason given"
        out.append(events.Notice(level="info", code="permission_denied", message=f"{line.tool_name}: {why}"))

    def _session_state(self, line: wire.SystemSessionState, out: list[Any]) -> None:
        self._tell(out, signals.CliSessionState(state=line.state))

    # Subagents and background tasks

    def _background_tasks(self, line: wire.SystemBackgroundTasks, out: list[Any]) -> None:
        self._tasks = {task.task_id: _is_agent(task.task_type) for task in line.tasks}
        self._tell(out, self._open_tasks())

    def _task_started(self, line: wire.SystemTaskStarted, out: list[Any]) -> None:
        is_agent = _is_agent(line.task_type)
        background = line.is_backgrounded is True
        if is_agent:
            if line.tool_use_id:
                self.agents[line.tool_use_id] = line.task_id
            out.append(
                events.SubagentStarted(
                    agent_id=line.task_id,
                    call_id=line.tool_use_id or "",
                    description=line.description or "",
                    kind=line.subagent_type or "",
                    background=background,
                )
            )
        else:
            out.append(events.Notice(level="debug", code="task_started", message=line.description or ""))
        if background:
            self._tasks[line.task_id] = is_agent
            self._tell(out, self._open_tasks())

    def _task_notification(self, line: wire.SystemTaskNotification, out: list[Any]) -> None:
        if line.task_id in self.agents.values():
            out.append(
                events.SubagentEnded(
                    agent_id=line.task_id,
                    call_id=line.tool_use_id or "",
                    status=line.status or "",
                    summary=line.summary or "",
                    tokens=(line.usage.total_tokens or 0) if line.usage else 0,
                )
            )
        else:
            out.append(events.Notice(level="debug", code="task_notification", message=line.summary or ""))
        if self._tasks.pop(line.task_id, None) is not None:
            self._tell(out, self._open_tasks())

    def _open_tasks(self) -> signals.BackgroundTasks:
        agents = sum(self._tasks.values())
        return signals.BackgroundTasks(agents=agents, commands=len(self._tasks) - agents)


def _is_agent(task_type: str | None) -> bool:
    """Return whether a task is an agent. Unknown kinds count as agents: a time limit ends a needless wait, but a
    cut-off answer is lost.
    """
    return task_type is None or not ("bash" in task_type or "shell" in task_type or "monitor" in task_type)
