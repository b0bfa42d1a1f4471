"""A second agent: the rehearsal's scripted executable under a name of its own. It has no login and no settings.

It speaks the Claude CLI's wire, so its translation is that one; what it shows is how little a provider needs to know.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from pathlib import Path

from leadrope import errors
from leadrope.core import attachments
from leadrope.core.request import RunRequest
from leadrope.providers import base
from leadrope.providers.claude_code.argv import cli_mode
from leadrope.providers.claude_code.session import ClaudeSession

SETTING = "LEADROPE_SCRIPTED_BIN"
MODEL = "claude-sonnet-4-5"
_HINT = f"Write one with leadrope.rehearsal.write_executable and name it with binary or {SETTING}."


class Scripted:
    id = "scripted"
    label = "Scripted"
    requires_api_key = False
    capabilities = base.Capabilities(
        tools=True, approvals=True, questions=True, structured_output=True, sessions=True, images=True
    )

    async def is_available(self, environ: Mapping[str, str] | None = None) -> base.Availability:
        try:
            _binary(None, os.environ if environ is None else environ)
        except errors.CliNotFound as error:
            return base.Availability(available=False, reason=str(error))
        return base.Availability(available=True)

    async def prepare(self, request: RunRequest, place: base.StartContext, *, attempt: int) -> base.Launch:
        session_id = request.session_id or str(uuid.uuid4())
        option = ("--session-id", session_id)
        if request.resume is not None and not request.fork:
            session_id, option = request.resume, ("--resume", request.resume)
        model = request.model or MODEL
        return base.Launch(
            argv=(
                _binary(request.binary, place.environ),
                *option,
                *("--model", model),
                *("--permission-mode", cli_mode(request.mode)),
            ),
            env={"PATH": place.environ.get("PATH", ""), "HOME": str(place.run_dir), **request.variables},
            cwd=request.cwd or ".",
            session_id=session_id,
            model=model,
            secrets=(request.credential.reveal(),) if request.credential else (),
            attachments=attachments.of_request(request),
        )

    def session(self, request: RunRequest, launch: base.Launch) -> ClaudeSession:
        return ClaudeSession(request, launch.attachments)

    def tidy(self, launch: base.Launch) -> None:
        """The script keeps nothing."""


def _binary(given: str | None, environ: Mapping[str, str]) -> str:
    named = given or environ.get(SETTING)
    if not named:
        raise errors.CliNotFound("no scripted agent was named", hint=_HINT)
    path = Path(named).expanduser().absolute()
    if not (path.is_file() and os.access(path, os.X_OK)):
        raise errors.CliNotFound(f"the scripted agent {named} does not exist or is not executable", hint=_HINT)
    return str(path)
