"""The functions of a program as an MCP server inside of this process; the agent's messages come over its own input.

Nothing is called that the gate has not allowed: a call names the tool call it belongs to, and that one must have been
allowed with exactly these arguments, and can be used once.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from leadrope.core.secrets.redaction import Redactor
from leadrope.core.tools import ToolCall
from leadrope.runtime.connections.functions import PREFIX, SERVER, BadArguments, Function, TookTooLong
from leadrope.version import __version__

log = logging.getLogger("leadrope.run")

_ALWAYS = {"anthropic/alwaysLoad": True}
"""Else the model has to search for a tool before it knows its parameters."""
_METHOD_NOT_FOUND = -32601
_NOT_APPROVED = "this call was not approved"

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[Any]]
Send = Callable[[str, dict[str, Any]], None]
Allowed = Callable[[str], ToolCall | None]
"""The tool call of that id as it was allowed; None: it was not."""


class FunctionServer:
    """Answers the agent's messages to the server `functions`."""

    def __init__(
        self,
        functions: Mapping[str, Function[..., Any]],
        *,
        allowed: Allowed,
        spawn: Spawn,
        send: Send,
        redactor: Callable[[], Redactor],
    ) -> None:
        self._functions = functions
        self._allowed = allowed
        self._spawn = spawn
        self._send = send
        self._redactor = redactor
        self._used: set[str] = set()
        self._running: dict[str, asyncio.Task[Any]] = {}
        """By the agent's request id."""
        self._requests: dict[Any, str] = {}
        """The id within a message -> that of the request that brought it."""

    def take(self, request_id: str, message: Mapping[str, Any], call_id: str = "") -> None:
        """Answer one message, at once or when the function has returned. `call_id`: the tool call it belongs to."""
        number, method = message.get("id"), message.get("method")
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        if method == "tools/call":
            self._requests[number] = request_id
            self._running[request_id] = self._spawn(self._call(request_id, number, params, call_id))
            return
        if method == "notifications/cancelled":
            self.cancel(self._requests.get(params.get("requestId"), ""))
        self._send(request_id, _reply(number, self._result(method, params)))

    def cancel(self, request_id: str) -> None:
        """The agent no longer waits for this answer."""
        running = self._running.pop(request_id, None)
        if running is not None:
            running.cancel()

    def close(self) -> None:
        """The run is ending: no function is waited for any more."""
        for request_id in tuple(self._running):
            self.cancel(request_id)

    def _result(self, method: Any, params: Mapping[str, Any]) -> dict[str, Any] | None:
        match method:
            case "initialize":
                version = params.get("protocolVersion")
                return {
                    "protocolVersion": version if isinstance(version, str) else "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": SERVER, "version": __version__},
                }
            case "tools/list":
                return {
                    "tools": [
                        {"name": one.name, "description": one.description, "inputSchema": one.schema, "_meta": _ALWAYS}
                        for one in self._functions.values()
                    ]
                }
            case "ping":
                return {}
            case str() if method.startswith("notifications/"):
                return {}
            case _:
                return None

    async def _call(self, request_id: str, number: Any, params: Mapping[str, Any], call_id: str) -> None:
        try:
            text, is_error = await self._called(params, call_id)
        finally:
            self._running.pop(request_id, None)
            self._requests.pop(number, None)
        content = [{"type": "text", "text": text}]
        self._send(request_id, _reply(number, {"content": content, **({"isError": True} if is_error else {})}))

    async def _called(self, params: Mapping[str, Any], call_id: str) -> tuple[str, bool]:
        name, given = params.get("name"), params.get("arguments")
        function = self._functions.get(name) if isinstance(name, str) else None
        if function is None:
            return f"there is no function {name!r}", True
        arguments = given if isinstance(given, dict) else {}
        if not call_id or call_id in self._used or not self._is_allowed(call_id, function, arguments):
            log.error("function %s was asked for by a call that the gate has not allowed; it was not called", name)
            return _NOT_APPROVED, True
        self._used.add(call_id)
        try:
            return await function.call(arguments), False
        except BadArguments as error:
            return f"wrong arguments: {self._clean(str(error))}", True
        except TookTooLong as error:
            return str(error), True
        except Exception as error:  # noqa: BLE001  # the program's own code; the run continues without it
            return self._failed(function, error), True

    def _failed(self, function: Function[..., Any], error: Exception) -> str:
        # The log may go anywhere, and the message of an exception often holds what the function was given.
        log.error("function %s failed\n%s", function.name, self._clean("".join(traceback.format_exception(error))))
        return self._clean(f"{function.name} failed: {type(error).__name__}: {error}")

    def _clean(self, text: str) -> str:
        return self._redactor().clean(text)

    def _is_allowed(self, call_id: str, function: Function[..., Any], arguments: dict[str, Any]) -> bool:
        call = self._allowed(call_id)
        return call is not None and call.name == f"{PREFIX}{function.name}" and call.input == arguments


def _reply(number: Any, result: dict[str, Any] | None) -> dict[str, Any]:
    reply: dict[str, Any] = {"jsonrpc": "2.0"}
    if number is not None:
        reply["id"] = number
    if result is None:
        return reply | {"error": {"code": _METHOD_NOT_FOUND, "message": "this server has tools and nothing else"}}
    return reply | {"result": result}
