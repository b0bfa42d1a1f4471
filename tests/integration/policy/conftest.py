"""A sandbox that runs many command lines in real bash and tells which of them started the program `evil`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

Started = Callable[[Sequence[str]], list[bool]]
# The real one: a virtual environment may lie in a folder that the box hides.
PYTHON = Path(sys.executable).resolve()

# Every case gets a folder, a home and a PATH of its own making; `evil` knows its marker by an absolute path, so that
# `env -i` and `cd` do not hide it. What a case left running is killed with its session before the next one.
_DRIVER = r"""
import json, os, shutil, signal, subprocess, sys, time
root = sys.argv[1]
marker = f"{root}/marker"
evil = f"#!/bin/sh\n: > {marker}\n"
environ = {"PATH": f"{root}/bin:/usr/bin:/bin", "HOME": f"{root}/home", "LC_ALL": "C.UTF-8"}
dirty = True
started = []
for case in json.load(open(f"{root}/cases.json")):
    if dirty or os.listdir(f"{root}/ws") or os.listdir(f"{root}/home") or os.listdir(f"{root}/bin") != ["evil"]:
        for name in ("ws", "home", "bin"):
            shutil.rmtree(f"{root}/{name}", ignore_errors=True)
            os.makedirs(f"{root}/{name}")
        with open(f"{root}/bin/evil", "w") as file:
            file.write(evil)
        os.chmod(f"{root}/bin/evil", 0o755)
        dirty = False
    if os.path.exists(marker):
        os.unlink(marker)
    child = subprocess.Popen(
        ["/bin/bash", "-c", case], cwd=f"{root}/ws", env=environ, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    try:
        child.wait(10)
    except subprocess.TimeoutExpired:
        pass
    # What it left in the background gets a moment to do its work, and no longer.
    until = time.monotonic() + 1
    try:
        while child.poll() is not None and time.monotonic() < until:
            os.killpg(child.pid, 0)
            time.sleep(0.002)
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()
    started.append(os.path.exists(marker))
with open(f"{root}/started.json", "w") as file:
    json.dump(started, file)
"""


@pytest.fixture
def started_evil(tmp_path: Path) -> Started:
    """Runs command lines in bash, in a sandbox without network, and says of each whether `evil` was started."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        if os.environ.get("CI") == "true":
            pytest.fail("bubblewrap is missing: these commands are not run outside of a sandbox")
        pytest.skip("bubblewrap is missing: these commands are not run outside of a sandbox")

    def run(commands: Sequence[str]) -> list[bool]:
        root = tmp_path / "box"
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        (root / "cases.json").write_text(json.dumps(list(commands)))
        (root / "driver.py").write_text(_DRIVER)
        wall = [
            "--ro-bind",
            "/",
            "/",
            "--dev",
            "/dev",
            "--proc",
            "/proc",
            "--tmpfs",
            "/tmp",
            "--bind",
            str(root),
            str(root),
        ]
        wall += ["--unshare-all", "--die-with-parent", "--cap-drop", "ALL", "--chdir", str(root)]
        subprocess.run(
            [bwrap, *wall, PYTHON, "-I", "-S", str(root / "driver.py"), str(root)],
            check=True,
            timeout=170,
            stdin=subprocess.DEVNULL,
            env={"PATH": "/usr/bin:/bin"},
        )
        found: list[bool] = json.loads((root / "started.json").read_text())
        return found

    return run
