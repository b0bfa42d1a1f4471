"""Decides whether an address is public, for the host proxy, http steps and the gate.

    why_not_public("169.254.169.254")    # "a cloud metadata service, which hands out credentials"
    why_not_public("0x7f.1")             # "an unusual spelling of 127.0.0.1"
    why_not_public("example.com")        # None: not known to be private; resolve_public checks its addresses
    answer = await resolve_public("example.com", 443)
    if isinstance(answer, Resolved): ...  # connect only to answer.addresses

Everything but `resolve_public` is pure. An address that is not known to be public counts as not public. So does a host
that two programs could parse differently: `0177.0.0.1` is 127.0.0.1 to one and 177.0.0.1 to another.
"""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

import msgspec

from leadrope.regex import regex

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Takes a name and a port and returns addresses; raises OSError if there are none."""

Kind = Literal["public", "private", "metadata", "never"]
"""`private` may be allowed by name or range, `metadata` only by that exact address, `never` not at all."""
_Row = tuple[str, str, Kind]

RESOLVE_S = 15.0
"""How long `resolve_public` waits for a resolver."""

# Names of this machine, its neighbours or a cloud's own services, whatever a resolver returns for them. Subdomains of
# these names count too.
LOCAL_NAMES: tuple[str, ...] = (
    *("localhost", "localdomain", "local", "internal", "home.arpa", "broadcasthost"),
    *("ip6-localhost", "ip6-loopback", "ip6-localnet", "ip6-allnodes", "ip6-allrouters"),
    *("metadata", "instance-data", "metadata.tencentyun.com", "metadata.azure.com"),
)

# AWS (instance, container and pod credentials), Google, Azure's wire server, Oracle, Alibaba, Tencent, Scaleway.
# 168.63.129.16 lies in a public range.
_METADATA = (
    *("169.254.169.254", "169.254.170.2", "169.254.170.23", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254"),
    *("168.63.129.16", "192.0.0.192", "100.100.100.200", "169.254.0.23", "169.254.42.42", "fd00:42::42"),
)
_V4: tuple[_Row, ...] = (
    ("0.0.0.0/8", "this host itself", "never"),
    ("10.0.0.0/8", "a private network", "private"),
    ("100.64.0.0/10", "a carrier's network (CGNAT)", "private"),
    ("127.0.0.0/8", "this machine (loopback)", "private"),
    ("169.254.0.0/16", "a link-local address", "private"),
    ("172.16.0.0/12", "a private network", "private"),
    ("192.0.0.0/24", "reserved", "private"),
    ("192.0.2.0/24", "reserved for documentation", "private"),
    ("192.88.99.0/24", "a relay's address (6to4)", "never"),
    ("192.168.0.0/16", "a private network", "private"),
    ("198.18.0.0/15", "reserved for measurements", "private"),
    ("198.51.100.0/24", "reserved for documentation", "private"),
    ("203.0.113.0/24", "reserved for documentation", "private"),
    ("224.0.0.0/4", "a multicast address", "never"),
    ("240.0.0.0/4", "reserved", "never"),
)
# Order matters: the first range that contains the address wins. Addresses in none of these ranges and outside 2000::/3
# are reserved.
_V6: tuple[_Row, ...] = (
    ("::/128", "this host itself", "never"),
    ("::1/128", "this machine (loopback)", "private"),
    ("::/96", "an old spelling of an IPv4 address", "never"),
    ("64:ff9b:1::/48", "a translator's network", "private"),
    ("2001::/32", "a tunnel (Teredo)", "never"),
    ("2001::/23", "reserved", "never"),
    ("2001:db8::/32", "reserved for documentation", "private"),
    ("2002::/16", "a tunnel (6to4)", "never"),
    ("3fff::/20", "reserved for documentation", "private"),
    ("fc00::/7", "a private network", "private"),
    ("fe80::/10", "a link-local address", "private"),
    ("fec0::/10", "a private network", "private"),
    ("ff00::/8", "a multicast address", "never"),
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_GLOBAL = ipaddress.IPv6Network("2000::/3")
_ISATAP = 0x5EFE

_NAME = regex(r"(?=.{1,253}\Z)(?!-)[a-z0-9_-]{1,63}(?<!-)(?:\.(?!-)[a-z0-9_-]{1,63}(?<!-))*")
_NUMBER = regex(r"[0-9]+|0x[0-9a-f]*")


class Verdict(msgspec.Struct, frozen=True):
    kind: Kind
    what: str = ""
    """What the address is, if it is not public; completes "X is …"."""


class Host(msgspec.Struct, frozen=True):
    """A host that can be parsed in only one way."""

    name: str
    """In lower case without a trailing dot, or an address in its shortest form."""
    address: Address | None = None


class BadHost(ValueError):
    """The host cannot be parsed, or can be parsed in more than one way; the message completes "X is …"."""

    def __init__(self, message: str, *, leads_home: bool = False) -> None:
        super().__init__(message)
        self.leads_home = leads_home
        """The host is (nearly) an address, so some programs would connect to something."""


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """A public host. Connect only to `addresses`: resolving the name again may return others."""

    host: str
    addresses: tuple[str, ...]


class NotPublic(msgspec.Struct, frozen=True, kw_only=True):
    """A host that must not be reached, with the reason as a sentence without its full stop."""

    host: str
    reason: str
    is_unresolved: bool = False
    """The name does not resolve at the moment; nothing else is wrong with it."""


def why_not_public(host: str) -> str | None:
    """Return why this host is not public, or None if it is public or only resolving its name can tell.

    The reason completes "HOST is …". `host` is the part of a URL between `//` and the port: an address in any spelling,
    with or without brackets, or a name.

    >>> why_not_public("[::ffff:10.0.0.1]")
    'a private network'
    >>> why_not_public("metadata.google.internal")
    'a name of this machine, its network or its cloud'
    >>> why_not_public("example.com") is None
    True
    """
    try:
        found = read_host(host)
    except BadHost as error:
        return str(error)
    if found.address is not None:
        return judge(found.address).what or None
    return "a name of this machine, its network or its cloud" if is_local_name(found.name) else None


async def resolve_public(
    host: str, port: int, *, resolver: Resolver | None = None, timeout_s: float = RESOLVE_S
) -> Resolved | NotPublic:
    """Resolve a host once and check all its addresses; one that is not public rejects the host.

    `resolver` defaults to the system's. A host that is already an address is checked without resolving it.
    """
    import asyncio  # noqa: PLC0415  # those who only judge spellings run no loop

    from leadrope.net.resolver import ask_system  # noqa: PLC0415

    if (why := why_not_public(host)) is not None:
        return NotPublic(host=host, reason=f"{host} is {why}")
    wanted = read_host(host)
    if wanted.address is not None:
        return Resolved(host=wanted.name, addresses=(str(wanted.address),))
    try:
        async with asyncio.timeout(timeout_s):
            found = await (resolver or ask_system)(wanted.name, port)
    except TimeoutError:
        reason = f"{wanted.name} could not be resolved within {timeout_s:g} s"
        return NotPublic(host=wanted.name, reason=reason, is_unresolved=True)
    except (OSError, UnicodeError) as error:
        told = getattr(error, "strerror", None) or error
        return NotPublic(host=wanted.name, reason=f"{wanted.name} cannot be resolved: {told}", is_unresolved=True)
    addresses: list[str] = []
    for text in found:
        address = read_address(text)
        what = "not an address that can be judged" if address is None else judge(address).what
        if address is None or what:
            return NotPublic(host=wanted.name, reason=f"{wanted.name} leads to {text}, which is {what}")
        addresses.append(str(address))
    if not addresses:
        return NotPublic(host=wanted.name, reason=f"{wanted.name} has no address", is_unresolved=True)
    return Resolved(host=wanted.name, addresses=tuple(dict.fromkeys(addresses)))


def judge(address: Address) -> Verdict:
    """Classify an address: public, private, a cloud metadata service, or never reachable."""
    inner = embedded(address)
    if inner in _metadata():
        return Verdict("metadata", "a cloud metadata service, which hands out credentials")
    for network, verdict in _ranges():
        if network.version == inner.version and inner in network:
            return verdict
    if isinstance(inner, ipaddress.IPv6Address) and inner not in _GLOBAL and inner not in _NAT64:
        return Verdict("never", "reserved")
    return Verdict("public")


def embedded(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address translates to, if it leads nowhere else."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        low = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if address in _NAT64:
            return low
        # ISATAP: the last 64 bits are 0:5efe:a.b.c.d, below any prefix.
        if (int(address) >> 32) & 0xFCFFFFFF == _ISATAP and judge(low).kind != "public":
            return low
    return address


def is_local_name(name: str) -> bool:
    """Return whether a name in lower case belongs to this machine, its network or a cloud's own service."""
    return any(name == local or name.endswith(f".{local}") for local in LOCAL_NAMES)


def read_host(host: str) -> Host:
    """Parse a host as it appears in a URL; raises BadHost if it can be parsed in no way, or in more than one."""
    text = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if ":" in text:
        try:
            six = ipaddress.IPv6Address(text)
        except ValueError:
            raise BadHost("not an IPv6 address") from None
        if six.scope_id is not None:
            raise BadHost("an address on one of this machine's network cards", leads_home=True)
        plain = six.ipv4_mapped or six
        return Host(plain.compressed, plain)
    if text != host:
        raise BadHost("not an IPv6 address")
    name = text.lower().removesuffix(".")
    if not name.isascii():
        raise BadHost("not plain ASCII")  # each resolver treats other letters differently
    if _NUMBER.fullmatch(name.rpartition(".")[2]):
        try:
            four = ipaddress.IPv4Address(name)
        except ValueError:
            raise BadHost(_odd(name), leads_home=True) from None
        return Host(four.compressed, four)
    if not _NAME.fullmatch(name):
        raise BadHost("not a host name")
    return Host(name)


def read_address(text: str) -> Address | None:
    """Parse an address as a resolver returns it; None for anything else, including one with a zone (`fe80::1%eth0`)."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        return None if address.scope_id is not None else address.ipv4_mapped or address
    return address


def _odd(name: str) -> str:
    """Detect unusual spellings: 127.1, 0x7f.1 and 2130706433 all connect to 127.0.0.1."""
    import socket  # noqa: PLC0415  # only for a host that is refused anyway

    try:
        return f"an unusual spelling of {ipaddress.IPv4Address(socket.inet_aton(name))}"
    except OSError:
        return "not an address"


@functools.cache
def _metadata() -> frozenset[Address]:
    return frozenset(map(ipaddress.ip_address, _METADATA))


@functools.cache
def _ranges() -> tuple[tuple[Network, Verdict], ...]:
    return tuple((ipaddress.ip_network(text), Verdict(kind, what)) for text, what, kind in (*_V4, *_V6))
