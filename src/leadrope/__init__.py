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
    from leadrope.policy.decide import Facts as Facts
    from leadrope.policy.decide import Policy as Policy
    from leadrope.policy.decide import decide as decide
    from leadrope.policy.files.sources import gather_policy as gather_policy
    from leadrope.process.sandbox.availability import SandboxAvailability as SandboxAvailability
    from leadrope.process.sandbox.availability import try_sandbox as try_sandbox
    from leadrope.providers.base import Availability as Availability
    from leadrope.providers.base import Capabilities as Capabilities
    from leadrope.providers.claude_code.locate import check_cli as check_cli
    from leadrope.runs.observe.webhook import sign_webhook as sign_webhook
    from leadrope.runs.observe.webhook import verify_webhook as verify_webhook
    from leadrope.runs.records.values import RunInfo as RunInfo
    from leadrope.runs.service import Service as Service
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
    from leadrope.workflows.embedding import check_workflow as check_workflow
    from leadrope.workflows.embedding import load_workflow as load_workflow
    from leadrope.workflows.embedding import resume_workflow as resume_workflow
    from leadrope.workflows.embedding import run_workflow as run_workflow
    from leadrope.workflows.problems import BadWorkflow as BadWorkflow
    from leadrope.workflows.problems import WorkflowProblem as WorkflowProblem

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
    "Service": "leadrope.runs.service",
    "RunInfo": "leadrope.runs.records.values",
    "load_workflow": "leadrope.workflows.embedding",
    "check_workflow": "leadrope.workflows.embedding",
    "run_workflow": "leadrope.workflows.embedding",
    "resume_workflow": "leadrope.workflows.embedding",
    "WorkflowProblem": "leadrope.workflows.problems",
    "BadWorkflow": "leadrope.workflows.problems",
    "Policy": "leadrope.policy.decide",
    "Facts": "leadrope.policy.decide",
    "decide": "leadrope.policy.decide",
    "gather_policy": "leadrope.policy.files.sources",
    "try_sandbox": "leadrope.process.sandbox.availability",
    "SandboxAvailability": "leadrope.process.sandbox.availability",
    "sign_webhook": "leadrope.runs.observe.webhook",
    "verify_webhook": "leadrope.runs.observe.webhook",
}
_MODULES = ("errors", "events")

__all__ = [
    "Answer",
    "ApprovalQueue",
    "Approver",
    "AskFirst",
    "Availability",
    "BadWorkflow",
    "Callback",
    "Capabilities",
    "Completer",
    "Console",
    "Context",
    "Conversation",
    "DenyAll",
    "DenyCall",
    "EditCall",
    "Facts",
    "Function",
    "InlineApprover",
    "Limits",
    "McpServer",
    "Message",
    "Policy",
    "Recorded",
    "Reply",
    "Run",
    "RunInfo",
    "RunRequest",
    "RunResult",
    "SandboxAvailability",
    "Secret",
    "Service",
    "SessionInfo",
    "Sessions",
    "ToolCall",
    "TypedResult",
    "WorkflowProblem",
    "__version__",
    "check_cli",
    "check_workflow",
    "complete",
    "decide",
    "errors",
    "events",
    "gather_policy",
    "load_workflow",
    "open_conversation",
    "open_run",
    "provider",
    "resume_workflow",
    "run",
    "run_many",
    "run_sync",
    "run_workflow",
    "schema_of",
    "sign_webhook",
    "tool",
    "try_sandbox",
    "verify_webhook",
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
