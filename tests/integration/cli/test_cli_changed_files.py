"""What `runs show`, `diff` and `undo` say about files: over all attempts, and never "none" where some changed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from background_processes import Background
from leadrope.rehearsal import ModelServer

BEATS = "echo beat >> beats; touch begun; sleep 600"


def bash(command: str) -> dict[str, Any]:
    return {"tool": {"name": "Bash", "input": {"command": command, "description": "work"}}}


def make_repository(folder: Path) -> None:
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(folder))
    (folder / "kept.txt").write_text("one\n")
    (folder / ".gitignore").write_text("beats\nbegun\nbuild/\n")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "first")):
        subprocess.run([*git, *words], check=True, capture_output=True)


async def shown(desk: Any, run_id: str) -> str:
    done = await desk.leadrope("runs", "show", run_id, COLUMNS="200")
    assert done.code == 0, done.err
    return str(done.out)


@pytest.mark.parametrize("first", ["changes a file", "changes none"])
@pytest.mark.parametrize("how", ["kill", "terminate"])
async def test_a_recovered_run_shows_what_each_attempt_has_changed(
    desk: Any, background: Background, how: str, first: str
) -> None:
    make_repository(desk.project)
    before = "echo two >> kept.txt; " if first == "changes a file" else ""
    async with ModelServer([bash(before + BEATS), bash("echo new > made.txt"), {"text": "Done."}]) as model:
        given = ("--detach", "--mode", "full", "--base-url", model.url)
        run_id = (await desk.leadrope("run", "work", *given)).out.strip()
        await background.until((desk.project / "begun").exists)
        await background.end(how)
        await background.until(lambda: not background.all())
        assert (await desk.leadrope("runs", "logs", "-f", run_id)).code == 0
    found = ["kept.txt", "made.txt"] if before else ["made.txt"]
    assert f"{len(found)} changed: {', '.join(found)}\n" in await shown(desk, run_id)
    assert (await desk.leadrope("runs", "diff", "--stat", run_id)).out.split() == found
    assert "+new" in (await desk.leadrope("runs", "diff", run_id)).out
    undone = await desk.leadrope("runs", "undo", run_id)
    assert undone.code == 0, undone.err
    assert not (desk.project / "made.txt").exists()
    assert (desk.project / "kept.txt").read_text() == "one\n"


async def test_a_run_whose_second_attempt_is_killed_shows_what_that_one_has_changed(
    desk: Any, background: Background
) -> None:
    """The first attempt was ended in order, so that its state had been recorded."""
    make_repository(desk.project)
    again = bash("echo new > made.txt; touch again; sleep 600")
    async with ModelServer([bash(BEATS), again]) as model:
        given = ("--detach", "--mode", "full", "--base-url", model.url)
        run_id = (await desk.leadrope("run", "work", *given)).out.strip()
        await background.until((desk.project / "begun").exists)
        await background.end("terminate")
        await desk.leadrope("runs", "list")
        await background.until((desk.project / "again").exists)
        await background.end("kill")
        await background.until(lambda: not background.all())
        assert (await desk.leadrope("runs", "stop", run_id)).code == 0
    assert "2 changed: again, made.txt\n" in await shown(desk, run_id)


async def test_a_resumed_session_shows_what_changed_in_its_own_folder(desk: Any, tmp_path: Path) -> None:
    make_repository(desk.project)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    make_repository(elsewhere)
    async with ModelServer([{"text": "Hello."}, bash("echo new > made.txt"), {"text": "Done."}]) as model:
        given = ("--mode", "full", "--base-url", model.url, "-o", "json")
        first = json.loads((await desk.leadrope("run", "hello", *given)).out)
        here, desk.project = desk.project, elsewhere
        again = await desk.leadrope("run", "make a file", "--resume", first["session_id"], *given)
        run_id = json.loads(again.out)["run_id"]
        assert (here / "made.txt").exists()
        assert "1 file changed" in again.err
        assert "1 changed: made.txt\n" in await shown(desk, run_id)


async def test_what_commands_did_outside_of_git_is_said_to_be_unknown(desk: Any) -> None:
    """Without git only files that are edited by name are kept, so nobody can say that none changed."""
    async with ModelServer([bash("echo new > made.txt"), {"text": "Done."}]) as model:
        done = await desk.leadrope("run", "work", "--mode", "full", "--base-url", model.url, "-o", "json")
    run_id = json.loads(done.out)["run_id"]
    out = await shown(desk, run_id)
    assert "none changed" not in out
    assert "not a git repository" in out
    diff = await desk.leadrope("runs", "diff", run_id)
    assert "has changed no files" not in diff.err
    assert "not a git repository" in diff.err


async def test_what_commands_did_to_ignored_files_is_not_called_nothing(desk: Any) -> None:
    make_repository(desk.project)
    async with ModelServer([bash("mkdir build; echo new > build/out"), {"text": "Done."}]) as model:
        done = await desk.leadrope("run", "work", "--mode", "full", "--base-url", model.url, "-o", "json")
    run_id = json.loads(done.out)["run_id"]
    assert "none changed (files that git ignores are not compared)\n" in await shown(desk, run_id)
    diff = await desk.leadrope("runs", "diff", run_id)
    assert "files that git ignores are not compared" in diff.err


async def test_a_run_without_a_checkpoint_does_not_get_one_in_the_middle(desk: Any, background: Background) -> None:
    """Taken by a later attempt it would call the work of the first one the state from before."""
    make_repository(desk.project)
    (desk.project / "closed").mkdir(mode=0o000)
    refused = Path(desk.environ["LEADROPE_HOME"], "checkpoints")
    refused.write_text("")  # no folder can be made here
    async with ModelServer([bash("echo new > made.txt; " + BEATS), bash("true"), {"text": "Done."}]) as model:
        given = ("--detach", "--mode", "full", "--base-url", model.url)
        run_id = (await desk.leadrope("run", "work", *given)).out.strip()
        await background.until((desk.project / "begun").exists)
        await background.end("kill")
        await background.until(lambda: not background.all())
        refused.unlink()
        assert (await desk.leadrope("runs", "logs", "-f", run_id)).code == 0
    out = await shown(desk, run_id)
    assert "none changed" not in out
    assert "files      not known: there is no checkpoint" in out
    undo = await desk.leadrope("runs", "undo", run_id)
    assert undo.code == 2
    assert "there is no checkpoint" in undo.err
