"""A trial of the gate for an agent version that nobody has measured: one denied command, and a look at what it did.

The agent is the real program, the model a script on loopback. What passed is remembered by version.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from leadrope.core import events, home
from leadrope.core.request import Limits, RunRequest
from leadrope.core.secrets.redaction import Secret

FILE = "gate-checks.json"
# A fake key: the model is ours, and nothing else is reached.
_KEY = Secret("sk-ant-gate-check-000000000000")


def passed(leadrope_home: Path, provider: str, version: str) -> bool:
    return f"{provider} {version}" in _read(leadrope_home)


def remember(leadrope_home: Path, provider: str, version: str) -> None:
    known = sorted({*_read(leadrope_home), f"{provider} {version}"})
    path = home.ensure(leadrope_home) / FILE
    fresh = path.with_suffix(f".{os.getpid()}")
    fresh.write_bytes(msgspec.json.encode(known))
    fresh.replace(path)


def _read(leadrope_home: Path) -> list[str]:
    try:
        return msgspec.json.decode((leadrope_home / FILE).read_bytes(), type=list[str])
    except (OSError, msgspec.MsgspecError):
        return []  # a missing or broken record only means that the trial is made again


async def try_gate(provider: str, binary: str, environ: Mapping[str, str]) -> str | None:
    """None if a denied command did not run, else what went wrong. In mode `full` the agent alone would run it."""
    from leadrope.rehearsal.model import ModelServer  # noqa: PLC0415  # only untested versions pay for it
    from leadrope.runtime.gate.approvers import DenyAll  # noqa: PLC0415
    from leadrope.runtime.run import Run  # noqa: PLC0415  # the run itself makes this trial

    with tempfile.TemporaryDirectory(prefix="leadrope-gate-") as scratch:
        folder = Path(scratch)
        marker = folder / "work" / "marker"
        marker.parent.mkdir()
        touch = {"name": "Bash", "input": {"command": f"touch {marker}", "description": "try the gate"}}
        async with ModelServer([{"tool": touch}, {"text": "done", "optional": True}], strict=False) as model:
            request = RunRequest(
                prompt="try the gate",
                provider=provider,
                binary=binary,
                cwd=str(marker.parent),
                mode="full",
                tools=("Read",),
                credential=_KEY,
                base_url=model.url,
                persist_session=False,
                instructions=False,
                attempts=1,
                api_retries=0,
                limits=Limits(wall_s=60),
            )
            trial_environ = {
                "PATH": environ.get("PATH", ""),
                "HOME": str(folder),
                "LEADROPE_HOME": str(folder / "leadrope"),
            }
            async with Run(request, approver=DenyAll(), environ=trial_environ, is_trial=True) as run:
                decided = [r async for r in run if isinstance(r.event, events.ToolDecided)]
                result = await run.result()
        if marker.exists():
            return "a command that was denied ran all the same"
        if not decided:
            error = f": {result.error.message}" if result.error else ""
            return f"it did not ask before a command (the trial ended {result.outcome}{error})"
        return None
