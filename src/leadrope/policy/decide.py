"""Decides on a tool call: a policy and a call in, a verdict with its reason out. Pure, except that it resolves links.

Denials are checked first, then required approvals, then the mode; the strictest verdict counts. A grant allows what the
mode would ask for, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Literal

import msgspec

from leadrope import errors
from leadrope.core.request import Mode
from leadrope.core.request_parts.agent_sandbox import AgentSandbox
from leadrope.core.tools import BASELINE_TOOLS, ToolCall, ToolClass
from leadrope.policy import agent_sandbox, paths, patterns, read_only_folders
from leadrope.policy.call_analysis import SHELL_TOOLS, Facts, Look
from leadrope.policy.findings import Finding
from leadrope.policy.resolve import EffectivePolicy
from leadrope.policy.rules import CHECKS, Rule
from leadrope.policy.verdicts import Allow, Ask, Deny, Verdict, stricter
from leadrope.regex import regex

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
"""`unasked`: an approval would be needed, but nobody can give it; a grant still allows it, unlike a plain deny."""
_AGENTS_FORM = regex(rf"({'|'.join(SHELL_TOOLS)})\(([^()*]+):\*\)")
_STANCES: tuple[Stance, ...] = ("allow", "ask", "unasked", "deny")


def _mode(default: Stance, **classes: Stance) -> Mapping[str, Stance]:
    every = ("read", "edit", "edit_outside", "command", "network", "agent", "control", "other")
    return MappingProxyType({name: classes.get(name, default) for name in every})


# A mode is a verdict per class. Three classes are allowed in every mode: `read`; `control`, whose tools change nothing
# (a person answers a question or a plan at a later point of the protocol); and `network`, the web tools, which have a
# rule of their own (`web`).
_FREE: dict[str, Stance] = {"read": "allow", "control": "allow", "network": "allow"}
MODES: Mapping[Mode, Mapping[str, Stance]] = MappingProxyType(
    {
        "plan": _mode("deny", **_FREE),
        "default": _mode("ask", **_FREE),
        "edit": _mode("ask", **_FREE, edit="allow"),
        # Only in a sandbox (`_stance`): what stays inside it needs no approval.
        "sandboxed": _mode("ask", **_FREE, edit="allow", command="allow", agent="allow"),
        "dontAsk": _mode("unasked", **_FREE),
        "full": _mode("allow"),
    }
)
_HELD_BY_SANDBOX = ("command", "agent")
"""What mode `sandboxed` allows in a sandbox, and asks for without one."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The policy of one run: the caller's choices, limited by the rules of all layers."""

    mode: Mode
    workspace: tuple[str, ...]
    """Folders in which edits count as inside; the first is the working directory."""
    read_only: tuple[str, ...] = ()
    """Folders that the caller added for reading: no call may write there, in any mode. Real paths."""
    tools: tuple[str, ...] | None = None
    """The caller's own list; None if the caller gave none, and every tool may be used."""
    disallowed_tools: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    """The user's own grants: what they cover needs no approval where the mode would ask."""
    grants: tuple[str, ...] = ()
    """Grants that a person gave when asked, for the rest of this run."""
    protected: tuple[str, ...] = ()
    """Further absolute paths that count as `protected_paths`: files of the workspace named by git's settings."""
    agent_sandbox: AgentSandbox = AgentSandbox()
    """The agent's own sandbox, as configured for this run."""
    rules: EffectivePolicy = EffectivePolicy()

    @property
    def never_asks(self) -> bool:
        """Whether nobody is ever asked: no approvals, no questions, no plans."""
        return self.rules.on_ask == "deny" or "dontAsk" in (self.mode, *self.rules.permission_mode)


def decide(
    policy: Policy, call: ToolCall, facts: Facts | None = None, *, resolve: paths.Resolve = paths.resolved
) -> Verdict:
    """Returns the verdict on one call, with the deciding rule, its layer and how a command was read."""
    facts = facts or Facts()
    home = facts.home or paths.user_home()
    look = Look(call, paths.Ground(policy.workspace, home=home, cwd=call.cwd, resolve=resolve))
    verdict = _judge(policy, look, facts)
    if isinstance(verdict, Ask):
        verdict = _if_nobody_is_asked(policy, verdict)
    if isinstance(verdict, Allow) and look.command is not None and look.only_reads(facts):
        verdict = msgspec.structs.replace(verdict, only_reads=True)
    if look.command is not None and policy.rules.gates_commands:
        return msgspec.structs.replace(verdict, reading=look.described())
    return verdict


def class_of_call(call: ToolCall, workspace: tuple[str, ...], *, resolve: paths.Resolve = paths.resolved) -> ToolClass:
    """Returns the tool's class, with edits divided into inside and outside. An edit without a path is outside."""
    return Look(call, paths.Ground(workspace, home="/", cwd=call.cwd, resolve=resolve)).kind


def _judge(policy: Policy, look: Look, facts: Facts) -> Verdict:
    found = _by_caller(policy, look)
    if isinstance(found, Deny):
        return found
    # All rules are checked before an ask counts: a later one may deny.
    if agent_sandbox.leaves(look.call) and (policy.agent_sandbox.is_enabled or not facts.sandboxed):
        found = found or Ask("agent_sandbox", "it asks to run outside of the agent's own sandbox", "run")
    for verdict in _by_rules(policy, look, facts):
        if isinstance(verdict, Deny):
            return verdict
        found = found or verdict
    by_mode = _by_modes(policy, look, facts)
    # An approval rule gives a better reason than a mode that would have asked anyway.
    return stricter(found, by_mode) if found is not None else by_mode


def _by_caller(policy: Policy, look: Look) -> Ask | Deny | None:
    """Checks the run's own lists of tools."""
    tool, asked = look.call.name, None
    for entry in policy.disallowed_tools:
        pattern = _readable(entry)
        if pattern is None:
            # In the agent's own format: it limits the tool in a way that is unknown here.
            if _names(entry, tool):
                asked = asked or Ask("disallowed_tools", f"{entry} limits {tool} in this run", "run")
        elif (match := pattern.touches(look)) == "yes":
            what = tool if pattern.is_bare else entry
            return Deny("disallowed_tools", f"{what} is not allowed in this run", "run")
        elif match == "maybe":
            asked = asked or Ask("disallowed_tools", f"it is unknown whether this is {entry}", "run")
    if policy.tools is not None and look.kind != "control" and not _is_usable(policy.tools, look):
        foreign = [entry for entry in policy.tools if _readable(entry) is None and _names(entry, tool)]
        if not foreign:
            named = [entry for entry in policy.tools if _names(entry, tool)]
            why = patterns.uncovered(_texts(named), look) if named else f"{tool} is not in this run's list of tools"
            return Deny("tools", why, "run")
        asked = asked or Ask("tools", f"it is unknown whether {foreign[0]} allows this", "run")
    return asked


def _is_usable(tools: tuple[str, ...], look: Look) -> bool:
    tool = look.call.name
    if tool in BASELINE_TOOLS and not any(_names(entry, tool) for entry in tools):
        return True
    return patterns.admitted(_texts(tools), look)


def _texts(entries: Iterable[str]) -> list[str]:
    return [pattern.text for entry in entries if (pattern := _readable(entry))]


def _by_rules(policy: Policy, look: Look, facts: Facts) -> list[Ask | Deny]:
    rules = policy.rules
    found: list[Ask | Deny] = list(_by_web(rules, look, facts))
    for finding in read_only_folders.check(policy.read_only, look) if policy.read_only else ():
        if finding.word == "deny":
            return [Deny(read_only_folders.RULE, finding.reason, "run")]
        if not facts.sandboxed and (unread := _unread(rules, read_only_folders.RULE, finding.reason, "run", facts)):
            found.append(unread)
    for rule in CHECKS:
        value = getattr(rules, rule.field)
        if rule.name == "protected_paths" and policy.protected:
            value = (*value, *(f"{paths.literal(path)}/" for path in policy.protected))
        if value == rule.bottom:
            continue
        for finding in rule.check(value, look, facts):
            verdict = _verdict(policy, look, rule, finding, facts)
            if isinstance(verdict, Deny):
                return [verdict]
            if verdict is not None:
                found.append(verdict)
    if rules.gates_commands and look.reading is not None and (verdict := _by_reading(policy, look, facts)):
        found.append(verdict)
    return found


def _trusts_sandbox(policy: Policy) -> bool:
    """Whether the sandbox alone is trusted: in mode `sandboxed`. Other modes need to know at least what is started."""
    return policy.mode == "sandboxed" and policy.rules.opaque != "deny"


def _by_web(rules: EffectivePolicy, look: Look, facts: Facts) -> Iterator[Ask | Deny]:
    """Denies addresses that no web tool may reach, whatever the rule `web` says."""
    if look.kind != "network":
        return
    from leadrope.policy import web  # noqa: PLC0415  # most calls reach no network

    if why := web.why_not(look, facts, rules.network_allowed_hosts):
        yield Deny("web", why, rules.layer_of("web"))


def _by_reading(policy: Policy, look: Look, facts: Facts) -> Ask | Deny | None:
    """Judges commands that cannot be read, or that start unknown programs."""
    reading, rules = look.reading, policy.rules
    layer = rules.layer_of("opaque")
    if reading is None or reading.is_clean:
        return None
    if reading.opaque:
        if facts.sandboxed and _trusts_sandbox(policy):
            return None
        return _unread(rules, "opaque", f"the command cannot be read: {reading.opaque[0]}", layer, facts)
    # An unknown program does what `make` and `npm test` do: whatever its sandbox allows.
    if rules.opaque != "deny" and (facts.sandboxed or _granted(policy, look, by_name=False)):
        return None
    return _unread(rules, "opaque", reading.unknown[0], layer, facts)


def _verdict(policy: Policy, look: Look, rule: Rule, finding: Finding, facts: Facts) -> Ask | Deny | None:
    rules = policy.rules
    layer = rules.layer_of(rule.name, finding.entry)
    if finding.word == "deny":
        return Deny(rule.name, finding.reason, layer)
    if finding.word == "ask":
        return Ask(rule.name, finding.reason, layer)
    if facts.sandboxed and (rule.is_held_by_sandbox or _trusts_sandbox(policy)):
        return None
    # A grant for an unknown program, by its words, also covers what it writes.
    is_unknown = look.reading is not None and look.reading.unknown and not look.reading.extras
    if rule.name in ("protected_paths", "workspace_only") and is_unknown and _granted(policy, look, by_name=False):
        return None
    return _unread(rules, rule.name, finding.reason, layer, facts)


def _unread(rules: EffectivePolicy, rule: str, why: str, layer: str, facts: Facts) -> Ask | Deny | None:
    """Judges what is unknown about a command, if rules check commands: ask, or deny if nobody can be asked."""
    if rules.opaque == "sandbox" and facts.sandboxed:
        return None
    if rules.opaque == "deny":
        return Deny(rule, why, layer)
    if facts.is_own and facts.is_masked:
        return None  # its author knows what it does, and the sandbox prevents what nobody may do
    if not facts.person:
        return Deny(rule, f"{why}; no one is available to approve it", layer, is_unasked=True)
    return Ask(rule, why, layer)


def _by_modes(policy: Policy, look: Look, facts: Facts) -> Verdict:
    """Applies the run's own mode, limited by every mode that a layer has set as the maximum."""
    own = _stance(policy.mode, look, facts)
    if own in ("ask", "unasked") and agent_sandbox.is_held(policy.agent_sandbox, look):
        verdict: Verdict = Allow("agent_sandbox", "it runs in the agent's own sandbox", "run")
    elif own in ("ask", "unasked") and (grant := _granted(policy, look)):
        verdict = grant
    else:
        verdict = _as_verdict(own, policy.mode, look, "run")
    for mode in policy.rules.permission_mode:
        # A grant extends the run's own mode, not a layer's.
        layer = policy.rules.layer_of("permission_mode", mode)
        verdict = stricter(verdict, _as_verdict(_stance(mode, look, facts), mode, look, layer))
    return verdict


def _stance(mode: Mode, look: Look, facts: Facts) -> Stance:
    kind = "read" if look.only_reads(facts) else look.kind
    if facts.is_request:
        kind = "other"  # unlike a web tool, it can change what it reaches
    if mode == "sandboxed" and kind in _HELD_BY_SANDBOX and not facts.sandboxed:
        return "ask"
    return MODES[mode][kind]


def _as_verdict(stance: Stance, mode: Mode, look: Look, layer: str) -> Verdict:
    rule = f"mode:{mode}"
    if stance == "allow":
        return Allow(rule, "", layer)
    if stance == "ask":
        return Ask(rule, f"it is {_describe(look)}", layer)
    return Deny(rule, f"mode {mode} does not allow {_describe(look)}", layer)


def _if_nobody_is_asked(policy: Policy, verdict: Ask) -> Verdict:
    """Turns an ask into a denial if a layer requires that, or the mode never asks."""
    if not policy.never_asks:
        return verdict
    why = "on_ask = deny" if policy.rules.on_ask == "deny" else "mode dontAsk"
    return Deny(verdict.rule, f"{verdict.reason}; {why}: nobody is asked", verdict.layer)


def _granted(policy: Policy, look: Look, *, by_name: bool = True) -> Allow | None:
    """Returns a grant from the first list that covers the call.

    A pattern must cover the whole call: `Bash(git *)` does not approve `git status && rm x`, nor a command that cannot
    be read. A tool that is granted only by its name still needs approval outside of the workspace, and such a grant
    does not cover unknown programs.
    """
    by_name = by_name and look.kind != "edit_outside"
    lists = (
        ("tools", policy.tools or (), "the run's list of tools grants it"),
        ("allow", policy.allow, "a grant of the user's covers it"),
        ("allow", policy.grants, "a grant that was given in this run covers it"),
    )
    for rule, entries, why in lists:
        if entries is policy.grants and not _is_ordinary(look):
            continue
        texts = _texts(entry for entry in entries if by_name or "(" in entry)
        if texts and patterns.admitted(texts, look):
            named = [text for text in texts if patterns.parse(text).names(look.call.name)]
            return Allow(rule, f"{why} ({', '.join(named)})", "run")
    return None


def _is_ordinary(look: Look) -> bool:
    """Whether a grant given on request may cover this call.

    Such a grant stands for calls like the one that was approved: not for risky ones, nor for writes outside of the
    workspace.
    """
    if look.reading is None:
        return True
    from leadrope.policy import commands  # noqa: PLC0415  # loads the tables of programs

    return commands.risk(look.reading) != "high" and all(map(look.ground.holds, look.written))


def _readable(entry: str) -> patterns.ToolPattern | None:
    """Parses an entry, also in the agent's own form for command prefixes: `Bash(git push:*)` is `Bash(git push *)`."""
    if found := _AGENTS_FORM.fullmatch(entry.strip()):
        entry = f"{found[1]}({found[2]} *)"
    try:
        return patterns.parse(entry)
    except errors.BadValue:
        return None


def _names(entry: str, tool: str) -> bool:
    """Whether a caller's entry names this tool, even if it is not in our format."""
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
