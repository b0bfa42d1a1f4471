"""Agents of `.claude/agents`: what their front matter means here, and how a mistake in one is told."""

from __future__ import annotations

import msgspec
import pytest

from leadrope.policy.files.document import Problems
from leadrope.runtime.agents import agent_files
from leadrope.runtime.agents.saved_agents import Origin

BASELINE = ["WebSearch", "WebFetch"]


def read(head: str, body: str = "You review.", origin: Origin = "user") -> agent_files.AgentFile:
    return agent_files.parse(f"---\n{head}\n---\n{body}\n", "x.md", stem="file", origin=origin)


def refused(head: str, body: str = "You review.") -> tuple[str, str | None]:
    with pytest.raises(Problems) as caught:
        read(head, body)
    return str(caught.value.problems[0]), caught.value.problems[0].hint


def test_the_body_is_the_persona_and_the_name_may_come_from_the_file() -> None:
    found = read("description: Reviews.", "You review.\n\nBriefly.")
    assert (found.name, found.agent.description, found.agent.system_prompt) == (
        "file",
        "Reviews.",
        "You review.\n\nBriefly.",
    )
    assert read("name: critic").name == "critic"
    assert agent_files.name_in("---\nname: 'critic'\nbroken: [\n---\n", "file") == "critic"
    assert agent_files.name_in("no front matter", "file") == "file"


@pytest.mark.parametrize(
    ("head", "fields"),
    [
        ("model: opus", {"model": "opus"}),
        ("model: inherit", {}),
        ("permissionMode: acceptEdits", {"mode": "edit"}),
        ("effort: high", {"effort": "high"}),
        ("maxTurns: 7", {"max_turns": 7}),
        ("omitClaudeMd: true", {"instructions": False}),
        ("disallowedTools: Bash(git push:*), WebFetch", {"disallowed_tools": ("Bash(git push *)", "WebFetch")}),
        ("description: Use it when: tests fail", {"description": "Use it when: tests fail"}),
        ("description: 'A'\r\nmodel: haiku", {"description": "A", "model": "haiku"}),
    ],
)
def test_keys(head: str, fields: dict[str, object]) -> None:
    told = msgspec.to_builtins(read(head).agent)
    assert {name: value for name, value in told.items() if name != "system_prompt" and value != ""} == fields


@pytest.mark.parametrize(
    ("head", "tools"),
    [
        ("tools: Read, Grep", ["Read", "Grep", *BASELINE]),
        ("tools: [Grep, 'Bash(npm test:*)']", ["Grep", "Bash(npm test *)", "Read", *BASELINE]),
        ("tools: Bash(git log, x), Read", ["Bash(git log, x)", "Read", *BASELINE]),
    ],
)
def test_tools_restrict_and_approve_nothing(head: str, tools: list[str]) -> None:
    """In Claude Code the list says what is there, and calls are still asked about; a run's own list would not ask."""
    found = read(head)
    assert found.policy == {"allowed_tools": tools}
    assert found.agent.tools is msgspec.UNSET
    assert read("tools: '*'").policy == {}


def test_a_repository_can_ask_for_a_stricter_mode_only() -> None:
    found = read("permissionMode: bypassPermissions", origin="repository")
    assert found.agent.mode is msgspec.UNSET
    assert found.policy == {"permission_mode": "full"}  # a rule, and rules only tighten


def test_what_has_no_effect_is_told() -> None:
    found = read("color: red\nhooks:\n  PreToolUse: []\nmcpServers: [a]")
    assert found.notices == tuple(f"{key} has no effect in leadrope" for key in ("color", "hooks", "mcpServers"))


@pytest.mark.parametrize(
    ("head", "message", "hint"),
    [
        ("name: a\ntoolz: Read", "x.md:3: toolz: is not a known key of an agent", "Did you mean tools?"),
        ("model: opus\npermissionMode: pln", "x.md:3: permissionMode: 'pln' is not a mode", "Use one of: plan"),
        ("tools: Bahs", "x.md:2: tools: ", "Bash"),
        ("maxTurns: many", "x.md:2: maxTurns: 'many' is not a number of turns", "Use 1 to 100."),
        ("name: -x", "x.md:2: name: '-x' cannot be a name", None),
        ("model: [", "x.md:", None),
        ("- a", "x.md:2: its front matter is not", None),
    ],
)
def test_mistakes_have_file_line_and_remedy(head: str, message: str, hint: str | None) -> None:
    told, remedy = refused(head)
    assert told.startswith(message)
    assert hint is None or hint in (remedy or told)


def test_a_file_without_front_matter_or_persona() -> None:
    with pytest.raises(Problems, match="has no front matter"):
        agent_files.parse("You review.", "x.md", stem="x", origin="user")
    assert refused("name: a", "  ")[0] == "x.md: has no persona"
