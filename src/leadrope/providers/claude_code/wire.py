"""The CLI's output format: one type per kind of line. Its field names are used only here.

Decoding is tolerant: unknown fields are ignored, missing ones have defaults, and kinds that grow with every release
(content blocks, stream events) are one open type with a `type` field, as a closed union would reject the whole line.
"""

from __future__ import annotations

from typing import Any

import msgspec


class _Wire(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    pass


class _Line(_Wire, frozen=True, kw_only=True, gc=False, tag_field="type"):
    pass


class _Request(_Wire, frozen=True, kw_only=True, gc=False, tag_field="subtype"):
    pass


class Block(_Wire, frozen=True, kw_only=True, gc=False):
    """A content block: text, thinking, tool_use, tool_result …; fields of other kinds keep their defaults."""

    type: str
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: Any = None
    tool_use_id: str | None = None
    content: str | list[Block] | None = None
    is_error: bool | None = None


class AssistantMessage(_Wire, frozen=True, kw_only=True, gc=False):
    content: list[Block] | str
    id: str | None = None
    model: str | None = None
    # Only decoded for subagents, whose messages are not streamed.
    usage: msgspec.Raw = msgspec.Raw()


class Assistant(_Line, frozen=True, kw_only=True, gc=False, tag="assistant"):
    message: AssistantMessage
    parent_tool_use_id: str | None = None
    agent_id: str | None = None
    error: str | None = None
    is_api_error_message: bool | None = None


class UserMessage(_Wire, frozen=True, kw_only=True, gc=False):
    content: list[Block] | str


class ToolResultMeta(_Wire, frozen=True, kw_only=True, gc=False):
    id: str
    non_execution_kind: str | None = None


class Origin(_Wire, frozen=True, kw_only=True, gc=False):
    kind: str | None = None


class User(_Line, frozen=True, kw_only=True, gc=False, tag="user"):
    message: UserMessage
    parent_tool_use_id: str | None = None
    agent_id: str | None = None
    uuid: str | None = None
    is_replay: bool | None = msgspec.field(default=None, name="isReplay")
    origin: Origin | None = None
    # Only decoded for failed calls; left undecoded, the others cost nothing.
    tool_result_meta: msgspec.Raw = msgspec.Raw()


class CacheCreation(_Wire, frozen=True, kw_only=True, gc=False):
    ephemeral_1h_input_tokens: int | None = None


class Tokens(_Wire, frozen=True, kw_only=True, gc=False):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_creation: CacheCreation | None = None


class Delta(_Wire, frozen=True, kw_only=True, gc=False):
    text: str | None = None
    thinking: str | None = None


class StartedMessage(_Wire, frozen=True, kw_only=True, gc=False):
    id: str
    model: str | None = None
    usage: Tokens | None = None


class ApiEvent(_Wire, frozen=True, kw_only=True, gc=False):
    """An event of the model's stream: message_start, content_block_delta, message_delta, message_stop …"""

    type: str
    delta: Delta | None = None
    message: StartedMessage | None = None
    usage: Tokens | None = None


class StreamEvent(_Line, frozen=True, kw_only=True, gc=False, tag="stream_event"):
    event: ApiEvent
    parent_tool_use_id: str | None = None
    agent_id: str | None = None


class OldToolUse(_Wire, frozen=True, kw_only=True, gc=False):
    name: str
    id: str | None = None
    input: Any = None


class ToolUse(_Line, frozen=True, kw_only=True, gc=False, tag="tool_use"):
    """Older CLIs print a tool call as a line of its own."""

    tool_use: OldToolUse
    parent_tool_use_id: str | None = None
    agent_id: str | None = None


class OldToolResult(_Wire, frozen=True, kw_only=True, gc=False):
    tool_use_id: str | None = None
    content: str | list[Block] | None = None
    is_error: bool | None = None


class ToolResult(_Line, frozen=True, kw_only=True, gc=False, tag="tool_result"):
    """Older CLIs print a tool result as a line of its own, its fields nested or not."""

    tool_result: OldToolResult | None = None
    tool_use_id: str | None = None
    content: str | list[Block] | None = None
    is_error: bool | None = None
    parent_tool_use_id: str | None = None
    agent_id: str | None = None


class ModelUsage(_Wire, frozen=True, kw_only=True, gc=False, rename="camel"):
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cost_usd: float = msgspec.field(default=0.0, name="costUSD")


class PermissionDenial(_Wire, frozen=True, kw_only=True, gc=False):
    tool_name: str
    tool_use_id: str | None = None
    tool_input: Any = None


class Result(_Line, frozen=True, kw_only=True, gc=False, tag="result"):
    subtype: str | None = None
    is_error: bool | None = None
    result: str | None = None
    stop_reason: str | None = None
    terminal_reason: str | None = None
    api_error_status: int | None = None
    api_error: str | None = None
    api_error_type: str | None = None
    errors: list[str] | None = None
    structured_output: Any = msgspec.UNSET
    num_turns: int | None = None
    duration_ms: float | None = None
    usage: Tokens | None = None
    total_cost_usd: float | None = None
    cost_usd: float | None = None
    """The cost of this turn alone, as reported by older CLIs."""
    model_usage: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="modelUsage")
    """For the whole process; read if there is no total."""
    model_usage_since_last_result: dict[str, ModelUsage] | None = None
    permission_denials: list[PermissionDenial] | None = None
    origin: Origin | None = None
    startup_failure_reason: str | None = None


class ToolProgress(_Line, frozen=True, kw_only=True, gc=False, tag="tool_progress"):
    tool_use_id: str
    parent_tool_use_id: str | None = None
    tool_name: str | None = None
    elapsed_time_seconds: float | None = None
    # Sent by a timer, not by the tool, even if older CLIs did not say so.
    heartbeat: bool = True


class RateLimitInfo(_Wire, frozen=True, kw_only=True, gc=False, rename="camel"):
    status: str
    resets_at: float | str | None = None
    rate_limit_type: str | None = None
    utilization: float | None = None


class RateLimitEvent(_Line, frozen=True, kw_only=True, gc=False, tag="rate_limit_event"):
    rate_limit_info: RateLimitInfo


class ConversationReset(_Line, frozen=True, kw_only=True, gc=False, tag="conversation_reset"):
    trigger: str | None = None


class CommandLifecycle(_Line, frozen=True, kw_only=True, gc=False, tag="command_lifecycle"):
    state: str | None = None


class HookInput(_Wire, frozen=True, kw_only=True, gc=False):
    hook_event_name: str
    tool_name: str
    tool_input: Any = None
    tool_use_id: str | None = None
    permission_mode: str | None = None
    cwd: str | None = None
    agent_id: str | None = None


class HookCallback(_Request, frozen=True, kw_only=True, gc=False, tag="hook_callback"):
    input: HookInput
    tool_use_id: str | None = None


class CanUseTool(_Request, frozen=True, kw_only=True, gc=False, tag="can_use_tool"):
    tool_name: str
    tool_use_id: str
    input: Any = None
    agent_id: str | None = None
    decision_reason: str | None = None
    description: str | None = None
    blocked_path: str | None = None


class McpCall(_Request, frozen=True, kw_only=True, gc=False, tag="mcp_message"):
    server_name: str
    message: dict[str, Any]


class ControlRequest(_Line, frozen=True, kw_only=True, gc=False, tag="control_request"):
    request_id: str
    request: HookCallback | CanUseTool | McpCall


class ControlAnswer(_Wire, frozen=True, kw_only=True, gc=False):
    request_id: str
    subtype: str
    response: Any = None
    error: str | None = None
    error_code: str | None = None


class ControlResponse(_Line, frozen=True, kw_only=True, gc=False, tag="control_response"):
    response: ControlAnswer


class ControlCancelRequest(_Line, frozen=True, kw_only=True, gc=False, tag="control_cancel_request"):
    request_id: str


class System(_Line, frozen=True, kw_only=True, gc=False, tag="system"):
    """Only names the kind; the line is then decoded again with the type in `SYSTEM`. These lines are few."""

    subtype: str


class McpServerStatus(_Wire, frozen=True, kw_only=True, gc=False):
    name: str
    status: str = ""


class SystemInit(_Wire, frozen=True, kw_only=True, gc=False):
    session_id: str
    model: str | None = None
    cwd: str | None = None
    tools: list[str] | None = None
    mcp_servers: list[McpServerStatus] | None = None
    permission_mode: str | None = msgspec.field(default=None, name="permissionMode")
    api_key_source: str | None = msgspec.field(default=None, name="apiKeySource")
    claude_code_version: str | None = None


class SystemApiRetry(_Wire, frozen=True, kw_only=True, gc=False):
    attempt: int
    max_retries: int = 0
    retry_delay_ms: float = 0
    error_status: int | None = None
    error: str | None = None


class SystemPermissionDenied(_Wire, frozen=True, kw_only=True, gc=False):
    tool_name: str
    message: str | None = None
    decision_reason: str | None = None


class BackgroundTask(_Wire, frozen=True, kw_only=True, gc=False):
    task_id: str
    task_type: str | None = None


class SystemBackgroundTasks(_Wire, frozen=True, kw_only=True, gc=False):
    tasks: list[BackgroundTask]


class SystemTaskStarted(_Wire, frozen=True, kw_only=True, gc=False):
    task_id: str
    task_type: str | None = None
    tool_use_id: str | None = None
    description: str | None = None
    subagent_type: str | None = None
    is_backgrounded: bool | None = None


class TaskTotals(_Wire, frozen=True, kw_only=True, gc=False):
    total_tokens: int | None = None


class SystemTaskNotification(_Wire, frozen=True, kw_only=True, gc=False):
    task_id: str
    tool_use_id: str | None = None
    status: str | None = None
    summary: str | None = None
    usage: TaskTotals | None = None


class SystemSessionState(_Wire, frozen=True, kw_only=True, gc=False):
    state: str


class SystemNote(_Wire, frozen=True, kw_only=True, gc=False):
    """The fields of any other `system` line that may interest a person."""

    level: str | None = None
    content: Any = None
    message: Any = None
    status: Any = None
    description: Any = None
    title: Any = None
    hook_name: Any = None


SYSTEM: dict[str, type[_Wire]] = {
    "init": SystemInit,
    "api_retry": SystemApiRetry,
    "permission_denied": SystemPermissionDenied,
    "background_tasks_changed": SystemBackgroundTasks,
    "task_started": SystemTaskStarted,
    "task_notification": SystemTaskNotification,
    "session_state_changed": SystemSessionState,
}

# Other `system` kinds that matter to the user. Everything else that this CLI is known to print becomes a debug event; a
# kind in neither list is kept completely, as unrecognised.
NOTES_FOR_USERS = {
    "informational": "info",
    "compact_boundary": "info",
    "model_fallback": "warning",
    "model_consent_fallback": "warning",
    "model_refusal_fallback": "warning",
    "model_refusal_no_fallback": "warning",
    "session_writes_lost": "warning",
    "file_attachments_missing": "warning",
    "api_error": "warning",
    "notification": "info",
    "agents_killed": "info",
}
QUIET_NOTES = frozenset(
    (
        "away_summary",
        "cloud_session_delta",
        "code_change_published",
        "commands_changed",
        "control_request_progress",
        "dev_intent",
        "elicitation_complete",
        "feedback_draft_queued",
        "file_snapshot",
        "files_persisted",
        "hook_progress",
        "hook_response",
        "hook_started",
        "inherited_asks_settled",
        "instruction_size_warning",
        "local_command_output",
        "memory_recall",
        "memory_saved",
        "mirror_error",
        "peer_message_hold",
        "per_turn_effort_changed",
        "permission_check_status",
        "permission_retry",
        "plugin_install",
        "post_turn_summary",
        "scheduled_task_fire",
        "session_metadata",
        "session_title_changed",
        "status",
        "stop_hook_summary",
        "task_progress",
        "task_summary",
        "task_updated",
        "thinking",
        "thinking_tokens",
        "turn_duration",
        "turn_handoff_available",
        "turn_preempted",
        "ui_focus",
        "ui_invalidate",
        "ui_log",
        "ui_notify",
        "ui_notify_cancel",
        "ui_panes",
        "ui_placed",
        "ui_scroll",
        "ui_status",
        "ui_toast",
        "upgrade_relay_marker",
        "vcs_state_changed",
        "worker_shutting_down",
    )
)

Line = (
    Assistant
    | User
    | StreamEvent
    | System
    | Result
    | ToolUse
    | ToolResult
    | ToolProgress
    | RateLimitEvent
    | ConversationReset
    | CommandLifecycle
    | ControlRequest
    | ControlResponse
    | ControlCancelRequest
)


class AnyRequest(_Wire, frozen=True, kw_only=True, gc=False):
    """The part of an undecodable control request that is needed to reject it."""

    type: str
    request_id: str
    request: Any = None


class Oneshot(_Wire, frozen=True, kw_only=True, gc=False):
    """The single object of `--output-format json`, including the formats of older CLIs."""

    subtype: str | None = None
    result: Any = None
    is_error: bool = False
    cost_usd: float | None = None
    total_cost_usd: float | None = None
    session_id: str | None = None
    model: str | None = None
    num_turns: int | None = None
    structured_output: Any = msgspec.UNSET
    error: Any = None
    model_usage: dict[str, Any] | None = msgspec.field(default=None, name="modelUsage")
