"""What of an environment is kept with a detached run, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from leadrope.runs.records import stored_environ

HOME = Path("/home/ann/.local/share/leadrope")


def test_places_and_languages_are_kept_and_nothing_else() -> None:
    plain = {"PATH": "/bin", "HOME": "/home/ann", "LC_ALL": "C.UTF-8", "LEADROPE_CONFIG": "/c.toml", "no_proxy": "a"}
    others = {
        "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-x",
        "ANTHROPIC_API_KEY": "sk-ant-x",
        "DATABASE_URL": "postgres://a:b@c/d",
        "LEADROPE_WEBHOOK_SECRET": "x",
        "LD_PRELOAD": "/x.so",
        "PYTHONPATH": "/x",
    }
    assert stored_environ.kept(plain | others) == plain


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"])
def test_a_proxy_with_a_password_is_not_kept(name: str) -> None:
    assert stored_environ.kept({name: "http://ann:secret@proxy:3128"}) == {}
    assert stored_environ.kept({name: "http://proxy:3128"}) == {name: "http://proxy:3128"}


def test_what_was_kept_comes_back_with_the_home_of_the_store() -> None:
    place = {"recover": "resume", "environ": {"PATH": "/bin", "LANG": "x [redacted]", "LEADROPE_HOME": "/elsewhere"}}
    assert stored_environ.restored(place, HOME) == {"PATH": "/bin", "LEADROPE_HOME": str(HOME)}
    assert stored_environ.restored({"recover": "resume"}, HOME) is None


def test_without_a_stored_environment_the_system_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/of/whoever/looks")
    monkeypatch.setenv("PATH", "/of/whoever/looks")
    found = stored_environ.bare(HOME)
    assert found["LEADROPE_HOME"] == str(HOME)
    assert "looks" not in "".join(found.values())
