"""An agent's question, and its plan, as an event with the hash of what a person sees."""

from __future__ import annotations

import msgspec

from leadrope.core import events
from leadrope.core.tools import fingerprint
from leadrope.providers.base import Asking


def requested(question_id: str, asking: Asking, expires_s: float) -> events.QuestionRequested:
    """An answer is good for this question alone, to the letter."""
    seen = msgspec.to_builtins([asking.kind, asking.plan, asking.allowed_prompts, asking.questions])
    return events.QuestionRequested(
        question_id=question_id,
        kind=asking.kind,
        questions=asking.questions,
        plan=asking.plan,
        allowed_prompts=asking.allowed_prompts,
        expires_s=expires_s,
        fingerprint=fingerprint("question", seen),
    )
