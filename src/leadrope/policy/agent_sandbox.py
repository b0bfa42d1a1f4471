"""Calls and the agent's own sandbox: which leave it, and which it holds. Knows no verdicts."""

from __future__ import annotations

from leadrope.core.request_parts.agent_sandbox import AgentSandbox
from leadrope.core.tools import ToolCall
from leadrope.policy.call_analysis import Look

LEAVES = "dangerouslyDisableSandbox"
"""The field by which a model asks for a command outside of the agent's sandbox."""


def leaves(call: ToolCall) -> bool:
    return call.input.get(LEAVES, False) is not False


def is_held(sandbox: AgentSandbox, look: Look) -> bool:
    """The command runs in the agent's sandbox as a whole, and its user wants no question for those that do.

    Excluded commands run outside, so where some are, the programs of the line have to be known.
    """
    if not sandbox.allows_commands or look.call.name != "Bash" or leaves(look.call):
        return False
    if not sandbox.excluded:
        return True
    reading = look.reading
    if reading is None or reading.opaque:
        return False
    outside = {entry.split()[0] for entry in sandbox.excluded if entry.strip()}
    names = [(program.words[0] or "").rpartition("/")[2] for program in reading.programs]
    return all(name and name not in outside for name in names)
