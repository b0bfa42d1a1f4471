"""A policy and a call in, a verdict with its reason out. Pure but for the links that a path may be.

What is forbidden comes first, then what needs approval, then the mode; the strictest word counts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import msgspec

from leadrope import errors
from leadrope.core.request import Mode
from leadrope.core.tools import BASELINE_TOOLS, ToolCall, ToolClass
from leadrope.policy import paths, patterns
from leadrope.policy.look import SHELL_TOOLS, Facts, Look
from leadrope.policy.resolve import EffectivePolicy
from leadrope.policy.rules import CHECKS, Finding, Rule
from leadrope.policy.verdicts import Allow, Ask, Deny, Verdict, stricter

__all__ = [
    "MODES",
    "Allow",
    "Ask",
    "Deny",
    "EffectivePolicy",
    "Facts",
    "Policy",
    "Verdict",
    "class_of_call",
    "decide",
]

Stance = Literal["allow", "ask", "unasked", "deny"]
"""`unasked`: it would have to be asked for, and nobody is; a grant still opens it, which a plain deny does not."""
_AGENTS_FORM = re.compile(rf"({'|'.join(SHELL_TOOLS)})\(([^()*]+):\*\)")
_STANCES: tuple[Stance, ...] = ("allow", "ask", "unasked", "deny")


def _mode(default: Stance, **classes: Stance) -> Mapping[str, Stance]:
    every = ("read", "edit", "edit_outside", "command", "network", "agent", "control", "other")
    return MappingProxyType({name: classes.get(name, default) for name in every})


# A mode is a verdict per class. `control` is allowed everywhere: these tools touch nothing, and a question or a plan
# is held for a person at a later point of the protocol.
MODES: Mapping[Mode, Mapping[str, Stance]] = MappingProxyType(
    {
        "plan": _mode("deny", read="allow", control="allow"),
        "default": _mode("ask", read="allow", control="allow"),
        "edit": _mode("ask", read="allow", control="allow", edit="allow"),
        # Only where a sandbox holds: it is refused elsewhere before anything is started.
        "sandboxed": _mode("ask", read="allow", control="allow", edit="allow", command="allow"),
        "dontAsk": _mode("unasked", read="allow", control="allow"),
        "full": _mode("allow"),
    }
)


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for one run: what its caller chose, under the rules of all layers."""

    mode: Mode
    workspace: tuple[str, ...]
    """Folders in which edits count as inside; the first is the working directory."""
    tools: tuple[str, ...] | None = None
    """The caller's own list; None means that he named none and every tool may be used."""
    disallowed_tools: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    """Grants of the user's own: what they cover is not asked for where the mode would."""
    rules: EffectivePolicy = EffectivePolicy()

    @property
    def never_asks(self) -> bool:
        """Nobody is asked anything: no approval, no question, no plan."""
        return self.rules.on_ask == "deny" or "dontAsk" in (self.mode, *self.rules.permission_mode)


def decide(
    policy: Policy, call: ToolCall, facts: Facts | None = None, *, resolve: paths.Resolve = os.path.realpath
) -> Verdict:
    """The verdict on one call, with the rule that said it, its layer and how a command was read."""
    facts = facts or Facts()
    home = facts.home or paths.user_home()
    look = Look(call, paths.Ground(policy.workspace, home=home, resolve=resolve))
    verdict = _judge(policy, look, facts)
    if isinstance(verdict, Ask):
        verdict = _if_nobody_is_asked(policy, verdict)
    if look.command is not None and policy.rules.gates_commands:
        return msgspec.structs.replace(verdict, reading=look.described())
    return verdict


def class_of_call(
    call: ToolCall, workspace: tuple[str, ...], *, resolve: paths.Resolve = os.path.realpath
) -> ToolClass:
    """The tool's class, with an edit told inside from outside. An edit without a path is outside."""
    return Look(call, paths.Ground(workspace, home="/", resolve=resolve)).kind


def _judge(policy: Policy, look: Look, facts: Facts) -> Verdict:
    found = _by_caller(policy, look)
    if isinstance(found, Deny):
        return found
    # Every rule is heard before an ask counts: a later one may deny.
    for verdict in _by_rules(policy.rules, look, facts):
        if isinstance(verdict, Deny):
            return verdict
        found = found or verdict
    by_mode = _by_modes(policy, look)
    # An approval rule names the reason better than a mode that would have asked anyway.
    return stricter(found, by_mode) if found is not None else by_mode


def _by_caller(policy: Policy, look: Look) -> Ask | Deny | None:
    """The run's own lists of tools."""
    tool, asked = look.call.name, None
    for entry in policy.disallowed_tools:
        pattern = _readable(entry)
        if pattern is None:
            # Written for the agent, in a form that is not ours: it limits the tool, nobody here knows how.
            if _names(entry, tool):
                asked = asked or Ask("disallowed_tools", f"{entry} limits {tool} in this run", "run")
        elif (match := pattern.touches(look)) == "yes":
            what = tool if pattern.is_bare else entry
            return Deny("disallowed_tools", f"{what} is not allowed in this run", "run")
        elif match == "maybe":
            asked = asked or Ask("disallowed_tools", f"it cannot be told whether this is {entry}", "run")
    if policy.tools is not None and look.kind != "control" and not _is_usable(policy.tools, look):
        foreign = [entry for entry in policy.tools if _readable(entry) is None and _names(entry, tool)]
        if not foreign:
            return Deny("tools", f"{tool} is not in this run's list of tools", "run")
        asked = asked or Ask("tools", f"it cannot be told whether {foreign[0]} allows this", "run")
    return asked


def _is_usable(tools: tuple[str, ...], look: Look) -> bool:
    if any(_names(entry, look.call.name) for entry in BASELINE_TOOLS):
        return True
    return patterns.admitted([pattern.text for entry in tools if (pattern := _readable(entry))], look)


def _by_rules(rules: EffectivePolicy, look: Look, facts: Facts) -> list[Ask | Deny]:
    found: list[Ask | Deny] = []
    for rule in CHECKS:
        value = getattr(rules, rule.field)
        if value == rule.bottom:
            continue
        for finding in rule.check(value, look, facts):
            verdict = _verdict(rules, rule, finding, facts)
            if isinstance(verdict, Deny):
                return [verdict]
            if verdict is not None:
                found.append(verdict)
    if rules.gates_commands and look.reading is not None and not look.reading.is_clean:
        why = f"the command cannot be read: {(*look.reading.opaque, *look.reading.unknown)[0]}"
        if (verdict := _unread(rules, "opaque", why, rules.layer_of("opaque"), facts)) is not None:
            found.append(verdict)
    return found


def _verdict(rules: EffectivePolicy, rule: Rule, finding: Finding, facts: Facts) -> Ask | Deny | None:
    layer = rules.layer_of(rule.name, finding.entry)
    if finding.word == "deny":
        return Deny(rule.name, finding.reason, layer)
    if finding.word == "ask":
        return Ask(rule.name, finding.reason, layer)
    return _unread(rules, rule.name, finding.reason, layer, facts)


def _unread(rules: EffectivePolicy, rule: str, why: str, layer: str, facts: Facts) -> Ask | Deny | None:
    """What is not known about a command, where rules look at commands: ask, or deny if there is nobody to ask."""
    if rules.opaque == "sandbox" and facts.sandboxed:
        return None
    if rules.opaque == "deny":
        return Deny(rule, why, layer)
    if facts.is_own and facts.is_masked:
        return None  # its author knows what it does, and walls keep what nobody may do
    if not facts.person:
        return Deny(rule, f"{why}; nobody is there to approve it", layer)
    return Ask(rule, why, layer)


def _by_modes(policy: Policy, look: Look) -> Verdict:
    """The run's own mode, under every mode that a layer has named as the most it may be."""
    own = MODES[policy.mode][look.kind]
    if own in ("ask", "unasked") and _granted(policy, look):
        verdict: Verdict = Allow("tools", f"{look.call.name} was granted when the run was started", "run")
    else:
        verdict = _as_verdict(own, policy.mode, look, "run")
    for mode in policy.rules.permission_mode:
        stance = MODES[mode][look.kind]
        # What the run's caller granted opens his own mode, not a layer's; the baseline belongs to every mode.
        if stance in ("ask", "unasked") and look.call.name in BASELINE_TOOLS:
            continue
        layer = policy.rules.layer_of("permission_mode", mode)
        verdict = stricter(verdict, _as_verdict(stance, mode, look, layer))
    return verdict


def _as_verdict(stance: Stance, mode: Mode, look: Look, layer: str) -> Verdict:
    rule = f"mode:{mode}"
    if stance == "allow":
        return Allow(rule, "", layer)
    if stance == "ask":
        return Ask(rule, f"it is {_describe(look)}", layer)
    return Deny(rule, f"mode {mode} does not allow {_describe(look)}", layer)


def _if_nobody_is_asked(policy: Policy, verdict: Ask) -> Verdict:
    """An ask is a no where a layer says so, or where a mode is in force that never asks."""
    if not policy.never_asks:
        return verdict
    why = "on_ask = deny" if policy.rules.on_ask == "deny" else "mode dontAsk"
    return Deny(verdict.rule, f"{verdict.reason}; {why}: nobody is asked", verdict.layer)


def _granted(policy: Policy, look: Look) -> bool:
    """Named by the caller, or of the baseline. A granted edit tool still asks outside of the workspace.

    A pattern grants what it covers whole: `Bash(git *)` is no yes to `git status && rm x`, nor to what nobody can read.
    """
    if look.kind == "edit_outside":
        return False
    tool, given = look.call.name, policy.tools or ()
    if tool in BASELINE_TOOLS or any("(" not in entry and _names(entry, tool) for entry in given):
        return True
    readable = [pattern for entry in given if "(" in entry and (pattern := _readable(entry))]
    return patterns.admitted([pattern.text for pattern in readable], look)


def _readable(entry: str) -> patterns.ToolPattern | None:
    """Also of the agent's own form for the first words of a command: `Bash(git push:*)` is `Bash(git push *)`."""
    if found := _AGENTS_FORM.fullmatch(entry.strip()):
        entry = f"{found[1]}({found[2]} *)"
    try:
        return patterns.parse(entry)
    except errors.BadValue:
        return None


def _names(entry: str, tool: str) -> bool:
    """Does a caller's entry speak of this tool? Also for an entry in a form that is not ours."""
    name = entry.split("(", 1)[0].strip()
    if name == tool:
        return True
    pattern = _readable(name)
    return pattern is not None and pattern.names(tool)


def _describe(look: Look) -> str:
    words = {
        "edit": "an edit of a file",
        "edit_outside": "an edit outside of the workspace",
        "command": "a command",
        "network": "network access",
        "agent": "another agent",
        "read": "reading",
        "control": "control",
        "other": f"the tool {look.call.name}",
    }
    return words[look.kind]
