"""Whether the model's server can be reached: what counts as not, in which words, and how long it may last."""

from __future__ import annotations

import asyncio
import errno
import socket

import pytest

from leadrope.net.connect import why
from leadrope.runtime.broker.reachability import ANSWERED_S, Reach, Trouble, never_connected, probe

PROXIED = {"HTTPS_PROXY": "http://user:hunter2@127.0.0.1:1"}


@pytest.mark.parametrize(
    ("url", "env", "told"),
    [
        ("", {}, None),
        ("http://127.0.0.1:1", {}, "cannot reach 127.0.0.1:1 (connection refused)"),
        ("http://localhost:1", {}, "cannot reach localhost:1 (connection refused)"),
        ("http://127.0.0.1:notaport", {}, None),
        ("https://model.invalid", PROXIED, "cannot reach the proxy 127.0.0.1:1 (connection refused)"),
        (
            "https://127.0.0.1:1",
            PROXIED | {"NO_PROXY": "127.0.0.1"},
            "cannot reach 127.0.0.1:1 (connection refused)",
        ),
    ],
)
async def test_a_refusal_is_told_with_the_address_that_refused(url: str, env: dict[str, str], told: str | None) -> None:
    found = await probe(url, env)
    assert (str(found) if found else None) == told


async def test_an_unknown_name_is_not_reached() -> None:
    found = await probe("http://model.invalid", {})
    assert found is not None
    assert found.address == "model.invalid"


async def test_what_listens_is_reached() -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        assert await probe(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", {}) is None


@pytest.mark.parametrize(
    ("error", "is_never", "words"),
    [
        (OSError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)"), True, "connection refused"),
        (OSError(errno.EHOSTUNREACH, "Connect call failed"), True, "no route to host"),
        (OSError(errno.ECONNRESET, "Connection reset by peer"), False, "connection reset by peer"),
        (
            OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1', 1), [Errno 111] Connect call failed"),
            True,
            "connection refused",
        ),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), True, "unknown host"),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), True, "temporary failure in"),
        (TimeoutError(), False, "TimeoutError"),
    ],
)
def test_only_what_made_no_connection_counts(error: Exception, is_never: bool, words: str) -> None:
    assert never_connected(error) == is_never
    assert why(error).startswith(words)


def test_each_change_is_told_once() -> None:
    told: list[Trouble] = []
    reach = Reach()
    reach.on_lost, reach.on_found = told.append, told.append
    one, other = Trouble("a:1", "connection refused"), Trouble("a:1", "no route to host")
    reach.reached()
    for trouble in (one, one, other):
        reach.failed(trouble)
    assert told == [one]
    reach.reached()
    reach.reached()
    assert told == [one, other]


@pytest.mark.parametrize(
    ("wanted_s", "has_answered", "limit_s"),
    [(30, False, 30), (30, True, ANSWERED_S), (600, True, 600), (0, False, 0), (0, True, 0)],
)
def test_a_server_that_has_answered_gets_more_time(wanted_s: float, has_answered: bool, limit_s: float) -> None:
    reach = Reach()
    if has_answered:
        reach.answered()
    assert reach.limit_s(wanted_s) == limit_s
