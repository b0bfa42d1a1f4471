"""A connection that is just being accepted when the broker or the proxy ends is closed with it."""

from __future__ import annotations

import asyncio
import gc
import socket
import warnings
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any

import pytest

from leadrope.core.secrets.redaction import Secret
from leadrope.runtime.broker.broker import Broker
from leadrope.runtime.broker.proxy import HostProxy


def proxy(path: Path) -> AbstractAsyncContextManager[Any]:
    return HostProxy([], listen=path)


def broker(path: Path) -> AbstractAsyncContextManager[Any]:
    return Broker("http://127.0.0.1:9", Secret("sk-ant-made-up"), "api_key", listen=path)


@pytest.mark.parametrize("rounds", range(8))
@pytest.mark.parametrize("server", [proxy, broker])
async def test_no_socket_is_lost(server: Any, rounds: int, tmp_path: Path) -> None:
    """asyncio takes a few rounds of its loop from the accept to the handler; the end may come in any of them."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        async with server(path):
            client.connect(str(path))
            for _ in range(rounds):
                await asyncio.sleep(0)
        await asyncio.sleep(0)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            gc.collect()
        assert [str(one.message) for one in told if one.category is ResourceWarning] == []
        with suppress(ConnectionResetError):
            assert client.recv(1) == b""
