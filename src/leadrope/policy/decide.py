"""A policy and a call in, a verdict with its reason out. Pure but for the links that a path may be."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from leadrope.core.request import Mode
from leadrope.core.tools import BASELINE_TOOLS, ToolCall, ToolClass, class_of, edited_path
from leadrope.policy import paths


class Allow(msgspec.Struct, frozen=True):
    rule: str
    reason: str = ""


class Ask(msgspec.Struct, frozen=True):
    rule: str
    reason: str = ""


class Deny(msgspec.Struct, frozen=True):
    rule: str
    reason: str = ""


Verdict = Allow | Ask | Deny

_ALLOW, _ASK, _DENY = "allow", "ask", "deny"


def _mode(default: str, **classes: str) -> Mapping[str, str]:
    every = ("read", "edit", "edit_outside", "command", "network", "agent", "control", "other")
    return MappingProxyType({name: classes.get(name, default) for name in every})


# A mode is a verdict per class. `control` is allowed everywhere: these tools touch nothing, and a question or a plan
# is held for a person at a later point of the protocol.
MODES: Mapping[Mode, Mapping[str, str]] = MappingProxyType(
    {
        "plan": _mode(_DENY, read=_ALLOW, control=_ALLOW),
        "default": _mode(_ASK, read=_ALLOW, control=_ALLOW),
        "edit": _mode(_ASK, read=_ALLOW, control=_ALLOW, edit=_ALLOW),
        "dontAsk": _mode(_DENY, read=_ALLOW, control=_ALLOW),
        "full": _mode(_ALLOW),
    }
)

# The same tool under two names: the agent lists one and calls the other.
_SAME = {"Task": "Agent"}


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for one run."""

    mode: Mode
    workspace: tuple[str, ...]
    """Folders in which edits count as inside; the first is the working directory."""
    tools: tuple[str, ...] | None = None
    """The caller's own list; None means that he named none and every tool may be used."""
    disallowed_tools: tuple[str, ...] = ()


def decide(policy: Policy, call: ToolCall, *, resolve: paths.Resolve = os.path.realpath) -> Verdict:
    """The verdict of the run's policy on one call: what is forbidden first, then the mode."""
    for entry in policy.disallowed_tools:
        if _names(entry, call.name):
            if "(" not in entry:
                return Deny("disallowed_tools", f"{call.name} is not allowed in this run")
            return Ask("disallowed_tools", f"{entry} limits {call.name} in this run")
    kind = class_of_call(call, policy.workspace, resolve=resolve)
    if policy.tools is not None and kind != "control":
        usable = (*policy.tools, *BASELINE_TOOLS)
        if not any(_names(entry, call.name) for entry in usable):
            return Deny("tools", f"{call.name} is not in this run's list of tools")
    return _by_mode(policy, call, kind)


def class_of_call(
    call: ToolCall, workspace: tuple[str, ...], *, resolve: paths.Resolve = os.path.realpath
) -> ToolClass:
    """The tool's class, with an edit told inside from outside. An edit without a path is outside."""
    kind = class_of(call.name)
    if kind != "edit":
        return kind
    path = edited_path(call)
    inside = path is not None and paths.is_inside(path, workspace, cwd=workspace[0], resolve=resolve)
    return "edit" if inside else "edit_outside"


def _by_mode(policy: Policy, call: ToolCall, kind: ToolClass) -> Verdict:
    rule = f"mode:{policy.mode}"
    verdict = MODES[policy.mode][kind]
    if verdict == _ALLOW:
        return Allow(rule)
    # dontAsk denies what default would ask; what the caller named himself is not asked there either.
    would_ask = verdict == _ASK or policy.mode == "dontAsk"
    if would_ask and _granted(policy, call, kind):
        return Allow("tools", f"{call.name} was granted when the run was started")
    if verdict == _ASK:
        return Ask(rule, _describe(call, kind))
    return Deny(rule, f"mode {policy.mode} does not allow {_describe(call, kind)}")


def _granted(policy: Policy, call: ToolCall, kind: ToolClass) -> bool:
    """Named bare by the caller, or of the baseline. A granted edit tool still asks outside of the workspace."""
    if kind == "edit_outside":
        return False
    named = any("(" not in entry and _names(entry, call.name) for entry in policy.tools or ())
    return named or call.name in BASELINE_TOOLS


def _names(entry: str, tool: str) -> bool:
    """Does a list entry (`Bash`, `Bash(git *)`, `mcp__github`, `mcp__github__*`) speak of this tool?"""
    name = entry.split("(", 1)[0].strip()
    if name.startswith("mcp__"):
        # `mcp__github` is the whole server; `mcp__github__*` and `mcp__github__get_*` say it with a star.
        prefix = name[:-1] if name.endswith("*") else f"{name}__"
        return tool == name or tool.startswith(prefix)
    return _SAME.get(name, name) == _SAME.get(tool, tool)


def _describe(call: ToolCall, kind: ToolClass) -> str:
    words = {
        "edit": "an edit of a file",
        "edit_outside": "an edit outside of the workspace",
        "command": "a command",
        "network": "network access",
        "agent": "another agent",
        "read": "reading",
        "control": "control",
        "other": f"the tool {call.name}",
    }
    return words[kind]
