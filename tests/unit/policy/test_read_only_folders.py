"""Folders that a run was given to read only: what a call would write there is denied or asked for in every mode."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from leadrope.core.request import Mode
from leadrope.core.tools import ToolCall
from leadrope.policy.decide import Facts, Policy, decide

HOME = "/home/u"
POLICY = Policy(mode="full", workspace=("/home/u/p", "/home/u/notes/mine"), read_only=("/home/u/notes",))


def said(name: str, given: dict[str, Any], policy: Policy = POLICY, *, sandboxed: bool = False) -> str:
    call = ToolCall(id="1", name=name, input=given)
    verdict = decide(policy, call, Facts(home=HOME, person=True, sandboxed=sandboxed), resolve=lambda path: path)
    return verdict.word if verdict.rule == "extra_dirs" else "other"


@pytest.mark.parametrize("mode", get_args(Mode))
@pytest.mark.parametrize("tool", ["Write", "Edit", "NotebookEdit"])
def test_edits_are_denied_in_every_mode(mode: Mode, tool: str) -> None:
    policy = Policy(mode=mode, workspace=POLICY.workspace, read_only=POLICY.read_only, allow=("Write", "Edit"))
    for path in ("/home/u/notes/a", "../notes/a", "~/notes/a", "/home/u/p/../notes/sub/a"):
        field = "notebook_path" if tool == "NotebookEdit" else "file_path"
        assert said(tool, {field: path, "content": "x"}, policy, sandboxed=True) == "deny"
    assert said("Read", {"file_path": "/home/u/notes/a"}, policy) == "other"
    assert said("Write", {"file_path": "/home/u/notes/mine/a", "content": "x"}, policy) == "other"


@pytest.mark.parametrize(
    ("command", "word"),
    [
        ("echo x > ~/notes/b", "deny"),
        ("sed -i s/a/b/ ~/notes/a", "deny"),
        ("cd ~/notes && touch z", "deny"),
        ("cp a ~/notes/", "deny"),
        ("rm -rf ~/notes", "deny"),
        ("tee ../notes/x", "deny"),
        ("mv ~/notes/a x", "ask"),
        ("rm -rf ~/*", "ask"),
        ("rm -rf ~/n*/x", "ask"),
        ("tar xf x.tar -C ~/notes", "ask"),
        ("cp ~/notes/a .", "other"),
        ("rsync -a ~/notes/ here/", "other"),
        ("cat ~/notes/a > b", "other"),
        ("grep -r x ~/notes", "other"),
        ("ls ~/notes && touch a", "other"),
        ("rm -rf ~/notes/mine/*", "other"),
        ("echo x > ~/notes/mine/b", "other"),
        ("rm -rf build", "other"),
    ],
)
def test_commands_are_judged_by_what_they_write(command: str, word: str) -> None:
    assert said("Bash", {"command": command}) == word
    assert said("Bash", {"command": command}, sandboxed=True) == ("deny" if word == "deny" else "other")


def test_a_link_to_what_is_read_only_does_not_change_it() -> None:
    assert said("Bash", {"command": "ln -s ~/notes/a b"}, sandboxed=True) == "other"
    assert said("Bash", {"command": "ln -s ~/notes/a b && echo x > b"}) == "ask"
