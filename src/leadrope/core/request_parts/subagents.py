"""Definitions of subagents, by the agent program's own names, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from leadrope import errors
from leadrope.core.text.toml_lines import dotted
from leadrope.core.text.wrong_types import in_words, split, suggest, unknown_key


class Subagent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """One of them. The program drops one that it cannot read, and ignores keys that it does not know."""

    description: str
    prompt: str
    tools: list[str] | UnsetType = UNSET
    disallowed_tools: list[str] | UnsetType = UNSET
    model: str | UnsetType = UNSET
    effort: str | int | UnsetType = UNSET
    permission_mode: str | UnsetType = UNSET
    mcp_servers: list[str | dict[str, Any]] | UnsetType = UNSET
    hooks: dict[str, Any] | UnsetType = UNSET
    max_turns: int | UnsetType = UNSET
    auto_compact_window: int | UnsetType = UNSET
    skills: list[str] | UnsetType = UNSET
    initial_prompt: str | UnsetType = UNSET
    memory: Literal["user", "project", "local"] | UnsetType = UNSET
    background: bool | UnsetType = UNSET
    omit_claude_md: bool | UnsetType = UNSET
    isolation: Literal["worktree", "remote"] | UnsetType = UNSET
    observer: str | UnsetType = UNSET
    observer_message: str | UnsetType = UNSET
    observe_subagents: bool | UnsetType = UNSET


KEYS = Subagent.__struct_encode_fields__


def check(given: Mapping[str, Mapping[str, Any]]) -> None:
    """BadValue for a key that the program does not know, one that is missing, or a value of another type."""
    for name, definition in given.items():
        place = dotted("subagents", name)
        try:
            found = msgspec.convert(dict(definition), Subagent)
        except msgspec.ValidationError as error:
            message, path = split(error)
            unknown = unknown_key(message)
            if unknown is not None:
                raise errors.BadValue(f"{place}.{unknown}", "is not a known key", hint=suggest(unknown, KEYS)) from None
            wrong, hint = in_words(message, Subagent, path)
            raise errors.BadValue(f"{place}{path}", wrong, hint=hint) from None
        for key in ("description", "prompt"):
            if not getattr(found, key).strip():
                raise errors.BadValue(f"{place}.{key}", "is empty", hint=_HINTS[key])


_HINTS = {"description": "Say when to use it.", "prompt": "Write its system prompt."}
