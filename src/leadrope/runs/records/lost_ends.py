"""How runs ended whose record could not be stored, because the disk was full; for whoever can write the store next.

An owner reserves a little room beside its lease while there is some, and writes into that. Without it the next process
would find a run without an end, and take it for one whose supervisor was killed.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

from leadrope import errors
from leadrope.core import home
from leadrope.core.cost.usage import Usage
from leadrope.core.result import Outcome, RunError, RunResult, Warning_
from leadrope.core.secrets.redaction import Redactor
from leadrope.runs import leases

ROOM = 16 * 1024
"""Bytes. Enough for the ends of dozens of runs, and little beside an event log."""
MOST_MESSAGE = 300
REASON = "its record was lost: the disk was full"


def describe(lost_events: int) -> str:
    """For a run whose end could be stored."""
    return f"the last {lost_events} of its events are lost: the disk was full"


class LostEnd(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    outcome: Outcome
    error: RunError | None = None
    cost_usd: float = 0.0
    usage: Usage = Usage()
    session_id: str | None = None
    attempts: int = 1
    turns: int = 0
    duration_s: float = 0.0
    lost_events: int = 0

    def result(self, before: RunResult) -> RunResult:
        """`before`: what the stored part of the log says. Its last words are not the run's answer, so none are kept."""
        lost = f"{REASON}; the answer and the last {self.lost_events} events are missing"
        return msgspec.structs.replace(
            before,
            outcome=self.outcome,
            error=self.error,
            text="",
            cost_usd=max(self.cost_usd, before.cost_usd),
            usage=self.usage,
            session_id=self.session_id or before.session_id,
            attempts=self.attempts,
            turns=self.turns,
            duration_s=self.duration_s,
            warnings=(*before.warnings, Warning_(kind="record_lost", message=lost)),
        )


class LostEnds:
    """Those of one owner process."""

    def __init__(self, leadrope_home: Path, owner_id: str) -> None:
        self._path = _path(leadrope_home, owner_id)
        self._ends: dict[str, LostEnd] = {}
        self._handle = -1

    def reserve(self) -> None:
        """Before a run starts. Where there is no space left for it, the run itself will say so."""
        if self._handle >= 0:
            return
        try:
            home.ensure(self._path.parent)
            self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.pwrite(self._handle, b" " * ROOM, 0)
        except (OSError, errors.LeadropeError):
            self.close()

    def keep(self, run_id: str, result: RunResult, redactor: Redactor, lost_events: int) -> None:
        error = result.error
        if error is not None:
            message = redactor.clean(error.message)[:MOST_MESSAGE]
            error = RunError(kind=error.kind, message=message, clock=error.clock, api_status=error.api_status)
        end = LostEnd(
            outcome=result.outcome,
            error=error,
            cost_usd=result.cost_usd,
            usage=result.usage,
            session_id=result.session_id,
            attempts=result.attempts,
            turns=result.turns,
            duration_s=result.duration_s,
            lost_events=lost_events,
        )
        self._write({**self._ends, run_id: end})

    def drop(self, run_id: str) -> None:
        """Its end was stored after all."""
        if run_id in self._ends:
            self._write({name: end for name, end in self._ends.items() if name != run_id})

    def _write(self, ends: dict[str, LostEnd]) -> None:
        text = msgspec.json.encode(ends)
        if self._handle < 0 or len(text) > ROOM:
            return
        try:
            os.pwrite(self._handle, text.ljust(ROOM), 0)
        except OSError:  # some file systems write a file anew to change it, and have no room for that either
            return
        self._ends = ends

    def close(self) -> bool:
        """Whether ends are left, which somebody else has to store."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
            if not self._ends:
                with contextlib.suppress(OSError):
                    self._path.unlink()
        return bool(self._ends)


def of_owner(leadrope_home: Path, owner_id: str) -> dict[str, LostEnd]:
    """What an owner that is dead has left, by run."""
    try:
        text = _path(leadrope_home, owner_id).read_bytes()
        return msgspec.json.decode(text, type=dict[str, LostEnd]) if text.strip() else {}
    except (OSError, msgspec.MsgspecError):  # none, or one that was cut off: then nothing is known
        return {}


def forget(leadrope_home: Path, owner_id: str) -> None:
    _path(leadrope_home, owner_id).unlink(missing_ok=True)


def _path(leadrope_home: Path, owner_id: str) -> Path:
    return leadrope_home / leases.FOLDER / f"{owner_id}.lost"
