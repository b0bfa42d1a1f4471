"""Secrets among the arguments and in the address of a connection, and words that are none."""

from __future__ import annotations

import pytest

from leadrope.core.secrets.argument_secrets import in_address, in_arguments, looks_random

KEY = "opensesame-and-more"
RANDOM = "Zq81kfL0ppW2mmxT"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--token", KEY),
        ("-token", KEY),
        (f"--token={KEY}",),
        ("--api-key", KEY),
        (f"--apiKey={KEY}",),
        ("--accessToken", KEY),
        ("--db.password", KEY),
        ("--auth", KEY),
        ("run", "-e", f"GITHUB_TOKEN={KEY}", "image"),
        ("--header", f"Authorization: Bearer {KEY}"),
        (f"--header=X-Api-Key: {KEY}",),
        ("--header", f"Authorization:{KEY}"),
        (f"postgres://app:{KEY}@db/app",),
        ("--url", f"https://mcp.example.com/sse?api_key={KEY}"),
        ("--token", "--verbose", "--password", KEY),
    ],
    ids=" ".join,
)
def test_a_value_is_secret_by_its_place(arguments: tuple[str, ...]) -> None:
    assert KEY in set(in_arguments(arguments))


@pytest.mark.parametrize(
    "arguments",
    [
        ("--thing", RANDOM),
        (RANDOM,),
        (f"thing={RANDOM}",),
        (f"https://mcp.example.com/s/{RANDOM}/mcp",),
        (f"https://mcp.example.com/mcp?id={RANDOM}",),
    ],
    ids=" ".join,
)
def test_a_word_is_secret_by_its_look(arguments: tuple[str, ...]) -> None:
    assert RANDOM in set(in_arguments(arguments))


@pytest.mark.parametrize(
    "arguments",
    [
        ("--stdio",),
        ("--token", "--stdio"),
        ("-y", "@modelcontextprotocol/server-filesystem", "/home/user/a1b2c3d4e5f6g7h8"),
        ("--token-file", "/run/secrets/token", "--key", "/etc/ssl/key.pem", "--key", "~/.ssh/id_ed25519"),
        ("mcp-server-sqlite3-2024", "server-gpt4o-k8s-oauth2", "mcp-server-postgres@2.14.3"),
        ("--max-tokens", "4096000", "--port=8080", "--transport", "streamable-http"),
        ("-e", "GITHUB_TOKEN", "ghcr.io/github/github-mcp-server"),
        ("--token", "${TOKEN}", "--api-key=${KEY}", "Authorization: Bearer ${KEY}"),
        ("https://example.com:8443/mcp/v1?mode=read", "http://[half/"),
        ("https://user@example.com/mcp",),
        ("--from", "git+https://example.com/group/project-name"),
    ],
    ids=" ".join,
)
def test_options_paths_and_names_are_no_secrets(arguments: tuple[str, ...]) -> None:
    assert list(in_arguments(arguments)) == []


def test_an_address_with_a_password_is_secret_as_a_whole_and_in_its_parts() -> None:
    address = "postgres://app:open%20sesame@db/app"
    assert set(in_address(address)) == {address, "open%20sesame", "open sesame"}


@pytest.mark.parametrize(
    "word", ["3fa85f64-5717-4562-b3fc-2c963f66afa6", "9b74c9897bac770ffc029102a200c5de", "AKd8f7Gh2k9Lm4nQ=="]
)
def test_keys_look_random(word: str) -> None:
    assert looks_random(word)
