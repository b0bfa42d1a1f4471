"""Never run: uses providers, contexts and completions as a program would, so that mypy holds their types."""

from __future__ import annotations

from collections.abc import Mapping

import leadrope
from leadrope import Availability, Capabilities, Completer, Context, Message, Reply, RunRequest
from leadrope.core.context import ApiMessage
from leadrope.providers import base, registry
from leadrope.providers.claude_code.provider import ClaudeCode
from leadrope.providers.scripted import Scripted
from leadrope.rehearsal import ExecutableStage, ModelStage, Stage, conformance


async def asks() -> str:
    claude: Completer = leadrope.provider("claude-code").from_config(5, ["Read"], 300)
    able: Capabilities = claude.capabilities
    found: Availability = await claude.is_available()
    if not found or not able.sessions or claude.requires_api_key:
        return found.reason
    context = Context(message="and?", system_prompt="Be kind.", history=(Message(role="user", text="hello"),))
    system, messages = context.to_messages()
    first: ApiMessage = messages[0]
    prompt: str = context.to_prompt_string(resumed=False) + (system or "") + first["content"]
    done: Reply = await claude.complete(prompt, cwd="/src", attachments=("shot.png",))
    again = await claude.in_session(done.session_id).complete(context)
    tokens: int | None = again.tokens
    target: str | None = again.reply_target
    async with claude.open(RunRequest(prompt="x")) as run:
        await run.result()
    return f"{again.text} {tokens} {target} {again.processing_time_ms} {again.model} {again.provider}"


def providers() -> tuple[base.Provider, ...]:
    """Ours fill the protocol, as mypy sees it."""
    claude: base.Provider = ClaudeCode()
    scripted: base.Provider = Scripted()
    return claude, scripted, registry.provider(registry.DEFAULT_PROVIDER)


def stages(environ: Mapping[str, str]) -> tuple[Stage, ...]:
    return ModelStage("claude-code", environ), ExecutableStage("scripted", environ)


def looks() -> tuple[conformance.Check, ...]:
    return conformance.checks("claude-code")
