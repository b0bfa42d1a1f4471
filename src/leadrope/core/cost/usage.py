"""Tokens and cost of a run, counted once per message, and the records that tell of them. Knows no event."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

CostSource = Literal["cli", "computed"]
"""`cli`: the agent program's own estimate. `computed`: reckoned by us from tokens and a price list, where the agent was
cut off before it told, or told less."""
CostLabel = Literal["estimate", "API-equivalent estimate", "partly API-equivalent estimate"]
"""No cost here is an invoice. A subscription is not charged by the token: then it is what the API would have asked.
`partly`: a sum of which a subscription has paid one part, and a key another."""
Replaced = Literal["correction", "restart"]
"""`correction`: the answer did not fit its schema, and a corrective turn followed. `restart`: the agent was started
again after a failure."""
Accounting = Literal["split_cache_fields"]
ACCOUNTING: Accounting = "split_cache_fields"
"""`input_tokens` is a total, and the cache's parts of it stand beside it."""


def sum_label(parts: Iterable[tuple[float, CostLabel]]) -> CostLabel:
    """What to call the sum of these costs (or tokens). One of nothing says nothing about it.

    >>> sum_label([(0.5, "estimate"), (0.0, "API-equivalent estimate")])
    'estimate'
    """
    found = {label for amount, label in parts if amount > 0}
    if len(found) > 1:
        return "partly API-equivalent estimate"
    return found.pop() if found else "estimate"


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts as the provider bills them; `input_tokens` excludes what the cache served or stored."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_creation_1h_input_tokens: int = 0
    """Those of `cache_creation_input_tokens` that are stored for an hour, which costs more; the rest for 5 minutes."""

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.output_tokens

    @property
    def prompt_tokens(self) -> int:
        """All that the model has read, wherever it came from."""
        return self.input_tokens + self.cache_read_input_tokens + self.cache_creation_input_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read_input_tokens=self.cache_read_input_tokens + other.cache_read_input_tokens,
            cache_creation_input_tokens=self.cache_creation_input_tokens + other.cache_creation_input_tokens,
            cache_creation_1h_input_tokens=self.cache_creation_1h_input_tokens + other.cache_creation_1h_input_tokens,
        )

    def __sub__(self, other: Usage) -> Usage:
        """What is left, count by count, and never less than nothing."""
        return Usage(
            input_tokens=max(0, self.input_tokens - other.input_tokens),
            output_tokens=max(0, self.output_tokens - other.output_tokens),
            cache_read_input_tokens=max(0, self.cache_read_input_tokens - other.cache_read_input_tokens),
            cache_creation_input_tokens=max(0, self.cache_creation_input_tokens - other.cache_creation_input_tokens),
            cache_creation_1h_input_tokens=max(
                0, self.cache_creation_1h_input_tokens - other.cache_creation_1h_input_tokens
            ),
        )

    def at_least(self, other: Usage) -> Usage:
        """The larger of both, count by count: what is told of one message only grows."""
        return Usage(
            input_tokens=max(self.input_tokens, other.input_tokens),
            output_tokens=max(self.output_tokens, other.output_tokens),
            cache_read_input_tokens=max(self.cache_read_input_tokens, other.cache_read_input_tokens),
            cache_creation_input_tokens=max(self.cache_creation_input_tokens, other.cache_creation_input_tokens),
            cache_creation_1h_input_tokens=max(
                self.cache_creation_1h_input_tokens, other.cache_creation_1h_input_tokens
            ),
        )


class ModelShare(msgspec.Struct, frozen=True, kw_only=True):
    """One model's part."""

    usage: Usage = Usage()
    cost_usd: float = 0.0

    def __add__(self, other: ModelShare) -> ModelShare:
        return ModelShare(usage=self.usage + other.usage, cost_usd=self.cost_usd + other.cost_usd)


class AttemptUsage(msgspec.Struct, frozen=True, kw_only=True):
    """One try at the answer: the first one, a corrective turn, or a run started again after a failure.

    `input_tokens` is all that the model has read; `uncached_input_tokens`, `cache_creation_input_tokens` and
    `cache_read_input_tokens` are its three parts.
    """

    model: str
    input_tokens: int
    uncached_input_tokens: int
    output_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    input_token_accounting: Accounting = ACCOUNTING
    cost_usd: float
    cost_source: CostSource = "cli"
    duration_ms: int
    num_turns: int
    """Model calls, as the agent counts them."""
    session_id: str | None
    reason: Replaced | None = None
    """Why it was replaced; None where an older version kept it."""


class LlmUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The attempt that gave the answer; those that it replaced are in `retries` and not counted in its own fields."""

    model: str
    input_tokens: int
    uncached_input_tokens: int
    output_tokens: int
    total_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    input_token_accounting: Accounting = ACCOUNTING
    cost_usd: float
    cost_source: CostSource = "cli"
    cost_label: CostLabel = "estimate"
    duration_ms: int
    num_turns: int
    session_id: str | None
    retries: tuple[AttemptUsage, ...] = ()


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """All that the run has used: the final attempt and every one in `retries`."""

    input_tokens: int
    uncached_input_tokens: int
    output_tokens: int
    total_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    input_token_accounting: Accounting = ACCOUNTING
    cost_usd: float
    cost_source: CostSource = "cli"
    cost_label: CostLabel = "estimate"
    duration_ms: int
    num_turns: int
    attempts: int
    models: dict[str, ModelShare] = {}
    agents: dict[str, Usage] = {}
    """`main` is the agent itself, the others are its subagents by id; what nobody has told whose it is, is `other`."""
    estimated_requests: int = 0
    """Requests that broke off before anything was reported of them. Their tokens are not counted."""
    estimated_usd: float = 0.0
    """What those may have cost; a part of `cost_usd`."""
