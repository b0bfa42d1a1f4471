"""Files that the user names: followed as always, but for links that lead out of a workspace."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from leadrope import errors
from leadrope.confined import appending_named, open_named, read_named, writing_named


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    (tmp_path / "ws" / "sub").mkdir(parents=True)
    (tmp_path / "key").write_text("private")
    return tmp_path / "ws"


def test_the_users_own_paths_are_followed(ws: Path) -> None:
    (ws.parent / "mine").symlink_to("key")
    (ws / "real").write_text("inside")
    (ws / "sub" / "link").symlink_to("../real")
    assert read_named(ws.parent / "mine", workspaces=(ws,)) == b"private"
    assert read_named(ws / "sub" / "link", workspaces=(ws,)) == b"inside"
    with pytest.raises(FileNotFoundError):
        read_named(ws / "missing", workspaces=(ws,))


def test_a_pipe_outside_is_waited_for_and_one_inside_is_refused(ws: Path) -> None:
    os.mkfifo(ws / "pipe")
    os.mkfifo(ws.parent / "pipe")
    with pytest.raises(errors.UnsafeFile, match="is a pipe"):
        read_named(ws / "pipe", workspaces=(ws,))
    with pytest.raises(errors.UnsafeFile, match="is a pipe"):
        open_named(ws.parent / "pipe", workspaces=(ws,))
    writer = threading.Thread(target=(ws.parent / "pipe").write_text, args=("said",))
    writer.start()
    assert read_named(ws.parent / "pipe", workspaces=(ws,)) == b"said"
    writer.join()


def test_there_is_a_limit(ws: Path) -> None:
    with (ws / "large").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(errors.UnsafeFile, match="larger than 100 bytes"):
        read_named(ws / "large", workspaces=(ws,), most=100)


def test_output_replaces_a_link_in_a_workspace_and_follows_the_users_own(ws: Path) -> None:
    (ws / "out.html").symlink_to(ws.parent / "key")
    with writing_named(ws / "out.html", workspaces=(ws,)) as file:
        file.write(b"page")
    assert ((ws / "out.html").is_symlink(), (ws / "out.html").read_text()) == (False, "page")
    (ws.parent / "mine").symlink_to("key2")
    (ws.parent / "key2").write_text("old")
    with writing_named(ws.parent / "mine", workspaces=(ws,)) as file:
        file.write(b"new")
    assert ((ws.parent / "mine").is_symlink(), (ws.parent / "key2").read_text()) == (True, "new")
    (ws / "sub" / "out").symlink_to(ws.parent)
    with pytest.raises(errors.UnsafeFile, match="leads out"), writing_named(ws / "sub/out/x", workspaces=(ws,)):
        pass
    with pytest.raises(errors.UnsafeFile), writing_named(ws / "sub/out/y/x", workspaces=(ws,), makes=True):
        pass
    with writing_named(ws / "a/b/x", workspaces=(ws,), makes=True, mode=0o644) as file:
        file.write(b"x")
    assert (ws / "a/b/x").stat().st_mode & 0o777 == 0o644
    assert (ws.parent / "key").read_text() == "private"
    assert sorted(path.name for path in ws.parent.iterdir()) == ["key", "key2", "mine", "ws"]


def test_half_an_output_is_none(ws: Path) -> None:
    (ws / "out").write_text("old")

    def write() -> None:
        with writing_named(ws / "out", workspaces=(ws,)) as file:
            file.write(b"half")
            raise KeyError

    with pytest.raises(KeyError):
        write()
    assert [(path.name, path.read_text()) for path in ws.iterdir() if path.is_file()] == [("out", "old")]


def test_appending_in_a_workspace_follows_no_link(tmp_path: Path) -> None:
    ws, outside = tmp_path / "ws", tmp_path / "outside"
    ws.mkdir()
    outside.mkdir()
    (outside / "rc").write_text("mine\n")
    (ws / "link").symlink_to(outside / "rc")
    (ws / "folder").symlink_to(outside)
    os.mkfifo(ws / "pipe")
    os.link(outside / "rc", ws / "second")
    for name in ("link", "folder/rc", "folder/new", "pipe", "second"):
        with pytest.raises(errors.UnsafeFile), appending_named(ws / name, workspaces=(ws,)):
            pass
    assert [path.name for path in outside.iterdir()] == ["rc"]
    assert (outside / "rc").read_text() == "mine\n"
    for _ in range(2):
        with appending_named(ws / "new", workspaces=(ws,)) as file:
            file.write(b"x\n")
    assert (ws / "new").read_text() == "x\nx\n"
    with appending_named(outside / "own") as file:
        file.write(b"x")
    assert (outside / "own").read_text() == "x"
