"""`leadrope agents` and `--agent` as a user types them, with the real agent program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

AGENT = "---\nname: critic\ndescription: Reviews\ntools: Read, Grep\nmodel: haiku\n---\nYou are the critic.\n"


def config_of(desk: Any) -> Path:
    path: Path = desk.home / ".config" / "leadrope" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


async def test_an_agent_from_making_it_to_its_run(desk: Any, playing: Any) -> None:
    """`new` keeps the file, `show --prompt` prints what the model then gets, and all of the agent is in effect."""
    path = config_of(desk)
    before = '# mine\n[run]\nmode = "full"   # at home\nmodel = "haiku"\n'
    path.write_text(before)
    (desk.project / "CLAUDE.md").write_text("Use tabs.")
    (desk.project / "persona.md").write_text("You are the reviewer.")
    made = await desk.leadrope(
        *("agents", "new", "reviewer", "--description", "Reviews", "--model", "opus", "--mode", "dontAsk"),
        *(
            "--system-prompt-file",
            "persona.md",
            "--append-system-prompt",
            "Be brief.",
            "--disallowed-tools",
            "WebFetch",
        ),
    )
    assert made.code == 0, made.err
    assert path.read_text().startswith(before)
    assert "\n# effort = " in path.read_text()
    shown = await desk.leadrope("agents", "show", "reviewer", "--prompt")
    assert shown.code == 0, shown.err
    order = ["You are the reviewer.", "Use tabs.", "Be brief."]
    assert sorted(order, key=shown.out.index) == order
    async with playing({"tool": desk.touch}, {"text": "Done."}) as model:
        ran = await desk.leadrope(
            *("run", "go", "--agent", "reviewer", "--base-url", model.url, "-o", "stream-json", "--no-broker")
        )
    asked = model.requests[0].body
    system = [block["text"] for block in asked["system"]]
    assert any(text.startswith("You are the reviewer.") for text in system)
    assert shown.out.strip() in "\n\n".join(system)
    assert asked["model"].startswith("claude-opus")
    events = [json.loads(line)["event"] for line in ran.out.splitlines()]
    (started,) = [event for event in events if event["type"] == "session.started"]
    assert (started["mode"], started["model"]) == ("dontAsk", asked["model"])
    assert "WebFetch" not in [tool["name"] for tool in asked["tools"]]
    assert not desk.marker.exists(), "dontAsk denies the command"


async def test_show_lists_the_rules_that_are_the_agents_own(desk: Any) -> None:
    rules = '[agents.a.policy]\nblocked_commands = ["curl"]\nmax_tool_calls = 5\npermission_mode = "plan"\n'
    config_of(desk).write_text(f'[policy]\nblocked_commands = ["wget"]\n[agents.a]\nmode = "edit"\n{rules}')
    shown = await desk.leadrope("agents", "show", "a", "-o", "json")
    assert shown.code == 0, shown.err
    effective = json.loads(shown.out)["effective"]
    assert {name: value for name, value in effective.items() if name.startswith("rule ")} == {
        "rule blocked_commands": ["curl"],
        "rule max_tool_calls": 5,
        "rule permission_mode": ["plan"],
    }
    seen = (await desk.leadrope("agents", "show", "a")).out
    assert "curl" in seen
    assert "idle_secs          300\n" in seen
    assert "the agent program's own" in seen


async def test_a_repositorys_agent_is_refused_until_it_is_trusted(desk: Any, playing: Any) -> None:
    folder = desk.project / ".claude" / "agents"
    folder.mkdir(parents=True)
    (folder / "critic.md").write_text(AGENT)
    refused = await desk.leadrope("run", "go", "--agent", "critic")
    assert refused.code == 2
    assert "critic.md: the repository's agents are not trusted" in refused.err
    assert "leadrope trust" in refused.err
    listed = await desk.leadrope("agents", "list")
    assert "critic" in listed.out
    assert "not trusted" in listed.out
    assert (await desk.leadrope("agents", "check")).code == 1
    assert (await desk.leadrope("trust", "--yes")).code == 0
    async with playing({"tool": desk.touch}, {"text": "Done."}) as model:
        args = ("run", "go", "--agent", "critic", "--base-url", model.url, "--mode", "full")
        ran = await desk.leadrope(*args)
    assert model.requests[0].body["model"].startswith("claude-haiku")
    assert any("You are the critic." in block["text"] for block in model.requests[0].body["system"])
    assert not desk.marker.exists(), "Bash is not among its tools"
    assert "Bash" in ran.err


async def test_deleting_asks_and_takes_nothing_else_along(desk: Any) -> None:
    path = config_of(desk)
    rest = '[agents.b]\nmodel = "opus"\n\n# about the rest\n[run]\nmode = "plan"\n'
    path.write_text('[agents.a]\nmodel = "haiku"\n[agents.a.policy]\nweb = "ask"\n\n' + rest)
    silent = await desk.leadrope("agents", "delete", "a")
    assert silent.code == 2
    assert "--yes" in silent.err
    async with desk.at_terminal("agents", "delete", "a") as terminal:
        await terminal.reads("Delete the agent a from")
        terminal.types("n\n")
        assert await terminal.ends() == 1
    assert "[agents.a]" in path.read_text()
    async with desk.at_terminal("agents", "delete", "a") as terminal:
        await terminal.reads("Delete the agent a from")
        terminal.types("y\n")
        assert await terminal.ends() == 0
    assert path.read_text() == rest
    assert (await desk.leadrope("agents", "delete", "b", "--yes")).code == 0
    assert path.read_text() == '# about the rest\n[run]\nmode = "plan"\n'


async def test_mistakes_are_told_by_every_command_that_reads_agents(desk: Any) -> None:
    path = config_of(desk)
    path.write_text('[agents.a]\nmode = "plan"\npurpos = "review"\n')
    told = await desk.leadrope("run", "go", "--agent", "a")
    assert told.code == 2
    assert "config.toml:3: agents.a.purpos is not a known key" in told.err
    assert "Did you mean purpose" in told.err
    assert "(agents.a.purpos: is not a known key)" in (await desk.leadrope("agents", "list")).out
    assert (await desk.leadrope("agents", "show", "a")).code == 2
    checked = await desk.leadrope("policy", "check")
    assert checked.code == 1
    assert "config.toml:3: agents.a.purpos: is not a known key" in checked.out
    path.write_text('[agents.a]\nmode = "pln"\n')
    checked = await desk.leadrope("agents", "check")
    assert checked.code == 1
    assert "config.toml:2: agents.a.mode: 'pln' is not a mode" in checked.out
    (desk.project / "x.flow.md").write_text(
        "# X\n\n## Steps\n\n### go\n\nGoes.\n\n- type: agent\n- agent: aa\n- prompt: x\n"
    )
    path.write_text('[agents.aaa]\nmode = "plan"\n')
    execution = await desk.leadrope("flow", "check", "x.flow.md")
    assert execution.code == 2
    assert "10:" in execution.out + execution.err
    assert "there is no agent 'aa'; did you mean aaa?" in execution.out + execution.err


@pytest.mark.parametrize("args", [("list",), ("show", "a"), ("check",)])
async def test_json(desk: Any, args: tuple[str, ...]) -> None:
    config_of(desk).write_text('[agents.a]\ndescription = "A"\nmodel = "opus"\n')
    told = await desk.leadrope("agents", *args, "-o", "json")
    (line,) = told.out.splitlines()
    assert json.loads(line)["name"] == "a"
    assert json.loads(line)["description"] == "A"


async def test_the_list_names_the_key_that_is_wrong_in_a_file(desk: Any) -> None:
    folder = desk.home / ".claude" / "agents"
    folder.mkdir(parents=True)
    (folder / "mine.md").write_text("---\nname: mine\nmodell: haiku\n---\nYou help.\n")
    listed = await desk.leadrope("agents", "list", COLUMNS="120")
    assert (listed.code, "(modell: is not a known key of an agent)" in listed.out) == (0, True), listed.out
