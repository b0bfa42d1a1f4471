"""Hosts that the agent and its commands want to reach from a sandbox without a network of its own.

Commands are asked about, once for each host of a run. The agent's own web tools reach what the gate let them fetch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal

from leadrope.core.tools import ToolCall
from leadrope.policy import hosts

TOOL = "Network"
"""The name under which a host is asked about. No agent has a tool of that name."""
Answered = Literal["yes", "no", "silence"]
Question = Callable[[ToolCall], Awaitable[Answered]]


class HostQuestions:
    def __init__(self, question: Question) -> None:
        self._question = question
        self._asked: dict[str, asyncio.Task[Answered]] = {}
        self._fetched: set[str] = set()
        self._count = 0

    def let_fetch(self, call: ToolCall) -> None:
        """A WebFetch was allowed: its host is open to the agent itself."""
        host = hosts.host_of(call.input.get("url")) if call.name == "WebFetch" else None
        if host is not None:
            self._fetched.add(host)

    def may_fetch(self, host: str) -> bool:
        return host in self._fetched

    async def may_reach(self, host: str, port: int) -> bool:
        """Several commands that wait for the same host wait for one answer. What nobody answers is asked again."""
        task = self._asked.get(host)
        if task is None:
            self._count += 1
            call = ToolCall(id=f"network-{self._count}", name=TOOL, input={"host": host, "port": port})
            task = self._asked[host] = asyncio.ensure_future(self._question(call))
        answered = await asyncio.shield(task)
        if answered == "silence":
            self._asked.pop(host, None)
        return answered == "yes"
