"""A conversation as one prompt, and a result as one answer."""

from __future__ import annotations

import pytest

from leadrope import Context, Message, errors
from leadrope.core.result import Outcome, RunError, RunResult, Warning_
from leadrope.runtime import complete


@pytest.mark.parametrize(
    ("context", "prompt"),
    [
        (Context(message="hi"), "hi"),
        (Context(message="hi", system_prompt="Be kind."), "Be kind.\n\nUser: hi"),
        (
            Context(message="more", history=(Message(role="user", text="a"), Message(role="assistant", text="b"))),
            "User: a\n\nAssistant: b\n\nUser: more",
        ),
    ],
)
def test_context_as_prompt(context: Context, prompt: str) -> None:
    assert context.as_prompt() == prompt


def result(outcome: Outcome, text: str = "", error: RunError | None = None, warning: str = "") -> RunResult:
    warnings = (Warning_(kind=warning, message=f"about {warning}"),) if warning else ()
    return RunResult(run_id="r", outcome=outcome, text=text, error=error, warnings=warnings, model="m", duration_s=1.5)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (result("succeeded", "hello"), "hello"),
        (result("degraded", "so far", warning="max_turns"), "so far"),
        (result("degraded", warning="max_turns"), "Error from Claude: max_turns"),
        (result("failed", error=RunError(kind="empty_output", message="nothing")), "(No response text returned)"),
    ],
)
def test_completion(given: RunResult, text: str) -> None:
    done = complete.completion_of(given, "claude-code")
    assert (done.text, done.provider, done.model, done.duration_ms) == (text, "claude-code", "m", 1500)


def test_a_failed_run_is_raised() -> None:
    with pytest.raises(errors.RunFailed, match="401"):
        complete.completion_of(result("failed", error=RunError(kind="not_authenticated", message="401")), "claude-code")
