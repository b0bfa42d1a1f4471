"""Only `leadrope.confined` touches files where an agent can write; all other code that touches files is listed."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import leadrope
from file_access import accesses, accesses_below

PACKAGE = Path(leadrope.__file__).parent
LISTED = Path(__file__).parents[2] / "data" / "file_access.toml"


def listed() -> dict[tuple[str, ...], str]:
    entries = tomllib.loads(LISTED.read_text(encoding="utf-8"))["allowed"]
    found: dict[tuple[str, ...], str] = {}
    for entry in entries:
        for call in entry["calls"]:
            words = tuple(call.split())
            assert len(words) == 3, f"{call!r} is not a module, a function and a call"
            assert words not in found, f"{call!r} is listed twice"
            found[words] = entry["why"]
    return found


def test_files_are_touched_by_one_package_only() -> None:
    known, used = listed(), set()
    refused: list[str] = []
    for module, found in accesses_below(PACKAGE, without=frozenset({"confined"})).items():
        for access in found:
            entry = next(
                (key for key in ((module, access.function, access.call), (module, "*", "*")) if key in known), None
            )
            if entry is None:
                refused.append(
                    f"src/leadrope/{module}:{access.line}: {access.call} in {access.function or 'the module'}"
                )
            else:
                used.add(entry)
    hint = f"\nUse leadrope.confined. Where no agent can ever write, add it to {LISTED.name} with the reason."
    assert not refused, "\n".join(refused) + hint
    assert not known.keys() - used, f"nothing needs these any more: {sorted(known.keys() - used)}"


def test_every_entry_says_why() -> None:
    assert all(len(why.split()) >= 4 for why in listed().values())


FOUND = {
    "open(path)": "open",
    "with open(path, 'rb') as file: pass": "open",
    "import os\nos.open(path, os.O_RDONLY)": "os.open",
    "import os as o\no.open(path, 0)": "os.open",
    "from os import open as start\nstart(path, 0)": "os.open",
    "import os\nos.open('name', 0, dir_fd=3)": "os.open",
    "import os\nos.replace('a', 'b', src_dir_fd=3, dst_dir_fd=3)": "os.replace",
    "import os\nfor name in os.listdir(path): pass": "os.listdir",
    "import os\nwith os.scandir(path) as found: pass": "os.scandir",
    "import os\nlist(os.walk(path))": "os.walk",
    "import os\nos.chown(path, 0, 0)": "os.chown",
    "import os\nos.utime(path)": "os.utime",
    "import os\nmap(os.unlink, paths)": "os.unlink",
    "import os\ndelete = os.unlink": "os.unlink",
    "import io\nio.open(path)": "io.open",
    "import io\nio.FileIO(path)": "io.FileIO",
    "import codecs\ncodecs.open(path)": "codecs.open",
    "import shutil\nshutil.copytree(a, b)": "shutil.copytree",
    "import shutil\nto_thread(shutil.rmtree, a)": "shutil.rmtree",
    "from shutil import copytree\ncopytree(a, b)": "shutil.copytree",
    "import tempfile\ntempfile.mkstemp(dir=a)": "tempfile.mkstemp",
    "from tempfile import TemporaryDirectory\nTemporaryDirectory(dir=a)": "tempfile.TemporaryDirectory",
    "import sqlite3\nsqlite3.connect(path)": "sqlite3.connect",
    "import glob\nglob.glob(path)": "glob.glob",
    "import tarfile\ntarfile.open(path)": "tarfile.open",
    "from pathlib import Path\nPath(a).read_text()": "read_text",
    "(a / 'b').read_bytes()": "read_bytes",
    "a.write_text('x')": "write_text",
    "a.write_bytes(b'x')": "write_bytes",
    "a.open()": "open",
    "a.open('rb')": "open",
    "a.iterdir()": "iterdir",
    "a.glob('*')": "glob",
    "a.rglob('*')": "rglob",
    "a.mkdir(parents=True)": "mkdir",
    "a.touch()": "touch",
    "a.unlink()": "unlink",
    "a.unlink(missing_ok=True)": "unlink",
    "a.rename(b)": "rename",
    "a.replace(b)": "replace",
    "a.chmod(0o600)": "chmod",
    "a.symlink_to(b)": "symlink_to",
    "a.hardlink_to(b)": "hardlink_to",
    "a.readlink()": "readlink",
    "to_thread(a.read_bytes)": "read_bytes",
    "from pathlib import Path\nmap(Path.unlink, paths)": "unlink",
    "await loop.create_unix_server(protocol, path)": "create_unix_server",
    "import os\nos.open(f'/proc/self/fd/{handle}/name', 0)": "os.open",
    "from pathlib import Path\nPath(f'/proc/{pid}/root/etc/passwd').read_text()": "read_text",
}

PASSED = (
    "from leadrope.confined import Folder\nwith Folder.open(path) as folder: pass",
    "folder.read_bytes('name', most=100)",
    "folder.read_text('name', most=100, errors='replace')",
    "folder.walk('name', most=100)",
    "folder.unlink('name')",
    "folder.rename('a', 'b', replaces=True)",
    "folder.replace('name', data)",
    "text.replace('a', 'b')",
    "import msgspec\nmsgspec.structs.replace(value, field=1)",
    "import shutil\nshutil.which('git')",
    "import os\nos.open(os.devnull, os.O_RDWR)",
    "import os\nos.listdir('/proc')",
    "from pathlib import Path\nPath(f'/proc/{pid}/stat').read_bytes()",
    "import ast\nast.walk(tree)",
    "from leadrope.policy import paths\npaths.glob('*.py')",
    "import os\nos.stat(path)",
)


@pytest.mark.parametrize("source", FOUND)
def test_a_violation_is_found_however_it_is_written(source: str) -> None:
    body = "\n".join(f"        {line}" for line in source.splitlines())
    (found,) = accesses(f"class Thing:\n    async def method(self):\n{body}\n")
    assert (found.function, found.call) == ("Thing.method", FOUND[source])


@pytest.mark.parametrize("source", PASSED)
def test_what_touches_no_file_of_an_agent_is_left_alone(source: str) -> None:
    assert accesses(source) == []
