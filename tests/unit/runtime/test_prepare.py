"""What a policy says of a request that is not about calls, and what every run keeps safe: leadrope's own files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from leadrope import RunRequest
from leadrope.core.config import Config
from leadrope.core.tools import ToolCall
from leadrope.policy.decide import Facts, Policy, decide
from leadrope.runs import worktrees
from leadrope.runtime import prepare, trust


def prepared(tmp_path: Path, policy: dict[str, Any], **fields: Any) -> prepare.Prepared:
    request = RunRequest(prompt="p", cwd=str(tmp_path), policy=policy, **fields)
    return prepare.complete(request, Config(), {"HOME": str(tmp_path)}, tmp_path / "leadrope")


@pytest.mark.parametrize(
    ("policy", "asked", "expected"),
    [
        ({}, None, None),
        ({}, False, False),
        ({}, True, True),
        ({"broker": True}, None, True),
        ({"broker": True}, False, True),
        ({"broker": "auto"}, False, False),
        ({"broker": "auto"}, True, True),
        ({"broker": False}, None, None),
    ],
)
def test_a_policy_can_ask_for_the_broker(
    tmp_path: Path, policy: dict[str, Any], asked: bool | None, expected: bool | None
) -> None:
    assert prepared(tmp_path, policy, broker=asked).request.broker is expected


def test_a_policy_can_refuse_models_without_a_price(tmp_path: Path) -> None:
    assert prepared(tmp_path, {}).config.prices.unknown == "dearest"
    assert prepared(tmp_path, {"unknown_price": "refuse"}).config.prices.unknown == "refuse"


def test_each_of_several_policies_is_a_layer_and_can_only_tighten(tmp_path: Path) -> None:
    found = prepared(tmp_path, {"max_budget_usd": 5}, policies=({"max_budget_usd": 2}, {"max_budget_usd": 9}))
    assert found.rules.max_budget_usd == 2
    assert found.request.limits.budget_usd == 2


TREES = f"/{worktrees.FOLDER}"
OWN = [
    *("", "/leadrope.db", "/.env", "/trust.json", "/sessions/a/b.jsonl", "/spool/x", "/workflows/w.flow.md"),
    *("/owners/o.lock", "/background/owner.sock"),
    *(TREES, f"{TREES}/r1", f"{TREES}/r1/{worktrees.RECORD}", f"{TREES}/r1/{worktrees.INDEX}"),
]


@pytest.mark.parametrize("name", ["leadrope", "odd [a]* name"])
@pytest.mark.parametrize("is_linked", [False, True])
def test_leadropes_own_files_are_not_written_without_approval_wherever_they_lie(
    tmp_path: Path, name: str, is_linked: bool
) -> None:
    real = tmp_path / name
    real.mkdir()
    given = tmp_path / "link" if is_linked else real
    if is_linked:
        given.symlink_to(real)
    environ = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "settings")}
    tree = real / "worktrees" / "r1" / "project"
    tree.mkdir(parents=True)
    rules = prepare.complete(RunRequest(prompt="p", cwd=str(tree)), Config(), environ, given).rules

    def written(path: str, workspace: Path = tree) -> str:
        policy = Policy(mode="full", workspace=(str(workspace),), rules=rules)
        calls = (
            ToolCall(id="t", name="Write", input={"file_path": path, "content": ""}),
            ToolCall(id="t", name="Bash", input={"command": f"touch '{path}'"}),
        )
        (word,) = {decide(policy, call).word for call in calls}
        return word

    for home in {given, real}:
        assert {path: written(f"{home}{path}") for path in OWN} == dict.fromkeys(OWN, "ask")
    assert written(str(tmp_path / "settings" / "leadrope" / "config.toml")) == "ask"
    # A run that works in a worktree was started to change it; its folder of git is another rule's.
    assert written(str(tree / "src" / "a.py")) == "allow"
    assert written("src/a.py") == written(".") == "allow"
    assert written(str(tmp_path / "other"), tmp_path) == "allow"


def test_a_worktree_in_the_usual_place_can_be_worked_in(tmp_path: Path) -> None:
    """Every edit of a run with a worktree was asked for once: its tree lies in leadrope's own folder."""
    home = tmp_path / ".local" / "share" / "leadrope"
    tree = home / "worktrees" / "r1" / "project"
    tree.mkdir(parents=True)
    rules = prepare.complete(RunRequest(prompt="p", cwd=str(tree)), Config(), {"HOME": str(tmp_path)}, home).rules
    policy = Policy(mode="edit", workspace=(str(tree),), rules=rules)
    call = ToolCall(id="t", name="Write", input={"file_path": str(tree / "a.py"), "content": "x"})
    facts = Facts(home=str(tmp_path))
    assert decide(policy, call, facts).word == "allow"
    assert decide(policy, ToolCall(id="t", name="Write", input={"file_path": f"{tree}/.git"}), facts).word == "ask"
    assert decide(policy, ToolCall(id="t", name="Write", input={"file_path": f"{home}/.env"}), facts).word == "ask"


def test_settings_that_did_not_exist_when_the_yes_was_given_are_not_read(tmp_path: Path) -> None:
    """The yes was to servers alone; what an agent makes in the settings' place has nothing of it."""
    repo, own = tmp_path / "repo", tmp_path / "leadrope"
    repo.mkdir()
    (repo / ".mcp.json").write_text('{"mcpServers": {"one": {"command": "x"}}}')
    trust.remember(own, trust.look(own, str(repo)))
    found = prepare.complete(RunRequest(prompt="p", cwd=str(repo)), Config(), {"HOME": str(tmp_path)}, own)
    assert (list(found.request.connections), found.is_trusted) == (["one"], False)
    (repo / ".claude").mkdir()
    (repo / ".claude" / "settings.json").write_text("{}")
    trust.remember(own, trust.look(own, str(repo)))
    found = prepare.complete(RunRequest(prompt="p", cwd=str(repo)), Config(), {"HOME": str(tmp_path)}, own)
    assert found.is_trusted


def test_what_cannot_be_trusted_is_told_at_each_run(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    (repo / "other").mkdir(parents=True)
    (repo / "other" / "settings.json").write_text("{}")
    (repo / ".claude").symlink_to("other")
    found = prepare.complete(RunRequest(prompt="p", cwd=str(repo)), Config(), {"HOME": str(tmp_path)}, tmp_path / "own")
    assert not found.is_trusted
    assert "they cannot be trusted: .claude is a link" in found.notices[0].message


def test_other_folders_of_a_run_are_asked_about_too(tmp_path: Path) -> None:
    """The agent takes subagents and skills from each of them; what lies above an extra folder is not read."""
    repo, extra, own = tmp_path / "repo", tmp_path / "more" / "extra", tmp_path / "leadrope"
    for folder in (repo, extra, extra.parent):
        (folder / ".claude").mkdir(parents=True)
        (folder / ".claude" / "agent.md").write_text("x")
    trust.remember(own, trust.look(own, str(repo)))

    def complete() -> prepare.Prepared:
        request = RunRequest(prompt="p", cwd=str(repo), extra_dirs=(str(extra),))
        return prepare.complete(request, Config(), {"HOME": str(tmp_path / "home")}, own)

    found = complete()
    assert not found.is_trusted
    assert f"those of {extra} would be read" in found.notices[0].message
    trust.remember(own, trust.look(own, str(extra)))
    (extra.parent / ".claude" / "agent.md").write_text("changed")
    assert complete().is_trusted
    (extra / ".claude" / "agent.md").write_text("changed")
    assert not complete().is_trusted
