"""Runs each install line of README in a copy of the clone, as it is written there, and the demo from what it installed.

    .venv/bin/python setup/try_install_lines.py

Packages come from where pip gets them on this machine. pipx and uv are installed into an environment of their own; if
they cannot be, their line is skipped, and the reason is printed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="leadrope-install-") as folder:
        place = Path(folder)
        clone(place / "clone")
        for number, line in enumerate(install_lines((ROOT / "README.md").read_text())):
            home = place / f"home-{number}"
            home.mkdir()
            print(f"leadrope: {line}: {try_line(line, place / 'clone', home)}", flush=True)
            shutil.rmtree(home)  # 350 MB each
    return 0


def install_lines(readme: str) -> list[str]:
    """The lines of the first code block below the heading "Install"."""
    found = re.search(r"^## Install\n.*?^```sh\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    if found is None:
        sys.exit("README has no code block below ## Install")
    return found[1].splitlines()


def clone(folder: Path) -> None:
    """What a clone of this state would hold."""
    files = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in filter(None, files.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)


def try_line(line: str, folder: Path, home: Path) -> str:
    installer = line.partition(" ")[0]
    venv.create(home / "venv", with_pip=True)
    pip = str(home / "venv/bin/pip")
    environ = {
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PATH": f"{home}/venv/bin:{home}/.local/bin:{os.defpath}",
        **package_sources(),
    }
    if installer != "pip":
        wanted = subprocess.run(
            [pip, "-q", "install", installer], env=environ, capture_output=True, text=True, check=False
        )
        if wanted.returncode != 0:
            return f"skipped: {installer} cannot be installed here: {last_line(wanted.stderr)}"
    run(["bash", "-c", line], environ, folder)
    leadrope = shutil.which("leadrope", path=environ["PATH"])
    if leadrope is None:
        sys.exit(f"{line}: no leadrope is on PATH afterwards")
    version = run([leadrope, "--version"], environ, home).strip()
    shown = run([leadrope, "demo", "--yes"], environ, home)
    if not re.search(r"^What changed:.*^ +\+ +return a \+ b", shown, re.MULTILINE | re.DOTALL):
        sys.exit(f"{line}: the demo did not come to its end:\n{shown}")
    return f"{version} in {Path(leadrope).relative_to(home)}, and its demo works"


def package_sources() -> dict[str, str]:
    """pip's settings as variables, which also reach the pip of pipx; and the same for uv, which has its own names."""
    listed = run([sys.executable, "-m", "pip", "config", "list"], dict(os.environ), ROOT)
    found = dict(re.findall(r"^(?:global|install|:env:)\.([\w-]+)='(.*)'$", listed, re.MULTILINE))
    environ = {f"PIP_{name.upper().replace('-', '_')}": value for name, value in found.items()}
    for ours, theirs in (
        ("index-url", "UV_DEFAULT_INDEX"),
        ("extra-index-url", "UV_INDEX"),
        ("find-links", "UV_FIND_LINKS"),
        ("cert", "SSL_CERT_FILE"),
    ):
        if ours in found:
            environ[theirs] = found[ours]
    return environ


def run(argv: list[str], environ: dict[str, str], cwd: Path) -> str:
    done = subprocess.run(argv, env=environ, cwd=cwd, capture_output=True, text=True, check=False, timeout=900)
    if done.returncode != 0:
        sys.exit(f"{' '.join(argv)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2]


if __name__ == "__main__":
    sys.exit(main())
