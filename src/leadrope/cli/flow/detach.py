"""`leadrope flow run --detach`: an execution handed to the background process, which this terminal may leave."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from leadrope import spelling
from leadrope.cli import json_output
from leadrope.cli.runs.runs import with_service
from leadrope.cli.screen.screen import Screen
from leadrope.core import home
from leadrope.core.config import Config
from leadrope.runs import detached
from leadrope.runs.service import Service
from leadrope.workflows.library import Loaded
from leadrope.workflows.start import start, surroundings


def run(
    loaded: Loaded,
    values: Mapping[str, Any],
    folder: Path,
    environ: Mapping[str, str],
    config: Config,
    given: Mapping[str, Any],
    **options: Any,
) -> int:
    """The id of the execution on standard output, once it is stored."""

    async def prepare(service: Service) -> tuple[Any, list[str]]:
        return await start.prepared(
            service, loaded, values, workspace=folder, environ=environ, config=config, **options
        )

    new, secrets = with_service(prepare, needs_config=True)
    new = msgspec.structs.replace(new, priority=given["priority"])
    screen = Screen.of_process(environ)
    if notice := _not_recoverable(new.settings):
        screen.line(f"! {notice}")
    execution_id = detached.hand_over_execution(home.leadrope_home(environ), new, environ, secrets=secrets)
    if given["output"] == "text":
        print(execution_id)
    else:
        json_output.write({"execution_id": execution_id})
    screen.line(screen.style.dim(spelling.runnable(f"watch it with: leadrope flow logs -f {execution_id[:8]}")))
    return 0


def _not_recoverable(settings: Mapping[str, Any]) -> str:
    """What another process could not continue it with, in words; empty if it could."""
    lost = [name for name, variable in settings.get(surroundings.SECRET_INPUTS, {}).items() if not variable]
    if not lost:
        return ""
    return (
        f"leadrope cannot recover this execution if its background process ends: {', '.join(lost)} came from this "
        "terminal and is not stored. To avoid this, put the value into the .env of LEADROPE_HOME"
    )
