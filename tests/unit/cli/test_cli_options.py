"""Flags become exactly the fields they name, and nothing that was not said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest

from leadrope import errors
from leadrope.cli import options, origins, values
from leadrope.cli.run.run import build, command
from leadrope.core import config as configs
from leadrope.core.request import Limits, McpServer, RunRequest
from leadrope.core.secrets.redaction import Secret


def parse(*args: str) -> dict[str, Any]:
    given: dict[str, Any] = command.make_context("run", list(args)).params
    return given


def request_of(*args: str, config: configs.Config | None = None) -> RunRequest:
    given = parse(*args)
    return build(given.pop("prompt"), given, config or configs.Config(), {})


@pytest.mark.parametrize(
    ("args", "fields"),
    [
        ([], {}),
        (["--cwd", "/x"], {"cwd": "/x"}),
        (["-m", "opus", "--purpose", "review"], {"model": "opus", "purpose": "review"}),
        (["--fallback-model", "haiku", "--provider", "p"], {"fallback_model": "haiku", "provider": "p"}),
        (["--agent", "a", "--effort", "high"], {"agent": "a", "effort": "high"}),
        (["--mode", "acceptEdits"], {"mode": "acceptEdits"}),
        (["--tools", "Read,Edit", "--tools", "Bash(git log, x)"], {"tools": ("Read", "Edit", "Bash(git log, x)")}),
        (["--allowed-tools", "Read"], {"tools": ("Read",)}),
        (["--tools", ""], {"tools": ()}),
        (["--disallowed-tools", "WebFetch, Bash"], {"disallowed_tools": ("WebFetch", "Bash")}),
        (["--system-prompt", "s", "--append-system-prompt", "a"], {"system_prompt": "s", "append_system_prompt": "a"}),
        (["--no-instructions"], {"instructions": False}),
        (["--instructions"], {"instructions": True}),
        (["--max-turns", "7", "--max-thinking-tokens", "2000"], {"max_turns": 7, "max_thinking_tokens": 2000}),
        (["--budget", "0.5", "--timeout-secs", "30"], {"limits": {"budget_usd": 0.5, "idle_s": 30.0}}),
        (["--budget", "none", "--timeout-secs", "0"], {"limits": {"budget_usd": "none", "idle_s": 0.0}}),
        (["--wall-secs", "9", "--start-secs", "8"], {"limits": {"wall_s": 9.0, "start_s": 8.0}}),
        (["--tool-secs", "7", "--approval-secs", "6"], {"limits": {"tool_s": 7.0, "approval_s": 6.0}}),
        (["--add-dir", "/a", "--add-dir", "/b"], {"extra_dirs": ("/a", "/b")}),
        (["--resume", "id"], {"resume": "id"}),
        (["--fork", "id"], {"resume": "id", "fork": True}),
        (["--continue"], {}),
        (["--wait-for-limit", "--auto-continue", "2"], {"wait_for_limit": True, "auto_continue": 2}),
        (["--no-wait-for-limit"], {"wait_for_limit": False}),
        (["--no-session"], {"persist_session": False}),
        (["--schema", '{"type":"object"}'], {"output_schema": {"type": "object"}}),
        (["--schema-retries", "2", "--structured-retries", "3"], {"schema_retries": 2, "max_structured_retries": 3}),
        (["--sandbox-settings", '{"enabled":true}'], {"agent_sandbox": {"enabled": True}}),
        (["--subagents", '{"x":{"description":"d"}}'], {"subagents": {"x": {"description": "d"}}}),
        (["--var", "A=1", "--var", "B=x=y"], {"variables": {"A": "1", "B": "x=y"}}),
        (["--secret", "S=abcdef"], {"variables": {"S": "abcdef"}, "secret_variables": ("S",)}),
        (
            ["--var", "A=1", "--secret", "A", "--secret", "S=abcdef"],
            {"variables": {"A": "1", "S": "abcdef"}, "secret_variables": ("A", "S")},
        ),
        (["--label", "team=red"], {"labels": {"team": "red"}}),
        (["--billing", "auto", "--base-url", "http://h"], {"billing": "auto", "base_url": "http://h"}),
        (["--binary", "/b", "--credential-kind", "auth_token"], {"binary": "/b", "credential_kind": "auth_token"}),
        (["--api-retries", "0", "--attempts", "1"], {"api_retries": 0, "attempts": 1}),
        (["--output", "json", "--strict", "--quiet", "--profile", "p"], {}),
    ],
)
def test_given_flags_become_fields(args: list[str], fields: dict[str, Any]) -> None:
    assert options.overrides(parse("prompt", *args)) == fields


def test_a_secret_of_the_users_environment_is_taken_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEADROPE_TEST_DSN", "postgres://app:x@db")
    config = configs.parse('[run]\nsecret_variables = ["OTHER"]\nvariables = { OTHER = "of the config" }\n')
    request = request_of("prompt", "--secret", "LEADROPE_TEST_DSN", config=config)
    assert request.variables == {"OTHER": "of the config", "LEADROPE_TEST_DSN": "postgres://app:x@db"}
    assert request.secret_variables == ("OTHER", "LEADROPE_TEST_DSN"), "a mark of the config is not lost by another"
    with pytest.raises(errors.BadValue, match="--secret: 'NOT_SET_HERE' is not set here"):
        request_of("prompt", "--secret", "NOT_SET_HERE")


def test_a_secret_is_read_from_a_file_without_its_last_newline(tmp_path: Path) -> None:
    (tmp_path / "dsn").write_bytes(b"postgres://app\n:two lines\r\n")
    fields = options.overrides(parse("prompt", "--secret-file", f"DSN={tmp_path}/dsn"))
    assert fields == {"variables": {"DSN": "postgres://app\n:two lines"}, "secret_variables": ("DSN",)}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"\n", "is empty"),
        (b"\xff\xfe123456", "not UTF-8"),
        (b"123\x00456", "NUL"),
        (b"x" * 65_537, "larger than 65536 bytes"),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_file_that_holds_no_secret_is_refused(tmp_path: Path, content: bytes | None, told: str) -> None:
    if content is not None:
        (tmp_path / "dsn").write_bytes(content)
    with pytest.raises(errors.BadValue, match=told):
        options.overrides(parse("prompt", "--secret-file", f"DSN={tmp_path}/dsn"))


@pytest.mark.parametrize("given", ["DSN", "DSN=", "=x", ""])
def test_a_secret_file_has_a_name_and_a_file(given: str) -> None:
    with pytest.raises(errors.BadValue, match="is not NAME=FILE"):
        options.overrides(parse("prompt", "--secret-file", given))


def test_a_secret_is_given_once(tmp_path: Path) -> None:
    (tmp_path / "dsn").write_text("postgres://app")
    with pytest.raises(errors.BadValue, match="DSN is given twice"):
        options.overrides(parse("prompt", "--secret", "DSN=abcdef", "--secret-file", f"DSN={tmp_path}/dsn"))


def test_a_value_on_the_command_line_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    options.overrides(parse("prompt", "--secret", "DSN=abcdef"))
    told = capsys.readouterr().err
    assert told.startswith("note: the value of DSN is visible in the process list; use --secret DSN")
    assert "abcdef" not in told


def test_a_secret_in_place_of_its_name_is_not_shown() -> None:
    with pytest.raises(errors.BadValue, match="the name of a variable") as caught:
        options.overrides(parse("prompt", "--secret", "postgres://app:opensesame@db"))
    assert "opensesame" not in str(caught.value)


def test_every_field_of_a_request_has_a_flag() -> None:
    named = {flag.field for flag in options.FLAGS if flag.field}
    # A policy comes in files here; its rules as values are for programs.
    wanted = set(RunRequest.__struct_fields__) - {
        "prompt",
        "limits",
        "connections",
        "policy",
        "policies",
        "agent_from",
        "attachment_root",
    }
    wanted |= {f"limits.{name}" for name in Limits.__struct_fields__}
    assert wanted == named


def test_every_flag_is_told_in_the_help() -> None:
    shown = command.get_help(click.Context(command, info_name="leadrope run"))
    for flag in options.FLAGS:
        assert all((name in shown) == (name not in flag.old) for name in (*flag.opts, *flag.secondary_opts))


def test_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "system").write_text("be brief")
    (tmp_path / "schema").write_text('{"type": "object"}')
    (tmp_path / "key").write_text("sk-ant-x\n")
    (tmp_path / "prompt").write_text("do it")
    given = parse(
        *("--system-prompt-file", str(tmp_path / "system"), "--schema", str(tmp_path / "schema")),
        *("--credential-file", str(tmp_path / "key"), "--file", str(tmp_path / "prompt")),
    )
    request = build(given.pop("prompt"), given, configs.Config(), {})
    assert (request.system_prompt, request.output_schema) == ("be brief", {"type": "object"})
    assert request.credential == Secret("sk-ant-x")
    assert request.prompt == "do it"


def test_a_variable_without_a_value_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPLOY_TOKEN", "hush")
    assert options.overrides(parse("p", "--var", "DEPLOY_TOKEN"))["variables"] == {"DEPLOY_TOKEN": "hush"}


def test_a_variable_that_is_no_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", "caf\udce9")  # how Python reads bytes that are not UTF-8
    with pytest.raises(errors.BadValue, match="--var: holds bytes that are not UTF-8 text"):
        build("p", parse("p", "--var", "PLACE"), configs.Config(), {})


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--var", "NO_SUCH_NAME_HERE"], "--var: 'NO_SUCH_NAME_HERE' is not set here"),
        (["--var", "=x"], "--var: '=x' is not NAME=VALUE"),
        (["--label", "x"], "--label: 'x' is not NAME=VALUE"),
        (["--schema", "{nonsense"], "--schema: the text is not a JSON object"),
        (["--schema", "[1]"], "--schema: the text is not a JSON object"),
        (["--schema", '{"a":' * 100_000], "--schema: the text is nested too deeply"),
        (["--schema", "/no/such/file"], "--schema: '/no/such/file' cannot be read: No such file or directory"),
        (["--system-prompt-file", "/no/such"], "--system-prompt-file: '/no/such' cannot be read"),
        (["--system-prompt", "a", "--system-prompt-file", "/dev/null"], "is given both as text and as a file"),
        (["--mcp-server", "nope"], "--mcp-server: config.toml has no connection 'nope'"),
        (["--profile", "nope"], "config.toml has no profile 'nope'"),
        (["--file", "/dev/null"], "a prompt and --file were given"),
    ],
)
def test_a_bad_value_is_refused_under_the_name_of_its_flag(args: list[str], told: str) -> None:
    with pytest.raises(errors.RequestError) as caught:
        request_of("prompt", *args)
    assert told in caught.value.message


def test_no_prompt_is_refused_with_the_ways_to_give_one() -> None:
    with pytest.raises(errors.EmptyPrompt) as caught:
        request_of()
    assert "--file" in (caught.value.hint or "")


def test_flags_beat_the_profile_which_beats_the_run_section() -> None:
    config = configs.parse(
        """
        [run]
        model = "haiku"
        max_turns = 3
        mode = "plan"
        [run.limits]
        idle_s = 10
        tool_s = 11
        [run.variables]
        A = "config"
        [profiles.deep]
        model = "opus"
        max_turns = 4
        """
    )
    request = request_of(
        *("p", "--profile", "deep", "--max-turns", "5", "--timeout-secs", "20", "--var", "B=flag"), config=config
    )
    assert (request.mode, request.model, request.max_turns) == ("plan", "opus", 5)
    assert (request.limits.idle_s, request.limits.tool_s) == (20, 11)
    assert request.variables == {"A": "config", "B": "flag"}


def test_mcp_servers_come_from_a_file_and_by_name(tmp_path: Path) -> None:
    file = tmp_path / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": {"one": {"command": "x", "args": ["y"]}}}))
    config = configs.parse('[connections.two]\ntype = "http"\nurl = "http://127.0.0.1/"\n')
    request = request_of("p", "--mcp-config", str(file), "--mcp-server", "two", config=config)
    assert request.connections == {
        "one": McpServer(command="x", args=("y",)),
        "two": McpServer(type="http", url="http://127.0.0.1/"),
    }


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "is not a JSON object"),
        ("[]", "is not a JSON object"),
        ("{}", "has no object mcpServers"),
        ('{"mcpServers": []}', "has no object mcpServers"),
        ('{"mcpServers": {"a": {"command": 5}}}', "mcpServers.a.command: Expected"),
        ('{"mcpServers": {"a": {"comand": "x"}}}', "mcpServers.a: Object contains unknown field `comand`"),
    ],
)
def test_a_malformed_mcp_file_is_refused_with_the_place(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(text)
    with pytest.raises(errors.BadValue) as caught:
        values.mcp_file("--mcp-config", str(file))
    assert told in caught.value.message


def test_an_error_about_a_field_is_told_under_the_flag_only_if_it_was_given() -> None:
    error = errors.BadValue("max_turns", "0 is out of range")
    assert origins.named(error, {"max_turns": 0}).message == "--max-turns: 0 is out of range"
    assert origins.named(error, {"max_turns": None}).message == "max_turns: 0 is out of range"


@pytest.mark.parametrize(
    ("args", "is_json"),
    [
        (["x", "-o", "json", "--bogus"], True),
        (["x", "-ojson", "--bogus"], True),
        (["--bogus", "x", "--output=json"], True),
        (["x", "--output", "json", "-o", "text", "--bogus"], False),
        (["what does -o json do", "--bogus"], False),
        (["x", "--bogus", "-o"], False),
        (["x", "--bogus"], False),
    ],
)
def test_wrong_usage_is_json_where_that_was_asked_for(
    args: list[str], is_json: bool, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    with pytest.raises(click.UsageError):
        parse(*args)
    out = capsysbinary.readouterr().out
    assert bool(out) == is_json
    if is_json:
        assert "--bogus" in json.loads(out)["error"]["message"]
