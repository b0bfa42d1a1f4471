"""Converts Claude Code's questions to our format, and answers to its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadrope.core.events import Option, Question
from leadrope.core.tools import ASKING_TOOLS
from leadrope.providers.base import Asking

QUESTION_TOOL, PLAN_TOOL = "AskUserQuestion", "ExitPlanMode"
TOOLS = ASKING_TOOLS


def of_input(input_: Mapping[str, Any]) -> Asking:
    raw = input_.get("questions")
    return Asking(
        kind="question", questions=tuple(_question(item) for item in (raw if isinstance(raw, list) else [input_]))
    )


def _question(item: Any) -> Question:
    if not isinstance(item, Mapping):
        return Question(question=str(item))
    options = item.get("options")
    return Question(
        question=str(item.get("question", "")),
        header=str(item.get("header", "")),
        multi_select=item.get("multiSelect") is True,
        options=tuple(_option(option) for option in (options if isinstance(options, list) else ())),
    )


def _option(option: Any) -> Option:
    if not isinstance(option, Mapping):
        return Option(label=str(option))
    return Option(label=str(option.get("label", "")), description=str(option.get("description", "")))


def plan_of_input(input_: Mapping[str, Any]) -> Asking:
    prompts = input_.get("allowedPrompts")
    return Asking(
        kind="plan",
        plan=str(input_.get("plan", "")),
        allowed_prompts=tuple(
            f"{prompt.get('tool', '')}: {prompt.get('prompt', '')}" if isinstance(prompt, Mapping) else str(prompt)
            for prompt in (prompts if isinstance(prompts, list) else ())
        ),
    )


def with_answers(input_: Mapping[str, Any], answers: Mapping[str, str]) -> dict[str, Any]:
    return {**input_, "answers": dict(answers)}
