"""Events in, the lines a person reads out: golden texts."""

from __future__ import annotations

import io
from textwrap import dedent
from typing import Any

import pytest

from leadrope.cli.render import Renderer, ending_lines
from leadrope.cli.screen import Screen, wants_colour
from leadrope.core import events
from leadrope.core.result import Denial, RunError, RunResult, Warning_
from leadrope.core.tools import ToolCall
from leadrope.core.usage import Usage

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
        renderer.show(events.Recorded("r", 1, number, 0.0, "agent", event))
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
    events.ApprovalResolved(approval_id="a1", approved=True, by="person"),
    decided(BASH, by="person"),
    events.ToolCompleted(call_id="t2", text="-----\nRan 3 tests\nOK\n"),
    events.MessageDelta(text="Done."),
    events.MessageCompleted(text="Done."),
    events.RunEnded(result=RESULT),
)


def test_a_whole_run_on_a_terminal() -> None:
    assert rendered(*WHOLE)[0] == dedent("""\
        billing: subscription (setup token) · sk-ant-oat… (33 characters)
        claude-code 2.1.325 · claude-sonnet-4-5 · mode edit · /w
        I will look.
          ✓ Read calc.py  allowed by mode:edit
          ✓ Bash make test  approved by you
            ↳ Ran 3 tests  (+1 line)
        Done.
        2 turns · 1,234 tokens · $0.01 (estimate) · 3.2 s
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
    assert out.startswith("Hello.\n2 turns")


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
    ("event", "who", "line"),
    [
        (decided(BASH), None, "  ✓ Bash make test  allowed by mode:edit\n"),
        (decided(BASH, rule="tools"), None, "  ✓ Bash make test  allowed by tools\n"),
        (decided(BASH, by="person"), "callback", "  ✓ Bash make test  approved by callback\n"),
        (
            decided(BASH, by="person", edited={"command": "echo hi"}),
            "person",
            "  ✓ Bash echo hi  approved by you, edited\n",
        ),
        (
            decided(BASH, decision="deny", rule="mode:plan", reason="mode plan does not allow a command"),
            None,
            "  ✗ Bash make test  denied by mode:plan: mode plan does not allow a command\n",
        ),
        (
            decided(BASH, decision="deny", by="person", reason="not now"),
            "person",
            "  ✗ Bash make test  denied by you: not now\n",
        ),
        (
            decided(BASH, decision="deny", by="person", reason="nobody is there to approve it"),
            "nobody",
            "  ✗ Bash make test  denied: nobody is there to approve it\n",
        ),
        (
            decided(BASH, decision="deny", by="timeout", reason="APPROVAL_TIMEOUT: no answer in 300 s"),
            "timeout",
            "  ✗ Bash make test  denied: APPROVAL_TIMEOUT: no answer in 300 s\n",
        ),
        (
            decided(ToolCall(id="s", name="Bash", input={"command": "ls"}, agent_id="a")),
            None,
            "    ✓ Bash ls  allowed by mode:edit\n",
        ),
    ],
)
def test_a_decision_is_one_line_that_says_who_and_why(event: events.ToolDecided, who: str | None, line: str) -> None:
    asked: tuple[events.Event, ...] = ()
    if who is not None:
        asked = (
            events.ApprovalRequested(approval_id="a", call=event.call, reason="", expires_s=1),
            events.ApprovalResolved(approval_id="a", approved=True, by=who),
        )
    assert rendered(*asked, event)[0] == line


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
                events.ToolCompleted(call_id="t2", is_error=True, text="exit 2\nboom"),
            ],
            "  ✓ Bash make test  allowed by mode:edit\n    ↳ failed: exit 2 boom\n",
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


def test_a_stopped_run_says_how_to_go_on_and_what_was_denied() -> None:
    result = RunResult(
        run_id="r",
        outcome="stopped",
        error=RunError(kind="stopped", message="by you"),
        session_id="s1",
        denials=(Denial(call=BASH, reason="no"),),
        leftovers_killed=2,
    )
    out, _ = rendered(events.RunEnded(result=result))
    assert "0 turns · 0 tokens · $0.00 (estimate) · 0.0 s · 1 call denied · 2 leftover processes ended\n" in out
    assert 'go on with: leadrope run --resume s1 "…"\n' in out
    assert "--resume" not in rendered(events.RunEnded(result=result), resumable=False)[0]


def test_colours_only_where_they_are_wanted() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert "\x1b[32m✓\x1b[0m" in rendered(decided(BASH), colour=True)[0]
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
