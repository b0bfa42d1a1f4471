"""Whose queue a usage limit holds: one name per credential, which does not tell it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from leadrope.core.request import RunRequest
from leadrope.core.secrets.redaction import Secret
from leadrope.runs.records.stored_requests import account_of

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


def log_in(folder: Path, account: str | None, *, token: str = ONE, ends_in_s: float = 86400) -> None:
    """What the agent's own login leaves: its token, and whose it is."""
    (folder / ".claude").mkdir(exist_ok=True)
    login = {"accessToken": token, "refreshToken": "never read", "expiresAt": (time.time() + ends_in_s) * 1000}
    (folder / ".claude/.credentials.json").write_text(json.dumps({"claudeAiOauth": login}))
    known = {"accountUuid": account, "organizationUuid": "o"}
    (folder / ".claude.json").write_text(json.dumps({"oauthAccount": known} if account else {}))


@pytest.mark.parametrize("billing", ["subscription", "subscription_only", "auto"])
def test_a_login_is_the_same_account_with_every_token_it_gets(tmp_path: Path, billing: str) -> None:
    home = {"HOME": str(tmp_path)}
    log_in(tmp_path, "a")
    first = account(home, billing=billing)
    log_in(tmp_path, "a", token=OTHER)
    assert account(home, billing=billing) == first
    log_in(tmp_path, "a", ends_in_s=60)  # the agent itself refreshes it
    assert account(home, billing=billing) == first
    log_in(tmp_path, "b")
    assert account(home, billing=billing) != first
    log_in(tmp_path, None)
    assert account(home, billing=billing) != first


def test_a_key_that_pays_in_place_of_a_login_is_another_account(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    log_in(tmp_path, "a")
    login = account(home, billing="auto")
    assert account({**home, KEY: OTHER}, billing="auto") == login
    (tmp_path / ".claude/.credentials.json").unlink()
    key = account({**home, KEY: OTHER}, billing="auto")
    assert key != login
    assert key == account({KEY: OTHER}, billing="api_key")


def test_a_key_of_the_agents_settings_is_known_by_itself_and_not_by_its_place(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    names = set()
    for key in (ONE, OTHER):
        (tmp_path / ".claude.json").write_text(json.dumps({"primaryApiKey": key}))
        names.add(account(home, billing="api_key"))
    assert names == {account({KEY: ONE}, billing="api_key"), account({KEY: OTHER}, billing="api_key")}
