"""A secret that comes in pieces is masked as if it came whole; every event comes out once, in its order."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadrope.core.events import (
    Event,
    MessageCompleted,
    MessageDelta,
    Notice,
    Recorded,
    ThinkingCompleted,
    ThinkingDelta,
    ToolCompleted,
    TurnEnded,
)
from leadrope.core.result import RunResult
from leadrope.core.secrets.redaction import LONGEST, Redactor
from leadrope.runs.records.masking import Masking, without_known

KNOWN = "hunter2 of the database"
SECRETS = {
    "known": KNOWN,
    "shaped": "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123",
    "header": "Authorization: Bearer abcdef0123456789",
    "pem": "-----BEGIN RSA PRIVATE KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQEFAASC\n-----END RSA PRIVATE KEY-----",
}
PARTS = {**dict.fromkeys(("known", "shaped")), "header": "abcdef0123456789", "pem": "MIIEvQIBADANBgkq"}


def recorded(*events: Event) -> list[Recorded]:
    return [Recorded("run", 1, seq, 1.0, "agent", event) for seq, event in enumerate(events, 1)]


def cut(text: str, places: list[int]) -> list[str]:
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(edges)]


def told(records: list[Recorded]) -> str:
    return "".join(record.event.text for record in records if isinstance(record.event, MessageDelta | ThinkingDelta))


@pytest.mark.parametrize("name", SECRETS)
@given(places=st.lists(st.integers(0, 10_000), max_size=30), sizes=st.lists(st.integers(1, 5), max_size=8))
def test_wherever_a_text_is_cut(name: str, places: list[int], sizes: list[int]) -> None:
    text = f"It says {SECRETS[name]}\nand then it goes on."
    records = recorded(*(MessageDelta(text=piece) for piece in cut(text, places)), MessageCompleted(text="x"))
    redactor = Redactor([KNOWN])
    masking = Masking(lambda: redactor)
    found: list[Recorded] = []
    rest = records
    for size in (*sizes, len(records)):  # as batches come
        found += masking.of(rest[:size])
        rest = rest[size:]
    assert [record.seq for record in found] == [record.seq for record in records]
    assert told(found) == redactor.clean(text)
    assert (PARTS[name] or SECRETS[name]) not in told(found)


@given(pieces=st.lists(st.text(max_size=12), max_size=20))
def test_what_holds_no_secret_is_the_same_text(pieces: list[str]) -> None:
    records = recorded(*(MessageDelta(text=piece) for piece in pieces), MessageCompleted(text="x"))
    assert told(Masking(lambda: Redactor([KNOWN])).of(records)) == "".join(pieces)


def test_a_screen_masks_what_is_known_and_leaves_what_only_looks_like_it() -> None:
    text = f"{SECRETS['shaped']} and {KNOWN}"
    events: list[Event] = [MessageDelta(text=text), MessageCompleted(text=text), ToolCompleted(call_id="c", text=text)]
    found = Masking(lambda: Redactor([KNOWN]).only_known()).of(recorded(*events))
    assert [record.event.text for record in found] == [f"{SECRETS['shaped']} and [redacted]"] * 3  # type: ignore[union-attr]  # each has one


def test_streams_are_not_mixed_and_nothing_is_held_for_ever() -> None:
    events: list[Any] = [
        MessageDelta(text="hunter2"),
        MessageDelta(text=" of the database", agent_id="a"),
        MessageDelta(text="word" * LONGEST, message_id="m"),
        MessageDelta(text="more", message_id="m"),
        MessageCompleted(text="x"),
    ]
    masking = Masking(lambda: Redactor([KNOWN]))
    assert told(masking.of(recorded(*events))) == "hunter2 of the database" + "word" * LONGEST + "more"


@pytest.mark.parametrize("kind", [ThinkingDelta, functools.partial(MessageDelta, thinking=True)])
@pytest.mark.parametrize("name", SECRETS)
@given(places=st.lists(st.integers(0, 10_000), max_size=30))
def test_progress_between_the_pieces_does_not_uncover_one(name: str, places: list[int], kind: Any) -> None:
    """The agent sends a notice after every piece of its thinking."""
    text = f"It says {SECRETS[name]}\nand then it goes on."
    pieces = [kind(text=piece) for piece in cut(text, places)]
    between = [event for piece in pieces for event in (piece, Notice(level="info", code="tokens", message="12"))]
    records = recorded(*between, ThinkingCompleted(text="x"))
    redactor = Redactor([KNOWN])
    found = Masking(lambda: redactor).of(records)
    assert [record.seq for record in found] == [record.seq for record in records]
    assert told(found) == redactor.clean(text)


@given(places=st.lists(st.integers(0, 10_000), max_size=30), kinds=st.lists(st.booleans(), min_size=31, max_size=31))
def test_other_messages_and_calls_between_the_pieces_uncover_no_more_than_a_few_characters(
    places: list[int], kinds: list[bool]
) -> None:
    """Agents that work side by side: their pieces and their calls come in any order."""
    text = f"It says {KNOWN}, and then it goes on."
    events: list[Event] = []
    for piece, is_call in zip(cut(text, places), kinds, strict=False):
        events.append(MessageDelta(text=piece, message_id="one"))
        call = ToolCompleted(call_id="c", text="done", agent_id="b")
        events.append(call if is_call else MessageDelta(text="word ", message_id="two", agent_id="b"))
    events += [MessageCompleted(text="x", message_id="one"), TurnEnded(turn=1, is_error=False, reason="success")]
    records = recorded(*events)
    found = Masking(lambda: Redactor([KNOWN])).of(records)
    assert [record.seq for record in found] == [record.seq for record in records]
    shown = told([record for record in found if getattr(record.event, "message_id", "") == "one"])
    assert not any(KNOWN[at : at + 8] in shown for at in range(len(KNOWN) - 7))
    assert "[redacted]" in shown
    assert shown.startswith("It says ")
    assert shown.endswith(", and then it goes on.")


def test_a_beginning_that_was_masked_too_early_is_made_good() -> None:
    pieces: list[Event] = [
        MessageDelta(text="hunter2 of"),
        ToolCompleted(call_id="c", text="x"),
        MessageDelta(text=" all"),
    ]
    found = Masking(lambda: Redactor([KNOWN])).of(recorded(*pieces, MessageCompleted(text="x")))
    assert told(found) == "[redacted]hunter2 of all"


def test_a_piece_that_begins_no_secret_does_not_wait() -> None:
    masking = Masking(lambda: Redactor([KNOWN]).only_known())
    pieces = recorded(MessageDelta(text="working"), MessageDelta(text=" on hun"), MessageDelta(text="ting"))
    assert [told(masking.of([piece])) for piece in pieces] == ["working", "", " on hunting"]


def test_a_result_for_its_own_user() -> None:
    result = RunResult(run_id="r", outcome="succeeded", text=f'say "{KNOWN}"', output={"key": KNOWN})
    found = without_known(result, Redactor([KNOWN]))
    assert (found.text, found.output) == ('say "[redacted]"', {"key": "[redacted]"})
    assert without_known(result, Redactor()) is result
