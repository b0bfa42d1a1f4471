"""Explicit model, then purpose, then sonnet."""

from __future__ import annotations

import pytest

from leadrope.core.models import PURPOSES, TIERS, resolve_model


@pytest.mark.parametrize(
    ("model", "purpose", "expected"),
    [
        (None, None, "claude-sonnet-5-5"),
        ("", "", "claude-sonnet-5-5"),
        ("  ", None, "claude-sonnet-5-5"),
        ("opus", None, "claude-opus-5-5"),
        ("Opus", None, "claude-opus-5-5"),
        ("haiku", "review", "claude-haiku-5-5"),
        ("claude-sonnet-4-5", None, "claude-sonnet-4-5"),
        ("fable", None, "claude-fable-5-2"),
        ("my-local-Model:7b", "review", "my-local-Model:7b"),
        (None, "unheard of", "claude-sonnet-5-5"),
        (None, "Review", "claude-opus-5-5"),
        *((None, purpose, "claude-opus-5-5") for purpose in ("analysis", "review")),
        (None, "chat", "claude-haiku-5-5"),
        *(
            (None, purpose, "claude-sonnet-5-5")
            for purpose in ("writing", "coding", "research", "creative", "data", "general")
        ),
    ],
)
def test_resolution(model: str | None, purpose: str | None, expected: str) -> None:
    assert resolve_model(model, purpose) == expected


def test_tiers_can_be_replaced_and_added() -> None:
    tiers = {**TIERS, "opus": "next", "Mine": "local"}
    assert resolve_model(None, "review", tiers) == "next"
    assert resolve_model("Mine", None, tiers) == "local"


def test_every_purpose_names_a_tier_and_the_data_cannot_be_changed_in_place() -> None:
    assert set(PURPOSES.values()) <= set(TIERS)
    with pytest.raises(TypeError):
        TIERS["opus"] = "x"  # type: ignore[index]  # the mistake under test
