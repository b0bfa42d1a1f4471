"""Files that steps name outside of the workspace: told by the check, as the step itself would refuse them."""

from __future__ import annotations

from pathlib import Path

import pytest

from leadrope.workflows import library

HEAD = "# T\n\n## Steps\n\n### a\n\nx\n\n"  # 8 lines


def told(workspace: Path, step: str) -> list[tuple[int, int, str, str]]:
    (workspace / "w.flow.md").write_text(HEAD + step)
    _, problems = library.judged(workspace / "w.flow.md", leadrope_home=workspace / "leadrope", workspace=workspace)
    return [(one.line, one.column, one.kind, one.message) for one in problems if one.severity == "error"]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    folder.mkdir()
    return folder


OUTSIDE = {
    "- type: agent\n- prompt: x\n- attachments: [notes.txt, ../a.txt]\n": (11, 16, "attachments: '../a.txt'"),
    "- type: claude-code\n- prompt: x\n- attachments: [/etc/hostname]\n": (11, 16, "attachments: '/etc/hostname'"),
    "- type: llm\n- prompt: x\n- images: [sub/../../a.png]\n": (11, 11, "images: 'sub/../../a.png'"),
    "- type: email\n- to: a@b.c\n- subject: x\n- body: x\n- attachments: [../a]\n": (13, 16, "attachments: '../a'"),
    "- type: read-file\n- file_path: ../a\n": (10, 14, "file_path: '../a'"),
    "- type: write-file\n- file_path: ../a\n- content: x\n": (10, 14, "file_path: '../a'"),
    "- type: delete-file\n- file_path: ../ws2/a\n": (10, 14, "file_path: '../ws2/a'"),
    "- type: copy-file\n- source: a\n- destination: ../b\n": (11, 16, "destination: '../b'"),
    "- type: move-file\n- source: ../a\n- destination: b\n": (10, 11, "source: '../a'"),
}


@pytest.mark.parametrize("step", OUTSIDE)
def test_a_file_outside_is_an_error_where_it_is_named(workspace: Path, step: str) -> None:
    line, column, name = OUTSIDE[step]
    expected = f"{name} is outside of the workspace {workspace.resolve()}"
    assert told(workspace, step) == [(line, column, "outside_workspace", expected)]


@pytest.mark.parametrize(
    "names",
    [
        "[notes.txt, sub/notes.txt, sub/../notes.txt, ../ws/notes.txt]",
        "['${item}']",
        "['$${x}/notes.txt']",
    ],
)
def test_a_name_inside_or_not_known_yet_is_left_to_the_step(workspace: Path, names: str) -> None:
    step = f"- type: agent\n- prompt: x\n- attachments: {names}\n- batch:\n    items: [../a]\n"
    assert told(workspace, step) == []


def test_another_name_of_the_workspace_is_inside(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "other").symlink_to(workspace)
    (workspace / "sub").mkdir()
    (tmp_path / "sub").symlink_to(workspace / "sub")
    for name in (f"{tmp_path}/other/notes.txt", f"{tmp_path}/sub/../notes.txt"):
        assert told(workspace, f"- type: agent\n- prompt: x\n- attachments: [{name}]\n") == []


def test_a_link_may_have_another_end_by_then(workspace: Path) -> None:
    (workspace / "link").symlink_to("/etc")
    assert told(workspace, "- type: agent\n- prompt: x\n- attachments: [link/hostname]\n") == []


def test_a_file_that_runs_elsewhere_is_not_judged_by_this_folder(workspace: Path) -> None:
    """A workflow that another one calls runs in that one's workspace."""
    (workspace / "w.flow.md").write_text(HEAD + "- type: agent\n- prompt: x\n- attachments: [../a.txt]\n")
    _, problems = library.judged(workspace / "w.flow.md", leadrope_home=workspace / "leadrope")
    assert problems == ()
