"""What CI services are told, and that an agent's text cannot speak in our place."""

from __future__ import annotations

import html
import io
import re
import stat
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from leadrope import errors
from leadrope.cli.exits import Demands
from leadrope.cli.run import ci
from leadrope.core import events
from leadrope.core.cost.usage import Usage
from leadrope.core.events import Recorded
from leadrope.core.result import Denial, RunError, RunResult, Warning_
from leadrope.core.tools import ToolCall

KEY = "sk-ant-api03-planted-planted-planted-0000"
HOSTILE = (
    "x\n::add-mask::x\r\n::error file=a,line=1::evil%0A100%\n```\n</details><img src=https://example.com/x.png> | a | "
    f"![p](https://example.com/p.png) @all \x1b[31m\x00\u202e\ufffe ]]> &amp; <script> {KEY}"
)


def failed(text: str = "no") -> RunResult:
    call = ToolCall(id="t1", name="Bash", input={"command": text})
    return RunResult(
        run_id="run-1",
        outcome="failed",
        text=text,
        model=text,
        error=RunError(kind="agent_died", message=text, hint=text),
        warnings=(Warning_(kind="w", message=text),),
        denials=(Denial(call=call, reason=text),),
        output_rung="none",
        schema_error=text,
        duration_s=1.5,
        cost_usd=0.25,
        usage=Usage(input_tokens=10, output_tokens=5),
    )


def good(**fields: Any) -> RunResult:
    given: dict[str, Any] = {"run_id": "run-1", "outcome": "succeeded", "text": "done"}
    return RunResult(**(given | fields))


def edits(path: str) -> list[Recorded]:
    call = ToolCall(id="t1", name="Write", input={"file_path": path, "content": "a\nb\n"})
    found: list[events.Event] = [
        events.ToolDecided(call=call, decision="allow", by="rule", rule="mode:edit"),
        events.ToolCompleted(call_id="t1"),
    ]
    return [Recorded("run-1", 1, at, 1.0 * at, "agent", event) for at, event in enumerate(found, 1)]


def test_a_failure_is_an_error_with_its_hint_and_a_denial_a_warning() -> None:
    call = ToolCall(id="t1", name="Bash", input={"command": "git push"})
    error = RunError(kind="timed_out", message="no event for 300 s", hint="Raise limits.idle_s.")
    result = RunResult(
        run_id="r", outcome="timed_out", error=error, denials=(Denial(call=call, reason="blocked by: rule"),)
    )
    assert ci.commands(ci.report("t", result)) == [
        "::error title=leadrope%3A timed_out::timed_out: no event for 300 s%0ARaise limits.idle_s.",
        "::warning title=leadrope::denied: Bash git push: blocked by: rule",
    ]
    assert ci.commands(ci.report("t", good())) == []


def test_every_command_is_one_line_and_ours() -> None:
    lines = ci.commands(ci.report(HOSTILE, failed(HOSTILE)))
    assert len(lines) == 4
    for line in lines:
        assert re.match(r"::(error|warning) title=leadrope(%3A failed)?::", line)
        assert len(line.splitlines()) == 1
        assert "planted" not in line
        assert "\x1b" not in line


def test_more_than_github_shows_is_not_sent() -> None:
    many = tuple(Warning_(kind=str(at), message="m") for at in range(50))
    assert len(ci.commands(ci.report("t", good(warnings=many)))) == ci.MAX_ANNOTATIONS


def test_the_fence_is_new_each_time_and_closes_itself() -> None:
    begin, end = ci.fence()
    assert begin == f"::stop-commands::{end.strip(':')}"
    assert ci.fence() != (begin, end)
    assert len(end) > 40


def test_the_summary_tells_outcome_cost_files_and_answer() -> None:
    result = good(cost_usd=0.1234, duration_s=12.34, model="opus", usage=Usage(input_tokens=1000, output_tokens=20))
    text = ci.summary(ci.report("Fix it", result, edits("/ws/a.py")))
    assert "✅ leadrope: Fix it" in text
    assert "| succeeded | 12.3 s | $0.1234 | 1,020 | 1 | 0 |" in text
    assert "| /ws/a.py | 2 | 0 |" in text
    assert "```text\ndone\n```" in text


def test_nothing_in_the_summary_is_markup_of_the_agents() -> None:
    text = ci.summary(ci.report(HOSTILE, failed(HOSTILE), edits(HOSTILE)))
    outside, fences = [], 0
    mark = ""
    for line in text.split("\n"):
        if mark:
            if line == mark:
                mark = ""
            continue
        found = re.fullmatch(r"(`{3,})text", line)
        if found:
            mark = found[1]
            fences += 1
            continue
        outside.append(line)
    assert fences == 1
    assert not mark, "the answer's own fence does not end ours"
    rest = "\n".join(outside)
    assert "<" not in rest
    assert "![" not in rest
    assert "@all" not in rest
    assert "planted" not in text
    assert "❌" in text


def test_a_summary_stays_below_githubs_limit() -> None:
    result = good(text="x" * 5_000_000, warnings=tuple(Warning_(kind="k", message="y" * 5000) for _ in range(500)))
    assert len(ci.summary(ci.report("t", result)).encode()) < 2**20


def test_junit_of_a_good_run() -> None:
    suite = ET.fromstring(ci.junit(ci.report("Fix it", good(output_rung="structured", duration_s=2.0))))
    assert suite.attrib == suite.attrib | {"tests": "2", "failures": "0", "errors": "0", "time": "2.000"}
    assert [case.attrib["name"] for case in suite.iter("testcase")] == ["Fix it", "the answer fits its schema"]
    assert suite.findtext("testcase/system-out") == "done"
    assert not list(suite.iter("failure"))


@pytest.mark.parametrize(
    ("outcome", "tag"),
    [
        ("failed", "failure"),
        ("denied", "failure"),
        ("over_budget", "failure"),
        ("parked", "error"),
        ("stopped", "error"),
    ],
)
def test_junit_of_a_bad_run(outcome: Any, tag: str) -> None:
    suite = ET.fromstring(ci.junit(ci.report("t", good(outcome=outcome))))
    assert suite.find(f"testcase/{tag}") is not None
    assert suite.attrib[f"{tag}s"] == "1"


@pytest.mark.parametrize("outcome", ["denied", "succeeded"])
def test_a_denied_call_that_fails_the_job_is_named_in_all_three_forms(outcome: Any) -> None:
    denial = Denial(call=ToolCall(id="t", name="Bash", input={"command": "npm test"}), reason="no terminal to ask on")
    error = RunError(kind="denied", message="1 call was denied: Bash (x)", hint="h") if outcome == "denied" else None
    found = ci.report("t", good(outcome=outcome, denials=(denial,), error=error), demands=Demands(fail_on_denied=True))
    annotations = ci.commands(found)
    assert annotations[0].startswith("::error title=leadrope%3A denied::")
    assert "1 call was denied: Bash" in annotations[0]
    assert annotations[1] == "::warning title=leadrope::denied: Bash npm test: no terminal to ask on"
    summary = html.unescape(ci.summary(found))
    assert "❌" in summary
    assert "- Bash npm test: no terminal to ask on" in summary
    case = ET.fromstring(ci.junit(found)).find("testcase")
    assert case is not None
    failure = case.find("failure")
    assert failure is not None
    assert (failure.get("type"), "1 call was denied" in (failure.get("message") or "")) == ("denied", True)
    assert "denied: Bash npm test" in (case.findtext("system-err") or "")


def test_degraded_is_a_failure_only_where_it_is_strict() -> None:
    assert ci.report("t", good(outcome="degraded")).is_ok
    assert not ci.report("t", good(outcome="degraded"), demands=Demands(strict=True)).is_ok


def test_hostile_text_is_still_xml() -> None:
    suite = ET.fromstring(ci.junit(ci.report(HOSTILE, failed(HOSTILE))))
    whole = ET.tostring(suite, encoding="unicode")
    assert "planted" not in whole
    assert "<script> " in (suite.findtext("testcase/system-out") or "")


def test_the_files_are_written(tmp_path: Path) -> None:
    steps = tmp_path / "summary.md"
    steps.write_text("before\n")
    out = io.StringIO()
    target = tmp_path / "reports" / "leadrope.xml"
    environ = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(steps)}
    ci.write(ci.report("t", failed()), environ, out, junit_file=str(target))
    assert steps.read_text().startswith("before\n### ")
    assert out.getvalue().startswith("::error ")
    assert ET.parse(target).getroot().tag == "testsuite"
    assert stat.S_IMODE(target.stat().st_mode) == 0o644
    assert [path.name for path in target.parent.iterdir()] == ["leadrope.xml"]


def test_elsewhere_than_on_github_only_the_named_file_is_written(tmp_path: Path) -> None:
    out = io.StringIO()
    ci.write(ci.report("t", failed()), {}, out, junit_file=str(tmp_path / "x.xml"))
    assert out.getvalue() == ""
    assert (tmp_path / "x.xml").exists()


def test_a_summary_that_cannot_be_written_is_a_warning_and_a_junit_file_an_error(tmp_path: Path) -> None:
    out = io.StringIO()
    ci.write(ci.report("t", good()), {"GITHUB_STEP_SUMMARY": str(tmp_path)}, out)
    assert out.getvalue().startswith("::warning ")
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.BadValue, match="--junit"):
        ci.write(ci.report("t", good()), {}, out, junit_file=str(tmp_path / "file" / "x.xml"))
