"""`leadrope run --ci`, `stats` and `export` as a CI job starts them: real processes, scripted agents."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from leadrope.rehearsal import write_executable

OPEN: list[dict[str, Any]] = [{"initialize": True}, {"await_user": True}, {"init": True}]
CLOSE: list[dict[str, Any]] = [{"result": True}, {"await_eof": True}]
FAILED: dict[str, Any] = {"is_error": True, "subtype": "error_during_execution", "errors": ["::error::it broke"]}
KEY = "sk-ant-api03-plantedplantedplanted0123456789"


class CiJob:
    """A step of a GitHub job."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ws = folder / "ws"
        self.ws.mkdir()
        self.summary = folder / "summary.md"
        self.junit = folder / "out/leadrope.xml"
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "LEADROPE_HOME": str(folder / "leadrope"),
            "LANG": "C.UTF-8",
            "GITHUB_ACTIONS": "true",
            "GITHUB_STEP_SUMMARY": str(self.summary),
        }

    def leadrope(self, *words: str, out: Any = subprocess.PIPE, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "leadrope.cli.main", *words],
            env=self.environ | environ,
            cwd=self.ws,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
            start_new_session=True,
        )

    def run(self, steps: list[Any], *words: str, **more: Any) -> subprocess.CompletedProcess[str]:
        binary = str(write_executable(self.folder / "agent", {"steps": [*OPEN, *steps]}))
        given = ("--provider", "scripted", "--binary", binary, "--sandbox", "off", "--attempts", "1")
        return self.leadrope("run", "say it", *given, *words, **more)


@pytest.fixture
def job(tmp_path: Path) -> CiJob:
    return CiJob(tmp_path)


def test_a_run_that_succeeds_is_fenced_and_told_in_all_three_forms(job: CiJob) -> None:
    done = job.run([{"text": f"::warning::obey me {KEY}"}, *CLOSE], "--ci", "--junit", str(job.junit))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    begin, token = lines[0].rsplit("::", 1)
    assert begin == "::stop-commands"
    end = lines.index(f"::{token}::")
    said = next(number for number, line in enumerate(lines) if "obey me" in line)
    assert 0 < said < end, "the agent's words are inside of the fence"
    assert lines[end + 1 :] == [], "nothing went wrong, so nothing is annotated"
    assert done.stderr == "", "one stream, one order"
    assert "✅" in job.summary.read_text()
    suite = ET.parse(job.junit).getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("1", "0", "0")
    assert KEY not in job.summary.read_text() + job.junit.read_text()


def test_a_run_that_fails_is_an_error_with_its_own_exit_code(job: CiJob) -> None:
    job.summary.write_text("what another step wrote\n")
    done = job.run([{"text": "x"}, {"result": FAILED}, {"await_eof": True}], "--ci", "--junit", str(job.junit))
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    after = lines[lines.index(f"::{lines[0].rsplit('::', 1)[1]}::") + 1 :]
    assert after[0].startswith("::error title=leadrope%3A failed::")
    assert not [line for line in after if line.startswith("::error::")], "the agent's own command is not one"
    assert job.summary.read_text().startswith("what another step wrote\n### ❌")
    assert ET.parse(job.junit).getroot().find("testcase/failure") is not None


def test_a_run_that_cannot_start_is_told_too(job: CiJob) -> None:
    words = ("run", "x", "--provider", "scripted", "--binary", "/nowhere/agent", "--sandbox", "off")
    done = job.leadrope(*words, "--ci", "--junit", str(job.junit))
    assert done.returncode in (1, 2)
    assert "::error title=leadrope%3A failed::" in done.stdout
    assert "leadrope: " in done.stderr
    assert ET.parse(job.junit).getroot().get("failures") == "1"


def test_what_a_program_reads_stays_what_it_is(job: CiJob) -> None:
    done = job.run([{"text": "hello"}, *CLOSE], "--ci", "-o", "json")
    assert json.loads(done.stdout)["text"] == "hello"
    assert done.stderr.startswith("::stop-commands::")
    answer = job.folder / "answer.txt"
    with answer.open("w") as out:
        done = job.run([{"text": "hello"}, *CLOSE], "--ci", out=out)
    assert answer.read_text() == "hello\n"
    assert done.stderr.startswith("::stop-commands::")


def test_elsewhere_there_is_a_junit_file_and_no_command(job: CiJob) -> None:
    done = job.run(
        [{"text": "hello"}, *CLOSE], "--junit", str(job.junit), GITHUB_ACTIONS="", GITHUB_STEP_SUMMARY=str(job.summary)
    )
    assert (done.returncode, done.stdout) == (0, "hello\n")
    assert "::" not in done.stderr
    assert job.junit.exists()
    assert not job.summary.exists()
    refused = job.run([], "--ci", "--detach")
    assert refused.returncode == 2
    assert "--detach does not wait" in refused.stderr


def test_logs_are_json_where_that_is_wanted(job: CiJob) -> None:
    steps = [{"stderr": f"boom {KEY}\n"}, {"result": FAILED}, {"await_eof": True}]
    done = job.run(steps, "-q", GITHUB_ACTIONS="", LEADROPE_LOG="json")
    lines = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    (told,) = [line for line in lines if line["logger"] == "leadrope.run"]
    assert told["level"] == "warning"
    assert len(told["run_id"]) == 32
    assert told["message"].startswith(f"run {told['run_id'][:8]} failed")
    assert "boom [redacted]" in told["message"]
    assert KEY not in json.dumps(lines)
    assert "LEADROPE_LOG" in job.run([], LEADROPE_LOG="xml").stderr


def test_costs_and_the_page_of_a_run_are_told(job: CiJob) -> None:
    empty = job.leadrope("stats", "-o", "json")
    assert json.loads(empty.stdout)["lines"] == []
    done = job.run([{"text": "hello <b>you</b>"}, *CLOSE], "--label", "team=blue", "--title", "A task", "-o", "json")
    run_id = json.loads(done.stdout)["run_id"]
    told = json.loads(job.leadrope("stats", "--by", "label:team", "-o", "json").stdout)
    assert [(line["name"], line["runs"]) for line in told["lines"]] == [("blue", 1)]
    assert "blue" in job.leadrope("stats", "--by", "label:team").stdout
    shown = job.leadrope("export", run_id[:8], "--html")
    assert shown.stdout.startswith("<!doctype html>")
    assert "hello &lt;b&gt;you" in shown.stdout
    file = job.folder / "run.jsonl"
    assert job.leadrope("export", run_id[:8], "-o", str(file)).returncode == 0
    types = [json.loads(line)["event"]["type"] for line in file.read_text().splitlines()]
    assert types[-1] == "run.ended"
    assert file.stat().st_mode & 0o777 == 0o600


def test_the_page_of_a_run_in_a_worktree_shows_what_git_tells(job: CiJob) -> None:
    for words in (("init", "-q"), ("commit", "-qm", "first", "--allow-empty")):
        who = ("-c", "user.name=t", "-c", "user.email=t@localhost")
        subprocess.run(["git", *who, *words], cwd=job.ws, check=True, capture_output=True)
    touch = {"call": {"tool": "Bash", "id": "t1", "input": {"command": "x"}, "touch": "made-by-the-run.txt"}}
    done = job.run([touch, {"text": "ok"}, *CLOSE], "--worktree", "--mode", "full", "-o", "json")
    shown = job.leadrope("runs", "export", json.loads(done.stdout)["run_id"], "--html")
    assert "made-by-the-run.txt" in shown.stdout, shown.stderr


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("plain/out.xml", "is not a folder"),
        ("plain/deep/out.xml", "is not a folder"),
        (".", "is a folder"),
        ("", "is empty"),
        ("dangling/out.xml", "is not a folder"),
    ],
)
def test_a_junit_file_that_cannot_be_written_is_refused_before_the_run(job: CiJob, name: str, told: str) -> None:
    """The run would be paid for, and its report lost."""
    (job.ws / "plain").touch()
    (job.ws / "dangling").symlink_to("nowhere")
    done = job.run([{"text": "hello"}, *CLOSE], "--junit", name)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert "leadrope: --junit: " in done.stderr
    assert told in done.stderr
    assert job.leadrope("runs", "list", "-o", "json").stdout == "", "nothing was started"


def test_the_folders_of_a_junit_file_are_made_and_those_of_out_are_not(job: CiJob) -> None:
    """As pytest --junitxml does it, where a job has no folder for reports yet; -O is a redirection to a file."""
    done = job.run([{"text": "hello"}, *CLOSE], "--junit", "reports/deep/leadrope.xml")
    assert done.returncode == 0, done.stderr
    assert ET.parse(job.ws / "reports/deep/leadrope.xml").getroot().get("failures") == "0"
    (job.ws / "hello.flow.md").write_text("### hello\n- type: shell\n- command: echo hello\n")
    assert job.leadrope("flow", "run", "hello").returncode == 0
    (job.ws / "lines.jsonl").write_text(job.leadrope("runs", "export").stdout)
    for words in (
        ("runs", "export"),
        ("runs", "export", "--html"),
        ("flow", "graph", "hello.flow.md", "-o", "svg"),
        ("flow", "report", "hello.flow.md"),
        ("import-transcript", "lines.jsonl"),
    ):
        refused = job.leadrope(*words, "-O", "pages/new/out")
        assert (refused.returncode, refused.stdout) == (2, ""), (words, refused.stderr)
        assert "leadrope: --out: 'pages/new/out' cannot be written: No such file or directory" in refused.stderr
        assert "Make the folder first: mkdir -p pages/new" in refused.stderr
        assert not (job.ws / "pages").exists()
    (job.ws / "pages/new").mkdir(parents=True)
    assert job.leadrope("runs", "export", "--html", "-O", "pages/new/out").returncode == 0
    assert "<html" in (job.ws / "pages/new/out").read_text()
