"""Which credential pays: order, billing, expiry, and what is said when there is none."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import pytest

from leadrope import errors
from leadrope.core.events import CredentialUsed
from leadrope.core.request import Billing
from leadrope.core.secrets.redaction import Secret
from leadrope.providers.claude_code import credentials
from leadrope.providers.claude_code.credentials import Credential, NothingToForward
from leadrope.providers.claude_code.locate import AuthStatus

NOW = 1_800_000_000.0
HOME = Path("/home/u")
LATER_MS = int((NOW + 7200) * 1000)


def files(**content: Any) -> Callable[[Path], str]:
    """A home folder as a table: names with `__` for a dot in front, values as JSON."""

    def read(path: Path) -> str:
        try:
            value = content[str(path.relative_to(HOME))]
        except KeyError:
            raise FileNotFoundError(path) from None
        if isinstance(value, Exception):
            raise value
        return value if isinstance(value, str) else json.dumps(value)

    return read


def login(expires: Any, token: str = "sk-ant-oat01-stored") -> dict[str, Any]:
    return {"claudeAiOauth": {"accessToken": token, "refreshToken": "sk-ant-ort01-never", "expiresAt": expires}}


def find(
    environ: dict[str, str] | None = None,
    content: dict[str, Any] | None = None,
    *,
    billing: str = "subscription",
    given: str | None = None,
    given_kind: credentials.Kind | None = None,
    settings: dict[str, str] | None = None,
) -> Credential | NothingToForward:
    return credentials.find(
        environ or {},
        HOME,
        now=NOW,
        given=None if given is None else Secret(given),
        given_kind=given_kind,
        billing=billing,
        settings=settings,
        read_text=files(**(content or {})),
    )


def found(result: Credential | NothingToForward) -> tuple[str, str, str] | None:
    if isinstance(result, NothingToForward):
        return None
    return result.kind, result.secret.reveal() if result.secret else "", result.source


ALL_ENV = {
    "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-env",
    "ANTHROPIC_API_KEY": "sk-ant-api-env",
    "CLAUDE_API_KEY": "sk-ant-api-env2",
}
ALL_FILES = {
    ".claude/.credentials.json": login(LATER_MS),
    ".claude-oauth-credentials.json": login(LATER_MS, "sk-ant-oat01-mounted"),
    ".claude.json.api": {"apiKey": "sk-ant-file-api"},
    ".claude.json": {"customApiKey": "sk-ant-custom", "primaryApiKey": "sk-ant-primary"},
}
STORED = ("oauth_token", "sk-ant-oat01-stored", "stored login (~/.claude/.credentials.json)")


def without(table: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in table.items() if name not in names}


NO_TOKEN = without(ALL_ENV, "CLAUDE_CODE_OAUTH_TOKEN")
KEY_FILES_ONLY = without(ALL_FILES, ".claude/.credentials.json", ".claude-oauth-credentials.json")


@pytest.mark.parametrize(
    ("environ", "content", "billing", "expected"),
    [
        (ALL_ENV, ALL_FILES, "subscription", ("oauth_token", "sk-ant-oat01-env", "setup token")),
        (ALL_ENV, ALL_FILES, "auto", ("oauth_token", "sk-ant-oat01-env", "setup token")),
        (ALL_ENV, ALL_FILES, "api_key", ("api_key", "sk-ant-api-env", "ANTHROPIC_API_KEY")),
        (NO_TOKEN, ALL_FILES, "subscription", STORED),
        (NO_TOKEN, ALL_FILES, "auto", STORED),
        (
            NO_TOKEN,
            without(ALL_FILES, ".claude/.credentials.json"),
            "subscription",
            ("oauth_token", "sk-ant-oat01-mounted", "stored login (~/.claude-oauth-credentials.json)"),
        ),
        (NO_TOKEN, KEY_FILES_ONLY, "subscription", None),
        (NO_TOKEN, KEY_FILES_ONLY, "auto", ("api_key", "sk-ant-api-env", "ANTHROPIC_API_KEY")),
        ({"CLAUDE_API_KEY": "sk-ant-2"}, {}, "api_key", ("api_key", "sk-ant-2", "CLAUDE_API_KEY")),
        ({}, KEY_FILES_ONLY, "api_key", ("api_key", "sk-ant-file-api", "apiKey in ~/.claude.json.api")),
        (
            {},
            without(KEY_FILES_ONLY, ".claude.json.api"),
            "auto",
            ("api_key", "sk-ant-primary", "primaryApiKey in ~/.claude.json"),
        ),
        ({}, {".claude.json": {"anthropicApiKey": "sk-ant-3", "customApiKey": "sk-ant-4"}}, "auto",
         ("api_key", "sk-ant-3", "anthropicApiKey in ~/.claude.json")),
        ({}, {".claude.json": {"anthropicApiKey": "sk-ant-3", "apiKey": "sk-ant-6"}}, "auto",
         ("api_key", "sk-ant-6", "apiKey in ~/.claude.json")),
        ({}, {".claude.json.nathan": {"apiKey": "sk-ant-7"}}, "auto",
         ("api_key", "sk-ant-7", "apiKey in ~/.claude.json.nathan")),
        ({}, {".claude.json": {"apiKey": "sk-other-1", "customApiKey": "sk-ant-4"}}, "auto",
         ("api_key", "sk-ant-4", "customApiKey in ~/.claude.json")),
        ({"ANTHROPIC_API_KEY": "", "CLAUDE_CODE_OAUTH_TOKEN": "  "}, {}, "auto", None),
        ({"ANTHROPIC_API_KEY": "not-a-key"}, {}, "api_key", None),
        ({"ANTHROPIC_API_KEY": " sk-ant-5\n"}, {}, "api_key", ("api_key", "sk-ant-5", "ANTHROPIC_API_KEY")),
        ({"CLAUDE_CODE_OAUTH_TOKEN": "two words"}, {}, "auto", None),
        ({}, ALL_FILES, "api_key", ("api_key", "sk-ant-file-api", "apiKey in ~/.claude.json.api")),
        ({}, {}, "auto", None),
    ],
)  # fmt: skip
def test_order(
    environ: dict[str, str], content: dict[str, Any], billing: str, expected: tuple[str, str, str] | None
) -> None:
    assert found(find(environ, content, billing=billing)) == expected


@pytest.mark.parametrize("billing", get_args(Billing))
@pytest.mark.parametrize(
    ("value", "kind", "expected_kind", "paid_by", "variable"),
    [
        ("sk-ant-oat01-x", None, "oauth_token", "subscription", "CLAUDE_CODE_OAUTH_TOKEN"),
        ("sk-ant-api03-x", None, "api_key", "api_key", "ANTHROPIC_API_KEY"),
        ("gateway-key", None, "api_key", "api_key", "ANTHROPIC_API_KEY"),
        ("gateway-key", "auth_token", "auth_token", "api_key", "ANTHROPIC_AUTH_TOKEN"),
        ("opaque", "oauth_token", "oauth_token", "subscription", "CLAUDE_CODE_OAUTH_TOKEN"),
    ],
)
def test_what_the_request_gives_comes_first(
    billing: str, value: str, kind: credentials.Kind | None, expected_kind: str, paid_by: str, variable: str
) -> None:
    result = find(ALL_ENV, ALL_FILES, billing=billing, given=value, given_kind=kind)
    assert found(result) == (expected_kind, value, "given with the request")
    assert isinstance(result, Credential)
    assert (result.billing, result.env_name) == (paid_by, variable)


@pytest.mark.parametrize("value", ["", "  ", "a b", "sk-ant-x\ny"])
def test_a_given_credential_that_cannot_be_one(value: str) -> None:
    with pytest.raises(errors.BadValue) as caught:
        find(given=value)
    assert value.strip() == "" or value not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "environ", "billing", "expected"),
    [
        ({"ANTHROPIC_API_KEY": "sk-ant-s"}, {}, "subscription",
         ("api_key", "sk-ant-s", "ANTHROPIC_API_KEY in leadrope's settings")),
        ({"ANTHROPIC_API_KEY": "sk-ant-s"}, ALL_ENV, "subscription",
         ("oauth_token", "sk-ant-oat01-env", "setup token")),
        ({"CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat-s"}, NO_TOKEN, "auto",
         ("oauth_token", "sk-ant-oat-s", "setup token in leadrope's settings")),
        ({"CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat-s"}, ALL_ENV, "subscription",
         ("oauth_token", "sk-ant-oat01-env", "setup token")),
        ({"ANTHROPIC_API_KEY": "sk-ant-s", "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat-s"}, ALL_ENV, "api_key",
         ("api_key", "sk-ant-s", "ANTHROPIC_API_KEY in leadrope's settings")),
    ],
)  # fmt: skip
def test_leadropes_own_settings_are_not_ambient(
    settings: dict[str, str], environ: dict[str, str], billing: str, expected: tuple[str, str, str]
) -> None:
    assert found(find(environ, ALL_FILES, billing=billing, settings=settings)) == expected


TOKEN = {"CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-env"}
KEY = {"ANTHROPIC_API_KEY": "sk-ant-api-env"}
OWN_TOKEN = {"CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat-s"}
OWN_KEY = {"ANTHROPIC_API_KEY": "sk-ant-s"}
LOGIN = {".claude/.credentials.json": login(LATER_MS)}
KEY_FILE = {".claude.json": {"apiKey": "sk-ant-file"}}


@pytest.mark.parametrize(
    ("environ", "settings", "content", "expected"),
    [
        # environment, leadrope's settings and files; who pays: subscription, subscription_only, api_key, auto
        (TOKEN | KEY, OWN_TOKEN | OWN_KEY, LOGIN, ("oat01-env", "oat01-env", "s", "oat01-env")),
        (KEY, OWN_TOKEN | OWN_KEY, LOGIN, ("oat-s", "oat-s", "s", "oat-s")),
        (KEY, OWN_KEY, LOGIN | KEY_FILE, ("s", "oat01-stored", "s", "s")),
        (KEY, OWN_KEY, KEY_FILE, ("s", None, "s", "s")),
        ({}, OWN_KEY, {}, ("s", None, "s", "s")),
        (KEY, {}, LOGIN, ("oat01-stored", "oat01-stored", "api-env", "oat01-stored")),
        (KEY, {}, KEY_FILE, (None, None, "api-env", "api-env")),
        ({}, {}, KEY_FILE, (None, None, "file", "file")),
        ({}, {}, {}, (None, None, None, None)),
    ],
)
def test_who_pays_with_each_billing(
    environ: dict[str, str], settings: dict[str, str], content: dict[str, Any], expected: tuple[str | None, ...]
) -> None:
    for billing, value in zip(("subscription", "subscription_only", "api_key", "auto"), expected, strict=True):
        result = found(find(environ, content, billing=billing, settings=settings))
        assert (result[1].removeprefix("sk-ant-") if result else None) == value, billing


@pytest.mark.parametrize(
    ("environ", "settings", "seen"),
    [
        (KEY, OWN_KEY, "ANTHROPIC_API_KEY in leadrope's settings"),
        ({}, OWN_KEY, "ANTHROPIC_API_KEY in leadrope's settings"),
        (KEY, {}, "ANTHROPIC_API_KEY"),
        ({}, {}, None),
    ],
)
def test_a_key_that_a_subscription_alone_leaves_unused_is_known(
    environ: dict[str, str], settings: dict[str, str], seen: str | None
) -> None:
    result = find(environ, billing="subscription_only", settings=settings)
    assert isinstance(result, NothingToForward)
    assert result.unused_key == seen


class TestExpiry:
    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (None, None),
            (1_800_000_000_000, NOW),
            (1_800_000_000, NOW),
            ("1800000000000", NOW),
            (datetime.fromtimestamp(NOW, UTC).isoformat().replace("+00:00", "Z"), NOW),
            ("2027-01-15T10:00:00+02:00", NOW),
            ("2027-01-15T08:00:00", NOW),
        ],
    )
    def test_spellings_of_a_time(self, value: object, expected: float | None) -> None:
        assert credentials.expiry(value) == expected

    def test_a_time_without_a_zone_is_utc_wherever_it_is_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TZ", "XXX-5")
        time.tzset()
        try:
            assert credentials.expiry("2027-01-15T08:00:00") == NOW
        finally:
            monkeypatch.undo()
            time.tzset()

    @pytest.mark.parametrize("value", ["soon", "", True, [], {}])
    def test_no_time(self, value: object) -> None:
        with pytest.raises(ValueError):
            credentials.expiry(value)

    @pytest.mark.parametrize(
        ("expires", "is_forwarded"),
        [
            ((NOW + 3601) * 1000, True),
            ((NOW + 3600) * 1000, False),
            ((NOW - 1) * 1000, False),
            ("2027-01-15T09:00:01Z", True),
            ("2027-01-15T08:59:59Z", False),
            (None, True),
            ("soon", False),
        ],
    )
    def test_a_login_is_forwarded_while_good_for_another_hour(self, expires: Any, is_forwarded: bool) -> None:
        result = find({}, {".claude/.credentials.json": login(expires)})
        if is_forwarded:
            assert found(result) == STORED
        else:
            assert isinstance(result, NothingToForward)
            assert result.stored_login == "~/.claude/.credentials.json"

    def test_the_mounted_login_is_tried_when_the_first_has_run_out(self) -> None:
        content = ALL_FILES | {".claude/.credentials.json": login(0)}
        result = find({}, content)
        assert isinstance(result, Credential)
        assert found(result) == (
            "oauth_token",
            "sk-ant-oat01-mounted",
            "stored login (~/.claude-oauth-credentials.json)",
        )
        assert "within the hour" in result.notices[0]


@pytest.mark.parametrize(
    ("content", "notice"),
    [
        ({".claude/.credentials.json": "{"}, "~/.claude/.credentials.json is not the JSON it should be"),
        ({".claude.json": '{"a":' * 100_000}, "~/.claude.json is not the JSON it should be"),
        ({".claude/.credentials.json": "[]"}, "~/.claude/.credentials.json is not the JSON it should be"),
        ({".claude/.credentials.json": {"claudeAiOauth": {"accessToken": 5}}}, "not the JSON"),
        ({".claude.json": PermissionError(13, "Permission denied")}, "~/.claude.json cannot be read (Permission"),
        ({".claude.json": UnicodeDecodeError("utf-8", b"x", 0, 1, "bad")}, "not the JSON"),
        ({".claude.json": {"apiKey": 5}}, "apiKey in ~/.claude.json does not look like an API key"),
        ({".claude.json": {"apiKey": "sk-proj-secret"}}, "does not look like an API key"),
    ],
)
def test_a_broken_file_is_passed_over_with_a_notice(content: dict[str, Any], notice: str) -> None:
    result = find({}, content, billing="auto")
    assert isinstance(result, NothingToForward)
    assert any(notice in text for text in result.notices), result.notices
    assert "secret" not in " ".join(result.notices)


def test_a_config_dir_of_the_users_choice_holds_the_login(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work/.credentials.json").write_text(json.dumps(login(LATER_MS)))
    result = credentials.find({"CLAUDE_CONFIG_DIR": str(tmp_path / "work")}, tmp_path / "home", now=NOW)
    assert isinstance(result, Credential)
    assert result.kind == "oauth_token"


def test_the_refresh_token_is_in_no_value() -> None:
    for expires in (LATER_MS, 0):
        result = find({}, {".claude/.credentials.json": login(expires)})
        assert "sk-ant-ort01" not in repr(result)
        assert isinstance(result, NothingToForward) or (result.secret and "ort01" not in result.secret.reveal())


def test_used_shows_a_masked_form_only() -> None:
    result = find({"CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-" + "x" * 40})
    assert isinstance(result, Credential)
    assert result.used() == CredentialUsed(
        kind="oauth_token", source="setup token", billing="subscription", masked="sk-ant-oat… (53 characters)"
    )
    assert "x" * 40 not in repr(result)


class TestOwnLogin:
    @staticmethod
    async def resolve(
        status: AuthStatus | None,
        content: dict[str, Any] | None = None,
        billing: str = "subscription",
        settings: dict[str, str] | None = None,
        **environ: str,
    ) -> Credential:
        async def own_login() -> AuthStatus:
            assert status is not None, "the program was asked without need"
            return status

        return await credentials.resolve(
            environ,
            HOME,
            now=NOW,
            own_login=own_login,
            billing=billing,
            settings=settings,
            read_text=files(**(content or {})),
        )

    async def test_an_expired_login_is_refreshed_by_its_owner(self) -> None:
        result = await self.resolve(None, {".claude/.credentials.json": login(0)})
        assert (result.kind, result.billing, result.env_name) == ("own_login", "subscription", None)

    async def test_an_expired_login_does_not_pay_where_a_key_was_asked_for(self) -> None:
        with pytest.raises(errors.NotAuthenticated, match="no API key was found"):
            await self.resolve(AuthStatus(), {".claude/.credentials.json": login(0)}, billing="api_key")

    async def test_an_expired_login_that_the_program_does_not_look_after_is_no_login(self) -> None:
        """It refreshes its own file alone; a mounted one that has run out only helps if it is logged in besides."""
        mounted = {".claude-oauth-credentials.json": login(0)}
        with pytest.raises(errors.NotAuthenticated, match="within the hour"):
            await self.resolve(AuthStatus(), mounted)
        result = await self.resolve(AuthStatus(logged_in=True, method="claude.ai"), mounted)
        assert (result.kind, result.source) == ("own_login", "own login (claude.ai)")

    async def test_nobody_is_asked_when_something_can_be_forwarded(self) -> None:
        assert (await self.resolve(None, ALL_FILES)).kind == "oauth_token"

    @pytest.mark.parametrize(
        ("method", "billing", "paid_by"),
        [
            ("claude.ai", "subscription", "subscription"),
            ("claude.ai", "subscription_only", "subscription"),
            ("oauth_token", "auto", "subscription"),
            ("api_key", "api_key", "api_key"),
            ("api_key", "auto", "api_key"),
        ],
    )
    async def test_a_login_that_the_program_knows_of(self, method: str, billing: str, paid_by: str) -> None:
        result = await self.resolve(AuthStatus(logged_in=True, method=method), billing=billing)
        assert (result.kind, result.billing) == ("own_login", paid_by)

    async def test_a_managed_key_is_no_subscription(self) -> None:
        """The program may be logged in with a key; a run that asked for the subscription must not spend it."""
        for billing in ("subscription", "subscription_only"):
            with pytest.raises(errors.NotAuthenticated, match="own login"):
                await self.resolve(AuthStatus(logged_in=True, method="api_key"), billing=billing)
        with pytest.raises(errors.NotAuthenticated):
            await self.resolve(AuthStatus(logged_in=True, method="claude.ai"), billing="api_key")

    @pytest.mark.parametrize("billing", ["subscription", "subscription_only"])
    async def test_nothing_at_all_says_how_to_log_in(self, billing: str) -> None:
        with pytest.raises(errors.NotAuthenticated) as caught:
            await self.resolve(AuthStatus(reason="claude auth status: no answer"), billing=billing)
        assert caught.value.message == ("you are not logged in to Claude (claude auth status: no answer)")
        for words in ("leadrope login", "leadrope setup-token", "set ANTHROPIC_API_KEY", 'billing="api_key"'):
            assert words in (caught.value.hint or "")

    async def test_a_key_of_leadropes_own_is_named_where_it_is_not_used(self) -> None:
        with pytest.raises(errors.NotAuthenticated) as caught:
            await self.resolve(AuthStatus(), billing="subscription_only", settings=OWN_KEY)
        assert "ANTHROPIC_API_KEY in leadrope's settings is set but will not be used" in caught.value.message
        assert 'billing="api_key"' in (caught.value.hint or "")
        assert "sk-ant-s" not in str(caught.value)

    async def test_an_expired_login_pays_before_leadropes_own_key_does(self) -> None:
        expired = {".claude/.credentials.json": login(0)}
        result = await self.resolve(None, expired, billing="subscription_only", settings=OWN_KEY)
        assert (result.kind, result.billing) == ("own_login", "subscription")

    async def test_an_ambient_key_is_named_and_how_to_opt_in(self) -> None:
        with pytest.raises(errors.NotAuthenticated) as caught:
            await self.resolve(AuthStatus(), ANTHROPIC_API_KEY="sk-ant-ambient-key")
        text = str(caught.value)
        for words in ("ANTHROPIC_API_KEY", 'billing="api_key"', 'billing = "api_key"'):
            assert words in text
        assert "sk-ant-ambient-key" not in text

    async def test_a_missing_key_says_what_to_set(self) -> None:
        with pytest.raises(errors.NotAuthenticated, match="Set ANTHROPIC_API_KEY"):
            await self.resolve(AuthStatus(), billing="api_key")


@pytest.mark.parametrize(
    ("kind", "billing", "expected"),
    [
        ("oauth_token", "subscription", {"none"}),
        ("auth_token", "api_key", {"none"}),
        ("api_key", "api_key", {"ANTHROPIC_API_KEY"}),
        ("own_login", "subscription", {"none"}),
        ("own_login", "api_key", {"/login managed key"}),
        ("none", "none", {"none"}),
    ],
)
def test_what_the_agent_may_report(kind: Any, billing: Any, expected: set[str]) -> None:
    credential = Credential(kind=kind, source="x", billing=billing)
    assert credentials.expected_key_source(credential) == expected
