"""--resume, --fork and --continue: the run that is continued, and the settings that are kept of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadrope import errors
from leadrope.core import home
from leadrope.core.config import Config
from leadrope.core.request import Limits, RunRequest
from leadrope.runtime.agents import saved_agents
from leadrope.runtime.terminal_text import clean, one_line

if TYPE_CHECKING:
    from leadrope.runs.continued import Continued

_PERSONA = ("agent", "agent_from", "system_prompt", "append_system_prompt")
_UNSAID = ("prompt", "cwd", "resume", "fork", "session_id", "agent_from", "provider", "labels")
"""Fields that say nothing about how the agent works, or that the header of a run shows anyway."""


def session_named(given: Mapping[str, Any], environ: Mapping[str, str]) -> str | None:
    """The run or session that a command names, as it is written there; for --continue the session's id."""
    if given.get("continue"):
        return _last_session(given.get("cwd"), environ)
    return given.get("resume") or given.get("fork")


def _last_session(cwd: str | None, environ: Mapping[str, str]) -> str:
    from leadrope.runtime.sessions.files import Sessions  # noqa: PLC0415  # only --continue asks for it

    folder = Path(cwd).expanduser() if cwd is not None else Path.cwd()
    found = Sessions.of(environ).last(folder)
    if found is None:
        raise errors.BadValue(
            "--continue", f"no session was used in {folder}", hint="See `leadrope sessions list`, and use --resume ID."
        )
    return found.id


def find(name: str, environ: Mapping[str, str]) -> Continued | None:
    """The stored run that is continued, if there is one."""
    from leadrope.runs import continued  # noqa: PLC0415  # only a resumed session needs it

    return asyncio.run(continued.find(name, home.leadrope_home(environ), Path.cwd()))


def request_of(
    fields: Mapping[str, Any],
    profile: str | None,
    config: Config,
    environ: Mapping[str, str],
    earlier: Continued | None,
) -> RunRequest:
    """The flags above the settings of the run that is continued; without one, above the config's."""
    if earlier is None:
        return saved_agents.request_of(config, fields, profile=profile, environ=environ)
    kept = earlier.settings(fields, config, environ)
    if fields.get("agent") is not None and fields["agent"] != kept.get("agent"):
        kept = {name: value for name, value in kept.items() if name not in _PERSONA}
    return saved_agents.request_of(config, fields, profile=profile, environ=environ, kept=kept)


def describe(earlier: Continued, request: RunRequest, other: RunRequest) -> str:
    """What the request keeps of an earlier run, in one line; empty if the `other` one, without it, is the same."""
    parts: list[str] = []
    for name in RunRequest.__struct_fields__:
        value, instead = getattr(request, name), getattr(other, name)
        if name in _UNSAID or value == instead:
            continue
        parts += _limits(value, instead) if isinstance(value, Limits) else [_in_words(name, value)]
    return clean(f"settings of run {earlier.run.id[:8]}: {', '.join(parts)}") if parts else ""


def _limits(value: Limits, instead: Limits) -> list[str]:
    names = Limits.__struct_fields__
    return [_in_words(name, getattr(value, name)) for name in names if getattr(value, name) != getattr(instead, name)]


def _in_words(field: str, value: Any) -> str:
    name = field.replace("_", " ")
    if value is None or value in ((), {}):
        return f"no {name}"
    if isinstance(value, bool):
        return f"{name} {'on' if value else 'off'}"
    if isinstance(value, int | float) or (isinstance(value, str) and field not in _PERSONA[2:]):
        return f"{name} {one_line(str(value), 60)}"
    if isinstance(value, tuple | dict) and all(isinstance(one, str) for one in value):
        return f"{name} {one_line(', '.join(value), 60)}"
    return name
