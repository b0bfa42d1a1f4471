"""Stand-ins for tests and the demo: a scripted model server and a scripted agent executable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leadrope.rehearsal.executable import write_executable
    from leadrope.rehearsal.model import ModelRequest, ModelServer
    from leadrope.rehearsal.scenes import ExecutableStage, ModelStage, Scene, Stage, Staged
    from leadrope.rehearsal.script import BadScript, RehearsalError, Script, load
    from leadrope.rehearsal.threaded import ModelThread
    from leadrope.runtime import conformance

__all__ = [
    "BadScript",
    "ExecutableStage",
    "ModelRequest",
    "ModelServer",
    "ModelStage",
    "ModelThread",
    "RehearsalError",
    "Scene",
    "Script",
    "Stage",
    "Staged",
    "conformance",
    "load",
    "write_executable",
]

# Looked up on first use: the scripted agent is started for every test and cannot afford the model server's imports.
_HOMES = {
    "BadScript": "script",
    "ExecutableStage": "scenes",
    "ModelServer": "model",
    "ModelStage": "scenes",
    "ModelThread": "threaded",
    "RehearsalError": "script",
    "ModelRequest": "model",
    "Scene": "scenes",
    "Script": "script",
    "Stage": "scenes",
    "Staged": "scenes",
    "load": "script",
    "write_executable": "executable",
}


# The suite opens runs, so it belongs to a higher layer; it is listed here so that it can be found beside the stand-ins.
_SUITE = "leadrope.runtime.conformance"


def __getattr__(name: str) -> Any:
    from importlib import import_module  # noqa: PLC0415  # only on first use

    if name == "conformance":
        return import_module(_SUITE)
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
