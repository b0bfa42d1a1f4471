"""What tokens cost, as data that the user can override; an estimate from a dated list, and never an invoice.

Knows no run and no budget: it turns a model's name and a count into dollars, and says how sure it is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from leadrope import errors
from leadrope.core import models
from leadrope.core.cost.usage import Usage
from leadrope.core.text.toml_lines import dotted
from leadrope.core.text.wrong_types import in_words, split, unknown_key
from leadrope.regex import regex
from leadrope.spelling import close_matches

LIST_DATE = "2026-11-17"
"""The day on which the list below was compared with the vendor's page and with what Claude Code 2.1.325 reckons."""

Source = Literal["table", "override", "dearest"]
UnknownPrice = Literal["dearest", "refuse"]


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """US dollars for a million tokens."""

    input: float
    output: float
    cache_read: float
    cache_write_5m: float
    cache_write_1h: float
    long_from: int | None = None
    """A prompt of more tokens than this is billed by `long`, its answer too."""
    long: Price | None = None

    def usd(self, usage: Usage) -> float:
        """The cost of one message; counts of several may not be added up first where `long` is set."""
        if self.long is not None and self.long_from is not None and usage.prompt_tokens > self.long_from:
            return self.long.usd(usage)
        stored_1h = min(usage.cache_creation_1h_input_tokens, usage.cache_creation_input_tokens)
        return (
            usage.input_tokens * self.input
            + usage.output_tokens * self.output
            + usage.cache_read_input_tokens * self.cache_read
            + (usage.cache_creation_input_tokens - stored_1h) * self.cache_write_5m
            + stored_1h * self.cache_write_1h
        ) / 1_000_000


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    usd: float
    source: Source
    known: bool
    """False when nobody has said what this model costs, and the dearest known price stands in."""


def _price(input_: float, output: float, cache_read: float | None = None, **long: Any) -> Price:
    """The usual proportions: reading the cache costs a tenth, storing for 5 minutes 1.25 times, for an hour twice."""
    return Price(
        input=input_,
        output=output,
        cache_read=input_ / 10 if cache_read is None else cache_read,
        cache_write_5m=input_ * 1.25,
        cache_write_1h=input_ * 2,
        **long,
    )


# Sonnet 4 and 4.5 bill a prompt beyond 200,000 tokens (a beta) at a higher rate; 4.6 and later do not.
_SONNET_4 = _price(3, 15, long_from=200_000, long=_price(6, 22.5))

TABLE: Mapping[str, Price] = MappingProxyType(
    {
        "claude-fable-5-2": _price(8, 40, 0.2),
        "claude-mythos-5-2": _price(8, 40, 0.2),
        "claude-fable-5-1": _price(10, 50, 0.25),
        "claude-mythos-5-1": _price(10, 50, 0.25),
        "claude-fable-5": _price(10, 50),
        "claude-mythos-5": _price(10, 50),
        "claude-opus-5-5": _price(4, 20, 0.2),
        "claude-opus-5": _price(5, 25),
        "claude-opus-4-8": _price(5, 25),
        "claude-opus-4-7": _price(5, 25),
        "claude-opus-4-6": _price(5, 25),
        "claude-opus-4-5": _price(5, 25),
        "claude-opus-4-1": _price(15, 75),
        "claude-opus-4": _price(15, 75),
        "claude-3-opus": _price(15, 75),
        "claude-sonnet-5-5": _price(2, 10, 0.1),
        "claude-sonnet-5": _price(2, 10),
        "claude-sonnet-4-6": _price(3, 15),
        "claude-sonnet-4-5": _SONNET_4,
        "claude-sonnet-4": _SONNET_4,
        "claude-3-7-sonnet": _price(3, 15),
        "claude-3-5-sonnet": _price(3, 15),
        "claude-haiku-5-5": _price(0.1, 0.5, long_from=100_000, long=_price(0.5, 2.5)),
        "claude-haiku-4-5": _price(1, 5),
        "claude-3-5-haiku": _price(0.8, 4),
        "claude-3-haiku": _price(0.25, 1.25),
    }
)


def dearest(*prices: Price) -> Price:
    """Of each kind of token the highest."""
    return Price(
        input=max(price.input for price in prices),
        output=max(price.output for price in prices),
        cache_read=max(price.cache_read for price in prices),
        cache_write_5m=max(price.cache_write_5m for price in prices),
        cache_write_1h=max(price.cache_write_1h for price in prices),
    )


DEAREST = dearest(*TABLE.values())
"""What a model that nobody has priced is taken to cost."""

# What may follow a model's own name: its day, `latest`, the cloud's revision. Not another number: a version that is not
# in the list may cost anything.
_TAIL = regex(r"(?:-0)?(?:-\d{8}|-latest)?(?:-v\d+(?:-\d+)?)?")


def plain_name(model: str) -> str:
    """The vendor's name for a model that a cloud or a gateway spells in its own way.

    >>> plain_name("us.anthropic.claude-opus-4-1-20250805-v1:0")
    'claude-opus-4-1-20250805-v1-0'
    >>> plain_name("anthropic/claude-sonnet-4.5[1m]")
    'claude-sonnet-4-5'
    """
    name = model.strip().lower().split("[")[0]
    start = name.find("claude-")
    if start > 0:
        name = name[start:]
    return re.sub(r"[.@:]", "-", name)


class _Given(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of `[prices]`; what is left out of the cache follows from `input` in the usual proportions."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write_5m: float | None = None
    cache_write_1h: float | None = None

    def price(self) -> Price:
        usual = _price(self.input, self.output, self.cache_read)
        given = {"cache_write_5m": self.cache_write_5m, "cache_write_1h": self.cache_write_1h}
        return msgspec.structs.replace(usual, **{name: value for name, value in given.items() if value is not None})


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """The list that one run reckons with.

    Prices().price("claude-sonnet-4-5", Usage(input_tokens=1000)).usd
    """

    overrides: Mapping[str, Price] = {}
    unknown: UnknownPrice = "dearest"
    tiers: Mapping[str, str] = models.TIERS

    def of(self, model: str) -> tuple[Price, Source]:
        """An override under the name as it is written, under its plain name, then the table, then the dearest."""
        model = self.tiers.get(model, model)
        name = plain_name(model)
        for wanted in (model, name):
            if wanted in self.overrides:
                return self.overrides[wanted], "override"
        given = {plain_name(key): price for key, price in self.overrides.items()}
        found = _longest(name, given)
        if found is not None:
            return found, "override"
        found = _longest(name, TABLE)
        # What the user has priced is known too, and may be dearer than all that is listed.
        return (found, "table") if found is not None else (dearest(DEAREST, *self.overrides.values()), "dearest")

    def knows(self, model: str) -> bool:
        return self.of(model)[1] != "dearest"

    def price(self, model: str, usage: Usage) -> Cost:
        price, source = self.of(model)
        return Cost(usd=price.usd(usage), source=source, known=source != "dearest")

    def require(self, model: str) -> None:
        """Refuse a model without a price where the user has asked for that; called before anything is started."""
        if self.unknown == "refuse" and not self.knows(model):
            raise errors.BadValue("model", why_refused(model), hint=price_hint(model))


def _longest(name: str, prices: Mapping[str, Price]) -> Price | None:
    best = ""
    for start in prices:
        if len(start) > len(best) and name.startswith(start) and _TAIL.fullmatch(name, len(start)):
            best = start
    return prices[best] if best else None


def why_refused(model: str) -> str:
    return f"no price is known for {model!r}, and unknown_price is `refuse`"


def price_hint(model: str) -> str:
    return f'Say what it costs under [prices] in config.toml: "{model}" = {{ input = …, output = … }} (0 if nothing).'


def read_prices(
    table: Mapping[str, Any], *, source: str = "config.toml", tiers: Mapping[str, str] | None = None
) -> Prices:
    """`[prices]` of the user's config as a checked value.

    >>> read_prices({"my-local-model": 0, "unknown_price": "refuse"}).price("my-local-model", Usage()).source
    'override'
    """
    unknown = table.get("unknown_price", "dearest")
    if unknown not in ("dearest", "refuse"):
        raise errors.BadConfig(
            f"{source}: prices.unknown_price: {unknown!r} is not known", hint="Use one of: dearest, refuse."
        )
    overrides = {
        model: _read_one(f"{source}: {dotted('prices', model)}", value)
        for model, value in table.items()
        if model != "unknown_price"
    }
    return Prices(overrides=overrides, unknown=unknown, tiers={**models.TIERS, **(tiers or {})})


def _read_one(where: str, value: Any) -> Price:
    if isinstance(value, int | float) and not isinstance(value, bool):
        # `my-local-model = 0`: one number for every kind of token.
        value = dict.fromkeys(_Given.__struct_fields__, value)
    try:
        given = msgspec.convert(value, _Given)
    except msgspec.ValidationError as error:
        message, path = split(error)
        unknown = unknown_key(message)
        if unknown is None:
            wrong = message.replace("Object missing required field", "has no").replace("`", "")
            wrong = wrong if wrong.startswith("has no") else in_words(message)[0]
            raise errors.BadConfig(f"{where}{path}: {wrong}", hint=_SHAPE) from None
        close = close_matches(unknown, _Given.__struct_fields__, n=1)
        hint = f"Did you mean {close[0]}?" if close else _SHAPE
        raise errors.BadConfig(f"{where}.{unknown} is not a known key", hint=hint) from None
    price = given.price()
    for name in _Given.__struct_fields__:
        number = getattr(price, name)
        if not math.isfinite(number) or number < 0:
            raise errors.BadConfig(f"{where}.{name}: {number} is not a price", hint=_SHAPE)
    return price


_SHAPE = "Give dollars for a million tokens: { input = 3, output = 15 }, or one number for all of them."
