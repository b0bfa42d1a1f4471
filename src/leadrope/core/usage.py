"""Tokens and cost of a run, counted once per message."""

from __future__ import annotations

import msgspec


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
