"""A broker between the agent and its model: the agent gets a token for this run, and only the broker has the
credential.

    async with Broker("https://api.anthropic.com", credential, "api_key", meter=meter) as broker:
        ...  # start the agent with base_url=broker.url and credential=Secret(broker.token)

It runs in the supervisor's event loop and ends with the run. Bodies are streamed and never stored or logged; only token
counts are read from answers. The meter decides whether the budget is reached.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from leadrope.core import events
from leadrope.core.cost.usage import Usage
from leadrope.core.secrets.redaction import Secret
from leadrope.net import http1, servers, unix_socket
from leadrope.net.connect import Unreachable
from leadrope.net.upstream import Upstream
from leadrope.runtime.broker import token_counter as tally
from leadrope.runtime.broker.broker_connection import AgentConnection, Exchange, Passing, Refusal
from leadrope.runtime.broker.reachability import Reach, Trouble
from leadrope.runtime.limits.budget import Meter
from leadrope.runtime.limits.reservations import Reservations, estimate

Kind = Literal["api_key", "oauth_token", "auth_token"]

MESSAGES = "/v1/messages"
PATHS = frozenset({MESSAGES, "/v1/messages/count_tokens"})
"""All requests that the agent makes to its model while nonessential traffic is off."""
AGENT_HEADER = "x-claude-code-agent-id"
BEHIND_SOCKET = "http://127.0.0.1:8899"
"""The address for an agent that connects over a unix socket: it requires one but never uses it."""

# The agent itself keeps a handful of connections; more than this means a loop.
_MOST_CLIENTS = 256
# The same prefixes as real ones, so that everything that recognises a key or a token recognises these.
_TOKEN_STARTS: dict[Kind, str] = {
    "api_key": "sk-ant-leadrope-",
    "oauth_token": "sk-ant-oat01-leadrope-",
    "auth_token": "sk-ant-leadrope-",
}


# Some servers take method or path from these headers instead of the request line that was checked.
_OVERRIDES = (
    *("x-http-method-override", "x-http-method", "x-method-override", "x-original-method", "x-forwarded-method"),
    *("x-original-url", "x-original-uri", "x-rewrite-url", "x-rewrite-uri", "x-override-url", "x-forwarded-uri"),
    *("x-forwarded-path", "x-forwarded-prefix"),
)
_WAITS = (
    "requests wait for one another: what those in flight may cost, and what is left of the budget, do not let all of"
    " them pass at once"
)


class Broker:
    """The agent gets `url` (or `socket_path`) and `token`; the credential is sent only to the model's server."""

    def __init__(
        self,
        upstream_url: str,
        credential: Secret,
        kind: Kind,
        *,
        meter: Meter | None = None,
        listen: Path | None = None,
        notify: Callable[[events.Notice], None] | None = None,
        proxy: str | None = None,
        ca_file: str | None = None,
        reach: Reach | None = None,
    ) -> None:
        """`listen` is the path of a unix socket; without it, a free port of 127.0.0.1 is used.

        `reach` is called with the result of each connection attempt; without it, failures become notices.
        """
        self.token = _TOKEN_STARTS[kind] + secrets.token_urlsafe(32)
        self.url = ""
        self.socket_path = listen
        self.requests = 0
        """Number of forwarded requests."""
        self.upstream = Upstream(upstream_url, proxy=proxy, ca_file=ca_file)
        self._credential = credential
        self._header = "x-api-key" if kind == "api_key" else "authorization"
        self._prefix = "" if kind == "api_key" else "Bearer "
        self._expected = (self._prefix + self.token).encode()
        self._meter = meter
        if meter is not None:
            meter.sees_requests = True
        self._reservations = Reservations(meter) if meter is not None else None
        self._notify = notify
        self._reach = reach
        if reach is not None:
            reach.look = self._look
        self._server: asyncio.Server | None = None
        self._clients = servers.Clients(_MOST_CLIENTS)
        self._owners: dict[str, int] = {}
        """Message id -> the request that it came with."""
        self._complaints: dict[str, str] = {}
        """The last problem reported to the run, by code."""

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        if self.socket_path is not None:
            self._server = await loop.create_unix_server(self._protocol, sock=unix_socket.bound(self.socket_path))
            self.url = BEHIND_SOCKET
        else:
            self._server = await loop.create_server(self._protocol, "127.0.0.1", 0)
            self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self._clients.is_open = True
        self.upstream.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections on both sides. What answers have cost so far is counted."""
        server, self._server = self._server, None
        if server is None:
            return
        await self._clients.close(server, self.socket_path)
        await self.upstream.close()

    # -- connections from the agent ------------------------------------------------------------------------------------

    def _protocol(self) -> AgentConnection:
        return AgentConnection(asyncio.StreamReader(limit=http1.HEAD_LIMIT), self._connected)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        exchange = Exchange(self, reader, writer)

        async def answer() -> None:
            while await exchange.serve():
                pass

        await self._clients.serve(writer, answer)

    # -- called by the exchange ----------------------------------------------------------------------------------------

    def refuse(self, request: http1.RequestHead) -> Refusal | None:
        """Return why a request is rejected, if it is. The token is checked first, so that others learn nothing else."""
        given = http1.values(request.headers, self._header)
        if len(given) != 1 or not hmac.compare_digest(given[0].encode("latin-1"), self._expected):
            return Refusal(
                status=401,
                type="authentication_error",
                message="leadrope: this is not the token of this run",
                is_final=True,
            )
        path = _path(request)
        if request.method != "POST" or path not in PATHS:
            return Refusal(
                status=404,
                type="not_found_error",
                message=f"leadrope: {request.method} {path[:200]} does not pass; only the model's own paths do",
            )
        return self._refuse_spending() if self._meter is not None and self._meter.is_over else None

    def _refuse_spending(self) -> Refusal:
        reason = self._meter.reason if self._meter is not None else ""
        return Refusal(status=402, type="billing_error", message=f"leadrope: {reason}", is_final=True)

    async def admit(self, request: http1.RequestHead, body: bytes | None) -> Passing | Refusal:
        """Wait until this request's possible cost fits beside the requests in flight, or until it is alone."""
        passing = Passing(request=request)
        if self._reservations is not None and self._meter is not None and _path(request) == MESSAGES:
            passing.estimate = estimate(body, self._meter)
            if not self._reservations.fits_now(passing.estimate.usd):
                self.complain("budget_reserved", _WAITS, level="info")
            passing.reservation = await self._reservations.admit(passing.estimate.usd)
            if passing.reservation is None:
                return self._refuse_spending()
        self.requests += 1
        passing.number = self.requests
        return passing

    def swapped(self, request: http1.RequestHead) -> http1.Headers:
        """Return the request's headers for the model's server; unknown ones are unchanged."""
        dropped = ("host", "accept-encoding", "x-api-key", "authorization", "expect", *_OVERRIDES)
        return [
            ("Host", self.upstream.authority),
            *http1.end_to_end(request.headers, *dropped),
            # A compressed answer could not be metered without decompressing it.
            ("Accept-Encoding", "identity"),
            (self._header, self._prefix + self._credential.reveal()),
        ]

    def tally(self, passing: Passing, answer: http1.AnswerHead) -> tally.Tally | None:
        """Return a token counter for this answer, if it is billable."""
        if self._meter is None or not 200 <= answer.status < 300 or _path(passing.request) != MESSAGES:
            return None

        def told(message_id: str, model: str, usage: Usage) -> None:
            self._count(passing, message_id, model, usage)

        expected = tally.Expected(model=passing.estimate.model, prompt=passing.estimate.prompt)
        kind = (http1.first(answer.headers, "content-type") or "").lower()
        make = tally.StreamTally if kind.startswith("text/event-stream") else tally.WholeTally
        return make(told, expected)

    def hung_up(self, passing: Passing) -> None:
        """Estimate the prompt's cost: the model has read it, whether or not anybody waits for its answer."""
        if self._meter is not None and _path(passing.request) == MESSAGES:
            self._count(passing, "", passing.estimate.model, passing.estimate.prompt)

    def _count(self, passing: Passing, message_id: str, model: str, usage: Usage) -> None:
        if self._meter is None:
            return
        # A gateway may give every answer the same id, or none, but each request is billed.
        if not message_id or self._owners.setdefault(message_id, passing.number) != passing.number:
            message_id = f"{message_id} of request {passing.number}".strip()
        agent_id = (http1.first(passing.request.headers, AGENT_HEADER) or "")[:200] or None
        self._meter.count(message_id, model, usage, agent_id)
        if passing.reservation is not None:
            passing.reservation.counted(self._meter.cost_of(message_id))

    def cannot_meter(self, answer: http1.AnswerHead) -> bool:
        packed = http1.tokens(answer.headers, "content-encoding") - {"identity"}
        return bool(packed) and self._meter is not None and self._meter.cap_usd is not None

    def reached(self, problem: Unreachable | None) -> bool:
        if self._reach is None:
            return False
        if problem is None:
            self._reach.reached()
        else:
            self._reach.failed(Trouble(self.upstream.authority, str(problem)))
        return True

    async def _look(self) -> Trouble | None:
        try:
            self.upstream.give(await self.upstream.take(fresh=True))
        except Unreachable as error:
            return Trouble(self.upstream.authority, str(error))
        return None

    def complain(self, code: str, message: str, *, level: Literal["info", "warning"] = "warning") -> None:
        """Report a problem to the run once; the agent's retries would repeat it ten times."""
        if self._notify is not None and message != self._complaints.get(code):
            self._complaints[code] = message
            self._notify(events.Notice(level=level, code=code, message=message))


def _path(request: http1.RequestHead) -> str:
    return request.target.partition("?")[0]
