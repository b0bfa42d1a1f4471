"""`make run` says which system packages it would install, asks on a terminal, and can be told not to."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NOTICE = "about to install these system packages with apt-get: bubblewrap socat"


class Machine:
    """Debian without bubblewrap and socat; apt-get only writes down what it was told."""

    def __init__(self, folder: Path, *, is_root: bool) -> None:
        self.log = folder / "apt.log"
        self.bin = folder / "bin"
        self.bin.mkdir()
        self._program("id", f"echo {0 if is_root else 1000}")
        self._program("apt-get", f'printf "%s\\n" "$*" >> {self.log}')
        self._program("python3", "exit 0")
        for name in ("git", "sh"):
            self._program(name, "exit 0")

    def _program(self, name: str, line: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)

    def run(self, **environ: str) -> str:
        done = subprocess.run(
            ["/bin/sh", "setup/packages.sh", "run"],
            cwd=ROOT,
            env={"PATH": str(self.bin), **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=True,
            timeout=60,
        )
        return done.stdout

    def run_on_a_terminal(self, typed: str) -> str:
        master, slave = pty.openpty()
        with subprocess.Popen(
            ["/bin/sh", "setup/packages.sh", "run"],
            cwd=ROOT,
            env={"PATH": str(self.bin)},
            stdin=slave,
            stdout=slave,
            stderr=slave,
        ) as child:
            os.close(slave)
            os.write(master, typed.encode())
            shown = b""
            while True:
                try:
                    shown += os.read(master, 4096)
                except OSError:  # the script has closed its end
                    break
            os.close(master)
        assert child.returncode == 0
        return shown.decode()

    @property
    def installed(self) -> bool:
        return self.log.exists()


def test_root_is_told_before_the_installation_and_how_to_skip_it(tmp_path: Path) -> None:
    machine = Machine(tmp_path, is_root=True)
    shown = machine.run()
    assert NOTICE in shown
    assert "SYSTEM_PACKAGES=no" in shown
    assert machine.log.read_text() == "install -y -qq --no-install-recommends bubblewrap socat\n"


def test_the_installation_can_be_skipped(tmp_path: Path) -> None:
    machine = Machine(tmp_path, is_root=True)
    assert "continuing without the system packages bubblewrap socat" in machine.run(SYSTEM_PACKAGES="no")
    assert not machine.installed


@pytest.mark.parametrize(("typed", "is_installed"), [("n\n", False), ("\n", True), ("y\n", True), ("what\n", False)])
def test_on_a_terminal_root_is_asked(tmp_path: Path, typed: str, is_installed: bool) -> None:
    machine = Machine(tmp_path, is_root=True)
    shown = machine.run_on_a_terminal(typed)
    assert NOTICE in shown
    assert "Install them? [Y/n]" in shown
    assert machine.installed == is_installed


def test_a_user_is_told_what_to_install(tmp_path: Path) -> None:
    machine = Machine(tmp_path, is_root=False)
    assert "sudo apt-get install bubblewrap socat" in machine.run()
    assert not machine.installed
