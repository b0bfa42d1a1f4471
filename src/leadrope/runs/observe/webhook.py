"""Sends signed POSTs to a URL named by the user, and verifies their signatures. Independent of runs.

The payload is one JSON object. The signature covers time and body, so that a receiver can detect forged and replayed
messages.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import time
from collections.abc import Awaitable, Callable

import msgspec

from leadrope import errors
from leadrope.core.secrets.redaction import Secret
from leadrope.net import http_client
from leadrope.net.urls import BadUrl, Blocked, Target, read_url

TIMESTAMP_HEADER = "X-Leadrope-Timestamp"
SIGNATURE_HEADER = "X-Leadrope-Signature"
DELIVERY_HEADER = "X-Leadrope-Delivery"
WINDOW_S = 300
"""Maximum clock difference a receiver accepts: more than clocks differ, less than a replay needs."""
MIN_SECRET = 16
RETRIED = (408, 425, 429, 500, 502, 503, 504)
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class WebhookTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Where to send, and how often to try."""

    url: str
    secret: Secret
    timeout_s: float = 5.0
    tries: int = 4
    backoff_s: float = 1.0
    """Before the second attempt; doubled before each further one."""


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    ok: bool
    tries: int
    detail: str = ""


def check(target: WebhookTarget) -> WebhookTarget:
    """Validate the target; plain http is allowed only for this machine."""
    where = _read(target.url)
    if where.scheme == "http" and where.host not in _LOOPBACK:
        raise errors.BadConfig(
            f"the webhook {_shown(target.url)} is not encrypted", hint="Use https; http is for this machine only."
        )
    if len(target.secret.reveal()) < MIN_SECRET:
        raise errors.BadConfig(
            f"the webhook's secret has fewer than {MIN_SECRET} characters",
            hint="Make one: python3 -c 'import secrets; print(secrets.token_hex(32))'.",
        )
    return target


def sign_webhook(secret: str, timestamp: str, body: bytes) -> str:
    """The value of the signature header."""
    return "v1=" + hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def verify_webhook(
    secret: str, timestamp: str, body: bytes, signature: str, now: float, *, window_s: float = WINDOW_S
) -> bool:
    """Whether this body was sent by the holder of the secret, and recently. For receivers:

    stamp, signature = request.headers["X-Leadrope-Timestamp"], request.headers["X-Leadrope-Signature"]
    verify_webhook(secret, stamp, body, signature, time.time())

    Within the window a copy of a message passes too: remember X-Leadrope-Delivery to take each one once.
    """
    if not re.fullmatch(r"[0-9]{1,12}", timestamp, re.ASCII) or abs(now - int(timestamp)) > window_s:
        return False
    # Compared as bytes: text that is not ASCII would raise, but a receiver must be able to reject it.
    return hmac.compare_digest(sign_webhook(secret, timestamp, body).encode(), signature.encode("utf-8", "replace"))


async def send(
    target: WebhookTarget,
    body: bytes,
    *,
    delivery_id: str,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    clock: Callable[[], float] = time.time,
) -> Delivery:
    """Send with retries until accepted. Network errors are never raised.

    A redirect counts as a rejection: the user named one URL, and its server must not choose another.
    """
    detail = ""
    for tried in range(1, target.tries + 1):
        if tried > 1:
            await pause(target.backoff_s * 2 ** (tried - 2))
        timestamp = str(int(clock()))
        try:
            async with asyncio.timeout(target.timeout_s):
                status = await _post(target, body, timestamp, delivery_id)
        except TimeoutError:
            detail = f"no answer within {target.timeout_s:g} s"
        except http_client.HttpFailed as error:
            detail = str(error)
        else:
            if 200 <= status < 300:
                return Delivery(ok=True, tries=tried)
            detail = f"HTTP status {status}"
            if status not in RETRIED:
                told = " (redirects are not followed)" if 300 <= status < 400 else ""
                return Delivery(ok=False, tries=tried, detail=detail + told)
    return Delivery(ok=False, tries=target.tries, detail=detail)


async def _post(target: WebhookTarget, body: bytes, timestamp: str, delivery_id: str) -> int:
    """POST once and return the status; the answer's body is not read."""
    headers = (
        ("Content-Type", "application/json"),
        (TIMESTAMP_HEADER, timestamp),
        (SIGNATURE_HEADER, sign_webhook(target.secret.reveal(), timestamp, body)),
        (DELIVERY_HEADER, delivery_id),
    )
    request = http_client.OutgoingRequest(method="POST", target=_read(target.url), headers=headers, body=body)
    async with http_client.exchange(request) as answer:
        return answer.status


def _read(url: str) -> Target:
    try:
        return read_url(url)
    except (BadUrl, Blocked) as error:
        raise errors.BadConfig(
            f"the webhook {_shown(url)} cannot be used: {error}",
            hint="Write https://host/path; other characters are written as %XX.",
        ) from None


def _shown(url: str) -> str:
    """Return the URL for messages: the path and query of many webhooks are their password."""
    found = re.match(r"(https?://)(?:[^/@\s]*@)?([A-Za-z0-9.\-:\[\]]{1,200})", url)
    return f"{found[1]}{found[2]}/…" if found else "address"
