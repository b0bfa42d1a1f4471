"""Every error leadrope raises, by what the caller can do about it.

    LeadropeError
    ├── RequestError            fix the request; nothing was started
    │   ├── EmptyPrompt
    │   ├── BadDirectory        the working directory is missing, no directory, or forbidden
    │   ├── BadValue            a field is out of range or of an unknown kind
    │   ├── VariableRefused     a variable that could turn the child against its supervisor
    │   └── BadConfig           a configuration file cannot be used
    ├── InstallError            fix the installation
    │   ├── CliNotFound
    │   ├── SpawnFailed
    │   ├── GateUnsupported     this agent version cannot hold a tool call
    │   └── SandboxUnavailable  the walls cannot be built here
    ├── NotAuthenticated        log in, or opt in to a key
    ├── RunFailed               a run ended badly; raised only by RunResult.raise_for_outcome()
    └── RunClosed               the run is over; the call came too late

A run that ends badly is data (RunResult); only what prevents a run from starting is raised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leadrope.core.result import RunResult


class LeadropeError(Exception):
    """Names the thing, the reason, and in `hint` what to do next."""

    kind = "error"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class RequestError(LeadropeError):
    kind = "bad_request"


class EmptyPrompt(RequestError):
    kind = "empty_prompt"


class BadDirectory(RequestError):
    pass


class BadValue(RequestError):
    """`field` is the name the user wrote, so that a form can mark it."""

    def __init__(self, field: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(f"{field}: {message}", hint=hint)
        self.field = field


class VariableRefused(RequestError):
    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"variable {name} is refused: {reason}",
            hint="Give the variable another name; the agent's own settings have fields of the request.",
        )
        self.name = name


class BadConfig(RequestError):
    pass


class InstallError(LeadropeError):
    kind = "spawn_failed"


class CliNotFound(InstallError):
    kind = "cli_not_found"


class SpawnFailed(InstallError):
    pass


class GateUnsupported(InstallError):
    kind = "gate_unsupported"


class SandboxUnavailable(InstallError):
    kind = "sandbox_unavailable"


class NotAuthenticated(LeadropeError):
    kind = "not_authenticated"


class RunFailed(LeadropeError):
    """Carries the whole result; the message is built from it."""

    kind = "run_failed"

    def __init__(self, result: RunResult) -> None:
        error = result.error
        super().__init__(
            f"the run ended {result.outcome}" + (f": {error.message}" if error else ""),
            hint=error.hint if error else None,
        )
        self.result = result


class RunClosed(LeadropeError):
    kind = "run_closed"
