"""The fields of a `RunRequest` as keywords of a function, so that editors complete them and type checkers see a typo.

A test holds both lists equal, except that any sequence is taken where the request holds a tuple.
"""

from __future__ import annotations

from typing import Any, TypedDict

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
    """All fields of a `RunRequest` but its prompt; see there for what they mean."""

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
