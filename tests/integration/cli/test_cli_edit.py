"""`[e]dit` at a question: the call is there to be changed, the change is shown, and the question is asked again."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def command(text: str) -> dict[str, Any]:
    return {"tool": {"name": "Bash", "input": {"command": text, "description": "try"}}}


def editor(folder: Path, script: str) -> str:
    program = folder / "editor"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


async def test_a_command_is_changed_in_place(desk: Any) -> None:
    turns = [command("touch old.txt"), {"text": "Done."}]
    async with desk.playing(turns, "run", "go") as terminal:
        await terminal.reads("[e]dit: ")
        await terminal.asks("e\n", "Edit: touch old.txt")
        # Four to the left, three away, three more: the arrows are keys, not characters.
        terminal.types("\x1b[D" * 4 + "\x7f" * 3 + "new" + "\r")
        await terminal.reads("edited by you:\r\n", "-touch old.txt\r\n", "+touch new.txt\r\n", "[s]how all: ")
        await terminal.asks("y\n", "approved by you, edited")
        assert await terminal.ends() == 0
    assert "^[[D" not in terminal.seen
    assert (desk.project / "new.txt").exists()
    assert not (desk.project / "old.txt").exists()


async def test_ctrl_c_keeps_the_command_and_the_run(desk: Any) -> None:
    async with desk.playing([command("touch old.txt"), {"text": "Done."}], "run", "go") as terminal:
        await terminal.reads("[e]dit: ")
        await terminal.asks("e\n", "Edit: touch old.txt")
        await terminal.asks("xx\x03", "Nothing was changed.", "? Bash wants to run:", "[e]dit: ")
        await terminal.asks("y\n", "approved by you")
        assert await terminal.ends() == 0
    assert (desk.project / "old.txt").exists()


async def test_several_lines_open_the_editor(desk: Any, playing: Any, tmp_path: Path) -> None:
    program = editor(tmp_path, f'case "$1" in *.sh) sed -i s/old/new/ "$1";; esac; echo "$1" > {tmp_path}/named')
    async with (
        playing(command("touch a.txt\ntouch old.txt"), {"text": "Done."}) as model,
        desk.at_terminal("run", "go", "--base-url", model.url, EDITOR=program, VISUAL="") as terminal,
    ):
        await terminal.reads("[e]dit: ")
        await terminal.asks("e\n", " touch a.txt\r\n", "-touch old.txt\r\n", "+touch new.txt\r\n", "[s]how all: ")
        await terminal.asks("s\n", "    touch a.txt\r\n    touch new.txt\r\n", "Allow?")
        await terminal.asks("y\n", "approved by you, edited")
        assert await terminal.ends() == 0
    assert (desk.project / "new.txt").exists()
    assert not Path((tmp_path / "named").read_text().strip()).parent.exists(), "its file is gone"


async def test_ctrl_x_takes_a_line_to_the_editor_and_a_failed_one_changes_nothing(
    desk: Any, playing: Any, tmp_path: Path
) -> None:
    async with (
        playing(command("touch old.txt"), {"text": "Done."}) as model,
        desk.at_terminal("run", "go", "--base-url", model.url, VISUAL=editor(tmp_path, "exit 3")) as terminal,
    ):
        await terminal.reads("[e]dit: ")
        await terminal.asks("e\n", "Ctrl-X opens $EDITOR", "Edit: touch old.txt")
        await terminal.asks("\x18", "ended with exit code 3", "Allow?")
        await terminal.asks("n\n", "Why?")
        await terminal.asks("\n", "denied by you")
        assert await terminal.ends() in (0, 3)
    assert not (desk.project / "old.txt").exists()


async def test_the_text_of_a_file_is_what_is_edited(desk: Any, playing: Any, tmp_path: Path) -> None:
    program = editor(tmp_path, 'sed -i s/wrong/right/ "$1"')
    path = desk.project / "note.md"
    write = {"name": "Write", "input": {"file_path": str(path), "content": "all\nwrong\n"}}
    async with (
        playing({"tool": write}, {"text": "Done."}) as model,
        desk.at_terminal("run", "go", "--base-url", model.url, EDITOR=program) as terminal,
    ):
        await terminal.reads("note.md", "+wrong", "[e]dit: ")
        await terminal.asks("e\n", "-wrong\r\n", "+right\r\n", "[s]how all: ")
        await terminal.asks("y\n", "approved by you, edited")
        assert await terminal.ends() == 0
    assert path.read_text() == "all\nright\n"


async def test_a_command_cannot_steer_the_terminal_while_it_is_edited(desk: Any) -> None:
    turns = [command("echo \u202eowned"), {"text": "Done."}]
    async with desk.playing(turns, "run", "go") as terminal:
        await terminal.reads("<U+202E>", "Allow?")
        await terminal.asks("e\n", "New command (Enter keeps it): ")
        await terminal.asks("touch safe.txt\n", "+touch safe.txt", "Allow?")
        await terminal.asks("y\n", "approved by you, edited")
        assert await terminal.ends() == 0
    assert "\u202e" not in terminal.seen
    assert (desk.project / "safe.txt").exists()
