"""Providers by name: ours, and those of other packages (entry point group `leadrope.providers`)."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from leadrope import errors
from leadrope.providers.base import Provider

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "leadrope.providers"
# Module and class, imported when asked for: no run pays for a provider that it does not use.
BUILT_IN = {"claude-code": ("leadrope.providers.claude_code.provider", "ClaudeCode")}


def names() -> tuple[str, ...]:
    return tuple(sorted({*BUILT_IN, *(entry.name for entry in _entry_points())}))


def provider(name: str) -> Provider:
    if name in BUILT_IN:
        module, attribute = BUILT_IN[name]
        made: Provider = getattr(importlib.import_module(module), attribute)()
        return made
    for entry in _entry_points():
        if entry.name == name:
            loaded: Callable[[], Provider] = entry.load()
            return loaded()
    raise errors.BadValue("provider", f"{name!r} is not known", hint=f"Use one of: {', '.join(names())}.")


def _entry_points() -> Iterable[EntryPoint]:
    from importlib import metadata  # noqa: PLC0415  # 27 ms that a built-in provider does not need

    return metadata.entry_points(group=GROUP)
