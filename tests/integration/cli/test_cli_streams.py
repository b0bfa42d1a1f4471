"""Standard streams that are closed or full: the run goes on, and no file of ours takes their place."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from leadrope.rehearsal import write_executable


class Caller:
    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.workspace = folder / "ws"
        self.workspace.mkdir()
        steps = [{"initialize": True}, {"await_user": True}, {"init": True}, {"text": "Hello."}, {"result": True}]
        self._claude = write_executable(folder / "claude", [*steps, {"await_eof": True}])
        self._key = folder / "key"
        self._key.write_text("sk-ant-rehearsal-0000000000000000")

    def run(self, redirections: str) -> subprocess.CompletedProcess[bytes]:
        """`leadrope run` as a shell starts it."""
        words = ["run", "go", "--binary", str(self._claude), "--credential-file", str(self._key), "--sandbox", "off"]
        return subprocess.run(
            ["sh", "-c", f'exec "$@" {redirections}', "sh", sys.executable, "-m", "leadrope.cli.main", *words],
            env=dict(os.environ) | {"LEADROPE_HOME": str(self.home)},
            cwd=self.workspace,
            capture_output=True,
            check=False,
            start_new_session=True,
        )


@pytest.fixture
def caller(tmp_path: Path) -> Caller:
    return Caller(tmp_path)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_nobody_elses(caller: Caller, closed: str) -> None:
    done = caller.run(closed)
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False)
    assert done.stdout == (b"" if ">&- 2" in closed or closed == ">&-" else b"Hello.\n")
    store = (caller.home / "leadrope.db").read_bytes()
    assert store.startswith(b"SQLite format 3\0")


def test_a_full_disk_is_told_in_one_line(caller: Caller) -> None:
    done = caller.run(">/dev/full")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(b"leadrope: nothing more could be written")
    assert b"Traceback" not in done.stderr
