"""Recordings of the CLI into our events and into the universal schema: valid line by line, and no line lost."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadrope.cli.runs import transcripts as files
from leadrope.core import events
from leadrope.core.fold import fold
from leadrope.core.universal import schemas
from leadrope.core.universal import types as u
from leadrope.core.universal.conversion import PROMPT
from leadrope.providers.claude_code import transcripts
from leadrope.providers.claude_code.session_file import SubagentFile, read_session
from leadrope.providers.claude_code.transcripts import Read, form_of, read_stream

RECORDINGS = Path(__file__).parents[2] / "recordings"
NAMES = sorted(path.name for path in RECORDINGS.iterdir() if path.is_dir())
SILENT = [name for name in NAMES if not (RECORDINGS / name / "stdout.jsonl").exists()]
UNIVERSAL = jsonschema_rs.Draft202012Validator(schemas.text_of(schemas.universal_schema()))
OWN = jsonschema_rs.Draft202012Validator(schemas.event_schema())


def lines_of(name: str) -> list[bytes]:
    path = RECORDINGS / name / "stdout.jsonl"
    return [line for line in path.read_bytes().split(b"\n") if line.strip()] if path.exists() else []


def check(found: list[Any], lines: list[bytes]) -> None:
    """Valid, without a gap, in order, and each line beside exactly one event."""
    state: dict[str, str] = {}
    for sequence, event in enumerate(found, 1):
        assert event.sequence == sequence
        UNIVERSAL.validate(msgspec.json.decode(msgspec.json.encode(event)))
        match event:
            case u.ItemStarted():
                assert event.data.item.id not in state
                state[event.data.item.id] = "open"
            case u.ItemDelta():
                assert state[event.data.item_id] == "open"
            case u.ItemCompleted():
                assert state[event.data.item.id] == "open"
                state[event.data.item.id] = "done"
            case _:
                pass
    assert set(state.values()) <= {"done"}
    raws = [event.raw for event in found if event.raw is not msgspec.UNSET]
    assert Counter(raws) == Counter(line.decode("utf-8", "replace").rstrip("\r\n") for line in lines)
    assert raws == [line.decode("utf-8", "replace").rstrip("\r\n") for line in lines], "in the order they came"


def test_seven_recordings_printed_nothing_and_the_rest_are_checked_below() -> None:
    assert (len(NAMES), len(SILENT)) == (107, 7)


@pytest.mark.parametrize("name", NAMES)
def test_the_universal_export_of_a_recording_is_valid_and_loses_no_line(name: str) -> None:
    lines = lines_of(name)
    found = list(files.universal_of(read_stream(lines, run_id=name), raw=True))
    check(found, lines)
    if lines:
        assert isinstance(found[0], u.SessionStarted)
        assert isinstance(found[-1], u.SessionEnded)


@pytest.mark.parametrize("name", NAMES)
def test_our_own_log_of_a_recording_is_valid_and_its_export_loses_no_event(name: str) -> None:
    log = [msgspec.json.encode(read.recorded) for read in read_stream(lines_of(name), run_id=name)]
    for seq, line in enumerate(log, 1):
        value = msgspec.json.decode(line)
        OWN.validate(value)
        assert value["seq"] == seq
    check(list(files.universal_of(files.read_log(log), raw=True)), log)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in SILENT])
def test_an_import_says_what_the_lines_say(name: str) -> None:
    texts, calls, results = [], [], []
    for line in map(json.loads, lines_of(name)):
        content = line.get("message", {}).get("content") if line["type"] in ("assistant", "user") else None
        for block in content if isinstance(content, list) else ():
            if block["type"] == "text" and line["type"] == "assistant" and block["text"]:
                texts.append(block["text"])
            elif block["type"] == "tool_use":
                calls.append(block["id"])
            elif block["type"] == "tool_result":
                results.append((block["tool_use_id"], block.get("is_error") is True))
    told = [read.recorded.event for read in read_stream(lines_of(name), run_id=name)]
    assert [event.text for event in told if isinstance(event, events.MessageCompleted)] == texts
    assert [event.call.id for event in told if isinstance(event, events.ToolRequested)] == calls
    done = [(event.call_id, event.is_error) for event in told if isinstance(event, events.ToolCompleted)]
    assert done == results
    assert not [event for event in told if isinstance(event, events.Unrecognised)]


def test_times_are_those_of_the_lines_and_hold_until_the_next() -> None:
    lines = lines_of("smoke-think")
    start = transcripts.time_of(lines[2])
    assert start == datetime(2026, 11, 15, 19, 57, 52, 273000, tzinfo=UTC).timestamp()
    reads = list(read_stream(lines, run_id="r", start=7.0))
    by_line = {read.raw: read.recorded.time for read in reads if read.raw is not None}
    assert [by_line[line.decode()] for line in lines[:3]] == [7.0, 7.0, start]
    assert reads[-1].recorded.time == transcripts.time_of(lines[3])


def of(reads: list[Read], kind: type[Any]) -> list[Any]:
    return [read.recorded.event for read in reads if isinstance(read.recorded.event, kind)]


def test_permissions_are_asked_and_their_answers_found_in_the_results() -> None:
    reads = list(read_stream(lines_of("ctl-hold-deny-allow"), run_id="r"))
    asked = [event.approval_id for event in of(reads, events.ApprovalRequested)]
    answered = {event.approval_id: event.approved for event in of(reads, events.ApprovalResolved)}
    assert asked
    assert set(answered) <= set(asked)
    assert set(answered.values()) == {True, False}


def test_questions_and_plans_are_read_from_their_calls() -> None:
    asked = of(list(read_stream(lines_of("ask-default"), run_id="r")), events.QuestionRequested)
    assert {event.questions[0].question for event in asked} == {"Which color?"}
    assert [option.label for option in asked[0].questions[0].options] == ["Red", "Blue"]
    plans = of(list(read_stream(lines_of("exitplan"), run_id="r")), events.QuestionRequested)
    assert {event.plan for event in plans} == {"1. touch file"}


def test_a_request_that_is_taken_back_is_answered_with_no() -> None:
    found = list(files.universal_of(read_stream(lines_of("interrupt-pending-permission"), run_id="r"), raw=False))
    statuses = [event.data.status for event in found if isinstance(event, u.PermissionResolved)]
    assert statuses == ["denied"]
    held = list(files.universal_of(read_stream(lines_of("pending-never-answered"), run_id="r"), raw=False))
    assert [event.data.status for event in held if isinstance(event, u.PermissionResolved)] == ["abandoned"]


def test_prompts_that_are_printed_back_are_the_users_messages() -> None:
    prompts = [event.message for event in of(list(read_stream(lines_of("replay-queue"), run_id="r")), events.Notice)]
    assert "/clear" in prompts


def test_damaged_and_unknown_lines_are_kept() -> None:
    lines = [
        b'{"type":"assistant","message":{"content":[]',
        b"Not logged in",
        b'{"type":"new_kind","a":1}',
        b"\xff\xfe{",
    ]
    reads = list(read_stream(lines, run_id="r"))
    assert [event.reason for event in of(reads, events.Unrecognised)] == [
        "not_json",
        "not_json",
        "unknown_type",
        "not_json",
    ]
    found = list(files.universal_of(reads, raw=True))
    check(found, lines)
    assert sum(isinstance(event, u.AgentUnparsed) for event in found) == 4


# -- session files ----------------------------------------------------------------------------------------------------

_COMMON = {"sessionId": "s1", "cwd": "/w", "version": "2.1.325", "isSidechain": False}


def line(kind: str, /, second: int = 0, **fields: Any) -> bytes:
    return json.dumps({"type": kind, "timestamp": f"2026-01-01T00:00:{second:02d}.000Z", **_COMMON, **fields}).encode()


def user(content: Any, second: int = 0, **fields: Any) -> bytes:
    return line("user", second, message={"role": "user", "content": content}, **fields)


def assistant(*blocks: dict[str, Any], second: int = 0, message_id: str = "m1", **fields: Any) -> bytes:
    usage = {"input_tokens": 10, "output_tokens": 2, "cache_creation": {"ephemeral_1h_input_tokens": 0}}
    message = {"id": message_id, "model": "claude-x", "role": "assistant", "content": list(blocks), "usage": usage}
    return line("assistant", second, message=message, **fields)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def call(call_id: str, name: str = "Bash", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": fields}


def result(call_id: str, words: str, **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": words, **fields}


def session(*lines: bytes, **fields: Any) -> list[Read]:
    reads = list(read_session(lines, run_id="r", **fields))
    assert [read.recorded.seq for read in reads] == list(range(1, len(reads) + 1))
    all_lines = [*lines, *(each for agent in fields.get("agents", ()) for each in agent.lines)]
    kept = Counter(read.raw for read in reads if read.raw)
    assert kept == Counter(each.decode("utf-8", "replace") for each in all_lines)
    for read in reads:
        OWN.validate(msgspec.json.decode(msgspec.json.encode(read.recorded)))
    return reads


def test_a_session_file_tells_turns_texts_calls_results_and_tokens() -> None:
    reads = session(
        line("custom-title", customTitle="t"),
        user("first", 1, permissionMode="plan"),
        line("attachment", 1, attachment={"type": "date"}, rendered=[{"content": "Today is Monday."}]),
        assistant(text("I look"), second=2),
        assistant(call("c1", command="ls"), second=2),
        user([result("c1", "no", is_error=True)], 3, toolDenialKind="permission-rule"),
        assistant(text("done"), second=4, message_id="m2"),
        user("second", 5),
        assistant(text("again"), second=6, message_id="m3"),
        line("cost-state", 6, totalCostUSD=0.25),
    )
    told = [read.recorded.event for read in reads]
    assert told[0] == events.SessionStarted(
        session_id="s1", provider="claude-code", model="claude-x", mode="plan", cwd="/w", agent_version="2.1.325"
    )
    assert [event.message for event in of(reads, events.Notice) if event.code == PROMPT] == ["first", "second"]
    assert "date\nToday is Monday." in [event.message for event in of(reads, events.Notice)]
    assert [event.text for event in of(reads, events.MessageCompleted)] == ["I look", "done", "again"]
    assert of(reads, events.ToolCompleted) == [
        events.ToolCompleted(call_id="c1", is_error=True, text="no", executed=False)
    ]
    assert [(event.turn, event.text, event.steps) for event in of(reads, events.TurnEnded)] == [
        (1, "done", 2),
        (2, "again", 1),
    ]
    folded = fold(read.recorded for read in reads)
    assert (folded.outcome, folded.text, folded.usage.output_tokens, folded.cost_usd) == ("succeeded", "again", 6, 0.25)
    assert folded.duration_s == pytest.approx(6 - 0)


@pytest.mark.parametrize(
    ("last", "outcome"),
    [
        ((), "failed"),
        ((assistant(call("c9")),), "failed"),
        ((assistant(call("c9")), user([result("c9", "x")])), "failed"),
        ((user([text("[Request interrupted by user]")]),), "stopped"),
        ((assistant(text("API Error: 500"), isApiErrorMessage=True),), "failed"),
        ((assistant(call("o", "StructuredOutput", a=1)), user([result("o", "ok")])), "succeeded"),
        ((assistant(text("fine")), line("last-prompt", lastPrompt="x")), "succeeded"),
    ],
)
def test_how_a_session_ended_is_told_only_when_its_lines_tell(last: tuple[bytes, ...], outcome: str) -> None:
    reads = session(user("go"), *last)
    folded = fold(read.recorded for read in reads)
    assert folded.outcome == outcome
    if outcome == "succeeded" and not folded.text:
        assert folded.output == {"a": 1}


def test_notes_of_the_program_are_no_prompts() -> None:
    reads = session(
        user("<command-name>/clear</command-name>"),
        user("Caveat", isMeta=True),
        user("[compacted]", isCompactSummary=True),
        line("system", subtype="compact_boundary", content="Conversation compacted"),
        line("summary", summary="What it was about"),
        b'{"type":"brand-new","sessionId":"s1"}',
        b'{"type":"user","message":"not an object","sessionId":"s1"}',
        b"half a li",
    )
    assert not of(reads, events.TurnStarted)
    codes = [(event.level, event.code) for event in of(reads, events.Notice)]
    assert codes[-2:] == [("info", "compact_boundary"), ("info", "summary")]
    assert [event.reason for event in of(reads, events.Unrecognised)] == ["unknown_type", "wrong_shape", "not_json"]


def test_subagents_are_woven_in_by_time() -> None:
    agent = SubagentFile(
        agent_id="a1",
        call_id="c1",
        description="look",
        kind="Explore",
        lines=[
            user("look there", 2, agentId="a1", isSidechain=True),
            assistant(text("found"), second=3, message_id="s1", agentId="a1", isSidechain=True),
        ],
    )
    reads = session(
        user("go", 1),
        assistant(call("c1", "Agent"), second=1),
        user([result("c1", "found")], 4, toolUseResult={"agentId": "a1", "status": "completed", "totalTokens": 12}),
        assistant(text("done"), second=5, message_id="m2"),
        agents=[agent],
    )
    assert of(reads, events.SubagentStarted) == [
        events.SubagentStarted(agent_id="a1", call_id="c1", description="look", kind="Explore")
    ]
    assert of(reads, events.SubagentEnded) == [
        events.SubagentEnded(agent_id="a1", call_id="c1", status="completed", tokens=12)
    ]
    assert [(event.text, event.agent_id) for event in of(reads, events.MessageCompleted)] == [
        ("found", "a1"),
        ("done", None),
    ]
    assert of(reads, events.TurnEnded)[0].text == "done"


def test_a_background_agents_news_is_a_turn_of_its_own() -> None:
    news = "<task-notification>\n<task-id>a1</task-id>\n<status>failed</status>\n<summary>it broke</summary>"
    reads = session(user("go"), assistant(text("ok")), user(news), assistant(text("pity"), message_id="m2"))
    assert of(reads, events.SubagentEnded) == [events.SubagentEnded(agent_id="a1", status="failed", summary="it broke")]
    assert [event.background for event in of(reads, events.TurnEnded)] == [False, True]


def test_half_an_emoji_does_not_hide_a_line() -> None:
    reads = session(user("go"), assistant(text("x")).replace(b'"text": "x"', b'"text": "x\\ud83d"'))
    assert [event.text[0] for event in of(reads, events.MessageCompleted)] == ["x"]


SESSION = [
    line("custom-title", customTitle="t"),
    user("go", 1),
    assistant(text("I look"), call("c1", command="ls"), second=2),
    user([result("c1", "no", is_error=True)], 3, toolDenialKind="permission-rule"),
    user([result("c2", "ok")], 3, toolUseResult={"agentId": "a1", "status": "completed"}),
    assistant(text("sub"), second=3, message_id="s1", agentId="a1"),
    user([text("[Request interrupted by user]")], 4),
    line("cost-state", totalCostUSD="much"),
    line("attachment", attachment=None, rendered=5),
    line("system", subtype="informational", content=["odd"]),
    b'{"type":"assistant","sessionId":"s1","message":{"content":[{"type":"text","text":5}],"usage":{"input_tokens":"x"}}}',
    b'{"type":["user"],"sessionId":7,"timestamp":"2026-99-01"}',
]
MIXED = [*SESSION, *(each for name in NAMES for each in lines_of(name)[:3]), b"[]", b"null", b"{}", b"\xff"]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(MIXED), st.integers(0, 400) | st.none()), max_size=25))
def test_lines_in_any_order_cut_anywhere_are_all_kept(drawn: list[tuple[bytes, int | None]]) -> None:
    lines = [kept for each, cut in drawn if (kept := each[:cut]).strip()]
    check(list(files.universal_of(read_stream(lines, run_id="r"), raw=True)), lines)
    reads = list(read_session(lines, run_id="r"))
    assert [read.raw for read in reads if read.raw is not None] == [each.decode("utf-8", "replace") for each in lines]
    check(list(files.universal_of(reads, raw=True)), lines)
    log = [msgspec.json.encode(read.recorded)[: 10**6] for read in reads]
    check(list(files.universal_of(files.read_log([*log, *lines]), raw=True)), [*log, *lines])


@pytest.mark.parametrize(
    ("written", "form"),
    [
        (b'{"type":"system","subtype":"init","session_id":"s"}', "stream-json"),
        (b'{"type":"result","is_error":false}', "stream-json"),
        (b'{"type":"assistant","message":{"content":[]}}', "stream-json"),
        (b'{"type":"queue-operation","sessionId":"s"}', "session"),
        (b'{"type":"summary","summary":"x","leafUuid":"u"}', "session"),
        (b'{"type":"user","sessionId":"s","message":{}}', "session"),
        (b'{"type":"other"}', None),
        (b'{"type":5}', None),
        (b"[1]", None),
        (b"words", None),
        (b"\xff", None),
    ],
)
def test_a_line_tells_its_form_or_nothing(written: bytes, form: str | None) -> None:
    assert form_of(written) == form
