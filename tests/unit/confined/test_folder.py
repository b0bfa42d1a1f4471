"""Folders that somebody hostile filled: nothing outside is read, written or waited for."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leadrope import errors
from leadrope.confined import Folder, open_named

SECRET = b"the user's own"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_bytes(SECRET)
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


@pytest.fixture
def folder(root: Path) -> Iterator[Folder]:
    with Folder.open(root) as opened:
        yield opened


def pipe(path: Path) -> None:
    os.mkfifo(path)


def unix_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the name of a socket must be short
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(here)


def subfolder(path: Path) -> None:
    path.mkdir()


def dangling(path: Path) -> None:
    path.symlink_to("nowhere")


SPECIAL: dict[str, Callable[[Path], None]] = {
    "pipe": pipe,
    "socket": unix_socket,
    "folder": subfolder,
    "link": dangling,
}


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").is_dir() else 0


# -- paths ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/etc/passwd", "..", "a/../../b", "a/..", "../outside/secret", "a\0b"])
def test_only_paths_below_the_folder_are_taken(folder: Folder, path: str) -> None:
    for call in (folder.open_read, folder.stat, folder.remove, folder.make, folder.append, folder.folder):
        with pytest.raises(errors.UnsafeFile):
            call(path)


@pytest.mark.parametrize("path", ["", ".", "./"])
def test_the_folder_itself_is_no_entry(folder: Folder, path: str) -> None:
    for call in (folder.open_read, folder.remove, folder.append):
        with pytest.raises(errors.UnsafeFile, match="folder itself"):
            call(path)
    assert stat.S_ISDIR(folder.stat(path).st_mode)


def test_a_name_that_is_too_long_is_the_systems_error(folder: Folder) -> None:
    with pytest.raises(OSError, match="too long"):
        folder.open_read("x" * 300)


# -- reading -------------------------------------------------------------------------------------------------------


def test_a_regular_file_is_read(folder: Folder, root: Path) -> None:
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "file").write_text("grüß")
    assert folder.read_text("a/b/file", most=100) == "grüß"
    assert folder.read_bytes("a//b/./file", most=6) == "grüß".encode()
    with folder.open_read("a/b/file") as file:
        assert file.read(2) == b"gr"
    with pytest.raises(FileNotFoundError, match="a/b/none"):
        folder.read_bytes("a/b/none", most=1)
    with pytest.raises(FileNotFoundError, match="none"):
        folder.read_bytes("none/file", most=1)


def test_no_more_is_read_than_allowed(folder: Folder, root: Path) -> None:
    (root / "file").write_bytes(bytes(10))
    assert len(folder.read_bytes("file", most=10)) == 10
    with pytest.raises(errors.UnsafeFile, match="larger than 9 bytes"):
        folder.read_bytes("file", most=9)
    with (root / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(errors.UnsafeFile, match="larger than 1000 bytes"):
        folder.read_bytes("sparse", most=1000)


@pytest.mark.parametrize("kind", SPECIAL)
def test_nothing_but_a_regular_file_is_opened(folder: Folder, root: Path, kind: str) -> None:
    SPECIAL[kind](root / "it")
    before = open_files()
    for call in (folder.open_read, folder.append):
        with pytest.raises(errors.UnsafeFile, match=f"root/it is a {kind}, not a regular file"):
            call("it")
    assert open_files() == before
    assert folder.kind("it") == kind


def test_no_link_is_followed_in_any_component(folder: Folder, root: Path, outside: Path) -> None:
    (root / "file").symlink_to(outside / "secret")
    (root / "dir").symlink_to(outside)
    for path in ("file", "dir/secret"):
        for call in (lambda path: folder.read_bytes(path, most=100), folder.open_read, folder.append):
            with pytest.raises(errors.UnsafeFile, match="is a link"):
                call(path)
    with pytest.raises(errors.UnsafeFile, match="root/dir is a link, not a folder"):
        folder.write_new("dir/new", b"x")
    with pytest.raises(errors.UnsafeFile):
        folder.replace("dir/secret", b"x")
    with pytest.raises(errors.UnsafeFile):
        folder.remove("dir/secret")
    with pytest.raises(errors.UnsafeFile):
        folder.make("dir/sub")
    with pytest.raises(errors.UnsafeFile):
        folder.entries("dir")
    with pytest.raises(errors.UnsafeFile):
        list(folder.walk("dir"))
    assert sorted(path.name for path in outside.iterdir()) == ["secret"]
    assert (outside / "secret").read_bytes() == SECRET


def test_a_hard_link_is_refused_unless_it_is_ordinary_here(root: Path, outside: Path) -> None:
    os.link(outside / "secret", root / "file")
    with Folder.open(root) as folder:
        for call in (folder.open_read, folder.append):
            with pytest.raises(errors.UnsafeFile, match="hard link"):
                call("file")
        folder.replace("file", b"mine")  # another file takes the name
    assert (outside / "secret").read_bytes() == SECRET
    os.link(outside / "secret", root / "other")
    with Folder.open(root, hard_links=True) as folder, folder.folder("") as same:
        assert folder.read_bytes("other", most=100) == same.read_bytes("other", most=100) == SECRET


def test_the_path_of_the_folder_is_trusted(root: Path, tmp_path: Path) -> None:
    (root / "file").write_text("x")
    (tmp_path / "name").symlink_to(root)
    with Folder.open(tmp_path / "name") as folder:
        assert folder.read_text("file", most=1) == "x"
    with pytest.raises(FileNotFoundError):
        Folder.open(tmp_path / "none")
    with pytest.raises(NotADirectoryError):
        Folder.open(root / "file")


# -- links inside --------------------------------------------------------------------------------------------------


def test_links_are_resolved_as_long_as_they_stay_inside(folder: Folder, root: Path) -> None:
    (root / "a").mkdir()
    (root / "a" / "CLAUDE.md").write_text("x")
    (root / "AGENTS.md").symlink_to("a/CLAUDE.md")
    (root / "again").symlink_to("AGENTS.md")
    (root / "b").symlink_to("a")
    (root / "a" / "up").symlink_to("../AGENTS.md")
    (root / "absolute").symlink_to(root / "a")
    for path in ("AGENTS.md", "again", "b/CLAUDE.md", "b/up", "absolute/CLAUDE.md", "a/CLAUDE.md"):
        assert folder.resolve(path) == "a/CLAUDE.md"
    assert folder.resolve("none") == "none"


@pytest.mark.parametrize("target", ["../outside/secret", "/etc/passwd", "..", "a/../../outside/secret"])
def test_a_link_that_leads_out_is_refused(folder: Folder, root: Path, outside: Path, target: str) -> None:
    (root / "a").mkdir()
    (root / "link").symlink_to(target)
    with pytest.raises(errors.UnsafeFile, match="leads out"):
        folder.resolve("link")


def test_links_in_a_circle_end(folder: Folder, root: Path) -> None:
    (root / "x").symlink_to("y")
    (root / "y").symlink_to("x")
    with pytest.raises(errors.UnsafeFile, match="circle"):
        folder.resolve("x")


# -- writing -------------------------------------------------------------------------------------------------------


def test_a_new_file_takes_no_name_that_is_taken(folder: Folder, root: Path, outside: Path) -> None:
    folder.write_new("fresh", b"1", mode=0o640)
    assert stat.S_IMODE((root / "fresh").stat().st_mode) == 0o640
    (root / "link").symlink_to(outside / "secret")
    (root / "dangling").symlink_to(outside / "none")
    for name in ("fresh", "link", "dangling"):
        with pytest.raises(FileExistsError):
            folder.write_new(name, b"2")
    assert (outside / "secret").read_bytes() == SECRET
    assert not (outside / "none").exists()


@pytest.mark.parametrize("kind", ["link", "pipe", "socket"])
def test_a_replaced_entry_is_not_written_to(folder: Folder, root: Path, outside: Path, kind: str) -> None:
    if kind == "link":
        (root / "it").symlink_to(outside / "secret")
    else:
        SPECIAL[kind](root / "it")
    folder.replace("it", b"new", syncs=True)
    assert (root / "it").read_bytes() == b"new"
    assert not (root / "it").is_symlink()
    assert (outside / "secret").read_bytes() == SECRET
    assert [path.name for path in root.iterdir()] == ["it"]


def test_a_folder_is_not_replaced_and_nothing_is_left(folder: Folder, root: Path) -> None:
    (root / "it").mkdir()
    with pytest.raises(IsADirectoryError):
        folder.replace("it", b"new")
    assert [path.name for path in root.iterdir()] == ["it"]


def test_appending(folder: Folder, root: Path) -> None:
    for text in (b"one\n", b"two\n"):
        with folder.append("log") as file:
            file.write(text)
    assert (root / "log").read_bytes() == b"one\ntwo\n"
    assert stat.S_IMODE((root / "log").stat().st_mode) == 0o600


def test_renaming_takes_the_entry_itself(folder: Folder, root: Path, outside: Path) -> None:
    (root / "link").symlink_to(outside / "secret")
    (root / "there").write_text("x")
    with pytest.raises(FileExistsError):
        folder.rename("link", "there")
    folder.rename("link", "there", replaces=True)
    assert (root / "there").is_symlink()
    (root / "a").mkdir()
    (root / "a" / "f").write_text("f")
    folder.make("b")
    folder.rename("a", "b/a")
    assert (root / "b" / "a" / "f").read_text() == "f"
    (root / "out").symlink_to(outside)
    with pytest.raises(errors.UnsafeFile):
        folder.rename("there", "out/there")
    assert (outside / "secret").read_bytes() == SECRET


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder of somebody else")
def test_what_root_makes_belongs_to_the_owner_of_the_folder(folder: Folder, root: Path) -> None:
    os.chown(root, 12345, 12346)
    folder.write_new("a", b"")
    folder.replace("b", b"")
    folder.append("c").close()
    folder.make("d/e")
    for name in ("a", "b", "c", "d", "d/e"):
        assert ((root / name).stat().st_uid, (root / name).stat().st_gid) == (12345, 12346), name


def test_lines_have_their_bounds(folder: Folder, root: Path) -> None:
    (root / "file").write_bytes(b"one\n\n" + b"x" * 20 + b"\ntwo\r\nlast")
    assert list(folder.lines("file", most=1000)) == [b"one", b"", b"x" * 20, b"two\r", b"last"]
    assert list(folder.lines("file", most=1000, longest=19)) == [b"one", b"", b"two\r", b"last"]
    assert list(folder.lines("file", most=10)) == [b"one", b""], "a line that was cut is none"
    (root / "long").write_bytes(b"y" * (3 * 1024 * 1024) + b"\nend\n")
    assert list(folder.lines("long", most=1 << 30, longest=2 * 1024 * 1024)) == [b"end"]
    assert [len(line) for line in folder.lines("long", most=1 << 30)] == [3 * 1024 * 1024, 3]
    with pytest.raises(FileNotFoundError):
        list(folder.lines("none", most=1))


def test_a_named_file_is_regular_whatever_leads_to_it(root: Path, outside: Path) -> None:
    (root / "link").symlink_to(outside / "secret")
    with open_named(root / "link") as file:
        assert file.read() == SECRET
    os.mkfifo(root / "pipe")
    (root / "to-pipe").symlink_to("pipe")
    for name in ("pipe", "to-pipe", ""):
        with pytest.raises(errors.UnsafeFile, match="not a regular file"):
            open_named(root / name)
    with pytest.raises(FileNotFoundError):
        open_named(root / "none")
