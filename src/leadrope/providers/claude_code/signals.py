"""Messages of the CLI that are not events: requests that its session must answer, and states for the runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from leadrope.core import events
from leadrope.core.tools import ToolCall


class _Control(msgspec.Struct, frozen=True, kw_only=True):
    pass


class Init(_Control, frozen=True, kw_only=True):
    """The start of a turn; the first one of a process is the start of the session."""

    session_id: str
    model: str
    mode: str
    cwd: str
    tools: tuple[str, ...]
    connections: tuple[events.Connection, ...]
    api_key_source: str
    version: str


class HookCall(_Control, frozen=True, kw_only=True):
    """The CLI blocks a tool call until this is answered."""

    request_id: str
    call: ToolCall
    permission_mode: str
    cwd: str


class CliPermissionAsked(_Control, frozen=True, kw_only=True):
    """The CLI's own permission request; it follows the hook, for the same call."""

    request_id: str
    call: ToolCall
    reason: str = ""
    description: str = ""
    blocked_path: str | None = None


class ControlReply(_Control, frozen=True, kw_only=True):
    request_id: str
    ok: bool
    payload: Any = None
    error: str = ""


class Replay(_Control, frozen=True, kw_only=True):
    """The echo of a message that the CLI received."""

    uuid: str
    origin: str = ""
    """Set for a message from the CLI itself, such as the end of a background task."""


class ControlCancelled(_Control, frozen=True, kw_only=True):
    """Stop showing the request, and do not answer it."""

    request_id: str


class McpMessage(_Control, frozen=True, kw_only=True):
    request_id: str
    server: str
    message: dict[str, Any]


class OtherControl(_Control, frozen=True, kw_only=True):
    """An unknown request; the session rejects it, since unanswered it would block the agent."""

    request_id: str
    subtype: str


class BackgroundTasks(_Control, frozen=True, kw_only=True):
    """What is still running after the turn; agents are waited for, commands are not."""

    agents: int
    commands: int


class CliSessionState(_Control, frozen=True, kw_only=True):
    state: str


Control = (
    Init
    | HookCall
    | CliPermissionAsked
    | ControlReply
    | Replay
    | ControlCancelled
    | McpMessage
    | OtherControl
    | BackgroundTasks
    | CliSessionState
)

Tell = Callable[[list[Any], Control], None]
