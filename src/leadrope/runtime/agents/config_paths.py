"""What config.toml names and this machine does not have: folders, the agent program, saved agents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from leadrope import errors, spelling
from leadrope.core import config as configs
from leadrope.core.text import toml_lines
from leadrope.providers.claude_code import locate
from leadrope.runtime import working_directory
from leadrope.runtime.agents import config_values, saved_agents


def missing(config: configs.Config, environ: Mapping[str, str], cwd: Path) -> Iterator[errors.BadConfig]:
    """One error for each table of defaults. Runs that do not use the table are not affected: only `doctor` asks."""
    agents = ((toml_lines.dotted("agents", name), agent) for name, agent in config.agents.items())
    for where, defaults in (*config.run_tables(), *agents):
        try:
            _look(defaults, config, environ, cwd)
        except (errors.BadValue, errors.BadDirectory, errors.CliNotFound) as error:
            field = error.field or "cwd"
            bare = error.message.removeprefix(f"{field}: ").removeprefix(f"{spelling.option(field)}: ")
            yield config_values.with_line(config, where, errors.BadValue(field, bare, hint=error.hint))


def _look(defaults: configs.RunDefaults, config: configs.Config, environ: Mapping[str, str], cwd: Path) -> None:
    folder = cwd
    if isinstance(defaults.cwd, str):
        folder = Path(working_directory.working_directory(defaults.cwd))
    for extra in defaults.extra_dirs or ():
        working_directory.extra_directory(extra, str(folder))
    if isinstance(defaults.binary, str):
        locate.find_binary(defaults.binary, environ)
    if isinstance(defaults.agent, str) and defaults.agent not in config.broken_agents:
        saved_agents.find(defaults.agent, config, environ, folder)
