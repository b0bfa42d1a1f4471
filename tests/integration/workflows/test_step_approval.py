"""The step approval, and `approval: required`: what a person is shown, with every template filled."""

from __future__ import annotations

from typing import Any

from leadrope.runtime.gate.approvers import Answer

INPUT = "## Inputs\n### version\n- default: 1.4.0\n## Steps\n### count\n- type: code\n- code: result = [1, 2]\n"


async def test_a_person_sees_the_message_the_values_and_the_choices_as_they_are(shop: Any) -> None:
    somebody = shop.somebody(Answer(approved=True, choice="candidate", reason="not yet", by="Jane"))
    result = await shop.run(
        INPUT + "### ask\n- type: approval\n- message: Release ${version}?\n"
        "- values: {found: '${count.result}', text: 'of ${version}'}\n- choices: [release, candidate]\n"
        "## Outputs\n### said\n- source: ${ask}\n",
        people=somebody,
    )
    (asked,) = somebody.asked
    assert (asked.kind, asked.title, asked.detail) == ("step", "ask", "Release 1.4.0?")
    assert (asked.values, asked.choices) == ({"found": [1, 2], "text": "of 1.4.0"}, ("release", "candidate"))
    assert result.outputs["said"] == {
        "approved": True,
        "choice": "candidate",
        "answer": {},
        "reason": "not yet",
        "by": "user:Jane",
    }


async def test_a_step_that_needs_a_yes_shows_its_parameters_filled_and_hides_its_secrets(shop: Any) -> None:
    somebody = shop.somebody(Answer(approved=False, reason="no"))
    result = await shop.run(
        INPUT + "### get\nAsks the server.\n- type: http\n- url: https://example.com/${version}\n"
        "- params: {n: '${count.result[1]}'}\n- auth: secret-token-${version}\n- approval: required\n",
        people=somebody,
    )
    (asked,) = somebody.asked
    assert (asked.title, asked.detail) == ("get (http) is to start", "Asks the server.")
    assert (asked.values["url"], asked.values["params"]) == ("https://example.com/1.4.0", {"n": 2})
    assert "secret-token" not in str(asked)
    assert (result.outcome, result.failures[0].error.kind) == ("failed", "denied")


async def test_what_a_person_is_shown_holds_no_secret_of_a_variable(shop: Any) -> None:
    somebody = shop.somebody(Answer(approved=True), Answer(approved=True))
    result = await shop.run(
        "## Steps\n### say\n- type: shell\n- command: touch .git/x; echo $API_KEY\n"
        "- env: {API_KEY: tops3cret-99, PLAIN: seen}\n- approval: required\n",
        people=somebody,
    )
    assert result.outcome == "succeeded"
    assert somebody.asked[0].values["env"]["PLAIN"] == "seen"
    assert "tops3cret" not in str(somebody.asked)
    assert "tops3cret" not in str(shop.happened)
