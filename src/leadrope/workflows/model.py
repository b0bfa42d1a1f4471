"""One workflow as values: its inputs, steps, outputs and settings. Knows neither Markdown nor canvas."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from leadrope.regex import regex

ID = regex(r"[A-Za-z_][A-Za-z0-9_-]*")
"""What a step, an input or an output may be called: the same as the first name of a template."""

InputType = Literal["string", "integer", "number", "boolean", "array", "object", "any"]
INPUT_TYPES: tuple[InputType, ...] = ("string", "integer", "number", "boolean", "array", "object", "any")
TYPE_WORDS: Mapping[str, InputType] = {
    **{name: name for name in INPUT_TYPES},
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "list": "array",
    "dict": "object",
}
"""The JSON names of types, and Python's for those who think in them."""

Dialect = Literal["flow", "pflow"]
"""Whose words a file is written in: leadrope's, or those of pflow 0.16, which differ in some of their meanings."""

STEP_KEYS = (
    *("type", "after", "next", "on_error", "when", "batch", "loop", "retry"),
    *("timeout", "cache", "approval", "budget", "policy"),
)
"""What every step may say. All other keys of a step are parameters of its type."""


LITERAL: Mapping[str, tuple[str, ...]] = {"code": ("code",)}
"""Parameters in which `${` is not a template, by the type of step: a program's own text is never put together."""


FILE_SUFFIX = "_file"
FILLED_FROM: Mapping[str, str] = {
    "agent": "prompt",
    "claude-code": "prompt",
    "llm": "prompt",
    "code": "code",
    "shell": "command",
}
"""The parameter whose text can come from a file beside the workflow, named by `PARAMETER_file`, by the type of step."""


SECRET = "secret"  # noqa: S105  # the word
"""`${secret.NAME}` is a variable that the user lets a workflow use; no file, journal or log holds its value."""

BATCH_ITEM_KEYS = ("item", "index", "error")
"""Of each result of a batch: what it was given, where it stands, and why it failed."""

DEPTH_MOST = 10
"""Workflows inside workflows, with the outermost."""


GROUP = "group"
"""The type of a step that has steps of its own."""
GROUPS_MOST = 3
"""Groups inside each other: Markdown has six levels of headings, and a step begins at the third."""

TURNS_MOST = 1000
WAIT_MOST_S = 86_400


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    pass


class Input(_Part, frozen=True, kw_only=True):
    name: str
    type: InputType = "any"
    required: bool = True
    default: Any | UnsetType = UNSET
    description: str = ""
    stdin: bool = False
    """Filled from standard input where that is a pipe."""
    env: str = ""
    """A variable of the environment that fills it where it is not given, once the user has allowed that."""


class Output(_Part, frozen=True, kw_only=True):
    name: str
    source: Any = None
    """A template as a rule: `${review.result.issues}`."""
    type: InputType = "any"
    """What readers may expect; it is not checked."""
    stdout: bool = False
    """Its value alone goes to standard output."""
    description: str = ""


class Retry(_Part, frozen=True, kw_only=True):
    max: Annotated[int, Meta(ge=1, le=10)] = 2
    """Attempts in all, the first among them."""
    wait: Annotated[float, Meta(ge=0, le=60)] = 1.0
    """Seconds before the next attempt; the first of a growing row where `backoff` is exponential."""
    backoff: Literal["fixed", "exponential"] = "fixed"
    retry_on: tuple[Literal["exit_code"] | Annotated[int, Meta(ge=1, le=255)], ...] = ()
    """What is tried again beside errors that can heal by themselves: every exit code of a command and exception of
    code, or certain exit codes."""


class Batch(_Part, frozen=True, kw_only=True):
    """The step once per item. Its outputs are then those of `batch_results`."""

    items: Any
    as_: Annotated[str, Meta(pattern="^[A-Za-z_][A-Za-z0-9_-]*$")] = msgspec.field(default="item", name="as")
    max_concurrent: Annotated[int, Meta(ge=1, le=100)] | None = None
    parallel: bool | None = None
    """false: one at a time, whatever else is said. true: ten at once where `max_concurrent` is not said."""
    error_handling: Literal["fail_fast", "continue"] = "fail_fast"

    @property
    def at_once(self) -> int:
        if self.parallel is False:
            return 1
        return self.max_concurrent or (10 if self.parallel else 1)


class Loop(_Part, frozen=True, kw_only=True):
    """The step again and again, at least once; the condition is evaluated after each turn."""

    while_: Any = msgspec.field(default=None, name="while")
    until: Any = None
    carry: dict[str, Any] = {}
    """Names for the next turn, with templates over the outputs of the one before. In the first they are missing."""
    max_iterations: Annotated[int, Meta(ge=1, le=TURNS_MOST)] | str = 10
    """Turns, or a template."""
    wait: Annotated[float, Meta(ge=0, le=WAIT_MOST_S)] | str = 0
    """Seconds between two turns, or a template."""
    max_seconds: Annotated[float, Meta(gt=0)] | str | None = None
    """For all turns and the pauses between them; no turn begins after that."""


class Step(_Part, frozen=True, kw_only=True):
    id: str
    type: str
    description: str = ""
    parameters: dict[str, Any] = {}
    after: tuple[str, ...] | None = None
    """Starts when these are done. None: after the step above it; empty: at once."""
    next: tuple[str, ...] | None = None
    """None: the step below; empty: nothing."""
    branches: dict[str, tuple[str, ...]] | None = None
    """What comes next by the branch that the step chooses; written as a mapping under `next`."""
    on_error: str | None = None
    when: Any = None
    """Skipped, without stopping those after it, where this is false."""
    batch: Batch | None = None
    loop: Loop | None = None
    retry: Retry | None = None
    timeout: Annotated[float, Meta(gt=0)] | str | None = None
    """Seconds, or a template."""
    cache: bool | None = None
    approval: bool = False
    """A person must say yes before it starts; written `approval: required`."""
    budget: Annotated[float, Meta(gt=0)] | str | None = None
    """US dollars, or a template."""
    policy: dict[str, Any] | None = None
    """Rules for this step; they can only tighten."""
    steps: tuple[Step, ...] = ()
    """Of a group: its own steps, which have names that no other step of the file has."""


class WorkflowSettings(_Part, frozen=True, kw_only=True):
    policy: dict[str, Any] | None = None
    budget: Annotated[float, Meta(gt=0)] | None = None
    concurrency: Annotated[int, Meta(ge=1, le=100)] | None = None
    """Steps at once."""
    max_seconds: Annotated[float, Meta(gt=0)] | None = None
    """For the whole execution, without the time in which people are asked."""
    max_iterations: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    """Turns of all loops together, with those of workflows inside."""
    layout: dict[str, tuple[float, float]] = {}
    """Where steps stand on the canvas, x and y."""
    folders: tuple[str, ...] = ()
    """Folders beside the workspace that its commands need: `~/site`, or `~/notes:ro` to read only. The user decides."""
    env: tuple[str, ...] = ()
    """Variables of the environment that its commands need. The user decides."""


SectionName = Literal["inputs", "steps", "outputs", "settings"]
SECTIONS: tuple[SectionName, ...] = ("inputs", "steps", "outputs", "settings")


class Note(_Part, frozen=True, kw_only=True):
    """A section for readers. Nothing in it runs."""

    title: str
    text: str = ""


class Workflow(_Part, frozen=True, kw_only=True):
    title: str = ""
    prose: str = ""
    inputs: tuple[Input, ...] = ()
    steps: tuple[Step, ...] = ()
    outputs: tuple[Output, ...] = ()
    settings: WorkflowSettings = WorkflowSettings()
    section_prose: dict[SectionName, str] = {}
    """Text that stands below a section's heading, before its first entry."""
    notes: tuple[Note, ...] = ()
    """Sections that only explain; written at the end of the file."""
    frontmatter: str = ""
    """What stands between two lines `---` at the top of a file. It is kept and means nothing here."""
    dialect: Dialect = "flow"

    @property
    def every_step(self) -> tuple[Step, ...]:
        """Those inside groups too, in the order of the file."""
        return tuple(each_of(self.steps))

    @property
    def levels(self) -> tuple[tuple[Step, ...], ...]:
        """The steps of the file, and those of each group: only steps of one level follow each other."""
        return (self.steps, *(step.steps for step in self.every_step if step.steps))

    def step(self, name: str) -> Step:
        for step in self.every_step:
            if step.id == name:
                return step
        raise KeyError(name)


NOTES = "notes"
"""The section that only explains."""


def is_note(title: str, dialect: Dialect) -> bool:
    """Whether a section with this title only explains. pflow leaves every section aside that it does not know."""
    name = title.strip().lower()
    return name == NOTES if dialect == "flow" else name not in SECTIONS


def filled_from_files(kind: str, dialect: Dialect) -> tuple[str, ...]:
    """The parameters of a type of step that can come from files. pflow knows files with schemas as well."""
    name = FILLED_FROM.get(kind)
    if name is None:
        return ()
    return (name, "output_schema") if dialect == "pflow" and name == "prompt" else (name,)


def each_of(steps: Iterable[Step]) -> Iterator[Step]:
    """Every step, and after each group those inside it."""
    for step in steps:
        yield step
        yield from each_of(step.steps)


def attribute(key: str) -> str | None:
    """The name of what every step may say, if `key` is one of its spellings (`on-error`, `on_error`)."""
    name = key.replace("-", "_")
    return name if name in STEP_KEYS else None


def texts_in(value: Any) -> Iterator[str]:
    """Every text in a value, keys left aside."""
    match value:
        case str():
            yield value
        case list() | tuple():
            for one in value:
                yield from texts_in(one)
        case dict():
            for one in value.values():
                yield from texts_in(one)


def tidied(prose: str) -> str:
    """Prose as a file keeps it: without spaces at line ends, or empty lines around it."""
    lines = [line.rstrip() for line in re.split(r"\r\n|\r|\n", prose)]
    return "\n".join(lines).strip("\n")
