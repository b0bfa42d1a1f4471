"""Workflows in a scratch workspace, through the same doors as the terminal's; the store is a real one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from leadrope.core.execution_events import ExecutionEvent, ExecutionRecord
from leadrope.runs.service import Service
from leadrope.runtime.gate.approvers import Answer
from leadrope.workflows import library
from leadrope.workflows.engine.engine import Execution
from leadrope.workflows.report import ExecutionResult
from leadrope.workflows.start import start
from leadrope.workflows.steps.base import StepQuestion
from step_place import Here


class Somebody:
    """A person who is there, with the answers that a test gives."""

    def __init__(self, *words: Answer | None, approver: Any = None) -> None:
        self.words = list(words)
        self.asked: list[StepQuestion] = []
        self.approver = approver

    async def ask(self, asked: StepQuestion, token: str) -> Answer | None:
        self.asked.append(asked)
        return self.words.pop(0)


class Shop:
    """One user's machine: a workspace, a home, and workflows that run there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ws = folder / "ws"
        self.ws.mkdir()
        self.home = folder / "leadrope"
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "LEADROPE_HOME": str(self.home),
            "LANG": "C.UTF-8",
        }
        self.happened: list[ExecutionEvent] = []
        self._news = asyncio.Event()

    def saw(self, record: ExecutionRecord) -> None:
        self.happened.append(record.event)
        self._news.set()

    def write(self, text: str, name: str = "test.flow.md") -> Path:
        path = self.ws / name
        path.write_text(text)
        return path

    def service(self) -> Service:
        return Service(self.environ)

    @asynccontextmanager
    async def begun(
        self, text: str, inputs: dict[str, Any] | None = None, *, name: str = "test.flow.md", **options: Any
    ) -> AsyncIterator[Execution]:
        loaded = library.load(self.write(text, name))
        async with (
            self.service() as service,
            start.started(
                service,
                loaded,
                loaded.inputs(inputs or {}),
                workspace=self.ws,
                environ=self.environ,
                show=self.saw,
                **options,
            ) as execution,
        ):
            yield execution

    async def run(self, text: str, inputs: dict[str, Any] | None = None, **options: Any) -> ExecutionResult:
        async with self.begun(text, inputs, **options) as execution:
            return await execution.run()

    async def resume(self, name: str, **options: Any) -> ExecutionResult:
        async with (
            self.service() as service,
            start.resumed(service, name, environ=self.environ, show=self.saw, **options) as execution,
        ):
            return await execution.run()

    async def outcomes(self, execution_id: str) -> list[Any]:
        async with self.service() as service:
            return await service.executions.outcomes(execution_id)

    def somebody(self, *words: Answer | None, approver: Any = None) -> Somebody:
        return Somebody(*words, approver=approver)

    async def until(self, is_there: Callable[[], Any]) -> None:
        """Waits for a state that the workflow reaches by itself."""
        async with asyncio.timeout(60):
            while not is_there():
                self._news.clear()
                await self._news.wait()

    def of(self, kind: type[Any]) -> list[Any]:
        return [one for one in self.happened if isinstance(one, kind)]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    """A workspace for one step, with a secret beside it that no step may reach."""
    folder = tmp_path / "ws"
    folder.mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret.txt").write_text("secret")
    return folder


@pytest.fixture
def here(ws: Path) -> Here:
    return Here(ws)
