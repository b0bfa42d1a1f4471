"""The scripts that make README's pictures work on today's leadrope, so that the pictures can be made again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def make(script: str, target: Path) -> None:
    done = subprocess.run(
        [sys.executable, f"tools/{script}", str(target)],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "LANG": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=False,
        timeout=170,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_demo_is_recorded(claude: str, tmp_path: Path) -> None:
    make("demo_recording.py", tmp_path / "demo.svg")
    text = (tmp_path / "demo.svg").read_text()
    lines = [element.text for element in ET.fromstring(text).iter("{http://www.w3.org/2000/svg}text")]
    assert "leadrope demo" in "".join(filter(None, lines))
    assert any("Allow?" in (line or "") for line in lines)
    assert any(line == "y" for line in lines), "the answer is in the recording"
    assert "+    return a + b" in lines
    assert "leadrope-demo-" not in text, "no scratch folder"
    assert len(text) < 150_000


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
def test_the_page_of_a_run_is_photographed(claude: str, tmp_path: Path) -> None:
    make("page_picture.py", tmp_path / "page.png")
    data = (tmp_path / "page.png").read_bytes()
    assert data.startswith(b"\x89PNG")
    assert len(data) < 150_000
