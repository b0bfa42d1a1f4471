"""What a terminal shows while a run is at work, and what its last line says."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

SLOW = {"name": "Bash", "input": {"command": "echo one; cat go; echo two; echo -----", "description": "wait"}}


def repository(folder: Path) -> None:
    git = ("git", "-c", "user.name=t", "-c", "user.email=t@localhost")
    (folder / "old.txt").write_text("old\n")
    (folder / "gone.txt").write_text("gone\n")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "first")):
        subprocess.run([*git, *words], cwd=folder, check=True)


def applies_backwards(folder: Path, patch: str) -> bool:
    """git itself takes it for a patch of these files."""
    words = ["git", "apply", "-R", "--check", "--exclude", "bin.dat", "-"]
    return subprocess.run(words, input=patch, text=True, cwd=folder, check=False).returncode == 0


def writes(desk: Any, name: str, text: str) -> dict[str, Any]:
    return {"name": "Write", "input": {"file_path": str(desk.project / name), "content": text}}


async def test_a_line_shows_what_it_is_doing_and_for_how_long(desk: Any, playing: Any) -> None:
    os.mkfifo(desk.project / "go")
    turns = (
        {"text": "I try.", "tool": SLOW, "wait": "thinking"},
        {"text": "Done.", "expect": {"tool_result": {"contains": "two"}}},
    )
    async with (
        playing(*turns) as model,
        desk.at_terminal("run", "go", "--mode", "full", "--sandbox", "off", "--base-url", model.url) as terminal,
    ):
        await terminal.reads("⋯ starting the agent", "⋯ thinking 1s", "⋯ thinking 2s")
        model.release("thinking")
        await terminal.reads("I try.\r\n", "⋯ Bash echo one; cat go; echo two; echo ----- 1s · allowed by mode:full")
        assert "✓" not in terminal.seen, "allowed is not done"
        (desk.project / "go").write_text("\n")
        await terminal.reads(
            "✓ Bash echo one; cat go; echo two; echo -----  allowed by mode:full · ", "↳ two  (2 lines)"
        )
        assert await terminal.ends() == 0
    last = terminal.seen.rpartition("tokens")[2]
    assert "⋯" not in last


async def test_no_line_moves_on_a_dumb_terminal_or_in_a_pipe(desk: Any, playing: Any) -> None:
    turns = [{"text": "I try.", "tool": desk.touch}, {"text": "Done."}] * 2
    async with playing(*turns) as model:
        common = ("run", "go", "--mode", "full", "--base-url", model.url)
        async with desk.at_terminal(*common, TERM="dumb") as terminal:
            assert await terminal.ends() == 0
        piped = await desk.leadrope(*common)
    for shown in (terminal.seen, piped.err):
        assert "\x1b[" not in shown
        assert "⋯" not in shown
        assert re.search(r"→ Bash touch \S+  allowed by mode:full", shown)
        assert re.search(r"✓ Bash touch \S+  \d+\.\ds", shown)
    assert piped.out == "Done.\n"


async def test_the_last_line_names_the_run_its_changes_and_the_next_command(desk: Any, playing: Any) -> None:
    repository(desk.project)
    (desk.project / ".gitignore").write_text("*.log\n")
    (desk.project / "kept.log").write_text("before\n")
    (desk.project / "change.sh").write_text("rm gone.txt; printf '\\0\\1' > bin.dat\n")
    turns = (
        {"tool": writes(desk, "new.txt", "new\n")},
        {"tool": {"name": "Bash", "input": {"command": "sh change.sh"}}},
        {"tool": {"name": "Read", "input": {"file_path": str(desk.project / "kept.log")}}},
        {"tool": writes(desk, "kept.log", "after\n")},
        {"text": "Done."},
    )
    async with playing(*turns) as model:
        ended = await desk.leadrope("run", "go", "--mode", "full", "--base-url", model.url)
    assert ended.code == 0, ended.err
    last = ended.err.splitlines()[-1]
    found = re.fullmatch(r"run ([0-9a-f]{4})[0-9a-f]{4} · 4 files changed · leadrope runs diff \1 \(or undo\)", last)
    assert found, ended.err
    for name in ([found[1]], ["last"], []):
        patch = (await desk.leadrope("runs", "diff", *name)).out
        assert "diff --git a/new.txt b/new.txt\nnew file mode 100644\n" in patch
        assert "deleted file mode 100644" in patch
        assert "-gone\n" in patch
        assert "Binary files /dev/null and b/bin.dat differ" in patch
        assert "--- a/kept.log\n+++ b/kept.log\n@@ -1 +1 @@\n-before\n+after\n" in patch
    assert applies_backwards(desk.project, patch), patch
    shown = (await desk.leadrope("runs", "show")).out
    assert re.search(r"^mode +full$", shown, re.MULTILINE)
    assert re.search(r"^duration +\d+\.\ds$", shown, re.MULTILINE)
    assert re.search(r"^files +4 changed: bin.dat, gone.txt, kept.log, new.txt$", shown, re.MULTILINE)
    assert "\nPrompt:\n  go\n\nAnswer:\n  Done.\n" in shown
    undone = await desk.leadrope("runs", "undo")
    assert undone.code == 0, undone.err
    assert (desk.project / "gone.txt").read_text() == "gone\n"
    assert (desk.project / "kept.log").read_text() == "before\n"


async def test_the_changes_of_a_worktree_are_named_and_stay_there_when_it_is_resumed(desk: Any, playing: Any) -> None:
    repository(desk.project)
    touch = {"name": "Bash", "input": {"command": "touch first.txt"}}
    then = {"name": "Bash", "input": {"command": "touch second.txt"}}
    turns = (
        {"tool": touch},
        {"text": "Done."},
        {"tool": then},
        {"text": "Done again.", "expect": {"contains": "Done."}},
    )
    settings = desk.home / ".config" / "leadrope" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text("[service]\nidle_s = 1\n")
    async with playing(*turns) as model:
        ended = await desk.leadrope("run", "go", "--mode", "full", "--worktree", "--base-url", model.url)
        found = re.search(
            r"^run (\S{4})\S{4} · 1 file changed in its worktree · leadrope runs diff \1 \(or apply, discard\)$",
            ended.err,
            re.MULTILINE,
        )
        assert found, ended.err
        shown = (await desk.leadrope("runs", "show", found[1])).out
        assert re.search(r"^branch +leadrope/", shown, re.MULTILINE)
        resumed = await desk.leadrope("runs", "resume", "and another one")
        assert resumed.code == 0, resumed.err
        followed = await desk.leadrope("runs", "logs", "-f", resumed.out.strip())
        assert "Done again." in followed.out
    assert not (desk.project / "second.txt").exists(), "it would be the user's checkout"
    patch = (await desk.leadrope("runs", "diff", resumed.out.strip())).out
    assert "first.txt" in patch
    assert "second.txt" in patch
    request = json.loads((await desk.leadrope("runs", "show", resumed.out.strip(), "-o", "json")).out)["request"]
    assert request["mode"] == "full"
    assert request["base_url"] == model.url


async def test_a_command_that_changes_something_does_not_reach_into_another_folder(desk: Any, playing: Any) -> None:
    async with playing({"tool": writes(desk, "new.txt", "new\n")}, {"text": "Done."}) as model:
        assert (await desk.leadrope("run", "go", "--mode", "edit", "--base-url", model.url)).code == 0
    elsewhere = desk.home / "elsewhere"
    elsewhere.mkdir()
    project, desk.project = desk.project, elsewhere
    looked = await desk.leadrope("runs", "show")
    assert looked.code == 0, looked.err
    assert f"in {project}: go" in looked.err
    for name in ("undo", "discard", "apply", "retry", "resume", "stop"):
        refused = await desk.leadrope("runs", name)
        assert refused.code != 0
        assert "Name the run; the newest of all is" in refused.err
    assert (project / "new.txt").exists()


async def test_resume_and_fork_take_the_ids_of_runs(desk: Any, playing: Any) -> None:
    turns = (
        {"text": "I remember."},
        {"text": "It was 42.", "expect": {"contains": ["number 42", "which"]}},
        {"text": "42 here too.", "expect": {"contains": ["number 42", "and here"]}},
    )
    async with playing(*turns) as model:
        url = ("--base-url", model.url)
        first = await desk.leadrope("run", "the number 42", "-o", "json", *url)
        run = json.loads(first.out)
        again = await desk.leadrope("run", "which?", "--resume", run["run_id"][:6], "-o", "json", *url)
        assert json.loads(again.out)["session_id"] == run["session_id"], again.err
        fork = await desk.leadrope("run", "and here?", "--fork", run["run_id"], "-o", "json", *url)
        assert json.loads(fork.out)["session_id"] != run["session_id"], fork.err
    before = (await desk.leadrope("runs", "list", "-o", "json")).out
    unknown = await desk.leadrope("run", "x", "--resume", "abcdef12")
    assert unknown.code == 2
    assert "--resume: no session or run 'abcdef12' is known" in unknown.err
    assert (await desk.leadrope("runs", "list", "-o", "json")).out == before, "it is not kept as a run of that session"
    assert (await desk.leadrope("events", "abcdef12")).code == 2
