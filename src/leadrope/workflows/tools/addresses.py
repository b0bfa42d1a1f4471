"""Checks which hosts and addresses a request may go to. Pure; resolves no name.

    target = urls.read_url("https://example.com/data?x=1")
    judge_name(target, allowed)                          # before the name is resolved
    judge_addresses(target, ["93.184.216.34"], allowed)  # all of them, before the first connection

Every address that is not known to be public is rejected, unless the step's `allow_private` permits it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence

import msgspec

from leadrope import errors
from leadrope.net import addresses as net
from leadrope.net.addresses import Address, Network
from leadrope.net.urls import BadUrl, Blocked, Target
from leadrope.policy import hosts
from leadrope.regex import regex

_NEVER = "No setting allows it: use another address of the server."
_NAMED = "If it is meant, name the host, address or network in allow_private."
_EXACTLY = "If it is meant, name this very address in allow_private."


class Allowed(msgspec.Struct, frozen=True, kw_only=True):
    """The parsed `allow_private` of a step: non-public hosts that may be reached."""

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
    """Parse `allow_private`: true, or hosts (`intranet.example`, `*.corp.example`), addresses and networks
    (`10.0.0.0/8`).
    """
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


_ORIGIN = regex(r"(https?://[^/?#$]*[^/?#$:])(?::\$\{[^}]*\})?(?=[/?#]|$)", re.IGNORECASE)


def origin_of(url: str) -> str | None:
    """Return the scheme and host of a URL with templates, if no template is part of them."""
    found = _ORIGIN.match(url)
    return found[1] if found else None


def judge_name(target: Target, allowed: Allowed) -> None:
    """Raise Blocked for a host that must not even be resolved."""
    if target.address is not None:
        judge_addresses(target, [str(target.address)], allowed)
        return
    if not net.is_local_name(target.host):
        return
    if not allowed.has_name(target.host) or (allowed.everything and _is_metadata_name(target.host)):
        raise Blocked(f"{target.host} is a name of the own machine or network", _NAMED)


def judge_addresses(target: Target, found: Iterable[str], allowed: Allowed) -> list[str]:
    """Return the addresses to connect to. If one is not allowed, all are rejected: its origin is unknown."""
    good: list[str] = []
    for text in found:
        address = net.read_address(text)
        if address is None:
            raise Blocked(f"{target.host} leads to {text!r}, which is not an address that can be judged", _NAMED)
        verdict = net.judge(address)
        is_named = target.address is None and allowed.has_name(target.host)
        if verdict.kind == "never":
            raise Blocked(f"{_led(target, address)} is {verdict.what}", _NEVER)
        if verdict.kind == "metadata" and not allowed.names_exactly(net.embedded(address)):
            raise Blocked(f"{_led(target, address)} is {verdict.what}", _EXACTLY)
        if verdict.kind == "private" and not (is_named or allowed.has(net.embedded(address))):
            raise Blocked(f"{_led(target, address)} is {verdict.what}", _NAMED)
        good.append(str(address))
    if not good:
        raise Blocked(f"{target.host} leads to no address", _NAMED)
    return list(dict.fromkeys(good))


def _holds(network: Network, address: Address) -> bool:
    return network.version == address.version and address in network


def _is_metadata_name(host: str) -> bool:
    return host.partition(".")[0] in ("metadata", "instance-data")


def _led(target: Target, address: Address) -> str:
    return target.host if target.address is not None else f"{target.host} leads to {address}, which"
