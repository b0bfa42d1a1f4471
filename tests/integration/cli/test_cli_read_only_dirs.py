"""Folders that are added with `:ro`: agents and commands read them, and nothing writes there."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(
    shutil.which("bwrap") is None and os.environ.get("CI", "").lower() != "true", reason="bubblewrap is not installed"
)

AGENT = "# T\n\n## Steps\n\n### it\n\n- type: agent\n- prompt: go\n- mode: full\n"


def notes(desk: Any) -> Path:
    """A folder beside the project, with what the sandbox mounts apart: a repository, blocked and protected paths."""
    folder: Path = desk.home / "notes"
    (folder / "sub/deep").mkdir(parents=True)
    (folder / "a.txt").write_text("from outside\n")
    (folder / "sub/.env").write_text("SECRET=1\n")
    subprocess.run(["git", "init", "-q", str(folder / "inner")], env=desk.environ, check=True)
    shutil.rmtree(folder / "inner/.git/hooks")
    return folder


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


def turns(folder: Path) -> list[Any]:
    """A program of its own, which no rule can read, writes wherever it can; then the agent's own tools."""
    script = (
        f"import pathlib\nroot = pathlib.Path({str(folder)!r})\n"
        "pathlib.Path('seen').write_text((root/'a.txt').read_text())\n"
        "for name in ('.', 'sub', 'sub/deep', 'inner', 'inner/.git', 'inner/.git/refs'):\n"
        "    try: (root / name / 'new').write_text('x')\n"
        "    except OSError: pass\n"
    )
    return [
        {"tool": {"name": "Write", "input": {"file_path": "w.py", "content": script}}},
        {"tool": {"name": "Bash", "input": {"command": "python3 w.py", "description": "write"}}},
        {"tool": {"name": "Write", "input": {"file_path": f"{folder}/b.txt", "content": "x"}}},
        {"tool": {"name": "Read", "input": {"file_path": f"{folder}/a.txt"}}},
        {"text": "done"},
    ]


def was_read(model: Any) -> bool:
    return any("from outside" in str(request.body["messages"]) for request in model.requests)


@pytest.mark.parametrize("way", ["flag", "config", "agent"])
async def test_a_run_reads_a_read_only_folder_and_cannot_write_it(desk: Any, playing: Any, way: str) -> None:
    folder = notes(desk)
    before = tree(folder)
    words: tuple[str, ...] = ()
    if way == "flag":
        words = ("--add-dir", f"{folder}:ro")
    else:
        config = desk.home / ".config/leadrope/config.toml"
        config.parent.mkdir(parents=True)
        table = "[run]" if way == "config" else "[agents.reader]"
        config.write_text(f'{table}\nextra_dirs = ["~/notes:ro"]\n')
        words = () if way == "config" else ("--agent", "reader")
    async with playing(*turns(folder), strict=False) as model:
        ended = await desk.leadrope("run", "go", "--mode", "full", *words, "--base-url", model.url)
        assert ended.code == 0, ended.err
        assert was_read(model)
    assert (desk.project / "seen").read_text() == "from outside\n", ended.err
    assert tree(folder) == before
    assert ended.err.count("denied by extra_dirs") == 1


@pytest.mark.parametrize("way", ["flag", "settings", "step"])
async def test_an_agent_step_reads_a_read_only_folder_and_cannot_write_it(desk: Any, playing: Any, way: str) -> None:
    folder = notes(desk)
    before = tree(folder)
    text = {
        "flag": AGENT,
        "settings": f"{AGENT}\n## Settings\n\n- folders: [~/notes:ro]\n",
        "step": f"{AGENT}- extra_dirs: [~/notes:ro]\n",
    }[way]
    (desk.project / "t.flow.md").write_text(text)
    words = ("--add-dir", f"{folder}:ro") if way == "flag" else ()
    if way != "flag":
        assert (await desk.leadrope("trust", "t.flow.md", "--yes")).code == 0
    async with playing(*turns(folder), strict=False) as model:
        ended = await desk.leadrope("flow", "run", "t.flow.md", *words, "--base-url", model.url)
        assert ended.code == 0, ended.err
        assert was_read(model)
    assert (desk.project / "seen").read_text() == "from outside\n"
    assert tree(folder) == before
    assert "this run can only read" in ended.err


async def test_commands_of_a_workflow_cannot_write_any_part_of_a_read_only_folder(desk: Any) -> None:
    """Parts that the sandbox mounts apart, for a repository or a blocked path inside, are not opened by that."""
    folder = notes(desk)
    before = tree(folder)
    (desk.project / "w.sh").write_text(
        "for d in . sub sub/deep inner inner/.git/refs; do echo x > ~/notes/$d/new; done\ncat ~/notes/a.txt\n"
    )
    policy = '{blocked_paths: ["**/.env"], protected_paths: ["deep/"]}'
    (desk.project / "t.flow.md").write_text(
        f"# T\n\n## Steps\n\n### it\n\n- type: shell\n- command: bash w.sh\n\n## Settings\n\n- policy: {policy}\n"
    )
    ended = await desk.leadrope("flow", "run", "t.flow.md", "--add-dir", f"{folder}:ro", "-q")
    assert "from outside" in ended.out, ended.err
    assert tree(folder) == before


@pytest.mark.parametrize("command", ["echo x > ~/notes/b.txt", "rm -r ~/notes/sub", "touch ~/notes/sub/x"])
async def test_without_a_sandbox_a_write_that_can_be_seen_is_refused(desk: Any, playing: Any, command: str) -> None:
    folder = notes(desk)
    before = tree(folder)
    (desk.project / "t.flow.md").write_text(f"# T\n\n## Steps\n\n### it\n\n- type: shell\n- command: {command}\n")
    execution = await desk.leadrope("flow", "run", "t.flow.md", "--sandbox", "off", "--add-dir", f"{folder}:ro")
    assert (execution.code, "this run can only read" in execution.err) == (3, True), execution.err
    call = {"tool": {"name": "Bash", "input": {"command": command, "description": "write"}}}
    async with playing(call, {"text": "done"}, strict=False) as model:
        words = ("--sandbox", "off", "--mode", "full", "--add-dir", f"{folder}:ro", "--base-url", model.url)
        run = await desk.leadrope("run", "go", *words)
    assert (run.code, "denied by extra_dirs" in run.err) == (3, True), run.err
    assert tree(folder) == before


async def test_the_workspace_inside_a_read_only_folder_stays_writable(desk: Any, playing: Any) -> None:
    around = desk.project.parent
    call = {
        "tool": {"name": "Bash", "input": {"command": "echo x > mine; echo y > ../theirs; true", "description": "w"}}
    }
    write = {"tool": {"name": "Write", "input": {"file_path": "own.txt", "content": "x"}}}
    async with playing(write, call, {"text": "done"}, strict=False) as model:
        ended = await desk.leadrope("run", "go", "--mode", "full", "--add-dir", "..:ro", "--base-url", model.url)
    assert (ended.code, "denied by extra_dirs" in ended.err) == (0, True), ended.err
    assert (desk.project / "own.txt").read_text() == "x"
    assert not (around / "theirs").exists()


async def test_what_names_no_folder_is_refused(desk: Any) -> None:
    for text, told in (
        (":ro", "names no folder"),
        ("nowhere:ro", "does not exist"),
        ("/etc:ro", "belongs to the system"),
    ):
        ended = await desk.leadrope("run", "go", "--add-dir", text)
        assert (ended.code, told in ended.err) == (2, True), ended.err
