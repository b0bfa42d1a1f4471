"""Every spelling that could lead a request into the own network, beside what is said to it."""

from __future__ import annotations

import ipaddress

import pytest

import address_table as table
from leadrope.net.addresses import judge
from leadrope.net.urls import BadUrl, Blocked, follow, read_url
from leadrope.workflows.tools.addresses import Allowed, judge_addresses, judge_name, read_allowed

NOBODY = Allowed()
PUBLIC = "93.184.216.34"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (PUBLIC, "public"),
        ("1.1.1.1", "public"),
        ("2606:4700:4700::1111", "public"),
        ("::ffff:93.184.216.34", "public"),
        ("64:ff9b::93.184.216.34", "public"),
        ("127.0.0.1", "private"),
        ("127.255.255.254", "private"),
        ("10.1.2.3", "private"),
        ("172.16.0.1", "private"),
        ("172.31.255.255", "private"),
        ("172.32.0.1", "public"),
        ("192.168.1.1", "private"),
        ("100.64.0.1", "private"),
        ("100.127.255.255", "private"),
        ("169.254.1.1", "private"),
        ("192.0.0.8", "private"),
        ("192.0.2.1", "private"),
        ("198.18.0.1", "private"),
        ("198.51.100.7", "private"),
        ("203.0.113.7", "private"),
        ("::1", "private"),
        ("fc00::1", "private"),
        ("fd12:3456::1", "private"),
        ("fe80::1", "private"),
        ("fec0::1", "private"),
        ("2001:db8::1", "private"),
        ("3fff::1", "private"),
        ("64:ff9b:1::7", "private"),
        ("::ffff:127.0.0.1", "private"),
        ("::ffff:10.0.0.1", "private"),
        ("64:ff9b::127.0.0.1", "private"),
        ("64:ff9b::10.0.0.1", "private"),
        ("2606:4700::5efe:127.0.0.1", "private"),
        ("2606:4700::200:5efe:10.0.0.1", "private"),
        ("169.254.169.254", "metadata"),
        ("169.254.170.2", "metadata"),
        ("100.100.100.200", "metadata"),
        ("168.63.129.16", "metadata"),
        ("fd00:ec2::254", "metadata"),
        ("::ffff:169.254.169.254", "metadata"),
        ("64:ff9b::169.254.169.254", "metadata"),
        ("0.0.0.0", "never"),
        ("0.1.2.3", "never"),
        ("::", "never"),
        ("::7f00:1", "never"),
        ("::93.184.216.34", "never"),
        ("224.0.0.1", "never"),
        ("239.255.255.250", "never"),
        ("240.0.0.1", "never"),
        ("255.255.255.255", "never"),
        ("ff02::1", "never"),
        ("2001::1", "never"),
        ("2002:7f00:1::", "never"),
        ("2002:a00:1::1", "never"),
        ("192.88.99.1", "never"),
        ("4000::1", "never"),
        ("100::1", "never"),
    ],
)
def test_each_kind_of_address(text: str, kind: str) -> None:
    assert judge(ipaddress.ip_address(text)).kind == kind


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://127.0.0.1./",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.1/",
        "http://017700000001/",
        "http://0177.0.0.1/",
        "http://127.1/",
        "http://127.0.1/",
        "http://0/",
        "http://0.0.0.0/",
        "http://00000000177.0.0.1/",
        "http://1.2.3.4.5/",
        "http://999.1.1.1/",
        "http://[::1]/",
        "http://[::]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[0:0:0:0:0:ffff:a9fe:a9fe]/",
        "http://[::127.0.0.1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[2002:7f00:1::]/",
        "http://[fe80::1%25eth0]/",
        "http://[fd00:ec2::254]/latest/meta-data",
        "http://169.254.169.254/latest/meta-data",
        "http://localhost/",
        "http://LOCALHOST./",
        "http://a.localhost:8080/",
        "http://localhost.localdomain/",
        "http://metadata.google.internal/",
        "http://metadata/",
        "http://instance-data/",
        "http://printer.local/",
        "http://db.internal./",
        "http://router.home.arpa/",
        "http://ip6-loopback/",
    ],
)
def test_what_leads_home_is_blocked_before_anybody_resolves_it(url: str) -> None:
    with pytest.raises(Blocked):
        judge_name(read_url(url), NOBODY)


@pytest.mark.parametrize("host", [*table.PRIVATE, *table.ODD, *table.LOCAL_NAMES])
def test_what_is_not_public_is_not_reached(host: str) -> None:
    """The same table as for the proxy and the gate."""
    with pytest.raises((Blocked, BadUrl)):
        judge_name(read_url(f"http://{f'[{host}]' if ':' in host and not host.startswith('[') else host}/"), NOBODY)


@pytest.mark.parametrize("address", [*table.PRIVATE, *table.PUBLIC])
def test_a_name_is_judged_by_its_addresses(address: str) -> None:
    if address in table.PUBLIC:
        assert judge_addresses(NAME, [address], NOBODY)
        return
    with pytest.raises(Blocked):
        judge_addresses(NAME, [PUBLIC, address], NOBODY)


@pytest.mark.parametrize("host", [*table.PUBLIC, *table.PUBLIC_NAMES])
def test_what_is_public_may_be_asked_for(host: str) -> None:
    judge_name(read_url(f"http://{f'[{host}]' if ':' in host else host}/"), NOBODY)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "   ",
        "example.com",
        "/path",
        "ftp://example.com/",
        "file:///etc/passwd",
        "gopher://example.com/",
        "javascript:alert(1)",
        "http://",
        "http:///path",
        "http://user@example.com/",
        "http://user:secret-word@example.com/",
        "http://example.com:secret-word@127.0.0.1/",
        "http://@example.com/",
        "http://example.com\\@127.0.0.1/",
        "http://exa mple.com/",
        "http://example.com/a b",
        "http://example.com/\r\nX: y",
        "http://example.com\t/",
        "http://example.com:0/",
        "http://example.com:99999/",
        "http://example.com:port/",
        "http://[::1/",
        "http://[nothing]/",
        "http://ⓛocalhost/",
        "http://127。0。0。1/",
        "http://%6cocalhost/",
        "http://-bad.example/",
        "http://a..b/",
        "http://exa$mple.com/",
    ],
)
def test_a_url_with_no_reading_or_two_is_refused_and_its_password_is_not_shown(url: str) -> None:
    with pytest.raises(BadUrl) as caught:
        read_url(url)
    assert caught.value.hint
    assert "secret-word" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "host", "port", "path", "authority"),
    [
        ("https://example.com", "example.com", 443, "/", "example.com"),
        ("HTTP://Example.COM.:80/A?b=c#d", "example.com", 80, "/A?b=c", "example.com"),
        ("http://example.com:8080?x=1", "example.com", 8080, "/?x=1", "example.com:8080"),
        ("https://example.com/ü?q=ß%20", "example.com", 443, "/%C3%BC?q=%C3%9F%20", "example.com"),
        ("http://[2606:4700::1]:8/x", "2606:4700::1", 8, "/x", "[2606:4700::1]:8"),
        ("http://[::ffff:93.184.216.34]/", PUBLIC, 80, "/", PUBLIC),
        ("http://xn--bcher-kva.example/", "xn--bcher-kva.example", 80, "/", "xn--bcher-kva.example"),
    ],
)
def test_what_a_url_is_read_as(url: str, host: str, port: int, path: str, authority: str) -> None:
    target = read_url(url)
    assert (target.host, target.port, target.path, target.authority) == (host, port, path, authority)
    assert read_url(target.url) == target


def test_a_query_is_not_shown() -> None:
    assert read_url("https://example.com/a?key=secret-word").shown == "https://example.com/a"


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("/b?c", "https://example.com/b?c"),
        ("b", "https://example.com/dir/b"),
        ("//other.example/x", "https://other.example/x"),
        ("http://other.example", "http://other.example/"),
        ("?y=2", "https://example.com/dir/a?y=2"),
        ("/caf\xc3\xa9", "https://example.com/caf%C3%A9"),
    ],
)
def test_where_a_redirect_leads(location: str, url: str) -> None:
    assert follow(read_url("https://example.com/dir/a?x=1"), location).url == url


@pytest.mark.parametrize("location", ["file:///etc/passwd", "http://a@b/", "http://2130706433/"])
def test_a_redirect_that_cannot_be_followed(location: str) -> None:
    with pytest.raises((BadUrl, Blocked)):
        follow(read_url("https://example.com/"), location)


NAME = read_url("http://service.example/")


@pytest.mark.parametrize(
    ("found", "allowed", "is_good"),
    [
        ([PUBLIC], NOBODY, True),
        ([PUBLIC, "2606:4700::1"], NOBODY, True),
        (["127.0.0.1"], NOBODY, False),
        ([PUBLIC, "127.0.0.1"], NOBODY, False),
        (["127.0.0.1", PUBLIC], NOBODY, False),
        (["fe80::1%eth0"], NOBODY, False),
        ([], NOBODY, False),
        (["not an address"], NOBODY, False),
        (["127.0.0.1"], read_allowed(True), True),
        (["127.0.0.1"], read_allowed(False), False),
        (["127.0.0.1"], read_allowed("true"), True),
        (["127.0.0.1"], read_allowed("false"), False),
        (["127.0.0.1"], read_allowed(["127.0.0.1"]), True),
        (["127.0.0.1"], read_allowed("127.0.0.0/8"), True),
        (["127.0.0.2"], read_allowed(["127.0.0.1"]), False),
        (["::ffff:127.0.0.1"], read_allowed(["127.0.0.1"]), True),
        (["::1"], read_allowed(["[::1]"]), True),
        (["10.2.3.4"], read_allowed(["10.0.0.0/8", "192.168.0.0/16"]), True),
        (["10.2.3.4"], read_allowed(["service.example"]), True),
        (["10.2.3.4"], read_allowed(["*.example"]), True),
        (["10.2.3.4"], read_allowed(["other.example"]), False),
        # What hands out credentials must be named as what it is; a name or a network is not enough.
        (["169.254.169.254"], read_allowed(True), False),
        (["169.254.169.254"], read_allowed(["service.example"]), False),
        (["169.254.169.254"], read_allowed(["169.254.0.0/16"]), False),
        (["169.254.169.254"], read_allowed(["169.254.169.254"]), True),
        (["0.0.0.0"], read_allowed(True), False),
        (["224.0.0.1"], read_allowed(True), False),
    ],
)
def test_all_addresses_of_a_name_are_judged(found: list[str], allowed: Allowed, is_good: bool) -> None:
    if is_good:
        assert len(judge_addresses(NAME, found, allowed)) == len(found)
    else:
        with pytest.raises(Blocked):
            judge_addresses(NAME, found, allowed)


@pytest.mark.parametrize(
    ("url", "allowed", "is_good"),
    [
        ("http://localhost/", read_allowed(["localhost"]), True),
        ("http://localhost/", read_allowed(["127.0.0.1"]), False),
        ("http://localhost/", read_allowed(True), True),
        ("http://db.internal/", read_allowed(["*.internal"]), True),
        ("http://metadata.google.internal/", read_allowed(True), False),
        ("http://127.0.0.1/", read_allowed(["127.0.0.1"]), True),
        ("http://127.0.0.1/", read_allowed(["localhost"]), False),
        ("http://169.254.169.254/", read_allowed(True), False),
    ],
)
def test_what_may_be_named(url: str, allowed: Allowed, is_good: bool) -> None:
    if is_good:
        judge_name(read_url(url), allowed)
    else:
        with pytest.raises(Blocked):
            judge_name(read_url(url), allowed)


@pytest.mark.parametrize("word", ["300.1.1.1", "10.0.0.0/99", "http://example.com/", "a b*c", "example.com:80"])
def test_an_allowance_that_cannot_be_meant(word: str) -> None:
    with pytest.raises(BadUrl, match="allow_private"):
        read_allowed([word])
