"""What a policy may say, as people write it, and what comes out when layers are merged.

Made by tools/rule_lists.py (`make docs`) from policy/rules.py. Do not edit it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from leadrope.core.request import Mode

Amount = Annotated[float, Meta(gt=0)]
Positive = Annotated[int, Meta(gt=0)]
Count = Annotated[int, Meta(ge=0)]
Texts = tuple[str, ...]
NoLimit = Literal["none"]
"""This layer sets no limit. In the user's own `[policy]` it lifts the shipped one; elsewhere it changes nothing."""


class McpRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`[policy.mcp]`"""

    allowed_servers: Texts | UnsetType = UNSET
    allowed_tools: Texts | UnsetType = UNSET


class NetworkRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`[policy.network]`"""

    blocked_hosts: Texts | UnsetType = UNSET
    allowed_hosts: Texts | UnsetType = UNSET
    reach: Literal["any", "model-only"] | UnsetType = UNSET


class PolicyRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The rules of one layer. What is left out is not said, and leaves the other layers alone."""

    max_tool_calls: Count | NoLimit | UnsetType = UNSET
    disallowed_tools: Texts | UnsetType = UNSET
    allowed_tools: Texts | UnsetType = UNSET
    blocked_paths: Texts | UnsetType = UNSET
    workspace_only: bool | UnsetType = UNSET
    max_file_size: Positive | NoLimit | UnsetType = UNSET
    web: Literal["allow", "ask", "deny"] | UnsetType = UNSET
    blocked_commands: Texts | UnsetType = UNSET
    destructive: Literal["allow", "ask", "deny"] | UnsetType = UNSET
    require_approval: bool | Texts | UnsetType = UNSET
    protected_paths: Texts | UnsetType = UNSET
    permission_mode: str | UnsetType = UNSET
    on_ask: Literal["ask", "deny"] | UnsetType = UNSET
    opaque: Literal["sandbox", "ask", "deny"] | UnsetType = UNSET
    sandbox: Literal["off", "preferred", "required"] | UnsetType = UNSET
    sandbox_level: Literal["workspace", "read-only"] | UnsetType = UNSET
    broker: bool | Literal["auto"] | UnsetType = UNSET
    unknown_price: Literal["dearest", "refuse"] | UnsetType = UNSET
    wait_for_limit: bool | UnsetType = UNSET
    max_budget_usd: Amount | NoLimit | UnsetType = UNSET
    max_timeout_ms: Positive | NoLimit | UnsetType = UNSET
    max_wall_ms: Positive | NoLimit | UnsetType = UNSET
    max_approval_ms: Positive | NoLimit | UnsetType = UNSET
    max_memory_mb: Positive | NoLimit | UnsetType = UNSET
    mcp: McpRules | UnsetType = UNSET
    network: NetworkRules | UnsetType = UNSET


class EffectiveRules(msgspec.Struct, frozen=True, kw_only=True):
    """What holds when all layers have spoken. A rule that nobody spoke of has its loosest value."""

    max_tool_calls: int | None = None
    disallowed_tools: Texts = ()
    allowed_tools: tuple[Texts, ...] = ()
    mcp_allowed_servers: tuple[Texts, ...] = ()
    mcp_allowed_tools: tuple[Texts, ...] = ()
    blocked_paths: Texts = ()
    workspace_only: bool = False
    max_file_size: int | None = None
    web: Literal["allow", "ask", "deny"] = "allow"
    network_blocked_hosts: Texts = ()
    network_allowed_hosts: tuple[Texts, ...] = ()
    blocked_commands: Texts = ()
    destructive: Literal["allow", "ask", "deny"] = "allow"
    require_approval: Literal[True] | Texts = ()
    protected_paths: Texts = ()
    permission_mode: tuple[Mode, ...] = ()
    on_ask: Literal["ask", "deny"] = "ask"
    opaque: Literal["sandbox", "ask", "deny"] = "sandbox"
    sandbox: Literal["off", "preferred", "required"] = "off"
    sandbox_level: Literal["workspace", "read-only"] = "workspace"
    network_reach: Literal["any", "model-only"] = "any"
    broker: bool | Literal["auto"] = False
    unknown_price: Literal["dearest", "refuse"] = "dearest"
    wait_for_limit: bool = True
    max_budget_usd: float | None = None
    max_timeout_ms: int | None = None
    max_wall_ms: int | None = None
    max_approval_ms: int | None = None
    max_memory_mb: int | None = None


TABLES: Mapping[str, type[msgspec.Struct]] = {"mcp": McpRules, "network": NetworkRules}
"""Rules with a dot in their names."""
