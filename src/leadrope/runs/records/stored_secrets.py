"""Where the secrets of a stored request are found again. The store has references only: names and paths, never a value.

A reference is resolved each time the run is started by a process that was not handed the request itself: from the
user's config, the .env of LEADROPE_HOME or a file. What only the terminal that started it knew has no such place; the
environment of a terminal in which a person resumes the run can supply its variables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from leadrope import confined, errors
from leadrope.core.config import Config
from leadrope.core.request import RunRequest
from leadrope.core.secrets.redaction import MASK, Redactor, Secret
from leadrope.runs.records.redacted_rows import as_json

KEY = "secrets"
"""In the run's `place`: the references."""
FILES = "secret_files"
"""In the run's `place`: variable -> path, as the terminal was told; `CREDENTIAL` for the credential."""
CREDENTIAL = "credential"
MOST_BYTES = 64 * 1024
_OF_THE_FIRST_PROMPT = ("prompt", "attachments")
_BY_NAME = ("variables", "connections")
_FOR_PEOPLE = ("labels",)
"""Fields that only lists show: a run can do without what was redacted there."""


class SecretReference(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    path: tuple[str, ...]
    """The field of the request, and for variables and connections the name."""
    source: Literal["file", "env", "config", "profile", "terminal"]
    """`env`: the .env of LEADROPE_HOME; `terminal`: nothing that another process can look up."""
    name: str = ""
    """Of the file or the profile."""

    @property
    def is_variable(self) -> bool:
        """The environment of a terminal can supply it."""
        return len(self.path) == 2 and self.path[0] == "variables"

    @property
    def told(self) -> str:
        """What a person calls it."""
        if self.path == (CREDENTIAL,):
            return "its credential"
        return self.path[-1] if self.path[0] == "variables" else f"its {' '.join(self.path)}"


class SecretSources(msgspec.Struct, frozen=True, kw_only=True):
    """Where a process looks."""

    config: Config
    env_file: Mapping[str, str]
    environ: Mapping[str, str] = {}
    """Of the terminal in which a person starts the run; else what was stored with it."""


def referenced(
    request: RunRequest, redactor: Redactor, around: SecretSources, files: Mapping[str, str]
) -> list[dict[str, Any]]:
    """For the store: what the redaction takes out of the request, each with the place where it is found again."""
    bare = msgspec.structs.replace(request, credential=None)
    found: list[SecretReference] = []
    if request.credential is not None:
        found.append(_from_file((CREDENTIAL,), files.get(CREDENTIAL)))
    text = msgspec.json.encode(bare)
    stored = as_json(bare, redactor).encode()
    if stored != text:
        whole = msgspec.json.decode(text)
        paths = dict.fromkeys(_short(path) for path in _changed(whole, msgspec.json.decode(stored)))
        found += [_reference(path, bare, around, files) for path in paths if path[:1] not in (_FOR_PEOPLE, ())]
    return [msgspec.to_builtins(one) for one in found]


def _changed(one: Any, other: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The places at which two JSON values differ."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        for key in one:
            yield from _changed(one[key], other[key], (*path, key))
    elif one != other:
        yield path


def _short(path: tuple[str, ...]) -> tuple[str, ...]:
    return path[: 2 if path[:1] and path[0] in _BY_NAME else 1]


def _reference(
    path: tuple[str, ...], request: RunRequest, around: SecretSources, files: Mapping[str, str]
) -> SecretReference:
    value = _at(request, path)
    if path[0] == "variables" and len(path) == 2:
        if path[1] in files:
            return _from_file(path, files[path[1]])
        if value is not None and around.env_file.get(path[1]) == value:
            return SecretReference(path=path, source="env")
    if value is not None and _in_config(around.config, "", path) == value:
        return SecretReference(path=path, source="config")
    for profile in around.config.profiles:
        if value is not None and _in_config(around.config, profile, path) == value:
            return SecretReference(path=path, source="profile", name=profile)
    return SecretReference(path=path, source="terminal")


def _from_file(path: tuple[str, ...], file: str | None) -> SecretReference:
    if file is None:
        return SecretReference(path=path, source="terminal")
    return SecretReference(path=path, source="file", name=file)


def _at(request: RunRequest, path: tuple[str, ...]) -> Any:
    """None where there is nothing: the redaction may have changed a name."""
    value = getattr(request, path[0], None) if path else None
    return value.get(path[1]) if len(path) == 2 and isinstance(value, dict) else value


def _in_config(config: Config, profile: str, path: tuple[str, ...]) -> Any:
    if path[0] == "connections":
        return config.connections.get(path[1]) if len(path) == 2 and not profile else None
    defaults = config.profiles.get(profile) if profile else config.run
    value = getattr(defaults, path[0], None)
    return value.get(path[1]) if len(path) == 2 and isinstance(value, dict) else value


# -- and back ---------------------------------------------------------------------------------------------------------


def of_place(place: Mapping[str, Any], request: RunRequest) -> list[SecretReference]:
    """The references of a stored request. A run of an earlier version has none, and what was masked is lost."""
    if KEY in place:
        return msgspec.convert(place[KEY], list[SecretReference])
    stored = msgspec.to_builtins(request)
    lost = [name for name, value in stored.items() if MASK in msgspec.json.encode(value).decode()]
    return [SecretReference(path=(name,), source="terminal") for name in lost]


def missing(references: Sequence[SecretReference], around: SecretSources, *, is_resumed: bool) -> list[SecretReference]:
    """Those that cannot be resolved here; a resumed session needs its first prompt no more. Files are not read."""
    return [
        one
        for one in references
        if one.source != "file" and not _is_past(one, is_resumed) and _value(one, around) is None
    ]


def resolved(
    request: RunRequest, references: Sequence[SecretReference], around: SecretSources, *, is_resumed: bool
) -> RunRequest:
    """The stored request with its secrets, or a RequestError that names what is missing."""
    lost = missing(references, around, is_resumed=is_resumed)
    if lost:
        raise _not_stored(lost)
    changes: dict[str, Any] = {}
    for one in references:
        if _is_past(one, is_resumed):
            continue
        field, *name = one.path
        value = read_file(one.name, request.cwd) if one.source == "file" else _value(one, around)
        if name:
            changes[field] = {**changes.get(field, getattr(request, field)), name[0]: value}
        else:
            changes[field] = Secret(value) if field == CREDENTIAL else value
    return msgspec.structs.replace(request, **changes)


def _is_past(one: SecretReference, is_resumed: bool) -> bool:
    return is_resumed and one.path[0] in _OF_THE_FIRST_PROMPT


def _value(one: SecretReference, around: SecretSources) -> Any:
    match one.source:
        case "env":
            return around.env_file.get(one.path[-1])
        case "config" | "profile":
            found = _in_config(around.config, one.name, one.path)
            return None if found is msgspec.UNSET else found
        case _:
            return around.environ.get(one.path[1]) if one.is_variable else None


def _not_stored(lost: Sequence[SecretReference]) -> errors.RequestError:
    names = [one.told for one in lost]
    what = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    remedy = f"set {what} in your shell" if all(one.is_variable for one in lost) else "start it anew"
    return errors.RequestError(
        f"it needs {what}, and secrets are not stored; {remedy}",
        hint="A later start finds secrets that are in a file (--secret-file), in the .env of LEADROPE_HOME, or in "
        "your config.",
    )


def read_file(path: str, cwd: str | None) -> str:
    """A secret file as the terminal reads it: without one newline at its end."""
    try:
        data = confined.read_named(path, workspaces=(Path(cwd),) if cwd else (), most=MOST_BYTES)
        text = data.decode().removesuffix("\n").removesuffix("\r")
    except errors.UnsafeFile as error:
        raise errors.RequestError(f"the secret file {path} {error.reason}", hint=error.hint) from None
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise errors.RequestError(f"the secret file {path} cannot be read: {why}", hint="Put it back.") from None
    if not text:
        raise errors.RequestError(f"the secret file {path} is empty", hint="Put its content back.")
    return text
