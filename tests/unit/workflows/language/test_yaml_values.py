"""A value of one plain word is taken without the parser, which would say the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from leadrope.core.text import yaml_values


@given(some.from_regex(r"\A[A-Za-z_~.+-][A-Za-z0-9_./+-]*\Z"))
def test_a_word_is_what_the_parser_says(text: str) -> None:
    if yaml_values.is_word(text):
        assert yaml_values.load(f"k:   {text}\n") == yaml_values.LoadedYaml(
            {"k": text}, {(): (0, 0), ("k",): (0, 5), ("k", yaml_values.KEY): (0, 0)}
        )


@pytest.mark.parametrize("text", ["shell", "claude-code", "src/a.py", "no", "on", "_1", "e3", "inf", "None"])
def test_words(text: str) -> None:
    assert yaml_values.is_word(text)
    assert yaml_values.load(f"k: {text}").value == {"k": text}


@pytest.mark.parametrize("text", ["true", "null", "~", "1", ".5", "a b", "a: b", "a #b", "${a}", "[a]", "-", "", "é"])
def test_what_the_parser_has_to_look_at(text: str) -> None:
    assert not yaml_values.is_word(text)


def test_bytes_are_read_only_where_they_are_expected() -> None:
    assert yaml_values.load("raw: !!binary //79", has_binary=True).value == {"raw": b"\xff\xfe\xfd"}
    assert yaml_values.load("- !!binary |\n  AAEC\n  AwQ=", has_binary=True).value == [bytes(range(5))]
    with pytest.raises(yaml_values.YamlError, match="is not base64"):
        yaml_values.load("!!binary a*", has_binary=True)
    for text, has_binary in (("!!binary //79", False), ("!!binary [a]", True), ("!!python/name:os.system x", True)):
        with pytest.raises(yaml_values.YamlError, match=r"the tag .* is not taken"):
            yaml_values.load(text, has_binary=has_binary)
