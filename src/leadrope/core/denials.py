"""Which denied calls count, and whether they decide the outcome of a run. Pure.

A run ends `denied` when at least one of its calls was denied and none that acts was allowed:

| call | denied: counts | allowed: acts |
|---|---|---|
| edit, command, web tool, MCP tool, unknown tool | yes | yes |
| command that only reads | yes | no |
| read, start of a subagent (its calls count for themselves) | yes | no |
| question, plan, to-do list and other tools that touch nothing | no | no |

The mode, the rule or person that decided, and who made the call (agent or subagent) make no difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from leadrope.core.result import Denial
from leadrope.core.tools import ToolCall, class_of

_ACTING = frozenset(("edit", "edit_outside", "command", "network", "other"))
_NAMED = 3
"""Calls that the message names; the result lists all of them."""


def acts(call: ToolCall, *, only_reads: bool = False) -> bool:
    """Can this call, once it is allowed, change something or reach somebody? An MCP tool is taken to do so."""
    return class_of(call.name) in _ACTING and not only_reads


def counted(denials: Iterable[Denial]) -> tuple[Denial, ...]:
    """The denied calls that decide the outcome and the exit code: not a question or a plan that nobody answered."""
    return tuple(denial for denial in denials if class_of(denial.call.name) != "control")


def describe(denials: Sequence[Denial]) -> str:
    """One sentence that names the tools and the reasons.

    >>> from leadrope.core.tools import ToolCall
    >>> describe([Denial(call=ToolCall(id="1", name="Bash"), reason="mode plan does not allow a command")])
    '1 call was denied: Bash (mode plan does not allow a command)'
    """
    told = list(dict.fromkeys(f"{denial.call.name} ({denial.reason})" for denial in denials))
    more = f" and {len(told) - _NAMED} more" if len(told) > _NAMED else ""
    count = "1 call was" if len(denials) == 1 else f"{len(denials)} calls were"
    return f"{count} denied: {', '.join(told[:_NAMED])}{more}"
