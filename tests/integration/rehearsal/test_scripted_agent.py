"""The scripted agent as a real process: exact bytes, the gate's wire, and every kind of misbehaviour."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from leadrope.rehearsal import BadScript, executable, write_executable

Line = dict[str, Any]
INITIALIZE: Line = {
    "type": "control_request",
    "request_id": "i",
    "request": {"subtype": "initialize", "hooks": {"PreToolUse": [{"matcher": None, "hookCallbackIds": ["gate"]}]}},
}
USER: Line = {"type": "user", "message": {"role": "user", "content": "hello"}}


class Talk:
    """A conversation with the process, line by line."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def send(self, *lines: Line) -> None:
        assert self.process.stdin is not None
        for line in lines:
            self.process.stdin.write(json.dumps(line).encode() + b"\n")
        self.process.stdin.flush()

    def read(self) -> Line:
        assert self.process.stdout is not None
        line: Line = json.loads(self.process.stdout.readline())
        return line

    def answer(self, request: Line, decision: str, reason: str = "") -> None:
        output = {"hookEventName": "PreToolUse", "permissionDecision": decision, "permissionDecisionReason": reason}
        response = {
            "subtype": "success",
            "request_id": request["request_id"],
            "response": {"hookSpecificOutput": output},
        }
        self.send({"type": "control_response", "response": response})


@pytest.fixture
def claude(tmp_path: Path) -> Path:
    return tmp_path / "claude"


@contextmanager
def started(path: Path, *argv: str, **options: Any) -> Iterator[Talk]:
    pipe = subprocess.PIPE
    with subprocess.Popen([str(path), *argv], stdin=pipe, stdout=pipe, stderr=pipe, **options) as process:
        try:
            yield Talk(process)
        finally:
            process.kill()


def finished(path: Path, *argv: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([str(path), *argv], input=given, capture_output=True, check=False)


def test_it_answers_short_commands(claude: Path) -> None:
    script = {"version": "9.9.9 (Claude Code)", "answers": {"auth status": {"stdout": "no", "exit": 3}}, "steps": []}
    write_executable(claude, script)
    assert finished(claude, "--version").stdout == b"9.9.9 (Claude Code)\n"
    status = finished(claude, "auth", "status", "--json")
    assert (status.stdout, status.returncode) == (b"no", 3)
    assert claude.stat().st_mode & stat.S_IXUSR


def test_bytes_are_written_as_they_stand(claude: Path) -> None:
    steps: list[Line] = [
        {"line": "not json"},
        {"line": {"type": "x", "ü": [1]}},
        {"lines": [{"a": 1}, "b"]},
        {"raw": b"\xff\x00partial"},
        {"stderr": "oops\n"},
        {"exit": 7},
    ]
    done = finished(write_executable(claude, steps))
    assert done.stdout == 'not json\n{"type":"x","ü":[1]}\n{"a":1}\nb\n'.encode() + b"\xff\x00partial"
    assert done.stderr == b"oops\n"
    assert done.returncode == 7


def test_yaml_and_variables(claude: Path) -> None:
    text = "steps:\n  - repeat: {times: 2, steps: [{line: 'in {{cwd}}'}]}\n"
    done = finished(write_executable(claude, text, variables={"cwd": "/w"}))
    assert done.stdout == b"in /w\nin /w\n"
    assert done.returncode == 0


def test_a_conversation_through_the_gate(claude: Path, tmp_path: Path) -> None:
    """A call is announced, asked about, and runs only when allowed; all that was said to it is recorded."""
    steps: list[Line] = [
        {"initialize": True},
        {"await_user": True},
        {"init": {"tools": ["Bash"]}},
        {
            "call": {
                "tool": "Bash",
                "id": "t1",
                "input": {"command": "x"},
                "result": "ran",
                "touch": str(tmp_path / "m1"),
            }
        },
        {"call": {"tool": "Bash", "id": "t2", "touch": str(tmp_path / "m2")}},
        {"text": "done"},
        {"result": True},
        {"await_eof": True},
    ]
    record, start = tmp_path / "stdin.jsonl", tmp_path / "start.jsonl"
    write_executable(claude, {"steps": steps, "stdin_file": str(record), "start_file": str(start)})
    with started(claude, "-p", "--session-id", "s-1", "--model=m", cwd=tmp_path) as talk:
        talk.send(INITIALIZE, USER)
        ready = talk.read()["response"]
        assert ready["request_id"] == "i"
        assert ready["response"]["hooks_applied"] is ready["response"]["hook_on_failure_supported"] is True
        init = talk.read()
        assert (init["session_id"], init["model"], init["tools"]) == ("s-1", "m", ["Bash"])
        assert talk.read()["message"]["content"][0]["name"] == "Bash"
        hook = talk.read()
        assert hook["request"]["callback_id"] == "gate"
        assert hook["request"]["input"]["tool_input"] == {"command": "x"}
        assert not (tmp_path / "m1").exists()
        talk.answer(hook, "allow")
        assert talk.read()["message"]["content"][0]["content"] == "ran"
        assert (tmp_path / "m1").exists()
        talk.read()
        talk.answer(talk.read(), "deny", "not here")
        denied = talk.read()
        assert denied["message"]["content"][0]["is_error"] is True
        assert "not here" in denied["message"]["content"][0]["content"]
        assert denied["tool_result_meta"][0]["non_execution_kind"] == "permission-rule"
        talk.read()
        result = talk.read()
        assert next(iter(result)) != "type"
        assert (result["result"], len(result["permission_denials"])) == ("done", 1)
        assert talk.process.stdin is not None
        talk.process.stdin.close()
        assert talk.process.wait() == 0
    assert not (tmp_path / "m2").exists()
    assert [json.loads(line)["type"] for line in record.read_text().splitlines()] == [
        "control_request",
        "user",
        "control_response",
        "control_response",
    ]
    began = json.loads(start.read_text())
    assert began["argv"] == ["-p", "--session-id", "s-1", "--model=m"]
    assert began["cwd"] == str(tmp_path)


def test_calls_of_one_message_are_outstanding_together(claude: Path) -> None:
    steps = [{"initialize": True}, {"calls": [{"tool": "Read", "id": "a"}, {"tool": "Read", "id": "b"}]}]
    with started(write_executable(claude, steps)) as talk:
        talk.send(INITIALIZE)
        _ready, _use, _use2, first, second = (talk.read() for _ in range(5))
        talk.answer(second, "allow")
        talk.answer(first, "deny")
        results = [talk.read()["message"]["content"][0] for _ in range(2)]
        assert [(result["tool_use_id"], result["is_error"]) for result in results] == [("a", True), ("b", False)]


def test_ask_goes_on_to_can_use_tool_and_an_error_is_a_denial(claude: Path) -> None:
    steps = [
        {"initialize": True},
        {"call": {"tool": "Bash", "id": "a", "result": "ran"}},
        {"hook": {"tool": "Bash", "id": "b", "if_allowed": [{"line": "open"}], "if_denied": [{"line": {"shut": 1}}]}},
        {"ask": {"tool": "Bash", "id": "c", "if_allowed": [{"line": {"open": 1}}]}},
    ]
    allow = {"behavior": "allow", "updatedInput": {}}
    with started(write_executable(claude, steps)) as talk:
        talk.send(INITIALIZE)
        talk.read(), talk.read()
        talk.answer(talk.read(), "ask")
        asked = talk.read()
        assert asked["request"]["subtype"] == "can_use_tool"
        response: Line = {"subtype": "success", "request_id": asked["request_id"], "response": allow}
        talk.send({"type": "control_response", "response": response})
        assert talk.read()["message"]["content"][0]["content"] == "ran"
        hook = talk.read()
        error = {"subtype": "error", "request_id": hook["request_id"], "error": "x"}
        talk.send({"type": "control_response", "response": error})
        assert talk.read() == {"shut": 1}
        response["request_id"] = talk.read()["request_id"]
        talk.send({"type": "control_response", "response": response})
        assert talk.read() == {"open": 1}


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ({"hook_on_failure_supported": False}, {"hooks_applied": True}),
        ({"hooks_applied": False, "hook_on_failure_supported": False}, {}),
        ({"answer": {"hooks_applied": "maybe"}}, {"hooks_applied": "maybe", "hook_on_failure_supported": True}),
    ],
)
def test_an_agent_without_gate_support_can_be_played(claude: Path, step: Line, expected: Line) -> None:
    with started(write_executable(claude, [{"initialize": step}])) as talk:
        talk.send(INITIALIZE)
        info = talk.read()["response"]["response"]
        assert {name: value for name, value in info.items() if name.startswith("hook")} == expected


def test_initialize_can_fail_and_an_interrupt_be_awaited(claude: Path) -> None:
    steps = [{"initialize": {"error": "no"}}, {"await_control": "interrupt"}, {"line": {"done": 1}}]
    with started(write_executable(claude, steps)) as talk:
        talk.send(INITIALIZE)
        assert talk.read()["response"] == {"subtype": "error", "request_id": "i", "error": "no"}
        talk.send({"type": "control_request", "request_id": "z", "request": {"subtype": "interrupt"}})
        assert talk.read()["response"]["request_id"] == "z"
        assert talk.read() == {"done": 1}


def test_a_call_past_the_gate_can_be_played(claude: Path) -> None:
    done = finished(write_executable(claude, [{"call": {"tool": "Bash", "id": "t", "gate": False, "result": "ran"}}]))
    kinds = [json.loads(line)["type"] for line in done.stdout.splitlines()]
    assert kinds == ["assistant", "user"]


def test_closed_input_and_malformed_input_end_it(claude: Path) -> None:
    write_executable(claude, {"steps": [{"await_user": True}, {"exit": 0}], "exit_when_input_closes": 5})
    assert finished(claude).returncode == 5
    broken = finished(claude, given=b"{nonsense\n")
    assert broken.returncode == 1
    assert b"malformed JSON" in broken.stderr


def test_a_recording_is_played_back(claude: Path, tmp_path: Path) -> None:
    recording = tmp_path / "recording.jsonl"
    hook = {"subtype": "hook_callback", "callback_id": "old", "input": {}, "tool_use_id": "t"}
    lines: list[Line] = [
        {"type": "control_response", "response": {"subtype": "success", "request_id": "old", "response": {"pid": 1}}},
        {"type": "control_request", "request_id": "r", "request": hook},
        {"type": "result"},
    ]
    recording.write_text("".join(json.dumps(line) + "\n" for line in lines) + "no json\n")
    plain = write_executable(tmp_path / "plain", [{"play": {"file": str(recording)}}])
    assert finished(plain).stdout == recording.read_bytes()
    write_executable(claude, [{"play": {"file": str(recording), "interactive": True}}])
    with started(claude) as talk:
        talk.send(INITIALIZE)
        assert talk.read()["response"]["request_id"] == "i"
        asked = talk.read()
        assert asked["request"]["callback_id"] == "gate"
        talk.answer(asked, "allow")
        assert talk.read() == {"type": "result"}
        assert talk.process.stdout is not None
        assert talk.process.stdout.readline() == b"no json\n"


@pytest.mark.parametrize(("size", "allowed"), [(1400, {1400}), ([1300, 1600], set(range(1300, 1601)))])
def test_a_flood_has_the_lines_and_sizes_that_were_asked_for(claude: Path, size: Any, allowed: set[int]) -> None:
    done = finished(write_executable(claude, [{"flood": {"lines": 2500, "size": size}}]))
    lines = done.stdout.splitlines(keepends=True)
    assert len(lines) == 2500
    assert {len(line) for line in lines} <= allowed
    assert len({json.loads(line)["message"]["id"] for line in lines}) == 2500


def test_it_can_die_of_a_signal_and_ignore_one(claude: Path, tmp_path: Path) -> None:
    assert finished(write_executable(claude, [{"die": 11}])).returncode == -11
    write_executable(claude, [{"ignore_sigterm": True}, {"line": {"ready": 1}}, {"await_user": True}, {"exit": 9}])
    with started(claude) as talk:
        talk.read()
        talk.process.send_signal(signal.SIGTERM)
        talk.send(USER)
        assert talk.process.wait() == 9


def test_it_can_close_its_output_and_hang(claude: Path) -> None:
    with started(write_executable(claude, [{"close_stdout": True}, {"close_stderr": True}, {"hang": True}])) as talk:
        assert talk.process.stdout is not None
        assert talk.process.stdout.read() == b""
        assert talk.process.poll() is None


def test_it_can_wait_for_a_file(claude: Path, tmp_path: Path) -> None:
    go, seen = tmp_path / "go", tmp_path / "seen"
    steps = [{"line": {"n": 1}}, {"await_file": go}, {"touch": seen}, {"pause_ms": 1}, {"line": {"n": 2}}]
    with started(write_executable(claude, steps)) as talk:
        talk.read()
        assert not seen.exists()
        go.touch()
        assert talk.read() == {"n": 2}
        assert seen.exists()


def _fields(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()


@pytest.mark.parametrize("kind", ["child", "setsid", "double_fork", "background"])
def test_children_are_what_their_kind_says(claude: Path, tmp_path: Path, kind: str) -> None:
    pids = tmp_path / "pids"
    spawn = {"kind": kind, "pid_file": str(pids), "clear_env": True, "ignore_sigterm": True}
    with started(write_executable(claude, [{"spawn": spawn}, {"line": {"ready": 1}}, {"hang": True}])) as talk:
        talk.read()
        pid = int(pids.read_text())
        try:
            parent, group, session = (int(field) for field in _fields(pid)[1:4])
            agent = talk.process.pid
            assert (parent == agent) == (kind != "double_fork")
            assert (group == os.getpgid(agent)) == (kind == "child")
            assert (session == os.getsid(agent)) == (kind in ("child", "background"))
            assert Path(f"/proc/{pid}/environ").read_bytes() == b""
            status = Path(f"/proc/{pid}/status").read_text()
            ignored = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigIgn"))
            assert ignored & (1 << (signal.SIGTERM - 1))
        finally:
            os.kill(pid, signal.SIGKILL)


BAD: list[tuple[Any, str, str]] = [
    ("words", "script", "must be a mapping"),
    ([{"lin": "x"}], "steps[0]", "unknown field `lin`"),
    ([{"line": "x", "text": "y"}], "steps[0]", "exactly one thing; this one has line, text"),
    ([{}], "steps[0]", "none"),
    ([{"text": "x"}, {"call": {"tool": "Bash"}}], "steps[1].call", "`id`"),
    ([{"spawn": {"kind": "thread"}}], "steps[0].spawn.kind", "thread"),
    ([{"spawn": {"argv": []}}], "steps[0].spawn.argv", "empty"),
    ([{"flood": {"lines": 0}}], "steps[0].flood", "one line or more"),
    ([{"repeat": {"times": 1, "steps": [{}]}}], "steps[0].repeat.steps[0]", "none"),
    ([{"hook": {"tool": "A", "id": "b", "if_denied": [{"exit": "x"}]}}], "steps[0].hook.if_denied[0].exit", "int"),
    ([{"line": "{{cwd}}"}], "steps[0].line", "not given"),
]


@pytest.mark.parametrize(("script", "place", "words"), BAD)
def test_a_bad_script_is_refused_with_the_place(claude: Path, script: Any, place: str, words: str) -> None:
    with pytest.raises(BadScript) as caught:
        write_executable(claude, script)
    assert caught.value.field == place
    assert words in caught.value.message
    assert not claude.exists()


def test_every_step_that_passes_the_check_can_be_played() -> None:
    from leadrope.rehearsal import agent

    played = {name.removeprefix("do_") for name in dir(agent.ScriptedAgent) if name.startswith("do_")}
    assert set(executable._Step.__struct_fields__) == played


def test_a_long_or_spaced_path_of_the_interpreter_still_starts(
    claude: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spaced = tmp_path / "it's a long way" / ("x" * 120)
    spaced.mkdir(parents=True)
    real = sys.executable
    (spaced / "python").write_text(f'#!/bin/sh\nexec "{real}" "$@"\n')
    (spaced / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(spaced / "python"))
    assert finished(write_executable(claude, [{"line": "up"}]), "-p").stdout == b"up\n"


def test_it_starts_without_heavy_modules(claude: Path) -> None:
    """msgspec, yaml and the rest of the package would triple the start-up time."""
    *start, _ = write_executable(claude, [{"line": "up"}]).read_text().splitlines()
    heavy = "{'msgspec', 'yaml', 'asyncio', 'leadrope', 'pathlib', 'subprocess'}"
    claude.write_text("\n".join([*start, f"print(*({heavy} & {{name.split('.')[0] for name in sys.modules}}))"]))
    assert finished(claude).stdout == b"\n"


def test_it_can_be_started_as_a_module(tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    script.write_text("- line: up\n- exit: 4\n")
    done = subprocess.run(
        [sys.executable, "-m", "leadrope.rehearsal.agent", str(script), "-p"], capture_output=True, check=False
    )
    assert (done.stdout, done.returncode) == (b"up\n", 4)
