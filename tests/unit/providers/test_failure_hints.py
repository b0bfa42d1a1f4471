"""From the agent's own words to what a person can do: every failure has a kind and a hint."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from leadrope import errors
from leadrope.core import events
from leadrope.core.fold import Fold
from leadrope.core.request import RunRequest
from leadrope.core.result import ErrorKind, RunError
from leadrope.providers.claude_code import failures, locate
from leadrope.providers.claude_code.session import ClaudeSession

REFUSED = {"type": "result", "subtype": "success", "is_error": True, "terminal_reason": "api_error", "num_turns": 1}


def told(lines: list[Any], *, exit_code: int = 1, stderr: tuple[str, ...] = ()) -> RunError:
    """The error of a process that said this, decoded and added up as in a run."""
    session = ClaudeSession(RunRequest(prompt="x"))
    fold = Fold("r")
    raw = [line if isinstance(line, bytes) else msgspec.json.encode(line) for line in lines]
    for item in session.receive(raw):
        if type(item) in get_args(events.Event):
            fold.add(item)  # type: ignore[arg-type]  # the check above is beyond mypy
    fold.add(events.AgentExited(exit_code=exit_code, stderr_head=stderr, problem=session.explain(stderr)))
    error = fold.result().error
    assert error is not None
    return error


# What can go wrong, and the words of the way out.
SOLUTIONS: list[tuple[str, list[Any], tuple[str, ...], str, str]] = [
    ("not logged in", [b"Not logged in \xc2\xb7 Please run /login"], (), "not_authenticated", "leadrope login"),
    ("logged out, on stderr", [], ("Error: Invalid API key",), "not_authenticated", "leadrope login"),
    (
        "a refused key",
        [REFUSED | {"api_error_status": 401, "result": "x"}],
        (),
        "not_authenticated",
        "set ANTHROPIC_API_KEY and opt in with billing `api_key`",
    ),
    ("forbidden", [REFUSED | {"api_error_status": 403, "result": "x"}], (), "not_authenticated", "setup-token"),
    ("too many requests", [REFUSED | {"api_error_status": 429, "result": "x"}], (), "rate_limited", "Wait"),
    ("the account's limit", [b"Claude usage limit reached"], (), "rate_limited", "Wait until the limit"),
    ("at capacity", [REFUSED | {"api_error_status": 529, "result": "x"}], (), "overloaded", "try again in a moment"),
    ("trouble at the model's", [REFUSED | {"api_error_status": 500, "result": "x"}], (), "api_error", "try again"),
    ("a bad request", [REFUSED | {"api_error_status": 400, "result": "x"}], (), "bad_request", "check the model"),
    ("no credit", [REFUSED | {"api_error_status": 402, "result": "x"}], (), "usage_limit", "no credit left"),
    (
        "no way to the model",
        [REFUSED | {"result": "API Error: Connection error. (ECONNREFUSED)"}],
        (),
        "connection_failed",
        "network",
    ),
    ("too long", [REFUSED | {"result": "Prompt is too long"}], (), "prompt_too_long", "Shorten the prompt"),
    (
        "no sandbox of its own",
        [],
        ("Error: sandbox required but unavailable: bwrap",),
        "sandbox_unavailable",
        "bubblewrap",
    ),
    ("an unknown option", [], ("error: unknown option '--x'",), "spawn_failed", "supported version"),
    ("nothing at all", [], (), "agent_died", "leadrope doctor"),
    ("nonsense", [b"segmentation fault"], (), "malformed_output", "unrecognised lines"),
]


@pytest.mark.parametrize(("case", "lines", "stderr", "kind", "hint"), SOLUTIONS, ids=[row[0] for row in SOLUTIONS])
def test_what_went_wrong_and_what_to_do(
    case: str, lines: list[Any], stderr: tuple[str, ...], kind: str, hint: str
) -> None:
    error = told(lines, stderr=stderr)
    assert error.kind == kind
    assert hint in (error.hint or "")


def test_an_empty_answer_says_what_to_do() -> None:
    error = told([REFUSED | {"is_error": False, "result": ""}], exit_code=0)
    assert (error.kind, error.hint is not None) == ("empty_output", True)


@pytest.mark.parametrize("clock", ["start", "idle", "wall", "tool"])
def test_a_clock_that_ran_out_says_to_raise_it(clock: str) -> None:
    fold = Fold("r")
    fold.add(events.RunEnding(cause="timed_out", kind="timed_out", message="too long", clock=clock))
    error = fold.result().error
    assert error is not None
    assert (error.code, error.clock) == ("TIMEOUT_ERROR", clock)
    assert "Raise the limit" in (error.hint or "")


def test_a_missing_program_says_how_to_install_it() -> None:
    with pytest.raises(errors.CliNotFound) as caught:
        locate.find_binary(None, {"PATH": "/nonexistent"}, find_bundled=lambda: None)
    assert "npm install -g @anthropic-ai/claude-code" in (caught.value.hint or "")
    assert caught.value.kind == "cli_not_found"


@pytest.mark.parametrize("kind", get_args(ErrorKind))
def test_every_kind_has_a_hint(kind: str) -> None:
    fold = Fold("r")
    fold.add(events.RunEnding(cause="failed", kind=kind, message="m"))
    error = fold.result().error
    assert error is not None
    assert error.kind == kind
    assert error.hint


@pytest.mark.parametrize(
    "problem", [one for one in vars(failures).values() if isinstance(one, events.Problem)], ids=lambda one: one.kind
)
def test_every_problem_the_agent_can_tell_of_has_a_hint(problem: events.Problem) -> None:
    assert problem.hint
    assert problem.outcome == "degraded" or problem.kind in get_args(ErrorKind)
