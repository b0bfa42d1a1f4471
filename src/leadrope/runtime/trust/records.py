"""Stores what the user trusts in a file of LEADROPE_HOME. A file that cannot be read means no trust."""

from __future__ import annotations

from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from leadrope import errors
from leadrope.confined import Folder
from leadrope.core import home

MOST_BYTES = 64 * 1024 * 1024

R = TypeVar("R", bound=msgspec.Struct)


class TrustRecords(Generic[R]):
    """`name` is the name of the file, `type_` the type of its records."""

    def __init__(self, name: str, type_: type[R]) -> None:
        self._name = name
        self._type = type_

    def get(self, leadrope_home: Path, key: str) -> R | None:
        return self._read(leadrope_home).get(key)

    def put(self, leadrope_home: Path, key: str, record: R) -> None:
        self._write(leadrope_home, {**self._read(leadrope_home), key: record})

    def remove(self, leadrope_home: Path, key: str) -> bool:
        """Remove a record; returns whether there was one."""
        records = self._read(leadrope_home)
        if records.pop(key, None) is None:
            return False
        self._write(leadrope_home, records)
        return True

    def _read(self, leadrope_home: Path) -> dict[str, R]:
        try:
            with Folder.open(leadrope_home) as folder:
                content = folder.read_bytes(self._name, most=MOST_BYTES)
            return msgspec.json.decode(content, type=dict[str, self._type])  # type: ignore[name-defined]  # at run time
        except (OSError, errors.UnsafeFile, msgspec.MsgspecError):
            return {}

    def _write(self, leadrope_home: Path, records: dict[str, R]) -> None:
        with Folder.open(home.ensure(leadrope_home)) as folder:
            folder.replace(self._name, msgspec.json.format(msgspec.json.encode(records), indent=1))
