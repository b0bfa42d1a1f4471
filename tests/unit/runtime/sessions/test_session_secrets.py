"""What a session keeps of its secrets: digests under a key of the machine. An export relies on them, or says so."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec
import pytest

from leadrope.core import home
from leadrope.core.secrets.redaction import Redactor
from leadrope.runtime.sessions import session_secrets
from leadrope.runtime.sessions.files import SessionInfo, Sessions, write_info

A, B = (f"{char * 8}-0000-4000-8000-000000000000" for char in "ab")
SECRET, OTHER = "opensesame-one", 'second "secret"\nof two lines'


@pytest.fixture
def sessions(tmp_path: Path) -> Sessions:
    return Sessions(tmp_path / "home")


def run(sessions: Sessions, name: str, *secrets: str, forked_from: str | None = None) -> str:
    """As a run does: digests first, then the agent's own record, which holds all the secrets."""
    folder = home.ensure(sessions.folder / name)
    origin = sessions.folder / forked_from if forked_from else None
    told = session_secrets.remember(sessions.home, folder, Redactor(secrets), origin=origin)
    write_info(folder, SessionInfo(id=name, title="a title"))
    native = home.ensure(folder / "config" / "projects" / "-ws") / f"{name}.jsonl"
    with native.open("ab") as file:
        for secret in secrets:
            file.write(msgspec.json.encode({"type": "user", "said": f"<{secret}>"}) + b"\n")
    (folder / "transcript.jsonl").write_text('{"time":1,"run_id":"r","role":"user","text":"hello"}\n')
    return told


def exported(sessions: Sessions, name: str = A) -> str:
    return b"".join(sessions.export(name)).decode()


def test_an_export_masks_what_runs_of_the_session_have_known(sessions: Sessions) -> None:
    assert run(sessions, A, SECRET) == ""
    assert run(sessions, A, OTHER) == ""
    text = exported(sessions)
    assert text.count("<[redacted]>") == 2
    assert "opensesame" not in text
    assert "second" not in text


def test_a_fork_knows_the_secrets_of_both(sessions: Sessions) -> None:
    run(sessions, A, SECRET)
    run(sessions, B, OTHER, forked_from=A)
    copied = (sessions.folder / A / "config/projects/-ws" / f"{A}.jsonl").read_bytes()
    (sessions.folder / B / "config/projects/-ws" / "copy.jsonl").write_bytes(copied)
    text = exported(sessions, B)
    assert text.count("<[redacted]>") == 2
    assert "opensesame" not in text


def test_neither_the_file_nor_the_key_is_for_others(sessions: Sessions) -> None:
    run(sessions, A, SECRET, OTHER)
    for path in (sessions.home / "machine.key", sessions.folder / A / "secrets.json"):
        assert path.stat().st_mode & 0o777 == 0o600
        assert not any(word in path.read_bytes() for word in (b"opensesame", b"second"))
    assert [path.name for path in sessions.home.iterdir()].count("machine.key") == 1
    assert not list(sessions.home.glob(".machine*"))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "is missing"),
        (b"", "is damaged"),
        (b"{}", "is damaged"),
        (b'{"version":1,"key":"0","digests":[{"length":3,"head":"101","digest":"no hex"}]}', "is damaged"),
        (b'{"version":2,"key":"0","digests":[]}', "format 2"),
        (b'{"version":1,"key":"0","digests":[]}', "another machine.key"),
    ],
)
def test_without_sound_digests_the_agents_record_is_left_out(
    sessions: Sessions, caplog: pytest.LogCaptureFixture, content: bytes | None, told: str
) -> None:
    run(sessions, A, SECRET)
    path = sessions.folder / A / "secrets.json"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    text = exported(sessions)
    assert "opensesame" not in text
    assert "config/projects" not in text
    assert "hello" in text, "leadrope's own transcript is redacted already"
    assert "left out" in caplog.text
    assert told in caplog.text
    # A later run of the session does not make good what is lost, and says so once.
    assert told in run(sessions, A, OTHER)
    assert run(sessions, A, OTHER) == ""
    assert "config/projects" not in exported(sessions)


def test_a_damaged_key_is_told_and_kept(sessions: Sessions, caplog: pytest.LogCaptureFixture) -> None:
    run(sessions, A, SECRET)
    (sessions.home / "machine.key").write_bytes(b"short")
    assert "config/projects" not in exported(sessions)
    assert "machine.key is damaged" in caplog.text
    assert "is damaged" in run(sessions, A, OTHER)
    assert (sessions.home / "machine.key").read_bytes() == b"short"
    assert not (sessions.folder / A / "secrets.json").exists(), "one that lacks a secret must not be relied on"


def test_an_imported_session_can_be_exported_again(sessions: Sessions, tmp_path: Path) -> None:
    run(sessions, A, SECRET)
    other = Sessions(tmp_path / "other")
    other.import_(sessions.export(A))
    again = exported(other)
    assert "<[redacted]>" in again
    assert again == exported(sessions)


def test_a_line_stays_json_where_a_secret_takes_half_of_an_escape(sessions: Sessions) -> None:
    run(sessions, A, "nabcdefgh")
    native = sessions.folder / A / "config/projects/-ws" / f"{A}.jsonl"
    native.write_bytes(msgspec.json.encode({"text": "a\nabcdefgh nabcdefgh"}) + b"\n")
    (line,) = [row for row in map(msgspec.json.decode, sessions.export(A)) if row.get("file", "").startswith("config")]
    assert msgspec.json.decode(line["line"]) == {"text": "a\nabcdefgh [redacted]"}


def test_many_processes_make_one_key(tmp_path: Path) -> None:
    found: set[bytes] = set()
    threads = [threading.Thread(target=lambda: found.add(session_secrets.machine_key(tmp_path))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 1
    assert found == {(tmp_path / "machine.key").read_bytes()}
