"""The command line of a run, as a table: request in, words out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from leadrope import errors
from leadrope.core.request import Limits, McpServer, RunRequest
from leadrope.core.tools import DEFAULT_TOOLS
from leadrope.providers.base import LaunchFile
from leadrope.providers.claude_code import argv

RUN_DIR = Path("/run/r1")
SESSION = "11111111-2222-3333-4444-555555555555"

DRAFT = "https://json-schema.org/draft/2020-12/schema"
WRAPPED = '{"type":"object","properties":{"value":{"const":3}},"required":["value"],"additionalProperties":false}'


def command(instructions_text: str = "", **fields: Any) -> argv.CommandLine:
    return argv.command(
        RunRequest(prompt="--help me", **fields),
        binary="/opt/claude",
        model="claude-sonnet-4-5",
        session_id=SESSION,
        launch_dir=RUN_DIR,
        instructions_text=instructions_text,
    )


PLAIN = [
    "/opt/claude",
    "-p",
    "--verbose",
    "--output-format",
    "stream-json",
    "--input-format",
    "stream-json",
    "--permission-prompt-tool",
    "stdio",
    "--include-partial-messages",
    "--replay-user-messages",
    "--setting-sources",
    "",
    "--strict-mcp-config",
    "--permission-mode",
    "default",
    f"--session-id={SESSION}",
    "--name=leadrope",
    "--model=claude-sonnet-4-5",
    "--allowedTools=Read,Write,Edit,Bash,Glob,Grep,LS,WebFetch,WebSearch,TodoWrite,TodoRead",
    '--settings={"disableSkillShellExecution":true}',
]


def test_a_plain_request_whole() -> None:
    assert command() == argv.CommandLine(argv=tuple(PLAIN))


@pytest.mark.parametrize(
    ("fields", "added"),
    [
        ({"fallback_model": "haiku"}, ["--fallback-model=haiku"]),
        ({"system_prompt": "--Be brief"}, ["--system-prompt=--Be brief"]),
        ({"system_prompt": ""}, ["--system-prompt="]),
        ({"append_system_prompt": "More"}, ["--append-system-prompt=More"]),
        ({"append_system_prompt": ""}, []),
        ({"disallowed_tools": ("Monitor", "Bash(rm:*)")}, ["--disallowedTools=Monitor,Bash(rm:*)"]),
        (
            {"disallowed_tools": ("Read", "WebSearch", "WebFetch")},
            ["--disallowedTools=Read,WebSearch,WebFetch"],
        ),
        ({"max_turns": 3}, ["--max-turns=3"]),
        ({"max_thinking_tokens": 2000}, ["--max-thinking-tokens=2000"]),
        ({"effort": "low"}, ["--effort=low"]),
        ({"limits": Limits(budget_usd=1.5)}, ["--max-budget-usd=1.5"]),
        ({"limits": Limits(budget_usd=2)}, ["--max-budget-usd=2.0"]),
        ({"limits": Limits(budget_usd=0.00001)}, ["--max-budget-usd=0.00001"]),
        ({"extra_dirs": ("/a", "-b")}, ["--add-dir=/a", "--add-dir=-b"]),
        ({"subagents": {"rev": {"prompt": "p"}}}, ['--agents={"rev":{"prompt":"p"}}']),
        ({"output_schema": {"type": "object", "$schema": DRAFT}}, ['--json-schema={"type":"object"}']),
        ({"output_schema": {"const": 3}}, [f"--json-schema={WRAPPED}"]),
        ({"persist_session": False}, ["--no-session-persistence"]),
    ],
)
def test_each_field_adds_its_own_words(fields: dict[str, Any], added: list[str]) -> None:
    words = list(command(**fields).argv)
    assert [word for word in words if word not in PLAIN] == added
    assert [word for word in words if word in PLAIN] == PLAIN


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("plan", "plan"),
        ("default", "default"),
        ("edit", "acceptEdits"),
        ("acceptEdits", "acceptEdits"),
        ("full", "bypassPermissions"),
        ("bypassPermissions", "bypassPermissions"),
        ("dontAsk", "default"),
        ("auto", "default"),
        ("manual", "default"),
    ],
)
def test_modes(mode: str, expected: str) -> None:
    words = command(mode=mode).argv
    assert words[words.index("--permission-mode") + 1] == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, [f"--session-id={SESSION}"]),
        ({"resume": "s-1"}, ["--resume=s-1"]),
        ({"resume": "s-1", "fork": True}, ["--resume=s-1", "--fork-session", f"--session-id={SESSION}"]),
    ],
)
def test_sessions(fields: dict[str, Any], expected: list[str]) -> None:
    words = command(**fields).argv
    assert [word for word in words if word.startswith(("--resume", "--fork", "--session-id"))] == expected


@pytest.mark.parametrize(
    ("fields", "is_off"),
    [
        ({"resume": "s-1"}, False),
        ({"resume": "s-1", "system_prompt": "New"}, True),
        ({"resume": "s-1", "append_system_prompt": "New"}, True),
        ({"system_prompt": "New"}, False),
    ],
)
def test_a_prompt_that_changes_at_resume_is_not_ignored(fields: dict[str, Any], is_off: bool) -> None:
    assert ("--system-prompt-snapshot=off" in command(**fields).argv) is is_off


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {"disableSkillShellExecution": True}),
        ({"mode": "plan"}, {"disableSkillShellExecution": True, "useAutoModeDuringPlan": False}),
        (
            {"agent_sandbox": {"enabled": True, "failIfUnavailable": False}},
            {
                "disableSkillShellExecution": True,
                "sandbox": {"allowUnsandboxedCommands": False, "enabled": True, "failIfUnavailable": True},
            },
        ),
    ],
)
def test_settings(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    [word] = [word for word in command(**fields).argv if word.startswith("--settings=")]
    assert msgspec.json.decode(word.removeprefix("--settings=")) == expected


@pytest.mark.parametrize(
    ("tools", "expected"),
    [
        (None, DEFAULT_TOOLS),
        (("Grep", "Glob"), ("Grep", "Glob", "Read", "WebSearch", "WebFetch")),
        (("WebFetch", "Bash", "Bash"), ("WebFetch", "Bash", "Read", "WebSearch")),
        ((), ("Read", "WebSearch", "WebFetch")),
    ],
)
def test_the_baseline_belongs_to_every_list(tools: tuple[str, ...] | None, expected: tuple[str, ...]) -> None:
    assert argv.allowed_tools(RunRequest(prompt="p", tools=tools)) == expected


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        (None, "leadrope"),
        ("reviewer", "leadrope-reviewer"),
        ("x" * 200, "leadrope-" + "x" * 80),
        ("a b\n--x", "leadrope-a-b---x"),
        ("…", "leadrope"),
    ],
)
def test_names(agent: str | None, expected: str) -> None:
    assert argv.session_name(agent) == expected


class TestFiles:
    @pytest.mark.parametrize(
        ("field", "flag", "name"),
        [
            ("system_prompt", "--system-prompt-file", "system-prompt.txt"),
            ("append_system_prompt", "--append-system-prompt-file", "append-system-prompt.txt"),
        ],
    )
    def test_a_long_text_goes_through_a_file(self, field: str, flag: str, name: str) -> None:
        at_limit, above = "é" * (16 * 1024), "é" * (16 * 1024) + "x"  # 32 KiB, counted in bytes
        assert command(**{field: at_limit}).files == ()
        made = command(**{field: above})
        assert made.files == (LaunchFile(path=f"/run/r1/{name}", content=above.encode()),)
        assert f"{flag}=/run/r1/{name}" in made.argv
        assert not any(above in word for word in made.argv)

    def test_connections_are_never_on_the_command_line(self) -> None:
        made = command(
            connections={
                "db": McpServer(command="npx", args=("-y", "db"), env={"TOKEN": "s3cret"}),
                "web": McpServer(url="https://x.test/mcp", headers={"Authorization": "Bearer s3cret"}),
                # Whether it is required is ours to judge; the program refuses a key that it does not know.
                "sse": McpServer(type="sse", url="https://x.test/sse", timeout=5, required=False),
            }
        )
        [file] = made.files
        assert f"--mcp-config={file.path}" in made.argv
        assert not any("s3cret" in word for word in made.argv)
        assert msgspec.json.decode(file.content) == {
            "mcpServers": {
                "db": {"type": "stdio", "command": "npx", "args": ["-y", "db"], "env": {"TOKEN": "s3cret"}},
                "web": {"type": "http", "url": "https://x.test/mcp", "headers": {"Authorization": "Bearer s3cret"}},
                "sse": {"type": "sse", "url": "https://x.test/sse", "timeout": 5},
            }
        }

    def test_long_definitions_of_subagents_go_through_a_file(self) -> None:
        made = command(subagents={"rev": {"prompt": "x" * 40_000}})
        assert [file.path for file in made.files] == ["/run/r1/agents.json"]
        assert "--agents=/run/r1/agents.json" in made.argv


def test_instructions_stand_before_the_callers_own_text() -> None:
    words = command("from CLAUDE.md", append_system_prompt="from the caller").argv
    assert "--append-system-prompt=from CLAUDE.md\n\nfrom the caller" in words
    assert "--append-system-prompt=from CLAUDE.md" in command("from CLAUDE.md").argv


def test_the_prompt_is_never_in_the_command() -> None:
    assert not any("--help me" in word for word in command().argv)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"extra_dirs": ("/a\0b",)}, "extra_dirs"),
        ({"fallback_model": "x\0"}, "fallback_model"),
        ({"system_prompt": "\ud800"}, "system_prompt"),
        ({"effort": "\ud800"}, "effort"),
        ({"output_schema": {"type": "object", "description": "x" * 140_000}}, "output_schema"),
    ],
)
def test_what_no_process_can_be_started_with_is_refused_by_field(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(errors.BadValue) as caught:
        command(**fields)
    assert caught.value.field == field


def test_a_run_that_may_use_nothing_is_offered_nothing() -> None:
    words = command(tools=(), disallowed_tools=("Read", "WebSearch", "WebFetch")).argv
    assert words[words.index("--tools") + 1] == ""
    assert "--tools" not in command(tools=()).argv, "the baseline is still there"
