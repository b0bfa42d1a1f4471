"""What must hold before the first prompt is sent: an untested agent's gate, and the connections that were promised."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, Protocol

from leadrope.core import events
from leadrope.core.request import McpServer, RunRequest
from leadrope.core.result import SERVER_FAILED
from leadrope.providers import base

Cause = Literal["stopped", "timed_out", "over_budget", "denied", "parked", "failed"]

TryGate = Callable[[str], Awaitable[str | None]]
"""A version in; why its gate does not hold out, or None."""

# The agent's own time-out of a connection comes first and says why; ours is for an agent that does not.
CONNECTION_MARGIN_S = 2.0
CONNECTION_LOOK_S = 0.05
WARNING_LINES = 3
"""Of a server's stderr in a warning, which is one line."""


class PreflightHost(Protocol):
    """What the checks need of the attempt."""

    def emit(self, event: events.Event) -> None: ...

    def end(
        self,
        cause: Cause,
        kind: str,
        message: str,
        *,
        api_status: int | None = None,
        hint: str | None = None,
        connection: str | None = None,
        stderr_tail: tuple[str, ...] = (),
        code: str | None = None,
    ) -> None: ...

    def stderr_of(self, connection: str) -> tuple[str, ...]: ...

    async def ask(self, what: str, say: Callable[[str], bytes]) -> base.Replied | None: ...


def has_gate(host: PreflightHost, ready: base.Ready) -> bool:
    """Ends a run whose agent cannot hold a call."""
    if not ready.gate:
        host.end(
            "failed",
            "gate_unsupported",
            f"this agent cannot hold a tool call before it runs: {ready.reason}",
            hint="Update the agent, or name another one (binary).",
        )
    return ready.gate


def session_started(started: base.Started, request: RunRequest, launch: base.Start) -> events.SessionStarted:
    """What the agent says of itself, beside what it was given."""
    return events.SessionStarted(
        session_id=started.session_id,
        provider=request.provider,
        model=started.model,
        mode=request.mode,
        cwd=started.cwd,
        agent_version=started.version,
        tools=started.tools,
        connections=started.connections,
        credential=launch.credential,
        instructions=launch.instructions,
    )


def check_key(host: PreflightHost, started: base.Started, launch: base.Start) -> None:
    """Ends a run that would be paid with a key that we have not given."""
    expected = launch.key_sources if isinstance(launch, base.Launch) else None
    if expected is not None and started.key_source not in expected:
        host.end(
            "failed",
            "not_authenticated",
            f"the agent reports a key from {started.key_source!r} that was not given to it",
            hint="Look for a key in the agent's own settings; only one credential may be in play.",
        )


def refuse_login(host: PreflightHost, status: int) -> None:
    """Left alone, an agent asks again with a refused credential for three minutes."""
    host.end(
        "failed",
        "not_authenticated",
        f"the model's service refused the credential ({status})",
        api_status=status,
        hint="Log in again (`leadrope login`), or check the token or key that is used.",
    )


async def check_version(host: PreflightHost, version: str, try_gate: TryGate) -> None:
    """No prompt is sent to an unknown version before its gate was seen to hold."""
    name = version or "(unknown)"
    told = f"agent version {name} is untested; its gate is tried before its first use"
    host.emit(events.Notice(level="warning", code="untested_version", message=told))
    wrong = await try_gate(version)
    if wrong is not None:
        host.end("failed", "gate_unsupported", f"the gate of agent version {name} does not hold: {wrong}")


async def check_connections(
    host: PreflightHost, request: RunRequest, session: base.AgentSession, own_servers: Sequence[str] = ()
) -> None:
    """Each has connected or failed before the first prompt: what a run was promised is there from its start."""
    loop = asyncio.get_running_loop()
    give_up = loop.time() + (request.limits.connection_s or 30) + CONNECTION_MARGIN_S
    while True:
        reply = await host.ask("connections", session.ask_connections)
        if reply is None or not reply.ok:
            _judge(host, request, {}, own_servers)
            return
        found = {one.name: one for one in session.connections_of(reply.payload)}
        # A server of ours is not listed before the agent has heard from it.
        is_settled = all(one.status != "pending" for one in found.values()) and all(
            name in found for name in own_servers
        )
        if is_settled or loop.time() > give_up:
            _judge(host, request, found, own_servers)
            return
        await asyncio.sleep(CONNECTION_LOOK_S)


def _judge(
    host: PreflightHost, request: RunRequest, found: Mapping[str, events.Connection], own_servers: Sequence[str]
) -> None:
    for name in own_servers:
        if name not in found or found[name].status != "connected":
            told = found[name].error or found[name].status if name in found else "it does not know them"
            host.end("failed", "connection_failed", f"the agent cannot use the functions of this program: {told}")
    for name, server in request.connections.items():
        one = found.get(name, events.Connection(name=name, status="the agent does not know it"))
        if one.status == "connected":
            continue
        told = f"connection {name} could not be made: {one.error or one.status}"
        stderr = host.stderr_of(name)
        if server.required:
            hint = f"Try its command or url by hand; `required = false` for {name} lets the run continue without it."
            code = SERVER_FAILED if _has_failed(server, one) else None
            host.end("failed", "connection_failed", told, hint=hint, connection=name, stderr_tail=stderr, code=code)
        else:
            told += f" (stderr: {' | '.join(stderr[-WARNING_LINES:])})" if stderr else ""
            host.emit(events.Notice(level="warning", code="connection_failed", message=told))


def _has_failed(server: McpServer, one: events.Connection) -> bool:
    """A program that has ended, or answered something else: it would do so again. One that is only slow may not be."""
    return server.command is not None and one.status == "failed" and "timed out" not in one.error.lower()
