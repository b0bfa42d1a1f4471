"""What a policy may say, as people write it: every rule optional, every type checked. Decides nothing."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

Positive = Annotated[int, Meta(gt=0)]
Count = Annotated[int, Meta(ge=0)]
Texts = tuple[str, ...]
NoLimit = Literal["none"]
"""This layer sets no limit. In the user's own `[policy]` it lifts the shipped one; elsewhere it changes nothing."""


class NetworkRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`[policy.network]`: hosts of WebFetch and WebSearch, and what a sandboxed run can reach at all."""

    allowed_hosts: Texts | UnsetType = UNSET
    blocked_hosts: Texts | UnsetType = UNSET
    reach: Literal["any", "model-only"] | UnsetType = UNSET


class McpRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`[policy.mcp]`: which servers, and which of their tools."""

    allowed_servers: Texts | UnsetType = UNSET
    allowed_tools: Texts | UnsetType = UNSET


class PolicyRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The rules of one layer. What is left out is not said, and leaves the other layers' word alone."""

    permission_mode: str | UnsetType = UNSET
    allowed_tools: Texts | UnsetType = UNSET
    disallowed_tools: Texts | UnsetType = UNSET
    blocked_commands: Texts | UnsetType = UNSET
    destructive: Literal["allow", "ask", "deny"] | UnsetType = UNSET
    require_approval: bool | Texts | UnsetType = UNSET
    blocked_paths: Texts | UnsetType = UNSET
    protected_paths: Texts | UnsetType = UNSET
    workspace_only: bool | UnsetType = UNSET
    network: NetworkRules | UnsetType = UNSET
    mcp: McpRules | UnsetType = UNSET
    web: Literal["allow", "ask", "deny"] | UnsetType = UNSET
    on_ask: Literal["ask", "deny"] | UnsetType = UNSET
    opaque: Literal["sandbox", "ask", "deny"] | UnsetType = UNSET
    sandbox: Literal["off", "preferred", "required"] | UnsetType = UNSET
    sandbox_level: Literal["workspace", "read-only"] | UnsetType = UNSET
    broker: bool | Literal["auto"] | UnsetType = UNSET
    unknown_price: Literal["dearest", "refuse"] | UnsetType = UNSET
    wait_for_limit: bool | UnsetType = UNSET
    max_budget_usd: Annotated[float, Meta(gt=0)] | NoLimit | UnsetType = UNSET
    max_timeout_ms: Positive | NoLimit | UnsetType = UNSET
    max_wall_ms: Positive | NoLimit | UnsetType = UNSET
    max_approval_ms: Positive | NoLimit | UnsetType = UNSET
    max_memory_mb: Positive | NoLimit | UnsetType = UNSET
    max_file_size: Positive | NoLimit | UnsetType = UNSET
    max_tool_calls: Count | NoLimit | UnsetType = UNSET


# What a policy file may hold beside its rules.
FILE_KEYS = ("include", "examples", "defaults")
