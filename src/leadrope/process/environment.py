"""Selects the environment variables that a child process gets: a short allow-list, nothing inherited by accident.

It applies to every agent, to commands and to servers of connections. Names of vendors are listed here because the agent
of another vendor may not see them either. Pure: the caller passes the surrounding environment as a mapping.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from leadrope import errors, spelling
from leadrope.regex import regex

ALLOWED = (
    "PATH",
    "HOME",
    "LANG",
    "TERM",
    "USERPROFILE",
    "APPDATA",
    "LOCALAPPDATA",
    "TEMP",
    "TMP",
    "SystemRoot",
    "ComSpec",
)

OUTPUT_TOKENS = "CLAUDE_CODE_MAX_OUTPUT_TOKENS"
"""The only setting of an agent that a run may make through an environment variable."""

DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"

_NAME = regex(r"[A-Za-z_][A-Za-z0-9_]*")

# Compared in upper case: Windows ignores case, and a secret spelled in lower case is a secret too.
_SERVER_SECRETS = frozenset({"DATABASE_URL", "SMTP_PASS", "SMTP_PASSWORD", "BETTER_AUTH_SECRET"})
"""Passed on only if the user names and marks them explicitly, as with `--secret DATABASE_URL`."""
_SECRET_ENDINGS = ("CLIENT_SECRET",)
_PROVIDER_KEYS = frozenset({"OPENAI_API_KEY", "PERPLEXITY_API_KEY"})

_OWN_PREFIXES = {
    "ANTHROPIC_": "it would change the account or the model server",
    "CLAUDE_": "it would change the agent's own settings",
    "LEADROPE_": "it belongs to leadrope itself",
}
_OWN_NAMES = {
    "CLAUDECODE": "the agent would take itself for a nested one and refuse to work",
    "IS_SANDBOX": "it tells the agent that it is in a sandbox; only leadrope may set it",
    "DISABLE_AUTOUPDATER": "leadrope sets it",
    "MAX_STRUCTURED_OUTPUT_RETRIES": "it has an option of its own",
    "MAX_THINKING_TOKENS": "it has an option of its own",
    **dict.fromkeys(
        ("PATH", "HOME", "TMPDIR", "TEMP", "TMP", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "SYSTEMROOT", "COMSPEC"),
        "leadrope sets it, and the child finds its programs and files through it",
    ),
}

_LOADS_CODE = "it makes programs load code that nobody approved"
_TURNING_PREFIXES = ("LD_", "DYLD_", "BASH_FUNC_", "BUN_", "GIT_CONFIG")
_TURNING_NAMES = frozenset(
    {
        "NODE_OPTIONS",
        "NODE_PATH",
        "BASH_ENV",
        "SHELL",
        "SHELLOPTS",
        "BASHOPTS",
        "PROMPT_COMMAND",
        "PS4",
        "IFS",
        "ZDOTDIR",
        "PYTHONPATH",
        "PYTHONHOME",
        "PYTHONSTARTUP",
        "PERL5LIB",
        "PERL5OPT",
        "PERL5DB",
        "RUBYOPT",
        "RUBYLIB",
        "JAVA_TOOL_OPTIONS",
        "JDK_JAVA_OPTIONS",
        "_JAVA_OPTIONS",
        "GIT_SSH",
        "GIT_SSH_COMMAND",
        "GIT_EXTERNAL_DIFF",
        "GIT_EXEC_PATH",
        "GIT_ASKPASS",
        "GIT_PAGER",
        "GIT_EDITOR",
        "GIT_SEQUENCE_EDITOR",
        "GIT_PROXY_COMMAND",
        "GLIBC_TUNABLES",
        "GCONV_PATH",
    }
)
# `ENV` names a file that sh sources; `env` is an ordinary variable.
_TURNING_EXACTLY = frozenset({"ENV"})
_WEAKENS_TLS = frozenset({"NODE_TLS_REJECT_UNAUTHORIZED"})

# A corporate network needs these, so the user's own configuration may forward them. A run's variable may come from a
# shared workspace, and with one of these it could send the credential to another machine.
_NETWORK = frozenset(
    {
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "NO_PROXY",
        "NODE_EXTRA_CA_CERTS",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
    }
)


def refused(name: str, *, is_marked: bool = False) -> str | None:
    """Returns why this variable may not be passed to the child, or None.

    With `is_marked`, the user has declared it a secret.
    """
    upper = name.upper()
    if not _NAME.fullmatch(name):
        return "a name has letters, digits and _ only, and does not start with a digit"
    if upper in _PROVIDER_KEYS:
        return "it is the key of a model service"
    if not is_marked and (upper in _SERVER_SECRETS or upper.endswith(_SECRET_ENDINGS)):
        return "it usually holds a secret of a server"
    if upper in _OWN_NAMES:
        return _OWN_NAMES[upper]
    for prefix, reason in _OWN_PREFIXES.items():
        if upper.startswith(prefix):
            return reason
    if upper in _TURNING_NAMES or upper.startswith(_TURNING_PREFIXES) or name in _TURNING_EXACTLY:
        return _LOADS_CODE
    if upper in _WEAKENS_TLS:
        return "it switches off the check of the model server's certificate"
    return None


_INSTEAD = {
    "ANTHROPIC_": ("base_url", "model", "credential"),
    "MAX_STRUCTURED_OUTPUT_RETRIES": ("max_structured_retries",),
    "MAX_THINKING_TOKENS": ("max_thinking_tokens",),
}


def _instead(name: str) -> str | None:
    """Names the options of a run that replace the variable."""
    for start, fields in _INSTEAD.items():
        if name.upper().startswith(start):
            return f"Use {' or '.join(spelling.option(field) for field in fields)}."
    return None


def check_variables(variables: Mapping[str, str], marked: Iterable[str] = ()) -> None:
    """Raises for the first variable of a run that could subvert the child; `CLAUDE_CODE_MAX_OUTPUT_TOKENS` is allowed.

    `marked` are the names that the user has declared secret.
    """
    known = frozenset(marked)
    for name, value in variables.items():
        if "\0" in value:
            raise errors.VariableRefused(name, "its value contains a NUL character")
        if name == OUTPUT_TOKENS:
            if not re.fullmatch(r"[1-9][0-9]{0,8}", value):
                raise errors.VariableRefused(name, f"{value!r} is not a whole number of tokens")
            continue
        reason = refused(name, is_marked=name in known)
        if reason is None and name.upper() in _NETWORK:
            reason = "it redirects the agent's traffic; name it in forward_env of your config.toml instead"
        if reason is not None and refused(name, is_marked=True) is None:
            way = spelling.option("secret_variables", name)
            hint = f"If the agent needs it: `{way}`, or secret_variables in [run] of config.toml."
            raise errors.VariableRefused(name, reason, hint=hint)
        if reason is not None:
            raise errors.VariableRefused(name, reason, hint=_instead(name))


def check_forwarded(names: Iterable[str]) -> None:
    """Raises for the first name in `forward_env` that could subvert the child."""
    for name in names:
        if reason := refused(name):
            raise errors.VariableRefused(name, f"{reason} (named in forward_env)")


def passed_on(environ: Mapping[str, str], forward_env: Sequence[str], *, default_home: Path) -> dict[str, str]:
    """Returns the part of the caller's environment that every agent gets."""
    env = {name: value for name in ALLOWED if (value := _lookup(environ, name)) is not None}
    # Without HOME the program falls back to the password file, and ignores the home that the caller intended.
    env["HOME"] = env.get("HOME") or str(default_home)
    env["PATH"] = env.get("PATH") or DEFAULT_PATH
    check_forwarded(forward_env)
    return env | {name: environ[name] for name in forward_env if name in environ}


def _lookup(environ: Mapping[str, str], name: str) -> str | None:
    # A copy of the environment on Windows only has upper-case names.
    value = environ.get(name)
    return environ.get(name.upper()) if value is None else value
