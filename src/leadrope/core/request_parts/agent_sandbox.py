"""Settings of the agent program's own sandbox, by the program's own names, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from leadrope import errors
from leadrope.core.text.wrong_types import in_words, split, suggest, unknown_key


class _Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Of the agent program, by its own names. What it does not know it would ignore, and run without what was meant."""


class SandboxNetwork(_Settings, frozen=True, kw_only=True):
    allowed_domains: list[str] | UnsetType = UNSET
    denied_domains: list[str] | UnsetType = UNSET
    allow_managed_domains_only: bool | UnsetType = UNSET
    allow_unix_sockets: list[str] | UnsetType = UNSET
    allow_all_unix_sockets: bool | UnsetType = UNSET
    allow_local_binding: bool | UnsetType = UNSET
    allow_mach_lookup: list[str] | UnsetType = UNSET
    http_proxy_port: int | UnsetType = UNSET
    socks_proxy_port: int | UnsetType = UNSET


class AgentSandboxSettings(_Settings, frozen=True, kw_only=True):
    enabled: bool | UnsetType = UNSET
    auto_allow_bash_if_sandboxed: bool | UnsetType = UNSET
    excluded_commands: list[str] | UnsetType = UNSET
    allow_unsandboxed_commands: bool | UnsetType = UNSET
    network: SandboxNetwork | UnsetType = UNSET
    ignore_violations: dict[str, list[str]] | UnsetType = UNSET
    enable_weaker_nested_sandbox: bool | UnsetType = UNSET


SANDBOX_KEYS = AgentSandboxSettings.__struct_encode_fields__


class AgentSandbox(msgspec.Struct, frozen=True, kw_only=True):
    """What the gate has to know of it."""

    is_enabled: bool = False
    allows_commands: bool = False
    """`autoAllowBashIfSandboxed`: a command that runs in it needs no question of the mode's."""
    excluded: tuple[str, ...] = ()
    """Commands that run outside of it."""

    @classmethod
    def of(cls, settings: Mapping[str, Any] | None) -> AgentSandbox:
        """Of settings that were checked."""
        given = settings or {}
        is_enabled = given.get("enabled") is True
        return cls(
            is_enabled=is_enabled,
            allows_commands=is_enabled and given.get("autoAllowBashIfSandboxed") is True,
            excluded=tuple(given.get("excludedCommands", ())),
        )


def check(settings: Mapping[str, Any]) -> None:
    """BadValue for a key that the program does not know, or a value of another type."""
    try:
        msgspec.convert(dict(settings), AgentSandboxSettings)
    except msgspec.ValidationError as error:
        message, path = split(error)
        unknown = unknown_key(message)
        if unknown is not None:
            known = SandboxNetwork.__struct_encode_fields__ if path == ".network" else SANDBOX_KEYS
            raise errors.BadValue(
                f"agent_sandbox{path}.{unknown}", "is not a known key", hint=suggest(unknown, known)
            ) from None
        wrong, hint = in_words(message)
        raise errors.BadValue(f"agent_sandbox{path}", wrong, hint=hint) from None
