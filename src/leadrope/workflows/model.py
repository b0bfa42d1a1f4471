"""One workflow as values: its inputs, steps, outputs and settings. Knows neither Markdown nor canvas."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

ID = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
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

STEP_KEYS = (
    *("type", "after", "next", "on_error", "when", "batch", "loop", "retry"),
    *("timeout", "cache", "approval", "budget", "policy"),
)
"""What every step may say. All other keys of a step are parameters of its type."""


LITERAL: Mapping[str, tuple[str, ...]] = {"code": ("code",)}
"""Parameters in which `${` is no template, by the type of step: a program's own text is never put together."""


DEPTH_MOST = 10
"""Workflows inside workflows, with the outermost."""


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


class Output(_Part, frozen=True, kw_only=True):
    name: str
    source: Any = None
    """A template as a rule: `${review.result.issues}`."""
    description: str = ""


class Retry(_Part, frozen=True, kw_only=True):
    max: Annotated[int, Meta(ge=1, le=10)] = 1
    """Further attempts after the first."""
    wait: Annotated[float, Meta(ge=0, le=60)] = 1.0
    """Seconds before the next attempt; the first of a growing row where `backoff` is exponential."""
    backoff: Literal["fixed", "exponential"] = "fixed"


class Batch(_Part, frozen=True, kw_only=True):
    """The step once per item. Its outputs are then results, count and errors."""

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
    """The step again and again, at least once; the condition is looked at after each iteration."""

    while_: Any = msgspec.field(default=None, name="while")
    until: Any = None
    carry: dict[str, Any] = {}
    """Names for the next iteration, with templates over the outputs of the one before. The first sees null."""
    max_iterations: Annotated[int, Meta(ge=1, le=1000)] = 10


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


class Settings(_Part, frozen=True, kw_only=True):
    policy: dict[str, Any] | None = None
    budget: Annotated[float, Meta(gt=0)] | None = None
    concurrency: Annotated[int, Meta(ge=1, le=100)] | None = None
    """Steps at once."""
    layout: dict[str, tuple[float, float]] = {}
    """Where steps stand on the canvas, x and y."""


SectionName = Literal["inputs", "steps", "outputs", "settings"]
SECTIONS: tuple[SectionName, ...] = ("inputs", "steps", "outputs", "settings")


class Workflow(_Part, frozen=True, kw_only=True):
    title: str = ""
    prose: str = ""
    inputs: tuple[Input, ...] = ()
    steps: tuple[Step, ...] = ()
    outputs: tuple[Output, ...] = ()
    settings: Settings = Settings()
    section_prose: dict[SectionName, str] = {}
    """Text that stands below a section's heading, before its first entry."""

    def step(self, name: str) -> Step:
        for step in self.steps:
            if step.id == name:
                return step
        raise KeyError(name)


def attribute(key: str) -> str | None:
    """The name of what every step may say, if `key` is one of its spellings (`on-error`, `on_error`)."""
    name = key.replace("-", "_")
    return name if name in STEP_KEYS else None


def tidied(prose: str) -> str:
    """Prose as a file keeps it: without spaces at line ends, or empty lines around it."""
    lines = [line.rstrip() for line in re.split(r"\r\n|\r|\n", prose)]
    return "\n".join(lines).strip("\n")
