"""What a workflow's commands may use besides their workspace: folders, a sandbox level, variables and secrets.

The user grants it with flags. A workflow file may only ask for it, and never for a key folder or a credential.
"""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from leadrope import errors, spelling
from leadrope.confined import real_path
from leadrope.core import home as homes
from leadrope.core.request_parts import extra_dirs
from leadrope.core.secrets.redaction import SHORTEST
from leadrope.core.secrets.secret_names import is_secret_name
from leadrope.process import environment as environments
from leadrope.process.sandbox.values import BASE, SECRETS
from leadrope.runtime import working_directory

Level = Literal["workspace", "read-only", "off"]
_SOCKETS = ("/run", "/var/run")
"""Access to the sockets here means acting as their user; a workflow file cannot ask for them."""


class SharedFolder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A folder outside the workspace, or a read-only file."""

    path: str
    """Absolute, with links resolved."""
    is_read_only: bool = False
    is_key: bool = False
    """A place that the sandbox always hides, opened by the user himself. Agents do not get it."""

    def __str__(self) -> str:
        return extra_dirs.spell(self.path, is_read_only=self.is_read_only)

    def covers(self, other: SharedFolder) -> bool:
        is_inside = other.path == self.path or other.path.startswith(self.path.rstrip("/") + "/")
        return is_inside and (other.is_read_only or not self.is_read_only)


class Access(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one execution may use. Contains no secret: values are looked up at each start."""

    folders: tuple[SharedFolder, ...] = ()
    sandbox: Level | None = None
    """None: as in the policy."""
    variables: tuple[str, ...] = ()
    """Environment variables passed to commands."""
    values: dict[str, str] = {}
    """Variables given with their values."""
    secrets: tuple[str, ...] = ()
    """Variables passed to commands and available as `${secret.NAME}`; their values are never shown or stored."""

    def joined(self, other: Access) -> Access:
        """Combine two grants; `other` wins for the sandbox level."""
        return Access(
            folders=tuple(dict.fromkeys((*self.folders, *other.folders))),
            sandbox=other.sandbox or self.sandbox,
            variables=tuple(dict.fromkeys((*self.variables, *other.variables))),
            values={**self.values, **other.values},
            secrets=tuple(dict.fromkeys((*self.secrets, *other.secrets))),
        )

    def lacks(self, asked: Access) -> Access:
        """Return what of `asked` is not granted here; empty if everything is."""
        known = {*self.variables, *self.values, *self.secrets}
        return Access(
            folders=tuple(one for one in asked.folders if not any(mine.covers(one) for mine in self.folders)),
            variables=tuple(name for name in asked.variables if name not in known),
        )

    @property
    def for_agents(self) -> tuple[str, ...]:
        """Return the folders that agent steps get too, as `extra_dirs`. An agent cannot be given a single file."""
        return tuple(str(one) for one in self.folders if not one.is_key and Path(one.path).is_dir())


def read_folder(text: str, *, base: Path, environ: Mapping[str, str], leadrope_home: Path) -> SharedFolder:
    """Parse `DIR` or `DIR:ro` from a flag: any folder of the user, including one with keys."""
    path, is_read_only = _parsed(text, base, environ)
    real = Path(real_path(path))
    is_file = real.is_file()
    if not is_file:
        working_directory.extra_directory(str(real), str(base))
    if _is_at(str(real), _own_places(environ, leadrope_home)):
        raise errors.BadValue("add_dir", f"{text} belongs to leadrope itself, and is hidden from all commands")
    is_key = _is_at(str(real), _key_places(environ))
    return SharedFolder(path=str(real), is_read_only=is_read_only or is_file, is_key=is_key)


def asked_folder(text: str, *, base: Path, environ: Mapping[str, str], leadrope_home: Path) -> SharedFolder:
    """Parse the same from a workflow file: never a place with keys, a whole home folder, or sockets of programs."""
    found = read_folder(text, base=base, environ=environ, leadrope_home=leadrope_home)
    why = ""
    if found.is_key:
        why = "keys and logins are kept there"
    elif any(home == found.path or home.startswith(found.path.rstrip("/") + "/") for home in _homes(environ)):
        why = "it is or holds a whole home"
    elif _is_at(found.path, _SOCKETS):
        why = "programs of the system listen there"
    if why:
        raise errors.BadValue(
            "folders",
            f"a workflow cannot ask for {text}: {why}",
            hint=f"If it needs that, grant it yourself: {spelling.option('access.folders', text)}",
        )
    return found


def check_asked_variable(name: str, field: str) -> None:
    """Reject credentials, and variables that would change how programs work."""
    reason = environments.refused(name)
    if reason is None and is_secret_name(name):
        reason = "its name says that it is a secret"
    if reason is not None:
        way = spelling.option("access.secrets", name)
        raise errors.BadValue(
            field,
            f"a workflow cannot ask for {name}: {reason}",
            hint=f"Grant it yourself: {way}; an http step refers to it as ${{secret.{name}}}."
            if environments.refused(name, is_marked=True) is None
            else None,
        )


def check_given(access: Access) -> None:
    """Validate the names and values of flags."""
    environments.check_variables(access.values)
    for name in (*access.variables, *access.secrets):
        reason = environments.refused(name, is_marked=name in access.secrets)
        if reason is not None:
            raise errors.VariableRefused(name, reason)
    for name in access.values:
        if is_secret_name(name):
            raise errors.BadValue(
                "var",
                f"{name} would be stored with the execution, and its name says that it is a secret",
                hint="Set it in your environment or in LEADROPE_HOME/.env, and use "
                f"{spelling.option('access.secrets', name)}.",
            )


def known_variables(environ: Mapping[str, str], leadrope_home: Path) -> dict[str, str]:
    """Return the variables that are set: the environment overrides leadrope's own .env."""
    return {**homes.load_env(leadrope_home), **environ}


def command_variables(access: Access, environ: Mapping[str, str], leadrope_home: Path) -> dict[str, str]:
    """Return the variables for commands with their current values. Unset ones are omitted."""
    if not (access.variables or access.secrets):
        return dict(access.values)
    known = known_variables(environ, leadrope_home)
    found = {name: known[name] for name in (*access.variables, *access.secrets) if name in known}
    return {**found, **access.values}


def secret_values(names: Iterable[str], environ: Mapping[str, str], leadrope_home: Path) -> dict[str, str]:
    """Return the values of secrets; an error names the first that is missing or too short to be redacted reliably."""
    wanted = list(dict.fromkeys(names))
    known = known_variables(environ, leadrope_home) if wanted else {}
    for name in wanted:
        if not known.get(name, "").strip():
            raise errors.BadValue(
                "secret",
                f"{name} is not set",
                hint=f"Set it in your environment, or in {leadrope_home / '.env'}.",
            )
        if len(known[name]) < SHORTEST:
            raise errors.BadValue(
                "secret", f"{name} has fewer than {SHORTEST} characters, and could not be kept out of what is shown"
            )
    return {name: known[name] for name in wanted}


def _parsed(text: str, base: Path, environ: Mapping[str, str]) -> tuple[Path, bool]:
    name, is_read_only = extra_dirs.parse(text)
    if not name.strip() or "\0" in name:
        raise errors.BadValue("add_dir", f"{text!r} names no folder", hint="Write DIR, or DIR:ro to have it read-only.")
    path = homes.user_home(environ) / name[2:] if name == "~" or name.startswith("~/") else base / name
    if not path.exists():
        raise errors.BadDirectory(f"there is no folder {path}", hint="Create it first, or correct its name.")
    if str(path) in BASE or real_path(path) in BASE:
        raise errors.BadValue(
            "add_dir", f"{path}: the sandbox has a folder of its own there", hint="Name a folder inside of it."
        )
    return path, is_read_only


def _homes(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the user's home by environment and by password file: a program may use either."""
    found = [real_path(homes.user_home(environ))]
    with contextlib.suppress(KeyError):  # a user that is not in the password file, as in many containers
        found.append(real_path(pwd.getpwuid(os.geteuid()).pw_dir))
    return tuple(dict.fromkeys(found))


def _own_places(environ: Mapping[str, str], leadrope_home: Path) -> tuple[str, ...]:
    config = homes.config_file(environ)
    own = config.parent if config.parent.name == "leadrope" else config
    return real_path(leadrope_home), real_path(own)


def _key_places(environ: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(real_path(f"{home}/{name}") for home in _homes(environ) for name in SECRETS)


def _is_at(path: str, places: Sequence[str]) -> bool:
    return any(path == place or path.startswith(place.rstrip("/") + "/") for place in places)
