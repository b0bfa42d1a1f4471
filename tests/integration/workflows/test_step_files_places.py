"""Where the file steps never go: what is not a plain file of the workspace, and swaps while they are at work."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from leadrope.workflows.steps.base import StepFailed
from leadrope.workflows.tools import workspace_files
from step_place import Here, outputs_of, refused

# -- what is not a plain file of the workspace -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("missing.txt", "not_found"),
        ("missing/a.txt", "not_found"),
        ("a.txt/b.txt", "not_found"),
        ("", "bad_input"),
        ("  ", "bad_input"),
        ("a\0b", "bad_input"),
        ("x" * 300, "bad_input"),
        ("~/a.txt", "bad_input"),
        (".", "not_a_file"),
        ("sub", "not_a_file"),
        ("a.txt/", "not_a_file"),
        ("../outside/secret.txt", "outside_workspace"),
        ("sub/../../outside/secret.txt", "outside_workspace"),
        ("/etc/passwd", "outside_workspace"),
        ("link.txt", "outside_workspace"),
        ("linked/secret.txt", "outside_workspace"),
        ("linked/../outside/secret.txt", "outside_workspace"),
        ("hop/hop/secret.txt", "outside_workspace"),
        ("round", "not_a_file"),
        ("pipe", "not_a_file"),
        ("socket", "not_a_file"),
    ],
)
async def test_nothing_but_a_plain_file_of_the_workspace_is_opened(
    here: Here, ws: Path, monkeypatch: pytest.MonkeyPatch, path: str, kind: str
) -> None:
    """Within a second or so: a pipe that nobody writes to would be waited for."""
    (ws / "a.txt").write_text("a")
    (ws / "sub").mkdir()
    (ws / "link.txt").symlink_to("../outside/secret.txt")
    (ws / "linked").symlink_to(ws.parent / "outside")
    (ws / "hop").symlink_to("sub")
    (ws / "sub/hop").symlink_to("../../outside")
    (ws / "round").symlink_to("round")
    os.mkfifo(ws / "pipe")
    monkeypatch.chdir(ws)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        async with asyncio.timeout(20):
            for name, given in (
                ("read-file", {"file_path": path}),
                ("write-file", {"file_path": path, "content": "x"}),
                ("write-file", {"file_path": path, "content": "x", "mode": "append"}),
                ("copy-file", {"source": path, "destination": "new.txt"}),
                ("move-file", {"source": path, "destination": "new.txt"}),
                ("delete-file", {"file_path": path}),
            ):
                here.says_yes = True
                if kind == "not_found" and name == "write-file" and path != "a.txt/b.txt":
                    continue
                found = await refused(here, name, **given)
                assert found.kind == kind, (name, str(found))
                assert found.hint or kind == "bad_input"
    assert (ws.parent / "outside/secret.txt").read_text() == "secret"
    assert not (ws / "new.txt").exists()
    assert sorted(one.name for one in (ws.parent / "outside").iterdir()) == ["secret.txt"]


async def test_a_device_is_not_opened(here: Here, ws: Path) -> None:
    try:
        os.mknod(ws / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root makes devices")
    for name, given in (("read-file", {}), ("write-file", {"content": "x"})):
        found = await refused(here, name, file_path="null", **given)
        assert (found.kind, "a device" in found.message) == ("not_a_file", True)


async def test_links_inside_the_workspace_are_followed_and_both_names_are_judged(here: Here, ws: Path) -> None:
    (ws / "real.txt").write_text("real")
    (ws / "link.txt").symlink_to("real.txt")
    assert (await outputs_of(here, "read-file", file_path="link.txt"))["path"] == "real.txt"
    assert [call.input["file_path"] for call in here.asked] == [str(ws / "link.txt"), str(ws / "real.txt")]
    await outputs_of(here, "write-file", file_path="link.txt", content="new")
    assert (ws / "link.txt").is_symlink()
    assert (ws / "real.txt").read_text() == "new"
    (ws / ".git").mkdir()
    (ws / "hooks").symlink_to(".git")
    (ws / "leadrope.toml").symlink_to("settings.toml")
    for path in ("hooks/pre-commit", "leadrope.toml"):
        assert (await refused(here, "write-file", file_path=path, content="x")).kind == "denied"
    assert list((ws / ".git").iterdir()) == []


# -- somebody else at the same time -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "what", ["read-file", "write-file", "append", "create", "copy-file", "move-file", "delete-file"]
)
async def test_a_folder_swapped_for_a_link_after_the_yes_is_not_followed(here: Here, ws: Path, what: str) -> None:
    (ws / "sub").mkdir()
    (ws / "sub/secret.txt").write_text("inside")
    (ws / "a.txt").write_text("a")
    here.says_yes = True

    def swap() -> None:
        if not (ws / "sub").is_symlink():
            (ws / "sub").rename(ws / "was")
            (ws / "sub").symlink_to(ws.parent / "outside")

    here.meanwhile = swap
    given: dict[str, Any] = {"file_path": "sub/secret.txt"}
    if what in ("write-file", "append", "create"):
        name = "sub/secret.txt" if what != "create" else "sub/new.txt"
        given = {"file_path": name, "content": "x", "mode": what if what != "write-file" else "overwrite"}
    if what in ("copy-file", "move-file"):
        given = {"source": "a.txt", "destination": "sub/secret.txt", "overwrite": True}
    found = await refused(here, what if what.endswith("-file") else "write-file", **given)
    assert found.kind == "changed"
    assert [(one.name, one.read_text()) for one in (ws.parent / "outside").iterdir()] == [("secret.txt", "secret")]
    assert (ws / "was/secret.txt").read_text() == "inside"


async def test_a_file_swapped_for_a_link_after_the_yes_is_not_followed(here: Here, ws: Path) -> None:
    (ws / "a.txt").write_text("a")

    def swap() -> None:
        if not (ws / "a.txt").is_symlink():
            (ws / "a.txt").unlink()
            (ws / "a.txt").symlink_to(ws.parent / "outside/secret.txt")

    here.meanwhile = swap
    for name, given in (("read-file", {}), ("write-file", {"content": "x"})):
        assert (await refused(here, name, file_path="a.txt", **given)).kind in ("not_a_file", "changed")
        (ws / "a.txt").unlink()
        (ws / "a.txt").write_text("a")
    assert (ws.parent / "outside/secret.txt").read_text() == "secret"


@pytest.mark.fault
async def test_no_swap_at_any_moment_leads_out(here: Here, ws: Path, fault_count: int) -> None:
    (ws / "real").mkdir()
    (ws / "real/secret.txt").write_text("inside")
    (ws / "sub").symlink_to("real")
    done = threading.Event()

    def swaps() -> None:
        targets = [ws.parent / "outside", Path("real")]
        turn = 0
        while not done.is_set():
            turn += 1
            (ws / f"link{turn % 2}").symlink_to(targets[turn % 2])
            (ws / f"link{turn % 2}").rename(ws / "sub")

    thread = threading.Thread(target=swaps, name="swaps")
    thread.start()
    seen: set[str] = set()
    try:
        for _ in range(fault_count * 40):
            try:
                content = workspace_files.read(workspace_files.find(ws, "sub/secret.txt"), 1000)
                seen.add(content.data.decode())
                workspace_files.write(workspace_files.find(ws, "sub/written.txt"), b"x", "overwrite")
            except StepFailed as error:
                seen.add(error.kind)
    finally:
        done.set()
        thread.join()
    assert seen <= {"inside", "outside_workspace", "changed", "not_found"}, seen
    assert [one.name for one in (ws.parent / "outside").iterdir()] == ["secret.txt"]


async def test_readers_never_see_half_of_a_file(here: Here, ws: Path) -> None:
    (ws / "a.txt").write_text("a" * 200_000)
    stopped = threading.Event()
    seen: set[tuple[str, int]] = set()

    def look() -> None:
        while not stopped.is_set():
            text = (ws / "a.txt").read_text()
            seen.add((text[:1] + text[-1:], len(text)))

    thread = threading.Thread(target=look, name="look")
    thread.start()
    try:
        for number in range(40):
            await outputs_of(here, "write-file", file_path="a.txt", content="ab"[number % 2] * 200_000)
    finally:
        stopped.set()
        thread.join()
    assert seen <= {("aa", 200_000), ("bb", 200_000)}


async def test_of_many_that_create_the_same_file_one_does(here: Here, ws: Path) -> None:
    results = await asyncio.gather(
        *(outputs_of(here, "write-file", file_path="a.txt", content=str(number), mode="create") for number in range(8)),
        return_exceptions=True,
    )
    won = [number for number, result in enumerate(results) if not isinstance(result, BaseException)]
    assert len(won) == 1
    assert (ws / "a.txt").read_text() == str(won[0])
    assert [one.name for one in ws.iterdir()] == ["a.txt"]
