"""`leadrope policy allow`: grants go into the user's own config, and nothing else in it changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from leadrope import errors
from leadrope.cli.policy.policy import command
from leadrope.core import config as configs
from leadrope.core import home

OTHERS = """# mine
forward_env = ["HTTPS_PROXY"]  # corporate

[run]
mode = "edit"  # every day
"""


@pytest.fixture
def config(scratch_home: Path) -> Path:
    path = home.config_file({"HOME": str(scratch_home), "XDG_CONFIG_HOME": str(scratch_home / ".config")})
    path.parent.mkdir(parents=True)
    return path


def run(*args: str) -> int:
    code = command.main(["allow", *args], prog_name="leadrope policy", standalone_mode=False)
    return code if isinstance(code, int) else 0


def granted(path: Path) -> object:
    return configs.parse(path.read_text(), str(path)).run.allow


def test_a_grant_is_added_and_removed_and_the_rest_of_the_file_stays(config: Path) -> None:
    config.write_text(OTHERS)
    assert run("Bash(npm test *)") == 0
    assert config.read_text().startswith(OTHERS)
    assert granted(config) == ("Bash(npm test *)",)
    assert run("Edit", "Bash(npm test *)") == 0
    assert granted(config) == ("Bash(npm test *)", "Edit")
    assert run("--remove", "Bash(npm test *)", "Edit") == 0
    assert granted(config) == ()
    assert "# every day" in config.read_text()


def test_without_a_file_one_is_made_that_only_its_user_can_read(config: Path) -> None:
    assert run("Bash(make test)") == 0
    assert granted(config) == ("Bash(make test)",)
    assert config.stat().st_mode & 0o777 == 0o600


def test_a_linked_file_stays_a_link_and_keeps_its_mode(config: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.toml"
    real.write_text(OTHERS)
    real.chmod(0o640)
    config.symlink_to(real)
    assert run("Bash(make test)") == 0
    assert config.is_symlink()
    assert granted(real) == ("Bash(make test)",)
    assert real.stat().st_mode & 0o777 == 0o640


def test_without_a_pattern_grants_are_listed(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    assert "grants nothing" in capsys.readouterr().err
    config.write_text('[run]\nallow = ["Edit", "Bash(a *)"]\n')
    assert run() == 0
    assert capsys.readouterr().out == "Edit\nBash(a *)\n"


@pytest.mark.parametrize("pattern", ["Bash(a && b)", "bash(ls)", "Bash(", "Write(domain:x)", "mcp__"])
def test_a_pattern_that_could_never_match_is_refused_and_nothing_is_written(config: Path, pattern: str) -> None:
    config.write_text(OTHERS)
    with pytest.raises(errors.BadValue):
        run("Edit", pattern)
    assert config.read_text() == OTHERS


def test_a_broken_config_is_left_alone(config: Path) -> None:
    config.write_text("[run\n")
    with pytest.raises(errors.BadConfig):
        run("Edit")
    assert config.read_text() == "[run\n"


def test_what_is_not_there_cannot_be_removed(config: Path) -> None:
    config.write_text('[run]\nallow = ["Edit"]\n')
    with pytest.raises(errors.BadValue, match="does not allow Write"):
        run("--remove", "Write")
    assert granted(config) == ("Edit",)


def test_grants_of_the_file_a_profile_and_the_call_are_added_up() -> None:
    text = '[run]\nallow = ["Edit"]\n[profiles.a]\nallow = ["Bash(a *)"]\n'
    config = configs.parse(text, "config.toml")
    request = configs.apply(config, "a", {"prompt": "x", "allow": ("Bash(b)",)})
    assert request.allow == ("Edit", "Bash(a *)", "Bash(b)")
