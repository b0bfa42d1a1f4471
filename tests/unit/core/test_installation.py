"""The command that a hint names is the one that works for the way in which leadrope was installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from leadrope.core import installation

PYTHON = "/venv/bin/python"
FOLDER = {"url": "file:///src/lead%20rope", "dir_info": {}}
CLONE = {"url": "file:///src/leadrope", "dir_info": {"editable": True}}
REPOSITORY = {
    "url": "https://git.example.com/leadrope.git",
    "vcs_info": {"vcs": "git", "commit_id": "0" * 40, "requested_revision": "v0.1"},
}
UNPINNED = {"url": "https://git.example.com/leadrope.git", "vcs_info": {"vcs": "git", "commit_id": "0" * 40}}
WHEEL = {"url": "file:///dist/leadrope-0.1.0-py3-none-any.whl", "archive_info": {}}


@pytest.mark.parametrize(
    ("marker", "has_pip", "direct_url", "command"),
    [
        (None, True, None, f"{PYTHON} -m pip install 'leadrope[claude]'"),
        (None, True, CLONE, f"{PYTHON} -m pip install -e '/src/leadrope[claude]'"),
        (None, True, FOLDER, f"{PYTHON} -m pip install '/src/lead rope[claude]'"),
        (
            None,
            True,
            REPOSITORY,
            f"{PYTHON} -m pip install 'leadrope[claude] @ git+https://git.example.com/leadrope.git@v0.1'",
        ),
        (None, True, WHEEL, f"{PYTHON} -m pip install 'leadrope[claude] @ {WHEEL['url']}'"),
        (None, False, None, f"uv pip install --python {PYTHON} 'leadrope[claude]'"),
        (None, False, CLONE, f"uv pip install --python {PYTHON} -e '/src/leadrope[claude]'"),
        ("pipx_metadata.json", True, None, "pipx install --force 'leadrope[claude]'"),
        ("pipx_metadata.json", False, None, "pipx install --force 'leadrope[claude]'"),
        ("pipx_metadata.json", True, FOLDER, "pipx install --force '/src/lead rope[claude]'"),
        ("pipx_metadata.json", True, CLONE, "pipx install --force -e '/src/leadrope[claude]'"),
        ("uv-receipt.toml", False, None, "uv tool install --force 'leadrope[claude]'"),
        (
            "uv-receipt.toml",
            False,
            UNPINNED,
            "uv tool install --force 'leadrope[claude] @ git+https://git.example.com/leadrope.git'",
        ),
        ("uv-receipt.toml", False, CLONE, "uv tool install --force -e '/src/leadrope[claude]'"),
    ],
)
def test_the_command_repeats_the_installation_with_the_extra(
    tmp_path: Path, marker: str | None, has_pip: bool, direct_url: dict[str, Any] | None, command: str
) -> None:
    if marker:
        (tmp_path / marker).touch()
    found = installation.read(tmp_path, PYTHON, direct_url, has_pip=has_pip)
    assert installation.command_for("claude", found) == command


def test_cmd_exe_gets_double_quotes() -> None:
    words = [r"C:\Users\Jane Doe\python.exe", "-m", "pip", "install", "leadrope[claude]"]
    shown = installation.join(words, platform="win32")
    assert shown == r'"C:\Users\Jane Doe\python.exe" -m pip install "leadrope[claude]"'


def test_this_installation_is_recognised() -> None:
    """The interpreter that a hint names is the one that runs leadrope, so the command changes this environment."""
    found = installation.here()
    assert found.python == sys.executable
    line = installation.command_for("otel")
    assert "leadrope[otel]" in line or f"{found.source}[otel]" in line
    if found.tool == "pip":
        dry = f"{line.replace(' install ', ' install --dry-run --no-deps --no-index --no-build-isolation ')} -q"
        subprocess.run(["bash", "-c", dry], check=True, timeout=120, capture_output=True)


def test_no_hint_in_the_package_names_a_fixed_install_command() -> None:
    """Hints go through `command_for`: a pip line in a text would be wrong for pipx, uv and a clone."""
    source = Path(installation.__file__).parents[1]
    found = [
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if "pip install 'leadrope" in path.read_text() and path.name != "installation.py"
    ]
    assert found == []
