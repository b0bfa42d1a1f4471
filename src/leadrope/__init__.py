"""leadrope runs coding agents on a lead rope: supervised, typed, and gated before every tool call.

import leadrope

result = leadrope.run_sync(prompt="Say hello", mode="plan")
print(result.outcome, result.text)
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

from leadrope.version import __version__

if TYPE_CHECKING:
    from leadrope import errors as errors
    from leadrope.core import events as events
    from leadrope.core.context import Context as Context
    from leadrope.core.context import Message as Message
    from leadrope.core.context import Reply as Reply
    from leadrope.core.events import Recorded as Recorded
    from leadrope.core.output.output_types import schema_of as schema_of
    from leadrope.core.request import Limits as Limits
    from leadrope.core.request import McpServer as McpServer
    from leadrope.core.request import RunRequest as RunRequest
    from leadrope.core.result import RunResult as RunResult
    from leadrope.core.result import TypedResult as TypedResult
    from leadrope.core.secrets.redaction import Secret as Secret
    from leadrope.core.tools import ToolCall as ToolCall
    from leadrope.providers.base import Availability as Availability
    from leadrope.providers.base import Capabilities as Capabilities
    from leadrope.providers.claude_code.locate import check_cli as check_cli
    from leadrope.runtime.complete import Completer as Completer
    from leadrope.runtime.complete import complete as complete
    from leadrope.runtime.complete import provider as provider
    from leadrope.runtime.connections.functions import Function as Function
    from leadrope.runtime.connections.functions import tool as tool
    from leadrope.runtime.conversation import Conversation as Conversation
    from leadrope.runtime.conversation import open_conversation as open_conversation
    from leadrope.runtime.embedding.hooks import AskFirst as AskFirst
    from leadrope.runtime.embedding.hooks import DenyCall as DenyCall
    from leadrope.runtime.embedding.hooks import EditCall as EditCall
    from leadrope.runtime.gate.approvers import Answer as Answer
    from leadrope.runtime.gate.approvers import ApprovalQueue as ApprovalQueue
    from leadrope.runtime.gate.approvers import Approver as Approver
    from leadrope.runtime.gate.approvers import Callback as Callback
    from leadrope.runtime.gate.approvers import DenyAll as DenyAll
    from leadrope.runtime.gate.approvers import InlineApprover as InlineApprover
    from leadrope.runtime.gate.console import Console as Console
    from leadrope.runtime.run import Run as Run
    from leadrope.runtime.run import open_run as open_run
    from leadrope.runtime.run_many import run_many as run_many
    from leadrope.runtime.run_once import run as run
    from leadrope.runtime.run_once import run_sync as run_sync
    from leadrope.runtime.sessions.files import SessionInfo as SessionInfo
    from leadrope.runtime.sessions.files import Sessions as Sessions

# Imported when first used: `leadrope --version` and `--help` must not pay for the whole library.
_HOMES = {
    "errors": "leadrope.errors",
    "events": "leadrope.core.events",
    "Recorded": "leadrope.core.events",
    "Secret": "leadrope.core.secrets.redaction",
    "Limits": "leadrope.core.request",
    "McpServer": "leadrope.core.request",
    "RunRequest": "leadrope.core.request",
    "RunResult": "leadrope.core.result",
    "TypedResult": "leadrope.core.result",
    "schema_of": "leadrope.core.output.output_types",
    "ToolCall": "leadrope.core.tools",
    "Answer": "leadrope.runtime.gate.approvers",
    "Approver": "leadrope.runtime.gate.approvers",
    "Callback": "leadrope.runtime.gate.approvers",
    "InlineApprover": "leadrope.runtime.gate.approvers",
    "DenyAll": "leadrope.runtime.gate.approvers",
    "ApprovalQueue": "leadrope.runtime.gate.approvers",
    "Completer": "leadrope.runtime.complete",
    "Reply": "leadrope.core.context",
    "Console": "leadrope.runtime.gate.console",
    "Conversation": "leadrope.runtime.conversation",
    "open_conversation": "leadrope.runtime.conversation",
    "SessionInfo": "leadrope.runtime.sessions.files",
    "Sessions": "leadrope.runtime.sessions.files",
    "Context": "leadrope.core.context",
    "Message": "leadrope.core.context",
    "Availability": "leadrope.providers.base",
    "Capabilities": "leadrope.providers.base",
    "check_cli": "leadrope.providers.claude_code.locate",
    "complete": "leadrope.runtime.complete",
    "provider": "leadrope.runtime.complete",
    "AskFirst": "leadrope.runtime.embedding.hooks",
    "DenyCall": "leadrope.runtime.embedding.hooks",
    "EditCall": "leadrope.runtime.embedding.hooks",
    "Function": "leadrope.runtime.connections.functions",
    "tool": "leadrope.runtime.connections.functions",
    "Run": "leadrope.runtime.run",
    "open_run": "leadrope.runtime.run",
    "run": "leadrope.runtime.run_once",
    "run_many": "leadrope.runtime.run_many",
    "run_sync": "leadrope.runtime.run_once",
}
_MODULES = ("errors", "events")

__all__ = [
    "Answer",
    "ApprovalQueue",
    "Approver",
    "AskFirst",
    "Availability",
    "Callback",
    "Capabilities",
    "Completer",
    "Console",
    "Context",
    "Conversation",
    "DenyAll",
    "DenyCall",
    "EditCall",
    "Function",
    "InlineApprover",
    "Limits",
    "McpServer",
    "Message",
    "Recorded",
    "Reply",
    "Run",
    "RunRequest",
    "RunResult",
    "Secret",
    "SessionInfo",
    "Sessions",
    "ToolCall",
    "TypedResult",
    "__version__",
    "check_cli",
    "complete",
    "errors",
    "events",
    "open_conversation",
    "open_run",
    "provider",
    "run",
    "run_many",
    "run_sync",
    "schema_of",
    "tool",
]


if not TYPE_CHECKING:  # A type checker takes this for "any name exists", and has the imports above.

    def __getattr__(name: str) -> object:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'leadrope' has no attribute {name!r}", name=name, obj=sys.modules[__name__])
        module = importlib.import_module(home)
        return module if name in _MODULES else getattr(module, name)


def __dir__() -> list[str]:
    return __all__
