"""The session file that the real CLI writes, read back: it says what the run's own events said."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec

from leadrope import events
from leadrope.cli.runs.transcripts import read_file, universal_of
from leadrope.core.fold import fold
from leadrope.core.universal import schemas
from leadrope.core.universal import types as u
from leadrope.core.universal.conversion import PROMPT


def said(told: list[events.Event]) -> dict[str, Any]:
    """What both must agree on. Order between agents is not told: each has a file of its own."""
    return {
        "texts": [(e.text, e.is_error) for e in told if isinstance(e, events.MessageCompleted) and e.agent_id is None],
        "thoughts": [e.text for e in told if isinstance(e, events.ThinkingCompleted)],
        "calls": sorted(
            (e.call.id, e.call.name, str(e.call.input), e.call.agent_id or "")
            for e in told
            if isinstance(e, events.ToolRequested)
        ),
        "results": sorted(
            (e.call_id, e.text, e.is_error, e.executed) for e in told if isinstance(e, events.ToolCompleted)
        ),
        "agents": sorted(
            (e.agent_id, e.call_id, e.description, e.kind) for e in told if isinstance(e, events.SubagentStarted)
        ),
        "agents_ended": sorted((e.agent_id, e.call_id, e.status) for e in told if isinstance(e, events.SubagentEnded)),
        "turns": [(e.turn, e.is_error, e.text) for e in told if isinstance(e, events.TurnEnded)],
    }


async def test_a_session_file_says_what_its_run_said(stage: Any) -> None:
    (stage.ws / "a.txt").write_text("hello\n")
    agent = {
        "name": "Agent",
        "input": {
            "description": "count",
            "prompt": "Count the files",
            "subagent_type": "general-purpose",
            "run_in_background": False,
        },
    }
    script = {
        "turns": [
            {
                "blocks": [
                    {"thinking": "hm"},
                    {"text": "I look."},
                    {"tool": {"name": "Read", "input": {"file_path": str(stage.ws / "a.txt")}}},
                ]
            },
            {"tool": {"name": "Bash", "input": {"command": "ls nowhere", "description": "fails"}}},
            {"tool": stage.touch},
            {"tool": {"name": "NoSuchTool", "input": {}}},
            {"tool": agent},
            {"text": "All done."},
        ],
        "subagents": [[{"tool": {"name": "Bash", "input": {"command": "ls", "description": "look"}}}, {"text": "one"}]],
    }

    def not_the_marker(asked: events.ApprovalRequested) -> bool:
        return "touch" not in asked.call.input.get("command", "")

    played = await stage.play(script, approver=not_the_marker, prompt="Look around")
    assert played.result.outcome == "succeeded"
    files = [path for path in Path(stage.home).rglob("*.jsonl") if path.stem == played.result.session_id]
    files = [path for path in files if "projects" in path.parts]
    assert len(files) == 1
    reads = list(read_file(files[0]))
    told = [read.recorded.event for read in reads]
    assert said(told) == said(played.events)
    # The CLI does not print the last words of an agent that it waits for: they come as its call's result.
    assert [event.text for event in told if isinstance(event, events.MessageCompleted) and event.agent_id] == ["one"]
    assert not [event for event in told if isinstance(event, events.Unrecognised)], "a kind of line is not known yet"
    assert [event.message for event in told if isinstance(event, events.Notice) and event.code == PROMPT] == [
        "Look around"
    ]
    started = next(event for event in told if isinstance(event, events.SessionStarted))
    assert (started.session_id, started.model) == (played.result.session_id, played.result.model)
    folded = fold(read.recorded for read in reads)
    assert (folded.outcome, folded.text, folded.usage) == ("succeeded", "All done.", played.result.usage)
    paths = (files[0], *files[0].with_suffix("").rglob("*.jsonl"))
    written = [line for path in paths for line in path.read_text().split("\n") if line]
    assert Counter(read.raw for read in reads if read.raw) == Counter(written)

    valid = jsonschema_rs.Draft202012Validator(schemas.text_of(schemas.universal_schema()))
    own = jsonschema_rs.Draft202012Validator(schemas.event_schema())
    exported = list(universal_of(reads, raw=True))
    for line in exported:
        valid.validate(msgspec.json.decode(msgspec.json.encode(line)))
    assert len([line for line in exported if line.raw is not msgspec.UNSET]) == len(written)
    assert isinstance(exported[-1], u.SessionEnded)
    assert exported[-1].data.reason == "completed"

    log = stage.home / "run.jsonl"
    log.write_bytes(b"".join(msgspec.json.encode(recorded) + b"\n" for recorded in played.recorded))
    assert [read.recorded for read in read_file(log)] == played.recorded
    for recorded in played.recorded:
        own.validate(msgspec.json.decode(msgspec.json.encode(recorded)))
    for line in universal_of(read_file(log), raw=False):
        valid.validate(msgspec.json.decode(msgspec.json.encode(line)))
