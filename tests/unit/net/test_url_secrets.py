from __future__ import annotations

import base64
from urllib.parse import quote, quote_plus

import pytest

from leadrope.net.url_secrets import holds_secret

SECRET = "s3cret/W0rd+and&more=ä %41"


@pytest.mark.parametrize(
    "url",
    [
        f"https://a.example/{SECRET}",
        f"https://a.example/?q={SECRET}#x",
        f"https://a.example/?q={quote(SECRET)}",
        f"https://a.example/?q={quote(SECRET, safe='')}",
        f"https://a.example/?q={quote_plus(SECRET)}",
        f"https://a.example/?q={quote(quote(SECRET, safe=''), safe='')}",
        "https://a.example/" + "".join(f"%{byte:02x}" for byte in SECRET.encode()),
        f"https://a.example/?q={SECRET.upper()}",
    ],
)
def test_a_secret_is_found_in_every_spelling_that_is_documented(url: str) -> None:
    assert holds_secret(url, ["other-secret", SECRET])


@pytest.mark.parametrize(
    "url",
    [
        "https://sk-test-abcdef0123.evil.example/",
        "https://user:sk-test-abcdef0123@evil.example/",
        "https://evil.example/sk-test-\nabcdef0123",
        "https://evil.example/?a=1&b=%73k-test-abcdef0123",
        "sk-test-ABCDEF0123",
    ],
)
def test_a_secret_is_found_in_each_part_of_a_url(url: str) -> None:
    assert holds_secret(url, ["sk-test-ABCDEF0123"])


@pytest.mark.parametrize(
    ("url", "secrets"),
    [
        ("https://a.example/?q=nothing", [SECRET]),
        ("https://a.example/abc", ["abc"]),
        ("https://a.example/", []),
        ("https://a.example/", [""]),
        (f"https://a.example/{SECRET[:-3]}", [SECRET]),
        ("https://a.example/abcde", ["abcde"]),
        (f"https://a.example/{base64.b64encode(SECRET.encode()).decode()}", [SECRET]),
        (f"https://a.example/{SECRET.encode().hex()}", [SECRET]),
        (f"https://a.example/?a={SECRET[:9]}&b={SECRET[9:]}", [SECRET]),
    ],
)
def test_what_holds_none(url: str, secrets: list[str]) -> None:
    assert not holds_secret(url, secrets)


def test_a_secret_has_six_characters_at_least() -> None:
    assert holds_secret("https://a.example/abcdef", ["abcdef"])
