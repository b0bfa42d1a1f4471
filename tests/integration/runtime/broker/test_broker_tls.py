"""A broker and a server behind TLS, or behind a proxy of the network."""

from __future__ import annotations

import asyncio
import functools
import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from leadrope import Secret
from leadrope.net import http1
from leadrope.net.connect import proxy_for
from leadrope.runtime.broker.broker import Broker
from leadrope.runtime.broker.proxy import HostProxy


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is missing, and makes the certificate of this test")
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(key), "-out", str(cert), "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(command, check=True, capture_output=True)
    return key, cert


@pytest.fixture
def tls(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate[1], certificate[0])
    return context


async def _hello(ends: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        request = await ends.take(reader)
        assert http1.first(request.headers, "x-api-key") == ends.REAL
        writer.write(ends.STREAM + http1.chunk(ends.text("over TLS")) + http1.LAST_CHUNK)


@pytest.mark.parametrize("is_proxied", [False, True])
async def test_a_server_behind_tls(
    ends: Any, tls: ssl.SSLContext, certificate: tuple[Path, Path], is_proxied: bool
) -> None:
    async with ends.far_end(functools.partial(_hello, ends), ssl=tls) as url:
        port = url.rpartition(":")[2]

        async def resolve(host: str, port: int) -> list[str]:
            return ["127.0.0.1"]

        async with HostProxy([f"localhost:{port}", f"127.0.0.1:{port}"], resolve=resolve) as proxy:
            broker = Broker(
                f"https://localhost:{port}",
                Secret(ends.REAL),
                "api_key",
                ca_file=str(certificate[1]),
                proxy=proxy.url if is_proxied else None,
            )
            async with broker, ends.calling(broker.url) as caller:
                for _ in range(3):
                    assert (await caller.ask(broker)).body == ends.text("over TLS")


async def test_a_server_that_nobody_vouches_for(ends: Any, tls: ssl.SSLContext) -> None:
    async with ends.far_end(functools.partial(_hello, ends), ssl=tls) as url:
        port = url.rpartition(":")[2]
        async with (
            Broker(f"https://localhost:{port}", Secret(ends.REAL), "api_key") as broker,
            ends.calling(broker.url) as caller,
        ):
            answer = await caller.ask(broker)
    assert answer.status == 502
    assert "certificate" in answer.error["message"].lower()


async def test_a_proxy_that_refuses_is_named(ends: Any) -> None:
    async with HostProxy(["example.com"]) as proxy:
        broker = Broker("https://model.example", Secret(ends.REAL), "api_key", proxy=proxy.url)
        async with broker, ends.calling(broker.url) as caller:
            answer = await caller.ask(broker)
    assert answer.status == 502
    assert "proxy 127.0.0.1 refuses: 403" in answer.error["message"]


@pytest.mark.parametrize(
    ("environ", "proxy"),
    [
        ({}, None),
        ({"HTTPS_PROXY": "http://p:3128"}, "http://p:3128"),
        ({"https_proxy": "http://low:1", "HTTPS_PROXY": "http://p:3128"}, "http://low:1"),
        ({"HTTPS_PROXY": "http://p:3128", "NO_PROXY": "example.org, .anthropic.com"}, None),
        ({"HTTPS_PROXY": "http://p:3128", "no_proxy": "*"}, None),
        ({"HTTPS_PROXY": "http://p:3128", "no_proxy": "pic.com,opic.com"}, "http://p:3128"),
    ],
)
def test_the_networks_own_proxy_variables(environ: dict[str, str], proxy: str | None) -> None:
    assert proxy_for("https://api.anthropic.com", environ) == proxy
    assert proxy_for("http://127.0.0.1:1", environ) is None


@pytest.mark.parametrize(
    "url", ["", "ftp://x", "api.anthropic.com", "http://", "http://x/?a=b", "http://a b", "http://x:0"]
)
def test_an_address_that_is_none(ends: Any, url: str) -> None:
    from leadrope import errors

    with pytest.raises(errors.BadValue, match="base_url"):
        Broker(url, Secret(ends.REAL), "api_key")
