"""An agent's question, and its plan, as events of ours."""

from __future__ import annotations

from typing import Any

import msgspec

from leadrope.core import events
from leadrope.core.tools import fingerprint


def questions_of(question_id: str, input_: dict[str, Any], expires_s: float) -> events.QuestionRequested:
    """The agent's question as ours; what is malformed is shown as it came rather than lost."""
    found: list[events.Question] = []
    raw = input_.get("questions")
    for item in raw if isinstance(raw, list) else [input_]:
        if not isinstance(item, dict):
            found.append(events.Question(question=str(item)))
            continue
        options = item.get("options")
        found.append(
            events.Question(
                question=str(item.get("question", "")),
                header=str(item.get("header", "")),
                multi_select=item.get("multiSelect") is True,
                options=tuple(
                    events.Option(label=str(o.get("label", "")), description=str(o.get("description", "")))
                    if isinstance(o, dict)
                    else events.Option(label=str(o))
                    for o in (options if isinstance(options, list) else ())
                ),
            )
        )
    return _marked(
        events.QuestionRequested(question_id=question_id, kind="question", questions=tuple(found), expires_s=expires_s)
    )


def plan_of(question_id: str, input_: dict[str, Any], expires_s: float) -> events.QuestionRequested:
    prompts = input_.get("allowedPrompts")
    return _marked(
        events.QuestionRequested(
            question_id=question_id,
            kind="plan",
            plan=str(input_.get("plan", "")),
            allowed_prompts=tuple(
                f"{p.get('tool', '')}: {p.get('prompt', '')}" if isinstance(p, dict) else str(p)
                for p in (prompts if isinstance(prompts, list) else ())
            ),
            expires_s=expires_s,
        )
    )


def _marked(asked: events.QuestionRequested) -> events.QuestionRequested:
    """With the hash of what a person sees, and an answer is good for."""
    seen = msgspec.to_builtins([asked.kind, asked.plan, asked.allowed_prompts, asked.questions])
    return msgspec.structs.replace(asked, fingerprint=fingerprint("question", seen))
