"""The parameters of an agent step that are options of its run.

Made by tools/option_lists.py (`make docs`) from core/request.py. Do not edit it.
"""

# ruff: noqa: E501
from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from leadrope.core.request import Effort
from leadrope.workflows.steps.base import StepConfig


class AgentOptions(StepConfig, frozen=True, kw_only=True):
    """`RequestOption(step=True)`: they have the name, the type and the default of the request."""

    attachments: Annotated[list[str], Meta(description="Files and images to send with the first prompt.")] = []
    agent: Annotated[str | None, Meta(description="A saved agent; its settings apply where nothing else is set.")] = (
        None
    )
    fallback_model: Annotated[str | None, Meta(description="The model to use when the first one is at capacity.")] = (
        None
    )
    purpose: Annotated[
        str | None,
        Meta(
            description="Choose the model by purpose: analysis, review, chat, writing, coding, research, creative, data or general."
        ),
    ] = None
    system_prompt: Annotated[str | None, Meta(description="Replaces the agent's own system prompt.")] = None
    append_system_prompt: Annotated[str | None, Meta(description="Added to the agent's system prompt.")] = None
    disallowed_tools: Annotated[list[str], Meta(description="Tools that may never be used.")] = []
    allow: Annotated[
        list[str],
        Meta(
            description='Calls that are approved where the mode would ask, such as "Bash(npm test *)". Blocks, approval rules and protected paths still hold.'
        ),
    ] = []
    effort: Annotated[Effort | None, Meta(description="How hard the model tries: low, medium, high, xhigh or max.")] = (
        None
    )
    schema_retries: Annotated[
        int,
        Meta(
            ge=0,
            le=5,
            description="Further turns for an answer that does not match the schema. With 0, no value is converted either.",
        ),
    ] = 1
    resume: Annotated[str | None, Meta(description="The session to continue.")] = None
