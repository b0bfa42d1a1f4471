"""What a run has spent so far, and whether that is enough. Pure: it is told, it adds up, it never waits.

    meter = Meter(cap_usd=2.0, prices=Prices())
    meter.take(event)            # every event of the run
    if meter.is_over: ...

Two sources can feed one meter, and count each message once: the agent's events (`take`) and a broker that sees every
request (`count`). At the end of a turn the agent's own sum is compared: the larger one stands, because neither may be
too low. Only where a price was unknown, and the dearest stood in for it, may the agent's sum lower ours; and where the
user has given a price, the agent's sum says nothing: it reckons a local model at the price of its own default.
Estimates for requests of which nobody reports anything (`UsageEstimated`) are added to either.
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
    """Belongs to a run, not to an attempt: a second process goes on spending the same budget."""

    def __init__(
        self,
        cap_usd: float | None,
        prices: Prices | None = None,
        *,
        on_over: Callable[[str], None] | None = None,
        notify: Callable[[events.Notice], None] | None = None,
        shared: SharedBudget | None = None,
    ) -> None:
        """`on_over` is called once, with the reason, in the moment in which the cap is reached; None is no cap. What is
        spent here also counts for `shared`.
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
        """A broker counts every request itself, also those of which the agent reports nothing."""
        self._estimated_usd = 0.0
        """For requests of which nothing was reported, so no other sum holds them."""
        self.last_message: CountedMessage | None = None
        """The newest message of the agent itself."""
        self.shared = shared
        if shared is not None:
            shared.join(self)
        self._over = "the run's budget is 0 USD" if cap_usd is not None and cap_usd <= 0 else ""

    @property
    def spent_usd(self) -> float:
        """An estimate: tokens by the price list, corrected at the end of each turn by what the agent reckons."""
        return self._ours_usd + self._correction_usd + self._estimated_usd

    @property
    def is_over(self) -> bool:
        """Stays true: what has been refused once is refused for the rest of the run."""
        return bool(self._over)

    @property
    def reason(self) -> str:
        """Why it is over, in words for the result and for the refused agent; empty while it is not."""
        return self._over

    @property
    def by_agent(self) -> dict[str | None, float]:
        """By the price list alone; None is the agent itself, the others are its subagents."""
        return dict(self._by_agent)

    @property
    def by_model(self) -> dict[str, float]:
        return dict(self._by_model)

    def price(self, model: str, usage: Usage) -> float:
        """What a message with these tokens costs; nothing is counted."""
        return self._prices.price(model, usage).usd

    def cost_of(self, message_id: str) -> float:
        """What was counted for one message so far."""
        message = self._messages.get(message_id)
        return message.usd if message is not None else 0.0

    def take(self, event: events.Event) -> None:
        """An event of the run; most say nothing about money."""
        kind = type(event)
        if kind is events.UsageUpdated:
            self.count(event.message_id, event.model, event.usage, event.agent_id)  # type: ignore[union-attr]  # told by its type above
        elif kind is events.TurnEnded:
            self._settle(event.cost_usd)  # type: ignore[union-attr]  # told by its type above
        elif isinstance(event, events.UsageEstimated):
            self._estimated_usd += max(0.0, event.cost_usd)
            self._check()

    def count(self, message_id: str, model: str, usage: Usage, agent_id: str | None = None) -> None:
        """One message's tokens as far as they are known; told again, the same message only grows."""
        before = self._messages.get(message_id)
        if before is not None:
            usage = usage.at_least(before.usage)
            if usage == before.usage:
                return
            # The first one who tells of a message knows best whose it is: a broker reads it from the request.
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
        """The warning about a model without a price, before it is used; once for each."""
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
        """Take the agent's own sum for a turn.

        Both totals are compared from the start of the run, not turn by turn: a message in flight at the end of one
        turn is then never counted twice.
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
        # A rounding error of a sum of small numbers must not let one more request pass.
        if self.cap_usd is not None and not self._over and self.spent_usd >= self.cap_usd - 1e-9:
            self.end(f"the run's budget of {self.cap_usd:g} USD is reached (about {self.spent_usd:.4g} USD spent)")
        if self.shared is not None:
            self.shared.check()

    def end(self, reason: str) -> None:
        """No more is spent, for this reason; the first one counts."""
        if self._over:
            return
        self._over = reason
        if self.on_over is not None:
            self.on_over(reason)


def _no_price(model: str) -> events.Notice:
    told = f"no price is known for {model!r}, so budgets count it at the most expensive known price"
    return events.Notice(level="warning", code="unknown_price", message=f"{told}. {price_hint(model)}")
