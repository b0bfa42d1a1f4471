"""The host that a URL leads to, and host patterns. Does not use the network."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from leadrope import errors
from leadrope.regex import regex

_NAME = regex(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(?:\.(?!-)[a-z0-9_-]{1,63}(?<!-))*")
_PATTERN = regex(r"(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*")


def host_of(url: object) -> str | None:
    r"""Returns the host in lower case without a final dot; None if two parsers could disagree about it.

    >>> host_of("https://example.com@evil.test/")
    'evil.test'
    >>> host_of("https://example.com\\@evil.test/") is None
    True
    """
    # A backslash is a slash to browsers and an ordinary character to others; some drop control characters and spaces.
    if not isinstance(url, str) or re.search(r"[\\\s\x00-\x1f\x7f]", url):
        return None
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return None
    if parts.scheme.lower() not in ("http", "https") or not host:
        return None
    return _normal(host)


def _normal(host: str) -> str | None:
    if ":" in host:
        try:
            return ipaddress.IPv6Address(host).compressed
        except ValueError:
            return None
    host = host.lower().removesuffix(".")
    if not _NAME.fullmatch(host):
        return None  # also for non-ASCII letters: what they become is up to the resolver
    if re.fullmatch(r"[0-9]+|0x[0-9a-f]*", host.rpartition(".")[2]):
        # Some parsers read 127.1 and 0x7f.1 as 127.0.0.1.
        try:
            return ipaddress.IPv4Address(host).compressed
        except ValueError:
            return None
    return host


def check(text: str) -> str:
    """Normalizes a host pattern: `example.com`, `*.example.com`, or an address."""
    low = text.strip().lower()
    if "://" in low or "/" in low:
        found = host_of(low if "://" in low else f"http://{low}")
        hint = f"Write {found}." if found else "Write for example example.com."
        raise errors.BadValue("host", f"{text!r} is an address, not a host", hint=hint)
    bare = low.removeprefix("[").removesuffix("]")
    if ":" in bare:
        try:
            return ipaddress.IPv6Address(bare).compressed
        except ValueError:
            raise errors.BadValue(
                "host", f"{text!r} names a port", hint=f"Write {low.partition(':')[0]}; a host covers every port."
            ) from None
    low = low.removesuffix(".")
    if not _PATTERN.fullmatch(low):
        hint = "Write example.com, or *.example.com for the hosts below it."
        raise errors.BadValue("host", f"{text!r} is not a host", hint=hint)
    return low


def admits(pattern: str, host: str) -> bool:
    """Whether a pattern of an allow list covers the host.

    `example.com` covers only that host, `*.example.com` the hosts below it.
    """
    pattern = pattern.lower().removesuffix(".")
    return host.endswith(pattern[1:]) if pattern.startswith("*.") else host == pattern


def blocks(pattern: str, host: str) -> bool:
    """Whether a pattern of a block list covers the host: the named host and every host below it."""
    pattern = pattern.lower().removesuffix(".")
    return admits(pattern, host) or host.endswith("." + pattern)
