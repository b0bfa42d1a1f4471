"""A step that has an agent or a model work, with the scripted agent in the place of the installed one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from leadrope.core.request import RunRequest
from leadrope.rehearsal import write_executable
from leadrope.runs.service import Service
from leadrope.workflows.steps.base import StepDone
from step_place import Here, do


class Doors:
    """The service; all but the agent is real. `requests` are those that the step made."""

    def __init__(self, service: Service, binary: str) -> None:
        self._service = service
        self.config = service.config
        self._binary = binary
        self.requests: list[RunRequest] = []

    async def start(self, request: RunRequest, **options: Any) -> Any:
        self.requests.append(request)
        changed = msgspec.structs.replace(
            request,
            provider="scripted",
            binary=self._binary,
            base_url=None,
            sandbox="off",
            attempts=1,
            schema_retries=0,
        )
        return await self._service.start(changed, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._service, name)


async def asked_of(
    here: Here, folder: Path, result: dict[str, Any] | None, kind: str, /, **given: Any
) -> tuple[StepDone, RunRequest]:
    """What the step came to when the agent gave this result (None: it gives none), and what the agent was asked."""
    given_back = [] if result is None else [{"result": result}]
    steps = [{"initialize": True}, {"await_user": True}, {"init": True}, *given_back, {"await_eof": True}]
    binary = str(write_executable(folder / "agent", {"steps": steps}))
    here.environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "LEADROPE_HOME": str(folder / "leadrope")}
    async with Service(here.environ) as service:
        here.service = Doors(service, binary)
        done = await do(here, kind, **given)
    return done, here.service.requests[0]
