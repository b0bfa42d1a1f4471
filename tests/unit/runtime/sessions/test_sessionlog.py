"""A run's own files: bounded, redacted, and no reason for a run to fail."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import msgspec
import pytest

from leadrope.core import events
from leadrope.core.cost.usage import CostLabel
from leadrope.core.fold import fold
from leadrope.core.result import RunResult
from leadrope.core.secrets.redaction import Redactor
from leadrope.core.tools import ToolCall
from leadrope.runtime.sessions import log
from leadrope.runtime.sessions.files import SessionInfo, Sessions, read_info
from leadrope.runtime.sessions.log import SessionLog

SECRET = "hunter2hunter2"


class Place:
    def __init__(self, folder: Path) -> None:
        self.sessions = Sessions(folder)
        self.folder = self.sessions.folder / "s"
        self.trouble: list[str] = []
        self.log = SessionLog(self.folder, run_id="abc", redactor=Redactor([SECRET]), on_trouble=self.trouble.append)
        self._seq = 0

    def take(self, *found: events.Event, weight: int = 0) -> None:
        batch = []
        for event in found:
            self._seq += 1
            batch.append(events.Recorded("abc", 1, self._seq, 5.0, "agent", event))
        self.log.take(batch, weight)

    @property
    def said(self) -> list[tuple[str, str]]:
        return [(entry.role, entry.text) for entry in self.sessions.transcript("s")]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


async def test_who_says_the_same_twice_has_said_it_twice(place: Place) -> None:
    place.log.begin(SessionInfo(id="s"))
    for answer in ("Shall I?", "Really?"):
        place.log.prompted("yes")
        place.take(events.MessageCompleted(text=answer))
    place.log.flush()
    assert place.said == [("user", "yes"), ("assistant", "Shall I?"), ("user", "yes"), ("assistant", "Really?")]


async def test_what_was_said_in_its_order(place: Place) -> None:
    call = ToolCall(id="t1", name="Bash", input={"command": "make test"})
    place.log.prompted("run the tests")
    place.take(
        events.MessageDelta(text="I"),
        events.MessageCompleted(text="I will."),
        events.ToolDecided(call=call, decision="allow", by="rule", rule="tools"),
        events.ToolCompleted(call_id="t1", text="ok\n" * 1000),
        events.MessageCompleted(text="of a subagent", agent_id="a1"),
        events.MessageCompleted(text="API Error", is_error=True),
    )
    place.log.begin(SessionInfo(id="s"))
    place.log.prompted("run the tests")  # a second start of the run
    place.log.prompted(f"and now {SECRET}")
    place.log.flush()
    roles = [role for role, _ in place.said]
    assert roles == ["user", "assistant", "tool", "tool", "user"], "a second start says nothing new"
    assert place.said[2] == ("tool", "Bash make test")
    assert len(place.said[3][1]) < 500
    assert place.said[-1] == ("user", "and now [redacted]")
    names = sorted(path.name for path in place.folder.iterdir())
    assert names == ["session.json", "transcript.jsonl"], "events are the run store's"


async def test_long_texts_are_cut(place: Place) -> None:
    place.take(events.MessageCompleted(text="x" * (log.LONG_TEXT + 10)))
    place.log.flush()
    ((_, text),) = place.said
    assert text == "x" * log.LONG_TEXT + "… (10 more characters)"


async def test_of_a_flood_the_newest_is_kept_and_the_rest_counted(place: Place) -> None:
    place.log.prompted("say a lot")
    for number in range(10):
        place.take(*(events.MessageCompleted(text=f"{number}.{n}") for n in range(100)))
    place.log.flush()
    place.take(events.MessageCompleted(text="later"))
    place.log.flush()
    texts = [text for _, text in place.said]
    assert texts[0] == "say a lot", "a prompt is never pushed out"
    assert texts[1].startswith("[600 messages and tool calls")
    assert texts[2:] == [f"{number}.{n}" for number in range(6, 10) for n in range(100)] + ["later"]


async def test_deltas_push_nothing_out(place: Place) -> None:
    place.take(events.MessageCompleted(text="first"))
    place.take(*(events.MessageDelta(text="x") for _ in range(2 * log.MOST_WAITING)))
    place.log.flush()
    assert place.said == [("assistant", "first")]


async def test_large_lines_are_shortened_at_once(place: Place, until: Any) -> None:
    """Else some of them would hold hundreds of megabytes until the timer comes."""

    class Text(str):
        """Tells when it is gone."""

        __slots__ = ("__weakref__",)

    text = Text("x" * (2 * log.LONG_TEXT))
    alive = weakref.ref(text)
    place.take(events.MessageCompleted(text=text), weight=log.MOST_LARGE + 1)
    del text
    assert alive() is None
    await until(lambda: len(place.said) == 1)
    assert place.said[0][1].endswith(f"… ({log.LONG_TEXT:,} more characters)")


async def test_a_talk_without_end_does_not_fill_the_disk(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "MOST_BYTES", 10_000)
    for _ in range(50):
        place.take(events.MessageCompleted(text="x" * 1000))
        place.log.flush()
    assert (place.folder / "transcript.jsonl").stat().st_size < 15_000
    assert len(place.trouble) == 1


async def test_a_disk_that_takes_nothing_is_told_once(place: Place) -> None:
    place.folder.rmdir()
    place.take(events.MessageCompleted(text="x"))
    place.log.flush()
    place.take(events.MessageCompleted(text="y"))
    place.log.flush()
    assert len(place.trouble) == 1
    assert "cannot be written" in place.trouble[0]


async def test_a_turn_is_written_with_its_end_and_the_rest_by_the_timer(
    place: Place, monkeypatch: pytest.MonkeyPatch, until: Any
) -> None:
    place.take(
        events.MessageCompleted(text="x"),
        events.TurnEnded(turn=1, is_error=False, reason="success", text="x", steps=1),
    )
    assert place.said == [], "not inside of the batch"
    monkeypatch.setattr(log, "FLUSH_S", 3600)
    await until(lambda: len(place.said) == 1)
    monkeypatch.setattr(log, "FLUSH_S", 0.01)
    place.take(events.MessageCompleted(text="y"))
    await until(lambda: len(place.said) == 2)


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (("estimate", "estimate"), "estimate"),
        (("API-equivalent estimate", "API-equivalent estimate"), "API-equivalent estimate"),
        (("API-equivalent estimate", "estimate"), "partly API-equivalent estimate"),
    ],
)
async def test_a_sessions_cost_is_called_by_all_who_have_paid(
    place: Place, labels: tuple[CostLabel, ...], told: str
) -> None:
    place.log.begin(SessionInfo(id="s"))
    for label in labels:
        totals = fold([]).totals
        assert totals is not None
        totals = msgspec.structs.replace(totals, cost_label=label)
        result = RunResult(run_id="abc", outcome="succeeded", totals=totals)
        place.log.end(result, turns=1, cost_usd=0.5)
    # A run that never began has cost nothing and says nothing.
    place.log.end(RunResult(run_id="abc", outcome="failed"), turns=0, cost_usd=0.0)
    info = read_info(place.folder)
    assert info is not None
    assert info.cost_label == told


async def test_session_json_adds_up(place: Place) -> None:
    place.log.begin(SessionInfo(id="s", cwd="/a", title=f"use {SECRET}\nplease " + "x" * 200))
    place.log.end(RunResult(run_id="abc", outcome="succeeded", model="m"), turns=2, cost_usd=0.5)
    place.log.begin(SessionInfo(id="s", cwd="/b", title="later", rebuilt=1))
    place.log.end(RunResult(run_id="abc", outcome="failed"), turns=1, cost_usd=0.25)
    info = read_info(place.folder)
    assert info is not None
    assert info.title.startswith("use [redacted] please")
    assert len(info.title) <= log.TITLE
    assert (info.cwd, info.model, info.turns, info.cost_usd) == ("/b", "m", 3, 0.75)
    assert (info.outcome, info.rebuilt, info.runs) == ("failed", 1, ("abc",))
    assert msgspec.json.decode((place.folder / "session.json").read_bytes())["id"] == "s"
