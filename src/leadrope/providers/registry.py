"""Providers by name: ours, and those of other packages (entry point group `leadrope.providers`)."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from leadrope import errors
from leadrope.providers.base import Provider

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "leadrope.providers"
DEFAULT_PROVIDER = "claude-code"
# Module and class, imported when asked for: no run pays for a provider that it does not use.
BUILT_IN = {
    "claude-code": ("leadrope.providers.claude_code.provider", "ClaudeCode"),
    "scripted": ("leadrope.providers.scripted", "Scripted"),
}


def names() -> tuple[str, ...]:
    return tuple(sorted({*BUILT_IN, *(entry.name for entry in _entry_points())}))


def provider(name: str = DEFAULT_PROVIDER) -> Provider:
    if name in BUILT_IN:
        # Before any other package's: nobody can put his own agent behind a name that people trust.
        module, attribute = BUILT_IN[name]
        made: Provider = getattr(importlib.import_module(module), attribute)()
        return made
    found = [entry for entry in _entry_points() if entry.name == name]
    if not found:
        raise errors.BadValue("provider", f"{name!r} is not known", hint=f"Use one of: {', '.join(names())}.")
    if len({entry.value for entry in found}) > 1:
        homes = ", ".join(sorted(entry.value for entry in found))
        raise errors.BadProvider(name, f"several packages give it: {homes}", hint="Uninstall all but one.")
    return _load(name, found[0])


def _load(name: str, entry: EntryPoint) -> Provider:
    try:
        loaded: object = entry.load()()
    except Exception as error:
        # Another package's code: whatever it raises, the user must learn whose it is.
        raise errors.BadProvider(
            name, f"{entry.value} cannot be loaded: {type(error).__name__}: {error}", hint="Update or uninstall it."
        ) from error
    if not isinstance(loaded, Provider):
        missing = sorted(part for part in _parts() if not hasattr(loaded, part))
        raise errors.BadProvider(
            name, f"{entry.value} is not a provider: it has no {', '.join(missing)}", hint="Update or uninstall it."
        )
    if loaded.id != name:
        raise errors.BadProvider(name, f"{entry.value} calls itself {loaded.id!r}", hint="Give both the same name.")
    return loaded


def _parts() -> set[str]:
    return {part for part in (*Provider.__annotations__, *vars(Provider)) if not part.startswith("_")}


def _entry_points() -> Iterable[EntryPoint]:
    from importlib import metadata  # noqa: PLC0415  # 27 ms that a built-in provider does not need

    return metadata.entry_points(group=GROUP)
