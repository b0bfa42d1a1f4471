"""Builds the complete environment of the child: common variables, the program's own settings, one credential.

Pure: the caller passes the surrounding environment as a mapping.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from leadrope import errors
from leadrope.core.request import RunRequest
from leadrope.core.request_checks import normal_mode
from leadrope.process import environment, reaper
from leadrope.process.environment import OUTPUT_TOKENS
from leadrope.process.sandbox.command_domain import Domain

if TYPE_CHECKING:
    from leadrope.providers.claude_code.credentials import Credential

# The program limits it to the model's own maximum, so a high value cuts no long answer and harms no small model.
DEFAULT_OUTPUT_TOKENS = "128000"


def child_env(
    environ: Mapping[str, str],
    request: RunRequest,
    *,
    credential: Credential,
    config_dir: Path | None,
    tmp_dir: Path,
    run_id: str,
    is_root: bool,
    default_home: Path,
    forward_env: Sequence[str] = (),
    is_trusted: bool = False,
    shell: str | None = None,
    domain: Domain = Domain(),  # noqa: B008  # frozen
) -> dict[str, str]:
    """Return the complete environment. `config_dir` None means the program's own login in the user's own folder."""
    environment.check_variables(request.variables, request.secret_variables)
    env = environment.passed_on(environ, forward_env, default_home=default_home)
    env[OUTPUT_TOKENS] = _output_tokens(environ)
    env |= request.variables
    env |= {
        "TMPDIR": str(tmp_dir),
        "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        # A run ends with `idle`, not with the first result: background agents may still be working.
        "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1",
        reaper.TAG: run_id,
    }
    if shell is not None:
        # Commands are parsed as bash would; another shell would parse some of them differently.
        env["SHELL"] = shell
    if domain.shell:
        env |= {"SHELL": domain.shell, **domain.env}
        if is_trusted:
            # Hooks run in /bin/sh, whatever SHELL says, unless there is a prefix for everything.
            env["CLAUDE_CODE_SHELL_PREFIX"] = domain.line
    if config_dir is not None:
        env["CLAUDE_CONFIG_DIR"] = str(config_dir)
    elif environ.get("CLAUDE_CONFIG_DIR"):
        env["CLAUDE_CONFIG_DIR"] = environ["CLAUDE_CONFIG_DIR"]
    if request.api_retries is not None:
        env["CLAUDE_CODE_MAX_RETRIES"] = str(request.api_retries)
    if request.max_structured_retries is not None:
        env["MAX_STRUCTURED_OUTPUT_RETRIES"] = str(request.max_structured_retries)
    if request.connections and request.limits.connection_s:
        # One hanging server would delay the first turn by half a minute, and by more with a larger default.
        env["MCP_TIMEOUT"] = str(round(request.limits.connection_s * 1000))
    if request.base_url is not None:
        env["ANTHROPIC_BASE_URL"] = request.base_url
    if is_root and normal_mode(request.mode) == "full":
        # The program refuses this mode as root unless told that it is sandboxed.
        env["IS_SANDBOX"] = "1"
    if credential.env_name is not None and credential.secret is not None:
        env[credential.env_name] = credential.secret.reveal()
    return env


def _output_tokens(environ: Mapping[str, str]) -> str:
    value = environ.get(OUTPUT_TOKENS, "").strip()
    if value and not re.fullmatch(r"[1-9][0-9]{0,8}", value):
        raise errors.BadValue(
            OUTPUT_TOKENS, f"{value!r} is not a whole number of tokens", hint="Correct or unset the variable."
        )
    return value or DEFAULT_OUTPUT_TOKENS
