"""In the sandbox a masked program is not started by any of the ways that are known to start it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from leadrope.process import child as processes
from leadrope.process.sandbox import availability
from leadrope.process.sandbox.values import Sandbox

DATA = Path(__file__).parents[2] / "data" / "commands" / "evil.yaml"
# The program that the commands start, and how it is seen: it leaves a mark.
DRIVER = r"""
import json, os, shutil, signal, subprocess, sys, time
root = sys.argv[1]
marker = f"{root}/marker"
environ = {"PATH": f"{root}/bin:/usr/bin:/bin", "HOME": f"{root}/home", "LC_ALL": "C.UTF-8"}
started = []
for case in json.load(open(f"{root}/cases.json")):
    for name in ("ws", "home"):
        shutil.rmtree(f"{root}/{name}", ignore_errors=True)
        os.makedirs(f"{root}/{name}", exist_ok=True)
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
    if os.path.exists(marker):
        started.append(case)
        os.unlink(marker)
print(json.dumps({"started": started}))
"""


def commands() -> list[str]:
    corpus: dict[str, list[Any]] = msgspec.yaml.decode(DATA.read_bytes())
    cases = [case for cases in corpus.values() for case in cases]
    return [
        case if isinstance(case, str) else case.get("before", "") * case.get("times", 0) + case["run"] for case in cases
    ]


@pytest.mark.skipif(
    shutil.which("bwrap") is None and os.environ.get("CI", "").lower() != "true", reason="bubblewrap is not installed"
)
@pytest.mark.parametrize("is_masked", [True, False])
async def test_none_of_the_commands_starts_a_masked_program(tmp_path: Path, is_masked: bool) -> None:
    root, run_dir = tmp_path / "work", tmp_path / "run"
    for folder in (root / "bin", root / "ws", root / "home", run_dir, tmp_path / "user"):
        folder.mkdir(parents=True)
    (root / "bin" / "evil").write_text(f"#!/bin/sh\n: > {root}/marker\n")
    (root / "bin" / "evil").chmod(0o755)
    # Unmasked, a few are enough to show that the mask is what stops them.
    (root / "cases.json").write_text(json.dumps(commands() if is_masked else ["evil", "sh -c evil", "x=evil; $x"]))
    (root / "driver.py").write_text(DRIVER)
    python = shutil.which("python3", path="/usr/bin:/bin") or "/usr/bin/python3"
    spec = Sandbox(
        workspace=str(root),
        run_dir=str(run_dir),
        home=str(tmp_path / "user"),
        binary=python,
        path=f"{root}/bin:/usr/bin:/bin",
        masked=("evil", f"{root}/bin/evil") if is_masked else (),
        network="model-only",
    )
    box = availability.prepare(spec)
    argv = [python, "-I", "-S", str(root / "driver.py"), str(root)]
    child = await processes.start(
        argv, env={"PATH": spec.path, **box.env}, cwd=str(root), spool_dir=str(run_dir), box=box.argv
    )
    said: list[bytes | bytearray] = []
    while lines := await child.read():
        said += [line for line in lines if isinstance(line, bytes | bytearray)]
    ending = await child.end(polite_s=5)
    assert ending.exit_code == 0, child.stderr_tail
    started = json.loads(said[-1])["started"]
    assert started == ([] if is_masked else ["evil", "sh -c evil", "x=evil; $x"])
