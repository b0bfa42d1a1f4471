"""Whose queue a usage limit holds: one name per credential, which does not tell it."""

from __future__ import annotations

import pytest

from leadrope.core.redaction import Secret
from leadrope.core.request import RunRequest
from leadrope.runs.stored_requests import account_of

ONE, OTHER = "sk-ant-oat01-one", "sk-ant-oat01-other"
TOKEN = "CLAUDE_CODE_OAUTH_TOKEN"
KEY = "ANTHROPIC_API_KEY"


def account(environ: dict[str, str], settings: dict[str, str] | None = None, **fields: object) -> str:
    found = account_of(RunRequest(prompt="p", **fields), environ, settings or {})  # type: ignore[arg-type]  # by name
    assert ONE not in found
    return found


def test_each_credential_has_a_queue_of_its_own() -> None:
    names = [
        account({TOKEN: ONE}),
        account({TOKEN: OTHER}),
        account({}),
        account({KEY: OTHER + "-key"}, billing="api_key"),
        account({}, billing="api_key"),
        account({TOKEN: ONE}, provider="scripted"),
    ]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("environ", "settings", "fields"),
    [
        ({}, {TOKEN: ONE}, {}),
        ({TOKEN: f" {ONE}\n"}, {TOKEN: OTHER}, {}),
        ({TOKEN: OTHER}, {}, {"credential": Secret(ONE)}),
        ({TOKEN: ONE, KEY: OTHER}, {}, {"billing": "auto"}),
        ({TOKEN: OTHER}, {KEY: ONE}, {"billing": "api_key"}),
        ({KEY: OTHER}, {TOKEN: ONE, KEY: OTHER}, {"billing": "subscription_only"}),
    ],
)
def test_the_same_credential_is_the_same_account_wherever_it_was_found(
    environ: dict[str, str], settings: dict[str, str], fields: dict[str, object]
) -> None:
    assert account(environ, settings, **fields) == account({TOKEN: ONE})


def test_a_key_that_nobody_may_use_is_no_account() -> None:
    assert account({KEY: ONE}) == account({})
    # The login that pays is the same one; a key of leadrope's own would have paid for the other.
    assert account({KEY: ONE}, {KEY: OTHER}, billing="subscription_only") == account({})
    assert account({}, {KEY: OTHER}) != account({})
