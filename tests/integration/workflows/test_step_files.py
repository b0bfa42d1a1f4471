"""The file steps on real files: what they read, write, copy, move and delete, and what the gate is asked."""

from __future__ import annotations

import base64
import errno
import os
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from leadrope.runtime.gate.approvers import Answer
from leadrope.workflows.steps import registry
from step_place import Here, do, outputs_of, refused

# -- reading ----------------------------------------------------------------------------------------------------------


async def test_a_file_is_read_as_text(here: Here, ws: Path) -> None:
    (ws / "sub").mkdir()
    (ws / "sub/a.txt").write_text("größer\n")
    assert await outputs_of(here, "read-file", file_path="sub/a.txt") == {
        "content": "größer\n",
        "path": "sub/a.txt",
        "size": 9,
        "media_type": "text/plain",
        "encoding": "utf-8",
        "binary": False,
    }
    assert [call.name for call in here.asked] == ["Read"]
    for path in ("./sub/../sub/a.txt", str(ws / "sub/a.txt")):
        assert (await outputs_of(here, "read-file", file_path=path))["path"] == "sub/a.txt"


async def test_what_is_no_text_comes_as_base64(here: Here, ws: Path) -> None:
    data = bytes(range(256))
    (ws / "a.bin").write_bytes(data)
    found = await outputs_of(here, "read-file", file_path="a.bin")
    assert (found["encoding"], found["binary"], base64.b64decode(found["content_base64"])) == ("base64", True, data)
    assert ("content" in found, found["media_type"]) == (False, "application/octet-stream")
    (ws / "l.txt").write_bytes("größer".encode("latin-1"))
    assert (await outputs_of(here, "read-file", file_path="l.txt", encoding="latin-1"))["content"] == "größer"
    (ws / "bom.txt").write_bytes(b"\xef\xbb\xbf{}")
    assert (await outputs_of(here, "read-file", file_path="bom.txt"))["content"] == "{}"
    asked = await outputs_of(here, "read-file", file_path="bom.txt", encoding="base64")
    assert (asked["binary"], asked["content"]) == (True, asked["content_base64"])


async def test_a_file_larger_than_the_bound_is_an_error_and_not_cut(here: Here, ws: Path) -> None:
    (ws / "a.txt").write_bytes(b"x" * 1001)
    assert (await refused(here, "read-file", file_path="a.txt", max_bytes=1000)).kind == "too_large"
    assert (await outputs_of(here, "read-file", file_path="a.txt", max_bytes=1001))["size"] == 1001
    for bad in (0, 60 * 1024 * 1024):
        with pytest.raises(msgspec.ValidationError):
            await outputs_of(here, "read-file", file_path="a.txt", max_bytes=bad)


# -- writing ----------------------------------------------------------------------------------------------------------


async def test_a_file_is_written_whole_with_its_folders(here: Here, ws: Path) -> None:
    assert await outputs_of(here, "write-file", file_path="a/b/c.txt", content="größer") == {
        "path": "a/b/c.txt",
        "bytes_written": 8,
    }
    assert (ws / "a/b/c.txt").read_text() == "größer"
    (ws / "a/b/c.txt").chmod(0o750)
    before = (ws / "a/b/c.txt").stat().st_ino
    await outputs_of(here, "write-file", file_path="a/b/c.txt", content={"n": [1, "ä"]})
    assert (ws / "a/b/c.txt").read_text() == '{\n  "n": [\n    1,\n    "ä"\n  ]\n}\n'
    assert stat.S_IMODE((ws / "a/b/c.txt").stat().st_mode) == 0o750
    assert (ws / "a/b/c.txt").stat().st_ino != before, "replaced, and not written over"
    assert [one.name for one in (ws / "a/b").iterdir()] == ["c.txt"]


async def test_append_and_create(here: Here, ws: Path) -> None:
    for text in ("one\n", "two\n"):
        await outputs_of(here, "write-file", file_path="log.txt", content=text, mode="append")
    assert (ws / "log.txt").read_text() == "one\ntwo\n"
    assert (await refused(here, "write-file", file_path="log.txt", content="x", mode="create")).kind == "exists"
    assert (ws / "log.txt").read_text() == "one\ntwo\n"
    await outputs_of(here, "write-file", file_path="new.txt", content=None, mode="create")
    assert (ws / "new.txt").read_bytes() == b""


async def test_bytes_and_other_encodings(here: Here, ws: Path) -> None:
    data = bytes(range(256)) * 4
    text = base64.b64encode(data).decode()
    assert (await outputs_of(here, "write-file", file_path="a.bin", content=text, encoding="base64"))[
        "bytes_written"
    ] == 1024
    assert (ws / "a.bin").read_bytes() == data
    assert len(here.asked[-1].input["content"]) == 1024
    await outputs_of(here, "write-file", file_path="l.txt", content="größer", encoding="latin-1")
    assert (ws / "l.txt").read_bytes() == "größer".encode("latin-1")
    for given in (
        {"content": "no base64!", "encoding": "base64"},
        {"content": "€", "encoding": "latin-1"},
        {"content": "\ud800"},
        {"content": "x", "encoding": "nonsense"},
        {"content": "x", "encoding": "zlib"},
    ):
        assert (await refused(here, "write-file", file_path="l.txt", **given)).kind == "bad_input"
    assert (ws / "l.txt").read_bytes() == "größer".encode("latin-1")


async def test_a_newline_at_the_end_of_a_text(ws: Path) -> None:
    cases: list[tuple[str, dict[str, Any], bytes]] = [
        ("answer", {}, b"answer"),
        ("answer", {"final_newline": True}, b"answer\n"),
        ("line\n", {"final_newline": True}, b"line\n"),
        ("", {"final_newline": True}, b""),
        ("QQ==", {"final_newline": True, "encoding": "base64"}, b"A"),
    ]
    for number, (content, more, wanted) in enumerate(cases):
        await do(Here(ws), "write-file", file_path=f"{number}.txt", content=content, **more)
        assert (ws / f"{number}.txt").read_bytes() == wanted


async def test_the_policy_is_asked_before_anything_is_written(ws: Path) -> None:
    here = Here(ws, {"max_file_size": 100, "blocked_paths": ["keys/"]})
    for given, why in (
        ({"file_path": "a.txt", "content": "x" * 101}, "101 bytes"),
        ({"file_path": ".git/hooks/pre-commit", "content": "x"}, "protected"),
        ({"file_path": ".github/workflows/ci.yml", "content": "x"}, "protected"),
        ({"file_path": "keys/a", "content": "x"}, "blocked"),
    ):
        found = await refused(here, "write-file", **given)
        assert (found.kind, why in found.message) == ("denied", True), found.message
    assert (await refused(here, "read-file", file_path="keys/a")).kind == "denied"
    (ws / "big.bin").write_bytes(b"\xff" * 101)
    assert (await refused(here, "copy-file", source="big.bin", destination="b.bin")).kind == "denied"
    assert [one.name for one in ws.iterdir()] == ["big.bin"]


async def test_what_a_person_changed_is_what_is_written(here: Here, ws: Path) -> None:
    here.edit = {"content": "other", "file_path": str(ws / "other.txt")}
    assert await outputs_of(here, "write-file", file_path="a.txt", content="x") == {
        "path": "other.txt",
        "bytes_written": 5,
    }
    here.edit = {"file_path": "/etc/passwd"}
    assert (await refused(here, "write-file", file_path="a.txt", content="x")).kind == "outside_workspace"
    assert [one.name for one in ws.iterdir()] == ["other.txt"]


async def test_a_path_out_of_a_template_is_not_the_authors_own(here: Here, ws: Path) -> None:
    (ws / "a.txt").write_text("a")
    kind = registry.kind_of("read-file")
    for source, is_own in (("a.txt", True), ("${agent.result}", False)):
        here.sources = {"file_path": source}
        await kind.run(kind.config(file_path="a.txt"), here)
        assert here.owned[-1] is is_own


async def test_a_full_disk_leaves_the_old_file(here: Here, ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's own refusal, given by /dev/full's rule through a limit on the size of files."""
    import resource
    import signal

    (ws / "a.txt").write_text("old")
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        found = await refused(here, "write-file", file_path="a.txt", content="x" * 20_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert found.kind == "no_space"
    assert [(one.name, one.read_text()) for one in ws.iterdir()] == [("a.txt", "old")]


# -- copying, moving, deleting ----------------------------------------------------------------------------------------


async def test_a_copy_keeps_bytes_and_permissions(here: Here, ws: Path) -> None:
    (ws / "run.sh").write_bytes(b"#!/bin/sh\n\xff")
    (ws / "run.sh").chmod(0o4755)
    assert await outputs_of(here, "copy-file", source="run.sh", destination="bin/run.sh") == {
        "source": "run.sh",
        "path": "bin/run.sh",
        "bytes_written": 11,
    }
    assert (ws / "bin/run.sh").read_bytes() == b"#!/bin/sh\n\xff"
    assert stat.S_IMODE((ws / "bin/run.sh").stat().st_mode) == 0o755
    assert [call.name for call in here.asked] == ["Read", "Write"]
    assert (await refused(here, "copy-file", source="run.sh", destination="bin/run.sh")).kind == "exists"
    (ws / "run.sh").write_text("new")
    await outputs_of(here, "copy-file", source="run.sh", destination="bin/run.sh", overwrite=True)
    assert (ws / "bin/run.sh").read_text() == "new"
    assert (await refused(here, "copy-file", source="run.sh", destination="./run.sh")).kind == "bad_input"


async def test_a_copy_has_a_bound(here: Here, ws: Path) -> None:
    with (ws / "large").open("wb") as file:
        file.truncate(50 * 1024 * 1024 + 1)
    assert (await refused(here, "copy-file", source="large", destination="copy")).kind == "too_large"
    assert not (ws / "copy").exists()


async def test_a_move_replaces_only_where_it_may(here: Here, ws: Path) -> None:
    (ws / "a.txt").write_text("a")
    (ws / "b.txt").write_text("b")
    assert (await refused(here, "move-file", source="a.txt", destination="b.txt")).kind == "exists"
    assert ((ws / "a.txt").read_text(), (ws / "b.txt").read_text()) == ("a", "b")
    await outputs_of(here, "move-file", source="a.txt", destination="b.txt", overwrite=True)
    assert (ws / "b.txt").read_text() == "a"
    await outputs_of(here, "move-file", source="b.txt", destination="sub/c.txt")
    assert sorted(str(one.relative_to(ws)) for one in ws.rglob("*")) == ["sub", "sub/c.txt"]
    (ws / ".git").mkdir()
    (ws / ".git/config").write_text("x")
    assert (await refused(here, "move-file", source=".git/config", destination="c")).kind == "denied"
    assert (await refused(here, "move-file", source="sub/c.txt", destination=".git/c")).kind == "denied"
    assert (await refused(here, "move-file", source="gone", destination="c")).kind == "not_found"
    assert not (ws / "c").exists()


async def test_a_move_to_another_disk_is_a_copy_and_a_deletion(
    here: Here, ws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the system's answer is changed here: there is no second disk to be had."""
    (ws / "a.bin").write_bytes(b"\xffa")
    replace = os.replace

    def elsewhere(source: Any, destination: Any, **options: Any) -> None:
        if source == "a.bin":
            raise OSError(errno.EXDEV, "another disk")
        replace(source, destination, **options)

    monkeypatch.setattr(os, "replace", elsewhere)
    await outputs_of(here, "move-file", source="a.bin", destination="mnt/a.bin")
    assert (ws / "mnt/a.bin").read_bytes() == b"\xffa"
    assert not (ws / "a.bin").exists()


async def test_deleting_asks_as_rm_does(here: Here, ws: Path) -> None:
    (ws / "a b.txt").write_text("a")
    found = await refused(here, "delete-file", file_path="a b.txt")
    assert (found.kind, "rm needs approval" in found.message) == ("denied", True)
    assert (ws / "a b.txt").exists()
    here.says_yes = True
    assert await outputs_of(here, "delete-file", file_path="a b.txt") == {"path": "a b.txt", "deleted": True}
    assert here.asked[-1].input == {"command": f"rm -- '{ws}/a b.txt'"}
    assert (await refused(here, "delete-file", file_path="a b.txt")).kind == "not_found"
    asked = len(here.asked)
    assert (await outputs_of(here, "delete-file", file_path="a b.txt", missing_ok=True))["deleted"] is False
    assert len(here.asked) == asked
    (ws / "keep").write_text("x")
    blocked = Here(ws, {"blocked_commands": ["rm"]})
    blocked.says_yes = True
    assert (await refused(blocked, "delete-file", file_path="keep")).kind == "denied"
    here.edit = {"command": "rm -rf x"}
    assert (await refused(here, "delete-file", file_path="keep")).kind == "denied"
    assert (ws / "keep").exists()


async def test_a_deletion_that_nobody_can_approve_waits_for_a_person(shop: Any) -> None:
    (shop.ws / "old.log").write_text("x")
    waiting = await shop.run("## Steps\n### clean\n- type: delete-file\n- file_path: old.log\n")
    assert (waiting.outcome, (shop.ws / "old.log").exists()) == ("waiting", True)
    done = await shop.resume(waiting.approvals[0].id, answer=Answer(approved=True))
    assert (done.outcome, (shop.ws / "old.log").exists()) == ("succeeded", False)
