"""Builds the wheel and the sdist, installs the wheel into an empty virtual environment, and runs leadrope from there.

    .venv/bin/python setup/try_wheel.py

Only leadrope's declared dependencies are installed, from requirements.lock with its hashes. The agent binary is the one
of the environment that runs this script, so that it is not downloaded again.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from leadrope.providers.claude_code.locate import bundled

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="leadrope-wheel-") as folder:
        place = Path(folder)
        wheel = build(place / "dist")
        python = install(place, wheel)
        use(place, python)
    print("leadrope: the wheel works in an empty environment")
    return 0


def build(folder: Path) -> Path:
    run([sys.executable, "-m", "hatchling", "build", "-d", str(folder)], cwd=ROOT)
    (wheel,) = folder.glob("*.whl")
    (sdist,) = folder.glob("*.tar.gz")
    print(f"leadrope: built {wheel.name} ({wheel.stat().st_size:,} bytes) and {sdist.name}")
    return wheel


def install(place: Path, wheel: Path) -> str:
    venv.create(place / "venv", with_pip=True)
    python = str(place / "venv/bin/python")
    lock = place / "dependencies.lock"
    lock.write_text("".join(locked(dependencies())))
    pip = [python, "-m", "pip", "-q", "--disable-pip-version-check"]
    run([*pip, "install", "--require-hashes", "--no-deps", "-r", str(lock)])
    run([*pip, "install", "--no-deps", "--no-index", str(wheel)])
    run([*pip, "check"])
    return python


def dependencies(name: str = "leadrope") -> set[str]:
    """All packages that leadrope needs without its extras, on this machine."""
    found: set[str] = set()
    todo = [name]
    while todo:
        for line in metadata.requires(todo.pop()) or ():
            wanted = Requirement(line)
            package = canonicalize_name(wanted.name)
            if package not in found and (wanted.marker is None or wanted.marker.evaluate({"extra": ""})):
                found.add(package)
                todo.append(package)
    return found


def locked(names: set[str]) -> Iterator[str]:
    """The entries of these packages in requirements.lock; an entry is a line and what is indented below it."""
    text = (ROOT / "requirements.lock").read_text()
    for entry in re.findall(r"^[a-z0-9].*\n(?:[ ].*\n)*", text, re.MULTILINE):
        if canonicalize_name(re.split(r"[=\[ ]", entry, maxsplit=1)[0]) in names:
            yield entry


def use(place: Path, python: str) -> None:
    leadrope = str(Path(python).with_name("leadrope"))
    agent = bundled()
    if agent is None:
        sys.exit("the agent binary is missing: run `make setup-dev`")
    environ = {
        "PATH": os.defpath,
        "HOME": str(place / "home"),
        "LANG": "C.UTF-8",
        "TMPDIR": folder(place / "tmp"),
    }
    folder(place / "home")
    run([leadrope, "--version"], env=environ, cwd=place)
    run([leadrope, "--help"], env=environ, cwd=place)
    hint = subprocess.run(
        [leadrope, "demo", "--yes"], env=environ, cwd=place, capture_output=True, text=True, check=False
    ).stderr
    if f"{python} -m pip install 'leadrope[claude] @ file://" not in hint.replace("python3", "python"):
        sys.exit(f"without an agent, the hint does not name this installation: {hint!r}")
    shown = run([leadrope, "demo", "--yes"], env=environ | {"LEADROPE_CLAUDE_BIN": str(agent)}, cwd=place)
    if not re.search(r"^What changed:.*^ +\+ +return a \+ b", shown, re.MULTILINE | re.DOTALL):
        sys.exit(f"the demo did not come to its end:\n{shown}")


def folder(path: Path) -> str:
    path.mkdir()
    return str(path)


def run(argv: list[str], *, env: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    done = subprocess.run(argv, env=env, cwd=cwd, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode != 0:
        sys.exit(f"{' '.join(argv)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


if __name__ == "__main__":
    sys.exit(main())
