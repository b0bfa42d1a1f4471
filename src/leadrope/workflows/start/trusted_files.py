"""Which workflow files the user has allowed to have what they ask for: each as it was then, by its hash."""

from __future__ import annotations

from pathlib import Path

import msgspec

from leadrope.runtime.trust.records import TrustRecords
from leadrope.workflows.check.access_requests import AccessRequest


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    digest: str
    """Of the file's text."""
    folders: tuple[str, ...] = ()
    """As they were shown: a link that leads elsewhere now is asked for again."""
    variables: tuple[str, ...] = ()
    inputs: dict[str, str] = {}


_RECORDS = TrustRecords("trusted_workflows.json", Record)
"""By file."""


def covers(leadrope_home: Path, file: str, digest: str, asked: AccessRequest) -> bool:
    """Whether the user has said yes to this text, and to all of this."""
    record = _RECORDS.get(leadrope_home, file)
    if record is None or record.digest != digest:
        return False
    wanted = record_of(digest, asked)
    return (
        set(wanted.folders) <= set(record.folders)
        and set(wanted.variables) <= set(record.variables)
        and wanted.inputs.items() <= record.inputs.items()
    )


def remember(leadrope_home: Path, file: str, digest: str, asked: AccessRequest) -> None:
    _RECORDS.put(leadrope_home, file, record_of(digest, asked))


def forget(leadrope_home: Path, file: str) -> bool:
    return _RECORDS.remove(leadrope_home, file)


def record_of(digest: str, asked: AccessRequest) -> Record:
    folders = tuple(str(folder) for folder in asked.access.folders)
    return Record(digest=digest, folders=folders, variables=asked.access.variables, inputs=asked.inputs)
