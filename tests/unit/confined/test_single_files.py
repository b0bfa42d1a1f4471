"""Single files and links below a folder that an agent can write: copied, linked, unlinked, never followed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from leadrope import errors
from leadrope.confined import Folder


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("ws", "own", "outside"):
        (tmp_path / name).mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    return tmp_path / "ws", tmp_path / "own"


def test_a_file_is_copied_with_its_permissions_and_time(folders: tuple[Path, Path]) -> None:
    ws, own = folders
    (ws / "a").write_text("content")
    (ws / "a").chmod(0o640)
    os.utime(ws / "a", ns=(1, 5_000_000_000))
    with Folder.open(ws) as source, Folder.open(own) as target:
        assert source.copy_file("a", target, "b", most=7) == 7
        assert source.copy_file("a", target, "c", most=7, mode=0o600) == 7
        with pytest.raises(errors.UnsafeFile, match="larger than 6 bytes"):
            source.copy_file("a", target, "b", most=6)
    found = (own / "b").stat()
    assert ((own / "b").read_text(), found.st_mode & 0o777, found.st_mtime_ns) == ("content", 0o640, 5_000_000_000)
    assert (own / "c").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in own.iterdir()) == ["b", "c"]


def test_what_is_replaced_is_not_written_to(folders: tuple[Path, Path]) -> None:
    ws, own = folders
    secret = ws.parent / "outside" / "secret"
    (own / "new").write_text("new")
    (ws / "link").symlink_to(secret)
    (ws / "hard").hardlink_to(secret)
    with Folder.open(own) as source, Folder.open(ws, hard_links=True) as target:
        source.copy_file("new", target, "link", most=10)
        source.copy_file("new", target, "hard", most=10)
        (ws / "other").hardlink_to(secret)
        with pytest.raises(errors.UnsafeFile, match="second name"):
            target.append("other")
    assert secret.read_text() == "secret"
    assert not (ws / "link").is_symlink()
    assert (ws / "hard").read_text() == "new"


def test_links_are_read_made_and_removed_themselves(folders: tuple[Path, Path]) -> None:
    ws, _ = folders
    secret = ws.parent / "outside" / "secret"
    (ws / "file").write_text("x")
    with Folder.open(ws) as folder:
        folder.link("file", str(secret))
        assert folder.read_link("file") == str(secret)
        with pytest.raises(errors.UnsafeFile):
            folder.read_bytes("file", most=100)
        folder.unlink("file")
        folder.unlink("file")
        with pytest.raises(FileNotFoundError):
            folder.unlink("file", missing_ok=False)
        folder.make("sub")
        with pytest.raises(OSError):
            folder.link("sub", "x")
        with pytest.raises(OSError):
            folder.unlink("sub")
        folder.link("out", str(secret.parent))
        assert not folder.remove_empty("out")
        assert folder.remove_empty("sub")
        with pytest.raises(errors.UnsafeFile):
            folder.unlink("out/secret")
    assert secret.read_text() == "secret"
    assert [path.name for path in ws.iterdir()] == ["out"]


def test_a_file_that_is_replaced_lends_its_permissions_but_no_rights(folders: tuple[Path, Path]) -> None:
    ws, _ = folders
    (ws / "script").write_text("old")
    (ws / "script").chmod(0o4755)
    with Folder.open(ws) as folder:
        folder.replace("script", b"new", like=folder.stat("script"))
        with pytest.raises(FileExistsError):
            folder.replace("script", b"newer", replaces=False)
    assert ((ws / "script").read_text(), (ws / "script").stat().st_mode & 0o7777) == ("new", 0o755)
    assert [path.name for path in ws.iterdir()] == ["script"]


def test_a_file_is_moved_into_another_folder_without_being_followed(folders: tuple[Path, Path]) -> None:
    ws, own = folders
    (ws / "link").symlink_to(ws.parent / "outside" / "secret")
    (own / "taken").write_text("mine")
    with Folder.open(ws) as source, Folder.open(own) as target:
        with pytest.raises(FileExistsError):
            source.move("link", target, "taken")
        source.move("link", target, "moved")
    assert (own / "taken").read_text() == "mine"
    assert (own / "moved").is_symlink()
    assert list(ws.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_one_entry_is_given_away_and_nothing_that_it_leads_to(folders: tuple[Path, Path]) -> None:
    ws, _ = folders
    outside = ws.parent / "outside"
    (ws / "link").symlink_to(outside / "secret")
    (ws / "hard").hardlink_to(outside / "secret")
    (ws / "sub").mkdir()
    (ws / "sub" / "file").write_text("x")
    (ws / "sub" / "out").symlink_to(outside)
    with Folder.open(ws) as folder:
        for name in ("link", "hard", "sub"):
            folder.give_entry(name, 12345, 12345)
    assert (ws / "link").lstat().st_uid == (ws / "sub" / "file").stat().st_uid == 12345
    assert (outside / "secret").stat().st_uid == outside.stat().st_uid == 0


def test_a_file_that_is_too_large_is_not_even_begun(folders: tuple[Path, Path]) -> None:
    ws, own = folders
    with (ws / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    with Folder.open(ws) as source, Folder.open(own) as target:
        with pytest.raises(errors.UnsafeFile, match="is larger than"):
            source.copy_file("sparse", target, "copy", most=1 << 36)
        with pytest.raises(errors.UnsafeFile, match="is larger than"):
            source.read_bytes("sparse", most=1 << 36)
    assert list(own.iterdir()) == []


def test_what_is_no_link_is_not_read_as_one(folders: tuple[Path, Path]) -> None:
    ws, _ = folders
    (ws / "file").write_text("x")
    with Folder.open(ws) as folder, pytest.raises(errors.UnsafeFile, match="is not a link"):
        folder.read_link("file")
