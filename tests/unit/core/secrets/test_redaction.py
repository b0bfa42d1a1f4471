"""What is removed from text that leaves, what stays, and that no text can make it slow."""

from __future__ import annotations

import base64
import json
import time

import pytest

from leadrope.core.secrets.redaction import MASK, Redactor, Secret, mask, redact

TAIL = "aB3dE6gH9jK2mN5pQ8sT1vW4"


@pytest.mark.parametrize(
    "key",
    [
        f"sk-ant-api03-{TAIL}",
        f"sk-ant-oat01-{TAIL}",
        "sk-ant-rehearsal-0000000000",
        f"sk-proj-{TAIL}",
        f"sk-{TAIL}",
        "sk-0123456789abcdef0123456789abcdef",
        f"pplx-{TAIL}",
        f"ghp_{TAIL}",
        f"github_pat_{TAIL}",
        f"glpat-{TAIL}",
        f"xoxb-{TAIL}",
        "AKIAIOSFODNN7EXAMPLE",
        "AIza" + TAIL + "abcdefghij",
        f"eyJhbGciOiJIUzI1.{TAIL}.{TAIL}",
        f"-----BEGIN RSA PRIVATE KEY-----\nMIIE{TAIL}==\n-----END RSA PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\\nMIIE{TAIL}\\n-----END PRIVATE KEY-----",
        f"-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,X\nDEK-Info: AES,00\n\nMI{TAIL}\n-----END EC PRIVATE KEY-----",
        f"-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk{TAIL}",
    ],
)
def test_key_shapes(key: str) -> None:
    assert redact(f"before {key}") == f"before {MASK}"
    assert key not in redact(f'{{"x":"{key}"}}')
    assert redact(redact(f"KEY={key};")) == redact(f"KEY={key};")


@pytest.mark.parametrize(
    "text",
    [
        "keys start with sk-ant- and are long",
        "git checkout task-implement-the-login-page-2024",
        "see risk-assessment-of-the-third-quarter-2025.md",
        "disk-usage-of-the-whole-machine-in-2024",
        "sk-learn-style-estimator-interface",
        "BAKIAIOSFODNN7EXAMPLE1",
        "the x-api-key header is missing",
        "authorization failed for the request",
        "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
        "eyJust some text. And more of it. And more.",
        "",
    ],
)
def test_prose_stays(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Authorization: Bearer abcdefgh1", "Authorization: Bearer [redacted]"),
        ("authorization: basic dXNlcjpwYXNz", "authorization: basic [redacted]"),
        ('{"Authorization": "Bearer abcdefgh1"}', '{"Authorization": "Bearer [redacted]"}'),
        ("{'authorization':'Bearer abcdefgh1'}", "{'authorization':'Bearer [redacted]'}"),
        (r'"{\"authorization\": \"Bearer abcdefgh1\"}"', r'"{\"authorization\": \"Bearer [redacted]\"}"'),
        ("-H 'x-api-key: abcdefgh1' -d x", "-H 'x-api-key: [redacted]' -d x"),
        ('"x-api-key":"abcdefgh1"', '"x-api-key":"[redacted]"'),
        ("Proxy-Authorization: Basic dXNlcjpwYXNz", "Proxy-Authorization: Basic [redacted]"),
    ],
)
def test_headers_in_every_spelling(text: str, expected: str) -> None:
    assert redact(text) == expected
    assert redact(expected) == expected


class TestRedactor:
    def test_known_secrets_go_whole_and_short_ones_stay(self) -> None:
        clean = Redactor(["correct horse", "correct horse battery", "abc", ""]).clean
        assert clean("it is correct horse battery, abc") == f"it is {MASK}, abc"
        assert Redactor(["abcde", "uvwxyz"]).clean("abcde uvwxyz") == f"abcde {MASK}", "six characters are looked for"

    @pytest.mark.parametrize(
        "encoded",
        [
            base64.b64encode(b"correct horse").decode(),
            b"correct horse".hex(),
            "correct then horse",
            "c-o-r-r-e-c-t- -h-o-r-s-e",
        ],
        ids=["base64", "hex", "split in two", "split into letters"],
    )
    def test_an_encoded_secret_stays(self, encoded: str) -> None:
        assert Redactor(["correct horse"]).clean(f"it is {encoded}") == f"it is {encoded}"

    def test_characters_that_mean_something_to_a_pattern(self) -> None:
        assert Redactor(["a.c(d[e"]).clean("a.c(d[e abc(d[e") == f"{MASK} abc(d[e"

    @pytest.mark.parametrize("secret", ['pass"word\n1', "back\\slash", "umläut-word"])
    @pytest.mark.parametrize("ascii_only", [True, False])
    def test_a_secret_inside_json_is_found_too(self, secret: str, ascii_only: bool) -> None:
        line = json.dumps({"text": f"<{secret}>"}, ensure_ascii=ascii_only)
        assert Redactor([secret]).clean(line) == json.dumps({"text": f"<{MASK}>"})


@pytest.mark.parametrize(
    "unit",
    [
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN " + "A " * 20,
        "sk-",
        "-sk-a",
        "eyJ",
        "eyJaaaaaaaaaaaaaa.",
        "-eyJ",
        "authorization ",
        "authorization: bearer ",
        "x-api-key  ",
        "AKIA",
        "gh",
        "Proc-Type:",
        " \\n",
    ],
)
def test_a_hostile_text_costs_linear_time(unit: str) -> None:
    """A quadratic pattern needs minutes for this; the limit leaves room for a busy machine."""
    text = unit * (200_000 // len(unit))
    start = time.process_time()
    redact("-----BEGIN PRIVATE KEY-----" + text)
    redact(text)
    assert time.process_time() - start < 5


class TestSecret:
    def test_it_prints_masked_everywhere(self) -> None:
        secret = Secret("sk-ant-api03-abcdefghijklmnopqrstuvwxyz")
        for shown in (repr(secret), str(secret), f"{secret}", repr([secret]), "%s" % secret):  # noqa: UP031
            assert "abcdef" not in shown
            assert "39 characters" in shown
        assert secret.reveal() == "sk-ant-api03-abcdefghijklmnopqrstuvwxyz"

    def test_equality_and_truth(self) -> None:
        assert Secret("a") == Secret("a")
        assert Secret("a") != Secret("b")
        assert Secret("a") != "a"
        assert len({Secret("a"), Secret("a")}) == 1
        assert not Secret("")
        assert Secret("a")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("sk-ant-api03-abcdefghijklmnopqrstuvwxyz", "sk-ant-api… (39 characters)"),
        ("hunter2hunter2", "hunt… (14 characters)"),
        ("ab", "… (2 characters)"),
        ("", "… (0 characters)"),
    ],
)
def test_mask(value: str, expected: str) -> None:
    assert mask(value) == expected


def test_a_secret_of_several_lines_is_found_in_one_line_and_line_by_line() -> None:
    redactor = Redactor(["the first line of it\nshort\n  the second line of it\n"])
    assert redactor.clean("(the first line of it short the second line of it)") == "([redacted])"
    assert redactor.clean("+the first line of it\n+short\n+  the second line of it\n") == (
        "+[redacted]\n+short\n+  [redacted]\n"
    )


@pytest.mark.parametrize("length", range(1, 40))
def test_a_text_that_is_cut_holds_no_beginning_of_a_secret(length: int) -> None:
    text = "it is opensesame-and-more, and sk-ant-REDACTED too"
    start = Redactor(["opensesame-and-more"]).clean_start(text, length)
    assert "o" not in start.removeprefix("it is ").replace("[redacted]", "")
    assert "sk-" not in start
