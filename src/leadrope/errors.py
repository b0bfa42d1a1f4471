"""Every error leadrope raises, by what the caller can do about it.

    LeadropeError
    ├── RequestError            fix the request; nothing was started
    │   ├── EmptyPrompt
    │   ├── BadDirectory        the working directory is missing, no directory, or forbidden
    │   ├── BadValue            a field is out of range or of an unknown kind
    │   │   ├── BadAttachment   a file that cannot go with the prompt
    │   │   └── TooLarge        more than is kept of one value
    │   ├── SessionLost         the agent's own record of a session is gone; raised only where ours is gone too
    │   ├── VariableRefused     a variable that could turn the child against its supervisor
    │   └── BadConfig           a configuration file cannot be used
    ├── InstallError            fix the installation
    │   ├── CliNotFound
    │   ├── SpawnFailed
    │   ├── BadProvider         another package's provider cannot be used
    │   └── SandboxUnavailable  the sandbox cannot be built here
    ├── StoreError              the record of runs cannot be used as it is
    │   ├── StoreFull           the disk is full; free some space
    │   ├── ResultNotStored     a run has ended, and its record is incomplete; carries the result
    │   ├── StoreBusy           other processes kept it for too long; try again
    │   ├── StoreUnreadable     no database, a broken one, or of a newer leadrope; nothing was overwritten
    │   ├── UnknownRun          no run, approval or session has that id
    │   ├── WrongState          the run is not in a state for that
    │   │   ├── NotOwner        another process has taken it over; whoever had it stops working on it
    │   │   └── StaleAnswer     an answer to something that has changed; nothing was decided
    │   └── QueueFull           too many runs wait already
    ├── GitFailed               git could not do it, in its own words; nothing is half done
    │   └── GitConflict         the changes do not fit; `paths` are where
    ├── UnsafeFile              something in a folder an agent can write is not what it should be; it was left alone
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
    field: str | None = None
    """The field of the request that is wrong, where it is one: `cwd`, `limits.idle_s`."""

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
    def __init__(self, message: str, *, hint: str | None = None, field: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.field = field


class BadValue(RequestError):
    """`field` is the name the user wrote, so that a form can mark it."""

    field: str

    def __init__(self, field: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(f"{field}: {message}", hint=hint)
        self.field = field


class BadAttachment(BadValue):
    def __init__(self, path: str, message: str, *, hint: str | None = None) -> None:
        super().__init__("attachments", f"{path}: {message}", hint=hint)
        self.path = path


class TooLarge(BadValue):
    kind = "too_large"


class SessionLost(RequestError):
    """What the agent program would resume from is missing or broken; a run rebuilds it from leadrope's own record."""

    kind = "session_lost"


class VariableRefused(RequestError):
    field = "variables"

    def __init__(self, name: str, reason: str, *, hint: str | None = None) -> None:
        super().__init__(
            f"variable {name} is refused: {reason}",
            hint=hint or "Give the variable another name.",
        )
        self.name = name


class BadConfig(RequestError):
    pass


class InstallError(LeadropeError):
    kind = "spawn_failed"


class CliNotFound(InstallError):
    kind = "cli_not_found"

    def __init__(self, message: str, *, hint: str | None = None, field: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.field = field


class SpawnFailed(InstallError):
    pass


class BadProvider(InstallError):
    def __init__(self, name: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(f"provider {name!r}: {message}", hint=hint)
        self.name = name


class SandboxUnavailable(InstallError):
    kind = "sandbox_unavailable"


class StoreError(LeadropeError):
    kind = "store"


class StoreFull(StoreError):
    kind = "store_full"


class ResultNotStored(StoreError):
    """The run itself ended as `result` says."""

    kind = "result_not_stored"

    def __init__(self, message: str, *, result: RunResult, is_timed_out: bool = False, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.result = result
        self.is_timed_out = is_timed_out
        """The time to wait for room was over, or the store was damaged, and the run was stopped for it."""


class StoreBusy(StoreError):
    kind = "store_busy"


class StoreUnreadable(StoreError):
    kind = "store_unreadable"


class UnknownRun(StoreError, RequestError):
    kind = "unknown_run"


class WrongState(StoreError, RequestError):
    kind = "wrong_state"


class NotOwner(WrongState):
    kind = "not_owner"


class StaleAnswer(WrongState):
    """What was asked has changed since it was shown. The answer was not used, and the approval is still pending."""

    kind = "stale_answer"


class QueueFull(StoreError):
    kind = "queue_full"


class GitFailed(LeadropeError):
    kind = "git"


class GitConflict(GitFailed):
    kind = "git_conflict"

    def __init__(self, message: str, paths: tuple[str, ...] = (), *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.paths = paths


class UnsafeFile(LeadropeError):
    """A link, a special file or an oversized one where an agent can write; following it could leave the folder."""

    kind = "unsafe_file"

    def __init__(self, path: str, reason: str, *, hint: str | None = None) -> None:
        super().__init__(f"{path} {reason}", hint=hint or "Look at what is there, and remove it if you did not put it.")
        self.path = path
        self.reason = reason


class NotAuthenticated(LeadropeError):
    kind = "not_authenticated"


class RunFailed(LeadropeError):
    """Carries the whole result; the message is built from it unless one is given."""

    kind = "run_failed"

    def __init__(self, result: RunResult, message: str | None = None) -> None:
        error = result.error
        super().__init__(
            message or f"the run ended {result.outcome}" + (f": {error.message}" if error else ""),
            hint=error.hint if error else None,
        )
        self.result = result


class RunClosed(LeadropeError):
    kind = "run_closed"
