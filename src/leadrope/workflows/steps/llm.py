"""The step `llm`: one model answer, without tools. It is run like an agent that has no tools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, structs

from leadrope.workflows.language import templates
from leadrope.workflows.steps import agent
from leadrope.workflows.steps.base import Kind, StepConfig, StepContext, StepDone


class LlmConfig(StepConfig, frozen=True, kw_only=True):
    prompt: Annotated[str, Meta(description="What the model is asked.")]
    prompt_file: Annotated[str | None, Meta(description="A file beside the workflow that holds the prompt.")] = None
    system: Annotated[str | None, Meta(description="The system prompt.")] = None
    provider: Annotated[str | None, Meta(description="The provider of the model (default: claude-code).")] = None
    model: Annotated[str, Meta(description="A tier (opus, sonnet, haiku) or a model's id.")] = "haiku"
    effort: Annotated[
        Literal["low", "medium", "high", "xhigh", "max"] | None, Meta(description="How hard the model thinks.")
    ] = None
    max_thinking_tokens: Annotated[
        Annotated[int, Meta(ge=1000, le=100_000)] | None, Meta(description="For its thinking.")
    ] = None
    output_schema: Annotated[dict[str, Any] | None, Meta(description="JSON Schema of the answer.")] = None
    schema_retries: Annotated[int, Meta(ge=0, le=5, description="Corrective turns.")] = 1
    images: Annotated[list[str], Meta(description="Files of the workspace that go with the prompt.")] = []
    use_api_key: Annotated[bool, Meta(description="Bill an API key; else only the subscription is used.")] = False
    timeout: Annotated[float, Meta(ge=5, le=3600, description="Seconds.")] = 120
    budget: Annotated[
        Annotated[float, Meta(gt=0)] | None, Meta(description="US dollars, an estimate at list prices.")
    ] = None


def mistakes(parameters: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    return agent.model_mistakes(templates.settled(parameters))


async def run(config: LlmConfig, context: StepContext) -> StepDone:
    agent.check_prompt(config.prompt, agent.MAX_PROMPT_CHARS, context)
    given: dict[str, Any] = {
        "prompt": config.prompt,
        **await agent.attached(config.images, context, "images"),
        "model": agent.model_of(config.model, context),
        "system_prompt": config.system or "Answer the user's message.",
        **agent.ALONE,
        "policies": context.policies,
        # A schema is satisfied by a tool call, which takes a turn of its own.
        "max_turns": 4 if config.output_schema is not None else 1,
        "schema_retries": config.schema_retries,
        "cwd": str(context.workspace),
        "labels": {"workflow": context.execution_id[:12], "step": context.key.step},
    }
    said = {
        "provider": config.provider,
        "effort": config.effort,
        "max_thinking_tokens": config.max_thinking_tokens,
        "output_schema": config.output_schema,
        "billing": agent.billing_of(config.use_api_key, context),
    }
    request = agent.request_for(given | {name: value for name, value in said.items() if value is not None}, context)
    result = await agent.ask(request, context)
    lost = config.output_schema is None and context.sources.get("output_schema") is not None
    done = agent.done(result, has_schema=config.output_schema is not None, lost_schema=lost)
    return structs.replace(done, outputs={**done.outputs, "response": done.outputs["result"]})


KIND = Kind(
    name="llm",
    summary="A model answers a prompt, without tools.",
    config=LlmConfig,
    outputs={**agent.KIND.outputs, "response": {}},
    run=run,
    output_schemas={"result": "output_schema", "response": "output_schema"},
    default_timeout_s=120,
    ends_itself=True,
    mistakes=mistakes,
)
