"""What settings name by path is shown as narrowly as it works; what an agent could have named is not believed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from leadrope.process.sandbox import git_folders
from leadrope.process.sandbox import programs as sandbox_programs
from leadrope.process.sandbox.configured_paths import named
from leadrope.process.sandbox.mounts import sight
from leadrope.process.sandbox.values import BASE, Machine, MachinePath, Sandbox


def file(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


def shown(home: Path, *words: str, programs: tuple[str, ...] = (), **options: Any) -> set[str]:
    given: dict[str, Any] = {"path": "/usr/bin:/bin", "writable": (), "taken": BASE} | options
    return {str(Path(p.name).relative_to(home)) for p in named(programs, words, home=str(home), **given).places}


def test_a_file_is_shown_alone_and_code_with_what_it_belongs_to(home: Path) -> None:
    config = file(home / "conf" / "a.json")
    script = file(home / "servers" / "one" / "main.py")
    packaged = file(home / "servers" / "two" / "dist" / "index.js")
    file(home / "servers" / "two" / "package.json")
    assert shown(home, str(config)) == {"conf/a.json"}
    assert shown(home, str(script)) == {"servers/one/main.py", "servers/one"}
    assert shown(home, f"--entry={packaged}") == {"servers/two/dist/index.js", "servers/two"}
    assert shown(home, f"{config}:{script.parent}", "--x", "relative/path", f"{home}/none") == {
        "conf/a.json",
        "servers/one",
    }


def test_nothing_wide_is_shown_as_a_whole(home: Path) -> None:
    script = file(home / "main.py")
    file(home / "package.json")
    assert shown(home, str(script)) == {"main.py"}
    assert shown(home, str(home), str(home.parent), "/", "/tmp", "/home") == set()


def test_programs_bring_their_folder_their_interpreter_and_linked_sources(home: Path, tmp_path: Path) -> None:
    venv = home / "venv"
    python = file(venv / "bin" / "python3", "#!/bin/sh\n")
    file(venv / "pyvenv.cfg")
    source, other = home / "dev" / "lib" / "src", home / "dev" / "more"
    source.mkdir(parents=True)
    other.mkdir()
    file(home / "dev" / "lib" / "pyproject.toml")
    file(other / "setup.py")
    site = venv / "lib" / "python3.11" / "site-packages"
    file(site / "lib.pth", f"{source}\nimport x\n/no/such/folder\n")
    file(site / "__editable___more_finder.py", f"MAPPING = {{'more': '{other}'}}\n")
    found = named((str(python),), (), path="/usr/bin", home=str(home), writable=(), taken=BASE)
    assert set(found.folders) == {str(venv / "bin"), "/bin"}
    assert {place.name for place in found.places} == {str(source), str(other)}
    server = file(home / "tools" / "server", f"#!{python}\n")
    assert shown(home, programs=(str(server),)) == {"tools/server", "tools", "dev/lib/src", "dev/more"}
    elf = file(home / "elf" / "server", "\x7fELF")
    assert shown(home, programs=(str(elf), "no-such-program")) == {"elf/server"}


def test_an_environment_that_an_agent_has_worked_in_names_no_other_folder(home: Path) -> None:
    """It is on the PATH of another run, in which nobody writes to it; a pipe in it is not waited for."""
    python = file(home / "proj" / "venv" / "bin" / "python")
    file(home / "proj" / "venv" / "pyvenv.cfg")
    private = file(home / "private" / "diary")
    site = home / "proj" / "venv" / "lib" / "python3.11" / "site-packages"
    file(site / "x.pth", f"{private.parent}\n{private}\n")
    file(site / "__editable___x.py", f"MAPPING = {{'x': '{private.parent}'}}\n")
    os.mkfifo(site / "pipe.pth")
    os.mkfifo(home / "proj" / "venv" / "bin" / "server", 0o755)
    program = home / "proj" / "venv" / "bin" / "server"
    assert shown(home, programs=(str(python), str(program)), path=str(python.parent)) == set()


def test_what_lies_in_a_writable_place_is_not_believed(home: Path) -> None:
    """An agent could have made the link, and the next run would show it what it leads to."""
    ws = home / "ws"
    ws.mkdir()
    (ws / "link").symlink_to(file(home / "private" / "diary"))
    file(ws / "venv" / "pyvenv.cfg")
    python = file(ws / "venv" / "bin" / "python")
    file(ws / "venv" / "lib" / "python3.11" / "site-packages" / "x.pth", str(home / "private"))
    words = (str(ws / "link"), str(ws / "venv"))
    assert shown(home, *words, programs=(str(python),), path=f"{ws}/venv/bin", writable=(str(ws),)) == set()


def test_the_files_that_a_git_configuration_includes_are_known(home: Path) -> None:
    config = file(
        home / ".gitconfig",
        '[user]\npath = ~/no\n[includeIf "gitdir:~/work/"]\n\tpath = ~/.gitconfig-work\n[include]\npath = "b"\n',
    )
    work, b, c = (file(home / name) for name in (".gitconfig-work", "b", "c"))
    b.write_text("[INCLUDE]\n  path = c\n[include]\npath = missing\n")
    assert git_folders.included(str(config), str(home)) == (str(work), str(b), str(c))
    assert git_folders.included(str(home / "none"), str(home)) == ()
    c.write_text("[include]\npath = .gitconfig\n")
    assert len(git_folders.included(str(config), str(home))) == 3, "a circle ends"


def test_a_program_that_is_the_shell_can_be_left_as_it_is() -> None:
    assert sandbox_programs.files_of(("sh",), "/bin", must=False) == tuple(
        found for found in sandbox_programs.files_of(("no-such-program",), "/bin", must=False)
    )


def test_what_is_to_be_seen_is_told() -> None:
    spec = Sandbox(
        workspace="/home/u/p", run_dir="/tmp/run", home="/home/u", binary="/usr/bin/agent", network="model-only"
    )
    machine = Machine(
        system=("/usr", "/etc"),
        links={"/bin": "usr/bin"},
        toolchains=(MachinePath(name="/home/u/.nvm", real="/home/u/.nvm"),),
        secrets=(MachinePath(name="/home/u/p/.ssh", real="/home/u/p/.ssh"),),
    )
    box = sight(spec, machine)
    kinds = {
        "/home/u/p/src/x": "rw",
        "/home/u/p/.ssh/id": "hidden",
        "/home/u/.nvm/x": "ro",
        "/home/u/diary": "private",
        "/usr/bin/x": "ro",
        "/bin/x": "ro",
        "/tmp/x": "private",
        "/tmp/run/x": "rw",
        "/srv/x": "hidden",
        "/": "hidden",
    }
    assert {path: box.of(path) for path in kinds} == kinds
    assert box.network == "model-only"
