"""The one-shot JSON form: always a reply, with the texts and fallbacks that its users know."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from leadrope.cli.main import main
from leadrope.providers.claude_code.oneshot import NO_TEXT, OneshotReply, decode_oneshot

SUCCESS = {
    "type": "result",
    "subtype": "success",
    "result": "The answer.",
    "is_error": False,
    "cost_usd": 0.003,
    "total_cost_usd": 0.004,
    "session_id": "abc",
    "model": "m",
    "num_turns": 2,
}


def reply(exit_code: int = 0, stderr: str = "", **changes: Any) -> OneshotReply:
    return decode_oneshot(json.dumps(SUCCESS | changes), stderr, exit_code)


def test_a_plain_answer() -> None:
    assert reply() == OneshotReply(text="The answer.", model="m", session_id="abc", turns=2, cost_usd=0.004)


def test_bytes_and_text_are_the_same() -> None:
    assert decode_oneshot(json.dumps(SUCCESS).encode(), "", 0) == reply()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"result": ""}, NO_TEXT),
        ({"result": None}, NO_TEXT),
        (
            {"result": "", "is_error": True, "subtype": "error_during_execution"},
            "Error from Claude: error_during_execution",
        ),
        ({"result": None, "is_error": True, "subtype": None, "error": "overloaded"}, "Error from Claude: overloaded"),
        ({"result": None, "is_error": True, "subtype": None}, "Error from Claude: unknown"),
        ({"result": {"result": "nested"}}, "nested"),
        ({"result": {"a": 1}}, '{"a":1}'),
        ({"result": "", "structured_output": {"a": 1}}, '{"a":1}'),
        ({"result": "said", "structured_output": {"a": 1}}, "said"),
    ],
)
def test_the_text_is_the_best_there_is(changes: dict[str, Any], text: str) -> None:
    assert reply(**changes).text == text


def test_structured_output_is_kept_as_data() -> None:
    assert reply(structured_output={"a": 1}).output == {"a": 1}


def test_the_limit_of_turns_warns_and_keeps_the_text() -> None:
    cut = reply(subtype="error_max_turns", result="Half")
    assert (cut.text, cut.is_error) == ("Half", False)
    assert [warning.kind for warning in cut.warnings] == ["max_turns"]


def test_the_limit_of_turns_is_no_failure_when_the_cli_exits_with_1() -> None:
    cut = reply(exit_code=1, subtype="error_max_turns", result="Half")
    assert (cut.text, cut.exit_code) == ("Half", 1)


@pytest.mark.parametrize("stdout", ["  plain words\n", '{"result": "cut', "[1,2]", '{"is_error": "no"}'])
def test_what_cannot_be_read_is_given_as_it_is_with_a_warning(stdout: str) -> None:
    raw = decode_oneshot(stdout, "", 0)
    assert (raw.text, raw.model) == (stdout.strip(), None)
    assert [warning.kind for warning in raw.warnings] == ["claude_code.unreadable_reply"]


def test_an_answer_that_is_only_a_text() -> None:
    assert decode_oneshot('"hello"', "", 0) == OneshotReply(text="hello")


def test_a_bad_exit_is_an_error_with_its_code_and_stderr() -> None:
    failed = decode_oneshot("", "Error: no such model\n", 1)
    assert failed == OneshotReply(
        text="claude CLI exited with code 1: Error: no such model", is_error=True, exit_code=1
    )


def test_a_bad_exit_keeps_what_the_answer_still_tells() -> None:
    failed = reply(exit_code=1, is_error=True, result="Not logged in")
    assert failed.text == "claude CLI exited with code 1: Not logged in"
    assert (failed.is_error, failed.session_id, failed.cost_usd) == (True, "abc", 0.004)


def test_todays_cli_names_the_model_in_its_usage() -> None:
    assert reply(model=None, modelUsage={"claude-x": {"costUSD": 0.1}}).model == "claude-x"


# -- a file that is one reply -----------------------------------------------------------------------------------------

SAMPLE = """{"type": "assistant", "message": {"content": [{"type": "text", "text": "..."}]}}
{"type": "tool_use", "tool_use": {"name": "Read", "input": {"file_path": "a"}}}
{"type": "result", "result": "Final response text", "session_id": "abc123"}
"""
RESULT = '{"type":"result","subtype":"success","is_error":false,"result":"alone","session_id":"s-1","num_turns":1}'


@pytest.mark.parametrize(
    ("content", "session", "texts", "output"),
    [
        ('"a string"', None, ["a string"], None),
        ('{"result": "done", "session_id": "abc123"}', "abc123", ["done"], None),
        (
            '{"result": "done", "session_id": "abc123", "structured_output": {"n": 1}}',
            "abc123",
            ["done"],
            {"n": 1},
        ),
        ('{\n  "result": "over\\nlines",\n  "session_id": "x"\n}\n', "x", ["over\nlines"], None),
        ('{"structured_output": {"n": 1}, "session_id": "x"}', "x", ['{"n":1}'], {"n": 1}),
        ('{"result": {"text": "inside"}}', None, ["inside"], None),
        ('{"error": {"text": "no credit"}, "session_id": "x"}', "x", ["Error from Claude: no credit"], None),
        (SAMPLE, "abc123", ["..."], None),
        (RESULT, "s-1", ["alone"], None),
    ],
    ids=["string", "object", "output", "lines", "only output", "nested", "error", "sample", "result line"],
)
@pytest.mark.parametrize("form", ["events", "universal"])
def test_an_import_reads_what_the_agent_gave(
    tmp_path: Path, capfdbinary: Any, form: str, content: str, session: str | None, texts: list[str], output: Any
) -> None:
    """A string is the assistant's message, an object's `result` is; structured output is kept beside it."""
    path = tmp_path / "reply.json"
    path.write_text(content)
    assert main(["import-transcript", str(path), "--output", form]) == 0
    lines = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    if form == "events":
        told = [line["event"] for line in lines]
        sessions = [event["session_id"] for event in told if event["type"] == "session.started"]
        said = [event["text"] for event in told if event["type"] == "message.completed"]
        (ended,) = [event for event in told if event["type"] == "turn.ended"]
        assert ended.get("output") == output
    else:
        sessions = [line["native_session_id"] for line in lines if line["native_session_id"]][-1:]
        items = [line["data"]["item"] for line in lines if line["type"] == "item.completed"]
        messages = [item for item in items if (item["kind"], item["role"]) == ("message", "assistant")]
        said = [part["text"] for item in messages for part in item["content"] if part["type"] == "text"]
        (ended,) = [line["data"] for line in lines if line["type"] == "turn.ended"]
        assert ended.get("output") == output
    assert sessions == ([session] if session else [])
    assert said == texts


@pytest.mark.parametrize("content", ["{}", '{"name": "x"}', "[1]", "12", '""', "plain words", '{"result": '])
def test_other_files_are_refused(tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "other.json"
    path.write_text(content)
    assert main(["import-transcript", str(path)]) == 2
    assert "holds no line of a transcript" in capsys.readouterr().err
