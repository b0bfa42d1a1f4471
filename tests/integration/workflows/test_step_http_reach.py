"""Where the http step goes and where it never does: addresses, redirects, the gate, proxies, certificates."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from http_peer import LOOPBACK, TOKEN, Seen, always, answer, echo, failure, serving, step
from leadrope.workflows.steps.http import fetch
from step_place import Here

# -- addresses: the listener sees no connection ----------------------------------------------------------------------


async def leads(*found: str) -> Any:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return found

    return resolve


@pytest.mark.parametrize(
    ("host", "allow"),
    [
        ("127.0.0.1", []),
        ("2130706433", LOOPBACK),
        ("0x7f.1", LOOPBACK),
        ("017700000001", LOOPBACK),
        ("0.0.0.0", ["0.0.0.0/0"]),
        ("[::ffff:127.0.0.1]", []),
        ("[::1]", []),
        ("localhost", []),
        ("LOCALHOST.", LOOPBACK),
        ("x.localhost", LOOPBACK),
        ("metadata.google.internal", True),
        ("169.254.169.254", True),
        ("[fd00:ec2::254]", True),
    ],
)
async def test_the_own_network_is_not_reached(tmp_path: Path, host: str, allow: Any) -> None:
    async def never(name: str, port: int) -> Sequence[str]:
        raise AssertionError(f"{name} was resolved")

    async with serving(echo) as server:
        here = Here(tmp_path)
        wrong = await failure(step(url=server.url(host=host), allow_private=allow), here, resolve=never)
    assert wrong.kind == "blocked_address"
    assert wrong.hint
    assert not wrong.can_heal
    assert (server.connections, here.asked) == (0, [])


@pytest.mark.parametrize(
    "found", [["127.0.0.1"], ["93.184.216.34", "127.0.0.1"], ["::ffff:127.0.0.1"], ["169.254.169.254"], []]
)
async def test_a_name_that_leads_there_is_not_reached(tmp_path: Path, found: list[str]) -> None:
    """One address among public ones is enough: connecting to the others would send a packet to whoever named it."""
    async with serving(echo) as server:
        wrong = await failure(
            step(url=server.url(host="service.example"), allow_private=[]), Here(tmp_path), resolve=await leads(*found)
        )
    assert wrong.kind == "blocked_address"
    assert server.connections == 0


async def test_a_name_that_changes_its_mind_is_asked_once(tmp_path: Path) -> None:
    """Rebinding: the connection goes to the address that was judged, and nobody resolves a second time."""
    answers = [["127.0.0.1"], ["127.0.0.2"]]
    asked: list[str] = []

    async def resolve(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return answers[len(asked) - 1]

    async with serving(echo) as server:
        done = await fetch(step(url=server.url(host="service.example")), Here(tmp_path), resolve=resolve)
        assert done.outputs["json"]["headers"]["host"] == f"service.example:{server.port}"
        assert asked == ["service.example"]
        # The next request asks anew, and the new address is not the one that is allowed.
        wrong = await failure(step(url=server.url(host="service.example")), Here(tmp_path), resolve=resolve)
    assert wrong.kind == "blocked_address"
    assert server.connections == 1


async def test_localhost_may_be_named(tmp_path: Path) -> None:
    async with serving(echo) as server:
        config = step(url=server.url(host="localhost"), allow_private=["localhost"])
        done = await fetch(config, Here(tmp_path), resolve=await leads("127.0.0.1"))
    assert done.outputs["status"] == 200


async def test_a_name_that_nobody_knows(tmp_path: Path) -> None:
    async def resolve(host: str, port: int) -> Sequence[str]:
        raise OSError(-2, "Name or service not known")

    wrong = await failure(step(url="http://nowhere.example/"), Here(tmp_path), resolve=resolve)
    assert (wrong.kind, wrong.can_heal) == ("connection_failed", True)
    assert "nowhere.example" in wrong.message


# -- redirects ---------------------------------------------------------------------------------------------------------


def to(location: str, status: int = 302) -> bytes:
    return answer(b"", status, Location=location)


@pytest.mark.parametrize(
    ("status", "method", "then", "keeps_body"),
    [
        (301, "POST", "GET", False),
        (302, "POST", "GET", False),
        (303, "PUT", "GET", False),
        (303, "HEAD", "HEAD", False),
        (302, "PUT", "PUT", True),
        (307, "POST", "POST", True),
        (308, "PATCH", "PATCH", True),
    ],
)
async def test_the_method_after_a_redirect(
    tmp_path: Path, status: int, method: str, then: str, keeps_body: bool
) -> None:
    async def handler(seen: Seen, writer: asyncio.StreamWriter) -> bytes:
        return to("/there?x=1", status) if seen.path == "/" else await echo(seen, writer)

    here = Here(tmp_path)
    async with serving(handler) as server:
        body = None if method == "HEAD" else {"a": 1}
        done = await fetch(step(url=server.url(), method=method, body=body, auth=TOKEN), here)
    first, second = server.seen
    assert (first.method, second.method, second.path) == (method, then, "/there?x=1")
    assert second.body == (b'{"a":1}' if keeps_body else b"")
    assert ("content-type" in second.headers) == keeps_body
    assert second.headers["authorization"] == f"Bearer {TOKEN}", "the origin is the same"
    assert done.outputs["url"] == server.url("/there?x=1")
    assert [call.input["url"] for call in here.asked] == [server.url(), server.url("/there?x=1")]


async def test_secrets_do_not_go_to_another_origin(tmp_path: Path) -> None:
    async with serving(echo) as other, serving(always(to(other.url("/x"), 307))) as server:
        headers = {"Cookie": "a=b", "X-Api-Key": "key-of-the-request", "X-Own": "1"}
        await fetch(step(url=server.url(), auth=TOKEN, headers=headers), Here(tmp_path))
    assert {"authorization", "cookie", "x-api-key"} <= set(server.seen[0].headers)
    assert not {"authorization", "cookie", "x-api-key"} & set(other.seen[0].headers)
    assert other.seen[0].headers["x-own"] == "1"


@pytest.mark.parametrize(
    ("location", "kind"),
    [
        ("http://127.0.0.2:PORT/", "blocked_address"),
        ("http://localhost:PORT/", "blocked_address"),
        ("http://169.254.169.254/latest", "blocked_address"),
        ("http://2130706434:PORT/", "blocked_address"),
        ("//[::1]:PORT/", "blocked_address"),
        ("file:///etc/passwd", "http_error"),
        ("http://a:b@127.0.0.1:PORT/", "http_error"),
    ],
)
async def test_a_redirect_is_judged_like_the_url_itself(tmp_path: Path, location: str, kind: str) -> None:
    async with serving(echo) as target:

        async def handler(_: Seen, __: asyncio.StreamWriter) -> bytes:
            return to(location.replace("PORT", str(target.port)))

        async with serving(handler) as server:
            wrong = await failure(step(url=server.url()), Here(tmp_path))
    assert wrong.kind == kind
    assert (server.connections, target.connections) == (1, 0)


async def test_a_redirect_by_name_to_the_own_machine(tmp_path: Path) -> None:
    """A public-looking host whose name leads to loopback only when it is resolved."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        return {"first.example": ["127.0.0.1"], "second.example": ["127.0.0.2"]}[host]

    async with serving(always(to("http://second.example/"))) as server:
        wrong = await failure(step(url=server.url(host="first.example")), Here(tmp_path), resolve=resolve)
    assert wrong.kind == "blocked_address"
    assert "second.example" in wrong.message


async def test_a_policy_sees_each_redirect(tmp_path: Path) -> None:
    here = Here(tmp_path, {"network": {"blocked_hosts": ["second.example"]}})
    async with serving(always(to("http://second.example/"))) as server:
        wrong = await failure(step(url=server.url(host="first.example")), here, resolve=await leads("127.0.0.1"))
    assert wrong.kind == "denied"
    assert server.connections == 1


async def test_redirects_have_an_end_and_can_be_left(tmp_path: Path) -> None:
    async with serving(always(to("/again"))) as server:
        wrong = await failure(step(url=server.url()), Here(tmp_path))
        assert wrong.kind == "http_error"
        assert server.connections == 6
        done = await fetch(step(url=server.url(), follow_redirects=False), Here(tmp_path))
    assert done.outputs["status"] == 302
    assert done.outputs["headers"]["location"] == "/again"


# -- the gate ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "policy",
    [
        {"network": {"allowed_hosts": ["example.com"]}},
        {"network": {"blocked_hosts": ["127.0.0.1"]}},
        {"disallowed_tools": ["WebFetch"]},
        {"permission_mode": "plan"},
        {"require_approval": ["WebFetch"]},
    ],
)
async def test_what_the_policy_forbids_is_not_connected_to(tmp_path: Path, policy: dict[str, Any]) -> None:
    async with serving(echo) as server:
        wrong = await failure(step(url=server.url()), Here(tmp_path, policy))
    assert wrong.kind == "denied"
    assert server.connections == 0


async def test_a_person_may_change_the_request_but_not_past_the_rules(tmp_path: Path) -> None:
    here = Here(tmp_path)
    async with serving(echo) as server:
        here.edit = {"url": server.url("/other"), "body": "less"}
        done = await fetch(step(url=server.url("/first"), method="POST", body="more"), here)
        assert (done.outputs["json"]["path"], done.outputs["json"]["body"]) == ("/other", "less")
        here.edit = {"url": server.url(host="127.0.0.2")}
        assert (await failure(step(url=server.url()), here)).kind == "blocked_address"


async def test_the_environments_proxy_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(echo) as nosy, serving(echo) as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, nosy.url())
        await fetch(step(url=server.url()), Here(tmp_path))
    assert (nosy.connections, server.connections) == (0, 1)


# -- TLS ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, ssl.SSLContext]:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is missing, and makes the certificate of this test")
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(key), "-out", str(cert), "-days", "2", "-subj", "/CN=secure.example"]
    subprocess.run([*command, "-addext", "subjectAltName=DNS:secure.example"], check=True, capture_output=True)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(cert, key)
    return cert, server


async def test_tls_is_for_the_name_that_was_asked_for(tmp_path: Path, certificate: tuple[Path, ssl.SSLContext]) -> None:
    """The connection goes to an address, and the certificate must be that of the name."""
    cert, context = certificate
    trusting = ssl.create_default_context(cafile=str(cert))
    resolve = await leads("127.0.0.1")
    async with serving(echo, tls=context) as server:
        url = server.url(host="secure.example", scheme="https")
        done = await fetch(step(url=url), Here(tmp_path), resolve=resolve, tls=trusting)
        assert done.outputs["json"]["headers"]["host"] == f"secure.example:{server.port}"
        other = server.url(host="other.example", scheme="https")
        wrong = await failure(step(url=other), Here(tmp_path), resolve=resolve, tls=trusting)
        unknown = await failure(step(url=url), Here(tmp_path), resolve=resolve)
    assert "certificate" in wrong.message
    assert "certificate" in unknown.message
    assert unknown.kind == "connection_failed"
    assert len(server.seen) == 1
