"""The child's environment, stated whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from leadrope import errors
from leadrope.core.request import Limits, McpServer, RunRequest
from leadrope.core.secrets.redaction import Secret
from leadrope.process import environment
from leadrope.providers.claude_code import env
from leadrope.providers.claude_code.credentials import NO_CREDENTIAL, Credential
from leadrope.providers.claude_code.launch import plan_launch

TOKEN = Credential(kind="oauth_token", secret=Secret("sk-ant-oat01-x"), source="setup token", billing="subscription")
KEY = Credential(kind="api_key", secret=Secret("sk-ant-api-x"), source="ANTHROPIC_API_KEY", billing="api_key")
BEARER = Credential(kind="auth_token", secret=Secret("gw-1"), source="given with the request", billing="api_key")
OWN = Credential(kind="own_login", source="own login", billing="subscription")

BASE = {
    "PATH": "/bin",
    "HOME": "/home/u",
    "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "128000",
    "TMPDIR": "/run/r1/tmp",
    "DISABLE_AUTOUPDATER": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1",
    "LEADROPE_RUN": "r1",
    "CLAUDE_CONFIG_DIR": "/run/r1/config",
}
ENVIRON = {"PATH": "/bin", "HOME": "/home/u"}
SERVER = {"db": McpServer(command="db")}


def child(
    environ: dict[str, str] | None = None,
    *,
    credential: Credential = NO_CREDENTIAL,
    config_dir: Path | None = Path("/run/r1/config"),
    is_root: bool = False,
    forward_env: tuple[str, ...] = (),
    **fields: Any,
) -> dict[str, str]:
    return env.child_env(
        ENVIRON if environ is None else environ,
        RunRequest(prompt="p", **fields),
        credential=credential,
        config_dir=config_dir,
        tmp_dir=Path("/run/r1/tmp"),
        run_id="r1",
        is_root=is_root,
        default_home=Path("/home/default"),
        forward_env=forward_env,
    )


def test_everything_around_stays_outside() -> None:
    """Secrets, a nested agent's marks and every credential that was not chosen are left behind."""
    environ = ENVIRON | {
        "CLAUDECODE": "1",
        "CLAUDE_CODE_SIMPLE": "1",
        "CLAUDE_CONFIG_DIR": "/home/u/.claude-work",
        "ANTHROPIC_API_KEY": "sk-ant-ambient",
        "ANTHROPIC_AUTH_TOKEN": "x",
        "ANTHROPIC_BASE_URL": "http://evil.test",
        "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat-ambient",
        "DATABASE_URL": "postgres://",
        "database_url": "postgres://",
        "LEADROPE_SECRET": "s",
        "LEADROPE_DATABASE_URL": "s",
        "LEADROPE_ADMIN_PASSWORD": "s",
        "SMTP_PASS": "s",
        "OPENAI_API_KEY": "s",
        "PERPLEXITY_API_KEY": "s",
        "GITHUB_CLIENT_SECRET": "s",
        "LD_PRELOAD": "/evil.so",
        "NODE_OPTIONS": "--require /evil.js",
        "BASH_ENV": "/evil",
        "IS_SANDBOX": "1",
        "HTTPS_PROXY": "http://proxy",
        "EDITOR": "vi",
    }
    assert child(environ, credential=TOKEN) == BASE | {"CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-x"}


def test_the_allow_list_passes() -> None:
    allowed = {name: f"value of {name}" for name in environment.ALLOWED}
    assert child(allowed) == BASE | allowed


def test_windows_upper_case_names_are_found() -> None:
    found = child(ENVIRON | {"SYSTEMROOT": "C:\\Windows"})
    assert found["SystemRoot"] == "C:\\Windows"


@pytest.mark.parametrize("home", [{}, {"HOME": ""}])
def test_home_is_always_set(home: dict[str, str]) -> None:
    """Without HOME the agent would use the password file's home and read the login there."""
    assert child({"PATH": "/bin"} | home) == BASE | {"HOME": "/home/default"}


@pytest.mark.parametrize("path", [{}, {"PATH": ""}])
def test_programs_are_found_without_a_path(path: dict[str, str]) -> None:
    """With an empty one the agent's commands would be looked for in its working directory."""
    assert child({"HOME": "/home/u"} | path) == BASE | {"PATH": "/usr/local/bin:/usr/bin:/bin"}


@pytest.mark.parametrize(
    ("credential", "expected"),
    [
        (NO_CREDENTIAL, {}),
        (TOKEN, {"CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-x"}),
        (KEY, {"ANTHROPIC_API_KEY": "sk-ant-api-x"}),
        (BEARER, {"ANTHROPIC_AUTH_TOKEN": "gw-1"}),
        (OWN, {}),
    ],
)
def test_exactly_one_credential(credential: Credential, expected: dict[str, str]) -> None:
    assert child(credential=credential) == BASE | expected


def test_the_agents_own_login_keeps_the_users_own_folder() -> None:
    bare = {name: value for name, value in BASE.items() if name != "CLAUDE_CONFIG_DIR"}
    assert child(credential=OWN, config_dir=None) == bare
    mine = ENVIRON | {"CLAUDE_CONFIG_DIR": "/home/u/.claude-work"}
    assert child(mine, credential=OWN, config_dir=None) == bare | {"CLAUDE_CONFIG_DIR": "/home/u/.claude-work"}


@pytest.mark.parametrize(
    ("is_root", "mode", "is_marked"),
    [
        (True, "full", True),
        (True, "bypassPermissions", True),
        (False, "full", False),
        (True, "default", False),
        (True, "edit", False),
        (True, "plan", False),
        (True, "dontAsk", False),
    ],
)
def test_root_with_full_is_marked_as_contained_and_only_that(is_root: bool, mode: str, is_marked: bool) -> None:
    assert child(is_root=is_root, mode=mode) == BASE | ({"IS_SANDBOX": "1"} if is_marked else {})


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"api_retries": 0}, {"CLAUDE_CODE_MAX_RETRIES": "0"}),
        ({"max_structured_retries": 2}, {"MAX_STRUCTURED_OUTPUT_RETRIES": "2"}),
        ({"connections": SERVER, "limits": Limits(connection_s=1.5)}, {"MCP_TIMEOUT": "1500"}),
        ({"connections": SERVER, "limits": Limits(connection_s=0)}, {}),
        ({"limits": Limits(connection_s=1.5)}, {}),
        ({"base_url": "http://127.0.0.1:1"}, {"ANTHROPIC_BASE_URL": "http://127.0.0.1:1"}),
        ({"variables": {"CLAUDE_CODE_MAX_OUTPUT_TOKENS": "4000"}}, {"CLAUDE_CODE_MAX_OUTPUT_TOKENS": "4000"}),
        ({"variables": {"STAGE": "test", "EMPTY": "", "env": "x"}}, {"STAGE": "test", "EMPTY": "", "env": "x"}),
        ({"variables": {"LANG": "de_DE.UTF-8"}}, {"LANG": "de_DE.UTF-8"}),
    ],
)
def test_fields_of_the_request(fields: dict[str, Any], expected: dict[str, str]) -> None:
    assert child(**fields) == BASE | expected


def test_the_output_ceiling_of_the_environment_is_below_the_runs_own() -> None:
    around = ENVIRON | {"CLAUDE_CODE_MAX_OUTPUT_TOKENS": "64000"}
    assert child(around) == BASE | {"CLAUDE_CODE_MAX_OUTPUT_TOKENS": "64000"}
    own = {"CLAUDE_CODE_MAX_OUTPUT_TOKENS": "1000"}
    assert child(around, variables=own) == BASE | own
    with pytest.raises(errors.BadValue, match="lots"):
        child(ENVIRON | {"CLAUDE_CODE_MAX_OUTPUT_TOKENS": "lots"})


@pytest.mark.parametrize(
    "name",
    [
        *("LD_PRELOAD", "LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES", "ld_preload", "NODE_OPTIONS", "BASH_ENV", "ENV"),
        *("PYTHONPATH", "PYTHONHOME", "PATH", "Path", "HOME", "TMPDIR", "SHELL", "GIT_CONFIG_COUNT", "BUN_OPTIONS"),
        *("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "anthropic_api_key", "CLAUDE_CODE_SIMPLE", "CLAUDE_CONFIG_DIR"),
        *("CLAUDECODE", "IS_SANDBOX", "LEADROPE_RUN", "LEADROPE_SECRET", "NODE_TLS_REJECT_UNAUTHORIZED"),
        *("DATABASE_URL", "database_url", "SMTP_PASS", "OPENAI_API_KEY", "PERPLEXITY_API_KEY", "GOOGLE_CLIENT_SECRET"),
        *("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "GIT_SEQUENCE_EDITOR", "GIT_PROXY_COMMAND"),
        *("google_client_secret", "Openai_Api_Key", "smtp_pass", "leadrope_secret"),
        *("HTTPS_PROXY", "https_proxy", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE"),
        *("claude_code_max_output_tokens", "", "A B", "A=B", "1A", "A-B", "Ä", "A\n", "A\0"),
    ],
)
def test_a_variable_that_could_turn_the_child_is_refused(name: str) -> None:
    with pytest.raises(errors.VariableRefused) as caught:
        child(variables={name: "x"})
    assert caught.value.name == name


@pytest.mark.parametrize("name", ["DATABASE_URL", "database_url", "SMTP_PASS", "GOOGLE_CLIENT_SECRET"])
def test_a_secret_of_a_server_is_passed_on_by_a_user_who_marks_it(name: str) -> None:
    assert child(variables={name: "opensesame"}, secret_variables=(name,))[name] == "opensesame"
    with pytest.raises(errors.VariableRefused, match=f"secret_variables=..{name}"):
        child(variables={name: "opensesame"}, secret_variables=("OTHER",))


@pytest.mark.parametrize(
    "name", ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN", "LEADROPE_SECRET", "LD_PRELOAD", "PATH"]
)
def test_no_mark_lets_a_credential_or_code_pass(name: str) -> None:
    with pytest.raises(errors.VariableRefused):
        child(variables={name: "opensesame"}, secret_variables=(name,))


@pytest.mark.parametrize("value", ["", "0", "-1", "1e9", " 5", "5\n", "٣"])
def test_the_output_ceiling_must_be_a_number(value: str) -> None:
    with pytest.raises(errors.VariableRefused):
        child(variables={"CLAUDE_CODE_MAX_OUTPUT_TOKENS": value})


def test_a_nul_in_a_value_is_refused() -> None:
    with pytest.raises(errors.VariableRefused, match="NUL"):
        child(variables={"A": "x\0y"})


def test_forward_env_passes_what_the_network_needs() -> None:
    around = ENVIRON | {"HTTPS_PROXY": "http://p:1", "no_proxy": "x", "NODE_EXTRA_CA_CERTS": "/ca.pem", "OTHER": "y"}
    names = ("HTTPS_PROXY", "no_proxy", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE")
    expected = {"HTTPS_PROXY": "http://p:1", "no_proxy": "x", "NODE_EXTRA_CA_CERTS": "/ca.pem"}
    assert child(around, forward_env=names) == BASE | expected


@pytest.mark.parametrize(
    "name",
    [
        *("DATABASE_URL", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN", "LEADROPE_SECRET"),
        *("LD_PRELOAD", "NODE_OPTIONS", "CLAUDECODE", "IS_SANDBOX", "SLACK_CLIENT_SECRET"),
    ],
)
def test_forward_env_passes_no_secret_and_no_code(name: str) -> None:
    with pytest.raises(errors.VariableRefused, match="forward_env"):
        child(ENVIRON | {name: "x"}, forward_env=(name,))


def test_a_planned_launch_prints_no_secret(tmp_path: Path) -> None:
    plan = plan_launch(
        RunRequest(prompt="p", append_system_prompt="x" * 40_000),
        binary="/opt/claude",
        model="m",
        session_id="s",
        run_id="r1",
        run_dir=tmp_path / "agent",
        launch_dir=tmp_path,
        config_dir=tmp_path / "config",
        credential=KEY,
        environ=ENVIRON,
        is_root=False,
        default_home=Path("/home/u"),
    )
    assert plan.env["ANTHROPIC_API_KEY"] == "sk-ant-api-x"
    agent = tmp_path / "agent"
    assert plan.folders == (str(agent), str(agent / "tmp"), str(tmp_path / "config"))
    assert [file.path for file in plan.files] == [str(tmp_path / "append-system-prompt.txt")]
    assert "sk-ant-api-x" not in repr(plan)
    assert "ANTHROPIC_API_KEY" in repr(plan)
