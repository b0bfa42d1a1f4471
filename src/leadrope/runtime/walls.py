"""Whether a run has walls, how high, and what of the machine is inside; the building itself is process/sandbox's."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from leadrope import errors
from leadrope.core.request import RunRequest
from leadrope.policy.resolve import EffectivePolicy
from leadrope.process import sandbox_trial
from leadrope.process.sandbox_values import MODEL_SOCKET, PROXY_SOCKET, Forward, Sandbox, Socket
from leadrope.providers import base

Level = Literal["workspace", "read-only"]
PROXY_PORT = 8898
MODEL_PORT = 8899


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What request and policy together ask for."""

    level: Level | None
    """None: no walls."""
    is_required: bool = False
    """Without them nothing is started."""
    model_only: bool = False


class Doors(msgspec.Struct, frozen=True, kw_only=True):
    """The ways out of a run that reaches nothing else: sockets of ours outside of the box."""

    model: Path | None = None
    proxy: Path | None = None


class Built(msgspec.Struct, frozen=True, kw_only=True):
    argv: tuple[str, ...] = ()
    env: dict[str, str] = {}
    level: str = ""
    """Empty: there are no walls."""


def wish(request: RunRequest, rules: EffectivePolicy) -> Wish:
    """The stricter of both; a request that turns the walls off where they are required is refused."""
    model_only = "model-only" in (request.network, rules.network_reach)
    if request.walls == "off":
        if rules.sandbox == "required" or model_only:
            raise errors.BadValue("walls", "the policy requires them", hint="Leave walls out, or change the policy.")
        return Wish(level=None)
    if request.walls is None and rules.sandbox == "off" and not model_only:
        return Wish(level=None)
    level: Level = "read-only" if "read-only" in (request.walls, rules.sandbox_level) else "workspace"
    is_required = request.walls is not None or rules.sandbox == "required" or model_only
    return Wish(level=level, is_required=is_required, model_only=model_only)


async def grant(wanted: Wish, *, has_inner: bool = False) -> tuple[Wish, str]:
    """The wish as far as this machine can grant it, and what it cannot; a requirement that it cannot is an error.

    `has_inner`: the agent is to build a sandbox of its own inside, which not every machine allows.
    """
    if wanted.level is None:
        return wanted, ""
    found = await sandbox_trial.available()
    if found.ok and has_inner and not found.nested:
        raise errors.BadValue(
            "sandbox",
            "the agent's own sandbox does not work inside these walls here",
            hint="Use one of the two: drop sandbox, or turn the walls off.",
        )
    missing = found.reason if not found.ok else ""
    if found.ok and wanted.model_only and not found.model_only:
        missing = "a network of its own does not work here"
    if not missing:
        return wanted, ""
    if wanted.is_required:
        raise errors.SandboxUnavailable(f"the walls that this run needs cannot be built: {missing}", hint=found.hint)
    return Wish(level=None), missing


def build(
    granted: Wish, request: RunRequest, launch: base.Launch, place: base.Place, rules: EffectivePolicy, doors: Doors
) -> Built:
    """Everything that `launch` names exists by now; so do the sockets."""
    if granted.level is None:
        return Built()
    sockets = [Socket(outside=str(doors.model))] if doors.model else []
    forwards: list[Forward] = []
    env: dict[str, str] = {}
    if doors.model:
        env |= {"ANTHROPIC_UNIX_SOCKET": MODEL_SOCKET, "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{MODEL_PORT}"}
        forwards.append(Forward(port=MODEL_PORT, socket=MODEL_SOCKET))
    if doors.proxy:
        sockets.append(Socket(outside=str(doors.proxy), inside=PROXY_SOCKET))
        forwards.append(Forward(port=PROXY_PORT, socket=PROXY_SOCKET))
        address = f"http://127.0.0.1:{PROXY_PORT}"
        env |= {"HTTP_PROXY": address, "HTTPS_PROXY": address, "http_proxy": address, "https_proxy": address}
    user_home = Path(launch.env["HOME"])
    own = (user_home / ".claude", user_home / ".claude.json") if launch.config_dir is None else ()
    spec = Sandbox(
        level=granted.level,
        workspace=launch.cwd,
        run_dir=str(place.run_dir),
        config_dir=launch.config_dir,
        login=tuple(str(path) for path in own if path.exists()),
        home=str(user_home),
        hidden=_own_folders(place),
        binary=launch.argv[0],
        path=launch.env.get("PATH", ""),
        writable=request.extra_dirs,
        masked=tuple(sorted(rules.blocked_programs)),
        network="model-only" if granted.model_only else "host",
        sockets=tuple(sockets),
        forwards=tuple(forwards),
    )
    box = sandbox_trial.prepare(spec)
    return Built(argv=box.argv, env={**box.env, **env}, level=granted.level)


def _own_folders(place: base.Place) -> tuple[str, ...]:
    """Leadrope's database, keys and settings are not there for the agent."""
    folders = [str(place.home)]
    config = Path(place.config.source).parent
    if config.is_dir() and config != Path():
        folders.append(str(config.resolve()))
    return tuple(folders)


def allowed_hosts(lists: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    """What every layer's list names, as the proxy writes it: with the hosts below, and for every port."""
    if not lists:
        return ()
    first, *others = lists
    common = [host for host in first if all(host in other for other in others)]
    names = [host for host in common if not host[:1].isdigit() and not host.startswith(("*.", "["))]
    return (*(f"{host}:*" for host in common), *(f"*.{host}:*" for host in names))
