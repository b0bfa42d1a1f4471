"""What is said to an agent in answer to its questions, and what it replies to ours. Decides nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from leadrope.core import events
from leadrope.core.tools import class_of
from leadrope.process.peer import Peer, PeerEnding
from leadrope.providers import base
from leadrope.runtime.gate.gate import Decision, Gate
from leadrope.runtime.limits.clocks import RunClocks

REPLY_WAIT_S = 10.0

# A subagent's own calls are timed one by one, and a question waits for a person: neither is a wedged tool.
UNTIMED = ("agent", "control")

Send = Callable[[bytes], None]


class GateReplies:
    """Takes each held call to the gate, and its decision back to the agent."""

    def __init__(self, gate: Gate, session: base.AgentSession, clocks: RunClocks, send: Send) -> None:
        self._gate = gate
        self._session = session
        self._clocks = clocks
        self._send = send

    def held(self, held: base.CallHeld) -> None:
        def tell(decision: Decision) -> None:
            if decision.allowed and class_of(held.call.name) not in UNTIMED:
                self._clocks.tool_begins(held.call.id)
            edited = decision.input if decision.allowed and decision.input != held.call.input else None
            self._send(
                self._session.answer_held(
                    held.request_id, held.call, allowed=decision.allowed, reason=decision.reason, edited=edited
                )
            )

        self._gate.held(held.request_id, held.call, tell)

    def asked(self, asked: base.PermissionAsked) -> None:
        def tell(decision: Decision) -> None:
            self._send(
                self._session.answer_asked(
                    asked.request_id,
                    allowed=decision.allowed,
                    reason=decision.reason,
                    input_=decision.input if decision.input is not None else asked.call.input,
                )
            )

        self._gate.asked_again(asked.request_id, asked.call, tell)


class Replies:
    """Requests of ours that the agent has not answered yet."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._waiting: dict[str, asyncio.Future[base.Replied]] = {}
        self._asked = 0

    async def ask(self, what: str, say: Callable[[str], bytes]) -> base.Replied | None:
        """The reply; None if it does not come."""
        self._asked += 1
        request_id = f"{what}-{self._asked}"
        waiter: asyncio.Future[base.Replied] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = waiter
        self._send(say(request_id))
        await asyncio.wait((waiter,), timeout=REPLY_WAIT_S)
        return waiter.result() if waiter.done() else None

    def came(self, replied: base.Replied) -> None:
        waiter = self._waiting.pop(replied.request_id, None)
        if waiter and not waiter.done():
            waiter.set_result(replied)


def agent_exited(ending: PeerEnding, peer: Peer, session: base.AgentSession | None) -> events.AgentExited:
    """Its last word, as the process and its stderr tell it; a connection has neither."""
    return events.AgentExited(
        exit_code=ending.exit_code,
        stderr_head=peer.stderr_head,
        stderr_tail=peer.stderr_tail,
        problem=session.explain((*peer.stderr_head, *peer.stderr_tail)) if session is not None else None,
        leftovers_killed=ending.leftovers_killed,
        survivors=ending.survivors,
    )
