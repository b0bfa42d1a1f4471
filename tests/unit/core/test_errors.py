"""The error tree: what callers catch, and what each error says."""

from __future__ import annotations

import inspect
import re

import pytest

from leadrope import errors
from leadrope.core.result import RunError, RunResult

CLASSES = {
    name: kind
    for name, kind in vars(errors).items()
    if inspect.isclass(kind) and issubclass(kind, errors.LeadropeError)
}


def test_the_tree_at_the_top_of_the_file_is_the_tree() -> None:
    """Each line's depth in the drawing is the class's depth below LeadropeError, by the first class it is made of."""

    def depth(kind: type) -> int:
        return 0 if kind is errors.LeadropeError else 1 + depth(kind.__bases__[0])

    drawn = {}
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"    ([│ ]*(?:[├└]── )?)(\w+)", line)
        if match and match[2] in CLASSES:
            drawn[match[2]] = len(match[1]) // 4
    actual = {name: depth(kind) for name, kind in CLASSES.items()}
    assert drawn == actual


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (errors.BadValue("mode", "is odd", hint="Use plan."), "bad_request", "mode: is odd\nUse plan."),
        (errors.EmptyPrompt("the prompt is empty"), "empty_prompt", "the prompt is empty"),
        (errors.CliNotFound("no claude"), "cli_not_found", "no claude"),
        (errors.SpawnFailed("no fork"), "spawn_failed", "no fork"),
        (errors.NotAuthenticated("nobody"), "not_authenticated", "nobody"),
        (errors.BadConfig("odd file"), "bad_request", "odd file"),
        (errors.BadAttachment("a.png", "is odd"), "bad_request", "attachments: a.png: is odd"),
        (errors.BadProvider("parrot", "is odd"), "spawn_failed", "provider 'parrot': is odd"),
    ],
)
def test_message_hint_and_kind(error: errors.LeadropeError, kind: str, text: str) -> None:
    assert error.kind == kind
    assert str(error) == text


def test_a_refused_variable_carries_its_name() -> None:
    error = errors.VariableRefused("LD_PRELOAD", "it loads code")
    assert error.name == "LD_PRELOAD"
    assert "variable LD_PRELOAD is refused: it loads code" in str(error)


def test_a_failed_run_carries_its_result() -> None:
    failed = RunResult(run_id="r", outcome="failed", error=RunError(kind="api_error", message="500", hint="Wait."))
    with pytest.raises(errors.RunFailed, match="the run ended failed: 500") as caught:
        failed.raise_for_outcome()
    assert caught.value.result is failed
    assert caught.value.hint == "Wait."
    assert str(errors.RunFailed(RunResult(run_id="r", outcome="stopped"))) == "the run ended stopped"
    fine = RunResult(run_id="r", outcome="degraded")
    assert fine.raise_for_outcome() is fine
