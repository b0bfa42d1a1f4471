"""A provider without a process: a model that is reached over HTTP and speaks the Messages API. It has no tools.

The smallest that shows the seam; the rehearsal's model server is the other side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from leadrope import RunRequest, errors, events
from leadrope.core.cost.usage import Usage
from leadrope.providers import base

NAME = "talker"
MODEL = "claude-sonnet-4-5"


class Talker:
    id = NAME
    label = "Talker"
    requires_api_key = True
    capabilities = base.Capabilities(process=False, partial_text=True)

    async def is_available(self, environ: Mapping[str, str] | None = None) -> base.Availability:
        return base.Availability(available=True)

    async def prepare(self, request: RunRequest, place: base.StartContext, *, attempt: int) -> base.Endpoint:
        if request.credential is None or request.base_url is None:
            raise errors.NotAuthenticated("the talker has no key", hint="Give credential and base_url.")
        key = request.credential.reveal()
        return base.Endpoint(
            url=f"{request.base_url}/v1/messages",
            headers=(("x-api-key", key), ("anthropic-version", "2023-06-01")),
            cwd=request.cwd or ".",
            session_id=place.run_id,
            model=request.model or MODEL,
            secrets=(key,),
        )

    def session(self, request: RunRequest, launch: base.Endpoint) -> TalkerSession:
        return TalkerSession(launch)

    def tidy(self, launch: base.Endpoint) -> None:
        """It keeps nothing."""


class _Delta(msgspec.Struct, frozen=True):
    text: str = ""


class _Tokens(msgspec.Struct, frozen=True):
    input_tokens: int = 0
    output_tokens: int = 0


class _Message(msgspec.Struct, frozen=True):
    id: str = ""
    model: str = ""
    usage: _Tokens = _Tokens()


class _Failure(msgspec.Struct, frozen=True):
    message: str = ""


class _Event(msgspec.Struct, frozen=True):
    type: str = ""
    message: _Message = _Message()
    delta: _Delta = _Delta()
    usage: _Tokens = _Tokens()
    error: _Failure = _Failure()


KNOWN = {
    *("message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta"),
    *("message_stop", "error", "ping"),
}


_KINDS = {401: "not_authenticated", 429: "rate_limited", 529: "overloaded"}


class TalkerSession:
    def __init__(self, endpoint: base.Endpoint) -> None:
        self._endpoint = endpoint
        self._messages: list[dict[str, str]] = []
        self._turn = 0
        self._message = _Message()
        self._text = ""
        self._output_tokens = 0
        self._is_done = False
        self._failure = ""

    def prompt(self, text: str) -> bytes:
        self._messages.append({"role": "user", "content": text})
        body = {"model": self._endpoint.model, "max_tokens": 1000, "stream": True, "messages": self._messages}
        return msgspec.json.encode(body)

    def receive(self, lines: Sequence[Any]) -> list[events.Event | base.Signal]:
        return [item for line in lines for item in self._meaning(line)]

    def _meaning(self, line: Any) -> list[events.Event | base.Signal]:
        match line:
            case base.RequestSent():
                self._turn += 1
                self._message, self._text, self._output_tokens = _Message(), "", 0
                self._is_done, self._failure = False, ""
                session_id = self._endpoint.session_id or ""
                started = base.Started(session_id=session_id, model=self._endpoint.model, cwd=self._endpoint.cwd)
                return [started, events.TurnStarted(turn=self._turn)]
            case base.AnswerEnded():
                return self._ended(line)
        try:
            event = msgspec.json.decode(line, type=_Event)
        except msgspec.MsgspecError:
            event = _Event()
        if event.type not in KNOWN:
            return [events.Unrecognised(reason="not of the Messages API", raw=bytes(line).decode(errors="replace"))]
        match event.type:
            case "message_start":
                self._message = event.message
            case "content_block_delta" if event.delta.text:
                self._text += event.delta.text
                return [events.MessageDelta(text=event.delta.text, message_id=self._message.id)]
            case "message_delta":
                self._output_tokens = event.usage.output_tokens
                return [self._used()]
            case "message_stop":
                self._is_done = True
                return [events.MessageCompleted(text=self._text, message_id=self._message.id)]
            case "error":
                self._failure = event.error.message
        return []

    def _used(self) -> events.UsageUpdated:
        return events.UsageUpdated(message_id=self._message.id, model=self._message.model, usage=self._usage())

    def _usage(self) -> Usage:
        return Usage(input_tokens=self._message.usage.input_tokens, output_tokens=self._output_tokens)

    def _ended(self, answer: base.AnswerEnded) -> list[events.Event | base.Signal]:
        problem = self._problem(answer)
        if problem is None:
            self._messages.append({"role": "assistant", "content": self._text})
        return [
            events.TurnEnded(
                turn=self._turn,
                is_error=problem is not None,
                reason=answer.how,
                text=self._text,
                api_status=answer.status if answer.status >= 400 else None,
                never_connected=answer.how == "unreachable",
                usage=self._usage(),
                steps=1,
                problem=problem,
            )
        ]

    def _problem(self, answer: base.AnswerEnded) -> events.Problem | None:
        """The model's own last event says that it was done; without it the answer is cut, whatever text came."""
        match answer.how:
            case "whole" if self._is_done:
                return None
            case "cancelled":
                return events.Problem(kind="stopped", outcome="stopped")
            case "refused":
                try:
                    told = msgspec.json.decode(answer.body, type=_Event).error.message
                except msgspec.MsgspecError:
                    told = answer.body.decode(errors="replace")
                kind = _KINDS.get(answer.status, "api_error")
                return events.Problem(kind=kind, message=f"{answer.status}: {told}", hint="See what the service says.")
            case "unreachable":
                return events.Problem(kind="connection_failed", message=answer.reason, hint="Check base_url.")
        told = self._failure or answer.reason or "the answer ended before the model was done"
        return events.Problem(kind="api_error", message=told, hint="Try again.")


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an installer leaves a package that announces it."""
    info = folder / "talker-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: talker\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[leadrope.providers]\n{NAME} = talker:Talker\n")
    monkeypatch.syspath_prepend(str(folder))
