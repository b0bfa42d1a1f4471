"""What a user installs: the wheel holds the package with its data, the sdist builds the same wheel, metadata is true.

`make test-wheel` installs the wheel into an empty environment and runs the demo from there.
"""

from __future__ import annotations

import email
import email.message
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def build(folder: Path, into: Path, *targets: str) -> Path:
    words = [word for target in targets for word in ("-t", target)]
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(into), *words],
        cwd=folder,
        capture_output=True,
        check=True,
        timeout=120,
    )
    (made,) = [path for path in into.iterdir() if path.suffix in (".whl", ".gz")]
    return made


def package_files(root: Path) -> set[str]:
    """Everything of the package that is kept in the repository; what tools leave beside it is not."""
    source = root / "src"
    return {
        str(path.relative_to(source))
        for path in (source / "leadrope").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("wheel"), "wheel")


def test_the_wheel_holds_the_whole_package_and_nothing_else(wheel: Path) -> None:
    assert contents(wheel) == package_files(ROOT)


@pytest.mark.parametrize(
    "name",
    [
        "py.typed",
        "policy/files/default.toml",
        "rehearsal/demo.yaml",
        "runs/page/page.css",
    ],
)
def test_data_files_are_in_it(wheel: Path, name: str) -> None:
    assert f"leadrope/{name}" in contents(wheel)


def test_statements_and_migrations_are_in_it(wheel: Path) -> None:
    there = {Path(name).name for name in contents(wheel) if name.endswith(".sql")}
    assert there == {path.name for path in (ROOT / "src").rglob("*.sql")}
    assert len(there) > 5


def metadata(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("METADATA")]
        return email.message_from_bytes(archive.read(name))


def test_the_metadata_names_python_extras_and_licence(wheel: Path) -> None:
    said = metadata(wheel)
    assert said["Requires-Python"] == ">=3.11"
    assert said.get_all("Provides-Extra") == ["claude", "otel"]
    assert said["License-Expression"] == "Apache-2.0"
    assert said["Author"] or said["Author-email"]


def test_the_page_that_an_index_would_show_has_no_broken_links(wheel: Path) -> None:
    """The description of a package has no files beside it, so it must not be README with its relative links."""
    text = str(metadata(wheel).get_payload())
    assert "](docs/" not in text
    assert "leadrope" in text


def test_the_sdist_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    sdist = build(ROOT, tmp_path / "sdist", "sdist")
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
        archive.extractall(tmp_path / "source", filter="data")
    (folder,) = (tmp_path / "source").iterdir()
    for name in ("README.md", "LICENSE", "docs/policy.md", "tests/conftest.py", "Makefile", "requirements.lock"):
        assert f"{folder.name}/{name}" in names
    assert not [name for name in names if ".venv" in name or "__pycache__" in name]
    assert contents(build(folder, tmp_path / "again", "wheel")) == contents(wheel)
