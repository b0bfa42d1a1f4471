"""What one run adds to its session's files: what was said, in short. Written by a timer, never in the way of the run.

The events themselves are the run store's, or the caller's. A disk that is full ends the log, not the run.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from leadrope import errors
from leadrope.confined import Folder
from leadrope.core import events, home
from leadrope.core.cost.usage import sum_label
from leadrope.core.result import RunResult
from leadrope.core.secrets.redacted_json import clean_value
from leadrope.core.secrets.redaction import Redactor
from leadrope.runtime.sessions.files import TRANSCRIPT, SessionInfo, TranscriptLine, read_info, write_info
from leadrope.runtime.terminal_text import clean, describe, one_line

FLUSH_S = 1.0
"""What a killed supervisor may lose."""
MOST_WAITING = 400
"""Entries between two flushes. A real agent says fewer in a second; all of a flood would cost more than the run."""
FLOOD = 4 * MOST_WAITING
"""From here to the next flush batches are not even sorted out: only the newest is kept, whole."""
LARGE_LINE = 4 * 1024
MOST_LARGE = 4 * 1024 * 1024
"""Bytes of large lines that wait to be shortened; few of them fill the memory that many ordinary ones do not."""
LONG_TEXT = 128 * 1024
"""Characters of one text; an answer of megabytes would be held several times over while it is written."""
MOST_BYTES = 16 * 1024 * 1024
"""Of one run's entries. A rebuilt session takes a few pages of them; a run that never ends must not fill the disk."""
TITLE = 80
TOOL_TEXT = 400

_SAID = frozenset((events.MessageCompleted, events.ToolDecided, events.ToolCompleted, events.SessionStarted))


class SessionLog:
    """`take` only remembers; a timer of the loop writes."""

    def __init__(
        self,
        folder: Path,
        *,
        run_id: str,
        redactor: Redactor | None = None,
        on_trouble: Callable[[str], None],
    ) -> None:
        self.folder = folder
        self._run_id = run_id
        self.redactor = redactor or Redactor()
        self._on_trouble = on_trouble
        self._encode = msgspec.json.Encoder().encode_lines
        self._waiting: deque[events.Recorded | TranscriptLine] = deque(maxlen=MOST_WAITING)
        self._newest: Sequence[events.Recorded] = ()
        self._taken = self._skipped = self._large = 0
        self._written = 0
        self._timer: asyncio.TimerHandle | None = None
        self._last_prompt = ""
        self._has_just_begun = False
        self._cwd = ""
        self._calls: dict[str, str] = {}
        self._is_closed = False
        home.ensure(folder)

    # -- while it runs ------------------------------------------------------------------------------------------------

    def take(self, batch: Sequence[events.Recorded], weight: int) -> None:
        """A published batch; `weight` is about its size. Every event of every run passes here, so it only sorts out."""
        if self._is_closed or not batch:
            return
        if self._taken > FLOOD:
            self._skipped += len(self._newest)
            self._newest = batch
        else:
            self._sort_out(batch)
        if weight > LARGE_LINE * len(batch):
            self._large += weight
            if self._large > MOST_LARGE:
                self._shorten()
                self._flush_in(0)
        # Never here: what is told of trouble would overtake the batch.
        if type(batch[-1].event) is events.TurnEnded:
            self._flush_in(0)
        elif self._timer is None and self._waiting:
            self._flush_in(FLUSH_S)

    def _sort_out(self, batch: Sequence[events.Recorded]) -> None:
        found = [item for item in batch if type(item.event) in _SAID]
        self._taken += len(found)
        self._waiting += found

    def prompted(self, text: str) -> None:
        """Written at once: a flood that follows must not push it out."""
        is_repeated = self._has_just_begun and text == self._last_prompt  # a second start says the same again
        self._has_just_begun = False
        if is_repeated or self._is_closed:
            return
        self._last_prompt = text
        self.flush()
        self._taken += 1
        self._waiting.append(TranscriptLine(time=time.time(), run_id=self._run_id, role="user", text=self._cut(text)))
        self.flush()

    def flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        newest, self._newest = self._newest, ()
        self._sort_out(newest)
        left_out = self._skipped + self._taken - len(self._waiting)
        said = self._entries()
        self._waiting.clear()
        self._taken = self._large = self._skipped = 0
        if self._is_closed or not (said or left_out):
            return
        if left_out:
            told = f"[{left_out:,} messages and tool calls came too quickly here and are left out]"
            said.insert(0, self._entry(said[0].time if said else time.time(), "tool", told))
        try:
            self._append(said)
        except (OSError, errors.UnsafeFile) as error:
            why = error.message if isinstance(error, errors.UnsafeFile) else error.strerror or error
            self._close(f"the session's transcript cannot be written: {why}")
            return
        if self._written > MOST_BYTES:
            self._close(f"the run has written {MOST_BYTES >> 20} MiB of transcript; no more of it is kept")

    def _flush_in(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.flush)

    def _close(self, why: str) -> None:
        self._is_closed = True
        self._on_trouble(why)

    def _append(self, said: Sequence[TranscriptLine]) -> None:
        data = self.redactor.clean(self._encode(said).decode()).encode()
        with Folder.open(self.folder, follows=False) as session, session.append(TRANSCRIPT) as out:
            out.write(data)
        self._written += len(data)

    def _shorten(self) -> None:
        """What waits as it will be written, without the events that hold its whole text."""
        left_out = self._taken - len(self._waiting)
        said = self._entries()
        self._waiting.clear()
        self._waiting += said
        self._taken = left_out + len(said)
        self._large = 0

    def _entries(self) -> list[TranscriptLine]:
        return [
            entry
            for item in self._waiting
            if (entry := item if isinstance(item, TranscriptLine) else self._entry_of(item)) is not None
        ]

    def _entry_of(self, item: events.Recorded) -> TranscriptLine | None:
        match item.event:
            case events.MessageCompleted(agent_id=None, is_error=False, text=text) if text.strip():
                return self._entry(item.time, "assistant", self._cut(text))
            case events.ToolDecided(call=call, decision=decision) if call.agent_id is None:
                self._calls[call.id] = call.name
                verdict = "" if decision == "allow" else " (denied)"
                cleaned = msgspec.structs.replace(call, input=clean_value(call.input, self.redactor.clean))
                shown = describe(cleaned, cwd=self._cwd, width=200)
                return self._entry(item.time, "tool", f"{call.name} {shown}{verdict}")
            case events.ToolCompleted(agent_id=None, call_id=call_id, text=text, is_error=is_error):
                name = self._calls.pop(call_id, "")
                if not name:
                    return None
                failed = " failed" if is_error else ""
                shown = one_line(clean(self.redactor.clean_start(text, 2 * TOOL_TEXT)), TOOL_TEXT)
                return self._entry(item.time, "tool", f"{name}{failed}: {shown}")
            case events.SessionStarted(cwd=cwd):
                self._cwd = cwd
                return None
            case _:
                return None

    def _entry(self, when: float, role: Literal["assistant", "tool"], text: str) -> TranscriptLine:
        return TranscriptLine(time=when, run_id=self._run_id, role=role, text=text)

    # -- session.json -------------------------------------------------------------------------------------------------

    def begin(self, info: SessionInfo) -> None:
        """`info` stands for a new session; a known one keeps what it has and gains this run."""
        self._has_just_begun = True
        known = read_info(self.folder)
        now = time.time()
        if known is None:
            known = msgspec.structs.replace(
                info, created=now, title=one_line(clean(self.redactor.clean(info.title)), TITLE)
            )
        runs = known.runs if self._run_id in known.runs else (*known.runs, self._run_id)
        rebuilt = known.rebuilt + info.rebuilt
        self._write(msgspec.structs.replace(known, cwd=info.cwd, last_used=now, runs=runs, rebuilt=rebuilt))

    def end(self, result: RunResult, *, turns: int, cost_usd: float) -> None:
        """`turns` and `cost_usd` are what was not told before."""
        self.flush()
        known = read_info(self.folder)
        if known is None:
            return
        self._write(
            msgspec.structs.replace(
                known,
                last_used=time.time(),
                model=result.model or known.model,
                turns=known.turns + turns,
                cost_usd=known.cost_usd + cost_usd,
                cost_label=sum_label([(known.cost_usd, known.cost_label), (cost_usd, result.cost_label)]),
                outcome=result.outcome,
            )
        )

    def _write(self, info: SessionInfo) -> None:
        try:
            write_info(self.folder, info)
        except errors.UnsafeFile as error:
            self._on_trouble(error.message)
        except OSError as error:
            self._on_trouble(f"{self.folder} cannot be written: {error.strerror or error}")

    def _cut(self, text: str) -> str:
        if len(text) <= LONG_TEXT:
            return text
        # Half a secret is not found any more: cleaned before it is cut.
        return f"{self.redactor.clean_start(text, LONG_TEXT)}… ({len(text) - LONG_TEXT:,} more characters)"
