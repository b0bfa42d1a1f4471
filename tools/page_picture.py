"""Takes the picture of a run's page in README: a real run, exported as HTML and shown by Chromium.

    python tools/page_picture.py [FILE]            (`make pictures`; needs chromium)

The model is a script on loopback. Chromium runs without a network.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from leadrope.rehearsal import ModelServer

ROOT = Path(__file__).resolve().parents[1]
WIDTH, HEIGHT = 1180, 1150
PROMPT = "add() in calc.py gives wrong answers. Correct it, run the tests and push."
FILES = {
    "calc.py": 'def add(a, b):\n    """The sum of both."""\n    return a - b\n',
    "test_calc.py": (
        "import unittest\n\nfrom calc import add\n\n\nclass AddTest(unittest.TestCase):\n"
        "    def test_add(self):\n        self.assertEqual(add(2, 3), 5)\n"
    ),
}


def script(folder: Path) -> list[dict[str, object]]:
    path = str(folder / "calc.py")
    edit = {"file_path": path, "old_string": "return a - b", "new_string": "return a + b"}
    run = {"command": "python3 -m unittest -q", "description": "Run the unit tests"}
    push = {"command": "git push origin main", "description": "Publish the change"}
    return [
        {"text": "I will look at calc.py first.", "tool": {"name": "Read", "input": {"file_path": path}}},
        {"text": "add() subtracts its arguments.", "tool": {"name": "Edit", "input": edit}},
        {"text": "Now the tests.", "tool": {"name": "Bash", "input": run}},
        {"text": "They pass. I will push.", "tool": {"name": "Bash", "input": push}},
        {"text": "`add()` adds now, and the tests pass. I was not allowed to push: please do that yourself."},
    ]


def page(place: Path) -> str:
    """The HTML of one run, as `leadrope export` writes it."""
    folder = place / "calculator"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    environ = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(place),
        "LANG": "C.UTF-8",
        "ANTHROPIC_API_KEY": "sk-ant-rehearsal-0000000000000000",
    }
    git = ["git", "-c", "user.name=Jane", "-c", "user.email=jane@localhost"]
    for words in ([*git, "init", "-q"], [*git, "add", "."], [*git, "commit", "-qm", "A calculator"]):
        subprocess.run(words, cwd=folder, env=environ, check=True)
    with ModelServer.in_thread(script(folder), strict=False) as model:
        flags = ["--mode", "edit", "--allow", "Bash(python3 -m unittest *)", "--base-url", model.url]
        subprocess.run(
            ["leadrope", "run", PROMPT, *flags, "--billing", "api_key", "-o", "json"],
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            check=False,  # the push is denied, which may be an exit code of its own
            capture_output=True,
        )
    listed = subprocess.run(
        ["leadrope", "runs", "list", "-o", "json"], env=environ, check=True, capture_output=True, text=True
    )
    run_id = listed.stdout.split('"id":"', 1)[1].split('"', 1)[0]
    exported = subprocess.run(
        ["leadrope", "export", run_id, "--html"], env=environ, check=True, capture_output=True, text=True
    )
    return exported.stdout.replace(str(place), "/home/jane")


def photograph(html: Path, target: Path) -> None:
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        raise SystemExit("chromium is not installed")
    with tempfile.TemporaryDirectory(prefix="leadrope-chromium-") as profile:
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}"]
        shot = [f"--screenshot={target}", f"--window-size={WIDTH},{HEIGHT}", "--blink-settings=preferredColorScheme=1"]
        subprocess.run(
            ["unshare", "--map-root-user", "--net", program, *flags, *shot, html.as_uri()],
            env={"PATH": os.environ["PATH"], "HOME": profile, "LANG": "C.UTF-8"},
            check=True,
            capture_output=True,
            timeout=120,
        )


def main(target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="leadrope-page-") as folder:
        html = Path(folder, "run.html")
        html.write_text(page(Path(folder)), encoding="utf-8")
        photograph(html, target)
    print(f"wrote {target} ({target.stat().st_size:,} bytes)")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else ROOT / "docs/run-page.png")
