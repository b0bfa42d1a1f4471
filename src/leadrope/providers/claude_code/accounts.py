"""Derives a name for the account that pays for a run: one name per credential or login, safe to store.

A token or a key is identified by its digest, wherever it was found. A login is identified by the account in the agent's
own settings, because its token changes within hours; if they name none, by its location.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from leadrope.core.request import RunRequest
from leadrope.providers.claude_code import credentials


class _Account(msgspec.Struct, frozen=True):
    accountUuid: str = ""  # noqa: N815  # the file's own names
    organizationUuid: str = ""  # noqa: N815


class _Settings(msgspec.Struct, frozen=True):
    oauthAccount: _Account | None = None  # noqa: N815


def name(request: RunRequest, environ: Mapping[str, str], settings: Mapping[str, str]) -> str:
    """Return the account of the credential that a start would use now; `settings` is leadrope's own .env."""
    home = Path(environ.get("HOME") or Path.home())
    found = credentials.find(
        environ,
        home,
        now=time.time(),
        given=request.credential,
        given_kind=request.credential_kind,
        billing=request.billing,
        settings=settings,
    )
    if isinstance(found, credentials.Credential) and found.secret is not None and not found.is_login:
        return digest(found.secret.reveal())
    if request.billing == "api_key":
        return "api_key"
    # The same login pays, whether or not a key might have been used.
    account = _of_login(environ, home)
    return f"login-{digest(account)}" if account else "subscription"


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _of_login(environ: Mapping[str, str], home: Path) -> str:
    folder = environ.get("CLAUDE_CONFIG_DIR")
    try:
        text = credentials.read_file((Path(folder) if folder else home) / ".claude.json")
        account = msgspec.json.decode(text, type=_Settings).oauthAccount
    except (OSError, UnicodeDecodeError, msgspec.MsgspecError, RecursionError):
        return ""
    return f"{account.accountUuid}/{account.organizationUuid}" if account and account.accountUuid else ""
