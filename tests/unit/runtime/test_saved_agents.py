"""Saved agents: which one is meant, what a run with it gets, and when it is refused."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from leadrope import errors
from leadrope.core import config as configs
from leadrope.core import home
from leadrope.core.request import Limits, RunRequest
from leadrope.policy.files.document import Problems
from leadrope.runtime import prepare
from leadrope.runtime.agents import saved_agents
from leadrope.runtime.trust import trust

MARKDOWN = "---\nname: {name}\ndescription: {about}\n{more}---\n{persona}\n"


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    (folder / ".claude" / "agents").mkdir(parents=True)
    return folder


def environ() -> dict[str, str]:
    return dict(os.environ)


def config_of(text: str) -> configs.Config:
    path = home.config_file(environ())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return configs.load(environ())


def put(folder: Path, name: str, *, about: str = "", more: str = "", persona: str = "You are.") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.md"
    path.write_text(MARKDOWN.format(name=name, about=about or name, more=more, persona=persona))
    return path


def trust_it(ws: Path) -> None:
    own = home.leadrope_home(environ())
    trust.remember(own, trust.look(own, str(ws.resolve()), home.user_home(environ())))


def made(config: configs.Config, ws: Path, **given: Any) -> RunRequest:
    profile = given.pop("profile", None)
    fields = {"prompt": "go", "cwd": str(ws), **given}
    return saved_agents.request_of(config, fields, profile=profile, environ=environ())


# -- which one --------------------------------------------------------------------------------------------------------


def test_config_comes_before_the_users_files_before_the_repositorys(ws: Path) -> None:
    mine = saved_agents.user_folder(environ())
    for name in ("a", "b", "c"):
        put(ws / ".claude" / "agents", name, persona="the repository's")
    for name in ("a", "b"):
        put(mine, name, persona="the user's")
    trust_it(ws)
    config = config_of('[agents.a]\nsystem_prompt = "the config\'s"\n')
    found = {name: saved_agents.find(name, config, environ(), ws) for name in ("a", "b", "c")}
    assert {name: saved.origin for name, saved in found.items()} == {"a": "config", "b": "user", "c": "repository"}
    listed = saved_agents.listing(config, environ(), ws)
    assert [(one.name, one.origin, one.is_hidden) for one in listed] == [
        ("a", "config", False),
        ("a", "user", True),
        ("b", "user", False),
        ("a", "repository", True),
        ("b", "repository", True),
        ("c", "repository", False),
    ]
    assert saved_agents.names(config, environ(), ws) == ["a", "b", "c"]


def test_an_unknown_name_is_refused_with_the_nearest_one(ws: Path) -> None:
    config = config_of("[agents.reviewer]\n")
    with pytest.raises(errors.BadValue, match="there is no agent 'reviwer'") as refused:
        made(config, ws, agent="reviwer")
    assert refused.value.hint == "Did you mean reviewer?"
    with pytest.raises(errors.BadValue) as refused:
        made(config, ws, agent="x")
    assert refused.value.hint == "There are: reviewer."
    with pytest.raises(errors.BadValue) as refused:
        made(config_of(""), ws, agent="ghost")
    assert refused.value.hint == "`leadrope agents new ghost` makes one."


def test_a_repositorys_agent_counts_as_it_was_trusted_and_not_otherwise(ws: Path) -> None:
    path = put(ws / ".claude" / "agents", "evil", persona="one")
    config = config_of("")
    with pytest.raises(Problems, match="not trusted") as refused:
        made(config, ws, agent="evil")
    assert str(path.resolve()) in refused.value.message
    assert "leadrope trust" in str(refused.value.hint)
    assert saved_agents.names(config, environ(), ws) == []
    trust_it(ws)
    assert made(config, ws, agent="evil").system_prompt == "one"
    path.write_text(path.read_text().replace("one", "two"))
    with pytest.raises(Problems, match="changed since they were trusted"):
        made(config, ws, agent="evil")


def test_a_file_that_is_exchanged_after_it_was_looked_at_is_not_used(ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(ws / ".claude" / "agents", "evil", persona="one")
    trust_it(ws)
    look = trust.look

    def late(*given: Any, **more: Any) -> trust.Trust:
        found = look(*given, **more)
        path.write_text(path.read_text().replace("one", "two"))
        return found

    monkeypatch.setattr(trust, "look", late)
    with pytest.raises(Problems, match="changed since they were trusted"):
        made(config_of(""), ws, agent="evil")


def test_links_and_pipes_among_the_files_are_not_read(ws: Path, tmp_path: Path) -> None:
    folder = ws / ".claude" / "agents"
    key = tmp_path / "key"
    key.write_text("---\nname: k\n---\nSECRET\n")
    (folder / "k.md").symlink_to(key)
    os.mkfifo(folder / "pipe.md")
    put(folder, "fine")
    trust_it(ws)
    assert saved_agents.names(config_of(""), environ(), ws) == ["fine"]


# -- what a run gets --------------------------------------------------------------------------------------------------

LAYERS = """
[run]
model = "haiku"
mode = "default"
effort = "low"
disallowed_tools = ["WebSearch"]
max_turns = 3
[run.limits]
idle_s = 10
wall_s = 20
[run.variables]
A = "run"
B = "run"
[profiles.p]
effort = "medium"
mode = "edit"
[agents.reviewer]
description = "Reviews."
model = "opus"
mode = "plan"
tools = ["Read", "Grep"]
disallowed_tools = ["WebFetch"]
system_prompt = "You review."
[agents.reviewer.limits]
wall_s = 30
[agents.reviewer.variables]
B = "agent"
"""


def test_a_flag_is_above_the_agent_above_the_profile_above_run(ws: Path) -> None:
    config = config_of(LAYERS)
    request = made(config, ws, agent="reviewer", profile="p", tools=["Read"], limits={"idle_s": 5})
    assert (request.tools, request.mode, request.model) == (("Read",), "plan", "opus")
    assert (request.effort, request.max_turns, request.system_prompt) == ("medium", 3, "You review.")
    assert (request.limits.idle_s, request.limits.wall_s) == (5, 30)
    assert request.variables == {"A": "run", "B": "agent"}
    assert request.disallowed_tools == ("WebSearch", "WebFetch")  # prohibitions of all layers count
    assert (request.agent, request.agent_from) == ("reviewer", "config")
    assert made(config, ws, agent="reviewer", mode="full").mode == "full"
    assert made(config, ws).agent_from is None


def test_a_purpose_is_above_the_model_of_a_layer_below(ws: Path) -> None:
    config = config_of(LAYERS + '[agents.talker]\npurpose = "chat"\n')
    assert made(config, ws, agent="reviewer", purpose="chat").model is None
    assert made(config, ws, agent="talker").model is None  # not the haiku of [run]
    assert made(config, ws, agent="talker", model="opus").model == "opus"


def test_the_usual_values_of_a_caller_are_below_the_agent(ws: Path) -> None:
    config = config_of(LAYERS)
    fields = {"prompt": "go", "cwd": str(ws), "agent": "reviewer"}
    usual = {"model": "sonnet", "max_turns": 50}
    request = saved_agents.request_of(config, fields, usual=usual, environ=environ())
    assert (request.model, request.max_turns) == ("opus", 50)


def test_run_or_a_profile_may_name_the_agent(ws: Path) -> None:
    config = config_of('[profiles.p]\nagent = "a"\n[agents.a]\nmode = "plan"\n')
    assert made(config, ws, profile="p").mode == "plan"
    assert made(config, ws, profile="p", agent=None).mode == "default"


def test_rules_of_an_agent_tighten_whatever_the_call_says(ws: Path) -> None:
    put(ws / ".claude" / "agents", "strict", more="permissionMode: plan\ntools: Read\n")
    trust_it(ws)
    config = config_of('[agents.mine.policy]\npermission_mode = "plan"\n')
    for name in ("mine", "strict"):
        request = made(config, ws, agent=name, mode="full", tools=["Bash"])
        ready = prepare.complete(request, config, environ(), home.leadrope_home(environ()))
        assert ready.rules.permission_mode == ("plan",), name


def test_files_of_an_agent_are_read_from_beside_config_toml(ws: Path) -> None:
    config = config_of(
        '[agents.a]\nsystem_prompt_file = "a.md"\noutput_schema_file = "a.json"\n'
        f'append_system_prompt_file = "{ws}/more.md"\n'
    )
    beside = home.config_file(environ()).parent
    (beside / "a.md").write_text("You are a.")
    (beside / "a.json").write_text('{"type": "object"}')
    (ws / "more.md").write_text("More.")
    request = made(config, ws, agent="a")
    assert (request.system_prompt, request.append_system_prompt) == ("You are a.", "More.")
    assert request.output_schema == {"type": "object"}
    (ws / "more.md").unlink()
    (ws / "more.md").symlink_to("/etc/hostname")  # what an agent at work there could do
    with pytest.raises(Problems, match=r"config\.toml:4: agents\.a\.append_system_prompt_file: .*leads out"):
        made(config, ws, agent="a")


def test_a_request_that_only_names_its_agent_gets_its_values(ws: Path) -> None:
    """What a program writes: RunRequest(agent="reviewer"), with no layer of config.toml below it."""
    config = config_of(LAYERS)
    asked = RunRequest(prompt="go", agent="reviewer", cwd=str(ws), max_turns=9, limits=Limits(idle_s=7))
    request = prepare.complete(asked, config, environ(), home.leadrope_home(environ())).request
    assert (request.model, request.mode, request.max_turns, request.agent_from) == ("opus", "plan", 9, "config")
    assert (request.limits.idle_s, request.limits.wall_s, request.effort) == (7, 30, None)
    with pytest.raises(errors.BadValue, match="there is no agent 'ghost'"):
        prepare.complete(
            RunRequest(prompt="go", agent="ghost", cwd=str(ws)), config, environ(), home.leadrope_home(environ())
        )


# -- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('mode = "pln"', "config.toml:3: agents.a.mode: 'pln' is not a mode"),
        ('purpose = "reveiw"', "config.toml:3: agents.a.purpose: 'reveiw' is not known"),
        ('effort = "huge"', "config.toml:3: agents.a.effort: 'huge' is not known"),
        ('tools = ["Bahs"]', "config.toml:3: agents.a.tools: "),
        ("max_turns = 1000", "config.toml:3: agents.a.max_turns: 1000 is out of range"),
        ('system_prompt_file = "none.md"', "config.toml:3: agents.a.system_prompt_file: "),
        ('policy.permission_mode = "x"', "config.toml:3: agents.a.policy.permission_mode: "),
    ],
)
def test_wrong_values_have_file_and_line(ws: Path, line: str, message: str) -> None:
    config = config_of(f"[agents.a]\ndescription = ''\n{line}\n")
    (entry,) = saved_agents.listing(config, environ(), ws)
    assert message in str(entry.problems[0])
    if "policy" not in line:  # rules are read with all others, when the run is prepared
        with pytest.raises(Problems) as refused:
            made(config, ws, agent="a")
        assert message in refused.value.message


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("[agents.a]\npurpos = 'x'\n", "agents.a.purpos is not a known key", "Did you mean purpose"),
        ("[agents.a]\npersona = 'x'\n", "agents.a.persona is not a known key", "Write it as system_prompt"),
        ("[agents.a]\nagent = 'b'\n", "an agent cannot be based on another one", "Leave it out."),
        ("[agents.a]\nsystem_prompt = 'x'\nsystem_prompt_file = 'y'\n", "are both set", "Set one of the two."),
        ("[agents.a]\nconnections = ['x']\n", "there is no connection 'x'", "Add [connections.x]"),
        ("[agents]\na = 3\n", "agents.a: is not a table", "Write [agents.a] on a line of its own."),
    ],
)
def test_wrong_keys_are_errors_of_their_agent_alone(ws: Path, text: str, message: str, hint: str) -> None:
    config = config_of(text + "[agents.b]\nmode = 'plan'\n")
    with pytest.raises(errors.BadConfig) as refused:
        made(config, ws, agent="a")
    assert message in refused.value.message
    assert re.match(r".*config\.toml:\d: agents\.a", refused.value.message)
    assert hint in str(refused.value.hint)
    assert made(config, ws, agent="b").mode == "plan"
    assert made(config, ws).agent is None
    entries = {entry.name: entry for entry in saved_agents.listing(config, environ(), ws)}
    (problem,) = entries["a"].problems
    assert (problem.line, problem.hint) == (int(re.findall(r":(\d):", refused.value.message)[0]), refused.value.hint)
    assert problem.where.startswith("agents.a")
    assert entries["b"].problems == ()
