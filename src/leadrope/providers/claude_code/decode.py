"""Decodes lines of the CLI into events, and into control messages that its session must answer. No I/O, no clock.

No line is lost or fatal: what cannot be decoded becomes `Unrecognised` with its text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import msgspec

from leadrope.core import events
from leadrope.core.cost.usage import ModelShare, Usage
from leadrope.process.lines import Several
from leadrope.providers.claude_code import failures, parts, signals, system_lines, unreadable, wire


class SpooledLine(Protocol):
    """A line that was too long to hold in memory and is stored in a file."""

    @property
    def path(self) -> str: ...
    @property
    def size(self) -> int: ...


Item = events.Event | signals.Control
Out = list[Item]
_Attributed = wire.Assistant | wire.User | wire.StreamEvent | wire.ToolUse | wire.ToolResult
# Known blocks without an event of their own: the work of the model's server-side tools, hidden thoughts.
_QUIET_BLOCKS = frozenset(
    ("redacted_thinking", "server_tool_use", "web_search_tool_result", "web_fetch_tool_result", "advisor_tool_result")
)


_TOKENS = msgspec.json.Decoder(wire.Tokens | None)
_call = parts.call  # looked up once: in a busy run it is called for every third line


class _OpenMessage:
    """A message that is being streamed; its tokens are reported once, when they are final."""

    __slots__ = ("agent_id", "id", "model", "usage")

    def __init__(self, message: wire.StartedMessage, agent_id: str | None) -> None:
        self.id = message.id
        self.model = message.model or ""
        self.usage = parts.usage(message.usage)
        self.agent_id = agent_id

    def told(self) -> events.UsageUpdated:
        return events.UsageUpdated(message_id=self.id, model=self.model, usage=self.usage, agent_id=self.agent_id)


class Decoder:
    """Decodes one process's lines in order.

    decoder = Decoder() for item in decoder.feed(lines): ...
    """

    def __init__(self, tell: signals.Tell = list.append, server: str = "") -> None:
        """`tell` appends a signal to the output; a session passes one that translates it first.

        `server` is the model's address, for the message that it was not reached.
        """
        self._tell = tell
        self._server = server
        self.lines = 0
        """Number of lines so far."""
        self.silent = 0
        """Lines that were decoded but added nothing: echoed prompts, frames of the model's stream."""
        self._turns_ended = 0
        self._total_cost = 0.0
        self._told = Usage()
        """Tokens that the messages of this turn have reported."""
        self._last_message = self._last_model = ""
        self._counted: set[str] = set()
        """Subagents' messages whose tokens were reported."""
        self._streaming: dict[str | None, _OpenMessage] = {}
        self._system = system_lines.SystemLines(tell)
        self._agents = self._system.agents
        decoder = msgspec.json.Decoder(wire.Line)
        self._decode: Callable[[Any], wire.Line] = decoder.decode
        self._decode_lines: Callable[[bytes], list[wire.Line]] = decoder.decode_lines
        self._uncut = Several(b"")
        self._cut: list[bytes] | None = None
        self._at = self._count = 0
        self._handlers: dict[type, Callable[[Any, Any, Out], None]] = {
            wire.Assistant: self._assistant,
            wire.User: self._user,
            wire.StreamEvent: self._stream,
            wire.System: lambda line, raw, out: self._system.read(line, self._text(raw), out),
            wire.Result: self._result,
            wire.ToolUse: self._tool_use,
            wire.ToolResult: self._tool_result,
            wire.ToolProgress: self._tool_progress,
            wire.RateLimitEvent: self._rate_limit,
            wire.ConversationReset: self._conversation_reset,
            wire.CommandLifecycle: self._command_lifecycle,
            wire.ControlRequest: self._control_request,
            wire.ControlResponse: self._control_response,
            wire.ControlCancelRequest: self._control_cancel,
        }

    def feed(self, lines: Sequence[bytes | bytearray | SpooledLine | Several], out: Out | None = None) -> Out:
        """Append the meaning of each line to `out`, in order, and return it."""
        if out is None:
            out = []
        decode, handlers = self._decode, self._handlers
        for line in lines:
            if type(line) is Several:
                self._several(line, out)
                continue
            self.lines += 1
            try:
                message = decode(line)
                handlers[type(message)](message, line, out)
            except unreadable.ERRORS as error:
                self._salvage(bytes(cast("bytes | bytearray", line)), error, out)
            except TypeError:
                # A spooled line is not bytes. Checking before each decode would slow down every line for a rare case.
                if isinstance(line, bytes | bytearray | Several):
                    raise
                out.append(events.Unrecognised(reason="line_too_long", size=line.size, path=line.path))
        return out

    def _several(self, piece: Several, out: Out) -> None:
        """Decode several lines at once, without splitting them unless one is damaged."""
        handlers = self._handlers
        try:
            messages = self._decode_lines(piece.data)
        except unreadable.ERRORS:
            self.feed(piece.split(), out)
            return
        self.lines += len(messages)
        self._uncut, self._cut, self._count = piece, None, len(messages)
        for self._at, message in enumerate(messages):
            try:
                handlers[type(message)](message, b"", out)
            except unreadable.ERRORS as error:
                self._salvage(bytes(self._text(b"")), error, out)

    def _text(self, raw: bytes | bytearray) -> bytes | bytearray:
        """Return the text of the current line; one of several is only cut out here, for the few that need it."""
        if raw:
            return raw
        if self._cut is None:
            self._cut = [line for line in self._uncut.split() if line.strip()]
        # Two values on one line, or one on two, were decoded anyway; then it is unknown which text belongs to which.
        return self._cut[self._at] if len(self._cut) == self._count else self._uncut.data

    # Messages and tool calls of the model

    def _assistant(self, line: wire.Assistant, raw: bytes | bytearray, out: Out) -> None:
        message = line.message
        message_id = message.id or ""
        self._last_message, self._last_model = message_id, message.model or self._last_model
        agent_id = line.agent_id if line.parent_tool_use_id is None else self._agent_of(line)
        content = message.content
        if isinstance(content, str):
            content = [wire.Block(type="text", text=content)]
        said = False
        for block in content:
            if block.type == "text":
                if text := block.text:
                    said = True
                    is_error = line.error is not None or line.is_api_error_message is True
                    out.append(
                        events.MessageCompleted(text=text, message_id=message_id, agent_id=agent_id, is_error=is_error)
                    )
            else:
                said = self._block(block, message_id, agent_id, raw, out) or said
        if agent_id is not None and message_id not in self._counted:
            said = self._count_subagent(message, agent_id, out) or said
        if not said:
            self.silent += 1

    def _count_subagent(self, message: wire.AssistantMessage, agent_id: str, out: Out) -> bool:
        """Count a subagent's message. It is not streamed: its input is known here, its output is reported later."""
        if not message.id or not message.usage:
            return False
        self._counted.add(message.id)
        usage = parts.usage(_TOKENS.decode(message.usage))
        if not usage.total_tokens:
            return False
        self._told += usage
        out.append(
            events.UsageUpdated(message_id=message.id, model=message.model or "", usage=usage, agent_id=agent_id)
        )
        return True

    def _block(
        self, block: wire.Block, message_id: str, agent_id: str | None, raw: bytes | bytearray, out: Out
    ) -> bool:
        """Decode any block except text; returns whether it produced an event."""
        kind = block.type
        if kind == "tool_use":
            call = _call(block.id, block.name, block.input, agent_id)
            out.append(events.ToolRequested(call=call, message_id=message_id))
        elif kind == "thinking" and block.thinking:
            out.append(events.ThinkingCompleted(text=block.thinking, message_id=message_id, agent_id=agent_id))
        elif kind == "tool_result":
            out.append(parts.completed(block, agent_id))
        elif kind == "thinking" or kind in _QUIET_BLOCKS:
            return False
        else:
            out.append(unreadable.unrecognised("unknown_block", self._text(raw)))
        return True

    def _user(self, line: wire.User, raw: bytes | bytearray, out: Out) -> None:
        if line.is_replay:
            origin = (line.origin.kind or "") if line.origin is not None else ""
            self._tell(out, signals.Replay(uuid=line.uuid or "", origin=origin))
        content = line.message.content
        said = line.is_replay is True
        if isinstance(content, list):
            agent_id = line.agent_id if line.parent_tool_use_id is None else self._agent_of(line)
            for block in content:
                if block.type == "tool_result":
                    said = True
                    text = block.content
                    if block.is_error is not True and isinstance(text, str):
                        # The usual case; in a busy run every second line.
                        told = events.ToolCompleted(call_id=block.tool_use_id or "", text=text, agent_id=agent_id)
                        out.append(told)
                    else:
                        out.append(parts.completed(block, agent_id, line.tool_result_meta))
        if not said:
            self.silent += 1

    def _stream(self, line: wire.StreamEvent, raw: bytes | bytearray, out: Out) -> None:
        event = line.event
        agent_id = self._agent_of(line)
        delta = event.delta
        message = self._streaming.get(agent_id)
        if delta is not None and delta.text:
            out.append(
                events.MessageDelta(text=delta.text, message_id=message.id if message else "", agent_id=agent_id)
            )
        elif delta is not None and delta.thinking:
            out.append(
                events.ThinkingDelta(text=delta.thinking, message_id=message.id if message else "", agent_id=agent_id)
            )
        else:
            self._frame(event, message, agent_id, out)

    def _frame(self, event: wire.ApiEvent, message: _OpenMessage | None, agent_id: str | None, out: Out) -> None:
        """Process the beginning or end of a streamed message, and its usage so far."""
        started = event.message if event.type == "message_start" else None
        before = len(out)
        if started is not None or event.type == "message_stop":
            self._finish_streaming(agent_id, out)
        if started is not None:
            self._streaming[agent_id] = _OpenMessage(started, agent_id)
        elif event.type == "message_delta" and event.usage is not None and message is not None:
            message.usage = parts.usage(event.usage, message.usage)
        if len(out) == before:
            self.silent += 1

    def _finish_streaming(self, agent_id: str | None, out: Out) -> None:
        message = self._streaming.pop(agent_id, None)
        if message is not None and message.usage.total_tokens:
            self._told += message.usage
            out.append(message.told())

    def _tool_use(self, line: wire.ToolUse, raw: bytes | bytearray, out: Out) -> None:
        tool = line.tool_use
        out.append(events.ToolRequested(call=_call(tool.id, tool.name, tool.input, self._agent_of(line))))

    def _tool_result(self, line: wire.ToolResult, raw: bytes | bytearray, out: Out) -> None:
        out.append(parts.completed(line.tool_result or line, self._agent_of(line)))

    def _tool_progress(self, line: wire.ToolProgress, raw: bytes | bytearray, out: Out) -> None:
        # While a hook is pending, the heartbeat's own id is `hook-PreToolUse-<call>` and the call is its parent.
        is_hook = line.tool_use_id.startswith("hook-") and line.parent_tool_use_id is not None
        out.append(
            events.ToolProgress(
                call_id=(line.parent_tool_use_id or "") if is_hook else line.tool_use_id,
                tool=line.tool_name or "",
                elapsed_s=line.elapsed_time_seconds or 0.0,
                heartbeat=line.heartbeat,
            )
        )

    def _result(self, line: wire.Result, raw: bytes | bytearray, out: Out, wrong: tuple[str, ...] = ()) -> None:
        for agent_id in tuple(self._streaming):
            self._finish_streaming(agent_id, out)
        self._turns_ended += 1
        usage, cost, models = self._own_usage(line)
        if cost is None:
            cost = 0.0
            self._tell_untold(usage, out)
        self._told = Usage()
        reason = line.subtype or ("error" if line.is_error else "success")
        # An error reason means that the turn failed, even if an older CLI left the flag false.
        is_error = line.is_error is True or reason.startswith("error")
        text = line.result or ""
        errors = tuple(line.errors or ())
        api_error = line.api_error or line.api_error_type
        if wrong:
            is_error, reason = True, events.MALFORMED_RESULT
            errors = (f"the agent's result line cannot be read: {', '.join(wrong)}", *errors)
        out.append(
            events.TurnEnded(
                turn=self._turns_ended,
                is_error=is_error,
                reason=reason,
                text=text,
                stop_reason=line.stop_reason,
                terminal_reason=line.terminal_reason,
                api_status=line.api_error_status,
                api_error=api_error,
                errors=errors,
                output=line.structured_output,
                steps=line.num_turns or 0,
                usage=usage,
                cost_usd=cost,
                models=models,
                duration_ms=round(line.duration_ms or 0),
                denials=tuple(
                    _call(denial.tool_use_id, denial.tool_name, denial.tool_input, None)
                    for denial in line.permission_denials or ()
                ),
                background=line.origin is not None and line.origin.kind == "task-notification",
                startup_failure=line.startup_failure_reason,
                never_connected=is_error and failures.never_connected(text),
                problem=failures.MALFORMED_RESULT
                if wrong
                else failures.not_reached(
                    failures.explain_turn(
                        is_error=is_error,
                        reason=reason,
                        text=text,
                        errors=errors,
                        terminal_reason=line.terminal_reason,
                        api_status=line.api_error_status,
                        api_error=api_error,
                        startup_failure=line.startup_failure_reason,
                    ),
                    text,
                    self._server,
                ),
            )
        )

    def _own_usage(self, line: wire.Result) -> tuple[Usage, float | None, dict[str, ModelShare]]:
        """Return tokens and cost of this result alone: the CLI's totals span the process, and continue over --resume.

        The cost is None if the line has none: the turn's tokens are then counted at list prices.
        """
        total = parts.total_cost(line)
        own = line.cost_usd
        if total is not None:
            own = max(0.0, total - self._total_cost)
            self._total_cost = max(total, self._total_cost)
        if line.model_usage_since_last_result is None:
            return parts.usage(line.usage), own, {}
        # Includes subagents, which `usage` of the same line does not.
        models = {name: parts.share(told) for name, told in line.model_usage_since_last_result.items()}
        usage = Usage()
        for model in models.values():
            usage += model.usage
        return usage, sum(model.cost_usd for model in models.values()), models

    def _tell_untold(self, usage: Usage, out: Out) -> None:
        """Report tokens of a turn without a cost that no message reported: they count with its last message."""
        rest = usage - self._told
        if rest.total_tokens:
            out.append(
                events.UsageUpdated(
                    message_id=self._last_message or f"turn-{self._turns_ended}", model=self._last_model, usage=rest
                )
            )

    # The CLI's messages about itself

    def _rate_limit(self, line: wire.RateLimitEvent, raw: bytes | bytearray, out: Out) -> None:
        info = line.rate_limit_info
        if info.status == "allowed":
            self.silent += 1
            return
        used = f"{info.utilization:.0%} used" if info.utilization is not None else ""
        out.append(
            events.LimitReached(
                status=info.status,
                kind=info.rate_limit_type or "",
                resets_at=parts.epoch_seconds(info.resets_at),
                message=used,
            )
        )

    def _conversation_reset(self, line: wire.ConversationReset, raw: bytes | bytearray, out: Out) -> None:
        out.append(events.Notice(level="debug", code="conversation_reset", message=line.trigger or ""))

    def _command_lifecycle(self, line: wire.CommandLifecycle, raw: bytes | bytearray, out: Out) -> None:
        out.append(events.Notice(level="debug", code="command_lifecycle", message=line.state or ""))

    # The control protocol

    def _control_request(self, line: wire.ControlRequest, raw: bytes | bytearray, out: Out) -> None:
        request = line.request
        if isinstance(request, wire.HookCallback):
            hook = request.input
            if hook.hook_event_name != "PreToolUse":
                self._tell(
                    out,
                    signals.OtherControl(request_id=line.request_id, subtype=f"hook_callback/{hook.hook_event_name}"),
                )
                return
            call_id = request.tool_use_id or hook.tool_use_id
            self._tell(
                out,
                signals.HookCall(
                    request_id=line.request_id,
                    call=_call(call_id, hook.tool_name, hook.tool_input, hook.agent_id),
                    permission_mode=hook.permission_mode or "",
                    cwd=hook.cwd or "",
                ),
            )
        elif isinstance(request, wire.CanUseTool):
            self._tell(
                out,
                signals.CliPermissionAsked(
                    request_id=line.request_id,
                    call=_call(request.tool_use_id, request.tool_name, request.input, request.agent_id),
                    reason=request.decision_reason or "",
                    description=request.description or "",
                    blocked_path=request.blocked_path,
                ),
            )
        else:
            self._tell(
                out, signals.McpMessage(request_id=line.request_id, server=request.server_name, message=request.message)
            )

    def _control_response(self, line: wire.ControlResponse, raw: bytes | bytearray, out: Out) -> None:
        answer = line.response
        self._tell(
            out,
            signals.ControlReply(
                request_id=answer.request_id,
                ok=answer.subtype == "success",
                payload=answer.response,
                error=answer.error or answer.error_code or "",
            ),
        )

    def _control_cancel(self, line: wire.ControlCancelRequest, raw: bytes | bytearray, out: Out) -> None:
        self._tell(out, signals.ControlCancelled(request_id=line.request_id))

    def _agent_of(self, line: _Attributed) -> str | None:
        if line.agent_id is not None or line.parent_tool_use_id is None:
            return line.agent_id
        return self._agents.get(line.parent_tool_use_id, line.parent_tool_use_id)

    # Undecodable lines

    def _salvage(self, raw: bytes, error: Exception, out: Out) -> None:
        """Keep the line; decode it after all if only its text is damaged; reject what the agent waits for."""
        if not raw.strip():
            self.silent += 1
            return
        if not isinstance(error, msgspec.ValidationError):
            mended = unreadable.mend(raw)
            if mended is not None:
                raw = mended
                try:
                    message = self._decode(raw)
                    self._handlers[type(message)](message, raw, out)
                    return
                except unreadable.ERRORS:
                    pass  # its text is intact now, so its structure is wrong
        request = unreadable.refusal(raw)
        if request is not None:
            self._tell(out, request)
        result = unreadable.result(raw)
        if result is None or result[1]:
            out.append(unreadable.unrecognised(unreadable.why(raw), raw))
        if result is not None:
            self._result(result[0], raw, out, wrong=result[1])
