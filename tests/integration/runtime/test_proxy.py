"""The proxy of allowed hosts, between real sockets on loopback: names are resolved by a table of the test's own."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from leadrope import errors
from leadrope.net import http1
from leadrope.runtime.broker.proxy import HostProxy, RefusedHost
from leadrope.runtime.sandboxing import sandboxing

HERE = "127.0.0.1"


@asynccontextmanager
async def echo() -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server that says hello, notes what it hears and sends it back."""
    heard: list[bytes] = []
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            while data := await reader.read(65536):
                heard.append(data)
                writer.write(b"echo " + data)
            writer.close()
        except (ConnectionError, asyncio.CancelledError):
            writer.transport.abort()

    server = await asyncio.start_server(connected, HERE, 0)
    try:
        yield server.sockets[0].getsockname()[1], heard
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


@asynccontextmanager
async def dialling(proxy: HostProxy) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    if proxy.socket_path is not None:
        reader, writer = await asyncio.open_unix_connection(str(proxy.socket_path))
    else:
        reader, writer = await asyncio.open_connection(HERE, int(proxy.url.rpartition(":")[2]))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def told(reader: asyncio.StreamReader) -> tuple[int, str]:
    head = await http1.read_head(reader)
    assert head is not None
    answer = http1.parse_answer(head)
    body = b""
    if answer.status != 200:
        body = b"".join([piece async for piece in http1.pieces(reader, answer.body)])
    return answer.status, body.decode()


async def connect(proxy: HostProxy, target: str, *, user: str = "") -> tuple[int, str]:
    known = f"Proxy-Authorization: Basic {base64.b64encode(user.encode()).decode()}\r\n" if user else ""
    async with dialling(proxy) as (reader, writer):
        writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: x\r\n{known}\r\n".encode("latin-1"))
        return await told(reader)


class Names:
    """What names lead to; asked for each connection anew, as rebinding would have it."""

    def __init__(self, **names: Sequence[str]) -> None:
        self.names = {name.replace("_", "."): list(addresses) for name, addresses in names.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        if host not in self.names:
            raise OSError("no such name")
        return self.names[host]


@pytest.mark.parametrize("is_socket", [True, False])
async def test_a_tunnel_to_an_allowed_host(tmp_path: Path, is_socket: bool) -> None:
    refused: list[RefusedHost] = []
    async with echo() as (port, heard):
        proxy = HostProxy(
            [f"ok.example:{port}", f"{HERE}:{port}"],
            listen=tmp_path / "hosts.sock" if is_socket else None,
            resolve=Names(ok_example=[HERE]),
            on_refused=refused.append,
        )
        async with proxy, dialling(proxy) as (reader, writer):
            if proxy.socket_path is not None:
                assert proxy.socket_path.stat().st_mode & 0o777 == 0o600
            writer.write(f"CONNECT OK.example.:{port} HTTP/1.1\r\n\r\n".encode())
            assert (await told(reader))[0] == 200
            for word in (b"one", b"two"):
                writer.write(word)
                assert await reader.readexactly(8) == b"echo " + word
            writer.write_eof()
            assert await reader.read() == b"", "the end of one direction is passed on"
    assert b"".join(heard) == b"onetwo"
    assert refused == []
    assert not (tmp_path / "hosts.sock").exists()


@pytest.mark.parametrize(
    "target",
    [
        "evil.example:443",
        "ok.example:22",
        "ok.example:8443",
        "xok.example:443",
        "ok.example.evil.example:443",
        "below.example:443",
        "notbelow.example:443",
        "93.184.216.34:443",
        "127.0.0.1:443",
        "localhost:443",
        "[::1]:443",
        "[::ffff:127.0.0.1]:443",
        "[64:ff9b::7f00:1]:443",
        "0:443",
        "2130706433:443",
        "0x7f.1:443",
        "a%00.below.example:443",
    ],
)
async def test_what_is_not_on_the_list_is_refused_and_told(target: str) -> None:
    refused: list[RefusedHost] = []
    names = Names()
    async with HostProxy(["ok.example", "*.below.example"], resolve=names, on_refused=refused.append) as proxy:
        status, text = await connect(proxy, target)
    assert status == 403
    assert "not an allowed" in text
    assert len(refused) == 1
    assert refused[0].reason in text
    assert names.asked == [], "a name that is not allowed is not even looked up"


async def test_what_lies_below_a_name() -> None:
    names = Names(a_below_example=[HERE], a_b_below_example=[HERE])
    async with echo() as (port, _), HostProxy([f"*.below.example:{port}", f"{HERE}:{port}"], resolve=names) as proxy:
        assert (await connect(proxy, f"a.below.example:{port}"))[0] == 200
        assert (await connect(proxy, f"a.b.BELOW.example:{port}"))[0] == 200
        assert (await connect(proxy, f"below.example:{port}"))[0] == 403


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "192.168.1.1",
        "172.16.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "fe80::1%eth0",
        "fd00::1",
        "::ffff:10.0.0.1",
        "2002:7f00:1::",
        "64:ff9b::a00:1",
        # Public to the standard library, and not to anybody who was asked for credentials there.
        "168.63.129.16",
        "192.0.0.192",
        "192.88.99.1",
        "fec0::1",
        "100.100.100.200",
    ],
)
async def test_an_allowed_name_does_not_open_a_private_network(address: str) -> None:
    refused: list[RefusedHost] = []
    names = Names(ok_example=[address])
    async with HostProxy(["ok.example"], resolve=names, on_refused=refused.append) as proxy:
        status, text = await connect(proxy, "ok.example:443")
    assert status == 403
    assert "private network" in text
    assert len(refused) == 1


@pytest.mark.parametrize("host", ["bad.example", "a.bad.example", "BAD.example.", "to-bad.example", "9.9.9.9"])
async def test_what_is_blocked_is_not_reached_though_it_is_allowed(host: str) -> None:
    """A name, what lies below it, an address, and a name that leads to that address."""
    refused: list[RefusedHost] = []
    names = Names(bad_example=["8.8.8.8"], **{"to-bad_example": ["9.9.9.9"]})
    allowed = ["*.example:*", "9.9.9.9:*", "!bad.example", "!9.9.9.9"]
    async with HostProxy(allowed, resolve=names, on_refused=refused.append) as proxy:
        assert (await connect(proxy, f"{host}:443"))[0] == 403
    assert len(refused) == 1


@pytest.mark.parametrize(
    ("lists", "blocked", "expected"),
    [
        ((), ("a.example",), ()),
        ((("example.com", "::1"),), (), ("example.com:*", "[::1]:*")),
        ((("*.example.com",), ("api.example.com", "other.com")), (), ("api.example.com:*",)),
        ((("*.example.com",), ("*.a.example.com", "example.com")), (), ("*.a.example.com:*",)),
        ((("a.com",), ("b.com",)), ("c.com",), ()),
        ((("*.a.com",),), ("x.a.com",), ("*.a.com:*", "!x.a.com")),
    ],
)
def test_the_proxy_reaches_what_the_gate_lets_be_fetched(
    lists: tuple[tuple[str, ...], ...], blocked: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    """`example.com` is that host alone, as in the policy; a narrower list of another layer narrows."""
    assert sandboxing.allowed_hosts(lists, blocked) == expected


async def test_a_name_that_changes_its_address_is_judged_each_time() -> None:
    names = Names(ok_example=["127.0.0.1"])
    async with echo() as (port, _):
        allowed = [f"ok.example:{port}", f"127.0.0.1:{port}"]
        async with HostProxy(allowed, resolve=names) as proxy:
            assert (await connect(proxy, f"ok.example:{port}"))[0] == 200
            names.names["ok.example"] = ["127.0.0.2"]
            assert (await connect(proxy, f"ok.example:{port}"))[0] == 403
            names.names["ok.example"] = ["10.0.0.1", "127.0.0.1"]
            assert (await connect(proxy, f"ok.example:{port}"))[0] == 200, "the address that may be used is used"


async def test_an_address_is_allowed_with_its_port_only() -> None:
    async with echo() as (port, _), HostProxy([f"127.0.0.1:{port}"]) as proxy:
        assert (await connect(proxy, f"127.0.0.1:{port}"))[0] == 200
        assert (await connect(proxy, f"[::ffff:127.0.0.1]:{port}"))[0] == 200, "the same address in another spelling"
        assert (await connect(proxy, f"127.0.0.1:{port + 1}"))[0] == 403


async def test_plain_http_goes_to_the_host_of_its_address() -> None:
    """The Host header is ours, and a second request behind the first one reaches nobody."""
    async with echo() as (port, heard):
        allowed = [f"ok.example:{port}", f"{HERE}:{port}"]
        async with HostProxy(allowed, resolve=Names(ok_example=[HERE])) as proxy, dialling(proxy) as (reader, writer):
            writer.write(
                f"POST http://ok.example:{port}/a/b?c=d HTTP/1.1\r\nHost: inner.example\r\nX-Kept: yes\r\n"
                "Proxy-Authorization: Basic x\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello"
                "GET http://inner.example/ HTTP/1.1\r\n\r\n".encode()
            )
            first = await reader.readuntil(b"hello")
    request = b"".join(heard)
    assert first.startswith(b"echo POST /a/b?c=d HTTP/1.1")
    assert b"inner.example" not in request
    assert request.startswith(b"POST /a/b?c=d HTTP/1.1\r\nHost: ok.example:%d\r\n" % port)
    assert b"X-Kept: yes" in request
    assert b"Proxy-Authorization" not in request
    assert b"Connection: close" in request


@pytest.mark.parametrize(
    "target", ["http://evil.example/", "http://ok.example:22/", "http://127.0.0.1/", "http://[::1]/"]
)
async def test_plain_http_elsewhere_is_refused(target: str) -> None:
    async with HostProxy(["ok.example"], resolve=Names()) as proxy, dialling(proxy) as (reader, writer):
        writer.write(f"GET {target} HTTP/1.1\r\n\r\n".encode())
        assert (await told(reader))[0] == 403


@pytest.mark.parametrize(
    "head",
    [
        "GET / HTTP/1.1",
        "GET https://ok.example/ HTTP/1.1",
        "GET http://user@ok.example/ HTTP/1.1",
        "CONNECT ok.example HTTP/1.1",
        "CONNECT ok.example:0 HTTP/1.1",
        "CONNECT ok.example:99999 HTTP/1.1",
        "CONNECT ok.example:443@evil:443 HTTP/1.1",
        "CONNECT http://ok.example:443 HTTP/1.1",
        "CONNECT a\x00.ok.example:443 HTTP/1.1",
        "CONNECT a\xe9.ok.example:443 HTTP/1.1",
        "nonsense",
        "GET http://ok.example/ HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked",
    ],
)
async def test_what_is_no_request_to_a_proxy(head: str) -> None:
    async with HostProxy(["ok.example"], resolve=Names()) as proxy, dialling(proxy) as (reader, writer):
        writer.write(f"{head}\r\n\r\n".encode("latin-1"))
        assert (await told(reader))[0] == 400


async def test_an_allowed_host_that_is_not_there() -> None:
    refused: list[RefusedHost] = []
    async with echo() as (port, _):
        pass
    allowed = [f"ok.example:{port}", f"gone.example:{port}", f"{HERE}:{port}"]
    names = Names(ok_example=[HERE])
    async with HostProxy(allowed, resolve=names, on_refused=refused.append) as proxy:
        assert (await connect(proxy, f"ok.example:{port}"))[0] == 502
        status, text = await connect(proxy, f"gone.example:{port}")
        assert (status, "cannot be resolved" in text) == (502, True)
    assert refused == [], "it was allowed; it only did not work"


async def test_closing_ends_open_tunnels() -> None:
    before = asyncio.all_tasks()
    async with echo() as (port, _):
        async with HostProxy([f"127.0.0.1:{port}"]) as proxy:
            reader, writer = await asyncio.open_connection(HERE, int(proxy.url.rpartition(":")[2]))
            writer.write(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n".encode())
            assert (await told(reader))[0] == 200
        with suppress(ConnectionError):
            assert await reader.read() == b""
        writer.transport.abort()
    assert asyncio.all_tasks() == before


async def test_names_are_asked_of_the_system() -> None:
    """`localhost` leads to loopback, which is allowed by address here."""
    async with echo() as (port, _), HostProxy([f"localhost:{port}", f"127.0.0.1:{port}"]) as proxy:
        assert (await connect(proxy, f"localhost:{port}"))[0] == 200


@pytest.mark.parametrize(
    "text", ["", "*", "*.", "http://x", "a b", "x:99999", "x:0", "a..b", "*.*.x", "-", "x/y", "é.example"]
)
def test_an_entry_that_is_no_host(text: str) -> None:
    with pytest.raises(errors.BadValue, match=r"network\.allowed_hosts"):
        HostProxy([text])


class Person:
    """Answers the proxy's questions from a list, and notes them."""

    def __init__(self, *answers: bool) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, host: str, port: int) -> bool:
        self.asked.append((host, port))
        return self._answers.pop(0)


async def test_a_host_on_no_list_is_asked_about_before_its_name_is_looked_up() -> None:
    names, person = Names(a_example=[HERE]), Person(False, True)
    # The address of the test's server is named: a yes opens public addresses alone.
    async with echo() as (port, _), HostProxy([f"{HERE}:{port}"], resolve=names, ask=person) as proxy:
        assert (await connect(proxy, f"a.example:{port}"))[0] == 403
        assert names.asked == [], "a name that is looked up has left the machine"
        assert (await connect(proxy, f"a.example:{port}"))[0] == 200
    assert person.asked == [("a.example", port), ("a.example", port)]


async def test_a_yes_opens_no_name_that_leads_to_a_private_network() -> None:
    names, person = Names(a_example=["10.0.0.1"]), Person(True)
    async with HostProxy([], resolve=names, ask=person) as proxy:
        status, text = await connect(proxy, "a.example:443")
    assert (status, "private network" in text) == (403, True)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "[::1]", "localhost", "x.localhost", "169.254.169.254", "10.0.0.1", "metadata", "0x7f.1"]
)
async def test_nobody_is_asked_about_what_is_not_public(host: str) -> None:
    person = Person()
    async with HostProxy([], resolve=Names(), ask=person, token="t", may_fetch=lambda _: True) as proxy:
        assert (await connect(proxy, f"{host}:443"))[0] == 403
        assert (await connect(proxy, f"{host}:443", user="leadrope:t"))[0] == 403
    assert person.asked == []


async def test_a_blocked_host_is_not_asked_about() -> None:
    person = Person()
    async with HostProxy(["!a.example"], resolve=Names(), ask=person) as proxy:
        assert (await connect(proxy, "x.a.example:443"))[0] == 403
    assert person.asked == []


async def test_the_agent_itself_reaches_what_it_may_fetch_and_its_commands_do_not() -> None:
    names, person = Names(a_example=[HERE], b_example=[HERE]), Person(*[False] * 4)
    fetched = {"a.example"}
    async with echo() as (port, _):
        proxy = HostProxy([f"{HERE}:{port}"], resolve=names, ask=person, token="t", may_fetch=fetched.__contains__)
        async with proxy:
            assert (await connect(proxy, f"a.example:{port}", user="leadrope:t"))[0] == 200
            assert (await connect(proxy, f"b.example:{port}", user="leadrope:t"))[0] == 403
            for user in ("", "leadrope:", "leadrope:x", "other:t"):
                assert (await connect(proxy, f"a.example:{port}", user=user))[0] == 403
    assert len(person.asked) == 4, "the agent's own requests are not asked about"


async def test_a_name_that_is_rebound_after_it_was_judged_leads_nowhere_else(tmp_path: Path) -> None:
    """Public when the gate asks and private a moment later: the proxy judges the address that it connects to."""
    answers = [["8.8.8.8"], ["169.254.169.254"]]

    async def rebinding(host: str, port: int) -> Sequence[str]:
        return answers.pop(0)

    async with HostProxy([], resolve=rebinding, token="t", may_fetch=lambda _: True) as proxy:
        assert await proxy.judge("a.example", 443, is_agent=True) == ["8.8.8.8"]
        status, text = await connect(proxy, "a.example:443", user="leadrope:t")
    assert (status, "169.254.169.254" in text) == (403, True)


async def test_it_listens_below_a_path_that_is_too_long_for_an_address(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    async with HostProxy([], listen=folder / "proxy.sock") as proxy:
        assert proxy.socket_path is not None
        assert proxy.socket_path.is_socket()
        assert proxy.socket_path.stat().st_mode & 0o777 == 0o600
    assert list(folder.iterdir()) == []


async def test_a_far_end_that_hangs_up_at_once_is_no_error_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    server = await asyncio.start_server(hang_up, HERE, 0)
    port = server.sockets[0].getsockname()[1]
    async with server, HostProxy([f"{HERE}:{port}"]) as proxy:
        for _ in range(20):
            async with dialling(proxy) as (reader, writer):
                writer.write(f"CONNECT {HERE}:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                writer.write_eof()
                with suppress(ConnectionError):
                    await reader.read()
    assert caplog.records == []
