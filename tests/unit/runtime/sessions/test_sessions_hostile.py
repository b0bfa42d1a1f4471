"""Sessions whose agent filled its folder with traps: listed, shown, exported, rebuilt and deleted all the same."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from leadrope import RunRequest
from leadrope.core import home
from leadrope.runtime.sessions import files, session_secrets
from leadrope.runtime.sessions.files import ExportLine, SessionInfo, Sessions, TranscriptLine

ID = "aaaa1111-0000-4000-8000-000000000000"
SECRET = b'{"the key": "of the user"}\n'
NATIVE = f"config/projects/-ws/{ID}.jsonl"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    (tmp_path / "outside" / "sub").mkdir(parents=True)
    (tmp_path / "outside" / "key.jsonl").write_bytes(SECRET)
    (tmp_path / "outside" / "sub" / "key.jsonl").write_bytes(SECRET)
    return tmp_path / "outside"


@pytest.fixture
def sessions(tmp_path: Path) -> Sessions:
    made = Sessions(tmp_path / "home")
    folder = home.ensure(made.folder / ID)
    files.write_info(folder, SessionInfo(id=ID, last_used=1.0, title="one"))
    line = TranscriptLine(time=1.0, run_id="r", role="user", text="hello")
    (folder / "transcript.jsonl").write_bytes(msgspec.json.encode(line) + b"\n")
    native = folder / NATIVE
    native.parent.mkdir(parents=True)
    native.write_text('{"type":"user"}\n')
    session_secrets.write(session_secrets.machine_key(made.home), folder)
    return made


def link(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "key.jsonl")


def folder_link(path: Path, outside: Path) -> None:
    path.symlink_to(outside)


def hard_link(path: Path, outside: Path) -> None:
    os.link(outside / "key.jsonl", path)


def pipe(path: Path, outside: Path) -> None:
    os.mkfifo(path)


def folder(path: Path, outside: Path) -> None:
    path.mkdir()


TRAPS = (link, folder_link, hard_link, pipe, folder)
PLACES = (
    *("transcript.jsonl", "session.json", "secrets.json"),
    *("config", "config/projects", NATIVE, "config/projects/new.jsonl"),
)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("trap", TRAPS)
def test_nothing_is_followed_and_nothing_is_waited_for(
    sessions: Sessions, outside: Path, trap: Callable[[Path, Path], None], place: str
) -> None:
    path = sessions.folder / ID / place
    if path.exists():
        path.rename(sessions.folder.parent / "moved")
    trap(path, outside)
    assert [info.id for info in sessions.listing()] == [ID]
    assert all(SECRET.decode() not in entry.text for entry in sessions.transcript(ID))
    exported = b"".join(sessions.export(ID))
    assert b"of the user" not in exported
    if place.startswith("config"):
        assert b"hello" in exported
        rebuilt = sessions.rebuilt(RunRequest(prompt="go on", resume=ID))
        assert rebuilt is not None
        assert "hello" in rebuilt.prompt
        assert not (sessions.folder / ID / "config").exists()
    sessions.delete(ID)
    assert not (sessions.folder / ID).exists()
    assert sorted(found.relative_to(outside).as_posix() for found in outside.rglob("*")) == [
        "key.jsonl",
        "sub",
        "sub/key.jsonl",
    ]
    assert (outside / "key.jsonl").read_bytes() == SECRET


def test_a_session_that_is_a_link_is_none(sessions: Sessions, outside: Path) -> None:
    (sessions.folder / "bbbb2222").symlink_to(outside)
    assert [info.id for info in sessions.listing()] == [ID]
    assert sessions.prune(0.0) == [ID]
    assert (outside / "key.jsonl").exists()


def test_an_export_during_swaps_holds_nothing_of_the_outside(sessions: Sessions, outside: Path) -> None:
    projects, aside = sessions.folder / ID / "config" / "projects", sessions.folder / ID / "config" / "aside"
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            projects.rename(aside)
            projects.symlink_to(outside)
            projects.unlink()
            aside.rename(projects)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(200):
            assert b"of the user" not in b"".join(sessions.export(ID))
    finally:
        stop.set()
        thread.join()


def test_a_transcript_without_an_end_is_read_up_to_a_limit(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_BYTES", 80 * 1024 * 1024)
    native = sessions.folder / ID / NATIVE
    with native.open("r+b") as file:
        file.truncate(3 << 30)
    names = [msgspec.json.decode(line, type=ExportLine).file for line in list(sessions.export(ID))[1:]]
    assert names == ["transcript.jsonl", NATIVE]
