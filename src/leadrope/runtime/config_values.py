"""Values of `[run]` and `[profiles.NAME]` that need more than the file to be checked: tools, providers."""

from __future__ import annotations

import difflib

import msgspec

from leadrope import errors
from leadrope.core import config as configs
from leadrope.policy import patterns
from leadrope.providers import registry


def check(config: configs.Config) -> None:
    """Raises the first value that no run could use, with its file, line and key."""
    for where, defaults in config.run_tables():
        for field in ("tools", "disallowed_tools", "allow"):
            for entry in getattr(defaults, field) or ():
                try:
                    (patterns.parse if field == "allow" else patterns.check_tool)(entry)
                except errors.BadValue as error:
                    wrong = errors.BadValue(field, error.message.removeprefix(f"{error.field}: "), hint=error.hint)
                    raise _with_line(config, where, wrong) from None
        provider = defaults.provider
        if provider is not msgspec.UNSET and provider not in registry.BUILT_IN and provider not in registry.names():
            known = registry.names()
            close = difflib.get_close_matches(provider, known, n=1)
            hint = f"Did you mean {close[0]}?" if close else f"Use one of: {', '.join(known)}."
            raise _with_line(config, where, errors.BadValue("provider", f"{provider!r} is not known", hint=hint))


def _with_line(config: configs.Config, where: str, error: errors.BadValue) -> errors.BadConfig:
    return configs.with_line(configs.bad_value(config.source, where, error), config.source)
