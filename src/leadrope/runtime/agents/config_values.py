"""Values of config.toml that need more than the file to be checked: tools, providers, variables."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from leadrope import errors
from leadrope.core import config as configs
from leadrope.policy import patterns
from leadrope.process import environment as environments
from leadrope.providers import registry
from leadrope.spelling import close_matches


def check(config: configs.Config) -> None:
    """Raises the first value that no run could use, with its file, line and key."""
    try:
        environments.check_forwarded(config.forward_env)
    except errors.VariableRefused as error:
        wrong = errors.BadConfig(f"{config.source}: forward_env: {error.message}", hint=error.hint)
        raise configs.with_line(wrong, config.source) from None
    for where, defaults in config.run_tables():
        for problem in (*_tools(defaults), *mistakes(defaults)):
            raise with_line(config, where, problem)


def mistakes(defaults: configs.RunDefaults) -> Iterator[errors.BadValue]:
    """What is wrong with the values of one table, which may be that of a saved agent."""
    provider = defaults.provider
    if provider is not msgspec.UNSET and provider not in registry.BUILT_IN and provider not in registry.names():
        known = registry.names()
        close = close_matches(provider, known, n=1)
        hint = f"Did you mean {close[0]}?" if close else f"Use one of: {', '.join(known)}."
        yield errors.BadValue("provider", f"{provider!r} is not known", hint=hint)
    try:
        environments.check_variables(defaults.variables or {}, defaults.secret_variables or ())
    except errors.VariableRefused as error:
        yield errors.BadValue(f"variables.{error.name}", error.message, hint=error.hint)
    if defaults.idle_close_s is not msgspec.UNSET and not 0 <= defaults.idle_close_s < math.inf:
        wrong = f"{defaults.idle_close_s:g} is not a number of zero or more"
        yield errors.BadValue("idle_close_s", wrong, hint="Write 0 for no limit.")


def _tools(defaults: configs.RunDefaults) -> Iterator[errors.BadValue]:
    for field in ("tools", "disallowed_tools", "allow"):
        for entry in getattr(defaults, field) or ():
            try:
                (patterns.parse if field == "allow" else patterns.check_tool)(entry)
            except errors.BadValue as error:
                yield errors.BadValue(field, error.message.removeprefix(f"{error.field}: "), hint=error.hint)


def with_line(config: configs.Config, where: str, error: errors.BadValue) -> errors.BadConfig:
    return configs.with_line(configs.bad_value(config.source, where, error), config.source)
