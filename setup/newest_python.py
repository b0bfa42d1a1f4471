"""Finds the newest Python from 3.12 on: on PATH, in the usual folders, and where version managers keep theirs.

    python3 setup/newest_python.py            its path and version, tab-separated; nothing if there is none

A Python counts if it starts, is a final release of CPython with the GIL, and can make virtual environments.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

OLDEST = (3, 12)
TRY_S = 20

_FOLDERS = ("/usr/bin", "/usr/local/bin", "/opt/homebrew/bin")
_QUESTION = """
import json, platform, sys, sysconfig, ensurepip, venv
print(json.dumps([sys.version_info[:3], sys.version_info.releaselevel, platform.python_implementation(),
                  bool(sysconfig.get_config_var("Py_GIL_DISABLED"))]))
"""


class Python(NamedTuple):
    version: tuple[int, ...]
    path: str


def newest(environ: Mapping[str, str], folders: tuple[str, ...] = _FOLDERS) -> Python | None:
    found = (answer for path in candidates(environ, folders) if (answer := ask(path)) is not None)
    return max((python for python in found if python.version >= OLDEST), default=None)


def candidates(environ: Mapping[str, str], folders: tuple[str, ...] = _FOLDERS) -> Iterator[Path]:
    """Each program once, whatever its names."""
    seen: set[Path] = set()
    for path in _all(environ, folders):
        real = path.resolve()
        if real not in seen and os.access(real, os.X_OK):
            seen.add(real)
            yield path


def _all(environ: Mapping[str, str], folders: tuple[str, ...]) -> Iterator[Path]:
    for folder in (*environ.get("PATH", "").split(os.pathsep), *folders):
        if Path(folder).is_absolute():
            for name in ("python3", *(f"python3.{minor}" for minor in range(OLDEST[1], 40))):
                if Path(folder, name).is_file():
                    yield Path(folder, name)
    home = Path(environ.get("HOME", "/nonexistent"))
    data = Path(environ.get("XDG_DATA_HOME") or home / ".local/share")
    roots = [
        Path(environ.get("PYENV_ROOT") or home / ".pyenv") / "versions",
        Path(environ.get("UV_PYTHON_INSTALL_DIR") or data / "uv/python"),
        Path(environ.get("ASDF_DATA_DIR") or home / ".asdf") / "installs/python",
        Path(environ.get("MISE_DATA_DIR") or data / "mise") / "installs/python",
    ]
    for name in ("miniconda3", "anaconda3", "miniforge3", "mambaforge", "micromamba"):
        roots += [home / name / "envs", home]
    roots.append(Path("/opt/conda/envs"))
    for root in roots:
        yield from sorted(root.glob("*/bin/python3"))


def ask(path: Path) -> Python | None:
    try:
        done = subprocess.run(  # a Python of this machine
            [path, "-I", "-c", _QUESTION], capture_output=True, text=True, timeout=TRY_S, check=True
        )
        version, level, implementation, is_free_threaded = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None  # a shim without a version behind it, a broken installation, one without ensurepip
    if level != "final" or implementation != "CPython" or is_free_threaded:
        return None
    return Python(tuple(version), str(path))


if __name__ == "__main__":
    best = newest(os.environ)
    if best is not None:
        print(best.path, ".".join(map(str, best.version)), sep="\t")
    sys.exit(0)
