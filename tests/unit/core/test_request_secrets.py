"""Which parts of a request are secrets, told without anybody's word but their place and their name."""

from __future__ import annotations

import pytest

from leadrope.core.redaction import Secret
from leadrope.core.request import McpServer, RunRequest
from leadrope.core.request_secrets import is_secret_name, known_secrets


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
