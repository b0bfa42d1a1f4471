"""`DIR` and `DIR:ro`."""

from __future__ import annotations

import pytest

from leadrope.core.request_parts import extra_dirs


@pytest.mark.parametrize(
    ("path", "is_read_only", "text"),
    [("/a", False, "/a"), ("/a", True, "/a:ro"), ("/a:ro", False, "/a:ro/"), ("/a:ro", True, "/a:ro:ro")],
)
def test_what_is_spelled_is_read_again(path: str, is_read_only: bool, text: str) -> None:
    assert extra_dirs.spell(path, is_read_only=is_read_only) == text
    found, is_found = extra_dirs.parse(text)
    assert (found.rstrip("/"), is_found) == (path, is_read_only)


def test_a_folder_that_is_given_in_both_ways_is_writable() -> None:
    texts = ("/a:ro", "/b", "/a", "/c:ro")
    assert extra_dirs.paths(texts) == ("/a", "/b", "/c")
    assert extra_dirs.writable(texts) == ("/b", "/a")
    assert extra_dirs.read_only(texts) == ("/c",)
