"""Tracks what a run has spent and whether its budget is reached. Pure: no I/O, no waiting.

    meter = Meter(cap_usd=2.0, prices=Prices())
    meter.take(event)            # every event of the run
    if meter.is_over: ...

Two sources can feed one meter, and each message is counted once: the agent's events (`take`) and a broker that sees
every request (`count`). At the end of a turn the agent's own total is compared with ours, and the larger one counts, so
that the result is never too low. The agent's total may lower ours only if a price was unknown and the highest price was
used instead. If the user has set a price, the agent's total is ignored: it prices a local model like its own default
model. Estimates for requests that nobody reports (`UsageEstimated`) are added in any case.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import msgspec

from leadrope.core import events
from leadrope.core.cost.prices import Prices, price_hint, why_refused
from leadrope.core.cost.usage import Usage
from leadrope.runtime.limits.shared_budget import SharedBudget


class CountedMessage(msgspec.Struct, kw_only=True):
    model: str
    agent_id: str | None
    usage: Usage
    usd: float
    known: bool


class Meter:
    """The meter of a run, not of an attempt: a second process continues on the same budget."""

    def __init__(
        self,
        cap_usd: float | None,
        prices: Prices | None = None,
        *,
        on_over: Callable[[str], None] | None = None,
        notify: Callable[[events.Notice], None] | None = None,
        shared: SharedBudget | None = None,
    ) -> None:
        """`on_over` is called once, with the reason, at the moment the cap is reached; a cap of None means no limit.
        Spending also counts for `shared`.
        """
        self.cap_usd = cap_usd
        self.on_over = on_over
        self.notify = notify
        self._prices = prices or Prices()
        self._messages: dict[str, CountedMessage] = {}
        self._ours_usd = 0.0
        self._known_usd = 0.0
        self._theirs_usd = 0.0
        self._correction_usd = 0.0
        self._by_agent: dict[str | None, float] = defaultdict(float)
        self._by_model: dict[str, float] = defaultdict(float)
        self._unpriced: set[str] = set()
        self._overridden = False
        self.sees_requests = False
        """A broker counts every request itself, including those that the agent never reports."""
        self._estimated_usd = 0.0
        """For requests that were never reported and so are in no other total."""
        self.last_message: CountedMessage | None = None
        """The newest message of the main agent."""
        self.shared = shared
        if shared is not None:
            shared.join(self)
        self._over = "the run's budget is 0 USD" if cap_usd is not None and cap_usd <= 0 else ""

    @property
    def spent_usd(self) -> float:
        """Estimated cost: tokens at list prices, corrected at the end of each turn by the agent's total."""
        return self._ours_usd + self._correction_usd + self._estimated_usd

    @property
    def is_over(self) -> bool:
        """Whether the budget is reached. Stays true: once refused, requests are refused for the rest of the run."""
        return bool(self._over)

    @property
    def reason(self) -> str:
        """Why the budget is over, for the result and the refused agent; empty while it is not."""
        return self._over

    @property
    def by_agent(self) -> dict[str | None, float]:
        """Cost by agent, at list prices; None is the main agent, the others are its subagents."""
        return dict(self._by_agent)

    @property
    def by_model(self) -> dict[str, float]:
        return dict(self._by_model)

    def price(self, model: str, usage: Usage) -> float:
        """Return the price of a message with these tokens, without counting it."""
        return self._prices.price(model, usage).usd

    def cost_of(self, message_id: str) -> float:
        """Return what was counted for one message so far."""
        message = self._messages.get(message_id)
        return message.usd if message is not None else 0.0

    def take(self, event: events.Event) -> None:
        """Process an event of the run; most have no effect."""
        kind = type(event)
        if kind is events.UsageUpdated:
            self.count(event.message_id, event.model, event.usage, event.agent_id)  # type: ignore[union-attr]  # told by its type above
        elif kind is events.TurnEnded:
            self._settle(event.cost_usd)  # type: ignore[union-attr]  # told by its type above
        elif isinstance(event, events.UsageEstimated):
            self._estimated_usd += max(0.0, event.cost_usd)
            self._check()

    def count(self, message_id: str, model: str, usage: Usage, agent_id: str | None = None) -> None:
        """Count one message's tokens as far as they are known; repeated calls for a message only increase its count."""
        before = self._messages.get(message_id)
        if before is not None:
            usage = usage.at_least(before.usage)
            if usage == before.usage:
                return
            # The first report of a message is the best source for its agent: a broker reads it from the request.
            model, agent_id = before.model or model, before.agent_id or agent_id
        elif not usage.total_tokens:
            return
        cost = self._prices.price(model, usage)
        now = CountedMessage(model=model, agent_id=agent_id, usage=usage, usd=cost.usd, known=cost.known)
        self._messages[message_id] = now
        if now.agent_id is None:
            self.last_message = now
        if before is not None:
            self._add(before, -1)
        self._add(now, 1)
        self._overridden = self._overridden or cost.source == "override"
        if not cost.known:
            self._unknown(model)
        self._check()

    def expect(self, model: str) -> events.Notice | None:
        """Return a warning, once per model, about a model without a price before it is used."""
        if self._prices.knows(model) or model in self._unpriced:
            return None
        self._unpriced.add(model)
        return _no_price(model)

    def _add(self, message: CountedMessage, sign: int) -> None:
        usd = sign * message.usd
        self._ours_usd += usd
        self._known_usd += usd if message.known else 0.0
        self._by_agent[message.agent_id] += usd
        self._by_model[message.model] += usd

    def _settle(self, cost_usd: float) -> None:
        """Apply the agent's own total for a turn.

        Both totals are compared from the start of the run, not turn by turn, so that a message in flight at the end of
        a turn is never counted twice.
        """
        self._theirs_usd += max(0.0, cost_usd)
        if self._overridden:
            return
        theirs = self._theirs_usd
        ours = self._known_usd if self._unpriced and theirs > 0 else self._ours_usd
        self._correction_usd = max(ours, theirs) - self._ours_usd
        self._check()

    def _unknown(self, model: str) -> None:
        if model in self._unpriced:
            return
        self._unpriced.add(model)
        if self._prices.unknown == "refuse":
            self.end(why_refused(model))
            return
        if self.notify is not None:
            self.notify(_no_price(model))

    def _check(self) -> None:
        # A rounding error in a sum of small numbers must not allow one more request.
        if self.cap_usd is not None and not self._over and self.spent_usd >= self.cap_usd - 1e-9:
            self.end(f"the run's budget of {self.cap_usd:g} USD is reached (about {self.spent_usd:.4g} USD spent)")
        if self.shared is not None:
            self.shared.check()

    def end(self, reason: str) -> None:
        """Stop spending for this reason; only the first reason counts."""
        if self._over:
            return
        self._over = reason
        if self.on_over is not None:
            self.on_over(reason)


def _no_price(model: str) -> events.Notice:
    told = f"no price is known for {model!r}, so budgets count it at the most expensive known price"
    return events.Notice(level="warning", code="unknown_price", message=f"{told}. {price_hint(model)}")
