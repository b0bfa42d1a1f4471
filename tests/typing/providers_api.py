"""Never run: uses providers, contexts and completions as a program would, so that mypy holds their types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import leadrope
from leadrope import Availability, Capabilities, Completer, Context, Message, Reply, RunRequest
from leadrope.core.context import ApiMessage
from leadrope.core.events import Event, TurnEnded
from leadrope.core.tools import ToolCall
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
    over_http: base.Provider = OverHttp()
    talk: base.Session = Spoken()
    base.check_start(over_http, base.Endpoint(url="", cwd="", session_id=None, model=""), talk)
    return claude, scripted, over_http, registry.provider(registry.DEFAULT_PROVIDER)


class Spoken:
    """The session of an endpoint: nothing of a process is asked of it."""

    def receive(self, lines: Sequence[object]) -> list[Event | base.Signal]:
        for line in lines:
            match line:
                case base.AnswerEnded(how="refused", status=status, headers=headers):
                    return [TurnEnded(turn=1, is_error=True, reason=headers.get("x-request-id", ""), api_status=status)]
                case base.RequestSent():
                    return [base.Started(session_id="s")]
        return []

    def prompt(self, text: str) -> bytes:
        return text.encode()


class OverHttp:
    id = "over-http"
    label = "Over HTTP"
    capabilities = Capabilities(process=False)
    requires_api_key = True

    async def is_available(self, environ: Mapping[str, str] | None = None) -> Availability:
        return Availability(available=True)

    async def prepare(self, request: RunRequest, place: base.StartContext, *, attempt: int) -> base.Endpoint:
        headers = (("authorization", "Bearer x"),)
        return base.Endpoint(url="https://x", headers=headers, cwd=".", session_id=None, model="m")

    def session(self, request: RunRequest, launch: base.Endpoint) -> Spoken:
        return Spoken()

    def tidy(self, launch: base.Endpoint) -> None: ...


def starts(start: base.Start) -> str:
    match start:
        case base.Launch():
            return start.argv[0]
        case base.Endpoint():
            return start.url


def people(session: base.Session, call: ToolCall) -> dict[str, object]:
    if isinstance(session, base.AskingSession):
        asking: base.Asking = session.asks(call)
        return session.answered(call, {one.question: "yes" for one in asking.questions})
    return {}


def stages(environ: Mapping[str, str]) -> tuple[Stage, ...]:
    return ModelStage("claude-code", environ), ExecutableStage("scripted", environ)


def looks() -> tuple[conformance.Check, ...]:
    skipped: dict[str, tuple[str, ...]] = conformance.left_out("claude-code")
    assert skipped
    return conformance.checks("claude-code")
