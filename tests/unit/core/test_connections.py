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


@pytest.mark.parametrize("field", ["args", "url", "command"])
def test_a_key_that_a_variable_puts_anywhere_is_secret(field: str) -> None:
    values = {
        "DB_PASSWORD": "horse",
        "GITLAB": "Zq81kfL0ppW2mmxT",
        "HOST": "db-1.example.com",
        "DIR": "/home/u/a1b2c3d4e5f6",
    }
    for name, is_secret in {"DB_PASSWORD": True, "GITLAB": True, "HOST": False, "DIR": False}.items():
        text = f"http://x/?a=${{{name}}}"
        given = {"args": {"command": "x", "args": (text,)}, "url": {"url": text}, "command": {"command": text}}[field]
        filled = fill({"one": McpServer(**given)}, values)  # type: ignore[arg-type]  # texts and a tuple of them
        assert (values[name] in filled.secrets) is is_secret, name


def test_a_variable_that_is_not_set_is_named() -> None:
    with pytest.raises(errors.BadValue, match=r"connections\.one\.env\.A.*NOWHERE"):
        fill({"one": McpServer(command="x", env={"A": "${NOWHERE}"})}, {})


def test_text_that_only_looks_like_a_reference_stays() -> None:
    server = McpServer(command="x", args=("$HOME", "${}", "${1A}", "$(date)"))
    assert fill({"one": server}, {"HOME": "/root"}).servers["one"].args == server.args
