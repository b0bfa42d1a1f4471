"""The step `agent` (`claude-code` is the same): one run of an agent, through the service like every other run."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from leadrope import errors
from leadrope.core import config as configs
from leadrope.core import events, schema
from leadrope.core import home as homes
from leadrope.core.agent_sandbox import Sandbox
from leadrope.core.request import RunRequest
from leadrope.core.request_secrets import redactor_of
from leadrope.core.result import SCHEMA_RESOLVED_TO_NULL, RunResult
from leadrope.providers import registry
from leadrope.runs.job import Job
from leadrope.runs.masking import without_known
from leadrope.runtime import checks
from leadrope.runtime.retries import HEALABLE
from leadrope.workflows import templates
from leadrope.workflows.problems import nearest
from leadrope.workflows.steps.base import Caution, Config, Context, Done, Kind, StepFailed, as_mistake, brief, told

MAX_PROMPT_CHARS = 1_000_000
ALONE: Mapping[str, Any] = {
    "instructions": False,
    "tools": [],
    "disallowed_tools": ["Read", "WebSearch", "WebFetch"],
    "connections": [],
    "subagents": {},
    "extra_dirs": [],
    "append_system_prompt": None,
    "mode": "dontAsk",
    "persist_session": False,
}
"""A model with nothing in its hands, whatever the user's configuration gives to his agents."""


_AGENTS_FORM = re.compile(r"(?<=[^(\s]):\*\)\s*\Z")
"""`Bash(git:*)`, which a run takes for `Bash(git *)`."""


class AgentConfig(Config, frozen=True, kw_only=True):
    prompt: Annotated[str, Meta(description="What the agent is to do.")]
    output_schema: Annotated[
        dict[str, Any] | None, Meta(description="JSON Schema of the answer; `result` is then that value.")
    ] = None
    cwd: Annotated[str | None, Meta(description="Where it works; the workflow's folder where left out.")] = None
    provider: Annotated[str | None, Meta(description="Which agent program; claude-code where left out.")] = None
    agent: Annotated[str | None, Meta(description="A saved agent of the configuration.")] = None
    model: Annotated[str, Meta(description="A tier (opus, sonnet, haiku) or a model's id.")] = "sonnet"
    fallback_model: Annotated[str | None, Meta(description="Used where the model is at capacity.")] = None
    allowed_tools: Annotated[
        list[str] | None,
        Meta(
            description="Tools that it may use, without asking where the policy lets them; all where left out, and in "
            "the mode default commands and edits still ask."
        ),
    ] = None
    disallowed_tools: Annotated[list[str], Meta(description="Tools or patterns that it may not use.")] = []
    allow: Annotated[
        list[str], Meta(description="Patterns of calls that need no approval where the mode would ask.")
    ] = []
    mode: Annotated[
        Literal["plan", "default", "edit", "sandboxed", "full", "dontAsk", "acceptEdits", "bypassPermissions"] | None,
        Meta(description="What happens with calls that no rule has settled; default where left out."),
    ] = None
    max_turns: Annotated[int, Meta(ge=1, le=100, description="At least 2 with a schema.")] = 50
    max_thinking_tokens: Annotated[int, Meta(ge=1000, le=100_000, description="For its thinking, per answer.")] = 8000
    timeout: Annotated[float, Meta(ge=30, le=3600, description="Seconds.")] = 300
    system_prompt: Annotated[str | None, Meta(description="In place of the agent's own.")] = None
    append_system_prompt: Annotated[str | None, Meta(description="Added to the agent's own.")] = None
    resume: Annotated[str | None, Meta(description="The id of a session to go on with.")] = None
    schema_retries: Annotated[
        int, Meta(ge=0, le=5, description="Corrective turns; with 0 leadrope converts no scalars either.")
    ] = 1
    sandbox: Annotated[Sandbox | None, Meta(description="The agent program's own sandbox settings.")] = None
    walls: Annotated[
        Literal["workspace", "read-only", "off"] | None,
        Meta(description="The box around it; as the policy and the configuration say where left out."),
    ] = None
    use_api_key: Annotated[bool, Meta(description="Bill an API key; else only the subscription is used.")] = False
    connections: Annotated[list[str], Meta(description="Connections of the configuration that it gets.")] = []
    attachments: Annotated[list[str], Meta(description="Files and images that go with the prompt.")] = []
    max_prompt_chars: Annotated[int, Meta(ge=1, le=MAX_PROMPT_CHARS, description="A longer prompt is an error.")] = (
        MAX_PROMPT_CHARS
    )
    budget: Annotated[
        Annotated[float, Meta(gt=0)] | None, Meta(description="US dollars, an estimate at list prices.")
    ] = None


def mistakes(parameters: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What a run would refuse, whatever the templates give."""
    known = templates.settled(parameters)
    yield from model_mistakes(known)
    turns = known.get("max_turns")
    if isinstance(turns, int) and turns < 2 and parameters.get("output_schema") is not None:
        yield "max_turns", "with an output_schema at least 2 turns are needed, one of them to hand over the answer"
    if _is_blank(known.get("resume")):
        yield "resume", "it is empty. Name a session, or leave it out."
    yield from _tool_mistakes(known)
    # A folder that is the same wherever the workflow runs; whether it is there is told when it does.
    cwd = known.get("cwd")
    if isinstance(cwd, str) and cwd.startswith("/") and "\0" not in cwd:
        try:
            checks.refuse_system(cwd, os.path.realpath(cwd))
        except errors.BadDirectory as error:
            yield "cwd", as_mistake(error)


def _tool_mistakes(known: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name in ("allowed_tools", "disallowed_tools", "allow"):
        entries = known.get(name)
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, str) and (wrong := _no_pattern(entry)):
                yield name, wrong


def _no_pattern(entry: str) -> str | None:
    from leadrope.policy import patterns  # noqa: PLC0415  # only those pay for it whose file has lists of tools

    try:
        patterns.parse(_AGENTS_FORM.sub(" *)", entry))
    except errors.BadValue as error:
        return as_mistake(error).removeprefix("pattern: ")
    return None


def model_mistakes(known: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Of whoever answers, what it is asked, and what the answer must fit."""
    if _is_blank(known.get("prompt")):
        yield "prompt", "it is empty. Write what is to be done."
    if _is_blank(known.get("model")):
        yield "model", "it is empty. Name a tier (opus, sonnet, haiku) or a model, or leave it out."
    name = known.get("provider")
    if isinstance(name, str) and name not in registry.BUILT_IN and name not in registry.names():
        near = nearest(name, registry.names())
        meant = f"; did you mean {near}?" if near else ""
        yield "provider", f"there is no {name!r}{meant} (available: {', '.join(registry.names())})"
    document = known.get("output_schema")
    if isinstance(document, dict):
        try:
            schema.read(document)
        except errors.BadValue as error:
            yield "output_schema", as_mistake(error).removeprefix("output_schema: ")


def _is_blank(value: object) -> bool:
    return isinstance(value, str) and not value.strip()


async def run(config: AgentConfig, context: Context) -> Done:
    check_prompt(config.prompt, config.max_prompt_chars, context)
    given: dict[str, Any] = {
        "prompt": config.prompt,
        "attachments": [str(context.workspace / name) for name in config.attachments],
        "model": config.model,
        "policies": context.policies,
        "max_turns": config.max_turns,
        "max_thinking_tokens": config.max_thinking_tokens,
        "schema_retries": config.schema_retries,
        "cwd": str(_folder(config.cwd or ".", context)),
        "labels": {"workflow": context.flow_id[:12], "step": context.key.step},
    }
    said = {
        "provider": config.provider,
        "agent": config.agent,
        "fallback_model": config.fallback_model,
        "system_prompt": config.system_prompt,
        "append_system_prompt": config.append_system_prompt,
        "tools": config.allowed_tools,
        "disallowed_tools": config.disallowed_tools or None,
        "allow": config.allow or None,
        "mode": config.mode,
        "connections": config.connections or None,
        "sandbox": None if config.sandbox is None else msgspec.to_builtins(config.sandbox),
        "walls": config.walls,
        "output_schema": config.output_schema,
        "resume": config.resume,
        "billing": billing_of(config.use_api_key, context),
    }
    request = request_for(given | {name: value for name, value in said.items() if value is not None}, context)
    result = await ask(request, context)
    return done(result, has_schema=config.output_schema is not None, lost_schema=_lost_schema(config, context))


def _folder(given: str, context: Context) -> Path:
    if given == "~" or given.startswith("~/"):
        return homes.user_home(context.environ) / given[2:]
    return context.workspace / given


def billing_of(use_api_key: bool, context: Context) -> str | None:
    """Who pays for a step; None: as the user's configuration says.

    A step that does not ask for a key never spends one, not even that of leadrope's own .env: only the user himself,
    by what he says for every run, makes a key the usual way to pay.
    """
    if use_api_key:
        return "api_key"
    if "use_api_key" not in context.sources and context.service.config.run.billing in ("api_key", "auto"):
        return None
    return "subscription_only"


def request_for(given: dict[str, Any], context: Context, *, usual_s: float | None = None) -> RunRequest:
    """What the step says, above what the user's own configuration says for every run."""
    wall_s = context.timeout_s or usual_s
    given = given | {"limits": {} if wall_s is None else {"wall_s": wall_s}}
    if context.budget_usd is not None:
        # As a rule, which can only tighten: a workflow's file is not the user's own word on what a run may cost.
        given["policies"] = (*given.get("policies", ()), {"max_budget_usd": context.budget_usd})
    return configs.apply(context.service.config, None, given, environ=context.environ)


async def ask(request: RunRequest, context: Context) -> RunResult:
    """One run to its end, without the run's secrets; where the step itself is ended, the run is ended first."""
    watcher = _Watcher(context)
    prompt = redactor_of(request, context.environ).clean(request.prompt)
    job = watcher.job = await context.service.start(
        request,
        approver=context.approver,
        show=watcher.show,
        environ=context.environ,
        title=f"{context.key.step}: {brief(prompt, 80)}",
    )
    try:
        return without_known(await job.result(), job.redactor)
    except errors.LeadropeError as error:
        error.hint = in_words_of_a_step(error.hint)
        raise
    except asyncio.CancelledError:
        await context.service.stop(job.id, "its workflow was stopped")
        await asyncio.wait((asyncio.ensure_future(job.result()),))
        raise


_OTHER_WORDS = {
    "the limit (--wall-secs, or wall_s in [run.limits]; 0 switches it off)": "its `timeout`",
    '`--billing api_key` (billing = "api_key" in config.toml)': "`use_api_key: true`",
    "billing `api_key`": "`use_api_key: true`",
    "leave out billing": "leave out `use_api_key`",
}


def in_words_of_a_step(hint: str | None) -> str | None:
    """What a run advises, with the parameters of a step in place of the program's options."""
    for said, meant in _OTHER_WORDS.items() if hint else ():
        hint = (hint or "").replace(said, meant)
    return hint


class _Watcher:
    """A run's events as what the step does at the moment."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._action = ""
        self.job: Job | None = None

    def show(self, recorded: events.Recorded) -> None:
        match recorded.event:
            case events.ToolRequested(call=call):
                self._action = brief(f"{call.name} {told(call)}", 80)
            case events.ApprovalRequested(call=call):
                self._action = f"{call.name} waits for approval"
            case events.UsageUpdated() | events.TurnEnded():
                pass
            case _:
                return
        cost = self.job.run.meter.spent_usd if self.job is not None and self.job.run is not None else 0.0
        self._context.say(self._action, cost_usd=cost)


def done(result: RunResult, *, has_schema: bool, lost_schema: bool = False) -> Done:
    """What a run came to, as a step. A schema that was missed is a soft failure; an agent's error is none."""
    if not result.ok:
        raise _failure(result)
    warnings = [Caution(kind=warning.kind, message=warning.message) for warning in result.warnings]
    schema_error = result.schema_error
    if lost_schema:
        schema_error = "the template of output_schema gave null, so the agent ran without a schema"
        warnings.append(Caution(kind=SCHEMA_RESOLVED_TO_NULL, message=schema_error))
    has_output = has_schema and result.output_rung not in (None, "none")
    outputs: dict[str, Any] = {
        "result": result.output if has_output else result.text,
        "llm_usage": msgspec.json.decode(msgspec.json.encode(result.llm_usage)) if result.llm_usage is not None else {},
        "session_id": result.session_id,
        "_schema_error": schema_error,
    }
    if result.outcome == "degraded" and not warnings:
        warnings.append(Caution(kind="agent.degraded", message=result.schema_error or "the run is degraded"))
    return Done(
        outputs=outputs,
        warnings=tuple(warnings) if result.outcome == "degraded" or lost_schema else (),
        cost_usd=_cost(result),
        tokens=_tokens(result),
        run_id=result.run_id,
    )


def _failure(result: RunResult) -> StepFailed:
    error = result.error
    kind = error.kind if error is not None else result.outcome
    return StepFailed(
        error.message if error is not None else f"the run ended as {result.outcome}",
        kind=kind,
        hint=in_words_of_a_step(error.hint) if error is not None else None,
        can_heal=kind in HEALABLE or kind == "timed_out",
        outputs={"result": result.text, "session_id": result.session_id},
        cost_usd=_cost(result),
        tokens=_tokens(result),
        run_id=result.run_id,
    )


def _cost(result: RunResult) -> float:
    return result.totals.cost_usd if result.totals is not None else result.cost_usd


def _tokens(result: RunResult) -> int:
    return result.totals.total_tokens if result.totals is not None else result.usage.total_tokens


def check_prompt(prompt: str, limit: int, context: Context) -> None:
    source = context.sources.get("prompt")
    if not prompt.strip():
        names = [f"${{{one.source}}}" for one in templates.references(source)]
        why = f": {', '.join(names)} gave nothing" if names else ""
        raise StepFailed(
            f"the prompt of {context.key.step!r} is empty{why}",
            kind="empty_prompt",
            hint="Look at what the step before it gave." if names else "Write a prompt.",
        )
    if len(prompt) > limit:
        raise StepFailed(
            f"the prompt of {context.key.step!r} has {len(prompt)} characters; at most {limit}",
            kind="prompt_too_long",
            hint="Shorten it, hand it over as a file, or raise max_prompt_chars.",
        )


def _lost_schema(config: AgentConfig, context: Context) -> bool:
    return config.output_schema is None and context.sources.get("output_schema") is not None


KIND = Kind(
    name="agent",
    summary="An agent works on a prompt, with tools, under the policy.",
    config=AgentConfig,
    outputs={
        "result": {},
        "llm_usage": {"type": "object"},
        "session_id": {"type": ["string", "null"]},
        "_schema_error": {"type": ["string", "null"]},
    },
    run=run,
    output_schemas={"result": "output_schema"},
    default_timeout_s=300,
    ends_itself=True,
    mistakes=mistakes,
)
