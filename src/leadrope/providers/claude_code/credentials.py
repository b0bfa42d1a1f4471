"""Selects the credential that pays for a run, and says what the agent may report about it. Forwards nothing itself.

Order, first match wins:

1. what the request gives 2. CLAUDE_CODE_OAUTH_TOKEN, from the environment, then from leadrope's own settings not with
billing api_key 3. an API key in leadrope's own settings: put there for leadrope, so it is not ambient not with
subscription_only 4. a stored login whose access token is good for another hour not with billing api_key 5. an ambient
API key: environment, then the config files with api_key and auto 6. the agent's own login, used in place

A login's refresh token is never read: two programs that refresh one login log the user out.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from leadrope import errors, spelling
from leadrope.confined import open_named
from leadrope.core.events import CredentialUsed
from leadrope.core.secrets.redaction import Secret, mask
from leadrope.providers.claude_code.locate import AuthStatus

Kind = Literal["oauth_token", "api_key", "auth_token", "own_login", "none"]

TOKEN_VARIABLE = "CLAUDE_CODE_OAUTH_TOKEN"  # noqa: S105  # a name, no token
KEY_VARIABLES = ("ANTHROPIC_API_KEY", "CLAUDE_API_KEY")
KEY_FILES = (".claude.json.api", ".claude.json", ".claude.json.nathan")
KEY_FIELDS = ("primaryApiKey", "apiKey", "anthropicApiKey", "customApiKey")
KEY_PREFIX = "sk-ant-"
TOKEN_PREFIX = "sk-ant-oat"  # noqa: S105  # a prefix, no token
_IN_SETTINGS = " in leadrope's settings"
_PAYS_NO_AMBIENT_KEY = ("subscription", "subscription_only")

# A token that expires in the middle of a run ends it with a 401, and nobody can refresh it; most runs take less than an
# hour. A longer margin would put users of eight-hour tokens on the fallback for much of the day.
MARGIN_S = 3600.0

_ENV_NAMES: Mapping[Kind, str] = {
    "oauth_token": TOKEN_VARIABLE,
    "api_key": "ANTHROPIC_API_KEY",
    "auth_token": "ANTHROPIC_AUTH_TOKEN",
}


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    kind: Kind
    source: str
    billing: Literal["subscription", "api_key", "none"]
    secret: Secret | None = None
    is_login: bool = False
    """A login, which gets new tokens all the time; otherwise the credential itself identifies who pays."""
    notices: tuple[str, ...] = ()
    """What was found and skipped, explained for the user."""

    @property
    def env_name(self) -> str | None:
        """The environment variable that passes it on; None if nothing is forwarded."""
        return _ENV_NAMES.get(self.kind)

    def used(self) -> CredentialUsed:
        masked = mask(self.secret.reveal()) if self.secret else ""
        return CredentialUsed(kind=self.kind, source=self.source, billing=self.billing, masked=masked)


NO_CREDENTIAL = Credential(kind="none", source="nothing", billing="none")


class NothingToForward(msgspec.Struct, frozen=True, kw_only=True):
    billing: str
    stored_login: str | None = None
    """A login file whose token cannot be forwarded; the agent may still be able to refresh it in place."""
    unused_key: str | None = None
    """A key that was found and not used, because nobody opted in."""
    notices: tuple[str, ...] = ()


class _Login(msgspec.Struct, frozen=True):
    # Only these two fields are declared; the decoder skips the refresh token beside them.
    accessToken: str  # noqa: N815  # the file's own names
    expiresAt: Any = None  # noqa: N815


class _LoginFile(msgspec.Struct, frozen=True):
    claudeAiOauth: _Login | None = None  # noqa: N815


class _KeyFile(msgspec.Struct, frozen=True):
    primaryApiKey: Any = None  # noqa: N815
    apiKey: Any = None  # noqa: N815
    anthropicApiKey: Any = None  # noqa: N815
    customApiKey: Any = None  # noqa: N815


_MOST_BYTES = 1024 * 1024
_File = TypeVar("_File", _LoginFile, _KeyFile)


def read_file(path: Path) -> str:
    """Read a credential file without blocking: with the user's own login, an agent could put a pipe there."""
    try:
        with open_named(path) as file:
            return file.read(_MOST_BYTES).decode()
    except errors.UnsafeFile as error:
        raise OSError(errno.EINVAL, error.reason) from None


def find(
    environ: Mapping[str, str],
    home: Path,
    *,
    now: float,
    given: Secret | None = None,
    given_kind: Kind | None = None,
    billing: str = "subscription",
    settings: Mapping[str, str] | None = None,
    read_text: Callable[[Path], str] = read_file,
) -> Credential | NothingToForward:
    """Search for a credential in the order above.

    `settings` is leadrope's own .env, kept apart from `environ`; `now` is in seconds since the epoch.
    """
    settings = settings or {}
    if given is not None:
        return _given(given, given_kind)
    search = _Search(environ, home, now, read_text)
    wants_token = billing != "api_key"
    candidates: list[Callable[[], Credential | None]] = []
    if wants_token:
        candidates += [
            lambda: search.token(environ, "setup token"),
            lambda: search.token(settings, f"setup token{_IN_SETTINGS}"),
        ]
    if billing != "subscription_only":
        candidates.append(lambda: search.key_variable(settings, _IN_SETTINGS))
    if wants_token:
        candidates.append(search.stored_login)
    if billing not in _PAYS_NO_AMBIENT_KEY:
        candidates.append(search.ambient_key)
    for candidate in candidates:
        found = candidate()
        if found is not None:
            return msgspec.structs.replace(found, notices=tuple(search.notices))
    unused = search.key_variable(settings, _IN_SETTINGS) if billing == "subscription_only" else None
    if unused is None and billing in _PAYS_NO_AMBIENT_KEY:
        unused = search.ambient_key()
    return NothingToForward(
        billing=billing,
        stored_login=search.expired_login,
        unused_key=unused.source if unused else None,
        notices=tuple(search.notices),
    )


async def resolve(
    environ: Mapping[str, str],
    home: Path,
    *,
    now: float,
    own_login: Callable[[], Awaitable[AuthStatus]],
    given: Secret | None = None,
    given_kind: Kind | None = None,
    billing: str = "subscription",
    settings: Mapping[str, str] | None = None,
    read_text: Callable[[Path], str] = read_file,
) -> Credential:
    """Run `find`, then try the agent's own login; raises `NotAuthenticated`. `own_login` asks the program if needed."""
    found = find(
        environ,
        home,
        now=now,
        given=given,
        given_kind=given_kind,
        billing=billing,
        settings=settings,
        read_text=read_text,
    )
    if isinstance(found, Credential):
        return found
    if found.stored_login is not None and billing != "api_key":
        return own_login_credential(f"own login ({found.stored_login})", "subscription", found.notices)
    status = await own_login()
    # A login can be a managed API key; a subscription run must not fall back to one.
    paid_by: Literal["subscription", "api_key"] = "api_key" if status.method == "api_key" else "subscription"
    wanted = "subscription" if billing == "subscription_only" else billing
    if status.logged_in and wanted in (paid_by, "auto"):
        return own_login_credential(f"own login ({status.method or 'unknown kind'})", paid_by, found.notices)
    if status.logged_in and found.unused_key is None:
        found = msgspec.structs.replace(found, unused_key=f"the agent's own login ({status.method})")
    notices = (*found.notices, status.reason) if status.reason else found.notices
    raise not_authenticated(msgspec.structs.replace(found, notices=notices))


def own_login_credential(
    source: str, billing: Literal["subscription", "api_key"], notices: tuple[str, ...] = ()
) -> Credential:
    """Return the credential for an agent that uses its own login in the user's folder, without a private
    CLAUDE_CONFIG_DIR.
    """
    return Credential(kind="own_login", source=source, billing=billing, is_login=True, notices=notices)


def not_authenticated(nothing: NothingToForward) -> errors.NotAuthenticated:
    message = "no API key was found" if nothing.billing == "api_key" else "you are not logged in to Claude"
    if nothing.notices:
        message += f" ({'; '.join(nothing.notices)})"
    if nothing.billing == "api_key":
        return errors.NotAuthenticated(
            message,
            hint="Set ANTHROPIC_API_KEY, or leave out billing to use your Claude subscription (`leadrope login`)."
            + spelling.credential_hint(),
        )
    login = "Log in with `leadrope login`, or make a token with `leadrope setup-token` and set CLAUDE_CODE_OAUTH_TOKEN."
    opt_in = f'`{spelling.option("billing", "api_key")}` (or billing = "api_key" in [run] of config.toml)'
    if nothing.unused_key is None:
        return errors.NotAuthenticated(
            message,
            hint=f"{login} To pay by API key instead, set ANTHROPIC_API_KEY and opt in with {opt_in}."
            + spelling.credential_hint(),
        )
    return errors.NotAuthenticated(
        f"{message}; {nothing.unused_key} is set but will not be used unless you opt in: API usage is billed per token",
        hint=f"{login} Or opt in to the key with {opt_in}." + spelling.credential_hint(),
    )


def expected_key_source(credential: Credential) -> frozenset[str]:
    """Return the values of `apiKeySource` that the agent may report; others mean that it uses another credential.

    It reports `none` for a token, for its own subscription login, and if there is nothing.
    """
    if credential.kind == "api_key":
        return frozenset({"ANTHROPIC_API_KEY"})
    if credential.kind == "own_login" and credential.billing == "api_key":
        return frozenset({"/login managed key"})
    return frozenset({"none"})


def kind_of(value: str) -> Kind:
    """Return the kind: `sk-ant-oat…` is a subscription token, anything else a key, since gateways use formats of their
    own.

    A gateway that requires `Authorization: Bearer` needs kind `auth_token`, which only the caller can know.
    """
    return "oauth_token" if value.startswith(TOKEN_PREFIX) else "api_key"


def expiry(value: object) -> float | None:
    """Parse RFC 3339 text or a number of (milli)seconds to seconds since the epoch; raises ValueError."""
    if value is None:
        return None
    if isinstance(value, str) and not re.fullmatch(r"\d+(\.\d+)?", value.strip()):
        moment = datetime.fromisoformat(value.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{value!r} is not a time")  # noqa: TRY004  # a value of a file, not a caller's mistake
    number = float(value)
    # Seconds reach this value in the year 5138, milliseconds reached it in 1973.
    return number / 1000 if number > 1e11 else number


def _given(given: Secret, given_kind: Kind | None) -> Credential:
    value = given.reveal().strip()
    if not value or re.search(r"\s", value):
        raise errors.BadValue("credential", "is empty or holds white space inside")
    kind = given_kind or kind_of(value)
    if kind not in _ENV_NAMES:
        raise errors.BadValue("credential", f"kind {kind} takes no value")
    return Credential(
        kind=kind,
        secret=Secret(value),
        source="given with the request",
        billing="subscription" if kind == "oauth_token" else "api_key",
    )


class _Search:
    """One search of this machine; collects notices for the user."""

    def __init__(self, environ: Mapping[str, str], home: Path, now: float, read_text: Callable[[Path], str]) -> None:
        self._environ = environ
        self._home = home
        self._now = now
        self._read_text = read_text
        self.notices: list[str] = []
        self.expired_login: str | None = None

    def token(self, values: Mapping[str, str], source: str) -> Credential | None:
        value = values.get(TOKEN_VARIABLE, "").strip()
        if not value:
            return None
        if re.search(r"\s", value):
            self.notices.append(f"{TOKEN_VARIABLE} holds white space inside and is not used")
            return None
        return Credential(kind="oauth_token", secret=Secret(value), source=source, billing="subscription")

    def key_variable(self, values: Mapping[str, str], where: str = "") -> Credential | None:
        for name in KEY_VARIABLES:
            found = self._key(values.get(name), f"{name}{where}")
            if found is not None:
                return found
        return None

    def stored_login(self) -> Credential | None:
        config = self._environ.get("CLAUDE_CONFIG_DIR")
        folder = Path(config) if config else self._home / ".claude"
        for path in (folder / ".credentials.json", self._home / ".claude-oauth-credentials.json"):
            content = self._decode(path, _LoginFile)
            login = content.claudeAiOauth if content else None
            if login is None or not login.accessToken:
                continue
            shown = self._shown(path)
            try:
                ends = expiry(login.expiresAt)
            except ValueError:
                self.notices.append(f"{shown}: expiresAt is not a time")
                ends = self._now
            if ends is None or ends > self._now + MARGIN_S:
                return Credential(
                    kind="oauth_token",
                    secret=Secret(login.accessToken),
                    source=f"stored login ({shown})",
                    billing="subscription",
                    is_login=True,
                )
            self.notices.append(f"{shown}: the access token ends within the hour")
            # The agent refreshes only the file that it manages itself.
            if path.name == ".credentials.json":
                self.expired_login = shown
        return None

    def ambient_key(self) -> Credential | None:
        found = self.key_variable(self._environ)
        if found is not None:
            return found
        for name in KEY_FILES:
            path = self._home / name
            content = self._decode(path, _KeyFile)
            for field in KEY_FIELDS if content else ():
                found = self._key(getattr(content, field), f"{field} in {self._shown(path)}")
                if found is not None:
                    return found
        return None

    def _key(self, value: object, source: str) -> Credential | None:
        if value is None or value == "":
            return None
        if not isinstance(value, str) or not re.fullmatch(rf"\s*{KEY_PREFIX}\S+\s*", value):
            self.notices.append(f"{source} does not look like an API key ({KEY_PREFIX}…) and is not used")
            return None
        return Credential(kind="api_key", secret=Secret(value.strip()), source=source, billing="api_key")

    def _decode(self, path: Path, kind: type[_File]) -> _File | None:
        try:
            return msgspec.json.decode(self._read_text(path), type=kind)
        except FileNotFoundError:
            return None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            # Not the error's own text, which could quote part of the file.
            self.notices.append(f"{self._shown(path)} is not the JSON it should be and is not used")
        except OSError as error:
            self.notices.append(f"{self._shown(path)} cannot be read ({error.strerror or type(error).__name__})")
        return None

    def _shown(self, path: Path) -> str:
        return f"~/{path.relative_to(self._home)}" if path.is_relative_to(self._home) else str(path)
