"""Maps the CLI's error reasons, statuses and messages to our error kinds.

Pure tables; independent of processes and of events other than the `Problem` they return.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from leadrope.core.events import Problem
from leadrope.core.fold import kind_of_status
from leadrope.regex import regex

_LOG_IN = (
    "Run `leadrope login`, or `leadrope setup-token` and set CLAUDE_CODE_OAUTH_TOKEN; "
    "to pay by API key instead, set ANTHROPIC_API_KEY and opt in with billing `api_key`."
)
NOT_AUTHENTICATED = Problem(kind="not_authenticated", hint=_LOG_IN)
STOPPED = Problem(
    kind="stopped",
    outcome="stopped",
    hint="The turn was interrupted before it was done; resume the session to continue.",
)
MAX_TURNS = Problem(
    kind="max_turns",
    outcome="degraded",
    hint="Raise max_turns, or resume the session to let the agent continue.",
)
SCHEMA_MISSED = Problem(
    kind="claude_code.schema_not_satisfied_after_retries",
    outcome="degraded",
    hint="Make the schema simpler or describe its fields; the agent's answers did not match it.",
)
OVER_BUDGET = Problem(
    kind="over_budget",
    outcome="over_budget",
    hint="Raise the budget, or resume the session with a new one.",
)
_PROMPT_TOO_LONG = Problem(
    kind="prompt_too_long",
    hint="Shorten the prompt, the system prompt or the list of tools, or start a new session.",
)
_SANDBOX = Problem(
    kind="sandbox_unavailable",
    hint="Install bubblewrap and socat, or run without the agent's own sandbox setting.",
)
_UNREACHABLE = Problem(
    kind="connection_failed",
    hint="Check the address of the model (base URL), the network and the proxy variables.",
)
_LIMIT = Problem(kind="rate_limited", hint="Wait until the limit of the account resets, then resume the session.")
_CREDIT = Problem(kind="usage_limit", hint="The account has no credit left: add some, or use another credential.")
_ROOT = Problem(
    kind="spawn_failed",
    hint="Run as an unprivileged user, or in a sandbox with IS_SANDBOX=1, or choose a mode other than `full`.",
)
_UNKNOWN_OPTION = Problem(
    kind="spawn_failed",
    hint="This version of the CLI does not know an option that is needed: install a supported version.",
)
_SESSION_USED = Problem(kind="bad_request", hint="Give another session id, or resume the session that has this one.")
_NO_SESSION = Problem(
    kind="session_lost",
    hint="Check the id; a session is found only from the same home and config directory it was made in.",
)
_BAD_SESSION = Problem(kind="bad_request", hint="Give the id of a session: `leadrope sessions list` shows them.")
_BAD_MCP = Problem(kind="bad_request", hint="Correct the connections of the request; each needs a command or a url.")
_NO_PROMPT = Problem(kind="empty_prompt", hint="Give the agent something to do.")
_BAD_STDIN = Problem(
    kind="bad_request",
    hint="The agent could not read a line it was sent; check what was written to its standard input.",
)
_MALFORMED = Problem(
    kind="malformed_output",
    hint="The model's answer could not be read: check the gateway or proxy between the agent and the model.",
)
MALFORMED_RESULT = Problem(
    kind="malformed_output",
    hint="The agent's result line is not of the expected shape; it is among the events. Install a supported version.",
)
_CONFIG = Problem(kind="bad_request", hint="Correct the agent's own configuration file, or use a private one.")

# Searched for in plain lines and in the text of failed turns, in this order, ignoring case. The first match wins, so
# more specific texts come first.
_NEVER_CONNECTED = (
    "econnrefused",
    "connectionrefused",
    "enotfound",
    "eai_again",
    "failedtoopensocket",
    "enetunreach",
    "enetdown",
    "ehostunreach",
    "ehostdown",
    "err_proxy_tunnel",
)
"""The CLI's codes for a connection that was never made. If one was lost (ECONNRESET), the model may have read the
prompt.
"""
_TEXTS: tuple[tuple[str, Problem], ...] = (
    # Our own broker's messages, which come back through the agent.
    ("leadrope: the run's budget", OVER_BUDGET),
    ("leadrope: the model's server", _UNREACHABLE),
    ("cannot be used with root", _ROOT),
    ("not logged in", NOT_AUTHENTICATED),
    ("please run /login", NOT_AUTHENTICATED),
    ("failed to authenticate", NOT_AUTHENTICATED),
    ("invalid api key", NOT_AUTHENTICATED),
    ("authentication_error", NOT_AUTHENTICATED),
    ("oauth token has expired", NOT_AUTHENTICATED),
    ("oauth token revoked", NOT_AUTHENTICATED),
    ("prompt is too long", _PROMPT_TOO_LONG),
    ("credit balance is too low", _CREDIT),
    ("usage limit reached", _LIMIT),
    ("hit your limit", _LIMIT),
    ("sandbox required but unavailable", _SANDBOX),
    ("unknown option", _UNKNOWN_OPTION),
    ("is already in use", _SESSION_USED),
    ("no conversation found", _NO_SESSION),
    ("--resume requires a valid session id", _BAD_SESSION),
    ("invalid mcp configuration", _BAD_MCP),
    ("input must be provided either through stdin", _NO_PROMPT),
    ("error parsing streaming input line", _BAD_STDIN),
    ("could not parse message into json", _MALFORMED),
    ("connection refused", _UNREACHABLE),
    *((code, _UNREACHABLE) for code in _NEVER_CONNECTED),
)
_OUR_WORDS = regex(r"leadrope: (the model's server .+? cannot be reached \(.+?\))(?:\. |\.?$)")
"""The CLI surrounds it with its own text about servers and gateways, and the address of our broker."""
_UNAUTHORISED = regex(r"(?<![\w.:/-])401(?![\w.:/-])")
_API_STATUS = regex(r"\bapi error: (?:request rejected )?\(?([45]\d\d)\b")

_STARTUP: dict[str, Problem] = {
    "sandbox_required_unavailable": _SANDBOX,
    "bypass_root": _ROOT,
    "config_file_invalid": _CONFIG,
    "gateway_signin_required": NOT_AUTHENTICATED,
    "org_pin_api_key_conflict": NOT_AUTHENTICATED,
}
_REASONS: dict[str, Problem] = {
    "error_max_turns": MAX_TURNS,
    "error_max_budget_usd": OVER_BUDGET,
    "error_max_structured_output_retries": SCHEMA_MISSED,
}


def explain_text(text: str) -> Problem | None:
    """Return the problem that a line of plain text describes, or None if it is unknown."""
    lowered = text.lower()
    for part, problem in _TEXTS:
        if part in lowered:
            return problem
    if found := _API_STATUS.search(lowered):
        return explain_status(int(found[1]))
    return NOT_AUTHENTICATED if _UNAUTHORISED.search(lowered) else None


def never_connected(text: str) -> bool:
    """Return whether the CLI's message about a failed request means that the model's address was not reached."""
    lowered = text.lower()
    return any(f"({code})" in lowered for code in _NEVER_CONNECTED)


def not_reached(problem: Problem | None, text: str, server: str) -> Problem | None:
    """Add the unreachable address, which the CLI omits."""
    if problem is None or problem.message is not None or not server or not never_connected(text):
        return problem
    code = next(code for code in _NEVER_CONNECTED if f"({code})" in text.lower())
    why = "connection refused" if code in ("econnrefused", "connectionrefused") else code.upper()
    return msgspec.structs.replace(problem, message=f"the model's server {server} cannot be reached ({why})")


def explain_lines(lines: Iterable[str]) -> Problem | None:
    """Return the problem of the first line that describes one; for the head and tail of stderr."""
    return next((problem for line in lines if (problem := explain_text(line))), None)


def explain_status(status: int) -> Problem:
    if status in (401, 403):
        return NOT_AUTHENTICATED
    return _CREDIT if status == 402 else Problem(kind=kind_of_status(status))


def explain_turn(
    *,
    is_error: bool,
    reason: str,
    text: str,
    errors: Iterable[str] = (),
    terminal_reason: str | None = None,
    api_status: int | None = None,
    api_error: str | None = None,
    startup_failure: str | None = None,
) -> Problem | None:
    """Return the problem that a turn's result describes; None if the turn succeeded.

    Reasons with a meaning of their own take precedence over is_error, which older CLIs leave false for error_max_turns.
    """
    if known := _REASONS.get(reason):
        return known
    if terminal_reason is not None and terminal_reason.startswith("aborted"):
        return STOPPED
    if not is_error:
        return STOPPED if terminal_reason == "hook_stopped" and not text else None
    if startup_failure is not None and (known := _STARTUP.get(startup_failure)):
        return known
    if terminal_reason == "prompt_too_long" or text.startswith("Prompt is too long"):
        return _PROMPT_TOO_LONG
    if api_error == "connection_failed":
        return _UNREACHABLE
    if "leadrope: " in text and (told := explain_text(text)):
        found = _OUR_WORDS.search(text)
        return msgspec.structs.replace(told, message=found[1]) if found else told
    if api_error == "billing_error" or "Credit balance is too low" in text:
        return _CREDIT
    if api_status is not None:
        return explain_status(api_status)
    if told := explain_lines((text, *errors)):
        return told
    if startup_failure is not None:
        return Problem(kind="spawn_failed", hint=f"The agent refused to start: {startup_failure}.")
    # The model answered, but the CLI could not parse the answer.
    return _MALFORMED if terminal_reason == "completed" else Problem(kind="api_error")
