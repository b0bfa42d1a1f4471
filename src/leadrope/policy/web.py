"""Addresses that a web tool may not reach, whatever the rules say. Does not use the network: callers resolve names."""

from __future__ import annotations

from urllib.parse import urlsplit

from leadrope.net import addresses
from leadrope.policy import hosts
from leadrope.policy.call_analysis import Facts, Look

Lists = tuple[tuple[str, ...], ...]


def why_not(look: Look, facts: Facts, allowed: Lists) -> str | None:
    """Returns why this WebFetch or WebSearch is denied; None if its address is acceptable.

    `allowed` are the lists of `network.allowed_hosts`: a host that is on all of them may be private.
    """
    if look.call.name != "WebFetch":
        query = look.call.input.get("query")
        is_leak = isinstance(query, str) and facts.holds_secret is not None and facts.holds_secret(query)
        return "the search contains a secret of this run" if is_leak else None
    url = look.call.input.get("url")
    if not isinstance(url, str) or not url:
        return "the call has no address"
    host = look.host
    if host is None:
        return _unreadable(url)
    if _has_credentials(url):
        return "the address contains a user name or a password"
    if facts.holds_secret is not None and facts.holds_secret(url):
        return "the address contains a secret of this run"
    if facts.is_request or is_named(host, allowed):
        return None
    if why := addresses.why_not_public(host):
        return f"{host} is {why}; name it in network.allowed_hosts to reach it"
    return facts.not_public or None


def is_named(host: str, allowed: Lists) -> bool:
    """Whether some layer names this host, and no layer's list omits it."""
    return bool(allowed) and all(any(hosts.admits(entry, host) for entry in entries) for entries in allowed)


def _unreadable(url: str) -> str:
    scheme = url.partition(":")[0].strip().lower()
    if scheme.isalnum() and scheme not in ("http", "https") and "://" in url:
        return f"{scheme}: addresses are not fetched, only http and https"
    return "the address cannot be read without doubt; only plain http and https addresses are fetched"


def _has_credentials(url: str) -> bool:
    parts = urlsplit(url)
    return parts.username is not None or parts.password is not None
