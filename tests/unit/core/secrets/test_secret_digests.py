"""Secrets that are found again by their digests alone."""

from __future__ import annotations

import os
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadrope.core.secrets.redaction import MASK, Redactor
from leadrope.core.secrets.secret_digests import Finder, key_name, of

KEY = bytes(range(32))
SECRETS = ["opensesame", "Zq81kfL0ppW2mmxT-and-more", 'a "quoted" one\nof two lines', "pässwörd"]


def finder(*secrets: str) -> Finder:
    return Finder(KEY, of(Redactor(secrets).spellings, KEY))


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("text", ["{}", "before {} after", "{}{}", "x{}", "{} and {}"])
def test_each_place_is_masked(secret: str, text: str) -> None:
    assert finder(*SECRETS).clean_text(text.replace("{}", secret)) == text.replace("{}", MASK)


@pytest.mark.parametrize("secret", SECRETS)
def test_the_spellings_of_json_within_json_are_found(secret: str) -> None:
    text = secret
    for _ in range(3):
        text = msgspec.json.encode({"said": text}).decode()
        cleaned = finder(secret).clean_text(text)
        assert MASK in cleaned
        msgspec.json.decode(cleaned)


def test_overlapping_secrets_leave_nothing_between_them() -> None:
    assert finder("abcdefgh", "efghijkl").clean(b"-abcdefghijkl-") == b"-[redacted]-"
    assert finder("abcdefgh", "abcdefghijkl").clean(b"-abcdefghijkl-") == b"-[redacted]-"


@given(st.text(max_size=200))
def test_other_text_stays_as_it_is(text: str) -> None:
    assert finder("opensesame", "Zq81kfL0ppW2mmxT").clean_text(text) == text


def test_the_digests_hold_nothing_of_the_secret_and_need_the_key() -> None:
    digests = of(SECRETS, KEY)
    kept = msgspec.json.encode(digests).decode()
    assert not any(secret[:4] in kept for secret in SECRETS)
    other = os.urandom(32)
    assert Finder(other, digests).clean(b"opensesame") == b"opensesame"
    assert key_name(other) != key_name(KEY)


def test_time_is_linear(is_soak: bool) -> None:
    """Twice the text takes about twice the time, also if it repeats the beginning of a secret over and over."""
    found = finder(*(os.urandom(18).hex() for _ in range(20)), "opensesame-and-much-more-of-it")
    for piece in (b"the quick brown fox ", b"opensesame-and-much-more-of-i", b"\0"):
        times = []
        for size in (500_000, 1_000_000):
            data = (piece * (size // len(piece) + 1))[:size]
            began = time.process_time()
            assert found.clean(data) == data
            times.append(time.process_time() - began)
        assert times[1] < 6 * times[0] + 0.1
        assert not is_soak or times[1] < 1
