"""Reserves what requests in flight may still cost, so that concurrent requests cannot overspend the budget.

    reservations = Reservations(meter)
    reservation = await reservations.admit(estimate)    # waits while requests in flight may need what is left
    ...
    reservation.counted(usd)                            # as the answer arrives: spent, no longer estimated
    reservation.release()

A request is admitted at once if its estimate fits beside those of all requests in flight, and otherwise once nothing is
in flight and budget is left. It is never refused because of its estimate, which is deliberately high: near the end of a
budget, requests run one at a time.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import Any

import msgspec

from leadrope.core.cost.usage import Usage
from leadrope.runtime.limits.budget import Meter

# Prose has about four bytes of JSON per token, code about three. Dense text has fewer, so the estimate uses two.
_BYTES_PER_TOKEN_RESERVED = 2
BYTES_PER_TOKEN = 4
"""For text whose tokens were not counted."""


# Tokens that a request's size does not show. An image is scaled down to at most this many tokens. Documents, files,
# fetched content and results of the server's own tools are limited by the model's context.
_IMAGE_TOKENS = 5_000
_CONTEXT_TOKENS = 1_000_000


class _Ask(msgspec.Struct, frozen=True):
    model: str = ""
    max_tokens: int | None = None
    messages: Any = None
    system: Any = None
    tools: Any = None
    mcp_servers: Any = None
    container: Any = None


_ask = msgspec.json.Decoder(_Ask).decode


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    usd: float
    """Maximum cost; infinite if the request does not limit it."""
    model: str = ""
    prompt: Usage = Usage()
    """Estimated tokens of the prompt, for a request whose answer was cut off before any count arrived."""


def estimate(body: bytes | None, meter: Meter) -> Estimate:
    """Estimate a request's cost: its size is the prompt, written to the cache; its `max_tokens` is the answer.

    None is a body that is too large to be read before it is sent: its cost is unlimited, so it runs alone.
    """
    if body is None:
        return Estimate(usd=math.inf)
    prompt = Usage(input_tokens=len(body) // BYTES_PER_TOKEN)
    try:
        ask = _ask(body)
    except (msgspec.DecodeError, RecursionError):
        return Estimate(usd=math.inf, prompt=prompt)
    if ask.max_tokens is None:
        return Estimate(usd=math.inf, model=ask.model, prompt=prompt)
    tokens = math.ceil(len(body) / _BYTES_PER_TOKEN_RESERVED) + _unseen(ask)
    most = Usage(
        cache_creation_input_tokens=tokens,
        cache_creation_1h_input_tokens=tokens if b'"1h"' in body else 0,
        output_tokens=max(0, ask.max_tokens),
    )
    return Estimate(usd=meter.price(ask.model, most), model=ask.model, prompt=prompt)


def _unseen(ask: _Ask) -> int:
    """Return the tokens that are not in the body."""
    tools = ask.tools if isinstance(ask.tools, list) else []
    # The agent's own tools have no type, or `custom`; all others run on the server and add their results.
    served = any(isinstance(tool, dict) and tool.get("type", "custom") != "custom" for tool in tools)
    if served or ask.mcp_servers or ask.container:
        return _CONTEXT_TOKENS
    images = 0
    waiting: list[Any] = [ask.messages, ask.system]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
        elif isinstance(part, dict):
            source = part.get("source")
            if isinstance(source, dict):
                is_image = part.get("type") == "image" and source.get("type") == "base64"
                if not is_image and source.get("type") != "text":
                    return _CONTEXT_TOKENS
                images += is_image
            waiting += part.values()
    return min(_CONTEXT_TOKENS, images * _IMAGE_TOKENS)


class Reservation:
    """What one request in flight may still cost."""

    def __init__(self, owner: Reservations, usd: float) -> None:
        self._owner = owner
        self._usd = usd
        self._counted = 0.0

    @property
    def left_usd(self) -> float:
        return max(0.0, self._usd - self._counted)

    def counted(self, usd: float) -> None:
        """Convert this much of the reservation to spending, which the meter has already counted."""
        self._counted = usd
        self._owner.wake()

    def release(self) -> None:
        self._owner.release(self)


class Reservations:
    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self.held: set[Reservation] = set()
        """Requests in flight."""
        if meter.shared is not None:
            meter.shared.queue(self)
        self._waiting: deque[asyncio.Event] = deque()

    @property
    def in_flight(self) -> int:
        return len(self.held)

    async def admit(self, usd: float) -> Reservation | None:
        """Wait for this request's turn, in order of arrival; None once the budget is reached."""
        turn = asyncio.Event()
        self._waiting.append(turn)
        try:
            while self._waiting[0] is not turn or not self._fits(usd):
                turn.clear()
                await turn.wait()
        finally:
            self._waiting.remove(turn)
            self.wake()
        if self._meter.is_over:
            return None
        reservation = Reservation(self, usd)
        self.held.add(reservation)
        return reservation

    def fits_now(self, usd: float) -> bool:
        return not self._waiting and self._fits(usd)

    def release(self, reservation: Reservation) -> None:
        self.held.discard(reservation)
        self.wake()

    def wake(self) -> None:
        """Let the first waiting request check again: something was spent, or is no longer in flight."""
        if self._meter.shared is not None:
            self._meter.shared.wake()
        self.look_again()

    def look_again(self) -> None:
        if self._waiting:
            self._waiting[0].set()

    def _fits(self, usd: float) -> bool:
        """Return whether a request may proceed; also True when the budget is reached, so that waiters are told so."""
        cap, shared = self._meter.cap_usd, self._meter.shared
        if self._meter.is_over:
            return True
        if shared is not None and not shared.fits(usd):
            return False
        if cap is None or not self.held:
            return True
        return self._meter.spent_usd + sum(held.left_usd for held in self.held) + usd <= cap
