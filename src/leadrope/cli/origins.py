"""Where a wrong value of a run was written: an error names the flag, or the line of config.toml."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import UNSET

from leadrope import errors, spelling
from leadrope.cli.options import FLAGS, Flag
from leadrope.core import config as configs
from leadrope.policy.files.document import Problems


def named(
    error: errors.LeadropeError, given: Mapping[str, Any], config: configs.Config | None = None
) -> errors.LeadropeError:
    """The error with the name of the flag, or the place in `config`, that its value comes from; else as it is."""
    if isinstance(error, Problems):
        return _policy_file(error, given)
    if error.field is None:
        return error
    if error.field == "resume" and given.get("fork"):
        return _renamed(error, "--fork")
    for flag in FLAGS:
        if _is_about(flag, error.field) and flag.is_given(given.get(flag.name or "")):
            inside = error.field.removeprefix(flag.field).lstrip(".") if flag.field else ""
            return _renamed(error, flag.spelling, "" if inside == error.field else inside)
    if config is not None and not any(given.get(name) for name in ("resume", "continue", "fork")):
        return _in_config(error, error.field, given, config)
    return error


def _is_about(flag: Flag, field: str) -> bool:
    if (flag.field or flag.name) == field or (field == "variables" and flag.name in ("secret", "secret_file")):
        return True
    return flag.field is not None and field.startswith(f"{flag.field}.")


def _renamed(error: errors.LeadropeError, place: str, inside: str = "") -> errors.LeadropeError:
    """`inside`: the key within the value, such as `enabled` of a JSON object."""
    message = _bare(error)
    if inside:
        message = f"{inside}: {message}"
    if isinstance(error, errors.BadValue):
        return errors.BadValue(place, message, hint=error.hint)
    error.message, error.field = f"{place}: {message}", None
    return error


def _bare(error: errors.LeadropeError) -> str:
    field = error.field or ""
    # Once: a message may go on with the same word.
    for name in (field, spelling.option(field)):
        if error.message.startswith(f"{name}: "):
            return error.message.removeprefix(f"{name}: ")
    return error.message


def _policy_file(error: Problems, given: Mapping[str, Any]) -> errors.LeadropeError:
    files = {str(Path(name).expanduser()) for name in given.get("policy") or ()}
    if any(problem.file in files for problem in error.problems) and not error.message.startswith("--policy: "):
        error.message = f"--policy: {error.message}"
    return error


def _in_config(
    error: errors.LeadropeError, field: str, given: Mapping[str, Any], config: configs.Config
) -> errors.LeadropeError:
    for where, table in _tables(given, config):
        value: Any = table
        for part in field.split("."):
            value = value.get(part, UNSET) if isinstance(value, Mapping) else getattr(value, part, UNSET)
            if value is UNSET:
                break
        else:
            bad = errors.BadConfig(f"{config.source}: {where}.{field}: {_bare(error)}", hint=error.hint)
            error.message = configs.with_line(bad, config.source).message
            error.field = None
            return error
    return error


def _tables(given: Mapping[str, Any], config: configs.Config) -> list[tuple[str, configs.RunDefaults]]:
    """The tables of the configuration that this command uses, the strongest first."""
    tables: list[tuple[str, configs.RunDefaults]] = [("run", config.run)]
    if profile := config.profiles.get(given.get("profile") or ""):
        tables.insert(0, (f"profiles.{given['profile']}", profile))
    names = [given.get("agent"), *(table.agent for _, table in tables if table.agent is not UNSET)]
    name = next((one for one in names if one), None)
    if name in config.agents:
        tables.insert(0, (f"agents.{name}", config.agents[str(name)]))
    return tables
