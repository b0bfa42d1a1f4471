"""Defines a kind of step: typed parameters, declared outputs, and one coroutine. Independent of files, plan and
journal.

A kind is a module with a `KIND`. Its parameters arrive resolved and typed; it raises StepFailed for what it cannot do.
It asks for permission before every side effect (`StepContext.permit`), so that no step bypasses the gate.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

from leadrope import errors
from leadrope.core.events import Notice, Risk
from leadrope.core.tools import ToolCall
from leadrope.runs.approvals.forms import FormField
from leadrope.runs.records.values import ApprovalKind
from leadrope.workflows.engine.unit_progress import Key

if TYPE_CHECKING:
    from leadrope.core.secrets.redaction import Redactor
    from leadrope.runs.service import Service
    from leadrope.runtime.commands import Commands
    from leadrope.runtime.gate.approvers import Answer, Approver
    from leadrope.runtime.sandboxing.access import Access
    from leadrope.workflows.engine.rehearsed import Rehearsal

C = TypeVar("C", bound=msgspec.Struct)


class StepConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The parameters of a kind. Forms and `flow check` show the field descriptions (Meta) and defaults."""


class Caution(msgspec.Struct, frozen=True, kw_only=True):
    """A soft failure: the step has a result, and the workflow is degraded. `kind` is a stable identifier."""

    kind: str
    message: str


class StepDone(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of one unit of a step."""

    outputs: dict[str, Any] = {}
    """JSON values by name, as the kind declares them."""
    warnings: tuple[Caution, ...] = ()
    branch: str | None = None
    """The branch of a `next` map that is taken."""
    cost_usd: float = 0.0
    tokens: int = 0
    run_id: str | None = None
    """The agent's run, for looking up its events."""
    is_cached: bool = False
    """Set by the engine: nothing was run, these are outputs of an earlier execution."""


class StepFailed(errors.LeadropeError):
    """One unit of a step failed. `can_heal`: trying again may help, so a `retry` applies."""

    def __init__(
        self,
        message: str,
        *,
        kind: str = "step_failed",
        hint: str | None = None,
        can_heal: bool = False,
        outputs: Mapping[str, Any] | None = None,
        cost_usd: float = 0.0,
        tokens: int = 0,
        run_id: str | None = None,
        code: int | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.kind = kind
        self.can_heal = can_heal
        self.outputs = dict(outputs or {})
        """Outputs available despite the failure (a command's stderr, its exit code), for the step that handles the
        error.
        """
        self.cost_usd = cost_usd
        self.tokens = tokens
        self.run_id = run_id
        self.code = code
        """The exit code chosen by the workflow's author."""


class Parked(Exception):  # not an error: the execution is parked and resumed when a person has answered
    """Raised through a unit whose person is not there."""

    def __init__(self, approval_id: str) -> None:
        super().__init__(approval_id)
        self.approval_id = approval_id


class StepQuestion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a person is asked before a workflow continues."""

    kind: ApprovalKind
    """`step`: the step itself; `tool_call`: a call by it or by its agent that a rule wants approved."""
    title: str
    detail: str = ""
    """Markdown; for a call, its text as it would run."""
    choices: tuple[str, ...] = ()
    """Empty: approve or deny."""
    fields: tuple[FormField, ...] = ()
    """The form's fields."""
    values: dict[str, Any] = {}
    """The resolved parameters, shown verbatim."""
    reason: str = ""
    """Why approval is needed, for the reader."""
    rule: str = ""
    """The rule that requires approval."""
    layer: str = ""
    """The policy layer of that rule."""
    call: ToolCall | None = None
    """For a `tool_call`: exactly what would run."""
    risk: Risk = "medium"
    reading: str = ""
    """How a command was parsed: the programs that it would start."""
    is_editable: bool = False
    """Whether the step can run the call as edited by a person."""
    expires_s: float = 0.0
    """Seconds until a missing answer counts as a denial; 0: never."""
    fingerprint: str = ""
    """Hash of exactly what is asked; an answer is valid only for that."""


class StepContext(Protocol):
    """What a unit knows about its execution, and the services it can use."""

    @property
    def execution_id(self) -> str: ...
    @property
    def outermost_id(self) -> str:
        """The outermost of the nested executions."""
        ...

    def run_name(self) -> str:
        """The name of the next agent run in this attempt of the unit: the same after a crash."""
        ...

    @property
    def key(self) -> Key: ...
    @property
    def workspace(self) -> Path:
        """The folder of the workflow's execution, resolved; files are inside it."""
        ...

    @property
    def environ(self) -> Mapping[str, str]: ...
    @property
    def home(self) -> Path:
        """LEADROPE_HOME."""
        ...

    @property
    def timeout_s(self) -> float | None:
        """The step's time-out. The engine ends a unit shortly after it; a kind that can end more cleanly does so
        itself.
        """
        ...

    @property
    def budget_usd(self) -> float | None: ...
    @property
    def policies(self) -> tuple[dict[str, Any], ...]:
        """Rules of the workflow, of enclosing workflows, and of the step: one layer each."""
        ...

    @property
    def branches(self) -> frozenset[str]:
        """The branches of the step's `next` map; empty if it has none."""
        ...

    @property
    def depth(self) -> int:
        """Nesting depth of the workflow; 0 for the outermost."""
        ...

    @property
    def sources(self) -> Mapping[str, Any]:
        """The parameters as written, with their templates, for use in messages."""
        ...

    @property
    def service(self) -> Service: ...
    @property
    def used_secrets(self) -> tuple[str, ...]:
        """The values of `${secret.NAME}` in its parameters, for kinds that must keep them out of their outputs."""
        ...

    @property
    def access(self) -> Access:
        """What the workflow may use besides its workspace."""
        ...

    @property
    def rehearsal(self) -> Rehearsal | None:
        """Set if a script plays the model of the execution."""
        ...

    @property
    def redactor(self) -> Redactor:
        """Removes the secrets that must not be stored."""
        ...

    @property
    def approver(self) -> Approver | None:
        """Decides on the calls of an agent, if a person is there."""
        ...

    @property
    def commands(self) -> Commands:
        """Runs commands and code of this workflow, through its gate and in its sandbox."""
        ...

    def retries(self, attempt: int, wait_s: float, why: str) -> None:
        """Report an automatic retry inside the step."""
        ...

    def is_named_elsewhere(self, text: str) -> bool:
        """Return whether another step of the workflow has this text in its parameters."""
        ...

    def say(self, action: str, *, cost_usd: float = 0.0) -> None:
        """Report the current activity and the cost so far, for the live view and the workflow's budget."""
        ...

    def notify(self, notice: Notice) -> None:
        """Report a sandbox notice about something that the step has started."""
        ...

    def asks(self, run_id: str, approval_id: str, asked: StepQuestion) -> None:
        """Report that this step's agent asks a person; the answer goes to its run."""
        ...

    async def permit(self, call: ToolCall, *, is_own: bool = True) -> ToolCall:
        """Return the call as permitted (a person may have edited it); raises StepFailed of kind `denied` if it is not.

        `is_own`: its text is written in the file, with nothing from a step's output in it.
        """
        ...

    async def ask(self, asked: StepQuestion) -> Answer:
        """Ask a person and return the answer. If nobody is there, the workflow is parked and this never returns."""
        ...

    async def subflow(self, name: str, inputs: Mapping[str, Any]) -> StepDone:
        """Run another workflow, nested in this one."""
        ...

    async def run_inside(self) -> StepDone:
        """Run the steps of a group; the outputs of each are under its name."""
        ...


Run = Callable[[C, StepContext], Awaitable[StepDone]]


class Kind(msgspec.Struct, Generic[C], frozen=True, kw_only=True):
    name: str
    summary: str
    """One line, for lists and forms."""
    config: type[C]
    outputs: Mapping[str, Any]
    """JSON Schemas by output name; `{}` for any value."""
    run: Run[C]
    has_open_outputs: bool = False
    own_outputs: Callable[[Mapping[str, Any]], Collection[str] | None] | None = None
    """Returns the output names of a step whose parameters define them; None if they are not known."""
    output_schemas: Mapping[str, str] = {}
    outputs_of: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    """Returns schemas of outputs that the parameters as written describe more precisely."""
    default_timeout_s: float | None = None
    ends_itself: bool = False
    """It enforces its time-out itself and can report more about it; the engine's clock is only a fallback."""
    fill: Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Any]] | None = None
    """Resolves the templates, given the parameters as written and the values by name; None for the usual way."""
    opens: tuple[str, ...] = ()
    """Parameters received as JSON: inside a map or list, a text that is JSON is passed on as its value."""
    opens_itself: tuple[str, ...] = ()
    """Parameters for which only the kind knows where they take a list or an object."""
    has_commands: bool = False
    """It runs commands or code: their sandbox can be prepared while they are being approved."""
    secret: tuple[str, ...] = ()
    """Parameters whose values are never shown or stored."""
    secret_references: tuple[str, ...] = ()
    """Parameters that may contain `${secret.NAME}`."""
    mistakes: Callable[[Mapping[str, Any]], Iterable[tuple[str, str]]] | None = None
    """Yields mistakes in the parameters as written that no schema can express: the parameter, and why."""
    names_in: str = ""
    """The map parameter whose keys are names for the templates of the other parameters."""
    branches: Callable[[Mapping[str, Any]], Collection[str] | None] | None = None
    """Returns the branches that a step with these parameters can choose; None if templates decide. Unset: no branches.
    """


def as_mistake(error: errors.LeadropeError) -> str:
    """Describe an error that a step would end with, for reporting it before the step starts."""
    return f"{error.message}. {error.hint}" if error.hint else error.message


def brief(text: str, limit: int = 200) -> str:
    """Shorten a text to one line for a message."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def told(call: ToolCall) -> str:
    """Describe a call for people."""
    for name in ("command", "file_path", "url", "path"):
        if isinstance(value := call.input.get(name), str):
            return value
    return msgspec.json.encode(call.input).decode()
