"""A workflow as values: inputs, steps, outputs and settings. Independent of Markdown and canvas."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from leadrope.regex import regex

ID = regex(r"[A-Za-z_][A-Za-z0-9_-]*")
"""Allowed names of steps, inputs and outputs; the same as the first name of a template."""

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
"""JSON's type names, and Python's as aliases."""

Dialect = Literal["flow", "pflow"]
"""The language of a file: leadrope's, or that of pflow 0.16, in which some words have another meaning."""

STEP_KEYS = (
    *("type", "after", "next", "on_error", "when", "batch", "loop", "retry"),
    *("timeout", "cache", "approval", "budget", "policy"),
)
"""Keys available in every step. All other keys are parameters of its type."""


LITERAL: Mapping[str, tuple[str, ...]] = {"code": ("code",)}
"""Parameters in which `${` is not a template, by step type: program text is never assembled from values."""


FILE_SUFFIX = "_file"
FILLED_FROM: Mapping[str, str] = {
    "agent": "prompt",
    "claude-code": "prompt",
    "llm": "prompt",
    "code": "code",
    "shell": "command",
}
"""The parameter whose text can come from a neighbouring file, named by `PARAMETER_file`, by step type."""


SECRET = "secret"  # noqa: S105  # the word
"""`${secret.NAME}` refers to a variable that the user lets a workflow use; its value is never stored or logged."""

BATCH_ITEM_KEYS = ("item", "index", "error")
"""Keys added to each result of a batch: the item, its position, and why it failed."""

DEPTH_MOST = 10
"""Maximum nesting of workflows, including the outermost."""


GROUP = "group"
"""The type of a step that contains steps."""
GROUPS_MOST = 3
"""Maximum nesting of groups: Markdown has six heading levels, and steps start at the third."""

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
    """Filled from standard input if that is a pipe."""
    env: str = ""
    """An environment variable that fills the input if it is not given, once the user has allowed that."""


class Output(_Part, frozen=True, kw_only=True):
    name: str
    source: Any = None
    """Usually a template: `${review.result.issues}`."""
    type: InputType = "any"
    """For readers; it is not checked."""
    stdout: bool = False
    """Only its value is written to standard output."""
    description: str = ""


class Retry(_Part, frozen=True, kw_only=True):
    max: Annotated[int, Meta(ge=1, le=10)] = 2
    """Total attempts, including the first."""
    wait: Annotated[float, Meta(ge=0, le=60)] = 1.0
    """Seconds before the next attempt; grows with each attempt if `backoff` is exponential."""
    backoff: Literal["fixed", "exponential"] = "fixed"
    retry_on: tuple[Literal["exit_code"] | Annotated[int, Meta(ge=1, le=255)], ...] = ()
    """What is retried besides transient errors: every exit code of a command and exception of code, or certain exit
    codes.
    """


class Batch(_Part, frozen=True, kw_only=True):
    """The step once per item. Its outputs are then those of `batch_results`."""

    items: Any
    as_: Annotated[str, Meta(pattern="^[A-Za-z_][A-Za-z0-9_-]*$")] = msgspec.field(default="item", name="as")
    max_concurrent: Annotated[int, Meta(ge=1, le=100)] | None = None
    parallel: bool | None = None
    """false: one at a time, regardless of `max_concurrent`. true: ten at once unless `max_concurrent` is set."""
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
    """Names for the next turn, with templates over the previous turn's outputs. The first turn does not have them."""
    max_iterations: Annotated[int, Meta(ge=1, le=TURNS_MOST)] | str = 10
    """Maximum turns, or a template."""
    wait: Annotated[float, Meta(ge=0, le=WAIT_MOST_S)] | str = 0
    """Seconds between two turns, or a template."""
    max_seconds: Annotated[float, Meta(gt=0)] | str | None = None
    """Limit for all turns and the pauses between them; no turn starts after that."""


class Step(_Part, frozen=True, kw_only=True):
    id: str
    type: str
    description: str = ""
    parameters: dict[str, Any] = {}
    after: tuple[str, ...] | None = None
    """Starts when these are done. None: after the step above; empty: at once."""
    next: tuple[str, ...] | None = None
    """None: the step below; empty: nothing."""
    branches: dict[str, tuple[str, ...]] | None = None
    """The next steps by the branch that the step chooses; written as a mapping under `next`."""
    on_error: str | None = None
    when: Any = None
    """If false, the step is skipped, and the steps after it continue."""
    batch: Batch | None = None
    loop: Loop | None = None
    retry: Retry | None = None
    timeout: Annotated[float, Meta(gt=0)] | str | None = None
    """Seconds, or a template."""
    cache: bool | None = None
    approval: bool = False
    """A person must approve before it starts; written `approval: required`."""
    budget: Annotated[float, Meta(gt=0)] | str | None = None
    """US dollars, or a template."""
    policy: dict[str, Any] | None = None
    """Rules for this step; they can only tighten."""
    steps: tuple[Step, ...] = ()
    """The steps of a group; their names are unique in the file."""


class WorkflowSettings(_Part, frozen=True, kw_only=True):
    policy: dict[str, Any] | None = None
    budget: Annotated[float, Meta(gt=0)] | None = None
    concurrency: Annotated[int, Meta(ge=1, le=100)] | None = None
    """Maximum steps at once."""
    max_seconds: Annotated[float, Meta(gt=0)] | None = None
    """For the whole execution, without the time spent waiting for people."""
    max_iterations: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    """Total turns of all loops, including those of nested workflows."""
    layout: dict[str, tuple[float, float]] = {}
    """Positions of steps on the canvas, x and y."""
    folders: tuple[str, ...] = ()
    """Folders outside the workspace that its commands need: `~/site`, or `~/notes:ro` (read-only). The user decides."""
    env: tuple[str, ...] = ()
    """Environment variables that its commands need. The user decides."""


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
    """Text below a section's heading, before its first entry."""
    notes: tuple[Note, ...] = ()
    """Explanatory sections; written at the end of the file."""
    frontmatter: str = ""
    """The text between two `---` lines at the top of a file. It is kept but has no meaning."""
    dialect: Dialect = "flow"

    @property
    def every_step(self) -> tuple[Step, ...]:
        """Yield every step, including those in groups, in the order of the file."""
        return tuple(each_of(self.steps))

    @property
    def levels(self) -> tuple[tuple[Step, ...], ...]:
        """Return the top-level steps and those of each group; steps only follow steps of their own level."""
        return (self.steps, *(step.steps for step in self.every_step if step.steps))

    def step(self, name: str) -> Step:
        for step in self.every_step:
            if step.id == name:
                return step
        raise KeyError(name)


NOTES = "notes"
"""The explanatory section."""


def is_note(title: str, dialect: Dialect) -> bool:
    """Return whether a section only explains. pflow ignores every section that it does not know."""
    name = title.strip().lower()
    return name == NOTES if dialect == "flow" else name not in SECTIONS


def filled_from_files(kind: str, dialect: Dialect) -> tuple[str, ...]:
    """Return the parameters of a step type that can come from files. pflow also accepts files for schemas."""
    name = FILLED_FROM.get(kind)
    if name is None:
        return ()
    return (name, "output_schema") if dialect == "pflow" and name == "prompt" else (name,)


def each_of(steps: Iterable[Step]) -> Iterator[Step]:
    """Yield every step, each group followed by the steps inside it."""
    for step in steps:
        yield step
        yield from each_of(step.steps)


def attribute(key: str) -> str | None:
    """Return the attribute of a key available in every step, in any spelling (`on-error`, `on_error`), or None."""
    name = key.replace("-", "_")
    return name if name in STEP_KEYS else None


def texts_in(value: Any) -> Iterator[str]:
    """Yield every text in a value, except keys."""
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
    """Normalize prose as stored in a file: no trailing spaces, no surrounding empty lines."""
    lines = [line.rstrip() for line in re.split(r"\r\n|\r|\n", prose)]
    return "\n".join(lines).strip("\n")
