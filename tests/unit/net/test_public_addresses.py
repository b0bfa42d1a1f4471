"""Every spelling that could lead into the own network, and names that lead there once they are resolved."""

from __future__ import annotations

import asyncio
import ipaddress
import subprocess
import sys
from collections.abc import Sequence

import pytest

import address_table as table
from leadrope.net.addresses import NotPublic, Resolved, Resolver, judge, read_address, resolve_public, why_not_public


def leads(*found: str) -> Resolver:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return found

    return resolve


async def never(host: str, port: int) -> Sequence[str]:
    raise AssertionError(f"{host} was resolved")


def test_the_table_is_large_enough_and_says_each_thing_once() -> None:
    rows = [*table.PUBLIC, *table.PRIVATE, *table.ODD, *table.LOCAL_NAMES, *table.PUBLIC_NAMES]
    assert len(rows) == len(set(rows)) >= 80


@pytest.mark.parametrize("host", [*table.PUBLIC, *table.PUBLIC_NAMES])
def test_what_is_public(host: str) -> None:
    assert why_not_public(host) is None


@pytest.mark.parametrize("host", [*table.PRIVATE, *table.ODD, *table.LOCAL_NAMES])
def test_what_is_not_public(host: str) -> None:
    why = why_not_public(host)
    assert why
    assert not why.endswith(".")


@pytest.mark.parametrize("host", [*table.PRIVATE, *table.ODD, *table.LOCAL_NAMES])
async def test_what_is_not_public_is_not_even_resolved(host: str) -> None:
    answer = await resolve_public(host, 443, resolver=never)
    assert isinstance(answer, NotPublic)
    assert not answer.is_unresolved
    assert answer.reason.startswith(f"{host} is ")


@pytest.mark.parametrize("address", [*table.PRIVATE, "fe80::1%eth0", "not an address"])
async def test_a_name_that_leads_there_is_refused(address: str) -> None:
    """Also where it stands between public addresses: connecting to those would tell whoever named it."""
    for found in ([address], ["93.184.216.34", address], [address, "1.1.1.1"]):
        answer = await resolve_public("a.example", 443, resolver=leads(*found))
        assert isinstance(answer, NotPublic), found
        assert address in answer.reason


@pytest.mark.parametrize("address", table.PUBLIC)
async def test_a_name_that_leads_to_a_public_address(address: str) -> None:
    plain = str(read_address(address))
    answer = await resolve_public("A.example.", 443, resolver=leads(address, address, "1.0.0.1"))
    assert answer == Resolved(host="a.example", addresses=(plain, "1.0.0.1"))
    assert await resolve_public(address, 443, resolver=never) == Resolved(host=plain, addresses=(plain,))


async def test_a_name_is_resolved_once() -> None:
    """Whoever connects uses the addresses that were judged, so a second answer can change nothing."""
    asked: list[tuple[str, int]] = []

    async def changing(host: str, port: int) -> Sequence[str]:
        asked.append((host, port))
        return ["93.184.216.34"] if len(asked) == 1 else ["127.0.0.1"]

    assert await resolve_public("a.example", 8443, resolver=changing) == Resolved(
        host="a.example", addresses=("93.184.216.34",)
    )
    assert asked == [("a.example", 8443)]


async def test_a_name_that_leads_nowhere() -> None:
    async def unknown(host: str, port: int) -> Sequence[str]:
        raise OSError(-2, "Name or service not known")

    async def silent(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    for resolver in (unknown, leads()):
        answer = await resolve_public("a.example", 443, resolver=resolver)
        assert isinstance(answer, NotPublic)
        assert answer.is_unresolved
    answer = await resolve_public("a.example", 443, resolver=silent, timeout_s=0.01)
    assert isinstance(answer, NotPublic)
    assert "within 0.01 s" in answer.reason


async def test_the_system_is_asked_where_no_resolver_is_given() -> None:
    answer = await resolve_public("does-not-exist.invalid", 443)
    assert isinstance(answer, NotPublic)
    assert answer.is_unresolved


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("1.1.1.1", "public"),
        ("127.0.0.1", "private"),
        ("10.1.2.3", "private"),
        ("fec0::1", "private"),
        ("64:ff9b::10.0.0.1", "private"),
        ("169.254.169.254", "metadata"),
        ("168.63.129.16", "metadata"),
        ("192.0.0.192", "metadata"),
        ("64:ff9b::169.254.169.254", "metadata"),
        ("0.0.0.0", "never"),
        ("192.88.99.1", "never"),
        ("2002:a00:1::1", "never"),
    ],
)
def test_what_naming_it_may_open(text: str, kind: str) -> None:
    assert judge(ipaddress.ip_address(text)).kind == kind


def test_nothing_that_python_calls_private_is_public_here() -> None:
    """Ours is the stricter list: whatever the standard library knows as not global is not public."""
    for network in ("0.0.0.0/0", "::/0"):
        whole = ipaddress.ip_network(network)
        step = whole.num_addresses // 4096
        for index in range(4096):
            address = whole[index * step + index % 251]
            if not address.is_global and address not in ipaddress.ip_network("64:ff9b::/96"):
                assert judge(address).kind != "public", address


def test_judging_a_spelling_imports_no_event_loop() -> None:
    code = (
        "import sys; from leadrope.net.addresses import why_not_public; assert why_not_public('10.0.0.1');"
        "assert 'asyncio' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
