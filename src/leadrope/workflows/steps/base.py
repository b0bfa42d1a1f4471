"""What a kind of step is: its parameters as a type, what it gives, and one coroutine. Knows no file, plan or journal.

A kind is a module with a `KIND`. Its parameters come resolved, and of their declared types; what it cannot do it raises
as StepFailed. Whatever it does to the world it asks for first (`Context.permit`), so that no step passes the gate by.
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
    """The parameters of a kind. Field descriptions (Meta) and defaults are what forms and `flow check` show."""


class Caution(msgspec.Struct, frozen=True, kw_only=True):
    """A soft failure: the step has a result, and the workflow is degraded. `kind` is for programs."""

    kind: str
    message: str


class StepDone(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one unit of a step came to."""

    outputs: dict[str, Any] = {}
    """JSON values by name, as the kind declares them."""
    warnings: tuple[Caution, ...] = ()
    branch: str | None = None
    """Which way of a `next` map is taken."""
    cost_usd: float = 0.0
    tokens: int = 0
    run_id: str | None = None
    """The agent's run, for those who want its events."""
    is_cached: bool = False
    """Set by the engine: nothing was done, these are outputs of an earlier execution."""


class StepFailed(errors.LeadropeError):
    """One unit of a step failed. `can_heal`: the same once more may work, so a `retry` counts."""

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
        """What there is all the same (a command's stderr, its exit code), for the step that handles the error."""
        self.cost_usd = cost_usd
        self.tokens = tokens
        self.run_id = run_id
        self.code = code
        """The exit code that the author of the workflow has chosen."""


class Parked(Exception):  # no error: the execution is put aside, and goes on when a person has answered
    """Raised through a unit whose person is not there."""

    def __init__(self, approval_id: str) -> None:
        super().__init__(approval_id)
        self.approval_id = approval_id


class StepQuestion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a person is asked before a workflow goes on."""

    kind: ApprovalKind
    """`step`: the step itself; `tool_call`: a call of it, or of its agent, that a rule wants approved."""
    title: str
    detail: str = ""
    """Markdown; for a call its text as it would run."""
    choices: tuple[str, ...] = ()
    """Empty: yes or no."""
    fields: tuple[FormField, ...] = ()
    """What is to be filled in."""
    values: dict[str, Any] = {}
    """The resolved parameters, shown as they are."""
    reason: str = ""
    """Why somebody is asked, in words."""
    rule: str = ""
    """The rule that wants it approved."""
    layer: str = ""
    """Where that rule comes from."""
    call: ToolCall | None = None
    """Of a `tool_call`: exactly what would run."""
    risk: Risk = "medium"
    reading: str = ""
    """How a command is read: the programs that it would start."""
    is_editable: bool = False
    """Whether the step runs the call as a person has edited it."""
    expires_s: float = 0.0
    """Seconds until silence becomes a no; 0: never."""
    fingerprint: str = ""
    """Of exactly what is asked; an answer counts for nothing else."""


class StepContext(Protocol):
    """What a unit knows of its place, and what it may ask for."""

    @property
    def execution_id(self) -> str: ...
    @property
    def outermost_id(self) -> str:
        """Of the outermost execution, which this one is inside of."""
        ...

    def run_name(self) -> str:
        """Of the next run of an agent in this attempt of the unit: the same after a crash."""
        ...

    @property
    def key(self) -> Key: ...
    @property
    def workspace(self) -> Path:
        """The folder of the workflow's execution, resolved; files lie in it."""
        ...

    @property
    def environ(self) -> Mapping[str, str]: ...
    @property
    def home(self) -> Path:
        """LEADROPE_HOME."""
        ...

    @property
    def timeout_s(self) -> float | None:
        """What the step says. The engine itself ends a unit a little later; a kind that can end better does it here."""
        ...

    @property
    def budget_usd(self) -> float | None: ...
    @property
    def policies(self) -> tuple[dict[str, Any], ...]:
        """Rules of the workflow, of those around it, and of the step: each a layer of its own."""
        ...

    @property
    def branches(self) -> frozenset[str]:
        """The ways of the step's `next` map; empty where it has none."""
        ...

    @property
    def depth(self) -> int:
        """Of workflows inside workflows; 0 outside."""
        ...

    @property
    def sources(self) -> Mapping[str, Any]:
        """The parameters as written, with their templates, for messages that name them."""
        ...

    @property
    def service(self) -> Service: ...
    @property
    def used_secrets(self) -> tuple[str, ...]:
        """The values of `${secret.NAME}` in its parameters, for a kind that must keep them out of its outputs."""
        ...

    @property
    def access(self) -> Access:
        """What the workflow may use besides its workspace."""
        ...

    @property
    def rehearsal(self) -> Rehearsal | None:
        """Where the model of the execution is a script."""
        ...

    @property
    def redactor(self) -> Redactor:
        """Knows the secrets that nothing which is kept may hold."""
        ...

    @property
    def approver(self) -> Approver | None:
        """Who is asked for the calls of an agent, where somebody is there."""
        ...

    @property
    def commands(self) -> Commands:
        """Runs commands and code of this workflow, through its gate, in its sandbox."""
        ...

    def retries(self, attempt: int, wait_s: float, why: str) -> None:
        """Say that something in it is tried again by itself."""
        ...

    def is_named_elsewhere(self, text: str) -> bool:
        """Whether another step of the workflow has this text among its parameters."""
        ...

    def say(self, action: str, *, cost_usd: float = 0.0) -> None:
        """What it does at the moment and what it has cost so far, for the live view and the workflow's budget."""
        ...

    def notify(self, notice: Notice) -> None:
        """Say what the user should know about the sandbox of something that the step has started."""
        ...

    def asks(self, run_id: str, approval_id: str, asked: StepQuestion) -> None:
        """Say that the agent of this step asks a person, who answers its run."""
        ...

    async def permit(self, call: ToolCall, *, is_own: bool = True) -> ToolCall:
        """The call as it may be done (a person may have changed it); StepFailed of kind `denied` where it may not.

        `is_own`: its text stands in the file, and nothing that a step gave became a part of it.
        """
        ...

    async def ask(self, asked: StepQuestion) -> Answer:
        """A person's word. Where nobody is there the whole workflow is put aside, and this never returns."""
        ...

    async def subflow(self, name: str, inputs: Mapping[str, Any]) -> StepDone:
        """Another workflow, one deeper."""
        ...

    async def run_inside(self) -> StepDone:
        """The steps inside this one; the outputs of each are under its name."""
        ...


Run = Callable[[C, StepContext], Awaitable[StepDone]]


class Kind(msgspec.Struct, Generic[C], frozen=True, kw_only=True):
    name: str
    summary: str
    """One line, for lists and forms."""
    config: type[C]
    outputs: Mapping[str, Any]
    """A JSON Schema by name; `{}` for any value."""
    run: Run[C]
    has_open_outputs: bool = False
    own_outputs: Callable[[Mapping[str, Any]], Collection[str] | None] | None = None
    """The outputs of a step with these parameters, where these name them; None where that is not known."""
    output_schemas: Mapping[str, str] = {}
    outputs_of: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    """Schemas of outputs that the parameters, as they are written, say more about."""
    default_timeout_s: float | None = None
    ends_itself: bool = False
    """It keeps its time-out by itself, and can tell more about it; the engine's own clock is only the last one."""
    fill: Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Any]] | None = None
    """Parameters as written and the values by name in, parameters filled out; None: as templates are everywhere."""
    opens: tuple[str, ...] = ()
    """Parameters that are received as JSON: in a map or list a text that is JSON itself is passed on as its value."""
    opens_itself: tuple[str, ...] = ()
    """Parameters of which only the kind knows where they take a list or an object."""
    has_commands: bool = False
    """It runs commands or code: what they need can be made ready while they are judged."""
    secret: tuple[str, ...] = ()
    """Parameters whose values are never shown or kept."""
    secret_references: tuple[str, ...] = ()
    """Parameters in which `${secret.NAME}` may stand."""
    mistakes: Callable[[Mapping[str, Any]], Iterable[tuple[str, str]]] | None = None
    """What is wrong with parameters as they are written, and no schema can say: the parameter, and why."""
    names_in: str = ""
    """The parameter, a map, whose keys are names for the templates of the others."""
    branches: Callable[[Mapping[str, Any]], Collection[str] | None] | None = None
    """The branches that a step with these parameters can choose; None where its templates decide. Left out: none."""


def as_mistake(error: errors.LeadropeError) -> str:
    """An error that a step would end with, told before it starts."""
    return f"{error.message}. {error.hint}" if error.hint else error.message


def brief(text: str, limit: int = 200) -> str:
    """A text for one line of a message."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def told(call: ToolCall) -> str:
    """A call as a person reads it."""
    for name in ("command", "file_path", "url", "path"):
        if isinstance(value := call.input.get(name), str):
            return value
    return msgspec.json.encode(call.input).decode()
