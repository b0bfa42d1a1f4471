"""Describes what the sandbox blocked for a step's command, and what to do about it.

The sandbox reports nothing by itself: system calls fail, or a file is written that vanishes. So the cause is inferred
from the command's output, the files it names, and those it left behind. Failures that have another cause, or would
occur without a sandbox too, are not reported.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import msgspec

from leadrope.core import events
from leadrope.core.tools import ToolCall
from leadrope.process.sandbox.values import BASE, Sight
from leadrope.regex import regex
from leadrope.runtime.sandboxing import lost_files, sandbox_violations

Kind = Literal["lost", "hidden", "refused", "network", "login"]

MOST_TOLD = 4
_OFF = "`--sandbox off` runs it without one"


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    kind: Kind
    target: str
    message: str
    """What the sandbox did, and the option that changes it."""


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """Output by which a program shows that it found no login, and where the login would be."""

    says: re.Pattern[str]
    program: str
    places: tuple[str, ...] = ()
    """Relative to the home folder."""
    variables: tuple[str, ...] = ()


def _login(says: str, program: str, *places: str, variables: tuple[str, ...] = ()) -> Login:
    return Login(says=regex(says, re.IGNORECASE), program=program, places=places, variables=variables)


_LOGINS = (
    _login(
        r"permission denied \(publickey|host key verification failed|connection to your authentication agent",
        "ssh",
        ".ssh",
    ),
    _login(
        r"gh auth login|not logged in(?:to)? any github", "gh", ".config/gh", variables=("GH_TOKEN", "GITHUB_TOKEN")
    ),
    _login(r"glab auth login", "glab", ".config/glab-cli", variables=("GITLAB_TOKEN",)),
    _login(
        r"could not read (?:username|password) for 'https?:|authentication failed for 'https?:",
        "git",
        *(".git-credentials", ".config/git/credentials", ".netrc"),
    ),
    _login(
        r"unable to locate credentials|the config profile \(.*\) could not be found",
        "aws",
        ".aws",
        variables=("AWS_ACCESS_KEY_ID", "AWS_PROFILE"),
    ),
    _login(r"gcloud auth login|could not find default credentials", "gcloud", ".config/gcloud"),
    _login(r"\baz login\b", "az", ".azure"),
    _login(r"server localhost:8080 was refused|current-context is not set", "kubectl", ".kube"),
    _login(r"\bENEEDAUTH\b|npm (?:ERR!|error) code E401", "npm", ".npmrc", variables=("NPM_TOKEN", "NODE_AUTH_TOKEN")),
    _login(r"gpg: .*no secret key|gpg failed to sign the data", "gpg", ".gnupg"),
    _login(r"no basic auth credentials|requested access to the resource is denied", "docker", ".docker"),
)
_DOCKER = regex(r"cannot connect to the docker daemon|dial unix /\S*docker\.sock", re.IGNORECASE)
_DOCKER_SOCKET = "/var/run/docker.sock"


class EndedCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command that has ended, with what matters here."""

    text: str
    """As written by its author."""
    said: str
    """Its stderr; if it failed, also its stdout."""
    has_failed: bool
    lost: tuple[str, ...] = ()
    refused_hosts: tuple[str, ...] = ()


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    sight: Sight
    environ: Mapping[str, str]
    """The user's environment."""
    passed_on: Mapping[str, str]
    """The part of it that commands receive."""


def limits(command: EndedCommand, around: Surroundings) -> tuple[Limit, ...]:
    """Return a few limits at most, each target once."""
    found: dict[str, Limit] = {}
    for limit in _limits(command, around):
        found.setdefault(limit.target, limit)
        if len(found) >= MOST_TOLD:
            break
    return tuple(found.values())


def _limits(command: EndedCommand, around: Surroundings) -> Iterator[Limit]:
    sight = around.sight
    if command.lost:
        yield _lost(command.lost, sight)
    known = set(command.lost)
    yield from _logins(command, around)
    yield from _refusals(command, sight, known)
    yield from _hidden_files(command.text, sight, known)
    for host in command.refused_hosts:
        yield _network(host)


def _refusals(command: EndedCommand, sight: Sight, known: set[str]) -> Iterator[Limit]:
    call = ToolCall(id="step", name="Bash", input={"command": command.text})
    done = events.ToolCompleted(call_id="step", text=command.said, is_error=command.has_failed)
    for one in sandbox_violations.look(call, done, sight):
        if one.target in known:
            continue
        known.add(one.target)
        if one.kind == "network":
            yield _network(one.target)
        elif one.kind == "signal":
            told = f"the sandbox kept the command from process {one.target}, which is not part of the workflow; {_OFF}"
            yield Limit(kind="refused", target=one.target, message=told)
        elif one.kind == "write":
            told = (
                f"the sandbox did not let the command write {_short(one.target, sight)}; {_to_write(one.target, sight)}"
            )
            yield Limit(kind="refused", target=one.target, message=told)
        else:
            yield _hidden(one.target, sight)


def _hidden_files(text: str, sight: Sight, known: set[str]) -> Iterator[Limit]:
    """Find the user's files that the command names and that the sandbox hides, whatever the command made of that."""
    for named in lost_files.named_in(text, sight.home):
        path = named.path
        is_in_home = path.startswith(f"{sight.home}/")
        if path in known or not is_in_home or not named.is_whole:
            continue
        if sight.of(path) in ("hidden", "private") and _is_file(path):
            known.add(path)
            if not lost_files.is_cache(path.removeprefix(f"{sight.home}/")):
                yield _hidden(path, sight)


def _logins(command: EndedCommand, around: Surroundings) -> Iterator[Limit]:
    if not command.has_failed:
        return
    for login in _LOGINS:
        if login.says.search(command.said):
            ways = [
                f"--add-dir {_short(path, around.sight)}:ro"
                for path in (f"{around.sight.home}/{place}" for place in login.places)
                if around.sight.of(path) in ("hidden", "private") and os.path.lexists(path)
            ]
            ways += [f"--secret {name}" for name in _withheld(login.variables, around)]
            if ways:
                told = f"the sandbox hides the login of {login.program} from commands; run it with {' or '.join(ways)}"
                yield Limit(kind="login", target=login.program, message=told)
    if _DOCKER.search(command.said) and os.path.lexists(_DOCKER_SOCKET):
        told = f"the sandbox hides the socket of docker, because whoever reaches it is root on the machine; {_OFF}"
        yield Limit(kind="login", target="docker", message=told)


def _withheld(names: Iterable[str], around: Surroundings) -> list[str]:
    return [name for name in names if around.environ.get(name) and name not in around.passed_on]


def _lost(paths: tuple[str, ...], sight: Sight) -> Limit:
    first = paths[0]
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    place = "home" if first.startswith(f"{sight.home}/") else "/tmp"  # noqa: S108  # a name
    told = (
        f"{_short(first, sight)}{more} will be lost when the workflow ends: the sandbox gives commands a {place} of "
        f"their own; {_to_write(first, sight)}"
    )
    return Limit(kind="lost", target=first, message=told)


def _hidden(path: str, sight: Sight) -> Limit:
    told = f"the sandbox hides {_short(path, sight)} from commands; run it with --add-dir {_to_read(path, sight)}"
    return Limit(kind="hidden", target=path, message=told)


def _network(host: str) -> Limit:
    told = (
        f"the sandbox did not let the command reach {host or 'a host'}; list it in network.allowed_hosts of your policy"
    )
    return Limit(kind="network", target=host, message=told)


def _to_read(path: str, sight: Sight) -> str:
    folder = os.path.dirname(path)  # noqa: PTH120  # text only
    # A file directly in the home folder or in /tmp is opened alone, not with everything beside it.
    opened = path if folder in (sight.home, *BASE) or os.path.isdir(path) else folder  # noqa: PTH112
    return f"{_short(opened, sight)}:ro"


def _to_write(path: str, sight: Sight) -> str:
    folder = os.path.dirname(path)  # noqa: PTH120  # text only
    while folder not in ("/", "") and not os.path.isdir(folder):  # noqa: PTH112
        folder = os.path.dirname(folder)  # noqa: PTH120
    if folder in ("/", "", sight.home, *BASE) or f"{sight.home}/".startswith(f"{folder}/"):
        return f"write into the workspace instead, or into a folder that you give with --add-dir; {_OFF}"
    return f"write into the workspace instead, or run it with --add-dir {_short(folder, sight)}"


def _short(path: str, sight: Sight) -> str:
    home = sight.home.rstrip("/")
    return f"~{path.removeprefix(home)}" if home and (path == home or path.startswith(f"{home}/")) else path


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)  # noqa: PTH116  # of the user, not of an agent
    except OSError:
        return False
