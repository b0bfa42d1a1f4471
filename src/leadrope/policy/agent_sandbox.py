"""Which calls leave the agent's own sandbox, and which ones it contains."""

from __future__ import annotations

from leadrope.core.request_parts.agent_sandbox import AgentSandbox
from leadrope.core.tools import ToolCall
from leadrope.policy.call_analysis import Look

LEAVES = "dangerouslyDisableSandbox"
"""The field with which a model asks to run a command outside of the agent's sandbox."""


def leaves(call: ToolCall) -> bool:
    return call.input.get(LEAVES, False) is not False


def is_held(sandbox: AgentSandbox, look: Look) -> bool:
    """Whether the whole command runs in the agent's sandbox, and the user wants no approval for such commands.

    Excluded commands run outside, so if there are any, all programs of the line must be known.
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
