"""The rules, one small class each: how layers merge, and what the rule finds in a call. In the order of checks.

A rule sees its own merged value and one call; which layer a value came from, and what a mode says, is not its matter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Literal

from leadrope import errors
from leadrope.core.request_checks import normal_mode
from leadrope.policy import hosts, merge_strategies, paths, patterns, reach
from leadrope.policy.call_analysis import Facts, Look
from leadrope.policy.findings import Finding
from leadrope.policy.patterns import Match
from leadrope.regex import regex

# `DROP TABLE`: a program is compared as the shell sees it, and the text of a statement is not one.
_STATEMENT = regex(r"(?:DROP|DELETE|TRUNCATE|ALTER|INSERT|UPDATE|GRANT|REVOKE|CREATE|SELECT) [A-Z]{2,}\b")


_KINDS: list[type[Rule]] = []
"""Every class below, in the order in which they are asked."""


class Rule(merge_strategies.Least):
    """A rule has a name (dotted where it stands in a table of its own), a merge, and for many of them a check.

    `make docs` writes schema.py and the tables of docs/policy.md and docs/config.md from these classes.
    """

    name: ClassVar[str]
    help: ClassVar[str]
    field: ClassVar[str]
    """Its place in an EffectivePolicy."""
    is_held_by_sandbox: ClassVar[bool] = False
    """A sandbox that holds enforces it, whatever a command's words become: `unknown` is no question there."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.field = cls.name.replace(".", "_")
        _KINDS.append(cls)

    def validate(self, value: Any) -> None:
        """BadValue, with a hint, for a value of the right type that cannot be meant.

        Not asked of the shipped policy at every start: reading its hundred commands takes 50 ms, and the tests did it.
        """
        for entry in value if isinstance(value, tuple) else ():
            self.validate_entry(entry)

    def validate_entry(self, entry: str) -> None:
        pass

    def check(self, value: Any, look: Look, facts: Facts) -> Iterable[Finding]:
        return ()

    def gates_commands(self, value: Any) -> bool:
        """Would this rule look into a command line? Then one that cannot be read does not just pass."""
        return False


# -- what is forbidden -------------------------------------------------------------------------------------


class MaxToolCalls(Rule):
    name = "max_tool_calls"
    written = "Count | NoLimit"
    help = "How many tool calls a run may make."

    def check(self, value: Any, look: Look, facts: Facts) -> Iterable[Finding]:
        if value is not None and look.kind != "control" and facts.tool_calls >= value:
            yield Finding("deny", f"the run has used its {value} tool calls", value)


class DisallowedTools(merge_strategies.Union, Rule):
    name = "disallowed_tools"
    help = "Tool patterns that are denied."

    def validate_entry(self, entry: str) -> None:
        patterns.parse(entry)

    def check(self, value: Any, look: Look, facts: Facts) -> Iterable[Finding]:
        return _found("deny", ((entry, patterns.parse(entry).touches(look)) for entry in value), "is disallowed")

    def gates_commands(self, value: Any) -> bool:
        return any(patterns.parse(entry).gates_commands for entry in value)


class AllowedTools(merge_strategies.Every, Rule):
    name = "allowed_tools"
    help = "The only tool patterns that may be used; each layer's list counts."

    def validate_entry(self, entry: str) -> None:
        patterns.parse(entry)

    def check(self, value: Any, look: Look, facts: Facts) -> Iterable[Finding]:
        for entries in value if look.kind != "control" else ():
            if not patterns.admitted(entries, look):
                yield Finding("deny", _not_on(entries, look), entries)

    def gates_commands(self, value: Any) -> bool:
        # An entry that is more than the tool's name has already refused what could not be read.
        return False


class McpServers(merge_strategies.Every, Rule):
    name = "mcp.allowed_servers"
    help = "The only MCP servers whose tools may be used; an empty list is none."

    def validate_entry(self, entry: str) -> None:
        _server_name(entry)

    def check(self, value: Any, look: Look, facts: Facts) -> Iterable[Finding]:
        tool = look.call.name
        for entries in value if tool.startswith("mcp__") else ():
            if not any(tool.startswith(f"mcp__{server}__") for server in entries):
                yield Finding("deny", f"{tool} belongs to no allowed MCP server ({_listed(entries)})", entries)


class McpTools(merge_strategies.Every, Rule):
    name = "mcp.allowed_tools"
    help = "The only MCP tools that may be used, as patterns."

    def validate_entry(self, entry: str) -> None:
        _mcp_pattern(entry)

    def check(self, value: Any, look: Look, facts: Facts) -> Iterable[Finding]:
        for entries in value if look.call.name.startswith("mcp__") else ():
            if not patterns.admitted(entries, look):
                yield Finding("deny", f"{look.call.name} is not an allowed MCP tool ({_listed(entries)})", entries)


class BlockedPaths(merge_strategies.Union, Rule):
    name = "blocked_paths"
    help = "Paths that no call may read or write."
    is_held_by_sandbox = True

    def validate_entry(self, entry: str) -> None:
        _floating(entry)

    def check(self, value: Any, look: Look, facts: Facts) -> Iterable[Finding]:
        if value:
            yield from reach.blocked_by_name(value, look)
            yield from reach.blocked(value, look, facts)


class WorkspaceOnly(merge_strategies.Strictest, Rule):
    name = "workspace_only"
    help = "Deny edits outside of the workspace, links followed."
    is_held_by_sandbox = True

    def check(self, value: Any, look: Look, facts: Facts) -> Iterable[Finding]:
        if not value:
            return
        if look.kind == "edit_outside":
            yield Finding("deny", "the file is outside of the workspace", value)
        for spellings in look.written if look.reading else ():
            if not look.ground.holds(spellings):
                yield Finding("deny", f"the command changes {spellings[0]}, outside of the workspace", value)
        if look.reading and look.writes_unknown:
            yield Finding("unknown", "it is not known which file the command writes", value)


class MaxFileSize(Rule):
    name = "max_file_size"
    help = "Bytes that one Write or Edit may put into a file."

    def check(self, value: Any, look: Look, facts: Facts) -> Iterable[Finding]:
        if value is not None and look.is_edit and look.size > value:
            yield Finding("deny", f"{look.size} bytes are more than a file may get ({value})", value)


class Web(merge_strategies.Strictest, Rule):
    name = "web"
    order = ("allow", "ask", "deny")
    help = "WebSearch, and WebFetch to public hosts: allowed in every mode, asked for, or denied."

    def check(self, value: Any, look: Look, facts: Facts) -> Iterable[Finding]:
        if look.kind == "network":
            yield Finding(value, f"web = {value}: {look.call.name} reaches the network", value)


class BlockedHosts(merge_strategies.Union, Rule):
    name = "network.blocked_hosts"
    help = "Hosts, with all hosts below them, that WebFetch and WebSearch may not reach."

    def canonical(self, value: Any) -> Any:
        return super().canonical(hosts.check(entry) for entry in value)

    def validate_entry(self, entry: str) -> None:
        hosts.check(entry)

    def check(self, value: Any, look: Look, facts: Facts) -> Iterable[Finding]:
        for host in _hosts(look) if value else ():
            if host is None:
                yield Finding("deny", "the address cannot be read without doubt", value[0])
                continue
            for entry in value:
                if hosts.blocks(entry, host):
                    yield Finding("deny", f"{host} is blocked by {entry}", entry)


class AllowedHosts(merge_strategies.Every, Rule):
    name = "network.allowed_hosts"
    help = "The only hosts that WebFetch may reach; a WebSearch must limit itself to them (allowed_domains)."

    def canonical(self, value: Any) -> Any:
        return super().canonical(hosts.check(entry) for entry in value)

    def validate_entry(self, entry: str) -> None:
        hosts.check(entry)

    def check(self, value: Any, look: Look, facts: Facts) -> Iterable[Finding]:
        for entries in value if look.kind == "network" else ():
            found = _hosts(look)
            if not found:
                yield Finding("deny", f"the search must name allowed_domains out of {_listed(entries)}", entries)
            for host in found:
                if host is None or not any(hosts.admits(entry, host) for entry in entries):
                    shown = host or "an address that cannot be read"
                    yield Finding("deny", f"{shown} is not an allowed host ({_listed(entries)})", entries)


class BlockedCommands(merge_strategies.Union, Rule):
    name = "blocked_commands"
    help = "Programs and commands that are denied: `rm`, `git push`, `text:DROP TABLE`."

    def validate_entry(self, entry: str) -> None:
        _command(entry)

    def check(self, value: Any, look: Look, facts: Facts) -> Iterable[Finding]:
        entries = patterns.worth_asking(value, look)
        return _found("deny", ((entry, _command_match(entry, look)) for entry in entries), "is blocked")

    def gates_commands(self, value: Any) -> bool:
        return bool(value)


class Destructive(merge_strategies.Strictest, Rule):
    name = "destructive"
    order = ("allow", "ask", "deny")
    help = "Commands that wipe a disk, a home or a whole tree, in any spelling."

    def check(self, value: Any, look: Look, facts: Facts) -> Iterable[Finding]:
        if value == "allow" or look.reading is None:
            return
        from leadrope.policy import commands  # noqa: PLC0415  # only where there is a command

        why = commands.is_destructive(look.reading) or (look.placed and commands.is_destructive(look.placed))
        if why:
            yield Finding(value, f"it is destructive: {why}", value)

    def gates_commands(self, value: Any) -> bool:
        return bool(value != "allow")


# -- what is asked for ---------------------------------------------------------------------------------------


class RequireApproval(merge_strategies.UnionOrAll, Rule):
    name = "require_approval"
    help = "Tool patterns and commands that a person must approve; true is every call."

    def validate_entry(self, entry: str) -> None:
        _tool_or_command(entry)

    def check(self, value: Any, look: Look, facts: Facts) -> Iterable[Finding]:
        if value is True:
            return () if look.kind == "control" else (Finding("ask", "every call needs approval", value),)
        entries = patterns.worth_asking(value, look)
        found = _found("ask", ((entry, _tool_or_command_match(entry, look)) for entry in entries), "needs approval")
        return (*found, *_deleting(value, look))

    def gates_commands(self, value: Any) -> bool:
        if value is True:
            return True
        return any(not patterns.is_tool_pattern(entry) or patterns.parse(entry).gates_commands for entry in value)


class ProtectedPaths(merge_strategies.Union, Rule):
    name = "protected_paths"
    help = "Paths that are written only with approval."
    is_held_by_sandbox = True

    def validate_entry(self, entry: str) -> None:
        _floating(entry)

    def check(self, value: Any, look: Look, facts: Facts) -> Iterable[Finding]:
        if value:
            yield from reach.protected(value, look, facts)


# -- what is set, and used elsewhere -------------------------------------------------------------------------------


class PermissionMode(merge_strategies.Union, Rule):
    name = "permission_mode"
    written = "str"
    merged = "tuple[Mode, ...]"
    help = "The most that a run's mode may allow: plan, default, edit, sandboxed, full or dontAsk."
    merged_as = "the stricter verdict per class of tool"

    def canonical(self, value: Any) -> Any:
        return (normal_mode(value),)

    def validate(self, value: Any) -> None:
        normal_mode(value)


class OnAsk(merge_strategies.Strictest, Rule):
    name = "on_ask"
    order = ("ask", "deny")
    help = "deny: what would be asked for is denied."


class Opaque(merge_strategies.Strictest, Rule):
    name = "opaque"
    order = ("sandbox", "ask", "deny")
    help = (
        "Commands that cannot be read, where rules look at commands; sandbox: let them run inside a sandbox that holds."
    )


class SandboxRule(merge_strategies.Strictest, Rule):
    name = "sandbox"
    order = ("off", "preferred", "required")
    help = "Whether the agent runs in a sandbox; required: nothing starts without one."


class SandboxLevel(merge_strategies.Strictest, Rule):
    name = "sandbox_level"
    order = ("workspace", "read-only")
    help = "What the agent may write in the sandbox."


class NetworkReach(merge_strategies.Strictest, Rule):
    name = "network.reach"
    order = ("any", "model-only")
    help = "model-only: the sandbox reaches only the model and the allowed hosts."


class BrokerRule(merge_strategies.Strictest, Rule):
    name = "broker"
    order = (False, "auto", True)
    help = (
        "Keep the real credential out of the agent's reach; "
        "auto: where it is an API key, unless the run says otherwise."
    )


class UnknownPrice(merge_strategies.Strictest, Rule):
    name = "unknown_price"
    order = ("dearest", "refuse")
    help = "A model without a known price: counted at the most expensive known price, or refused."


class WaitForLimit(merge_strategies.Strictest, Rule):
    name = "wait_for_limit"
    order = (True, False)
    help = "false: no run waits for the reset of a usage limit; it ends as parked, whatever its caller asked for."


class MaxBudget(Rule):
    name = "max_budget_usd"
    written = "Amount | NoLimit"
    merged = "float | None"
    help = "What one run may cost."

    def validate(self, value: Any) -> None:
        if value != merge_strategies.NO_LIMIT and not math.isfinite(value):
            raise errors.BadValue("budget", f"{value} is not a number", hint='Write "none" for no limit.')


class MaxTimeout(Rule):
    name = "max_timeout_ms"
    help = "The longest that a run's idle clock may be set to."


class MaxWall(Rule):
    name = "max_wall_ms"
    help = "The longest that a run may take, whatever it does."


class MaxApproval(Rule):
    name = "max_approval_ms"
    help = "The longest that a call waits for a person; then it is denied, in detached runs too."


class MaxMemory(Rule):
    name = "max_memory_mb"
    help = "MiB that a run's processes may hold together."


RULES: tuple[Rule, ...] = tuple(kind() for kind in _KINDS)
BY_NAME = {rule.name: rule for rule in RULES}
CHECKS = tuple(rule for rule in RULES if type(rule).check is not Rule.check)
"""Those that have something to say about a call."""


# -- the common part -----------------------------------------------------------------------------------------


def _found(word: Literal["deny", "ask"], found: Iterable[tuple[str, Match]], what: str) -> Iterator[Finding]:
    for entry, match in found:
        if match == "yes":
            yield Finding(word, f"{entry} {what}", entry)
        elif match == "named":
            yield Finding("ask", f"{entry} {what}, and a program that is not known here may start it", entry)
        elif match == "maybe":
            yield Finding("unknown", f"it is not known whether this is {entry}, which {what}", entry)


def _deleting(entries: tuple[str, ...], look: Look) -> Iterator[Finding]:
    """Deleting is deleting: whoever has `rm` asked for has every program asked for that takes files away."""
    if "rm" in entries and look.reading is not None:
        for deletion in look.reading.deletes:
            if deletion.kind == "delete" and deletion.by != "rm":
                yield Finding("ask", f"rm needs approval, and {deletion.by} deletes files too", "rm")
                return


def _floating(entry: str) -> None:
    paths.glob(entry.strip(), floating=True)


def _hosts(look: Look) -> tuple[str | None, ...]:
    if look.call.name == "WebFetch":
        return (look.host,)
    return look.searched if look.call.name == "WebSearch" else ()


def _command(entry: str) -> None:
    if patterns.is_tool_pattern(entry.strip()):
        inner = entry.partition("(")[2].rpartition(")")[0].removesuffix(" *")
        hint = f"Write {inner!r} here" if entry.startswith("Bash(") and inner else "This list takes commands"
        raise errors.BadValue("command", f"{entry!r} is a tool pattern", hint=f"{hint}, or use disallowed_tools.")
    _program(entry)


def _tool_or_command(entry: str) -> None:
    if patterns.is_tool_pattern(entry.strip()):
        patterns.parse(entry)
    else:
        _program(entry)


def _program(entry: str) -> None:
    if _STATEMENT.match(entry.strip()):
        raise errors.BadValue(
            "command",
            f"{entry!r} names a program that nobody has",
            hint=f"Write text:{entry.strip()} to look for text.",
        )
    patterns.command(entry)


def _tool_or_command_match(entry: str, look: Look) -> Match:
    if patterns.is_tool_pattern(entry):
        return patterns.parse(entry).touches(look)
    return _command_match(entry, look)


def _command_match(entry: str, look: Look) -> Match:
    return "no" if look.reading is None else patterns.command_touches(entry, look)


def _server_name(entry: str) -> None:
    if entry.startswith("mcp__"):
        name = entry.removeprefix("mcp__").partition("__")[0]
        raise errors.BadValue("server", f"{entry!r} is a tool, not a server", hint=f"Write {name!r}.")
    if not entry.strip() or "*" in entry or "__" in entry:
        raise errors.BadValue("server", f"{entry!r} is not a server's name", hint="Write it as in your connections.")


def _mcp_pattern(entry: str) -> None:
    if not entry.startswith("mcp__"):
        raise errors.BadValue("pattern", f"{entry!r} is not an MCP tool", hint=f"Write mcp__SERVER__{entry}.")
    patterns.parse(entry)


def _not_on(entries: tuple[str, ...], look: Look) -> str:
    limits = [entry for entry in entries if patterns.parse(entry).names(look.call.name)]
    if not limits:
        return f"{look.call.name} is not on the list of allowed tools"
    return f"{look.call.name} is allowed only as {_listed(tuple(limits))}"


def _listed(entries: tuple[str, ...]) -> str:
    shown = ", ".join(entries[:5]) or "none"
    return f"{shown} and {len(entries) - 5} more" if len(entries) > 5 else shown
