"""Tool calls and their classes: what a call would do, told by its name and input alone."""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import msgspec

ToolClass = Literal["read", "edit", "edit_outside", "command", "network", "agent", "control", "other"]

# Read, WebSearch and WebFetch belong to every agent, even one that narrows itself to a short list.
BASELINE_TOOLS = ("Read", "WebSearch", "WebFetch")
DEFAULT_TOOLS = (
    "Read",
    "Write",
    "Edit",
    "Bash",
    "Glob",
    "Grep",
    "LS",
    "WebFetch",
    "WebSearch",
    "TodoWrite",
    "TodoRead",
)

# Scheduling and watching tools start commands or agents of their own later, past the call that the gate saw,
# so they are classed by what they start, not by how they look.
_CLASSES: dict[str, ToolClass] = {
    **dict.fromkeys(("Read", "Glob", "Grep", "LS", "NotebookRead", "LSP", "CronList", "ListAgents"), "read"),
    **dict.fromkeys(("Write", "Edit", "MultiEdit", "NotebookEdit"), "edit"),
    **dict.fromkeys(("Bash", "PowerShell", "Monitor", "REPL", "EnterWorktree", "ExitWorktree"), "command"),
    **dict.fromkeys(("WebFetch", "WebSearch"), "network"),
    **dict.fromkeys(
        (
            "Agent",
            "Task",
            "Workflow",
            "CronCreate",
            "CronDelete",
            "ScheduleWakeup",
            "SendMessage",
            "Skill",
            "SlashCommand",
        ),
        "agent",
    ),
    **dict.fromkeys(
        (
            "StructuredOutput",
            "ExitPlanMode",
            "EnterPlanMode",
            "AskUserQuestion",
            "TodoWrite",
            "TodoRead",
            "ToolSearch",
            "BashOutput",
            "KillShell",
            "KillBash",
            "TaskStop",
            "TaskOutput",
            "TaskCreate",
            "TaskGet",
            "TaskList",
            "TaskUpdate",
            "ReportFindings",
        ),
        "control",
    ),
    # Of workflows alone. Named here so that a policy that asks for it does not take it for a command.
    "SendEmail": "other",
}

ASKING_TOOLS = frozenset({"AskUserQuestion", "ExitPlanMode"})
"""By which an agent asks a person: a question, or whether its plan may be carried out."""

KNOWN_TOOLS = tuple(_CLASSES)

PATH_FIELDS = ("file_path", "notebook_path", "path")


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One call as the agent wants to make it; the id is the agent's own and unique in its session."""

    id: str
    name: str
    input: dict[str, Any] = {}
    agent_id: str | None = None
    """Set when a subagent makes the call."""
    cwd: str | None = None
    """The folder that the agent's shell is in at that moment; None where nobody said, and then it is the workspace."""


def class_of(name: str) -> ToolClass:
    """`edit` here means an edit of any place; policy.paths tells inside from outside."""
    return _CLASSES.get(name, "other")


def edited_path(call: ToolCall) -> str | None:
    for field in PATH_FIELDS:
        value = call.input.get(field)
        if isinstance(value, str):
            return value
    return None


def fingerprint(name: str, input_: dict[str, Any], cwd: str | None = None) -> str:
    """A hash of the exact call: an approval is good for this and nothing else. The order of keys does not matter.

    The working directory is part of the call: the same words mean other files in another folder.
    """
    exact = [name, input_] if cwd is None else [name, input_, cwd]
    return hashlib.sha256(msgspec.json.encode(exact, order="deterministic")).hexdigest()


def subject(name: str, input_: dict[str, Any], cwd: str | None = None) -> str:
    """What a standing approval covers: a command's exact text and the folder it runs in, whatever its description says;
    for other tools the whole input.
    """
    command = input_.get("command")
    if class_of(name) == "command" and isinstance(command, str):
        settings = {key: value for key, value in input_.items() if key != "description"}
        return fingerprint(name, settings, cwd)
    return fingerprint(name, input_, cwd)


def grant_name(subject: str) -> str:
    """How a standing approval of one exact call is listed and revoked. No pattern looks like that."""
    return f"call:{subject[:12]}"
