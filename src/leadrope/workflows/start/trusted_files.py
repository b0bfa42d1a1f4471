"""Which workflow files the user has allowed to have what they ask for: each as it was then, by its hash."""

from __future__ import annotations

from pathlib import Path

import msgspec

from leadrope import errors
from leadrope.confined import Folder
from leadrope.core import home as homes
from leadrope.workflows.check.access_requests import AccessRequest

FILE = "trusted_workflows.json"
_MOST_BYTES = 16 * 1024 * 1024


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    digest: str
    """Of the file's text."""
    folders: tuple[str, ...] = ()
    """As they were shown: a link that leads elsewhere now is asked for again."""
    variables: tuple[str, ...] = ()
    inputs: dict[str, str] = {}


def covers(leadrope_home: Path, file: str, digest: str, asked: AccessRequest) -> bool:
    """Whether the user has said yes to this text, and to all of this."""
    record = _read(leadrope_home).get(file)
    if record is None or record.digest != digest:
        return False
    wanted = record_of(digest, asked)
    return (
        set(wanted.folders) <= set(record.folders)
        and set(wanted.variables) <= set(record.variables)
        and wanted.inputs.items() <= record.inputs.items()
    )


def remember(leadrope_home: Path, file: str, digest: str, asked: AccessRequest) -> None:
    records = _read(leadrope_home)
    records[file] = record_of(digest, asked)
    _write(leadrope_home, records)


def forget(leadrope_home: Path, file: str) -> bool:
    records = _read(leadrope_home)
    if records.pop(file, None) is None:
        return False
    _write(leadrope_home, records)
    return True


def record_of(digest: str, asked: AccessRequest) -> Record:
    folders = tuple(str(folder) for folder in asked.access.folders)
    return Record(digest=digest, folders=folders, variables=asked.access.variables, inputs=asked.inputs)


def _read(leadrope_home: Path) -> dict[str, Record]:
    try:
        with Folder.open(leadrope_home) as folder:
            return msgspec.json.decode(folder.read_bytes(FILE, most=_MOST_BYTES), type=dict[str, Record])
    except (OSError, errors.UnsafeFile, msgspec.MsgspecError):
        return {}  # no record is no trust


def _write(leadrope_home: Path, records: dict[str, Record]) -> None:
    with Folder.open(homes.ensure(leadrope_home)) as folder:
        folder.replace(FILE, msgspec.json.format(msgspec.json.encode(records), indent=1))
