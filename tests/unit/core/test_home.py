"""Where things are kept on each platform, and what a .env file says."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from leadrope import errors
from leadrope.core import home


@pytest.mark.parametrize(
    ("environ", "platform", "expected"),
    [
        ({}, "linux", "/home/u/.local/share/leadrope"),
        ({"XDG_DATA_HOME": "/data"}, "linux", "/data/leadrope"),
        ({"XDG_DATA_HOME": "relative"}, "linux", "/home/u/.local/share/leadrope"),
        ({}, "darwin", "/home/u/Library/Application Support/leadrope"),
        ({"LOCALAPPDATA": "/local"}, "win32", "/local/leadrope"),
        ({}, "win32", "/home/u/AppData/Local/leadrope"),
        ({"LEADROPE_HOME": "/own"}, "darwin", "/own"),
        ({"LEADROPE_HOME": "~/own"}, "linux", "/home/u/own"),
        ({"LEADROPE_HOME": ""}, "linux", "/home/u/.local/share/leadrope"),
    ],
)
def test_home(environ: dict[str, str], platform: str, expected: str) -> None:
    assert home.leadrope_home({"HOME": "/home/u"} | environ, platform=platform) == Path(expected)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, "/home/u/.config/leadrope/config.toml"),
        ({"XDG_CONFIG_HOME": "/etc/me"}, "/etc/me/leadrope/config.toml"),
        ({"LEADROPE_CONFIG": "/c.toml"}, "/c.toml"),
    ],
)
def test_config_file(environ: dict[str, str], expected: str) -> None:
    assert home.config_file({"HOME": "/home/u"} | environ) == Path(expected)


def test_a_relative_place_is_refused() -> None:
    with pytest.raises(errors.BadConfig, match="LEADROPE_HOME is 'here'"):
        home.leadrope_home({"HOME": "/home/u", "LEADROPE_HOME": "here"})
    with pytest.raises(errors.BadConfig, match="LEADROPE_CONFIG is 'here'"):
        home.config_file({"HOME": "/home/u", "LEADROPE_CONFIG": "here"})


def test_folders_are_for_their_owner_alone(tmp_path: Path) -> None:
    made = home.ensure(home.sessions_dir(tmp_path / "new"))
    assert made == tmp_path / "new/sessions"
    assert home.ensure(made) == made
    for folder in (made, made.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.BadConfig, match="file/sessions"):
        home.ensure(tmp_path / "file/sessions")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("# comment\n\n  \n", {}),
        ("A=1\nB = two words \n", {"A": "1", "B": "two words"}),
        ("export A=1", {"A": "1"}),
        ("A=", {"A": ""}),
        ("A= # only a comment", {"A": ""}),
        ("A=x # comment", {"A": "x"}),
        ("A=pa#ss", {"A": "pa#ss"}),
        ("A='x # y' # z", {"A": "x # y"}),
        (r"A='a\nb'", {"A": r"a\nb"}),
        (r'A="a\nb\t\"c\" \\ $HOME"', {"A": 'a\nb\t"c" \\ $HOME'}),
        ("A=1\nA=2", {"A": "2"}),
        ("A=x=y", {"A": "x=y"}),
        ("\ufeffA=1\r\nB=2\r\n", {"A": "1", "B": "2"}),
        ("A=it's", {"A": "it's"}),
        ("EXPORT=1\nexport_me=2", {"EXPORT": "1", "export_me": "2"}),
    ],
)
def test_env_lines(text: str, expected: dict[str, str]) -> None:
    assert home.parse_env(text) == expected


@pytest.mark.parametrize("line", ["s3cret", "A B=s3cret", "1A=s3cret", "A='s3cret", 'A="s3cret" x', "=s3cret"])
def test_a_line_that_is_none_is_named_by_number_and_not_shown(line: str) -> None:
    with pytest.raises(errors.BadConfig, match="here, line 2") as caught:
        home.parse_env(f"A=1\n{line}", "here")
    assert "s3cret" not in str(caught.value)


def test_only_the_file_in_leadropes_home_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text("A=project")
    own = tmp_path / "own"
    own.mkdir()
    assert home.load_env(own) == {}
    (own / ".env").write_text("A=mine")
    assert home.load_env(own) == {"A": "mine"}
    (own / ".env").write_bytes(b"\xff")
    with pytest.raises(errors.BadConfig, match="cannot be read"):
        home.load_env(own)
