"""The real CLI against the rehearsal model, each test with its own workspace, home and fake key."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from leadrope import Recorded, RunRequest, RunResult, Secret, events, open_run
from leadrope.rehearsal import ModelServer
from leadrope.runtime.run import Run

KEY = "sk-ant-rehearsal-0000000000000000"
E = TypeVar("E", bound=events.Event)


class Played:
    """A run that has ended: its events, its result, and what the model was asked."""

    def __init__(self, recorded: list[Recorded], result: RunResult, model: ModelServer) -> None:
        self.recorded = recorded
        self.events = [r.event for r in recorded]
        self.result = result
        self.model = model

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    def one(self, kind: type[E]) -> E:
        found = self.of(kind)
        assert len(found) == 1, f"{len(found)} events of {kind.__name__}: {self.events}"
        return found[0]


class Stage:
    """A workspace, a scratch home and the environment of the supervisor."""

    def __init__(self, claude: str, folder: Path) -> None:
        self.ws = folder / "ws"
        self.home = folder / "home"
        self.ws.mkdir()
        self.home.mkdir()
        self.marker = self.ws / "marker"
        self.touch = {"name": "Bash", "input": {"command": f"touch {self.marker}", "description": "make a marker"}}
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "LEADROPE_HOME": str(self.home / "leadrope"),
            "LANG": "C.UTF-8",
            "LEADROPE_CLAUDE_BIN": claude,
        }

    def request(self, model: ModelServer | None = None, /, **fields: Any) -> RunRequest:
        given: dict[str, Any] = {
            "prompt": "go",
            "cwd": str(self.ws),
            "credential": Secret(KEY),
            "attempts": 1,
            "api_retries": 0,
        }
        if model is not None:
            given["base_url"] = model.url
        return RunRequest(**(given | fields))

    @asynccontextmanager
    async def opened(
        self, script: Any, *, approver: Any = None, keep_open: bool = False, strict: bool = True, **fields: Any
    ) -> AsyncIterator[tuple[Run, ModelServer]]:
        async with ModelServer(script, strict=strict) as model:
            request = self.request(model, **fields)
            async with open_run(request, approver=approver, keep_open=keep_open, environ=self.environ) as run:
                yield run, model

    async def play(
        self,
        script: Any,
        *,
        approver: Any = None,
        on: Callable[[Run, events.Event], Awaitable[None]] | None = None,
        keep_open: bool = False,
        strict: bool = True,
        **fields: Any,
    ) -> Played:
        recorded = []
        async with self.opened(script, approver=approver, keep_open=keep_open, strict=strict, **fields) as (run, model):
            async for item in run:
                recorded.append(item)
                if on is not None:
                    await on(run, item.event)
            result = await run.result()
        played = Played(recorded, result, model)
        _check_log(played)
        return played


def _check_log(played: Played) -> None:
    """What holds for every run: no gap in the numbers, the end is last, and the log alone gives the result."""
    from leadrope.core.fold import fold

    assert [r.seq for r in played.recorded] == list(range(1, len(played.recorded) + 1))
    last = played.recorded[-1].event
    assert isinstance(last, events.RunEnded)
    assert last.result == played.result
    assert fold(played.recorded[:-1]) == played.result


@pytest.fixture
def stage(claude: str, tmp_path: Path) -> Stage:
    return Stage(claude, tmp_path)


Open = Callable[..., AbstractAsyncContextManager[tuple[Run, ModelServer]]]
Script = Sequence[dict[str, Any]]
