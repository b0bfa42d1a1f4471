"""A git that waits for a pipe is stopped soon, and says so."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from leadrope import errors
from leadrope.runs.workspace import git_folder
from leadrope.runs.workspace.git import Git

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says where a process sleeps")


async def test_a_pipe_in_the_place_of_a_file_ends_git(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "one.txt")
    with pytest.raises(errors.GitFailed, match="a file that it reads has become a pipe"):
        await Git().run("hash-object", "--no-filters", "one.txt", cwd=tmp_path)


@pytest.mark.parametrize(("command", "waits"), [("cat pipe", True), ("cat pipe; true", True), ("exec sleep 60", False)])
async def test_where_a_process_sleeps(tmp_path: Path, command: str, waits: bool) -> None:
    os.mkfifo(tmp_path / "pipe")
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", f"echo; {command}", cwd=tmp_path, stdout=asyncio.subprocess.PIPE, start_new_session=True
    )
    try:
        assert process.stdout is not None
        await process.stdout.readline()
        async with asyncio.timeout(30):
            while waits and not git_folder.waits_for_pipe(process.pid):  # noqa: ASYNC110  # another process
                await asyncio.sleep(0.01)
        assert git_folder.waits_for_pipe(process.pid) is waits
    finally:
        os.killpg(process.pid, 9)
        await process.wait()


def test_a_process_that_is_gone_waits_for_nothing() -> None:
    assert not git_folder.waits_for_pipe(2**22 + 1)
