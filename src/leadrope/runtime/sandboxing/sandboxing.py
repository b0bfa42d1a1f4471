"""Decides whether a run has a sandbox, at which level, and what it contains; process/sandbox builds it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Literal

import msgspec

from leadrope import errors, spelling
from leadrope.confined import real_path
from leadrope.core import connections, events, home
from leadrope.core.request import RunRequest
from leadrope.core.request_checks import normal_mode
from leadrope.core.request_parts import extra_dirs
from leadrope.policy.resolve import SHIPPED, EffectivePolicy
from leadrope.process.sandbox import availability, git_folders
from leadrope.process.sandbox.values import (
    BASE,
    LOGIN_VARIABLES,
    MODEL_SOCKET,
    PROXY_SOCKET,
    Forward,
    Sandbox,
    Sight,
    Socket,
)
from leadrope.providers import base
from leadrope.runtime.sandboxing import git_config_changes, git_guards, new_repositories, policy_paths
from leadrope.runtime.trust import trust

Level = Literal["workspace", "read-only"]
PROXY_PORT = 8898
MODEL_PORT = 8899
MOST_TOLD = 12
"""Maximum paths in one notice."""


class SandboxRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What request and policy ask for together."""

    level: Level | None
    """None: no sandbox."""
    is_required: bool = False
    """If no sandbox is possible, nothing is started."""
    is_asked: bool = False
    """Somebody asked for it, if only as a preference; the shipped policy does not count."""
    must_hold: bool = False
    """Mode `sandboxed`: nothing is started unless the sandbox enforces everything that the policy blocks and protects.
    """
    model_only: bool = False
    inner: Literal["", "whole", "weak"] = ""
    """The agent will build a sandbox of its own inside; `weak`: one without its own /proc."""


class Sockets(msgspec.Struct, frozen=True, kw_only=True):
    """The only network access of a sandboxed run: our sockets outside of the sandbox."""

    model: Path | None = None
    proxy: Path | None = None
    token: str = ""
    """Identifies the agent itself to the proxy, as opposed to its commands."""


class Targets(msgspec.Struct, frozen=True, kw_only=True):
    """The paths of this machine that the policy and git's settings refer to."""

    area: policy_paths.Area
    found: policy_paths.PolicyPaths = policy_paths.PolicyPaths()
    git: git_guards.GitNamed = git_guards.GitNamed()


class Built(msgspec.Struct, frozen=True, kw_only=True):
    argv: tuple[str, ...] = ()
    env: dict[str, str] = {}
    level: str = ""
    """Empty if there is no sandbox."""
    holds: bool = False
    """There is a sandbox, and everything that the policy blocks or protects is masked or read-only in it."""
    sight: Sight = Sight()
    targets: Targets | None = None
    """What was protected at the start; compared with what is protected at the end."""
    gaps: tuple[str, ...] = ()
    """Programs that git's settings name and that did not exist at the start."""
    notices: tuple[events.Notice, ...] = ()
    """What the user should know about this sandbox, or about its absence."""


def wish(request: RunRequest, rules: EffectivePolicy) -> SandboxRequest:
    """Combine request and policy, the stricter wins; a request that disables a required sandbox is rejected."""
    must_hold = _is_sandboxed_mode(request, rules)
    model_only = must_hold or "model-only" in (request.network, rules.network_reach)
    if request.sandbox == "off":
        if must_hold:
            raise errors.BadValue("sandbox", "mode sandboxed needs the sandbox", hint=_other_mode())
        if rules.sandbox == "required" or model_only:
            hint = f"Leave {spelling.option('sandbox')} out, or change the policy."
            raise errors.BadValue("sandbox", "the policy requires a sandbox", hint=hint)
        return SandboxRequest(level=None)
    if request.sandbox is None and rules.sandbox == "off" and not model_only:
        return SandboxRequest(level=None)
    level: Level = "read-only" if "read-only" in (request.sandbox, rules.sandbox_level) else "workspace"
    is_required = request.sandbox is not None or rules.sandbox == "required" or model_only
    is_asked = is_required or rules.origin.get("sandbox") != SHIPPED
    return SandboxRequest(
        level=level,
        is_required=is_required,
        is_asked=is_asked,
        must_hold=must_hold,
        model_only=model_only,
        inner=_inner(request),
    )


def _other_mode() -> str:
    return f"Use {spelling.option('mode', 'edit')}, which works without a sandbox and asks for commands."


def _is_sandboxed_mode(request: RunRequest, rules: EffectivePolicy) -> bool:
    """Whether the run's own mode is `sandboxed`, or a layer's, if the run's own would allow more."""
    mode = normal_mode(request.mode)
    return mode == "sandboxed" or (mode == "full" and "sandboxed" in rules.permission_mode)


def _inner(request: RunRequest) -> Literal["", "whole", "weak"]:
    """Root that becomes another user cannot give that user a new /proc, so only a weak sandbox can be nested."""
    told = request.agent_sandbox or {}
    if not told.get("enabled"):
        return ""
    is_weak = bool(told.get("enableWeakerNestedSandbox")) and _is_anothers(request.cwd or ".")
    return "weak" if is_weak else "whole"


async def grant(wanted: SandboxRequest, *, memory: Path | None = None) -> tuple[SandboxRequest, str]:
    """Return the request as far as this machine supports it, and what is missing; an unmet requirement is an error.

    Not every machine lets the agent build its own sandbox inside. That one was requested explicitly, so a sandbox that
    is only preferred yields to it. `memory` is the file that records that sandboxes work here.
    """
    if wanted.level is None:
        return wanted, ""
    found = await availability.try_sandbox(whole=wanted.model_only or bool(wanted.inner), memory=memory)
    missing = found.reason if not found.ok else ""
    if found.ok and wanted.model_only and not found.model_only:
        missing = "a network of its own does not work here"
    if found.ok and wanted.inner == "whole" and not found.nested:
        missing = MAKES_WAY
        if wanted.is_required:
            raise errors.BadValue(
                "sandbox",
                "the agent's own sandbox does not work inside leadrope's sandbox here",
                hint="Use one of the two: drop `sandbox`, or switch leadrope's off. Where root works for another user, "
                "enableWeakerNestedSandbox lets both stand.",
            )
    if not missing:
        return wanted, ""
    if wanted.must_hold:
        raise _no_mode(missing, found.hint)
    if wanted.is_required:
        raise errors.SandboxUnavailable(f"the sandbox that this run needs cannot be built: {missing}", hint=found.hint)
    return msgspec.structs.replace(wanted, level=None), missing


MAKES_WAY = (
    "the agent's own sandbox does not work inside leadrope's here, so that leadrope's makes way for it; it holds "
    "commands alone, and neither edits nor the agent itself"
)


def _no_mode(reason: str, hint: str | None = None) -> errors.SandboxUnavailable:
    told = f"mode sandboxed needs a sandbox that holds: {reason}"
    return errors.SandboxUnavailable(told, hint=f"{_other_mode()} {hint or ''}".strip())


def no_sandbox(wanted: SandboxRequest, missing: str) -> events.Notice:
    """Return the notice that is given at every run: a warning if a sandbox was asked for, otherwise information."""
    return events.Notice(
        level="warning" if wanted.is_asked or missing == MAKES_WAY else "info",
        code="no_sandbox",
        message=f"the agent runs without a sandbox: {missing}",
    )


def search(granted: SandboxRequest, request: RunRequest, place: base.StartContext, rules: EffectivePolicy) -> Targets:
    """Find the paths to mask or protect. Reads only; takes 5 ms, plus 2.5 ms per 1,000 files."""
    roots = tuple(real_path(folder) for folder in (request.cwd or ".", *extra_dirs.paths(request.extra_dirs)))
    user_home = real_path(home.user_home(place.environ))
    area = policy_paths.Area(roots=roots, home=user_home, blocked=rules.blocked_paths, protected=rules.protected_paths)
    found = policy_paths.PolicyPaths()
    if own := next((root for root in roots if root in BASE), None):
        # No sandbox can be built around it, and searching all of /tmp would take minutes.
        found = policy_paths.PolicyPaths(problem=f"a sandbox has its own {own}")
    elif granted.level is not None:
        found = policy_paths.find(area)
    return Targets(area=area, found=found, git=git_guards.look(roots, user_home, place.environ))


def build(
    granted: SandboxRequest,
    request: RunRequest,
    launch: base.Launch,
    place: base.StartContext,
    rules: EffectivePolicy,
    doors: Sockets,
    targets: Targets | None = None,
) -> Built:
    """Build the sandbox. Everything that `launch` names must exist, and so must the sockets."""
    if granted.level is None:
        _refuse_root(launch.cwd)
        return Built()
    targets = targets or search(granted, request, place, rules)
    work = tuple(real_path(folder) for folder in (launch.cwd, *extra_dirs.writable(request.extra_dirs)))
    gaps = git_guards.fill_gaps(targets.git, work) if granted.level == "workspace" else ()
    spec = _spec(granted, granted.level, request, launch, place, rules, doors, targets)
    try:
        box = availability.prepare(spec)
        lacks = _lacks(granted, targets, box.unmasked)
    except (errors.BadValue, errors.BadDirectory, errors.SandboxUnavailable) as error:
        # A folder that cannot be sandboxed (such as /tmp itself) must not stop a run that works without a sandbox.
        if granted.must_hold:
            raise _no_mode(error.message, error.hint) from None
        if granted.is_required:
            raise
        _refuse_root(launch.cwd)
        return Built(notices=(no_sandbox(granted, error.message),))
    except OSError as error:
        # Never fall back to no sandbox here: an agent could cause that by removing read permission from a folder.
        raise errors.BadDirectory(
            f"no sandbox can be built around {launch.cwd}: {error.filename or 'a folder'}: {error.strerror or error}",
            hint="Check the permissions of the workspace and of its extra folders.",
        ) from None
    told = tuple(
        events.Notice(
            level="warning",
            code="hidden_by_sandbox",
            message=f"{path} is named in the settings, and hidden from agents",
        )
        for path in box.unshown
    )
    if lacks:
        message = f"the sandbox is there, but does not hold everything: {lacks}; what a command may do is asked for"
        told = (*told, events.Notice(level="warning", code="sandbox_incomplete", message=message))
    return Built(
        argv=box.argv,
        env={**box.env, **_addresses(doors, launch)},
        level=granted.level,
        holds=not lacks,
        sight=box.sight,
        targets=targets,
        gaps=gaps,
        notices=told,
    )


def _lacks(granted: SandboxRequest, targets: Targets, unmasked: tuple[str, ...]) -> str:
    """Return what this sandbox cannot enforce; if that was required, raise an error."""
    lacks = targets.found.problem or targets.git.problem
    if unmasked:
        lacks = f"{unmasked[0]} is a blocked program and the system's shell too"
    is_blocked = bool(targets.found.problem and targets.area.blocked)
    if lacks and (granted.must_hold or (granted.is_required and is_blocked)):
        raise errors.SandboxUnavailable(
            f"the sandbox cannot mask what the policy blocks or protects: {lacks}",
            hint="Write such paths without wildcards and relative to the workspace, or work in a smaller folder.",
        )
    return lacks


async def settled(built: Built, approved: Collection[str] = ()) -> list[events.Notice]:
    """Check, after the agent's end, what it left for the user's own programs to run, and remove what must not stay.

    `approved` are the paths that calls were allowed to write.
    """
    notices = [*_disarmed(built, approved), *await asyncio.to_thread(lambda: list(_made(built, approved)))]
    if built.sight.views:
        notices += await asyncio.to_thread(lambda: list(git_config_changes.settle(built.sight.views)))
    return notices


def _made(built: Built, approved: Collection[str]) -> Iterator[events.Notice]:
    """Report protected paths that were missing at the start, could not be made read-only, and now exist."""
    if built.targets is None or built.level != "workspace":
        return
    area = msgspec.structs.replace(built.targets.area, blocked=())
    known = {*built.targets.found.protected, *built.targets.git.paths}
    found = policy_paths.find(area)
    new = [path for path in found.protected if path not in known]
    old = set(_repositories(built.targets.found))
    yield from new_repositories.told(path for path in _repositories(found) if path not in old)
    unapproved = [path for path in new if not any(_is_at(wanted, path) for wanted in approved)]
    if unapproved:
        more = f" and {len(unapproved) - MOST_TOLD} more" if len(unapproved) > MOST_TOLD else ""
        message = (
            "commands created protected paths that did not exist before, without an approval: "
            f"{', '.join(unapproved[:MOST_TOLD])}{more}; check them before you use them"
        )
        yield events.Notice(level="warning", code="protected_made", message=message)


def _repositories(found: policy_paths.PolicyPaths) -> tuple[str, ...]:
    return (*found.git_roots, *found.repositories, *found.linked)


def _is_at(path: str, place: str) -> bool:
    return path == place or path.startswith(f"{place}/")


def _disarmed(built: Built, approved: Collection[str]) -> Iterator[events.Notice]:
    gaps = [path for path in built.gaps if not any(_is_at(wanted, real_path(path)) for wanted in approved)]
    named = "which git's settings name as a program"
    others = "by which git would run with other settings"
    found = [(named, each) for each in git_folders.disarm(gaps)]
    found += [(others, each) for each in git_folders.disarm(built.sight.plantable)]
    for why, (path, problem) in found:
        now = f"it is now {path}.planted"
        if problem:
            now = f"it cannot be renamed ({problem}): remove it before you use git there"
        yield events.Notice(
            level="warning",
            code="git_planted",
            message=f"the agent made {path}, {why}; {now}",
        )


def _spec(
    granted: SandboxRequest,
    level: Level,
    request: RunRequest,
    launch: base.Launch,
    place: base.StartContext,
    rules: EffectivePolicy,
    doors: Sockets,
    targets: Targets,
) -> Sandbox:
    sockets = [Socket(outside=str(doors.model))] if doors.model else []
    forwards = [Forward(port=MODEL_PORT, socket=MODEL_SOCKET)] if doors.model else []
    if doors.proxy:
        sockets.append(Socket(outside=str(doors.proxy), inside=PROXY_SOCKET))
        forwards.append(Forward(port=PROXY_PORT, socket=PROXY_SOCKET))
    # Without HOME an agent would use the user's home from the password file.
    user_home = Path(launch.env.get("HOME") or home.user_home(place.environ))
    servers = connections.fill(request.connections, place.environ).servers.values()
    # For an agent that is an interpreter's script. No other argument: those contain texts of the repository.
    script = [word for word in launch.argv[1:4] if Path(word).is_absolute() and Path(word).is_file()][:1]
    # The agent notices changes of settings files that it has read, and starts what they contain then.
    given_to = (place.home, launch.cwd, request.extra_dirs, home.user_home(place.environ))
    kept = [path for found in trust.of_run(*given_to) for path in found.kept()] if place.is_trusted else []
    added = extra_dirs.read_only(request.extra_dirs)
    given = {name: launch.env[name] for name in (*place.config.forward_env, *request.variables) if name in launch.env}
    return Sandbox(
        level=level,
        workspace=launch.cwd,
        run_dir=str(place.run_dir),
        config_dir=launch.config_dir,
        login=tuple(path for path in launch.own_login if Path(path).exists()),
        home=str(user_home),
        kept=tuple(kept),
        guarded=(*targets.found.protected, *filter(os.path.lexists, map(real_path, targets.git.paths))),
        blocked=targets.found.blocked,
        repositories=targets.found.repositories,
        hidden=_own_folders(place),
        binary=launch.argv[0],
        path=launch.env.get("PATH", ""),
        programs=(*launch.argv[: len(script)], *(server.command for server in servers if server.command)),
        named=(
            *script,
            *(word for server in servers for word in (*server.args, *server.env.values())),
            *given.values(),
        ),
        readable=tuple(dict.fromkeys((*launch.shown, *added, *(str(Path(file.path).parent) for file in launch.files)))),
        writable=extra_dirs.writable(request.extra_dirs),
        opened=launch.opened,
        masked=tuple(sorted(rules.blocked_programs)),
        must_mask=granted.is_required,
        network="model-only" if granted.model_only else "host",
        sockets=tuple(sockets),
        forwards=tuple(forwards),
    )


def _addresses(doors: Sockets, launch: base.Launch) -> dict[str, str]:
    """Return the addresses of the sockets for the agent and its commands."""
    env: dict[str, str] = {}
    if doors.model:
        env |= {"ANTHROPIC_UNIX_SOCKET": MODEL_SOCKET, "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{MODEL_PORT}"}
    if doors.proxy:
        from leadrope.runtime.broker.proxy import USER  # noqa: PLC0415  # a run without a network of its own needs it

        # Only if commands cannot see it: they are started without it.
        known = f"{USER}:{doors.token}@" if doors.token and launch.commands_apart else ""
        address = f"http://{known}127.0.0.1:{PROXY_PORT}"
        env |= {"HTTP_PROXY": address, "HTTPS_PROXY": address, "http_proxy": address, "https_proxy": address}
    return env


def _is_anothers(workspace: str) -> bool:
    """Return whether root would work in a folder of another user."""
    return hasattr(os, "geteuid") and os.geteuid() == 0 and Path(workspace).stat().st_uid != 0


def _refuse_root(workspace: str) -> None:
    """Refuse to run as root in another user's folder without a sandbox.

    In a sandbox root becomes the owner of the workspace. Without one that is not possible, and the other user would
    later run what root's agent leaves there.
    """
    if _is_anothers(workspace):
        owner = Path(workspace).stat().st_uid
        raise errors.BadDirectory(
            f"{workspace} belongs to user {owner}, and without a sandbox the agent would work there as root",
            hint=f"Run leadrope as that user (`setpriv --reuid {owner} --clear-groups leadrope ...`, or a container's "
            f"--user {owner}), install bubblewrap so that the sandbox can do it, or give the folder to root.",
        )


def _own_folders(place: base.StartContext) -> tuple[str, ...]:
    """Hide leadrope's database, keys and settings from the agent, and any login that it does not use."""
    folders = [str(place.home)]
    config = Path(place.config.source)
    if config.is_absolute() and config.is_file():
        # Our own folder is hidden as a whole; if the user moved the file, its folder is his and may be the workspace
        # itself.
        own = config.parent if config.parent.name == "leadrope" else config
        folders.append(real_path(own))
    logins = filter(None, map(place.environ.get, LOGIN_VARIABLES))  # if such a login is used, it is added back
    return (*folders, *(real_path(login) for login in logins if Path(login).is_dir()))


def allowed_hosts(lists: tuple[tuple[str, ...], ...], blocked: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the hosts that every layer allows and none blocks, in the proxy's format, for every port.

    They are the same hosts that the gate lets WebFetch reach.
    """
    entries = dict.fromkeys(entry for entries in lists for entry in entries)
    common = [entry for entry in entries if all(any(_covers(wide, entry) for wide in other) for other in lists)]
    return (*(f"{_host(entry)}:*" for entry in common), *(f"!{_host(entry)}" for entry in blocked)) if common else ()


def _covers(wide: str, entry: str) -> bool:
    return wide == entry or (wide.startswith("*.") and entry.removeprefix("*").endswith(wide[1:]))


def _host(entry: str) -> str:
    return f"[{entry}]" if ":" in entry else entry
