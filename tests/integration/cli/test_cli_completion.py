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


def installed(desk: Any) -> dict[str, str]:
    """An environment in which `leadrope` is on the PATH: completions call it from there."""
    bin_ = desk.project.parent / "bin"
    bin_.mkdir(exist_ok=True)
    program = bin_ / "leadrope"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m leadrope.cli.main "$@"\n')
    program.chmod(0o755)
    return {**desk.environ, "PATH": f"{bin_}:{desk.environ['PATH']}"}


def complete(desk: Any, line: str) -> list[str]:
    """What bash offers after this line; the last word may be unfinished, or empty."""
    words = " ".join(f"'{word}'" for word in line.split(" "))
    done = subprocess.run(
        ["bash", "--norc", "-c", SCRIPT.format(python=sys.executable, words=words)],
        env=installed(desk),
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


def test_words_of_options(desk: Any) -> None:
    assert complete(desk, "leadrope run x --effort x") == ["xhigh"]
    assert complete(desk, "leadrope run x --billing api") == ["api_key"]
    assert complete(desk, "leadrope run x --model o") == ["opus"]
    assert complete(desk, "leadrope run x --purpose rev") == ["review"]
    assert complete(desk, "leadrope runs list --outcome suc") == ["succeeded"]


def test_the_value_after_an_equals_sign_as_bash_splits_it(desk: Any) -> None:
    assert complete(desk, "leadrope run x --mode = pl") == ["plan"]
    assert set(complete(desk, "leadrope run x --mode =")) >= {"plan", "edit"}
    assert complete(desk, "leadrope run --mode = plan x --sandbox = read") == ["read-only"]
    assert complete(desk, "leadrope run --mode = plan --outpu") == ["--output"], "earlier options keep their values"
    assert complete(desk, "leadrope run x --mode=pl") == ["--mode=plan"], "with another COMP_WORDBREAKS"


START = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "--interactive"],
}
SETUP = {
    "bash": 'eval "$(leadrope completion bash)"',
    "zsh": 'autoload -Uz compinit; compinit -u -D; eval "$(leadrope completion zsh)"',
    "fish": "leadrope completion fish | source",
}


@pytest.mark.parametrize("shell", list(START))
@pytest.mark.parametrize(
    ("typed", "becomes"),
    [
        ("run x --mode=pl", "run x --mode=plan"),
        ("run --mode=plan x --sandbox=read", "run --mode=plan x --sandbox=read-only"),
        ("run --file=pro", "run --file=prompt.txt"),
        ("run x --mode pl", "run x --mode plan"),
    ],
)
async def test_tab_in_a_real_shell(desk: Any, shell: str, typed: str, becomes: str) -> None:
    """On a terminal, as somebody types it."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (desk.project / "prompt.txt").write_text("go")
    async with desk.shell(*START[shell], PATH=installed(desk)["PATH"]) as terminal:
        terminal.types(SETUP[shell] + "; echo READ''Y\n")
        await terminal.reads("READY")
        # Tab, then to the beginning of the line: what the line has become is said by `echo`.
        terminal.types(f"leadrope {typed}\t\x01echo BECOMES \r")
        await terminal.reads(f"BECOMES leadrope {becomes}\r\n")


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


def test_names_of_agents(desk: Any) -> None:
    config = desk.home / ".config" / "leadrope"
    config.mkdir(parents=True)
    (config / "config.toml").write_text("[agents.reviewer]\n[agents.writer]\n")
    (desk.home / ".claude" / "agents").mkdir(parents=True)
    (desk.home / ".claude" / "agents" / "mine.md").write_text("---\nname: mine\n---\nYou are.\n")
    assert complete(desk, "leadrope run x --agent ") == ["reviewer", "writer", "mine"]
    assert complete(desk, "leadrope agents show re") == ["reviewer"]


async def test_names_of_saved_workflows_and_datasets(desk: Any) -> None:
    text = "### keep\n\nKeeps.\n\n- type: save-dataset\n- name: people\n- rows: [{a: 1}]\n"
    (desk.project / "keeper.flow.md").write_text(text)
    assert (await desk.leadrope("flow", "save", "keeper.flow.md", "--name", "nightly")).code == 0
    assert (await desk.leadrope("flow", "run", "keeper")).code == 0
    (execution,) = complete(desk, "leadrope flow report ")
    assert (await desk.leadrope("flow", "values", execution, "keep")).code == 0
    for command in ("stop", "logs", "resume"):
        assert complete(desk, f"leadrope flow {command} ") == [execution]
    assert complete(desk, "leadrope flow delete ") == ["nightly"]
    assert complete(desk, "leadrope flow delete-data pe") == ["people"]
    assert "nightly" in complete(desk, "leadrope flow run n")
