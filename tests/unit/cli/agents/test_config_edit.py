"""Entries of config.toml that commands add and delete: every other byte stays."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from leadrope import errors
from leadrope.cli.agents import config_edit

FILES = [
    "",
    "# mine\n",
    '[run]\nmodel = "x"  # why\n\n\n[policy]\n  max_tool_calls=5',
    "[run]\r\nmodel = 'x'\r\n",
    '[agents.b]\nmodel = "b"\n\n# about run\n[run]\nmode = "plan"\n',
    '[agents]\nb = { model = "b" }\n',
    'agents.b.model = "b"\n[run]\nappend_system_prompt = """\n[agents.a]\n"""\n',
]


@pytest.mark.parametrize("text", FILES)
def test_what_is_added_and_deleted_again_leaves_the_file_as_it_was(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(text.encode())
    path.chmod(0o640)
    config_edit.add_table(path, "agents", "a", 'model = "y"\nlimits.wall_s = 3\n# mode = "plan"')
    added = path.read_bytes().decode()
    assert added.startswith(text)
    assert tomllib.loads(added)["agents"]["a"] == {"model": "y", "limits": {"wall_s": 3}}
    assert path.stat().st_mode & 0o777 == 0o640
    config_edit.drop_table(path, "agents", "a")
    assert path.read_bytes().decode().rstrip("\r\n") == text.rstrip("\r\n")


def test_subtables_go_along_and_comments_of_the_next_table_stay(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    kept = "# top\n[run]\nmode = 'plan'\n\n"
    after = "# about policy\n# more\n[policy]\nmax_tool_calls = 5\n\n# end\n"
    own = "[agents.'x y']\nmodel = 'a'\n# mode = 'plan'\n[agents.\"x y\".policy]\nweb = 'ask'\n"
    examples = "[[agents.'x y'.policy.examples]]\ncall = 'Bash(ls)'\nexpect = 'allow'\n\n"
    path.write_text(kept + own + examples + after)
    config_edit.drop_table(path, "agents", "x y")
    assert path.read_text() == kept + after


@pytest.mark.parametrize(
    "text",
    ['agents = { a = { model = "x" } }\n', '[agents]\na = { model = "x" }\n', 'agents.a.model = "x"\n'],
)
def test_an_entry_in_another_style_is_left_to_its_author(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(errors.BadConfig, match="written in a way") as refused:
        config_edit.drop_table(path, "agents", "a")
    assert "by hand" in str(refused.value.hint)
    assert path.read_text() == text


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real, path = tmp_path / "dotfiles.toml", tmp_path / "config.toml"
    real.write_text("[run]\n")
    path.symlink_to(real)
    config_edit.add_table(path, "agents", "a", 'model = "y"')
    assert path.is_symlink()
    assert "agents" in tomllib.loads(real.read_text())
