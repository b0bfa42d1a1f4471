"""Which parts of a request are secrets, told without anybody's word but their place and their name."""

from __future__ import annotations

import pytest

from leadrope.core.request import McpServer, RunRequest
from leadrope.core.request_secrets import is_secret_name, known_secrets
from leadrope.core.secrets.redaction import Secret


@pytest.mark.parametrize("name", ["TOKEN", "GITHUB_TOKEN", "db_password", "STRIPE-API-KEY", "CLIENT_SECRET"])
def test_a_name_that_ends_in_a_word_for_a_secret_marks_it(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["MAX_TOKENS", "TOKEN_FILE", "KEYBOARD", "MONKEY", "STAGE", "PWD", ""])
def test_other_names_do_not(name: str) -> None:
    assert not is_secret_name(name)


def test_all_that_a_request_holds_is_found_and_references_are_not() -> None:
    request = RunRequest(
        prompt="x",
        credential=Secret("the-credential"),
        variables={"API_KEY": "the-variable", "STAGE": "the-stage"},
        connections={
            "a": McpServer(command="x", env={"A": "the-server-key", "B": "${NAME_OF_IT}"}),
            "b": McpServer(url="https://example.com", headers={"authorization": "Bearer the-header-word"}),
        },
    )
    assert set(known_secrets(request)) == {
        *("the-credential", "the-variable", "the-server-key"),
        *("Bearer the-header-word", "the-header-word"),
    }


def test_a_variable_is_marked_whatever_its_name_is() -> None:
    values = {"DSN": "postgres://app:x@db", "STAGE": "dev", "API_KEY": "0123456789"}
    request = RunRequest(prompt="p", variables=values, secret_variables=("DSN", "NOT_GIVEN"))
    assert set(known_secrets(request)) == {"postgres://app:x@db", "0123456789"}


def test_what_a_connection_names_is_known_where_the_environment_is() -> None:
    servers = {"db": McpServer(command="x", env={"A": "${ONE}"}, headers={}), "web": McpServer(url="http://localhost")}
    request = RunRequest(prompt="p", connections=servers)
    assert known_secrets(request) == []
    assert known_secrets(request, {"ONE": "value-of-one"}) == ["value-of-one"]
    assert known_secrets(request, {}) == [], "what is not set is the run's own error, not this one's"
