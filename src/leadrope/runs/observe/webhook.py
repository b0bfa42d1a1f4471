"""A signed POST to an address that the user has named, and the check of its signature. Knows no run.

What is sent is one JSON object. Its signature covers the time and the body, so that a receiver can tell a message of
ours from another's, and an old one from a new one.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import hmac
import re
import ssl
import time
import urllib.parse
from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from leadrope import errors
from leadrope.core.secrets.redaction import Secret

TIMESTAMP_HEADER = "X-Leadrope-Timestamp"
SIGNATURE_HEADER = "X-Leadrope-Signature"
DELIVERY_HEADER = "X-Leadrope-Delivery"
WINDOW_S = 300
"""A receiver takes a message that is this old, or this far ahead; more than clocks differ, less than a replay needs."""
MIN_SECRET = 16
RETRIED = (408, 425, 429, 500, 502, 503, 504)
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class WebhookTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Where to send, and how long to try."""

    url: str
    secret: Secret
    timeout_s: float = 5.0
    tries: int = 4
    backoff_s: float = 1.0
    """Before the second try; doubled before each further one."""


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    ok: bool
    tries: int
    detail: str = ""


def check(target: WebhookTarget) -> WebhookTarget:
    """The target, or what is wrong with it. Plain http is for this machine alone."""
    parts = _split(target.url)
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
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
    # Compared as bytes: a text that is not ASCII would raise, and a receiver must be able to say no to it.
    return hmac.compare_digest(sign_webhook(secret, timestamp, body).encode(), signature.encode("utf-8", "replace"))


async def send(
    target: WebhookTarget,
    body: bytes,
    *,
    delivery_id: str,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    clock: Callable[[], float] = time.time,
) -> Delivery:
    """Try until somebody took it. Never raises for what the network does; a redirect is a no: the secret's holder
    named one address, and what stands there cannot name another.
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
        except (OSError, ssl.SSLError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
            detail = f"{type(error).__name__}: {error}"
        else:
            if 200 <= status < 300:
                return Delivery(ok=True, tries=tried)
            detail = f"HTTP status {status}"
            if status not in RETRIED:
                told = " (redirects are not followed)" if 300 <= status < 400 else ""
                return Delivery(ok=False, tries=tried, detail=detail + told)
    return Delivery(ok=False, tries=target.tries, detail=detail)


async def _post(target: WebhookTarget, body: bytes, timestamp: str, delivery_id: str) -> int:
    """One POST and its status. By hand: it is twenty lines, it can be ended at any moment, and it follows nothing."""
    parts = _split(target.url)
    host = str(parts.hostname)
    secure = _trust() if parts.scheme == "https" else None
    port = parts.port or (443 if secure else 80)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    named = f"[{host}]" if ":" in host else host
    head = (
        f"POST {path} HTTP/1.1",
        f"Host: {named}{f':{parts.port}' if parts.port else ''}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "User-Agent: leadrope",
        "Connection: close",
        f"{TIMESTAMP_HEADER}: {timestamp}",
        f"{SIGNATURE_HEADER}: {sign_webhook(target.secret.reveal(), timestamp, body)}",
        f"{DELIVERY_HEADER}: {delivery_id}",
    )
    reader, writer = await asyncio.open_connection(host, port, ssl=secure, limit=2**14)
    try:
        writer.write("\r\n".join((*head, "", "")).encode("ascii") + body)
        await writer.drain()
        line = await reader.readuntil(b"\n")
    finally:
        # Not waited for: an end that nobody answers must not hold us.
        writer.transport.abort()
    found = re.match(rb"HTTP/1\.[01] ([1-5][0-9]{2})[ \r\n]", line)
    if found is None:
        raise ValueError("the answer is not HTTP")
    return int(found[1])


@functools.cache
def _trust() -> ssl.SSLContext:
    return ssl.create_default_context()


def _split(url: str) -> urllib.parse.SplitResult:
    wrong: Literal["", "is not an address", "holds a password", "holds odd characters"] = ""
    try:
        parts = urllib.parse.urlsplit(url)
        _ = parts.port  # raises for what is no number
    except ValueError:
        parts, wrong = urllib.parse.urlsplit("http://x"), "is not an address"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        wrong = "is not an address"
    elif parts.username is not None or parts.password is not None:
        wrong = "holds a password"
    elif not re.fullmatch(r"[!-~]+", url):
        # A line break in it would be a header of its own.
        wrong = "holds odd characters"
    if wrong:
        raise errors.BadConfig(
            f"the webhook {_shown(url)} {wrong}", hint="Write https://host/path; other signs are written as %XX."
        )
    return parts


def _shown(url: str) -> str:
    """Without what may be a secret: the path and query of many webhooks are their password."""
    found = re.match(r"(https?://)(?:[^/@\s]*@)?([A-Za-z0-9.\-:\[\]]{1,200})", url)
    return f"{found[1]}{found[2]}/…" if found else "address"
