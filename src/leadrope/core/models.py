"""Model tiers, purposes and how a model is chosen. Data first: users override it in their config."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

TIERS: Mapping[str, str] = MappingProxyType(
    {
        "opus": "claude-opus-4-5",
        "sonnet": "claude-sonnet-4-5",
        "haiku": "claude-haiku-4-5",
    }
)

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


def resolve_model(model: str | None, purpose: str | None, tiers: Mapping[str, str] = TIERS) -> str:
    """Explicit model, else the purpose's tier, else sonnet. A tier becomes its id; other text passes through.

    >>> resolve_model(None, "review")
    'claude-opus-4-5'
    >>> resolve_model("my-local-model", "review")
    'my-local-model'
    """
    chosen = (model or "").strip() or PURPOSES.get((purpose or "").strip().lower(), DEFAULT_TIER)
    # People write Opus as the screen shows it; an id in capitals that is no tier stays as it is.
    return tiers.get(chosen) or tiers.get(chosen.lower()) or chosen
