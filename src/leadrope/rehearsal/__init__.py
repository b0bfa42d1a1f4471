"""Stand-ins for tests and the demo: a scripted model server and a scripted agent executable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leadrope.rehearsal.executable import write_executable
    from leadrope.rehearsal.model import ModelServer, Request
    from leadrope.rehearsal.script import BadScript, RehearsalError, Script, load
    from leadrope.rehearsal.threaded import ModelThread

__all__ = [
    "BadScript",
    "ModelServer",
    "ModelThread",
    "RehearsalError",
    "Request",
    "Script",
    "load",
    "write_executable",
]

# Looked up on first use: the scripted agent is started for every test and cannot afford the model server's imports.
_HOMES = {
    "BadScript": "script",
    "ModelServer": "model",
    "ModelThread": "threaded",
    "RehearsalError": "script",
    "Request": "model",
    "Script": "script",
    "load": "script",
    "write_executable": "executable",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415  # only on first use

    return getattr(import_module(f"{__name__}.{home}"), name)
