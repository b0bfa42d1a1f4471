"""Events in, the lines a person reads out: golden texts."""

from __future__ import annotations

import io
import time
from textwrap import dedent
from typing import Any

import msgspec
import pytest

from leadrope.cli.screen.render import Renderer, ending_lines
from leadrope.cli.screen.screen import Screen, wants_colour
from leadrope.core import actors, events
from leadrope.core.cost.usage import Usage
from leadrope.core.result import Denial, RunError, RunResult, Warning_
from leadrope.core.tools import ToolCall

SESSION = events.SessionStarted(
    session_id="s1",
    provider="claude-code",
    agent_version="2.1.325",
    model="claude-sonnet-4-5",
    mode="edit",
    cwd="/w",
    credential=events.CredentialUsed(
        kind="oauth_token", source="setup token", billing="subscription", masked="sk-ant-oat… (33 characters)"
    ),
)
READ = ToolCall(id="t1", name="Read", input={"file_path": "/w/calc.py"})
BASH = ToolCall(id="t2", name="Bash", input={"command": "make  test\n", "description": "Run the tests"})
RESULT = RunResult(
    run_id="r",
    outcome="succeeded",
    text="Done.",
    usage=Usage(input_tokens=1000, output_tokens=234),
    cost_usd=0.0123,
    turns=2,
    duration_s=3.21,
    session_id="s1",
)


def decided(call: ToolCall, **fields: Any) -> events.ToolDecided:
    return events.ToolDecided(**{"call": call, "decision": "allow", "by": "rule", "rule": "mode:edit", **fields})


def rendered(*shown: events.Event, is_live: bool = True, colour: bool = False, **kwargs: Any) -> tuple[str, str]:
    """What stands on the terminal; piped: what stdout and stderr get."""
    out = io.StringIO()
    err = out if is_live else io.StringIO()
    renderer = Renderer(Screen(out, err, colour=colour, width=100, is_live=is_live), **kwargs)
    for number, event in enumerate(shown, start=1):
        renderer.show(events.Recorded("r", 1, number, number * 0.5, "agent", event))
    return out.getvalue(), "" if is_live else err.getvalue()


WHOLE = (
    SESSION,
    events.TurnStarted(turn=1),
    events.MessageDelta(text="I will "),
    events.MessageDelta(text="look."),
    events.MessageCompleted(text="I will look."),
    events.ToolRequested(call=READ),
    decided(READ),
    events.ToolCompleted(call_id="t1", text="def add"),
    events.ToolRequested(call=BASH),
    events.ApprovalRequested(approval_id="a1", call=BASH, reason="a command", expires_s=300),
    events.ApprovalResolved(approval_id="a1", approved=True, by=actors.system_user()),
    decided(BASH, by=actors.system_user()),
    events.ToolCompleted(call_id="t2", text="-----\nRan 3 tests\nOK\n"),
    events.MessageDelta(text="Done."),
    events.MessageCompleted(text="Done."),
    events.RunEnded(result=RESULT),
)


def test_a_call_is_one_line_where_another_shows_that_it_runs() -> None:
    assert rendered(*WHOLE, folded=True)[0] == dedent("""\
        billing: subscription (setup token) · sk-ant-oat… (33 characters)
        claude-code 2.1.325 · claude-sonnet-4-5 · mode edit · /w
        I will look.
          ✓ Read calc.py  allowed by mode:edit · 0.5s
          ✓ Bash make test  approved by you · 0.5s
            ↳ OK  (2 lines)
        Done.
        2 model requests · 1,234 tokens · $0.01 (estimate) · 3.2 s
        """)


def test_a_call_without_a_result_is_told_at_the_end() -> None:
    stopped = RunResult(run_id="r", outcome="stopped")
    out, _ = rendered(decided(BASH), events.RunEnded(result=stopped), folded=True)
    assert out.startswith("  → Bash make test  allowed by mode:edit\n✗ stopped\n")


def test_what_is_at_work_has_a_line_with_a_clock() -> None:
    renderer = Renderer(Screen(io.StringIO(), io.StringIO(), colour=False, width=100, is_live=True), folded=True)
    now = time.monotonic() + 60
    assert renderer.live_lines(now) == ["  ⋯ starting the agent 60s"]
    told: list[tuple[events.Event, list[str]]] = [
        (SESSION, ["  ⋯ thinking 60s"]),
        (events.MessageDelta(text="I", thinking=True), ["  ⋯ thinking 60s"]),
        (
            events.ApprovalRequested(approval_id="a", call=BASH, reason="", expires_s=1),
            ["  ⋯ waiting for approval of Bash 60s"],
        ),
        (events.ApprovalResolved(approval_id="a", approved=True, by="person"), ["  ⋯ thinking 60s"]),
        (decided(BASH, by=actors.system_user()), ["  ⋯ Bash make test 60s · approved by you"]),
        (decided(READ), ["  ⋯ Bash make test 60s · approved by you", "  ⋯ Read calc.py 60s · allowed by mode:edit"]),
        (events.ToolCompleted(call_id="t2", text="OK"), ["  ⋯ Read calc.py 60s · allowed by mode:edit"]),
        (events.ToolCompleted(call_id="t1", text="x"), ["  ⋯ thinking 60s"]),
        (events.RunEnding(cause="stopped", kind="stopped", message="by you"), ["  ⋯ ending 60s"]),
        (events.RunEnded(result=RESULT), []),
    ]
    for number, (event, lines) in enumerate(told, start=1):
        renderer.show(events.Recorded("r", 1, number, 0.0, "agent", event))
        assert renderer.live_lines(now) == lines, event
    assert renderer.live_lines(time.monotonic()) == [], "what is over in no time would only flicker"


def test_a_further_attempt_does_not_repeat_its_header() -> None:
    died = events.RetryScheduled(attempt=2, max_attempts=2, delay_s=1, error="it died", by="supervisor")
    other = msgspec.structs.replace(SESSION, model="claude-haiku-4-5")
    out, _ = rendered(SESSION, died, SESSION, died, other)
    assert out.count("billing:") == 1
    assert out.count("claude-sonnet-4-5") == 1
    assert out.count("claude-haiku-4-5") == 1


def test_a_reason_is_whole_on_a_narrow_terminal() -> None:
    out = io.StringIO()
    renderer = Renderer(Screen(out, out, colour=False, width=40, is_live=True))
    denied = decided(BASH, decision="deny", rule="mode:plan", reason="mode plan does not allow a command")
    renderer.show(events.Recorded("r", 1, 1, 0.0, "agent", denied))
    assert out.getvalue() == "  ✗ Bash make test\n    denied by mode:plan: mode plan does\n    not allow a command\n"


def test_a_whole_run_on_a_terminal() -> None:
    assert rendered(*WHOLE)[0] == dedent("""\
        billing: subscription (setup token) · sk-ant-oat… (33 characters)
        claude-code 2.1.325 · claude-sonnet-4-5 · mode edit · /w
        I will look.
          → Read calc.py  allowed by mode:edit
          ✓ Read calc.py  0.5s
          → Bash make test  approved by you
          ✓ Bash make test  0.5s
            ↳ OK  (2 lines)
        Done.
        2 model requests · 1,234 tokens · $0.01 (estimate) · 3.2 s
        """)


def test_piped_stdout_gets_the_final_text_alone_and_stderr_the_rest() -> None:
    out, err = rendered(*WHOLE, is_live=False)
    assert out == "Done.\n"
    assert "I will look.\n" in err
    assert "Done." not in err
    assert err.startswith("billing: subscription (setup token)")


def test_quiet_leaves_the_answer_and_what_went_wrong() -> None:
    assert rendered(*WHOLE, is_live=False, quiet=True) == ("Done.\n", "")
    failed = RunResult(run_id="r", outcome="failed", error=RunError(kind="overloaded", message="busy", hint="Wait."))
    assert rendered(SESSION, events.RunEnded(result=failed), is_live=False, quiet=True) == (
        "",
        "✗ failed (overloaded): busy\n  Wait.\n",
    )


def test_json_output_keeps_stdout_free() -> None:
    assert rendered(*WHOLE, is_live=False, answer=False)[0] == ""


def test_text_that_came_without_streaming_is_shown_once() -> None:
    out, _ = rendered(events.MessageCompleted(text="Hello."), events.RunEnded(result=RESULT))
    assert out.startswith("Hello.\n2 model requests")


def test_structured_output_is_what_a_script_reads() -> None:
    result = RunResult(run_id="r", outcome="succeeded", text="see output", output={"n": [1]})
    assert rendered(events.RunEnded(result=result), is_live=False)[0] == '{"n":[1]}\n'


def test_structured_output_cannot_steer_the_terminal() -> None:
    """JSON escapes the first controls only; a terminal acts on others, too."""
    result = RunResult(run_id="r", outcome="succeeded", output={"n": "a\x9b31mb\u202ec"})
    assert rendered(events.RunEnded(result=result))[0].startswith('{\n  "n": "abc"\n}\n')
    assert rendered(events.RunEnded(result=result), is_live=False)[0] == '{"n":"a\x9b31mb\u202ec"}\n', "a script's"


def test_the_reason_of_a_degraded_run_is_told_once() -> None:
    warnings = tuple(Warning_(kind="x", message=text) for text in ("cut short", "slow"))
    result = RunResult(run_id="r", outcome="degraded", text="so far", warnings=warnings)
    _, err = rendered(events.RunEnded(result=result), is_live=False)
    assert err.splitlines()[:2] == ["! degraded: cut short", "! slow"]
    assert err.count("cut short") == 1


def test_agent_text_cannot_steer_the_terminal() -> None:
    text = "a\x1b[2J\x1b]0;owned\x07b\u202ec\x9b31md"
    out, _ = rendered(events.MessageDelta(text=text), events.MessageCompleted(text=text))
    assert out == "abcd\n"


def test_piped_text_is_the_agents_own() -> None:
    result = RunResult(run_id="r", outcome="succeeded", text="\x1b[31mred\x1b[0m")
    assert rendered(events.RunEnded(result=result), is_live=False)[0] == "\x1b[31mred\x1b[0m\n"


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (decided(BASH), "  → Bash make test  allowed by mode:edit\n"),
        (decided(BASH, rule="tools"), "  → Bash make test  allowed by tools\n"),
        (decided(BASH, by="program"), "  → Bash make test  approved by program\n"),
        (decided(BASH, by="user:ann"), "  → Bash make test  approved by user:ann\n"),
        (decided(BASH, by="person"), "  → Bash make test  approved by a person\n"),
        (
            decided(BASH, by=actors.system_user(), edited={"command": "echo hi"}),
            "  → Bash echo hi  approved by you, edited\n",
        ),
        (
            decided(BASH, decision="deny", rule="mode:plan", reason="mode plan does not allow a command"),
            "  ✗ Bash make test  denied by mode:plan: mode plan does not allow a command\n",
        ),
        (
            decided(BASH, decision="deny", by=actors.system_user(), reason="not now"),
            "  ✗ Bash make test  denied by you: not now\n",
        ),
        (
            decided(BASH, decision="deny", by="nobody", reason="no one is available to approve it"),
            "  ✗ Bash make test  denied: no one is available to approve it\n",
        ),
        (
            decided(BASH, decision="deny", by="timeout", reason="APPROVAL_TIMEOUT: no answer in 300 s"),
            "  ✗ Bash make test  denied: APPROVAL_TIMEOUT: no answer in 300 s\n",
        ),
        (
            decided(ToolCall(id="s", name="Bash", input={"command": "ls"}, agent_id="a")),
            "    → Bash ls  allowed by mode:edit\n",
        ),
    ],
)
def test_a_decision_is_one_line_that_says_who_and_why(event: events.ToolDecided, line: str) -> None:
    assert rendered(event)[0] == line


@pytest.mark.parametrize(
    ("shown", "line"),
    [
        (
            [events.RetryScheduled(attempt=1, max_attempts=10, delay_s=2.2, api_status=529, error="overloaded")],
            "! overloaded (HTTP 529); trying again in 2 s (1 of 10)\n",
        ),
        (
            [events.RetryScheduled(attempt=2, max_attempts=2, delay_s=1, error="it died", by="supervisor")],
            "! it died; starting again in 1 s (2 of 2)\n",
        ),
        ([events.LimitReached(status="rejected", kind="five_hour")], "! usage limit (five_hour): rejected\n"),
        ([events.Notice(level="warning", code="x", message="mind this")], "! mind this\n"),
        ([events.Notice(level="info", code="x", message="by the way")], "  · by the way\n"),
        ([events.Notice(level="debug", code="x", message="inside")], ""),
        ([events.Unrecognised(reason="not JSON", raw="boo\n")], "  · a line is not understood (not JSON): boo\n"),
        (
            [
                events.SubagentStarted(agent_id="a", description="look around", kind="Explore"),
                events.MessageDelta(text="not ", agent_id="a"),
                events.MessageCompleted(text="found it", agent_id="a"),
                events.SubagentEnded(agent_id="a", status="completed"),
            ],
            "  ▸ subagent Explore: look around\n    found it\n  ◂ subagent completed\n",
        ),
        (
            [
                events.ToolRequested(call=ToolCall(id="u", name="Nope", input={"x": 1})),
                events.ToolCompleted(
                    call_id="u", executed=False, is_error=True, text="<tool_use_error>No such tool</tool_use_error>"
                ),
            ],
            '  ✗ Nope {"x":1}  did not run: No such tool\n',
        ),
        (
            [
                events.ToolRequested(call=BASH),
                decided(BASH),
                events.ToolCompleted(call_id="t2", is_error=True, text="Exit code 2\nboom\n---\n"),
            ],
            ("  → Bash make test  allowed by mode:edit\n"
             "  ✗ Bash make test  failed after 0.5s\n    ↳ exit code 2: boom\n"),
        ),
        ([events.QuestionResolved(question_id="q", answered=True, answers={"Which?": "Red"})],
         "  ✓ answered: Which? → Red\n"),
        ([events.QuestionResolved(question_id="q", answered=False, reason="no one")], "  ✗ not answered: no one\n"),
    ],
)  # fmt: skip
def test_the_rest_is_one_line_each(shown: list[events.Event], line: str) -> None:
    assert rendered(*shown)[0] == line


@pytest.mark.parametrize(
    ("result", "lines"),
    [
        (RESULT, []),
        (
            RunResult(run_id="r", outcome="degraded", warnings=(Warning_(kind="max_turns", message="cut short"),)),
            ["degraded: cut short"],
        ),
        (
            RunResult(
                run_id="r",
                outcome="failed",
                error=RunError(kind="api_error", message="oops", api_status=500, hint="Again."),
            ),
            ["failed (api_error, HTTP 500): oops", "Again."],
        ),
        (
            RunResult(
                run_id="r", outcome="timed_out", error=RunError(kind="timed_out", message="silent", clock="idle")
            ),
            ["timed out (clock: idle): silent"],
        ),
        (
            RunResult(
                run_id="r", outcome="failed", error=RunError(kind="agent_died", message="gone", stderr_tail=("x",))
            ),
            ["failed (agent_died): gone", "stderr: x"],
        ),
    ],
)
def test_an_ending_says_what_and_what_to_do(result: RunResult, lines: list[str]) -> None:
    assert ending_lines(result) == lines


def test_an_ending_cannot_steer_the_terminal() -> None:
    """Its words are the agent's, also where nothing but the ending is shown to a person."""
    steering = "\x1b]52;c;ZXZpbA==\x07bad\u202e"
    error = RunError(kind="agent_died", message=steering, stderr_tail=(steering,), hint="x")
    assert ending_lines(RunResult(run_id="r", outcome="failed", error=error)) == [
        "failed (agent_died): bad",
        "stderr: bad",
        "x",
    ]


def test_a_stopped_run_says_what_was_denied() -> None:
    result = RunResult(
        run_id="r",
        outcome="stopped",
        error=RunError(kind="stopped", message="by you"),
        session_id="s1",
        turns=2,
        denials=(Denial(call=BASH, reason="no"),),
        leftovers_killed=2,
    )
    out, _ = rendered(events.RunEnded(result=result))
    # No request was answered: the agent counts those that were only begun.
    assert "\n0 tokens · $0.00 (estimate) · 0.0 s · 1 call denied · 2 leftover processes ended\n" in out


def test_colours_only_where_they_are_wanted() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert "\x1b[31m✗\x1b[0m" in rendered(decided(BASH, decision="deny"), colour=True)[0]
    assert wants_colour(Terminal(), {"TERM": "xterm"})
    assert not wants_colour(Terminal(), {"NO_COLOR": "1"})
    assert not wants_colour(Terminal(), {"TERM": "dumb"})
    assert not wants_colour(io.StringIO(), {})


def test_lines_wait_while_a_person_is_asked() -> None:
    out = io.StringIO()
    screen = Screen(out, out, colour=False, width=80, is_live=True)
    screen.text("half a line")
    screen.hold()
    screen.line("later")
    screen.text("and text")
    assert out.getvalue() == "half a line\n"
    screen.line("you pressed Ctrl-C", now=True)
    screen.release()
    assert out.getvalue() == "half a line\n\nyou pressed Ctrl-C\nlater\nand text"


def test_an_answer_by_a_schema_leaves_prose_to_stderr_also_on_a_terminal() -> None:
    told: tuple[events.Event, ...] = (
        SESSION,
        events.MessageDelta(text="I count."),
        events.MessageCompleted(text="I count."),
        events.ToolRequested(call=READ),
        decided(READ),
        events.MessageDelta(text="Four."),
        events.MessageCompleted(text="Four."),
    )
    fits = RunResult(run_id="r", outcome="succeeded", text="Four.", output={"n": 4}, output_rung="structured")
    misses = RunResult(run_id="r", outcome="degraded", text="Four.", output_rung="none", schema_error="no object")
    for result, stdout in ((fits, '{\n  "n": 4\n}\n'), (misses, "")):
        out, err = io.StringIO(), io.StringIO()
        renderer = Renderer(Screen(out, err, colour=False, width=100, is_live=True), is_data=True)
        story: list[events.Event] = [*told, events.RunEnded(result=result)]
        for number, event in enumerate(story, start=1):
            renderer.show(events.Recorded("r", 1, number, 0.0, "agent", event))
        assert out.getvalue() == stdout
        assert "I count.\n" in err.getvalue()
        assert "Four.\n" in err.getvalue()
