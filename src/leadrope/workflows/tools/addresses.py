"""Which address a request may go to: urls read without doubt, names and addresses judged. Pure; resolves no name.

    target = read_url("https://example.com/data?x=1")
    judge_name(target, allowed)                          # before anybody is asked for the name
    judge_addresses(target, ["93.184.216.34"], allowed)  # all of them, before the first connection

Whoever reads a host differently from the system can be led into the own network, so that what has two readings is
refused, and so is every address that is not known to be public.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from typing import Literal
from urllib.parse import quote, urljoin, urlsplit

import msgspec

from leadrope import errors
from leadrope.net import addresses as net
from leadrope.net.addresses import Address, Network
from leadrope.policy import hosts
from leadrope.regex import regex

_VISIBLE = "".join(chr(code) for code in range(0x21, 0x7F))

_NEVER = "No setting opens it: use another address of the server."
_EXACTLY = "If it is meant, name this very address in allow_private."


class BadUrl(Exception):
    """The url cannot be used, whatever it leads to; `hint` says what to write."""

    def __init__(self, message: str, hint: str = "Write https://host/path.") -> None:
        super().__init__(message)
        self.hint = hint


class Blocked(Exception):
    """The url leads to a place that this request may not reach; `hint` says whether that can be changed."""

    def __init__(
        self, message: str, hint: str = "If it is meant, name the host, address or network in allow_private."
    ) -> None:
        super().__init__(message)
        self.hint = hint


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A url, read once: what is judged is what is connected to."""

    scheme: Literal["http", "https"]
    host: str
    """A name in lower case without a final dot, or an address in its shortest form."""
    port: int
    path: str
    """With the query; what stands in the request's first line."""
    address: Address | None = None
    """Of a host that is an address."""

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.scheme == "https" else 80) else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"

    @property
    def shown(self) -> str:
        """For messages: without the query, which often holds a key."""
        return f"{self.scheme}://{self.authority}{self.path.partition('?')[0]}"

    @property
    def is_loopback(self) -> bool:
        """By its name or address alone: no other machine needs to be asked for it."""
        if self.address is not None:
            return self.address.is_loopback
        return self.host == "localhost" or self.host.endswith(".localhost")

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port


class Allowed(msgspec.Struct, frozen=True, kw_only=True):
    """What may be reached although it is not public: `allow_private` of a step, read."""

    everything: bool = False
    networks: tuple[Network, ...] = ()
    names: tuple[str, ...] = ()

    def has_name(self, host: str) -> bool:
        return self.everything or any(hosts.admits(name, host) for name in self.names)

    def has(self, address: Address) -> bool:
        return self.everything or any(_holds(network, address) for network in self.networks)

    def names_exactly(self, address: Address) -> bool:
        return any(network.num_addresses == 1 and _holds(network, address) for network in self.networks)


def read_allowed(value: bool | str | Sequence[str]) -> Allowed:
    """true, or hosts (`intranet.example`, `*.corp.example`), addresses and networks (`10.0.0.0/8`)."""
    if isinstance(value, bool) or value in ("true", "false"):
        return Allowed(everything=value in (True, "true"))
    words = [value] if isinstance(value, str) else list(value)
    networks: list[Network] = []
    names: list[str] = []
    for word in (part for text in words for part in re.split(r"[,\s]+", text.strip()) if part):
        bare = word.removeprefix("[").removesuffix("]")
        try:
            network = ipaddress.ip_network(bare, strict=False)
        except ValueError:
            if re.fullmatch(r"[0-9.x:/]+", bare):
                raise BadUrl(
                    f"allow_private: {word!r} is neither an address nor a network", "Write 10.0.0.7 or 10.0.0.0/8."
                ) from None
            try:
                names.append(hosts.check(word))
            except errors.BadValue as error:
                raise BadUrl(f"allow_private: {error.message}", error.hint or "Write a host's name.") from None
        else:
            networks.append(network)
    return Allowed(networks=tuple(networks), names=tuple(names))


def read_url(url: str) -> Target:
    """The parts of a url that has exactly one reading; raises BadUrl, or Blocked for an odd spelling of an address."""
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


_ORIGIN = regex(r"(https?://[^/?#$]*[^/?#$:])(?::\$\{[^}]*\})?(?=[/?#]|$)", re.IGNORECASE)


def origin_of(url: str) -> str | None:
    """Of a url with templates: its scheme and host, where no template has a part in them."""
    found = _ORIGIN.match(url)
    return found[1] if found else None


def follow(target: Target, location: str) -> Target:
    """Where a redirect leads. The bytes came as latin-1; a server that means UTF-8 says so by sending it."""
    try:
        text = location.encode("latin-1").decode("utf-8")
    except UnicodeError:
        text = location
    return read_url(urljoin(target.url, text.strip()))


def judge_name(target: Target, allowed: Allowed) -> None:
    """Raises Blocked for a host that must not even be asked for."""
    if target.address is not None:
        judge_addresses(target, [str(target.address)], allowed)
        return
    if not net.is_local_name(target.host):
        return
    if not allowed.has_name(target.host) or (allowed.everything and _is_metadata_name(target.host)):
        raise Blocked(f"{target.host} is a name of the own machine or network")


def judge_addresses(target: Target, found: Iterable[str], allowed: Allowed) -> list[str]:
    """The addresses to connect to. One that may not be reached forbids them all: nobody knows who gave it."""
    good: list[str] = []
    for text in found:
        address = net.read_address(text)
        if address is None:
            raise Blocked(f"{target.host} leads to {text!r}, which is not an address that can be judged")
        verdict = net.judge(address)
        is_named = target.address is None and allowed.has_name(target.host)
        if verdict.kind == "never":
            raise Blocked(f"{_led(target, address)} is {verdict.what}", _NEVER)
        if verdict.kind == "metadata" and not allowed.names_exactly(net.embedded(address)):
            raise Blocked(f"{_led(target, address)} is {verdict.what}", _EXACTLY)
        if verdict.kind == "private" and not (is_named or allowed.has(net.embedded(address))):
            raise Blocked(f"{_led(target, address)} is {verdict.what}")
        good.append(str(address))
    if not good:
        raise Blocked(f"{target.host} leads to no address")
    return list(dict.fromkeys(good))


def _read_host(host: str) -> net.Host:
    try:
        return net.read_host(host)
    except net.BadHost as error:
        if error.leads_home:
            raise Blocked(f"{host} is {error}", "Write an address in the form 192.0.2.1.") from None
        raise BadUrl(
            f"the url's host {host!r} is {error}", "Write https://host/path; a name in its xn-- form."
        ) from None


def _holds(network: Network, address: Address) -> bool:
    return network.version == address.version and address in network


def _is_metadata_name(host: str) -> bool:
    return host.partition(".")[0] in ("metadata", "instance-data")


def _led(target: Target, address: Address) -> str:
    return target.host if target.address is not None else f"{target.host} leads to {address}, which"
