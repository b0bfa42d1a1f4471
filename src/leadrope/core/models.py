"""Model tiers, purposes and how a model is chosen. Data first: users override it in their config."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from leadrope import errors
from leadrope.spelling import close_matches

TIERS_OF = "2.1.325"
TIERS_DATE = "2026-11-17"
"""The Claude Code whose own words these are, and the day on which it was asked. A test asks the installed one again."""

TIERS: Mapping[str, str] = MappingProxyType(
    {
        "opus": "claude-opus-5-5",
        "sonnet": "claude-sonnet-5-5",
        "haiku": "claude-haiku-5-5",
        "fable": "claude-fable-5-2",
    }
)
"""The newest model of each tier. Ids of older ones are passed on as they are."""

PURPOSES: Mapping[str, str] = MappingProxyType(
    {
        "analysis": "opus",
        "review": "opus",
        "chat": "haiku",
        "writing": "sonnet",
        "coding": "sonnet",
        "research": "sonnet",
        "creative": "sonnet",
        "data": "sonnet",
        "general": "sonnet",
    }
)

DEFAULT_TIER = "sonnet"


def check_purpose(purpose: str) -> None:
    """Refuse a purpose that would silently get the default model."""
    if purpose.strip().lower() not in PURPOSES:
        close = close_matches(purpose.strip().lower(), PURPOSES, n=1)
        hint = f"Did you mean {close[0]}?" if close else f"Use one of: {', '.join(PURPOSES)}."
        raise errors.BadValue("purpose", f"{purpose!r} is not known", hint=hint)


def resolve_model(model: str | None, purpose: str | None, tiers: Mapping[str, str] = TIERS) -> str:
    """Explicit model, else the purpose's tier, else sonnet. A tier becomes its id; other text passes through.

    >>> resolve_model(None, "review")
    'claude-opus-5-5'
    >>> resolve_model("my-local-model", "review")
    'my-local-model'
    """
    chosen = (model or "").strip() or PURPOSES.get((purpose or "").strip().lower(), DEFAULT_TIER)
    # People write Opus as the screen shows it; an id in capitals that is no tier stays as it is.
    return tiers.get(chosen) or tiers.get(chosen.lower()) or chosen
