"""Scenes for an agent to play, and two ways to stage them: through its model, or as a scripted executable.

A scene describes what the agent does independently of the agent; the stage knows how to make that agent do it. The
caller opens the run.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, assert_never

import msgspec

from leadrope.core.request import RunRequest
from leadrope.core.secrets.redaction import Secret
from leadrope.rehearsal.executable import write_executable
from leadrope.rehearsal.model import ModelServer

KEY = "sk-ant-conformance-0000000000000000"
"""Made up; given to the agent under test as its credential."""


class _Act(msgspec.Struct, frozen=True, kw_only=True):
    pass


class Says(_Act, frozen=True, kw_only=True):
    text: str


class Touches(_Act, frozen=True, kw_only=True):
    """Calls a tool that creates this file (or appends a line to it), unless the call is denied."""

    path: str


class Asks(_Act, frozen=True, kw_only=True):
    """Asks a person and waits for the answer."""

    question: str
    options: tuple[str, ...]


class Hands(_Act, frozen=True, kw_only=True):
    """Returns a structured output."""

    value: Any


class Waits(_Act, frozen=True, kw_only=True):
    """Is busy until it is interrupted or stopped."""


class Fails(_Act, frozen=True, kw_only=True):
    """The model refuses the agent's request."""


class Mutters(_Act, frozen=True, kw_only=True):
    """Writes something that is not part of the protocol."""


Act = Says | Touches | Asks | Hands | Waits | Fails | Mutters


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent does with its one prompt. `folder` is a scratch folder for the workspace and the homes."""

    folder: Path
    acts: tuple[Act, ...]

    @property
    def workspace(self) -> Path:
        return self.folder / "work"


class Staged(msgspec.Struct, frozen=True, kw_only=True):
    """How to open the run that plays the scene; `fields` are those of a RunRequest, without a prompt."""

    environ: Mapping[str, str]
    fields: Mapping[str, Any]

    def request(self, scene: Scene, prompt: str, **fields: Any) -> RunRequest:
        given = {"cwd": str(scene.workspace), "attempts": 1, "api_retries": 0, "instructions": False}
        return RunRequest(prompt=prompt, **{**given, **self.fields, **fields})


class CannotStage(Exception):
    """The agent cannot be made to do this; the check that needs it is skipped."""


class Stage(Protocol):
    provider: str

    def play(self, scene: Scene) -> AbstractAsyncContextManager[Staged]: ...


class _Stage:
    def __init__(self, provider: str, environ: Mapping[str, str], **fields: Any) -> None:
        """`environ` must contain at least the PATH with the agent; `fields` are added to every request."""
        self.provider = provider
        self._environ = dict(environ)
        self._fields = fields


class ModelStage(_Stage):
    """For an agent that reaches its model over the Messages API at `base_url`, with the tools of Claude Code."""

    @asynccontextmanager
    async def play(self, scene: Scene) -> AsyncIterator[Staged]:
        turns = [_turn(act) for act in scene.acts]
        if not scene.acts or not isinstance(scene.acts[-1], Says | Fails):
            turns.append({"text": "Done.", "optional": True})
        async with ModelServer(turns) as model:
            reached = {"provider": self.provider, "base_url": model.url, "credential": Secret(KEY)}
            yield Staged(environ=_homes(self._environ, scene.folder), fields={**reached, **self._fields})


class ExecutableStage(_Stage):
    """For a provider whose agent is the scripted executable: each scene is written as one and passed as `binary`."""

    @asynccontextmanager
    async def play(self, scene: Scene) -> AsyncIterator[Staged]:
        steps: list[dict[str, Any]] = [{"initialize": True}, {"await_user": True}, {"init": True}]
        for number, act in enumerate(scene.acts):
            steps += _steps(act, number)
        if not scene.acts or not isinstance(scene.acts[-1], Fails | Waits | Hands):
            steps.append({"result": True})
        binary = write_executable(scene.folder / "agent", [*steps, {"await_eof": True}])
        reached = {"provider": self.provider, "binary": str(binary), "credential": Secret(KEY)}
        yield Staged(environ=_homes(self._environ, scene.folder), fields={**reached, **self._fields})


def _homes(environ: Mapping[str, str], folder: Path) -> dict[str, str]:
    return {**environ, "HOME": str(folder / "home"), "LEADROPE_HOME": str(folder / "home" / "leadrope")}


def _turn(act: Act) -> dict[str, Any]:
    match act:
        case Says(text=text):
            return {"text": text}
        case Touches(path=path):
            return {"tool": {"name": "Bash", "input": {"command": f"echo once >> '{path}'", "description": "mark"}}}
        case Asks():
            return {"tool": {"name": "AskUserQuestion", "input": _question(act)}}
        case Hands(value=value):
            return {"tool": {"name": "StructuredOutput", "input": value}}
        case Waits():
            # It may be interrupted before it has sent a request to its model.
            return {"hang": "before_headers", "optional": True}
        case Fails():
            # The CLI retries after a 400, a few times and at once.
            return {"error": {"status": 400, "message": "refused by the rehearsal"}, "repeat": "forever"}
        case Mutters():
            raise CannotStage("the model cannot decide what the agent itself writes")
        case _:
            assert_never(act)


def _steps(act: Act, number: int) -> list[dict[str, Any]]:
    call = {"id": f"call-{number}"}
    match act:
        case Says(text=text):
            return [{"text": text}]
        case Touches(path=path):
            return [{"call": {**call, "tool": "Bash", "input": {"command": f"touch '{path}'"}, "touch": path}}]
        case Asks():
            asked = {**call, "tool": "AskUserQuestion", "input": _question(act)}
            answered = {"tool_result": {**call, "text": "answered"}}
            return [{"tool_use": asked}, {"hook": asked}, {"ask": {**asked, "if_allowed": [answered]}}]
        case Hands(value=value):
            return [{"result": {"structured_output": value}}]
        case Waits():
            aborted = {"subtype": "error_during_execution", "is_error": True, "terminal_reason": "aborted_streaming"}
            return [{"await_control": "interrupt"}, {"result": aborted}]
        case Fails():
            refused = {"is_error": True, "result": "API Error: 400 refused by the rehearsal", "api_error_status": 400}
            return [{"result": refused}, {"exit": 1}]
        case Mutters():
            return [{"line": "plain words"}, {"line": {"type": "leadrope_has_never_heard_of_it"}}]
        case _:
            assert_never(act)


def _question(act: Asks) -> dict[str, Any]:
    options = [{"label": label, "description": label} for label in act.options]
    return {"questions": [{"question": act.question, "header": "Question", "multiSelect": False, "options": options}]}
