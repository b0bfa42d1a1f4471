"""The user's config.toml as a checked value, and how its defaults, a profile and a call become one request.

From weakest to strongest: built-in defaults, `[run]`, LEADROPE_SPAWN_* variables, the profile, the call itself.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from leadrope import errors
from leadrope.core import home, models
from leadrope.core.prices import Prices, read_prices
from leadrope.core.redaction import Secret
from leadrope.core.request import McpServer, RunRequest, check_connection


class LimitDefaults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`Limits`, with every field open."""

    start_s: float | UnsetType = UNSET
    idle_s: float | UnsetType = UNSET
    tool_s: float | UnsetType = UNSET
    wall_s: float | UnsetType = UNSET
    exit_s: float | UnsetType = UNSET
    approval_s: float | UnsetType = UNSET
    connection_s: float | UnsetType = UNSET
    stop_s: float | UnsetType = UNSET
    budget_usd: float | Literal["none"] | UnsetType = UNSET
    memory_mb: float | UnsetType = UNSET


class RunDefaults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[run]` and `[profiles.NAME]`: the request's fields that make sense for more than one run."""

    provider: str | UnsetType = UNSET
    agent: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    fallback_model: str | UnsetType = UNSET
    purpose: str | UnsetType = UNSET
    system_prompt: str | UnsetType = UNSET
    append_system_prompt: str | UnsetType = UNSET
    instructions: bool | UnsetType = UNSET
    tools: tuple[str, ...] | UnsetType = UNSET
    disallowed_tools: tuple[str, ...] | UnsetType = UNSET
    allow: tuple[str, ...] | UnsetType = UNSET
    """Tool patterns that need no approval where the mode would ask; those of a profile and of a run are added."""
    mode: str | UnsetType = UNSET
    max_turns: int | UnsetType = UNSET
    max_thinking_tokens: int | UnsetType = UNSET
    effort: str | UnsetType = UNSET
    connections: tuple[str, ...] | UnsetType = UNSET
    """Names of `[connections.NAME]`."""
    extra_dirs: tuple[str, ...] | UnsetType = UNSET
    subagents: dict[str, dict[str, Any]] | UnsetType = UNSET
    sandbox: dict[str, Any] | UnsetType = UNSET
    output_schema: dict[str, Any] | UnsetType = UNSET
    schema_retries: int | UnsetType = UNSET
    cwd: str | UnsetType = UNSET
    persist_session: bool | UnsetType = UNSET
    limits: LimitDefaults | UnsetType = UNSET
    variables: dict[str, str] | UnsetType = UNSET
    secret_variables: tuple[str, ...] | UnsetType = UNSET
    billing: str | UnsetType = UNSET
    base_url: str | UnsetType = UNSET
    binary: str | UnsetType = UNSET
    labels: dict[str, str] | UnsetType = UNSET
    api_retries: int | UnsetType = UNSET
    max_structured_retries: int | UnsetType = UNSET
    broker: bool | UnsetType = UNSET
    walls: str | UnsetType = UNSET
    network: str | UnsetType = UNSET
    attempts: int | UnsetType = UNSET
    wait_for_limit: bool | UnsetType = UNSET
    auto_continue: int | UnsetType = UNSET
    idle_close_s: float | UnsetType = UNSET
    """Not of a request: how long a conversation's process waits for the next word; 0: for ever."""


class Config(msgspec.Struct, frozen=True, kw_only=True):
    source: str = "config.toml"
    run: RunDefaults = RunDefaults()
    profiles: dict[str, RunDefaults] = {}
    connections: dict[str, McpServer] = {}
    forward_env: tuple[str, ...] = ()
    """Names of proxy and CA variables that the agent may see."""
    models: dict[str, str] = {}
    """Tiers, and names of the user's own, with the model ids behind them."""

    prices: Prices = Prices()
    """The user's own prices above the list's."""
    service: dict[str, Any] = {}
    """`[service]`, and below it `[budgets]`, `[worktree]`, `[notify]`, `[telemetry]`: read by those who use them."""
    budgets: dict[str, Any] = {}
    worktree: dict[str, Any] = {}
    notify: dict[str, Any] = {}
    telemetry: dict[str, Any] = {}

    def tiers(self) -> Mapping[str, str]:
        return {**models.TIERS, **self.models}


_TABLES = ("service", "budgets", "worktree", "notify", "telemetry")
_SECTIONS = ("run", "profiles", "connections", "forward_env", "models", "prices", "policy", "agents", *_TABLES)
"""`policy` and `agents` are read by leadrope.policy, which tells the lines of what is wrong."""
_ELSEWHERE = {"credential": "Credentials do not belong here: put them into the .env file of LEADROPE_HOME."}
_NOT_OF_A_REQUEST = ("idle_close_s",)
# These grow from layer to layer; every other field is replaced whole.
_MERGED = ("limits", "variables", "labels")
_JOINED = ("secret_variables", "allow")
"""Lists that grow, too: a mark that one layer has set must not be lost by another's."""

_T = TypeVar("_T")


def load(environ: Mapping[str, str]) -> Config:
    """The user's configuration. A missing file is an empty one, unless LEADROPE_CONFIG named it."""
    path = home.config_file(environ)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if environ.get("LEADROPE_CONFIG"):
            raise errors.BadConfig(
                f"{path} does not exist", hint="Correct LEADROPE_CONFIG, or make the file."
            ) from None
        return Config(source=str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise errors.BadConfig(f"{path} cannot be read: {error}") from None
    return parse(text, str(path))


def parse(text: str, source: str = "config.toml") -> Config:
    """Check everything, so that a misspelt key is an error here and not a default somewhere else."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise errors.BadConfig(f"{source} is not TOML: {error}") from None
    except RecursionError:
        raise errors.BadConfig(f"{source} is not TOML: it is nested too deeply") from None
    for key in data:
        if key not in _SECTIONS:
            raise _unknown(source, "", key, _SECTIONS)
    connections = _each(source, data, "connections", McpServer)
    for name, server in connections.items():
        try:
            check_connection(name, server)
        except errors.BadValue as error:
            raise errors.BadConfig(f"{source}: {error.message}", hint=error.hint) from None
    tiers = _section(source, "models", data.get("models", {}), dict[str, str])
    config = Config(
        source=source,
        run=_section(source, "run", data.get("run", {}), RunDefaults),
        profiles=_each(source, data, "profiles", RunDefaults),
        connections=connections,
        forward_env=_section(source, "forward_env", data.get("forward_env", []), tuple[str, ...]),
        models=tiers,
        prices=read_prices(data.get("prices", {}), source=source, tiers={**models.TIERS, **tiers}),
        **{name: _section(source, name, data.get(name, {}), dict[str, Any]) for name in _TABLES},
    )
    named = [("run", config.run), *((f"profiles.{name}", profile) for name, profile in config.profiles.items())]
    for where, defaults in named:
        for name in defaults.connections or ():
            _connection(config, name, where=f"{where}.connections")
    return config


def apply(
    config: Config, profile: str | None, overrides: Mapping[str, Any], *, environ: Mapping[str, str] | None = None
) -> RunRequest:
    """One request out of all layers. Every key of `overrides` counts, also one whose value is None.

    `connections` may be names of the config's connections, or a mapping of servers.
    request = apply(config, "review", {"prompt": "Look at the last commit", "max_turns": 20})
    """
    layers = [_plain(config.run), {"limits": env_limits(environ or {})}]
    if profile is not None:
        if profile not in config.profiles:
            raise errors.BadConfig(
                f"{config.source} has no profile {profile!r}", hint=_suggest(profile, tuple(config.profiles))
            )
        layers.append(_plain(config.profiles[profile]))
    layers.append({key: _plain(value) if key == "limits" else value for key, value in overrides.items()})
    merged: dict[str, Any] = {"prompt": ""}
    for layer in layers:
        for key, value in layer.items():
            if key in _MERGED and isinstance(value, Mapping) and isinstance(merged.get(key), Mapping):
                merged[key] = {**merged[key], **value}
            elif key in _JOINED and isinstance(value, list | tuple):
                merged[key] = list(dict.fromkeys((*merged.get(key, ()), *value)))
            else:
                merged[key] = value
    for key in _NOT_OF_A_REQUEST:
        merged.pop(key, None)
    if merged.get("auto_continue") and not any("max_turns" in layer for layer in layers[1:]):
        # A default of the user's, not the caller's word: the run takes it for the length of one piece.
        merged.pop("max_turns", None)
    # These two are values of our own already; the rest is checked as if it came from outside.
    credential = merged.pop("credential", None)
    if credential is not None and not isinstance(credential, Secret):
        raise errors.BadValue("credential", "is not a Secret", hint="Wrap it: Secret(value).")
    servers = _servers(config, merged.pop("connections", {}))
    try:
        request = msgspec.convert(merged, RunRequest)
    except msgspec.ValidationError as error:
        raise _bad_override(error) from None
    return msgspec.structs.replace(request, credential=credential, connections=servers)


def env_limits(environ: Mapping[str, str]) -> dict[str, float]:
    """The operator's clocks, in milliseconds; 0 switches one off."""
    limits: dict[str, float] = {}
    for name, field in (("LEADROPE_SPAWN_IDLE_TIMEOUT_MS", "idle_s"), ("LEADROPE_SPAWN_MAX_MS", "wall_s")):
        value = environ.get(name, "").strip()
        if not value:
            continue
        if not re.fullmatch(r"[0-9]{1,12}", value):
            raise errors.BadConfig(
                f"{name} is {value!r}, not a whole number of milliseconds", hint="0 switches the clock off."
            )
        limits[field] = int(value) / 1000
    return limits


def _plain(value: Any) -> dict[str, Any]:
    # UNSET fields are left out, which is what makes a layer a layer.
    result: dict[str, Any] = msgspec.to_builtins(value)
    return result


def _servers(config: Config, wanted: Any) -> dict[str, McpServer]:
    if isinstance(wanted, Mapping):
        try:
            return msgspec.convert(dict(wanted), dict[str, McpServer])
        except msgspec.ValidationError as error:
            raise errors.BadValue("connections", str(error)) from None
    if isinstance(wanted, str) or not all(isinstance(name, str) for name in wanted):
        raise errors.BadValue("connections", "is neither a list of names nor a mapping of servers")
    return {name: _connection(config, name, where="connections") for name in wanted}


def _connection(config: Config, name: str, *, where: str) -> McpServer:
    if name not in config.connections:
        raise errors.BadConfig(
            f"{where}: {config.source} has no connection {name!r}", hint=_suggest(name, tuple(config.connections))
        )
    return config.connections[name]


def _each(source: str, data: Mapping[str, Any], section: str, kind: type[_T]) -> dict[str, _T]:
    # One by one: the decoder's own path says `[...]` where the user wrote a name.
    table = _section(source, section, data.get(section, {}), dict[str, dict[str, Any]])
    return {name: _section(source, f"{section}.{name}", value, kind) for name, value in table.items()}


def _section(source: str, where: str, data: Any, kind: type[_T]) -> _T:
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        message, path = _split(error)
        place = f"{where}{path}"
        unknown = re.fullmatch(r"Object contains unknown field `(.*)`", message)
        if unknown:
            raise _unknown(source, place, unknown[1], _fields(kind, path)) from None
        raise errors.BadConfig(f"{source}: {place}: {message}") from None


def _split(error: msgspec.ValidationError) -> tuple[str, str]:
    message, _, path = str(error).partition(" - at `")
    return message, path.rstrip("`").removeprefix("$")


def _fields(kind: Any, path: str) -> tuple[str, ...]:
    struct = LimitDefaults if path == ".limits" else kind
    return getattr(struct, "__struct_fields__", ())


def _unknown(source: str, where: str, key: str, known: tuple[str, ...]) -> errors.BadConfig:
    hint = _ELSEWHERE.get(key) or _suggest(key, known)
    return errors.BadConfig(f"{source}: {where + '.' if where else ''}{key} is not a known key", hint=hint)


def _bad_override(error: msgspec.ValidationError) -> errors.BadValue:
    message, path = _split(error)
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", message)
    field = path.removeprefix(".")
    if unknown:
        name = f"{field}.{unknown[1]}" if field else unknown[1]
        known = LimitDefaults.__struct_fields__ if field == "limits" else RunRequest.__struct_fields__
        return errors.BadValue(name, "is not a field of a request", hint=_suggest(unknown[1], known))
    return errors.BadValue(field or "request", message)


def _suggest(word: str, known: tuple[str, ...]) -> str | None:
    close = difflib.get_close_matches(word, known, n=2)
    if close:
        return f"Did you mean {' or '.join(close)}?"
    return f"Known here: {', '.join(known)}." if known else None
