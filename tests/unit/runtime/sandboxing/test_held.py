"""Sandbox violations, read from what tools print: a table of complaints, and of what only looks like one."""

from __future__ import annotations

from typing import Any

import pytest

from leadrope.core import events
from leadrope.core.tools import ToolCall
from leadrope.process.sandbox.values import Sight
from leadrope.runtime.sandboxing import sandbox_violations

HOME = "/home/u"
SIGHT = Sight(
    places={
        "/tmp": "private",
        "/home": "private",
        "/usr": "ro",
        "/etc": "ro",
        HOME: "private",
        f"{HOME}/project": "rw",
        f"{HOME}/project/.git/config": "ro",
        f"{HOME}/.nvm": "ro",
    },
    home=HOME,
    workspace=f"{HOME}/project",
)
ALONE = Sight(places=SIGHT.places, home=HOME, workspace=SIGHT.workspace, network="model-only")
OUTSIDE = {f"{HOME}/.ssh/id_rsa", f"{HOME}/.ssh", f"{HOME}/diary", "/srv/data", "/srv", "/tmp/notes", "/proc/4711"}


def seen(
    name: str, given: dict[str, Any], text: str, sight: Sight = SIGHT, *, is_error: bool = True
) -> list[tuple[str, str]]:
    call = ToolCall(id="c1", name=name, input=given)
    done = events.ToolCompleted(call_id="c1", text=text, is_error=is_error)
    found = sandbox_violations.look(call, done, sight, exists=OUTSIDE.__contains__)
    assert all(event.call_id == "c1" and event.message for event in found)
    return [(event.kind, event.target) for event in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bash: line 1: /usr/bin/x: Read-only file system", [("write", "/usr/bin/x")]),
        ("touch: cannot touch '/etc/a file': Read-only file system", [("write", "/etc/a file")]),
        ("OSError: [Errno 30] Read-only file system: '/usr/x'", [("write", "/usr/x")]),
        ("Error: EROFS: read-only file system, open '/etc/x'", [("write", "/etc/x")]),
        ("mkdir: cannot create directory \u2018/opt2/x\u2019: Permission denied", [("write", "/opt2/x")]),
        ("cat: /home/u/.ssh/id_rsa: No such file or directory", [("read", f"{HOME}/.ssh/id_rsa")]),
        ("cat: ../diary: No such file or directory", [("read", f"{HOME}/diary")]),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/tmp/notes'", [("read", "/tmp/notes")]),
        ("bash: /srv/data/new: No such file or directory", [("write", "/srv/data/new")]),
        ("bash: line 1: kill: (4711) - No such process", [("signal", "4711")]),
        ("kill: sending signal to 4711 failed: Operation not permitted", [("signal", "4711")]),
        (
            "error: could not write config file .git/config: Device or resource busy",
            [("write", f"{HOME}/project/.git/config")],
        ),
    ],
)
def test_a_complaint_about_the_sandbox_is_told(text: str, expected: list[tuple[str, str]]) -> None:
    assert seen("Bash", {"command": "x"}, f"before\n{text}\nafter") == expected
    assert seen("Bash", {"command": "x; true"}, text, is_error=False) == expected


@pytest.mark.parametrize(
    "text",
    [
        "all is well",
        "cat: missing.txt: No such file or directory",
        "cat: /home/u/project/missing: No such file or directory",
        "cat: /home/u/never-was: No such file or directory",
        "cat: /etc/shadow: Permission denied",
        "bash: /home/u/project/run.sh: Permission denied",
        "ls: cannot access '/usr/share/none': No such file or directory",
        "kill: (99999) - No such process",
        "error: could not write config file other/config: Device or resource busy",
        "curl: (6) Could not resolve host: example.com",
        "",
    ],
)
def test_what_would_fail_without_a_sandbox_too_is_no_event(text: str) -> None:
    assert seen("Bash", {"command": "x"}, text) == []


@pytest.mark.parametrize(
    ("name", "given", "text", "expected"),
    [
        ("Read", {"file_path": f"{HOME}/diary"}, "File does not exist.", [("read", f"{HOME}/diary")]),
        ("Read", {"file_path": f"{HOME}/none"}, "File does not exist.", []),
        ("Write", {"file_path": "/etc/x"}, "EROFS: read-only file system, open '/etc/x'", [("write", "/etc/x")]),
        ("Write", {"file_path": "/srv/x"}, "ENOENT: no such file or directory", [("write", "/srv/x")]),
        ("Edit", {"file_path": "/srv/data"}, "File does not exist.", [("write", "/srv/data")]),
        ("Edit", {"file_path": f"{HOME}/project/a"}, "File does not exist.", []),
        ("Edit", {"file_path": "/etc/x"}, "String to replace not found", []),
        ("mcp__files__touch", {"path": "/usr/x"}, "Read-only file system: '/usr/x'", [("write", "/usr/x")]),
    ],
)
def test_tools_that_name_their_path(
    name: str, given: dict[str, Any], text: str, expected: list[tuple[str, str]]
) -> None:
    assert seen(name, given, text) == expected


def test_a_file_that_vanishes_with_the_run_was_not_written() -> None:
    given = {"file_path": f"{HOME}/notes.md"}
    assert seen("Write", given, "File created", is_error=False) == [("write", given["file_path"])]
    assert seen("Write", {"file_path": f"{HOME}/project/a"}, "File created", is_error=False) == []


@pytest.mark.parametrize(
    ("command", "text", "target"),
    [
        ("curl https://a.example.com", "curl: (6) Could not resolve host: a.example.com", "a.example.com"),
        ("x", "curl: (7) Failed to connect to 10.0.0.1 port 80 after 0 ms", "10.0.0.1"),
        ("x", "bash: connect: Network is unreachable\nbash: /dev/tcp/1.2.3.4/80: Network is unreachable", "1.2.3.4"),
        ("node a.js", "Error: getaddrinfo ENOTFOUND registry.example.com", "registry.example.com"),
        ("git clone https://git.example.com/x", "fatal: Temporary failure in name resolution", "git.example.com"),
        ("python3 x.py", "ConnectionRefusedError: [Errno 111] Connection refused", ""),
    ],
)
def test_without_a_network_a_host_that_was_not_reached_is_told(command: str, text: str, target: str) -> None:
    assert seen("Bash", {"command": command}, text, ALONE)[0] == ("network", target)


def test_one_call_tells_a_few_and_a_run_tells_each_once() -> None:
    text = "\n".join(f"touch: cannot touch '/usr/{number}': Read-only file system" for number in range(1000))
    assert len(seen("Bash", {"command": "x"}, text)) == sandbox_violations.MOST_PER_CALL
    watch = sandbox_violations.Watch(SIGHT, exists=OUTSIDE.__contains__)
    counts = []
    for number in ("1", "2"):
        watch.requested(ToolCall(id=number, name="Bash", input={"command": "x"}))
        counts.append(len(watch.completed(events.ToolCompleted(call_id=number, text=text, is_error=True))))
    assert counts == [sandbox_violations.MOST_PER_CALL, 0]


def test_without_a_sandbox_nothing_is_told_and_nothing_is_kept() -> None:
    for sight in (None, Sight()):
        watch = sandbox_violations.Watch(sight)
        watch.requested(ToolCall(id="1", name="Bash", input={"command": "x"}))
        done = events.ToolCompleted(call_id="1", text="/usr/x: Read-only file system", is_error=True)
        assert watch.completed(done) == ()


def test_a_call_that_never_ran_held_nothing() -> None:
    watch = sandbox_violations.Watch(SIGHT)
    watch.requested(ToolCall(id="1", name="Write", input={"file_path": "/etc/x"}))
    assert watch.completed(events.ToolCompleted(call_id="1", is_error=True, executed=False, text="EROFS")) == ()
