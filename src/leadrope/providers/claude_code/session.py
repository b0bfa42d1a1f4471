"""A conversation with the CLI over its control protocol: decodes its lines to events and signals, encodes our messages.

The gate depends on one registration: a PreToolUse callback without a matcher, which the CLI calls before every tool
call in every mode, for subagents too. `onFailure: block` makes it a gate: without it, an answer that the CLI cannot
parse lets the tool run.
"""

from __future__ import annotations

import uuid
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from leadrope.core.attachments import Attachment
from leadrope.core.events import Connection, Event, Problem
from leadrope.core.request import RunRequest
from leadrope.core.tools import ToolCall
from leadrope.providers import base
from leadrope.providers.claude_code import decode, failures, locate, questions, signals
from leadrope.providers.claude_code.argv import cli_mode

_encode = msgspec.json.Encoder().encode

OPENING_ID = "leadrope-open"
GATE_ID = "leadrope-gate"
# The CLI's own time-out of the callback must come after ours: ours denies with a reason, its blocks without one.
GATE_MARGIN_S = 60
# Without a limit on approvals the callback must never expire; the CLI accepts large numbers.
GATE_FOREVER_S = 10**9

CALL_ID = "claudecode/toolUseId"
"""The key with which a message to a server names its tool call."""

# Tools after which a turn may begin by itself: at a time, on an event, on another agent's message.
_WAKING = ("Cron", "Schedule", "Monitor", "RemoteTrigger", "SendMessage", "Team", "Workflow", "PushNotification")


class _McpStatus(msgspec.Struct, frozen=True, kw_only=True):
    servers: tuple[Connection, ...] = msgspec.field(default=(), name="mcpServers")


class ClaudeSession:
    asking_tools = questions.TOOLS

    def __init__(
        self, request: RunRequest, attachments: Sequence[Attachment] = (), own_servers: Sequence[str] = ()
    ) -> None:
        self._first_prompt = request.prompt
        self._attachments = tuple(attachments)
        self._approval_s = request.limits.approval_s
        self._mode = cli_mode(request.mode)
        self._decoder = decode.Decoder(tell=self._tell, server=_server(request.base_url or locate.MODEL_URL))
        # The messages that we sent, so that any other input of the CLI is noticed.
        self._prompts: set[str] = set()
        self._requests = {OPENING_ID}
        self._answers: dict[str, str] = {}
        self._turns_due = 0
        self._may_wake = False
        """Whether something was seen that can begin a turn without a prompt of ours."""
        self._plans: dict[str, dict[str, Any]] = {}
        """Call -> its input, as the model wrote it."""
        self._servers: set[str] | None = None
        self._own_servers = tuple(own_servers)
        self._given = frozenset((*request.connections, *own_servers))
        self._meanings: dict[type, Callable[[Any], base.Signal | None]] = {
            signals.Init: self._started,
            signals.HookCall: self._held,
            signals.CliPermissionAsked: lambda asked: base.PermissionAsked(
                request_id=asked.request_id, call=asked.call, reason=asked.reason
            ),
            signals.ControlReply: self._replied,
            signals.Replay: self._replayed,
            signals.ControlCancelled: lambda gone: base.Withdrawn(request_id=gone.request_id),
            signals.McpMessage: self._message_to_server,
            signals.OtherControl: lambda asked: self._refusal(
                asked.request_id, f"{asked.subtype} is not supported here"
            ),
            signals.BackgroundTasks: self._tasks_changed,
            signals.CliSessionState: lambda now: base.SessionState(idle=now.state == "idle"),
        }

    # -- encoding ---------------------------------------------------------------------------------------------------

    def open(self) -> bytes:
        timeout = self._approval_s + GATE_MARGIN_S if self._approval_s else GATE_FOREVER_S
        hook = {"matcher": None, "hookCallbackIds": [GATE_ID], "timeout": timeout, "onFailure": "block"}
        opening: dict[str, Any] = {"subtype": "initialize", "hooks": {"PreToolUse": [hook]}}
        if self._own_servers:
            opening["sdkMcpServers"] = list(self._own_servers)
        return _request(OPENING_ID, opening)

    def prompt(self, text: str) -> bytes:
        """Encode a prompt.

        `client_composed` sends the text verbatim: without it `/name` runs a command and `@path` reads a file, both
        bypassing the gate. Attachments belong to the request's own prompt and are sent once, before it. The `uuid` is
        echoed with the message (--replay-user-messages); nobody else knows it before that.
        """
        own_id = str(uuid.uuid4())
        self._prompts.add(own_id)
        self._turns_due += 1
        content: str | list[dict[str, Any]] = text
        if self._attachments and text == self._first_prompt:
            content = [block for one in self._attachments for block in content_blocks(one)]
            content.append({"type": "text", "text": text})
            self._attachments = ()
        return _line(
            {
                "type": "user",
                "session_id": "",
                "message": {"role": "user", "content": content},
                "parent_tool_use_id": None,
                "client_composed": True,
                "uuid": own_id,
            }
        )

    def answer_held(self, request_id: str, call: ToolCall, *, allowed: bool, reason: str, edited: Any) -> bytes:
        if allowed and call.name in self.asking_tools:
            # Without an opinion: the CLI then asks for the permission itself, and that request carries the answer back.
            return self._answer(request_id, {})
        output: dict[str, Any] = {
            "hookEventName": "PreToolUse",
            "permissionDecision": "allow" if allowed else "deny",
            "permissionDecisionReason": reason or ("allowed" if allowed else "denied"),
        }
        if edited is not None:
            output["updatedInput"] = edited
        return self._answer(request_id, {"hookSpecificOutput": output})

    def answer_asked(self, request_id: str, *, allowed: bool, reason: str, input_: Any) -> bytes:
        if allowed:
            return self._answer(request_id, {"behavior": "allow", "updatedInput": input_})
        return self._answer(request_id, {"behavior": "deny", "message": reason or "denied"})

    def requested(self, call: ToolCall) -> None:
        if call.name == questions.PLAN_TOOL:
            self._plans[call.id] = call.input

    def asks(self, call: ToolCall) -> base.Asking:
        if call.name == questions.PLAN_TOOL:
            # The request for a plan's approval comes without its text, which stands in the model's own call.
            return questions.plan_of_input({**self._plans.get(call.id, {}), **call.input})
        return questions.of_input(call.input)

    def answered(self, call: ToolCall, answers: Mapping[str, str]) -> dict[str, Any]:
        return call.input if call.name == questions.PLAN_TOOL else questions.with_answers(call.input, answers)

    def answer_message(self, request_id: str, reply: dict[str, Any]) -> bytes:
        return self._answer(request_id, {"mcp_response": reply})

    def interrupt(self, request_id: str) -> bytes:
        self._requests.add(request_id)
        return _request(request_id, {"subtype": "interrupt"})

    def ask_connections(self, request_id: str) -> bytes:
        self._requests.add(request_id)
        return _request(request_id, {"subtype": "mcp_status"})

    def connections_of(self, payload: Any) -> tuple[Connection, ...]:
        try:
            told = msgspec.convert(payload, _McpStatus)
        except msgspec.ValidationError:
            return ()
        return told.servers

    def _answer(self, request_id: str, response: dict[str, Any]) -> bytes:
        answer = {"subtype": "success", "request_id": request_id, "response": response}
        self._answers[request_id] = _decision(response)
        return _line({"type": "control_response", "response": answer})

    def _refusal(self, request_id: str, error: str) -> base.Unanswerable:
        """Reject a request; unanswered, it would block the agent forever."""
        answer = {"subtype": "error", "request_id": request_id, "error": error}
        self._answers[request_id] = _decision(None)
        return base.Unanswerable(answer=_line({"type": "control_response", "response": answer}))

    # -- decoding ---------------------------------------------------------------------------------------------------

    def receive(self, lines: Sequence[Any]) -> list[Event | base.Signal]:
        out: list[Any] = []
        self._decoder.feed(lines, out)
        return out

    def _tell(self, out: list[Any], signal: signals.Control) -> None:
        meant = self._meanings[type(signal)](signal)
        if meant is not None:
            out.append(meant)

    def explain(self, stderr: Iterable[str]) -> Problem | None:
        return failures.explain_lines(stderr)

    def _replied(self, reply: signals.ControlReply) -> base.Signal | None:
        """Handle a reply to a request of ours, or the echo of our answer to one of its requests."""
        request_id = reply.request_id
        if request_id in self._answers:
            decision = self._answers.pop(request_id)
            if decision == _decision(reply.payload if reply.ok else None):
                return None
            return base.Foreign(what=f"an answer to its request {request_id} that is not the one that was given")
        if request_id not in self._requests:
            return base.Foreign(what=f"request or answer {request_id}")
        self._requests.remove(request_id)
        if request_id != OPENING_ID:
            return base.Replied(request_id=request_id, ok=reply.ok, error=reply.error, payload=reply.payload)
        if not reply.ok:
            return base.Ready(gate=False, reason=reply.error or "it refused the opening")
        return ready_from(reply.payload, self._mode)

    def _replayed(self, replay: signals.Replay) -> base.Signal | None:
        """Handle an echoed message; None for a prompt of ours, and for the report of a task that was seen to start."""
        if replay.uuid in self._prompts or (replay.origin == "task-notification" and self._may_wake):
            return None
        return base.Foreign(what="a message of the user that is none of this run's prompts")

    def _tasks_changed(self, tasks: signals.BackgroundTasks) -> base.BackgroundWork:
        self._may_wake = self._may_wake or tasks.agents + tasks.commands > 0
        return base.BackgroundWork(agents=tasks.agents, commands=tasks.commands)

    def _message_to_server(self, asked: signals.McpMessage) -> base.Signal:
        if asked.server not in self._own_servers:
            return self._refusal(asked.request_id, f"no connection {asked.server!r} is served here")
        return base.MessageToServer(
            request_id=asked.request_id, server=asked.server, message=asked.message, call_id=_call_id(asked.message)
        )

    def _held(self, held: signals.HookCall) -> base.CallHeld:
        self._may_wake = self._may_wake or held.call.name.startswith(_WAKING)
        # A `cd` in an earlier call is still in effect: the CLI reports its shell's folder with every call.
        call = msgspec.structs.replace(held.call, cwd=held.cwd) if held.cwd else held.call
        return base.CallHeld(request_id=held.request_id, call=call)

    def _started(self, init: signals.Init) -> base.Signal:
        """Handle the start of a turn. With --strict-mcp-config the servers of the first turn never change."""
        if not self._turns_due and not self._may_wake:
            return base.Foreign(what="a turn that none of this run's prompts has begun")
        self._turns_due = max(0, self._turns_due - 1)
        names = {one.name for one in init.connections}
        if self._servers is None:
            self._servers = names | self._given
        if added := sorted(names - self._servers):
            return base.Foreign(what=f"a connection that this run was not given: {', '.join(added)}")
        return _started(init)


def content_blocks(attachment: Attachment) -> list[dict[str, Any]]:
    """Convert a file for the model's API; an image block has no field for its name, so the name precedes it."""
    if attachment.kind == "text":
        source = {"type": "text", "media_type": "text/plain", "data": attachment.text}
        return [{"type": "document", "source": source, "title": attachment.name}]
    data = b64encode(attachment.content).decode("ascii")
    source = {"type": "base64", "media_type": attachment.media_type, "data": data}
    if attachment.kind == "pdf":
        return [{"type": "document", "source": source, "title": attachment.name}]
    return [{"type": "text", "text": f"Attached image: {attachment.name}"}, {"type": "image", "source": source}]


def _call_id(message: dict[str, Any]) -> str:
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    call_id = meta.get(CALL_ID) if isinstance(meta, dict) else None
    return call_id if isinstance(call_id, str) else ""


def _line(message: dict[str, Any]) -> bytes:
    return _encode(message) + b"\n"


def _request(request_id: str, request: dict[str, Any]) -> bytes:
    return _line({"type": "control_request", "request_id": request_id, "request": request})


def _decision(response: Any) -> str:
    """Return what an answer decides. Texts and numbers are not compared: the CLI may have reformatted them."""
    if not isinstance(response, dict):
        return "refused"
    output = response.get("hookSpecificOutput")
    decision = output.get("permissionDecision") if isinstance(output, dict) else response.get("behavior")
    return decision if isinstance(decision, str) else "none"


def _started(init: signals.Init) -> base.Started:
    return base.Started(
        session_id=init.session_id,
        model=init.model,
        mode=init.mode,
        cwd=init.cwd,
        version=init.version,
        key_source=init.api_key_source,
        tools=init.tools,
        connections=init.connections,
    )


def ready_from(payload: Any, mode: str) -> base.Ready:
    """Check that the CLI's answer to the initialization shows that the gate is in effect."""
    told = payload if isinstance(payload, dict) else {}
    version = told.get("claude_code_version")
    version = version if isinstance(version, str) else ""
    reason = ""
    if told.get("hooks_applied") is not True:
        reason = "it did not take the gate's hook"
    elif told.get("hook_on_failure_supported") is not True:
        reason = "its hooks let a call run when they fail"
    elif told.get("current_permission_mode", mode) != mode:
        reason = f"it runs in mode {told['current_permission_mode']!r} and not in {mode!r}"
    return base.Ready(gate=not reason, reason=reason, version=version, is_tested=version in locate.TESTED)


def _server(url: str) -> str:
    """Return the address without user name and password."""
    split = urlsplit(url)
    return f"{split.scheme}://{split.netloc.rpartition('@')[2]}"
