"""Strict URL parsing: the host that is checked is the host that is connected to. Pure; resolves no name.

    target = read_url("https://example.com/data?x=1")
    follow(target, "/elsewhere")    # where a redirect leads

A program that parses a host differently from the system can be tricked into reaching the internal network, so ambiguous
URLs are rejected.
"""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import quote, urljoin, urlsplit

import msgspec

from leadrope.net import addresses as net
from leadrope.net.addresses import Address

_VISIBLE = "".join(chr(code) for code in range(0x21, 0x7F))


class BadUrl(Exception):
    """The URL cannot be used at all; `hint` says what to write instead."""

    def __init__(self, message: str, hint: str = "Write https://host/path.") -> None:
        super().__init__(message)
        self.hint = hint


class Blocked(Exception):
    """The URL leads to a host that this request may not reach; `hint` says whether that can be changed."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed URL: the host that is checked is the host that is connected to."""

    scheme: Literal["http", "https"]
    host: str
    """A name in lower case without a trailing dot, or an address in its shortest form."""
    port: int
    path: str
    """Includes the query, as in the request line."""
    address: Address | None = None
    """Set if the host is an address."""

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.scheme == "https" else 80) else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"

    @property
    def shown(self) -> str:
        """Return the URL for messages: without the query, which often contains a key."""
        return f"{self.scheme}://{self.authority}{self.path.partition('?')[0]}"

    @property
    def is_loopback(self) -> bool:
        """Return whether the host is this machine, judging by its name or address alone, without resolving it."""
        if self.address is not None:
            return self.address.is_loopback
        return self.host == "localhost" or self.host.endswith(".localhost")

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port


def read_url(url: str) -> Target:
    """Parse a URL that can be read in only one way; raises BadUrl, or Blocked for an unusual spelling of an address."""
    if not url.strip():
        raise BadUrl("the url is empty")
    if re.search(r"[\x00-\x20\x7f\\]", url):
        raise BadUrl("the url holds a space, a backslash or a control character", "Write a space as %20.")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise BadUrl("the url cannot be read: invalid host or port") from None
    scheme = parts.scheme.lower()
    if scheme not in ("http", "https"):
        raise BadUrl(f"the url has the scheme {scheme or 'of nothing'!r}; only http and https are requested")
    if "@" in parts.netloc:
        raise BadUrl("the url holds a user or a password", "Leave them out of it; a token goes into `auth`.")
    if not host or port == 0:
        raise BadUrl("the url names no host" if not host else "the url names port 0")
    found = _read_host(host)
    path = quote(parts.path or "/", safe=_VISIBLE) + (f"?{quote(parts.query, safe=_VISIBLE)}" if parts.query else "")
    return Target(
        scheme="https" if scheme == "https" else "http",
        host=found.name,
        port=port or (443 if scheme == "https" else 80),
        path=path if path.startswith("/") else f"/{path}",
        address=found.address,
    )


def follow(target: Target, location: str) -> Target:
    """Resolve a redirect's location. It was decoded as latin-1; a server that means UTF-8 sends UTF-8 bytes."""
    try:
        text = location.encode("latin-1").decode("utf-8")
    except UnicodeError:
        text = location
    return read_url(urljoin(target.url, text.strip()))


def _read_host(host: str) -> net.Host:
    try:
        return net.read_host(host)
    except net.BadHost as error:
        if error.leads_home:
            raise Blocked(f"{host} is {error}", "Write an address in the form 192.0.2.1.") from None
        raise BadUrl(
            f"the url's host {host!r} is {error}", "Write https://host/path; a name in its xn-- form."
        ) from None
