"""A script that is one program is started without a shell, and does what it would do in one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from leadrope.core.tools import ToolCall
from leadrope.runtime.commands import Commands

SCRIPTS = [
    "/bin/true",
    "/bin/false",
    "ls nowhere",
    "ls -a 'a folder' '' a*b",
    "ls -a 'a folder'",
    "cat",
    "env",
    "printenv PWD SHLVL _",
    "ls /proc/self/fd",
    "grep -E ^(Sig|Shd|NoNewPrivs|Seccomp) /proc/self/status",
    "grep -E '^(Sig|Shd|NoNewPrivs|Seccomp)' /proc/self/status",
    "nosuchprogram a b",
    "./nosuchprogram",
    "./says-its-words 'a b' --x=1 ''",
    "./names-no-interpreter 1 2",
    "./names-a-lost-interpreter",
    "./may-not-be-executed",
    "'./a folder'",
    "./kills-itself",
    "./leaves-one-behind",
]
IN_A_SHELL = {"OPTIND": "1"}
"""A variable that bash acts on: with it a shell is started for every script."""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    ws = tmp_path / "ws"
    (ws / "a folder/inner").mkdir(parents=True)
    programs = {
        "says-its-words": '#!/bin/bash\nprintf "<%s>" "$0" "$@"\n',
        "names-no-interpreter": 'echo "$# $1"\n',
        "names-a-lost-interpreter": "#!/nowhere/at/all\n",
        "kills-itself": "#!/bin/bash\nkill -TERM $$\n",
        "leaves-one-behind": "#!/bin/bash\nsleep 1000 >/dev/null 2>&1 &\n",
        "may-not-be-executed": "#!/bin/bash\n",
    }
    for name, text in programs.items():
        (ws / name).write_text(text)
        (ws / name).chmod(0o644 if name.startswith("may-not") else 0o755)
    return ws


def _environ(folder: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "LEADROPE_HOME": str(folder / "leadrope")}


async def test_it_does_the_same_without_a_shell(workspace: Path) -> None:
    async with Commands(workspace, environ=_environ(workspace.parent)) as commands:
        for script in SCRIPTS:
            shell = await commands.shell(script, env=IN_A_SHELL)
            plain = await commands.shell(script)
            assert plain.exit_code == shell.exit_code, script
            assert plain.stderr == shell.stderr, script
            assert _lines(plain.stdout) == _lines(shell.stdout) - {b"OPTIND=1"}, script
            assert plain.leftovers == shell.leftovers, script


def _lines(output: bytes) -> set[bytes]:
    return set(output.splitlines())


async def test_no_shell_is_started_for_it(workspace: Path) -> None:
    """A shell would complain about a language that is not installed, and `true` does not."""
    env = {"LC_ALL": "xx_XX.UTF-8"}
    async with Commands(workspace, environ=_environ(workspace.parent)) as commands:
        plain = await commands.shell("/bin/true", env=env)
        shell = await commands.shell("/bin/true; /bin/true", env=env)
    assert b"xx_XX" in shell.stderr
    assert plain.stderr == b""


async def test_a_blocked_program_cannot_be_started_without_a_shell_either(workspace: Path) -> None:
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    rules = {"blocked_commands": ["wget"]}
    (workspace / "wget").write_text("#!/bin/bash\necho started\n")
    (workspace / "wget").chmod(0o755)
    environ = _environ(workspace.parent)
    environ["PATH"] = f"{workspace}:{environ['PATH']}"
    async with Commands(workspace, policies=(rules,), environ=environ) as commands:
        call = ToolCall(id="1", name="Bash", input={"command": "wget x"})
        assert commands.judge(call, is_own=True, has_person=True).word == "deny"
        plain = await commands.shell("wget x")
        shell = await commands.shell("wget x", env=IN_A_SHELL)
    assert (plain.exit_code, plain.stderr, plain.stdout) == (shell.exit_code, shell.stderr, b"")
