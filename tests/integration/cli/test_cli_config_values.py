"""Wrong values in every table of config.toml: `run` and `doctor` name the file, the line, the key and the remedy."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from leadrope.cli.main import main
from leadrope.cli.setup import doctor

# The table, the lines below it, the key that must be named, and the beginning of the remedy.
RUN: list[tuple[str, str, str]] = [
    ("model = 3", "model", "Write text in quotes"),
    ("fallback_model = ''", "fallback_model", "Name a tier"),
    ("agent = 'ghost'", "agent", ""),
    ("agent = ''", "agent", ""),
    ("append_system_prompt = ['x']", "append_system_prompt", "Write text in quotes"),
    ("instructions = 1", "instructions", "Write true or false"),
    ("tools = [3]", "tools[0]", "Write text in quotes"),
    ("disallowed_tools = ['Bash(']", "disallowed_tools", "Close the parenthesis."),
    ("allow = ['Bsh(git log)']", "allow", "Did you mean Bash(git log)?"),
    ("allow = ['']", "allow", "Write Bash, "),
    ("mode = ''", "mode", "Use one of: plan"),
    ("max_turns = 1.5", "max_turns", "Write a whole number"),
    ("max_thinking_tokens = -1", "max_thinking_tokens", "Use 1000 to 100000."),
    ("effort = 3", "effort", "Write text in quotes"),
    ("connections = 'docs'", "connections", "Write a list"),
    ("connections = ['docs']", "connections", "Add [connections.docs]"),
    ("extra_dirs = ['/nowhere/at/all']", "extra_dirs", "Make it, or correct"),
    ("extra_dirs = ['']", "extra_dirs", "Name a folder"),
    ("subagents = { x = 3 }", "subagents.x", "Write it as a table"),
    ("subagents = { x = { promt = 'p', description = 'd' } }", "subagents.x.promt", "Did you mean prompt?"),
    ("subagents = { x = { prompt = 'p' } }", "subagents.x", "Add description."),
    ("subagents = { x = { prompt = '', description = 'd' } }", "subagents.x.prompt", "Write its system prompt."),
    ("subagents.x = { prompt = 'p', description = 'd', tools = 'Read' }", "subagents.x.tools", "Write a list"),
    ("subagents.x = { prompt = 'p', description = 'd', memory = 'usr' }", "subagents.x.memory", "Did you mean user?"),
    ("agent_sandbox = { enabled = 'yes' }", "agent_sandbox.enabled", "Write true or false"),
    ("agent_sandbox = { enabld = true }", "agent_sandbox.enabld", "Did you mean enabled?"),
    (
        "agent_sandbox = { network = { allowedDomain = [] } }",
        "agent_sandbox.network.allowedDomain",
        "Did you mean allowedDomains",
    ),
    ("output_schema = { type = 'objekt' }", "output_schema", "Correct the schema"),
    ("schema_retries = 100", "schema_retries", "Use 0 to 5."),
    ("cwd = '/nowhere/at/all'", "cwd", "Make it, or name another"),
    ("cwd = ''", "cwd", "Name a folder"),
    ("persist_session = 'x'", "persist_session", "Write true or false"),
    ("limits = 3", "limits", "Write it as a table"),
    ("limits = { wall_s = nan }", "limits.wall_s", "Write 0 for no limit."),
    ("limits = { budget_usd = -1 }", "limits.budget_usd", "Write an amount in USD"),
    ("variables = { A = 3 }", "variables.A", "Write text in quotes"),
    ("variables = { 'A B' = 'x' }", "variables.A B", "Give the variable another name."),
    ("variables = { ANTHROPIC_MODEL = 'x' }", "variables.ANTHROPIC_MODEL", "Use --base-url or --model"),
    ("secret_variables = 'x'", "secret_variables", "Write a list"),
    ("billing = ''", "billing", "Use one of: subscription"),
    ("base_url = 'localhost:80'", "base_url", "For example http://"),
    ("binary = '/nowhere/claude'", "binary", "Correct --binary"),
    ("binary = 'no-such-program'", "binary", "Correct --binary"),
    ("binary = ''", "binary", "Name a program"),
    ("labels = { a = 3 }", "labels.a", "Write text in quotes"),
    ("api_retries = -1", "api_retries", "Use 0 to 100."),
    ("broker = 'off'", "broker", "Write true or false"),
    ("sandbox = 'on'", "sandbox", "Use one of: workspace"),
    ("network = 'none'", "network", "Use one of: any"),
    ("wait_for_limit = 'yes'", "wait_for_limit", "Write true or false"),
    ("auto_continue = 9", "auto_continue", "Use 0 to 5."),
    ("idle_close_s = inf", "idle_close_s", "Write 0 for no limit."),
    ("provider = 'claud-code'", "provider", "Did you mean claude-code?"),
    ("purpose = 'reviw'", "purpose", "Did you mean review?"),
]
OTHERS: list[tuple[str, str, str, str]] = [
    ("policy", "permission_mode = 'x'", "permission_mode", "Use one of: plan"),
    ("policy", "allowed_tool = ['Read']", "allowed_tool", "Did you mean allowed_tools"),
    ("policy", "max_timeout_ms = 0", "max_timeout_ms", 'Write "none"'),
    ("policy", "sandbox = 'x'", "sandbox", "Known here: off"),
    ("connections.docs", "command = 3", "command", "Write text in quotes"),
    ("connections.docs", "command = 'x'\nargs = 'x'", "args", "Write a list"),
    ("connections.docs", "command = 'x'\nenv = { A = 3 }", "env.A", "Write text in quotes"),
    ("connections.docs", "command = 'x'\nenv = { 'A B' = 'x' }", "env.A B", "Use letters, digits and _"),
    ("connections.docs", "command = 'x'\ntimeout = -1", "timeout", "Write milliseconds"),
    ("connections.docs", "command = 'x'\nrequired = 'x'", "required", "Write true or false"),
    ("connections.docs", "command = 'x'\nheaders = { A = 'b' }", "headers", "Pass it in env or args"),
    ("connections.docs", "url = 'http://x'\nargs = ['b']", "args", "Leave them out"),
    ("connections.docs", "url = 'http://x'\nenv = { A = 'b' }", "env", "Write them as headers"),
    ("connections.docs", "url = 'localhost'", "url", "For example http://"),
    ("connections.docs", "url = 'http://x'\nheaders = { 'a b' = 'c' }", "headers.a b", "Use letters, digits and -"),
    ("connections.docs", "url = 'http://x'\ntype = 'stdio'", "type", "Leave type out."),
    ("connections.docs", "url = 'http://x'\ntype = 'htp'", "type", "Did you mean http?"),
    ("models", "opus = ''", "opus", "Write a name and a model"),
    ("models", "opus = 3", "opus", "Write text in quotes"),
    ("prices.opus", "output = 3\ninput = 'x'", "input", "Give dollars"),
    ("prices.opus", "output = 3\ninput = -1", "input", "Give dollars"),
    ("service", "running = 'x'", "running", "Write a whole number"),
    ("service", "keep_days = -1", "keep_days", "Use a number of 0 or more."),
    ("service", "idle_s = nan", "idle_s", "Use a number of 0 or more."),
    ("service", "recover = 'x'", "recover", "Known here: resume, fail."),
    ("service", "pending = 'kep'", "pending", "Did you mean keep?"),
    ("budgets", "day_usd = -1", "day_usd", "Write USD a day"),
    ("budgets", "agents = { a = -1 }", "agents.a", "Write USD a day"),
    ("worktree", "setup = 3", "setup", "Write a list"),
    ("notify", "webhook = 'x'", "webhook", "For example http://"),
    ("notify", "bell = 'yes'", "bell", "Write true or false"),
    ("telemetry", "endpoint = 'x'", "endpoint", "For example http://"),
]
TABLES = ("run", "policy", "models", "prices", "service", "budgets", "worktree", "notify", "telemetry")
NAMED = ("profiles", "connections", "agents")
WHOLE: list[tuple[str, str, str]] = [
    *((f"{name} = 3", name, f"Write [{name}] on a line of its own.") for name in TABLES),
    *((f"{name} = 3", name, f"Write [{name}.NAME] on a line of its own.") for name in NAMED),
    ("[worktree.projects]\nshop = 3", "worktree.projects.shop", "Write [worktree.projects.shop] on a line of its own."),
    ("[profiles]\nci = 3", "profiles.ci", "Write it as a table"),
    ("[connections]\ndocs = 3", "connections.docs", "Write it as a table"),
    ('[connections."a b"]\ncommand = "x"', 'connections."a b"', "Name it a-b."),
    ("forward_env = [3]", "forward_env[0]", "Write text in quotes"),
    ("forward_env = ['NODE_OPTIONS']", "forward_env", "Give the variable another name."),
    ("[run]\nmode == 'plan'", "is not TOML: Invalid value", "Write one =, and put text in quotes"),
    ("[run]\nmode = plan", "is not TOML: Invalid value", "Write one =, and put text in quotes"),
    ("[run]\nmode = 'plan", "is not TOML", "Write a table as [run], and a value as "),
    ("[run]\nmode", "is not TOML", "Write a table as [run], and a value as "),
    ("[run", "is not TOML", "Close the bracket: [run]."),
    ("[run]\nmode = 'plan'\nmode = 'edit'", "is not TOML: the key is there twice", "Remove one of the two lines."),
    ("[run]\n[models]\n[run]", "is not TOML: the table [run] is there twice", "Write its keys under one [run]."),
    ("\0", "is not TOML", "Write a table as [run], and a value as "),
]


def _row(table: str, lines: str, key: str, remedy: str) -> tuple[str, int, str, str]:
    return f"[{table}]\n{lines}\n", 2 + lines.count("\n"), f"{table}.{key}", remedy


ROWS = [
    *(_row("run", *row) for row in RUN),
    *(_row("profiles.ci", *row) for row in RUN[::4]),
    *(_row("agents.a", *row) for row in RUN if row[1] != "agent"),
    *(_row(*row) for row in OTHERS),
    *((f"{text}\n", text.count("\n") + 1, key, remedy) for text, key, remedy in WHOLE),
]


@pytest.mark.parametrize(("text", "line", "key", "remedy"), ROWS, ids=[row[0].strip() for row in ROWS])
def test_a_wrong_value_is_named_with_its_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str,
    line: int,
    key: str,
    remedy: str,
) -> None:
    config = tmp_path / "config.toml"
    config.write_text(text)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LEADROPE_HOME", str(tmp_path / "leadrope"))
    monkeypatch.setenv("LEADROPE_CONFIG", str(config))
    monkeypatch.chdir(tmp_path)
    chosen = (
        ["--profile", "ci"]
        if key.startswith("profiles.ci.")
        else ["--agent", "a"]
        if key.startswith("agents.a")
        else []
    )
    assert main(["run", "x", *chosen]) in (1, 2)
    told, _, hint = capsys.readouterr().err.partition("\n  ")
    first_line = line if not text.startswith(('[connections."', "[prices]")) else 1
    assert told.startswith(f"leadrope: {config}:{first_line}: {key}"), told
    assert hint.startswith(remedy) if remedy else "`" not in told, (told, hint)
    for raw in ("Expected `", "Object contains", "[...]"):
        assert raw not in told

    checks = {
        check.name: check for check in (doctor.configuration(os.environ)[1], doctor.effective_policy(os.environ)[1])
    }
    (wrong,) = {check.message: check for check in checks.values() if check.status != "ok"}.values()
    assert wrong.status == "failed"
    assert f"{config}:{first_line}: " in wrong.message
    assert remedy.replace("--base-url", "base_url").replace("--model", "model").partition(" --")[0] in (
        wrong.hint or ""
    )


def test_doctor_says_it_at_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LEADROPE_HOME", str(tmp_path / "leadrope"))
    monkeypatch.setenv("LEADROPE_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("LEADROPE_CLAUDE_BIN", "/nowhere/claude")
    (tmp_path / "config.toml").write_text("[profiles.ci]\nextra_dirs = ['/nowhere/at/all']\n")
    assert main(["doctor"]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert f"✗ config {tmp_path}/config.toml:2: profiles.ci.extra_dirs: " in shown
    assert "Make it, or correct --add-dir." in shown
