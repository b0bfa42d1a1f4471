"""Tab in a real shell, `-h` everywhere, and the nearest command for a slip."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = """
leadrope() {{ {python} -m leadrope.cli.main "$@"; }}
export -f leadrope
eval "$(leadrope completion bash)"
COMP_WORDS=({words})
COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
_leadrope_completion leadrope
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def complete(desk: Any, line: str) -> list[str]:
    """What bash offers after this line; the last word may be unfinished, or empty."""
    words = " ".join(f"'{word}'" for word in line.split(" "))
    # The program that the completion calls is the one on the PATH.
    bin_ = desk.project.parent / "bin"
    bin_.mkdir(exist_ok=True)
    program = bin_ / "leadrope"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m leadrope.cli.main "$@"\n')
    program.chmod(0o755)
    done = subprocess.run(
        ["bash", "--norc", "-c", SCRIPT.format(python=sys.executable, words=words)],
        env=desk.environ | {"PATH": f"{bin_}:{desk.environ['PATH']}"},
        cwd=desk.project,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.split()


def test_commands_modes_and_files(desk: Any) -> None:
    assert complete(desk, "leadrope ru") == ["run", "runs"]
    assert complete(desk, "leadrope runs ap") == ["apply"]
    assert set(complete(desk, "leadrope run x --mode ")) == {"plan", "default", "edit", "sandboxed", "dontAsk", "full"}
    assert "--worktree" in complete(desk, "leadrope run x --work")


async def test_ids_of_runs_and_sessions(desk: Any, playing: Any) -> None:
    async with playing({"text": "Done."}) as model:
        assert (await desk.leadrope("run", "go", "--base-url", model.url)).code == 0
    (offered,) = complete(desk, "leadrope runs show ")
    assert (await desk.leadrope("runs", "show", offered)).code == 0
    (session,) = complete(desk, "leadrope run more --resume ")
    assert (await desk.leadrope("sessions", "show", session)).code == 0
    assert complete(desk, "leadrope approvals approve ") == []


def test_nothing_is_offered_and_nothing_fails_where_nothing_was_run(desk: Any) -> None:
    assert complete(desk, "leadrope runs show ") == []
    assert not (desk.home / "leadrope").exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
async def test_each_shell_has_its_code(desk: Any, tmp_path: Path, shell: str) -> None:
    ended = await desk.leadrope("completion", shell)
    assert ended.code == 0
    assert "_LEADROPE_COMPLETE" in ended.out
    if shutil.which(shell):
        file = tmp_path / "code"
        file.write_text(ended.out)
        subprocess.run([shell, "-n", str(file)], check=True)  # noqa: ASYNC221  # ends at once


@pytest.mark.parametrize(
    "words", [["-h"], ["run", "-h"], ["runs", "-h"], ["runs", "list", "-h"], ["flow", "run", "-h"]]
)
async def test_help_has_a_short_name(desk: Any, words: list[str]) -> None:
    ended = await desk.leadrope(*words)
    assert ended.code == 0
    assert "Usage: leadrope" in ended.out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["rnu"], "Did you mean `leadrope run`?"),
        (["flow", "chekc"], "Did you mean `leadrope flow check`?"),
        (["fix the failing test"], "A prompt goes to `leadrope run`."),
        (["xyzzy"], "the commands are: run, chat"),
    ],
)
async def test_a_slip_is_told_with_the_nearest_command(desk: Any, words: list[str], told: str) -> None:
    ended = await desk.leadrope(*words)
    assert ended.code == 2
    assert told in ended.err
