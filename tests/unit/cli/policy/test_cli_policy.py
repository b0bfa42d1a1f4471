"""`leadrope policy`: what holds and who says so, errors with their lines, and why a call gets its verdict."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from leadrope import errors
from leadrope.cli.policy.policy import command
from leadrope.core import home
from leadrope.policy.files import defaults


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def config(scratch_home: Path) -> Path:
    path = home.config_file({"HOME": str(scratch_home), "XDG_CONFIG_HOME": str(scratch_home / ".config")})
    path.parent.mkdir(parents=True)
    return path


def run(*args: str) -> int:
    code = command.main(list(args), prog_name="leadrope policy", standalone_mode=False)
    return code if isinstance(code, int) else 0


def out(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert run(*args) == 0
    return capsys.readouterr().out


def data(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(out(capsys, *args))
    return found


def test_show_tells_that_no_run_may_wait_for_a_limit(
    project: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text("[policy]\nwait_for_limit = true\n")
    (project / "leadrope.toml").write_text("[policy]\nwait_for_limit = false\n")
    found = data(capsys, "show", "-o", "json")["rules"]["wait_for_limit"]
    assert found == {"value": False, "origin": "project", "merge": "the strictest"}


def test_show_tells_each_value_and_its_layer(project: Path, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text('[policy]\nmax_budget_usd = 50\n[agents.a.policy]\npermission_mode = "plan"\n')
    (project / "leadrope.toml").write_text('base_url = "x"\n[policy]\nmax_wall_ms = 9000\nblocked_commands = ["dd"]\n')
    rules = project / "ci.toml"
    rules.write_text('[policy]\non_ask = "deny"\n')
    assert run("show", "--policy", str(rules)) == 0
    shown = capsys.readouterr()
    lines = {line.split()[0]: " ".join(line.split()[1:]) for line in shown.out.splitlines() if line.split()}
    assert lines["max_budget_usd"] == "50.0 (global)"
    assert lines["max_wall_ms"] == "9000 (project)"
    assert lines["on_ask"] == "deny (run:ci.toml)"
    assert lines["max_timeout_ms"] == "300000 (default)"
    assert lines["(project)"] == "dd"
    assert "No layer limits the mode" in shown.out
    assert "leadrope.toml:1: base_url is ignored" in shown.err
    assert "permission_mode" in out(capsys, "show", "--agent", "a")


def test_show_as_json_and_by_layer(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "leadrope.toml").write_text('[policy]\nblocked_commands = ["dd"]\nmax_budget_usd = 3\n')
    found = data(capsys, "show", "-o", "json")
    assert found["layers"] == ["default", "project"]
    assert found["rules"]["max_budget_usd"] == {"value": 3.0, "origin": "project", "merge": "the smallest"}
    assert found["rules"]["blocked_commands"]["entries"]["dd"] == "project"
    assert found["rules"]["blocked_commands"]["entries"]["mkfs"] == "default"
    alone = data(capsys, "show", "--layer", "project", "-o", "json")
    assert set(alone["rules"]) == {"max_budget_usd", "blocked_commands"}
    shipped = data(capsys, "show", "--layer", "default", "-o", "json")["rules"]
    for name in ("blocked_commands", "require_approval", "protected_paths"):
        entries = shipped[name]["entries"]
        assert set(entries) >= set(getattr(defaults.rules(), name))
        assert set(entries.values()) == {"default"}
    words = set(out(capsys, "show", "--layer", "default").replace(",", " ").split())
    assert {"mkfs", "lefthook.yml", "twine", "(default)"} <= words
    assert not {"dd", "(project)"} & words
    with pytest.raises(errors.BadValue, match="there is no layer 'projct'"):
        run("show", "--layer", "projct")


@pytest.mark.parametrize("command_", ["Bash(make test)", "Bash(gradle test)"])
def test_explain_counts_the_grants_of_the_config(
    project: Path, config: Path, capsys: pytest.CaptureFixture[str], command_: str
) -> None:
    assert data(capsys, "explain", command_, "-o", "json")["verdict"] == "ask"
    config.write_text('[run]\nallow = ["Bash(make *)", "Bash(gradle test)"]\n')
    found = data(capsys, "explain", command_, "-o", "json")
    assert (found["verdict"], found["rule"], found["layer"]) == ("allow", "allow", "global")
    assert data(capsys, "explain", "Bash(npm test)", "-o", "json")["verdict"] == "ask"


def test_explain_names_the_layer_of_a_grant(project: Path, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text('[run]\nallow = ["Bash(make *)"]\n')
    granted = ("--allow", "Bash(npm *)", "-o", "json")
    for line, layer in {"make test": "global", "npm test": "run", "make a && npm test": "run"}.items():
        found = data(capsys, "explain", f"Bash({line})", *granted)
        assert (found["verdict"], found["rule"], found["layer"]) == ("allow", "allow", layer), line
    assert data(capsys, "explain", "Bash(git push)", *granted, "--allow", "Bash(git *)")["verdict"] == "ask"


def test_check_tells_every_error_with_its_line(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "rules.toml").write_text('[policy]\nmax_budget_usd = -1\n\nblocked_commnds = ["rm"]\n')
    assert run("check", "rules.toml") == 1
    shown = capsys.readouterr().out
    assert "rules.toml:2: policy.max_budget_usd: must be a number > 0" in shown
    assert "rules.toml:4: policy.blocked_commnds: is not a known rule\n  Did you mean blocked_commands" in shown
    assert run("check", "nowhere.toml") == 1
    assert "nowhere.toml: does not exist" in capsys.readouterr().out


def test_check_without_a_file_looks_at_the_config_and_the_project(
    project: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert out(capsys, "check").count("no such file, so no rules") == 2
    config.write_text('[run]\nmodel = "x"\n[policy]\nmax_budget_usd = 5\n')
    (project / "leadrope.toml").write_text('[policy]\nblocked_commands = "dd"\n')
    assert run("check") == 1
    shown = capsys.readouterr().out
    assert f"✓ {config}" in shown
    assert "leadrope.toml:2: policy.blocked_commands" in shown
    assert run("check", str(config)) == 0
    assert run("check", "leadrope.toml") == 1


def test_test_runs_the_examples_of_every_policy(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = '[policy]\nblocked_commands = ["dd"]\n[[policy.examples]]\ncall = "Bash(dd if=a of=b)"\nexpect = "{}"\n'
    (project / "leadrope.toml").write_text(rules.format("deny"))
    shown = out(capsys, "test")
    assert "✓ deny  Bash(dd if=a of=b)" in shown
    assert "✓ deny  Bash(rm  -rf /)" in shown
    lines = shown.splitlines()
    assert lines[0] == "leadrope.toml: 1 passed", "one's own come first"
    assert next(line for line in lines if line.startswith("shipped")).startswith("shipped with leadrope: ")
    assert lines[-1].endswith(" passed")
    (project / "other.toml").write_text(rules.format("allow"))
    assert run("test", "--policy", "other.toml", "--quiet") == 1
    shown = capsys.readouterr().out
    assert "✗ other.toml: Bash(dd if=a of=b) should be allow, but is deny (blocked_commands" in shown
    assert "✓" not in shown
    assert ", 1 failed" in shown


@pytest.mark.parametrize(
    ("args", "verdict", "rule", "layer"),
    [
        (["Bash(sudo ls)"], "ask", "require_approval", "default"),
        (["Bash(dd if=a of=b)"], "deny", "blocked_commands", "project"),
        (["Bash(ls)"], "allow", "mode:default", "run"),
        (["Bash(mkdir a)"], "ask", "mode:default", "run"),
        (["Bash(ls)", "--mode", "full"], "allow", "mode:full", "run"),
        (["Bash(ls)", "--mode", "bypassPermissions"], "allow", "mode:full", "run"),
        (['Bash(eval "$X")', "--mode", "full"], "ask", "opaque", "default"),
        (['Bash(eval "$X")', "--mode", "full", "--nobody"], "deny", "opaque", "default"),
        (["Write(.git/config)", "--mode", "full"], "ask", "protected_paths", "default"),
        (["Read(a.py)"], "allow", "mode:default", "run"),
        (["Write(a.py)", "--mode", "plan"], "deny", "mode:plan", "run"),
    ],
)
def test_explain(
    project: Path, capsys: pytest.CaptureFixture[str], args: list[str], verdict: str, rule: str, layer: str
) -> None:
    (project / "leadrope.toml").write_text('[policy]\nblocked_commands = ["dd"]\n')
    found = data(capsys, "explain", *args, "-o", "json")
    assert (found["verdict"], found["rule"], found["layer"]) == (verdict, rule, layer)


def test_explain_tells_how_a_command_was_read(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = out(capsys, "explain", "Bash(cd sub && nice git push > log.txt)")
    assert "verdict  ask\nrule     require_approval\nlayer    default\n" in shown
    assert "runs git push (through nice) (in sub)" in shown
    assert "writes sub/log.txt" in shown


def test_an_agent_that_nobody_knows_is_no_agent_without_rules(
    project: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(errors.BadValue, match="there is no agent 'reviewer'"):
        run("show", "--agent", "reviewer")
    config.write_text('[agents.writer]\nmodel = "x"\n[agents.reviewer.policy]\nblocked_commands = ["ls"]\n')
    with pytest.raises(errors.BadValue) as refused:
        run("explain", "Bash(ls)", "--agent", "nobody")
    assert refused.value.hint == "There are: writer, reviewer."
    assert data(capsys, "explain", "Bash(ls)", "--agent", "reviewer", "-o", "json")["layer"] == "agent:reviewer"
    assert data(capsys, "explain", "Bash(ls)", "--agent", "writer", "-o", "json")["rule"] == "mode:default"


def test_wrong_use_is_an_error_of_the_request(project: Path) -> None:
    with pytest.raises(errors.BadValue, match=r"Bash\(rm -rf /\)"):
        run("explain", "rm -rf /")
    with pytest.raises(errors.BadValue, match="is not a call") as refused:
        run("explain", "bash(rm x)")
    assert refused.value.hint == "Did you mean Bash(rm x)?"
    with pytest.raises(errors.BadValue, match="'x' is not a mode"):
        run("explain", "Bash(ls)", "--mode", "x")
    with pytest.raises(errors.BadDirectory):
        run("show", "--cwd", "nowhere")
    (project / "leadrope.toml").write_text("[policy]\nx = 1\n")
    with pytest.raises(errors.BadConfig, match=r"leadrope\.toml:2"):
        run("explain", "Bash(ls)")


@pytest.mark.parametrize("name", ["show", "check", "test", "explain"])
def test_every_command_has_help_with_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main([name, "--help"], prog_name="leadrope policy")
    assert "Example" in capsys.readouterr().out


def test_explain_judges_git_with_the_environment_that_an_agent_gets(
    project: Path, config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal in an editor sets GIT_ASKPASS. No agent gets that variable, so `git status` still only reads."""
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    monkeypatch.setenv("GIT_ASKPASS", "/opt/editor/askpass.sh")
    assert data(capsys, "explain", "Bash(git status)", "--mode", "plan", "-o", "json")["verdict"] == "allow"
    config.write_text('forward_env = ["GIT_ASKPASS"]\n')  # as a run would refuse it
    with pytest.raises(errors.VariableRefused, match="GIT_ASKPASS"):
        out(capsys, "explain", "Bash(git status)", "--mode", "plan")
