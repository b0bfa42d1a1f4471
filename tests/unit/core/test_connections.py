"""References to variables in a connection, and what of it is secret."""

from __future__ import annotations

import pytest

from leadrope import errors
from leadrope.core.connections import fill
from leadrope.core.request import McpServer


def test_references_are_filled_everywhere_and_their_values_are_secret() -> None:
    server = McpServer(command="${BIN:-server}", args=("--key=${KEY}",), env={"A": "${KEY}", "B": "plain"}, headers={})
    remote = McpServer(url="http://${HOST}/x", headers={"Authorization": "Bearer ${KEY}"})
    filled = fill({"one": server, "two": remote}, {"KEY": "k-123456789", "HOST": "h"})
    assert filled.servers["one"] == McpServer(
        command="server", args=("--key=k-123456789",), env={"A": "k-123456789", "B": "plain"}
    )
    assert filled.servers["two"].url == "http://h/x"
    assert {"k-123456789", "Bearer k-123456789"} <= set(filled.secrets)


def test_a_variable_that_is_not_set_is_named() -> None:
    with pytest.raises(errors.BadValue, match=r"connections\.one\.env\.A.*NOWHERE"):
        fill({"one": McpServer(command="x", env={"A": "${NOWHERE}"})}, {})


def test_text_that_only_looks_like_a_reference_stays() -> None:
    server = McpServer(command="x", args=("$HOME", "${}", "${1A}", "$(date)"))
    assert fill({"one": server}, {"HOME": "/root"}).servers["one"].args == server.args
