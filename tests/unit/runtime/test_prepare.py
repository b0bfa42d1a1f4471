"""What a policy says of a request that is not about calls, and what every run keeps safe: leadrope's own files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from leadrope import Limits, RunRequest
from leadrope.cli.run.run import build, command
from leadrope.core import config
from leadrope.core.config import Config
from leadrope.core.tools import ToolCall
from leadrope.policy.decide import Facts, Policy, decide
from leadrope.runs.workspace import worktrees
from leadrope.runtime import prepare
from leadrope.runtime.trust import trust


def prepared(tmp_path: Path, policy: dict[str, Any], *, waits: bool = False, **fields: Any) -> prepare.Prepared:
    request = RunRequest(prompt="p", cwd=str(tmp_path), policy=policy, **fields)
    return prepare.complete(request, Config(), {"HOME": str(tmp_path)}, tmp_path / "leadrope", waits=waits)


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


@pytest.mark.parametrize("way", ["flag", "environment", "config", "python"])
@pytest.mark.parametrize("idle_s", [0, 10, 900])
def test_the_idle_clock_is_what_was_asked_for(tmp_path: Path, way: str, idle_s: float) -> None:
    """0 is off, and the shipped 300 s are a default, whichever way the user says it."""
    environ = {"HOME": str(tmp_path)}
    settings = Config()
    flags: dict[str, Any] = {}
    if way == "environment":
        environ["LEADROPE_SPAWN_IDLE_TIMEOUT_MS"] = str(idle_s * 1000)
    elif way == "config":
        settings = config.parse(f"[run.limits]\nidle_s = {idle_s}\n")
    elif way == "flag":
        flags = command.make_context("run", ["--idle-secs", str(idle_s)]).params
        flags.pop("prompt")
    if way == "python":
        request = RunRequest(prompt="p", limits=Limits(idle_s=idle_s))
    else:
        request = build("p", flags, settings, environ)
    request = msgspec.structs.replace(request, cwd=str(tmp_path))
    found = prepare.complete(request, settings, environ, tmp_path / "leadrope")
    assert found.request.limits.idle_s == idle_s
    assert found.notices == ()
    again = prepare.complete(found.request, settings, environ, tmp_path / "leadrope")
    assert again.request.limits == found.request.limits


def test_what_nobody_asked_for_is_what_ships(tmp_path: Path) -> None:
    limits = prepared(tmp_path, {}).request.limits
    assert (limits.idle_s, limits.tool_s, limits.wall_s, limits.budget_usd) == (300, 900, 0, 100)


@pytest.mark.parametrize(
    ("asked", "policy", "attended", "detached"),
    [
        (None, {}, 300, 0),
        (0, {}, 0, 0),
        (20, {}, 20, 20),
        (None, {"max_approval_ms": 60_000}, 60, 60),
        (20, {"max_approval_ms": 60_000}, 20, 20),
        (None, {"max_approval_ms": 900_000}, 300, 900),
    ],
)
def test_the_time_for_an_approval(
    tmp_path: Path, asked: float | None, policy: dict[str, Any], attended: float, detached: float
) -> None:
    """0: without a limit. Nobody is told of a cap on what he has not asked for."""
    for waits, expected in ((False, attended), (True, detached)):
        found = prepared(tmp_path, policy, waits=waits, limits=Limits(approval_s=asked))
        assert (found.request.limits.approval_s, found.notices) == (expected, ())


@pytest.mark.parametrize(
    ("limits", "policy", "message"),
    [
        (
            Limits(approval_s=0),
            {"max_approval_ms": 60_000},
            "no approval timeout was asked for; the policy (run) allows 60 s",
        ),
        (
            Limits(idle_s=900),
            {"max_timeout_ms": 120_000},
            "an idle timeout of 900 s was asked for; the policy (run) allows 120 s",
        ),
        (
            Limits(idle_s=0),
            {"max_timeout_ms": 120_000},
            "no idle timeout was asked for; the policy (run) allows 120 s",
        ),
        (
            Limits(budget_usd=500),
            {"max_budget_usd": 250},
            "a budget of 500 USD was asked for; the policy (run) allows 250 USD",
        ),
        (Limits(budget_usd="none"), {"max_budget_usd": 5}, "no budget was asked for; the policy (run) allows 5 USD"),
        (
            Limits(memory_mb=900),
            {"max_memory_mb": 500},
            "a memory limit of 900 MiB was asked for; the policy (run) allows 500 MiB",
        ),
    ],
)
def test_a_cap_that_lowers_what_was_asked_for_says_so(
    tmp_path: Path, limits: Limits, policy: dict[str, Any], message: str
) -> None:
    found = prepared(tmp_path, policy, limits=limits)
    assert [(notice.code, notice.message) for notice in found.notices] == [("limit_lowered", message)]


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
    (repo / ".mcp.json").write_text('{"mcpServers": {"one": {"command": "sh"}}}')
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


def test_the_rules_of_a_project_are_not_called_ignored(tmp_path: Path) -> None:
    """They hold in every run, whether the repository is trusted or not."""
    repo = tmp_path / "repo"
    repo.mkdir()
    (repo / "leadrope.toml").write_text('[policy]\nblocked_commands = ["terraform"]\n')

    def complete() -> prepare.Prepared:
        request = RunRequest(prompt="p", cwd=str(repo))
        return prepare.complete(request, Config(), {"HOME": str(tmp_path / "home")}, tmp_path / "leadrope")

    assert complete().notices == ()
    (repo / ".mcp.json").write_text("{}")
    found = complete()
    assert "settings are ignored (.mcp.json);" in found.notices[0].message
    assert "terraform" in found.rules.blocked_commands
