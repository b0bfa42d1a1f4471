"""The user's config.toml as a checked value, and how its defaults, a profile and a call become one request.

From weakest to strongest: built-in defaults, `[run]`, LEADROPE_SPAWN_* variables, the profile, the saved agent, the
call itself.
"""

from __future__ import annotations

import re
import tomllib
import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

import msgspec
from msgspec import UNSET, UnsetType

from leadrope import errors
from leadrope.core import home, models
from leadrope.core.cost.prices import Prices, read_prices
from leadrope.core.request import OPTIONS, Limits, McpServer, RunRequest
from leadrope.core.request_checks import check, check_connection, check_words
from leadrope.core.request_forms import LimitDefaults, RequestDefaults
from leadrope.core.secrets.redaction import Secret
from leadrope.core.text import toml_lines
from leadrope.core.text.toml_lines import dotted
from leadrope.core.text.wrong_types import in_words, split, suggest, unknown_key
from leadrope.spelling import close_matches


class RunDefaults(RequestDefaults, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[run]` and `[profiles.NAME]`: the options of a request that config.toml may set, and one of conversations."""

    idle_close_s: float | UnsetType = UNSET
    """Seconds that the process of a conversation waits for your next message; 0 means for ever. Default: 600."""


class Agent(RunDefaults, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[agents.NAME]`: everything a profile can set, and what makes it an agent of its own."""

    description: str = ""
    """One line for lists: when to use it."""
    system_prompt_file: str | UnsetType = UNSET
    """The persona as a file; a relative path starts at the folder of config.toml."""
    append_system_prompt_file: str | UnsetType = UNSET
    output_schema_file: str | UnsetType = UNSET
    policy: dict[str, Any] | UnsetType = UNSET
    """Rules that only tighten; read and checked by leadrope.policy."""


AGENT_FILES = ("system_prompt", "append_system_prompt", "output_schema")
"""Fields of an agent that may come from a file: `NAME_file`."""


class BrokenAgent(msgspec.Struct, frozen=True, kw_only=True):
    """An `[agents.NAME]` that cannot be used; whoever uses it gets the error, and nobody else is held up."""

    message: str
    hint: str | None = None

    def error(self) -> errors.BadConfig:
        return errors.BadConfig(self.message, hint=self.hint)


class Config(msgspec.Struct, frozen=True, kw_only=True):
    source: str = "config.toml"
    run: RunDefaults = RunDefaults()
    profiles: dict[str, RunDefaults] = {}
    agents: dict[str, Agent] = {}
    """Saved agents; those of `.claude/agents` are found by `runtime.saved_agents`."""
    broken_agents: dict[str, BrokenAgent] = {}
    old_keys: tuple[str, ...] = ()
    """Keys of earlier versions in the file, each as a sentence that names the new one."""
    connections: dict[str, McpServer] = {}
    forward_env: tuple[str, ...] = ()
    """Names of proxy and CA variables that the agent may see."""
    step_model: str | None = None
    """For workflow steps that name no model, in place of the step's default; given at the start of an execution."""
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

    def run_tables(self) -> tuple[tuple[str, RunDefaults], ...]:
        """`[run]` and every `[profiles.NAME]`, each with its name."""
        return (("run", self.run), *((dotted("profiles", name), profile) for name, profile in self.profiles.items()))


_TABLES = ("service", "budgets", "worktree", "notify", "telemetry")
_SECTIONS = ("run", "profiles", "connections", "forward_env", "models", "prices", "policy", "agents", *_TABLES)
"""`policy`, and that of each agent, is read by leadrope.policy, which tells the lines of what is wrong."""
_NAMED = ("profiles", "connections", "agents")
"""Tables of tables."""
_ELSEWHERE = {
    "credential": "Credentials do not belong here: put them into the .env file of LEADROPE_HOME.",
    "persona": "Write it as system_prompt, or in a file named by system_prompt_file.",
    "prompt_file": "Write system_prompt_file.",
    "append": "Write append_system_prompt.",
    "schema": "Write output_schema, or output_schema_file.",
}
_RENAMED = {"walls": "It is called sandbox now."}
_NOT_OF_A_REQUEST = ("idle_close_s",)
# These grow from layer to layer; every other field is replaced whole.
_MERGED = tuple(name for name, option in OPTIONS.items() if option.grows == "merged")
_JOINED = tuple(name for name, option in OPTIONS.items() if option.grows == "joined")
"""Lists that grow, too: a mark or a prohibition that one layer has set must not be lost by another's."""

_TOO_DEEP = "Close the brackets, or nest fewer of them."
_T = TypeVar("_T")


def load(environ: Mapping[str, str]) -> Config:
    """The user's configuration. A missing file is an empty one, unless LEADROPE_CONFIG named it."""
    path = home.config_file(environ)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if environ.get("LEADROPE_CONFIG"):
            raise errors.BadConfig(
                f"{path} does not exist",
                hint="Correct the path (LEADROPE_CONFIG, or `config` in Python), or make the file.",
            ) from None
        return Config(source=str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise errors.BadConfig(f"{path} cannot be read: {error}") from None
    return parse(text, str(path))


def load_usable(environ: Mapping[str, str]) -> tuple[Config, errors.BadConfig | None]:
    """As `load`, for commands that must work whatever is in the file: what is wrong, and the tables that are right."""
    try:
        return load(environ), None
    except errors.BadConfig as error:
        path = home.config_file(environ)
        try:
            data, _ = with_new_keys(_data(path.read_text(encoding="utf-8"), str(path)))
        except (OSError, UnicodeDecodeError, errors.BadConfig):
            return Config(source=str(path)), error
        usable = {name: value for name, value in data.items() if _is_usable({name: value}, str(path))}
        return _parse(usable, str(path)) if _is_usable(usable, str(path)) else Config(source=str(path)), error


def _is_usable(data: Mapping[str, Any], source: str) -> bool:
    try:
        _parse(data, source)
    except errors.BadConfig:
        return False
    return True


def parse(text: str, source: str = "config.toml") -> Config:
    """Check everything, so that a misspelt key is an error here and not a default somewhere else."""
    data, old_keys = with_new_keys(_data(text, source))
    try:
        config = _parse(data, source)
    except errors.BadConfig as error:
        raise with_line(_as_written(error, source, old_keys), source, text) from None
    if old_keys:
        notes = tuple(f"{source}: {old} will be removed; use {new}" for old, new in old_keys)
        config = msgspec.structs.replace(config, old_keys=notes)
    if not config.broken_agents:
        return config
    told = {
        name: with_line(_as_written(broken.error(), source, old_keys), source, text)
        for name, broken in config.broken_agents.items()
    }
    lined = {name: BrokenAgent(message=error.message, hint=error.hint) for name, error in told.items()}
    return msgspec.structs.replace(config, broken_agents=lined)


def with_new_keys(data: Mapping[str, Any]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """The tables with the keys of this version, and the old keys that they had, with the new ones.

    >>> with_new_keys({"run": {"walls": "off"}})
    ({'run': {'sandbox': 'off'}}, [('run.walls', 'run.sandbox')])
    """
    found: list[tuple[str, str]] = []

    def renewed(where: str, table: Any) -> Any:
        if not isinstance(table, dict):
            return table
        table = dict(table)
        is_settings = isinstance(table.get("sandbox"), dict) and "agent_sandbox" not in table
        for old, new, applies in (("sandbox", "agent_sandbox", is_settings), ("walls", "sandbox", True)):
            if applies and old in table and new not in table:
                table[new] = table.pop(old)
                found.append((f"{where}.{old}", f"{where}.{new}"))
        return table

    result = {key: renewed(key, value) if key == "run" else value for key, value in data.items()}
    for section in ("profiles", "agents"):
        if isinstance(result.get(section), dict):
            result[section] = {name: renewed(dotted(section, name), table) for name, table in result[section].items()}
    return result, found


def _as_written(error: errors.BadConfig, source: str, old_keys: Sequence[tuple[str, str]]) -> errors.BadConfig:
    """The error with the key that stands in the file, where that is one of an earlier version."""
    start = f"{source}: "
    for old, new in old_keys:
        after = error.message.removeprefix(start + new)
        if after != error.message and after[:1] in ".: ":
            return errors.BadConfig(f"{start}{old}{after}", hint=error.hint)
    return error


def with_line(
    error: errors.BadConfig, source: str, text: str | None = None, *, path: Sequence[str] = ()
) -> errors.BadConfig:
    """The same error with the line of its key; `text` is read from the file where it is not given.

    Without a `path` the key is the one that the message names.
    """
    start = f"{source}: "
    named = toml_lines.leading_key(error.message.removeprefix(start)) if error.message.startswith(start) else ()
    if not named:
        return error
    if text is None:
        try:
            text = Path(source).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return error
    line = toml_lines.line_of(text, path or named)
    if line is None:
        return error
    return errors.BadConfig(f"{source}:{line}{error.message.removeprefix(source)}", hint=error.hint)


def _data(text: str, source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line, message, hint = toml_lines.in_words(error, text)
        raise errors.BadConfig(f"{source}:{line}: is not TOML: {message}", hint=hint) from None
    except RecursionError:
        raise errors.BadConfig(f"{source}: is not TOML: it is nested too deeply", hint=_TOO_DEEP) from None


def _parse(data: Mapping[str, Any], source: str) -> Config:
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
    for name, model in tiers.items():
        if not name.strip() or not model.strip():
            place = dotted("models", name)
            raise errors.BadConfig(f"{source}: {place}: is empty", hint='Write a name and a model: fast = "haiku".')
    config = Config(
        source=source,
        run=_section(source, "run", data.get("run", {}), RunDefaults),
        profiles=_each(source, data, "profiles", RunDefaults),
        connections=connections,
        forward_env=_section(source, "forward_env", data.get("forward_env", []), tuple[str, ...]),
        models=tiers,
        step_model=None,
        old_keys=(),
        prices=read_prices(
            _section(source, "prices", data.get("prices", {}), dict[str, Any]),
            source=source,
            tiers={**models.TIERS, **tiers},
        ),
        **{name: _section(source, name, data.get(name, {}), dict[str, Any]) for name in _TABLES},
    )
    for where, defaults in config.run_tables():
        _check_connections(config, where, defaults)
        _check_values(config, where, defaults)
    return _with_agents(config, data)


def _with_agents(config: Config, data: Mapping[str, Any]) -> Config:
    """One by one: a mistake in one of them leaves the others as they are."""
    agents: dict[str, Agent] = {}
    broken: dict[str, BrokenAgent] = {}
    for name, table in _section(config.source, "agents", data.get("agents", {}), dict[str, Any]).items():
        where = dotted("agents", name)
        try:
            if not isinstance(table, dict):
                hint = f"Write [{where}] on a line of its own."
                raise errors.BadConfig(f"{config.source}: {where}: is not a table", hint=hint)
            agent = _section(config.source, where, table, Agent)
            _check_agent(f"{config.source}: {where}", agent)
            _check_connections(config, where, agent)
        except errors.BadConfig as error:
            broken[name] = BrokenAgent(message=error.message, hint=error.hint)
        else:
            agents[name] = agent
    return msgspec.structs.replace(config, agents=agents, broken_agents=broken)


def _check_connections(config: Config, where: str, defaults: RunDefaults) -> None:
    for name in defaults.connections or ():
        if name not in config.connections:
            known = suggest(name, tuple(config.connections))
            hint = known or f"Add [connections.{name}], or take the name out."
            raise errors.BadConfig(f"{config.source}: {where}.connections: there is no connection {name!r}", hint=hint)


def _check_values(config: Config, where: str, defaults: RunDefaults) -> None:
    """What a run would refuse is refused here, where the key and its line are known."""
    bare = Config(source=config.source, profiles={where: defaults}, connections=config.connections)
    try:
        check(apply(bare, where, {"prompt": "-"}))
    except errors.BadValue as error:
        raise bad_value(config.source, where, error) from None


def bad_value(source: str, where: str, error: errors.BadValue) -> errors.BadConfig:
    """The error of a request's field as one of the table that holds it; `with_line` adds the line."""
    message = error.message.removeprefix(f"{error.field}: ")
    colon = "" if message == "is not a known key" else ":"
    return errors.BadConfig(f"{source}: {where}.{error.field}{colon} {message}", hint=error.hint)


def _check_agent(where: str, agent: Agent) -> None:
    if agent.agent is not UNSET:
        raise errors.BadConfig(f"{where}.agent: an agent cannot be based on another one", hint="Leave it out.")
    for name in AGENT_FILES:
        if UNSET not in (getattr(agent, name), getattr(agent, f"{name}_file")):
            raise errors.BadConfig(f"{where}: {name} and {name}_file are both set", hint="Set one of the two.")


def apply(
    config: Config,
    profile: str | None,
    overrides: Mapping[str, Any],
    *,
    environ: Mapping[str, str] | None = None,
    usual: Mapping[str, Any] | None = None,
    agent: Mapping[str, Any] | None = None,
    kept: Mapping[str, Any] | None = None,
) -> RunRequest:
    """One request out of all layers. Every key of `overrides` counts, also one whose value is None.

    `connections` may be names of the config's connections, or a mapping of servers. Between the profile and the call
    come `usual`, the values that this kind of caller has where nobody says more, and `agent`, the fields of a saved
    agent: `runtime.saved_agents.request_of` finds it. `kept` are the settings of a run that is continued; they take the
    place of `[run]`, of which only what is prohibited or secret still counts.
    request = apply(config, "review", {"prompt": "Look at the last commit", "max_turns": 20})
    """
    layers = [_plain(config.run), {"limits": env_limits(environ or {})}]
    if kept is not None:
        still = {name: value for name, value in layers[0].items() if name in ("disallowed_tools", "secret_variables")}
        layers = [still, dict(kept)]
    if profile is not None:
        if profile not in config.profiles:
            hint = suggest(profile, tuple(config.profiles)) or f"Add [profiles.{profile}] to it."
            raise errors.BadValue("profile", f"{config.source} has no profile {profile!r}", hint=hint)
        layers.append(_plain(config.profiles[profile]))
    layers += [dict(usual or {}), dict(agent or {})]
    layers.append({key: _plain(value) if key == "limits" else value for key, value in overrides.items()})
    merged: dict[str, Any] = {"prompt": ""}
    for layer in layers:
        if layer.get("purpose") is not None and "model" not in layer:
            merged.pop("model", None)  # a model named further down must not outweigh the purpose that is asked for here
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
    check_words(merged)
    try:
        request = msgspec.convert(merged, RunRequest)
    except msgspec.ValidationError as error:
        raise _bad_override(error) from None
    return msgspec.structs.replace(request, credential=credential, connections=servers)


def read(source: Config | UnsetType | None, environ: Mapping[str, str]) -> Config:
    """The configuration that a caller names: a value, None for no file at all; unset: the one of the environment."""
    if isinstance(source, Config):
        return source
    if source is None:
        return Config(source="no config.toml")
    return load(environ)


def named_by(request: RunRequest) -> frozenset[str]:
    """The fields that a request sets itself. One that is equal to its default counts as left out, except for a mode
    and a way of billing that somebody wrote down.
    """
    left_out = RunRequest(prompt="")
    named = {
        name
        for name in RunRequest.__struct_fields__
        if getattr(request, name) != getattr(left_out, name)
        or (name in ("mode", "billing") and getattr(request, name) is not getattr(left_out, name))
    }
    return frozenset(named | {"prompt"})


def filled(request: RunRequest, named: Collection[str], defaults: RunRequest) -> RunRequest:
    """The request with the defaults where it names nothing itself; what grows from layer to layer is merged."""
    changes: dict[str, Any] = {}
    for name in RunRequest.__struct_fields__:
        own, default = getattr(request, name), getattr(defaults, name)
        if name not in named:
            changes[name] = default
        elif name == "limits" and not isinstance(own, Limits):
            raise errors.BadValue("limits", f"is a {type(own).__name__}", hint="Pass leadrope.Limits(…).")
        elif isinstance(own, Limits):
            plain = Limits()
            own_limits = {limit: getattr(own, limit) for limit in Limits.__struct_fields__}
            said = {limit: value for limit, value in own_limits.items() if value != getattr(plain, limit)}
            changes[name] = msgspec.structs.replace(default, **said)
        elif name in _MERGED and isinstance(own, Mapping):
            changes[name] = {**default, **own}
        elif name in _JOINED and isinstance(own, list | tuple):
            changes[name] = tuple(dict.fromkeys((*default, *own)))
        elif name == "policies" and isinstance(own, list | tuple):
            changes[name] = (*default, *own)  # those of a saved agent hold whatever else is said
    return msgspec.structs.replace(request, **changes)


def unknown_field(name: str, others: Iterable[str] = ()) -> errors.BadValue:
    """A keyword that a program has misspelt; `others` are those that are not fields of a request."""
    fields = [
        field for field in RunRequest.__struct_fields__ if field not in ("prompt", "agent_from", "attachment_root")
    ]
    hint = "`help(leadrope.RunRequest)` lists the fields; clocks and the budget are fields of leadrope.Limits."
    limits = close_matches(name, Limits.__struct_fields__, n=1)
    if name in _RENAMED:
        hint = _RENAMED[name]
    elif name not in limits and (close := close_matches(name, (*fields, *others), n=2)):
        hint = f"Did you mean {' or '.join(close)}?"
    elif limits:
        hint = f"Write limits=leadrope.Limits({limits[0]}=…)."
    return errors.BadValue(name, "is not a field of a request", hint=hint)


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
            f"{where}: {config.source} has no connection {name!r}", hint=suggest(name, tuple(config.connections))
        )
    return config.connections[name]


def _each(source: str, data: Mapping[str, Any], section: str, kind: type[_T]) -> dict[str, _T]:
    # One by one: the decoder's own path says `[...]` where the user wrote a name.
    table = _section(source, section, data.get(section, {}), dict[str, dict[str, Any]])
    return {name: _section(source, dotted(section, name), value, kind) for name, value in table.items()}


def _section(source: str, where: str, data: Any, kind: type[_T]) -> _T:
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        message, path = split(error)
        place = f"{where}{_named(data, path, kind)}"
        unknown = unknown_key(message)
        if unknown is not None:
            raise _unknown(source, place, unknown, _fields(kind, path)) from None
        wrong, hint = in_words(message, kind, path)
        if path == ".limits.budget_usd":
            hint = 'Write a number, or "none".'
        if not path and hint and where in _SECTIONS and where != "forward_env":
            hint = f"Write [{where}{'.NAME' if where in _NAMED else ''}] on a line of its own."
        raise errors.BadConfig(f"{source}: {place}: {wrong}", hint=hint) from None


def _named(data: Any, path: str, kind: Any) -> str:
    """The path of a wrong value by the names in the file; the decoder says `[...]` for a key of a mapping."""
    if "[...]" not in path:
        return path
    start, _, rest = path.partition("[...]")
    for part in start.split(".")[1:]:
        data = data[part]
        kind = typing.get_type_hints(kind)[part]
    inner = next(option for option in (kind, *get_args(kind)) if typing.get_origin(option) is dict)
    for name, value in data.items():
        try:
            msgspec.convert(value, get_args(inner)[1])
        except msgspec.ValidationError:
            return f"{start}.{name}{rest}"
    return path


def _fields(kind: Any, path: str) -> tuple[str, ...]:
    struct = LimitDefaults if path == ".limits" else kind
    return getattr(struct, "__struct_fields__", ())


def _unknown(source: str, where: str, key: str, known: tuple[str, ...]) -> errors.BadConfig:
    hint = _elsewhere(where, key, known) or {**_ELSEWHERE, **_RENAMED}.get(key) or suggest(key, known)
    return errors.BadConfig(f"{source}: {where + '.' if where else ''}{key} is not a known key", hint=hint)


_MEANT = {
    "budget": "budget_usd",
    "max_budget": "budget_usd",
    "max_budget_usd": "budget_usd",
    "timeout": "idle_s",
    "timeout_s": "idle_s",
    "timeout_secs": "idle_s",
    "idle_secs": "idle_s",
    "wall_secs": "wall_s",
    "memory": "memory_mb",
}
"""What people write for the limits of a run, and what they are called."""


def _elsewhere(where: str, key: str, known: tuple[str, ...]) -> str | None:
    """The table that a key belongs to, when it is right and stands in the wrong place."""
    if where not in ("", "run") and not where.startswith(("profiles.", "agents.")):
        return None
    limit = _MEANT.get(key, key)
    if limit in LimitDefaults.__struct_fields__ and "limits" in (*known, *RunDefaults.__struct_fields__):
        return f"Write {limit} under [{where or 'run'}.limits]."
    if not where and key in RunDefaults.__struct_fields__:
        return f"{key} belongs under [run]."
    return None


def _bad_override(error: msgspec.ValidationError) -> errors.BadValue:
    message, path = split(error)
    unknown = unknown_key(message)
    field = path.removeprefix(".")
    if unknown is not None:
        name = f"{field}.{unknown}" if field else unknown
        known = LimitDefaults.__struct_fields__ if field == "limits" else RunRequest.__struct_fields__
        return errors.BadValue(name, "is not a field of a request", hint=_RENAMED.get(name) or suggest(unknown, known))
    wrong, hint = in_words(message)
    return errors.BadValue(field or "request", wrong, hint=hint)
