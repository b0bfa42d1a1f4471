"""The private folder of a session: resumed, forked, begun anew and tidied, whatever an agent left in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from leadrope import errors
from leadrope.core.config import Config
from leadrope.core.request import RunRequest
from leadrope.providers import base
from leadrope.providers.claude_code import provider

OLD, NEW = "aaaa1111-0000-4000-8000-000000000000", "bbbb2222-0000-4000-8000-000000000000"
SAID = '{"type":"summary"}\n{"type":"user"}\n'


class Site:
    def __init__(self, folder: Path) -> None:
        self.place = base.StartContext(
            run_id="r",
            environ={},
            ambient={},
            settings={},
            home=folder / "home",
            run_dir=folder / "run",
            launch_dir=folder / "launch",
            config=Config(),
        )
        self.old = folder / "home" / "sessions" / OLD / "config"
        self.new = folder / "home" / "sessions" / NEW / "config"
        self.projects = self.old / "projects"
        self.transcript = self.projects / "-ws" / f"{OLD}.jsonl"
        self.transcript.parent.mkdir(parents=True)
        self.transcript.write_text(SAID)
        self.outside = folder / "outside"
        self.outside.mkdir()
        (self.outside / f"{OLD}.jsonl").write_text(SAID)
        (self.outside / "key").write_text("private")
        self.notices: list[str] = []

    def folder(self, session_id: str | None, *, attempt: int = 1, **fields: object) -> Path:
        request = RunRequest(prompt="p", **fields)  # type: ignore[arg-type]
        return provider.config_folder(request, self.place, session_id, attempt=attempt, notices=self.notices)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_session_is_resumed_in_its_own_folder(site: Site) -> None:
    assert site.folder(None, resume=OLD) == site.old
    assert site.folder(NEW) == site.new
    assert site.folder(NEW, persist_session=False) == site.place.launch_dir / "config"
    with pytest.raises(errors.BadValue, match="no session"):
        site.folder(None, resume="cccc")


@pytest.mark.parametrize("trap", ["pipe", "link", "hard link", "folder", "folder link", "empty", "endless"])
def test_a_transcript_that_is_none_is_lost(site: Site, trap: str) -> None:
    site.transcript.unlink()
    match trap:
        case "pipe":
            os.mkfifo(site.transcript)
        case "link":
            site.transcript.symlink_to(site.outside / f"{OLD}.jsonl")
        case "hard link":
            os.link(site.outside / f"{OLD}.jsonl", site.transcript)
        case "folder":
            site.transcript.mkdir()
        case "folder link":
            site.transcript.parent.rmdir()
            site.transcript.parent.symlink_to(site.outside)
        case "endless":
            with site.transcript.open("wb") as file:
                file.truncate(1 << 42)
    with pytest.raises(errors.SessionLost):
        site.folder(None, resume=OLD)


def test_a_fork_has_the_transcripts_and_nothing_that_leads_elsewhere(site: Site) -> None:
    (site.projects / "leak").symlink_to(site.outside)
    (site.projects / "-ws" / "key.jsonl").symlink_to(site.outside / "key")
    os.link(site.outside / "key", site.projects / "hard.jsonl")
    os.mkfifo(site.projects / "pipe")
    assert site.folder(NEW, resume=OLD, fork=True) == site.new
    found = sorted(path.relative_to(site.new).as_posix() for path in site.new.rglob("*"))
    assert found == ["projects", "projects/-ws", f"projects/-ws/{OLD}.jsonl"]
    assert (site.new / "projects" / "-ws" / f"{OLD}.jsonl").read_text() == SAID
    assert [notice.removeprefix(f"{site.projects}/").split(",")[0].split(" (")[0] for notice in site.notices] == [
        "-ws/key.jsonl is a link",
        "hard.jsonl has a second name",
        "leak is a link",
        "pipe is a pipe",
    ]


def test_a_fork_that_is_too_large_leaves_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "FORKED_BYTES", 10)
    with pytest.raises(errors.UnsafeFile, match="holds more than 10 bytes"):
        site.folder(NEW, resume=OLD, fork=True)
    assert list(site.new.iterdir()) == []


def test_what_a_failed_attempt_left_is_removed_and_nothing_else(site: Site) -> None:
    (site.new / "deep").mkdir(parents=True)
    (site.new / "deep" / "link").symlink_to(site.outside)
    with pytest.raises(errors.BadValue, match="in use"):
        site.folder(NEW)
    assert site.folder(NEW, attempt=2) == site.new
    assert not site.new.exists()
    assert (site.outside / "key").read_text() == "private"


def test_tidying_keeps_the_transcripts_alone(site: Site) -> None:
    (site.old / "cache" / "deep").mkdir(parents=True)
    (site.old / "cache" / "link").symlink_to(site.outside)
    (site.old / "link").symlink_to(site.outside)
    os.mkfifo(site.old / "pipe")
    launch = base.Launch(argv=("x",), env={}, cwd="/", session_id=OLD, model="m", config_dir=str(site.old))
    provider.ClaudeCode().tidy(launch)
    assert [path.name for path in site.old.iterdir()] == ["projects"]
    assert (site.outside / "key").read_text() == "private"
    site.projects.rename(site.place.home / "moved")
    site.projects.symlink_to(site.outside)
    provider.ClaudeCode().tidy(launch)
    assert list(site.old.iterdir()) == []
    assert (site.outside / "key").read_text() == "private"
