"""The step `agent` (alias `claude-code`): one agent run, started through the service like every other run."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from leadrope import errors, spelling
from leadrope.core import denials, events, models
from leadrope.core.output import schema
from leadrope.core.request import RunRequest, SandboxLevel
from leadrope.core.request_parts import extra_dirs
from leadrope.core.request_parts.agent_sandbox import AgentSandboxSettings
from leadrope.core.request_secrets import redactor_of
from leadrope.core.result import SCHEMA_RESOLVED_TO_NULL, Denial, RunResult
from leadrope.providers import registry
from leadrope.runs.approvals.stored_approver import approval_id
from leadrope.runs.job import Job
from leadrope.runs.records.masking import without_known
from leadrope.runtime import working_directory
from leadrope.runtime.agents import saved_agents
from leadrope.runtime.retries import HEALABLE, MAX_TURNS
from leadrope.runtime.sandboxing.access import Access
from leadrope.workflows.check import access_requests
from leadrope.workflows.engine import step_runs
from leadrope.workflows.language import templates
from leadrope.workflows.problems import nearest
from leadrope.workflows.steps.agent_options import AgentOptions
from leadrope.workflows.steps.base import (
    Caution,
    Kind,
    StepContext,
    StepDone,
    StepFailed,
    StepQuestion,
    as_mistake,
    brief,
    told,
)
from leadrope.workflows.tools import file_calls, workspace_files

OnDenied = Literal["degrade", "ignore", "fail"]
MAX_PROMPT_CHARS = 1_000_000
DENIALS_TOLD = 10
"""Denied calls that get a warning of their own; `denials` lists all of them."""
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
"""A model without tools, whatever the user's configuration gives to agents."""


class AgentConfig(AgentOptions, frozen=True, kw_only=True):
    # Beside the options of its run: what a step has of its own, or with another type or default than a run.
    prompt: Annotated[str, Meta(description="What the agent is to do.")]
    prompt_file: Annotated[str | None, Meta(description="A file beside the workflow that holds the prompt.")] = None
    output_schema: Annotated[
        dict[str, Any] | None, Meta(description="JSON Schema of the answer; `result` is then that value.")
    ] = None
    cwd: Annotated[str | None, Meta(description="The working directory (default: the workflow's folder).")] = None
    provider: Annotated[str | None, Meta(description="The agent program (default: claude-code).")] = None
    model: Annotated[str, Meta(description="A tier (opus, sonnet, haiku) or a model's id.")] = "sonnet"
    allowed_tools: Annotated[
        list[str] | None,
        Meta(
            description="The only tools that it may use, pre-approved where the policy permits (default: all tools; in "
            "mode default, commands and edits still ask)."
        ),
    ] = None
    mode: Annotated[
        Literal["plan", "default", "edit", "sandboxed", "full", "dontAsk", "acceptEdits", "bypassPermissions"] | None,
        Meta(description="What happens to calls that no rule decides (default: default)."),
    ] = None
    max_turns: Annotated[int, Meta(ge=1, le=100, description="At least 2 with a schema.")] = 50
    max_thinking_tokens: Annotated[int, Meta(ge=1000, le=100_000, description="For its thinking, per answer.")] = 8000
    timeout: Annotated[float, Meta(ge=30, le=3600, description="Seconds.")] = 300
    sandbox: Annotated[
        SandboxLevel | AgentSandboxSettings | None,
        Meta(
            description="A word: the sandbox around the agent (default: what the policy and the configuration say). "
            "A mapping: the settings of the agent program's own sandbox."
        ),
    ] = None
    use_api_key: Annotated[bool, Meta(description="Bill an API key; else only the subscription is used.")] = False
    connections: Annotated[list[str], Meta(description="Connections of the configuration that it gets.")] = []
    extra_dirs: Annotated[
        list[str], Meta(description="More folders, relative to the workflow's; it works in DIR and only reads DIR:ro.")
    ] = []
    max_prompt_chars: Annotated[int, Meta(ge=1, le=MAX_PROMPT_CHARS, description="A longer prompt is an error.")] = (
        MAX_PROMPT_CHARS
    )
    on_denied: Annotated[
        OnDenied,
        Meta(description="After a call of it was denied: a warning and a degraded step, nothing, or a failed step."),
    ] = "degrade"
    budget: Annotated[
        Annotated[float, Meta(gt=0)] | None, Meta(description="US dollars, an estimate at list prices.")
    ] = None


_AS_THEY_ARE = frozenset(AgentOptions.__struct_fields__) - {"attachments", "schema_retries"}
"""Options that are passed on to the run as the step has them."""


def mistakes(parameters: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what a run would reject, whatever values the templates get."""
    known = templates.settled(parameters)
    yield from model_mistakes(known)
    turns = known.get("max_turns")
    if isinstance(turns, int) and turns < 2 and parameters.get("output_schema") is not None:
        yield "max_turns", "with an output_schema at least 2 turns are needed, one of them to hand over the answer"
    purpose = known.get("purpose")
    if isinstance(purpose, str):
        try:
            models.check_purpose(purpose)
        except errors.BadValue as error:
            yield "purpose", as_mistake(error).removeprefix("purpose: ")
    if _is_blank(known.get("resume")):
        yield "resume", "it is empty. Name a session, or leave it out."
    yield from _tool_mistakes(known)
    # A folder that does not depend on where the workflow runs; whether it exists is checked at run time.
    cwd = known.get("cwd")
    if isinstance(cwd, str) and cwd.startswith("/") and "\0" not in cwd:
        try:
            working_directory.refuse_system(cwd, os.path.realpath(cwd))
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
    from leadrope.runtime.agents import agent_files  # noqa: PLC0415  # the same

    try:
        patterns.parse(agent_files.own_form(entry))
    except errors.BadValue as error:
        return as_mistake(error).removeprefix("pattern: ")
    return None


def model_mistakes(known: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Check the parameters that all model steps share: the model, the prompt and the schema of the answer."""
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


async def attached(names: Iterable[str], context: StepContext, parameter: str) -> dict[str, Any]:
    """Return request fields for attached files. Each file is permitted like any read: its content goes to a model."""
    found = [workspace_files.find(context.workspace, name, parameter=parameter) for name in names]
    allowed = [await file_calls.may_read(context, place, parameter=parameter) for place in found]
    return (
        {"attachments": [place.real for place in allowed], "attachment_root": str(context.workspace)} if allowed else {}
    )


async def run(config: AgentConfig, context: StepContext) -> StepDone:
    check_prompt(config.prompt, config.max_prompt_chars, context)
    given: dict[str, Any] = {
        "prompt": config.prompt,
        **await attached(config.attachments, context, "attachments"),
        "policies": context.policies,
        "cwd": str(_folder(config.cwd or ".", context, "cwd")),
        "labels": {"workflow": context.execution_id[:12], "step": context.key.step},
    }
    own_sandbox = config.sandbox if isinstance(config.sandbox, AgentSandboxSettings) else None
    said = {
        **{name: None if (value := getattr(config, name)) == [] else value for name in _AS_THEY_ARE},
        "provider": config.provider,
        "extra_dirs": [*(_extra_dir(text, context) for text in config.extra_dirs), *context.access.for_agents] or None,
        "tools": config.allowed_tools,
        "mode": config.mode,
        "connections": config.connections or None,
        "sandbox": config.sandbox if isinstance(config.sandbox, str) else context.access.sandbox,
        "agent_sandbox": msgspec.to_builtins(own_sandbox) if own_sandbox is not None else None,
        "output_schema": config.output_schema,
    }
    # The step's own defaults yield to those of its agent, and its default model to one chosen by purpose.
    usual: dict[str, Any] = {}
    for name, value in {
        "model": model_of(config.model, context),
        "max_turns": config.max_turns,
        "max_thinking_tokens": config.max_thinking_tokens,
        "schema_retries": config.schema_retries,
    }.items():
        (said if name in context.sources else usual)[name] = value
    billing = billing_of(config.use_api_key, context)
    (said if "use_api_key" in context.sources else usual)["billing"] = billing
    usual = {name: value for name, value in usual.items() if value is not None}
    request = request_for(
        given | {name: value for name, value in said.items() if value is not None}, context, usual=usual
    )
    result = await ask(request, context)
    return done(
        result,
        has_schema=config.output_schema is not None,
        lost_schema=_lost_schema(config, context),
        on_denied=config.on_denied,
    )


def _extra_dir(text: str, context: StepContext) -> str:
    name, is_read_only = extra_dirs.parse(text)
    folder = _folder(name, context, "extra_dirs", is_read_only=is_read_only)
    return extra_dirs.spell(str(folder), is_read_only=is_read_only)


def _folder(name: str, context: StepContext, parameter: str, *, is_read_only: bool = False) -> Path:
    """Resolve a folder in the workspace, or one that this execution was given."""
    text = extra_dirs.spell(name, is_read_only=is_read_only)
    asked = access_requests.outside(text, context.workspace, context.environ)
    folder = access_requests.folder_of(name, context.workspace, context.environ)
    if asked is not None and context.access.lacks(Access(folders=(asked,))).folders:
        working_directory.extra_directory(str(folder), str(context.workspace))
        raise StepFailed(
            f"{parameter} of {context.key.step!r} is {asked}, a folder that this workflow was not given",
            kind="bad_input",
            hint=f"Start the workflow with {spelling.option('access.folders', str(asked))}.",
        )
    return folder


def model_of(named: str, context: StepContext) -> str:
    """Return the step's own model, or the one chosen at the start for steps that name none."""
    return named if "model" in context.sources else context.service.config.step_model or named


def billing_of(use_api_key: bool, context: StepContext) -> str | None:
    """Return who pays for a step; None to follow the user's configuration.

    A step that does not ask for an API key never uses one, not even the one in leadrope's own .env. Only the user can
    make a key the default way to pay, with a setting for all runs.
    """
    if use_api_key:
        return "api_key"
    if "use_api_key" not in context.sources and context.service.config.run.billing in ("api_key", "auto"):
        return None
    return "subscription_only"


def request_for(
    given: dict[str, Any], context: StepContext, *, usual_s: float | None = None, usual: Mapping[str, Any] | None = None
) -> RunRequest:
    """Build the run request. Precedence: the step, its agent, the step's defaults, the user's configuration."""
    wall_s = context.timeout_s or usual_s
    given = given | {"limits": {} if wall_s is None else {"wall_s": wall_s}}
    if context.budget_usd is not None:
        # As a policy rule, which can only tighten: a workflow file must not override the user's own cost limit.
        given["policies"] = (*given.get("policies", ()), {"max_budget_usd": context.budget_usd})
    if context.rehearsal is not None:
        given |= context.rehearsal.request_fields(context.key, given["labels"])
    return saved_agents.request_of(context.service.config, given, usual=usual, environ=context.environ)


async def ask(request: RunRequest, context: StepContext) -> RunResult:
    """Run the request to its end and redact its secrets; if the step is cancelled, the run is ended first.

    A run that a crash cut off is continued, and one that had ended before the crash is not repeated.
    """
    watcher = _Watcher(context)
    prompt = redactor_of(request, context.environ).clean(request.prompt)
    begun = await step_runs.begin(request, context, watcher.show, f"{context.key.step}: {brief(prompt, 80)}")
    watcher.before = begun.before
    if begun.result is not None:
        return with_cost(begun.result, begun.before)
    job = watcher.job = begun.job
    assert job is not None  # noqa: S101  # there is one of the two
    try:
        result = without_known(await job.result(), job.redactor)
        if job.unstored is not None and not result.ok:
            raise errors.StoreFull(job.unstored.message, hint=job.unstored.hint)  # the only reason for its end
        return with_cost(watcher.explained(result, has_address=request.base_url is not None), begun.before)
    except errors.LeadropeError as error:
        error.hint = in_words_of_a_step(error.hint)
        raise
    except asyncio.CancelledError:
        if not context.service.is_closing:  # otherwise the next owner continues it
            await context.service.stop(job.id, "its workflow was stopped")
            await asyncio.wait((asyncio.ensure_future(job.result()),))
        raise


_OTHER_WORDS = {
    r"the limit \((?:--wall-secs|limits\.wall_s), or [^)]*\)": "its `timeout`",
    r"the limit \((?:--unreachable-secs|limits\.unreachable_s), or (unreachable_s in \[run\.limits\])[^)]*\)": r"\1",
    r"the address \((?:--base-url|base_url)\)": "the address (base_url in [run])",
    r'`(?:--billing api_key|billing="api_key")`(?: \([^)]*\))?': "`use_api_key: true`",
    r"billing `api_key`": "`use_api_key: true`",
    r"leave out billing": "leave out `use_api_key`",
    r" A program can also pass `credential=[^`]*`\.": "",
}
"""Both spellings, the terminal's and Python's: workflows are started from either."""


def in_words_of_a_step(hint: str | None) -> str | None:
    """Rewrite a run's hint to name the step's parameters instead of the program's options."""
    for said, meant in _OTHER_WORDS.items() if hint else ():
        hint = re.sub(said, meant, hint or "")
    return hint


class _Watcher:
    """Translates a run's events into the step's current activity."""

    def __init__(self, context: StepContext) -> None:
        self._context = context
        self._action = ""
        self._unreachable = ""
        """Which server the agent cannot reach at the moment, and why."""
        self.job: Job | None = None
        self.before = step_runs.Before()

    def show(self, recorded: events.Recorded) -> None:
        match recorded.event:
            case events.ToolRequested(call=call):
                self._action = brief(f"{call.name} {told(call)}", 80)
            case events.ApprovalRequested() as asked:
                self._action = f"{asked.call.name} waits for approval"
                self._asks(recorded, asked.approval_id, _asked_call(asked))
            case events.QuestionRequested() as asked:
                self._action = f"a {asked.kind} waits for an answer"
                self._asks(recorded, asked.question_id, _asked_question(asked))
            case events.RetryScheduled(by="agent", error=error, attempt=number, delay_s=delay_s):
                self._retries(error, number, delay_s)
                why = error if events.is_unreachable(error) else f"the model failed ({error or 'no reason given'})"
                self._action = brief(f"{why}; retrying, attempt {number + 1}", 120)
            case events.MessageCompleted() if "; retrying, attempt" in self._action:
                self._action = self._unreachable = ""
            case events.UsageUpdated() | events.TurnEnded():
                pass
            case _:
                return
        cost = self.job.run.meter.spent_usd if self.job is not None and self.job.run is not None else 0.0
        cost += self.before.cost_usd
        self._context.say(self._action, cost_usd=cost)

    def _retries(self, error: str, number: int, delay_s: float) -> None:
        """Report an unreachable server at the first retry: in non-interactive output nothing else would."""
        if events.is_unreachable(error) and error != self._unreachable:
            self._unreachable = error
            self._context.retries(number + 1, delay_s, error)

    def explained(self, result: RunResult, *, has_address: bool) -> RunResult:
        """Replace the error of a run that timed out while waiting for its model: the task was not too large."""
        if result.outcome != "timed_out" or not self._unreachable or result.error is None:
            return result
        message = f"{self._unreachable}; the step's time was up before it was reached"
        check = "Check the address (base_url in [run])" if has_address else "Check your network"
        hint = f"{check}, and whether the server runs."
        error = msgspec.structs.replace(result.error, kind="connection_failed", message=message, hint=hint)
        return msgspec.structs.replace(result, error=error)

    def _asks(self, recorded: events.Recorded, asked_id: str, asked: StepQuestion) -> None:
        clean = self.job.redactor.clean if self.job is not None else str
        asked = msgspec.structs.replace(
            asked,
            title=f"{self._context.key.step}: {asked.title}",
            detail=clean(asked.detail),
            reading=clean(asked.reading),
        )
        self._context.asks(recorded.run_id, approval_id(recorded.run_id, recorded.attempt, asked_id), asked)


def _asked_call(asked: events.ApprovalRequested) -> StepQuestion:
    return StepQuestion(
        kind="tool_call",
        title=asked.call.name,
        detail=told(asked.call),
        reason=asked.reason,
        rule=asked.rule,
        layer=asked.layer,
        risk=asked.risk,
        reading=asked.reading,
        expires_s=asked.expires_s,
        fingerprint=asked.fingerprint,
    )


def _asked_question(asked: events.QuestionRequested) -> StepQuestion:
    text = asked.plan if asked.kind == "plan" else "\n".join(one.question for one in asked.questions)
    return StepQuestion(
        kind=asked.kind, title=asked.kind, detail=text, expires_s=asked.expires_s, fingerprint=asked.fingerprint
    )


def done(
    result: RunResult, *, has_schema: bool, lost_schema: bool = False, on_denied: OnDenied = "degrade"
) -> StepDone:
    """Convert a run's result into the step's. A missed schema and a denied call are soft failures; an error is a
    failure.

    An agent whose calls were all denied has still answered, and the steps after it can check that answer.
    """
    if not result.ok and result.outcome != "denied":
        raise _failure(result)
    is_soft = result.outcome == "degraded" or (result.outcome == "denied" and _fell_short(result))
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
        "denials": _denials(result),
    }
    if is_soft and not warnings:
        warnings.append(Caution(kind="agent.degraded", message=result.schema_error or "the run is degraded"))
    denied = denials.counted(result.denials)
    if denied and on_denied == "fail":
        raise StepFailed(
            denials.describe(denied),
            kind="denied",
            hint="Give the agent a mode, tools or an `allow` with which it can work, or set `on_denied: degrade`.",
            outputs=outputs,
            cost_usd=_cost(result),
            tokens=_tokens(result),
            run_id=result.run_id,
        )
    told = tuple(warnings) if is_soft or lost_schema else ()
    return StepDone(
        outputs=outputs,
        warnings=(*told, *_denied_calls(denied)) if on_denied == "degrade" else told,
        cost_usd=_cost(result),
        tokens=_tokens(result),
        run_id=result.run_id,
    )


def _denials(result: RunResult) -> list[dict[str, str]]:
    return [{"tool": one.call.name, "call": brief(told(one.call), 500), "reason": one.reason} for one in result.denials]


def _denied_calls(denied: Sequence[Denial]) -> Iterator[Caution]:
    for one in denied[:DENIALS_TOLD]:
        message = f"{one.call.name} `{brief(told(one.call), 100)}` was denied: {brief(one.reason, 300)}"
        yield Caution(kind="agent.call_denied", message=message)
    if more := len(denied) - DENIALS_TOLD:
        yield from [Caution(kind="agent.call_denied", message=f"{more} more calls were denied")] if more > 0 else ()


def _fell_short(result: RunResult) -> bool:
    return result.schema_error is not None or any(warning.kind == MAX_TURNS for warning in result.warnings)


def _failure(result: RunResult) -> StepFailed:
    error = result.error
    kind = error.kind if error is not None else result.outcome
    return StepFailed(
        error.message if error is not None else f"the run ended as {result.outcome}",
        kind=kind,
        hint=in_words_of_a_step(error.hint) if error is not None else None,
        can_heal=kind in HEALABLE or kind == "timed_out",
        outputs={"result": result.text, "session_id": result.session_id, "denials": _denials(result)},
        cost_usd=_cost(result),
        tokens=_tokens(result),
        run_id=result.run_id,
    )


def with_cost(result: RunResult, before: step_runs.Before) -> RunResult:
    """Add what stopped runs of the same attempt have cost."""
    if result.totals is None:
        return msgspec.structs.replace(result, cost_usd=result.cost_usd + before.cost_usd)
    totals = msgspec.structs.replace(
        result.totals,
        cost_usd=result.totals.cost_usd + before.cost_usd,
        total_tokens=result.totals.total_tokens + before.tokens,
    )
    return msgspec.structs.replace(result, totals=totals)


def _cost(result: RunResult) -> float:
    return result.totals.cost_usd if result.totals is not None else result.cost_usd


def _tokens(result: RunResult) -> int:
    return result.totals.total_tokens if result.totals is not None else result.usage.total_tokens


def check_prompt(prompt: str, limit: int, context: StepContext) -> None:
    source = context.sources.get("prompt")
    if not prompt.strip():
        names = [f"${{{one.source}}}" for one in templates.references(source)]
        why = f": {', '.join(names)} gave nothing" if names else ""
        raise StepFailed(
            f"the prompt of {context.key.step!r} is empty{why}",
            kind="empty_prompt",
            hint="Check the output of the step before it." if names else "Write a prompt.",
        )
    if len(prompt) > limit:
        raise StepFailed(
            f"the prompt of {context.key.step!r} has {len(prompt)} characters; at most {limit}",
            kind="prompt_too_long",
            hint="Shorten it, hand it over as a file, or raise max_prompt_chars.",
        )


DENIAL: Mapping[str, Any] = {
    "type": "object",
    "properties": {"tool": {"type": "string"}, "call": {"type": "string"}, "reason": {"type": "string"}},
    "additionalProperties": False,
}


def _lost_schema(config: AgentConfig, context: StepContext) -> bool:
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
        "denials": {"type": "array", "items": DENIAL},
    },
    run=run,
    output_schemas={"result": "output_schema"},
    default_timeout_s=300,
    ends_itself=True,
    mistakes=mistakes,
)
