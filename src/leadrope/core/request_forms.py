"""The options of a request in other forms: keywords of a function, and defaults of config.toml.

Made by tools/option_lists.py (`make docs`) from core/request.py. Do not edit it.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict

import msgspec
from msgspec import UNSET, UnsetType

from leadrope.core.request import (
    Billing,
    CredentialKind,
    Effort,
    Limits,
    McpServer,
    Mode,
    ModeAlias,
    Network,
    SandboxLevel,
)
from leadrope.core.request_parts.sequences import SequenceNotStr
from leadrope.core.secrets.redaction import Secret


class RunFields(TypedDict, total=False):
    """All fields of a `RunRequest` but its prompt: editors complete them, type checkers see a typo."""

    attachments: SequenceNotStr[str]
    provider: str
    agent: str | None
    model: str | None
    fallback_model: str | None
    purpose: str | None
    system_prompt: str | None
    append_system_prompt: str | None
    instructions: bool
    tools: SequenceNotStr[str] | None
    disallowed_tools: SequenceNotStr[str]
    allow: SequenceNotStr[str]
    mode: Mode | ModeAlias
    policy: dict[str, Any]
    policies: SequenceNotStr[dict[str, Any]]
    policy_files: SequenceNotStr[str]
    max_turns: int | None
    max_thinking_tokens: int | None
    effort: Effort | None
    connections: dict[str, McpServer]
    extra_dirs: SequenceNotStr[str]
    subagents: dict[str, dict[str, Any]]
    agent_sandbox: dict[str, Any] | None
    sandbox: SandboxLevel | None
    network: Network | None
    output_schema: dict[str, Any] | None
    schema_retries: int
    cwd: str | None
    session_id: str | None
    resume: str | None
    fork: bool
    persist_session: bool
    limits: Limits
    variables: dict[str, str]
    secret_variables: SequenceNotStr[str]
    billing: Billing
    credential: Secret | None
    credential_kind: CredentialKind | None
    broker: bool | None
    base_url: str | None
    binary: str | None
    labels: dict[str, str]
    api_retries: int | None
    max_structured_retries: int | None
    attempts: int
    wait_for_limit: bool
    auto_continue: int


class LimitDefaults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`Limits`, with every field open."""

    start_s: float | UnsetType = UNSET
    idle_s: float | UnsetType = UNSET
    tool_s: float | UnsetType = UNSET
    wall_s: float | UnsetType = UNSET
    exit_s: float | UnsetType = UNSET
    approval_s: float | UnsetType = UNSET
    connection_s: float | UnsetType = UNSET
    unreachable_s: float | UnsetType = UNSET
    stop_s: float | UnsetType = UNSET
    budget_usd: float | Literal["none"] | UnsetType = UNSET
    memory_mb: float | UnsetType = UNSET


class RequestDefaults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options that config.toml may set: those that make sense for more than one run."""

    provider: str | UnsetType = UNSET
    agent: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    fallback_model: str | UnsetType = UNSET
    purpose: str | UnsetType = UNSET
    system_prompt: str | UnsetType = UNSET
    append_system_prompt: str | UnsetType = UNSET
    instructions: bool | UnsetType = UNSET
    tools: tuple[str, ...] | UnsetType = UNSET
    disallowed_tools: tuple[str, ...] | UnsetType = UNSET
    allow: tuple[str, ...] | UnsetType = UNSET
    mode: str | UnsetType = UNSET
    max_turns: int | UnsetType = UNSET
    max_thinking_tokens: int | UnsetType = UNSET
    effort: str | UnsetType = UNSET
    connections: tuple[str, ...] | UnsetType = UNSET
    extra_dirs: tuple[str, ...] | UnsetType = UNSET
    subagents: dict[str, dict[str, Any]] | UnsetType = UNSET
    agent_sandbox: dict[str, Any] | UnsetType = UNSET
    sandbox: str | UnsetType = UNSET
    network: str | UnsetType = UNSET
    output_schema: dict[str, Any] | UnsetType = UNSET
    schema_retries: int | UnsetType = UNSET
    cwd: str | UnsetType = UNSET
    persist_session: bool | UnsetType = UNSET
    limits: LimitDefaults | UnsetType = UNSET
    variables: dict[str, str] | UnsetType = UNSET
    secret_variables: tuple[str, ...] | UnsetType = UNSET
    billing: str | UnsetType = UNSET
    broker: bool | UnsetType = UNSET
    base_url: str | UnsetType = UNSET
    binary: str | UnsetType = UNSET
    labels: dict[str, str] | UnsetType = UNSET
    api_retries: int | UnsetType = UNSET
    max_structured_retries: int | UnsetType = UNSET
    attempts: int | UnsetType = UNSET
    wait_for_limit: bool | UnsetType = UNSET
    auto_continue: int | UnsetType = UNSET
