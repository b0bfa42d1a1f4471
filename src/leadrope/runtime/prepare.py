"""A request completed by what this machine knows: where the agent is, the folder it works in, what is trusted there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from leadrope import errors
from leadrope.confined import Folder
from leadrope.core import config as configs
from leadrope.core import events, home
from leadrope.core.request import Limits, McpFile, RunRequest
from leadrope.core.request_checks import check, normal_mode
from leadrope.policy import limits as caps
from leadrope.policy import patterns
from leadrope.policy.files import sources
from leadrope.policy.resolve import EffectivePolicy
from leadrope.providers import base
from leadrope.runtime import working_directory
from leadrope.runtime.agents import saved_agents
from leadrope.runtime.connections import programs
from leadrope.runtime.trust import trust
from leadrope.runtime.trust.files import PROJECT

_MOST_MCP_BYTES = 1024 * 1024


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    request: RunRequest
    rules: EffectivePolicy
    """Of all layers together."""
    config: configs.Config
    """What the policy says of it counted in."""
    is_trusted: bool
    """The agent may read the settings that the repository has for it."""
    notices: tuple[events.Notice, ...]


def complete(
    request: RunRequest,
    config: configs.Config,
    environ: Mapping[str, str],
    leadrope_home: Path,
    *,
    waits: bool = False,
) -> Prepared:
    """The request with nothing left open, or the first thing that is wrong with it. Starts nothing.

    `waits`: an approval has no time limit unless the request or the policy sets one.
    """
    request = check(_with_machine(saved_agents.applied(request, config, environ), config))
    _check_grants(request.allow)
    _check_tools("tools", request.tools or ())
    _check_tools("disallowed_tools", request.disallowed_tools)
    cwd = working_directory.working_directory(request.cwd)
    layers = _layers(request, cwd, environ, leadrope_home)
    limits = _asked_limits(request.limits, environ)
    rules = layers.effective(lifted=caps.lifted(limits))
    asked_to_wait = request.wait_for_limit
    request = msgspec.structs.replace(
        _with_project(request, layers),
        cwd=cwd,
        extra_dirs=tuple(working_directory.extra_directory(folder, cwd) for folder in request.extra_dirs),
        mode=normal_mode(request.mode),
        limits=caps.capped(_whole_limits(limits, waits=waits), rules),
        wait_for_limit=request.wait_for_limit and rules.wait_for_limit,
        # The shipped `auto` is what holds where the caller says nothing; true holds whatever he says.
        broker=True if rules.broker is True else request.broker,
    )
    found, *others = trust.of_run(leadrope_home, cwd, request.extra_dirs, home.user_home(environ))
    is_trusted = found.state == "trusted"
    if is_trusted:
        request = check(_with_repository(request))
    missing = programs.missing(request.connections, cwd, environ)
    if missing:
        # The agent would only fail to start them, and be the second to say so.
        there = {name: server for name, server in request.connections.items() if name not in missing}
        request = msgspec.structs.replace(request, connections=there)
    ignored = tuple(events.Notice(level="warning", code="project_ignored", message=told) for told in layers.notices)
    broken = tuple(
        events.Notice(level="warning", code="broken_agent", message=told)
        for told in saved_agents.broken_notices(config, layers.broken_agents)
    )
    doubts = _about_others(others) if is_trusted else ()
    lowered = tuple(
        events.Notice(level="warning", code="limit_lowered", message=message) for message in caps.lowered(limits, rules)
    )
    notices = (
        *missing.values(),
        *_about_trust(found),
        *doubts,
        *ignored,
        *broken,
        *lowered,
        *(_no_waiting(rules) if asked_to_wait else ()),
    )
    return Prepared(
        request=request,
        rules=rules,
        config=_priced(config, rules),
        # Where there are none, the agent would take those that it has made itself: it looks for changes as it works.
        is_trusted=is_trusted and not doubts and Path(cwd, ".claude").is_dir(),
        notices=notices,
    )


def _check_grants(allow: Sequence[str]) -> None:
    """A grant that could never match would leave its user with questions that he believes answered."""
    for entry in allow:
        try:
            patterns.parse(entry)
        except errors.BadValue as error:
            raise errors.BadValue("allow", error.message.partition(": ")[2], hint=error.hint) from None


def _check_tools(field: str, entries: Sequence[str]) -> None:
    """A misspelt tool in the list would leave the agent without it, and without a word about it."""
    for entry in entries:
        try:
            patterns.check_tool(entry)
        except errors.BadValue as error:
            raise errors.BadValue(field, error.message.partition(": ")[2], hint=error.hint) from None


def _priced(config: configs.Config, rules: EffectivePolicy) -> configs.Config:
    if rules.unknown_price != "refuse":
        return config
    return msgspec.structs.replace(config, prices=msgspec.structs.replace(config.prices, unknown="refuse"))


def _layers(request: RunRequest, cwd: str, environ: Mapping[str, str], leadrope_home: Path) -> sources.Sources:
    return sources.gather_policy(
        config=home.config_file(environ),
        home=leadrope_home,
        # Rules of an agent that is not of the configuration came with it, into `policies`.
        agent=request.agent if request.agent_from in (None, "config") else None,
        cwd=Path(cwd),
        policies=tuple(Path(name).expanduser() for name in request.policy_files),
        values=request.policy or None,
        more=request.policies,
    )


def _with_project(request: RunRequest, layers: sources.Sources) -> RunRequest:
    """A project may propose a model or a prompt; whoever starts the run has the last word."""
    proposed = layers.project.run if layers.project else {}
    unsaid = {name: value for name, value in proposed.items() if getattr(request, name) is None}
    if request.purpose is not None:
        unsaid.pop("model", None)  # the purpose is the caller's word on the model
    return msgspec.structs.replace(request, **unsaid) if unsaid else request


def _with_machine(request: RunRequest, config: configs.Config) -> RunRequest:
    """Where the agent and its model are found belongs to the machine, so a program need not say it."""
    given = {name: getattr(request, name) for name in ("binary", "base_url")}
    missing = {name: getattr(config.run, name) for name, value in given.items() if value is None}
    found = {name: value for name, value in missing.items() if value is not msgspec.UNSET}
    return msgspec.structs.replace(request, **found) if found else request


def _with_repository(request: RunRequest) -> RunRequest:
    """A trusted repository's own servers; what the caller gives under the same name wins."""
    path = Path(request.cwd or ".", ".mcp.json")
    try:
        with Folder.open(path.parent, hard_links=True) as folder:
            content = folder.read_bytes(folder.resolve(path.name), most=_MOST_MCP_BYTES)
        told = msgspec.json.decode(content, type=McpFile)
    except FileNotFoundError:
        return request
    except (OSError, errors.UnsafeFile, msgspec.MsgspecError, RecursionError) as error:
        raise errors.BadConfig(
            f"{path} cannot be read: {error}", hint="Correct it, or `leadrope trust --forget`."
        ) from None
    # The repository's wishes must not stop a run that would do without them.
    servers = {name: msgspec.structs.replace(server, required=False) for name, server in told.servers.items()}
    return msgspec.structs.replace(request, connections={**servers, **request.connections})


def looked_again(
    place: base.StartContext, request: RunRequest, tell: Callable[[events.Notice], None]
) -> base.StartContext:
    """Before each start: to what an attempt has made of a trusted repository's settings nobody has said yes."""
    if not place.is_trusted:
        return place
    found, *others = trust.of_run(place.home, str(request.cwd), request.extra_dirs, home.user_home(place.environ))
    lost = (*_about_trust(found), *_about_others(others))
    for notice in lost:
        tell(notice)
    return msgspec.structs.replace(place, is_trusted=not lost)


def _about_trust(found: trust.Trust) -> tuple[events.Notice, ...]:
    if found.state in ("nothing", "trusted"):
        return ()
    # The project's own rules are not among what is ignored.
    names = ", ".join(sorted(found.changed or found.files.keys() - {PROJECT})[:5])
    way = f"they cannot be trusted: {found.problem}" if found.problem else "`leadrope trust` lets them have effect"
    told = {
        "untrusted": f"the repository's own settings are ignored ({names}); {way}",
        "changed": f"the repository's settings changed since they were trusted ({names}) and are ignored; "
        "`leadrope trust` looks again",
    }[found.state]
    level: Literal["info", "warning"] = "warning" if found.state == "changed" else "info"
    return (events.Notice(level=level, code=f"repository_{found.state}", message=told),)


def _about_others(others: Sequence[trust.Trust]) -> tuple[events.Notice, ...]:
    """The agent has one switch for all folders: it reads the settings of each of them, or of none."""
    doubtful = [found.folder for found in others if found.state not in ("nothing", "trusted")]
    told = "the repository's own settings are ignored: with them those of {} would be read, which nobody has trusted"
    return tuple(
        events.Notice(
            level="warning", code="repository_untrusted", message=f"{told.format(folder)}; `leadrope trust DIR`"
        )
        for folder in doubtful
    )


def _no_waiting(rules: EffectivePolicy) -> tuple[events.Notice, ...]:
    """Said at the start: whoever asked for it would else learn of it hours later, from a run that has ended."""
    if rules.wait_for_limit:
        return ()
    told = f"the policy ({rules.layer_of('wait_for_limit')}) lets no run wait for the reset of a usage limit"
    message = f"{told}; at one this run ends as parked"
    return (events.Notice(level="warning", code="no_waiting", message=message),)


def _asked_limits(limits: Limits, environ: Mapping[str, str]) -> Limits:
    """What the request leaves open is the operator's to say (LEADROPE_SPAWN_*)."""
    said = {name: value for name, value in configs.env_limits(environ).items() if getattr(limits, name) is None}
    return msgspec.structs.replace(limits, **said)


def _whole_limits(limits: Limits, *, waits: bool) -> Limits:
    """The built-in clocks where nobody has asked for others."""
    idle_s, wall_s = (300.0 if limits.idle_s is None else limits.idle_s), limits.wall_s or 0.0
    approval_s = limits.approval_s
    if approval_s is None:
        approval_s = 0.0 if waits else 300.0
    return msgspec.structs.replace(limits, idle_s=idle_s, wall_s=wall_s, approval_s=approval_s)
