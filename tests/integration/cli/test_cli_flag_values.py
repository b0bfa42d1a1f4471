"""A wrong value on the command line is refused by the name of its flag, before anything is started."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from leadrope import spelling
from leadrope.cli import options
from leadrope.cli.main import main
from leadrope.core.request import flag_of

# A flag and a value that cannot be used. `bad.json`, `bad.toml`, `empty`, `plain` and `bytes` are files of the folder.
WRONG: list[tuple[str, str]] = [
    ("--attach", "nope"),
    ("--attach", "/"),
    ("--cwd", "nope"),
    ("--cwd", "plain"),
    ("--cwd", ""),
    ("--cwd", "/etc"),
    ("--add-dir", "nope"),
    ("--add-dir", ""),
    ("--var", "A B=x"),
    ("--var", "NOT_SET_HERE"),
    ("--var", "=x"),
    ("--var", "ANTHROPIC_MODEL=x"),
    ("--var", "LD_PRELOAD=x"),
    ("--secret", "S=ab"),
    ("--secret", "NOT_SET_HERE"),
    ("--secret", "LD_PRELOAD=abcdefgh"),
    ("--secret-file", "S=nope"),
    ("--label", "x"),
    ("--profile", "ghost"),
    ("--model", ""),
    ("--purpose", "reveiw"),
    ("--fallback-model", ""),
    ("--provider", "ghost"),
    ("--agent", "ghost"),
    ("--agent", ""),
    ("--subagents", "nope"),
    ("--subagents", "[]"),
    ("--effort", "hgh"),
    ("--max-thinking-tokens", "3"),
    ("--max-thinking-tokens", "x"),
    ("--system-prompt-file", "nope"),
    ("--append-system-prompt-file", "bytes"),
    ("--mode", "pln"),
    ("--tools", "Baash"),
    ("--tools", "Bash("),
    ("--allow", "Baash"),
    ("--disallowed-tools", "Baash"),
    ("--disallowed-tools", "Bash("),
    ("--policy", "nope"),
    ("--policy", "bad.toml"),
    ("--policy", "/"),
    ("--sandbox", "x"),
    ("--network", "x"),
    ("--sandbox-settings", '{"bogus":1}'),
    ("--sandbox-settings", '{"enabled":"x"}'),
    ("--mcp-config", "nope"),
    ("--mcp-config", "bad.json"),
    ("--mcp-config", '{"mcpServers":{"a":{}}}'),
    ("--mcp-config", '{"mcpServers":{"a":{"url":"x"}}}'),
    ("--mcp-server", "ghost"),
    ("--resume", "ghost"),
    ("--fork", "ghost"),
    ("--session-id", "x"),
    ("--schema", "nope"),
    ("--schema", '{"type":"objekt"}'),
    ("--schema", '{"f":{"type":"str"}}'),
    ("--schema-retries", "9"),
    ("--structured-retries", "-1"),
    ("--max-turns", "0"),
    ("--budget", "0"),
    ("--budget", "x"),
    ("--memory-mb", "-1"),
    *((f"--{clock}-secs", "-1") for clock in ("idle", "wall", "tool", "approval", "connection", "unreachable")),
    *((f"--{clock}-secs", "nan") for clock in ("start", "exit", "stop")),
    ("--api-retries", "-1"),
    ("--auto-continue", "9"),
    ("--attempts", "0"),
    ("--billing", "free"),
    ("--credential-file", "empty"),
    ("--credential-kind", "x"),
    ("--base-url", "localhost:80"),
    ("--binary", "nope"),
    ("--binary", "./plain"),
    ("--binary", ""),
    ("--rehearse", "nope"),
    ("--junit", "plain/x.xml"),
    ("--junit", ""),
    ("--output", "xml"),
    ("--priority", "x"),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LEADROPE_HOME", str(tmp_path / "leadrope"))
    monkeypatch.delenv("LEADROPE_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.json").write_text("{nope")
    (tmp_path / "bad.toml").write_text("nope")
    (tmp_path / "empty").touch()
    (tmp_path / "plain").write_text("x")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\0")
    return tmp_path


@pytest.mark.parametrize(("flag", "value"), WRONG, ids=[" ".join(row) for row in WRONG])
def test_a_wrong_value_names_its_flag(folder: Path, capsys: pytest.CaptureFixture[str], flag: str, value: str) -> None:
    assert main(["run", "x", flag, value]) in (1, 2)
    told = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("note: ")]
    named = re.compile(rf"leadrope: {flag}: (?!.*{flag.strip('-')}: )|Error: Invalid value for '{flag}'")
    assert any(named.match(line) for line in told), told
    assert "--walls" not in " ".join(told), "old names are not shown"
    assert main(["runs", "list"]) == 0
    assert "No runs yet." in capsys.readouterr().err, "nothing was started"


def test_every_flag_with_a_value_is_tried() -> None:
    # These take any text, or name something that is made.
    any_text = {"--file", "--system-prompt", "--append-system-prompt", "--branch", "--title"}
    tried = {flag for flag, _ in WRONG}
    assert {flag.spelling for flag in options.FLAGS if not flag.is_flag} - any_text == tried


def test_hints_spell_each_field_as_its_flag() -> None:
    files = ("--system-prompt-file", "--append-system-prompt-file")
    with spelling.at_terminal(flag_of):
        for flag in options.FLAGS:
            if flag.field is not None and flag.spelling not in files:
                assert spelling.option(flag.field) == flag.spelling
