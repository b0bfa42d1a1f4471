"""docs/providers.md is run: its provider is installed as a package would be, and passes its own page's test."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from leadrope.rehearsal import conformance

PAGE = (Path(__file__).parents[3] / "docs" / "providers.md").read_text()
BLOCKS = re.findall(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
FILES = {name: text for _, name, text in BLOCKS if name}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    info = folder / "parrot-1.0.dist-info"
    info.mkdir(parents=True)
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (toml,) = [text for kind, _, text in BLOCKS if kind == "toml"]
    ((group, entries),) = tomllib.loads(toml)["project"]["entry-points"].items()
    lines = "".join(f"{name} = {value}\n" for name, value in entries.items())
    (info / "entry_points.txt").write_text(f"[{group}]\n{lines}")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: parrot\nVersion: 1.0\n")
    return folder


def test_the_made_up_agent_passes_its_own_tests(site: Path) -> None:
    """In a process of its own, as its author would run them, with the package on the path and nothing else."""
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(site),
        "PYTHONPATH": str(site),
        "PARROT": str(site / "parrot_agent.py"),
    }
    options = ["-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", "--rootdir", str(site), "-c", os.devnull]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(site / "test_parrot.py")],
        env=environ,
        cwd=site,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    promised = [check for check in conformance.CHECKS if set(check.needs) <= {"process", "tools", "approvals"}]
    assert f"\n{len(promised)} passed in" in done.stdout, done.stdout[-500:]


def test_the_plain_example_compiles_and_uses_what_is_there() -> None:
    (code,) = [text for kind, name, text in BLOCKS if kind == "python" and not name]
    names: dict[str, object] = {}
    exec(compile(code, "docs/providers.md", "exec"), names)
    assert "ask" in names


def test_every_check_is_described() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \|(.*)\|$", PAGE.split("## Testing it")[1], re.MULTILINE)
    assert [name for name, _ in rows] == [check.name for check in conformance.CHECKS]
    for check, (_, text) in zip(conformance.CHECKS, rows, strict=True):
        assert all(f"`{need}`" in text for need in check.needs), check.name
