"""`leadrope events` and `leadrope import-transcript`: finding a log, its forms, and clear refusals."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from leadrope.cli.main import main
from leadrope.cli.runs import events as cli_events
from leadrope.core import events, home
from leadrope.core.request import RunRequest
from leadrope.core.secrets.redaction import Redactor
from leadrope.core.universal import schemas
from leadrope.runs.records.sqlite import Sqlite
from leadrope.runs.records.values import NewRun, Progress
from leadrope.runtime.sessions.files import SessionInfo, write_info
from leadrope.storage import database

RECORDINGS = Path(__file__).parents[2] / "recordings"
SMOKE = RECORDINGS / "smoke-bash" / "stdout.jsonl"


def told(capsys: pytest.CaptureFixture[str], *args: str) -> list[dict[str, Any]]:
    assert main(list(args)) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    return [json.loads(line) for line in shown.out.splitlines()]


def refused(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert main(list(args)) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Traceback" not in shown.err
    return shown.err


def records(run: str, session: str = "s", text: str = "hi") -> list[events.Recorded]:
    happened: list[events.Event] = [
        events.SessionStarted(session_id=session, provider="claude-code"),
        events.TurnStarted(turn=1),
        events.MessageCompleted(text=text),
        events.TurnEnded(turn=1, is_error=False, reason="success", text=text, steps=1),
    ]
    return [events.Recorded(run, 1, seq, 50.0 + seq, "agent", event) for seq, event in enumerate(happened, 1)]


def store(scratch: Path, *runs: tuple[str, str]) -> None:
    """Runs of these ids and sessions, in this order, in a run store as the service writes it."""

    async def fill() -> None:
        with Sqlite(database.path_in(scratch / "leadrope")) as kept:
            for run, session in runs:
                new = NewRun(id=run, request=RunRequest(prompt="go"), state="running", owner="someone")
                row = await kept.add_run(new)
                progress = Progress(
                    state="running", attempt=1, cost_usd=0, tokens=0, model="m", session_id=session, last_action=""
                )
                await kept.append(row, records(run, session), progress, Redactor())

    asyncio.run(fill())


def test_a_run_is_found_by_the_beginning_of_its_id(scratch_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store(scratch_home, ("aaaa1111", "5e55ion-one"), ("aabb2222", "5e55ion-two"))
    found = told(capsys, "events", "aab")
    assert found == [msgspec.to_builtins(recorded) for recorded in records("aabb2222", "5e55ion-two")]
    assert told(capsys, "events", "aabb2222") == found
    assert "'aa' could be aaaa1111, aabb2222" in refused(capsys, "events", "aa")
    assert "'5e55' could be 5e55ion-one, 5e55ion-two" in refused(capsys, "events", "5e55")
    err = refused(capsys, "events", "zzz")
    assert "there is no file, run or session 'zzz'" in err
    assert "open_run" in err, "a run of a program is not to be looked for here"


def test_without_a_store_it_is_told_whose_events_are_where(
    scratch_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    err = refused(capsys, "events", "aaaa1111")
    assert f"no run is stored in {scratch_home / 'leadrope'} yet" in err
    assert "-o stream-json" in err
    assert not (scratch_home / "leadrope").exists(), "looking makes nothing"


def test_a_long_run_comes_whole(
    scratch_home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_events, "PAGE", 3)
    store(scratch_home, *((f"run{n}", "5e55ion") for n in range(8)))
    assert [line["seq"] for line in told(capsys, "events", "run1")] == [1, 2, 3, 4]
    found = told(capsys, "events", "5e55", "--type", "turn.started")
    assert [line["run_id"] for line in found] == [f"run{n}" for n in range(8)]


def test_a_session_is_all_its_runs_oldest_first(scratch_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store(scratch_home, ("bbbb", "5e55ion"), ("cccc", "another"), ("aaaa", "5e55ion"))
    found = told(capsys, "events", "5e55ion", "--type", "session.started")
    assert [line["run_id"] for line in found] == ["bbbb", "aaaa"]
    exported = told(capsys, "events", "5e55", "--universal", "--type", "session.ended")
    assert [(line["session_id"], line["data"]["reason"]) for line in exported] == [
        ("bbbb", "completed"),
        ("aaaa", "completed"),
    ]


def test_a_session_knows_its_runs_too(scratch_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run may begin in one session and end in another; session.json lists it in both, the store in the last."""
    store(scratch_home, ("aaaa", "first"), ("bbbb", "second"))
    for name, runs in (("first", ("aaaa", "bbbb")), ("unstored", ("cccc",))):
        folder = home.ensure(home.sessions_dir(scratch_home / "leadrope") / name)
        write_info(folder, SessionInfo(id=name, runs=runs))
    found = told(capsys, "events", "first", "--type", "turn.started")
    assert [line["run_id"] for line in found] == ["aaaa", "bbbb"]
    assert "none of the runs of session unstored is stored" in refused(capsys, "events", "unst")


def test_a_universal_export_is_valid_and_keeps_raw_lines_on_request(
    scratch_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store(scratch_home, ("run1", "s"))
    lines = [msgspec.json.encode(recorded).decode() for recorded in records("run1")]
    path = scratch_home / "run1.jsonl"
    path.write_text("\n".join(lines) + "\n")
    valid = jsonschema_rs.Draft202012Validator(schemas.text_of(schemas.universal_schema()))
    plain = told(capsys, "events", "run1", "--universal")
    kept = told(capsys, "events", "run1", "--universal", "--raw")
    for line in (*plain, *kept):
        valid.validate(line)
    assert not [line for line in plain if "raw" in line]
    assert [line["raw"] for line in kept if "raw" in line] == lines
    assert [line["sequence"] for line in kept] == list(range(1, len(kept) + 1))
    assert told(capsys, "events", str(path), "--universal", "--raw") == kept, "a file says the same"


def test_a_recording_of_the_cli_is_read_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    ours = told(capsys, "events", str(SMOKE), "--type", "tool.requested", "--type", "tool.completed")
    assert [line["event"]["type"] for line in ours] == ["tool.requested", "tool.completed"]
    assert told(capsys, "import-transcript", str(SMOKE)) == told(capsys, "events", str(SMOKE))
    both = told(capsys, "import-transcript", str(SMOKE), "--output", "universal", "--raw")
    assert both == told(capsys, "events", str(SMOKE), "--universal", "--raw")


def test_an_import_is_written_for_its_owner_only_and_can_be_read_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "events.jsonl"
    assert told(capsys, "import-transcript", str(SMOKE), "-O", str(out)) == []
    assert out.stat().st_mode & 0o777 == 0o600
    assert told(capsys, "events", str(out)) == told(capsys, "import-transcript", str(SMOKE))
    assert [path.name for path in tmp_path.iterdir()] == ["events.jsonl"]


def test_subagents_lie_beside_their_session(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = {"sessionId": "s", "timestamp": "2026-01-01T00:00:00.000Z"}
    words = {"type": "assistant", "message": {"id": "m", "content": [{"type": "text", "text": "sub"}]}}
    (tmp_path / "s.jsonl").write_text(json.dumps({"type": "user", "message": {"content": "go"}, **common}) + "\n")
    folder = tmp_path / "s" / "subagents"
    folder.mkdir(parents=True)
    (folder / "agent-a1.jsonl").write_text(json.dumps({**words, "agentId": "a1", **common}) + "\n")
    (folder / "agent-a1.meta.json").write_text('{"agentType":"Plan","toolUseId":"c1","description":"think"}')
    (folder / "agent-a2.jsonl").write_text(json.dumps({**words, "agentId": "a2", **common}) + "\n")
    found = told(capsys, "import-transcript", str(tmp_path / "s.jsonl"), "--output", "events")
    started = [line["event"] for line in found if line["event"]["type"] == "subagent.started"]
    assert started == [
        {"type": "subagent.started", "agent_id": "a1", "call_id": "c1", "description": "think", "kind": "Plan"},
        {"type": "subagent.started", "agent_id": "a2"},
    ]


def test_damaged_and_later_lines_of_our_own_log_are_kept(
    scratch_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = scratch_home / "run1.jsonl"
    path.write_bytes(msgspec.json.Encoder().encode_lines(records("run1")))
    later = json.loads(path.read_text().splitlines()[1]) | {"event": {"type": "moon.rose"}, "seq": 5}
    path.write_text(path.read_text() + json.dumps(later) + '\n{"run_id":"run1","att')
    found = told(capsys, "events", str(path))
    assert [line["event"].get("reason") for line in found[-2:]] == ["unknown_type", "not_json"]
    assert [line["seq"] for line in found] == [1, 2, 3, 4, 5, 6]
    assert "moon.rose" in found[-2]["event"]["raw"]


def test_the_schemas_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["events", "--schema"]) == 0
    assert capsys.readouterr().out == schemas.text_of(schemas.event_schema())
    assert main(["events", "--schema", "--universal"]) == 0
    assert capsys.readouterr().out == schemas.text_of(schemas.universal_schema())


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"\x7fELF\x00\x01\x02", "is a binary file, not a transcript"),
        (b"# A page\nof words\n", "holds no line of a transcript that leadrope knows"),
        (b'{"name":"package","version":"1"}\n', "holds no line of a transcript that leadrope knows"),
        (b"\xff\xfe\xfd\n", "holds no line of a transcript that leadrope knows"),
    ],
)
def test_a_file_that_is_no_transcript_is_refused_with_its_name(
    content: bytes | None, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "given.jsonl"
    if content is not None:
        path.write_bytes(content)
        assert f"{path} {why}" in refused(capsys, "events", str(path))
    assert f"{path} {why}" in refused(capsys, "import-transcript", str(path))
    assert why.partition(":")[0] in refused(capsys, "import-transcript", str(path), "-O", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["events"], "no run is stored in"),
        (["events", str(SMOKE), "--raw"], "only the universal form has a place for it"),
        (["events", str(SMOKE), "--type", "item.started"], "there is no type 'item.started'"),
        (["events", str(SMOKE), "--universal", "--type", "notice"], "there is no type 'notice'"),
        (["import-transcript", str(SMOKE), "--raw"], "only the universal form has a place for it"),
        (["import-transcript", str(SMOKE), "-O", str(SMOKE)], "is the file that is read"),
        (["import-transcript", str(SMOKE), "-O", "/no/such/place/x"], "cannot be written: No such file or directory"),
        (["import-transcript", str(RECORDINGS)], "is a folder, not a regular file"),
    ],
)
def test_wrong_usage_is_told(args: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert why in refused(capsys, *args)
