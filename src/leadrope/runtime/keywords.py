"""The keywords of `run`, `open_run`, `complete` and `open_conversation`: fields of a request, and options of a call."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TypedDict

import msgspec
from msgspec import UNSET, UnsetType

from leadrope import errors
from leadrope.core import config as configs
from leadrope.core.config import Config
from leadrope.core.request import RunRequest
from leadrope.core.request_checks import with_tuples
from leadrope.core.request_forms import RunFields
from leadrope.runtime.connections.functions import Function
from leadrope.runtime.embedding.hooks import AfterTool, BeforeTool
from leadrope.runtime.gate.approvers import Approve, Approver
from leadrope.runtime.journal.watcher import OnEvent


class RunOptions(TypedDict, total=False):
    """What a run is given beside its request."""

    approver: Approver | Approve | None
    """Asked where no rule has settled a call; without one the answer is no."""
    config: Config | str | PathLike[str] | None
    """Instead of your config.toml: another file, a value, or None for no file at all."""
    functions: Sequence[Function[..., Any] | Callable[..., Any]]
    """Functions of your own, as `@leadrope.tool` makes them, that the agent may ask to call. Handing one in grants
    nothing: the mode and the rules decide as for every tool."""
    on_event: OnEvent | None
    """Called with every event, in order."""
    before_tool: BeforeTool | None
    """Called with every tool call before it is judged. It can deny it, have a person asked or change it; it cannot
    allow it. If it fails, the call is denied."""
    after_tool: AfterTool | None
    """Called with every tool call that ran, and its result."""
    environ: Mapping[str, str] | None
    """Instead of the environment of this process."""


class RunKeywords(RunFields, RunOptions, total=False):
    """All keywords of a run."""


_PROMPT = "Pass a text or a RunRequest first."
_WHAT_OPTIONS_ARE: dict[str, tuple[Callable[[Any], bool], str]] = {
    "approver": (
        lambda value: callable(value) or hasattr(value, "approve"),
        "Pass a function that takes the request, or an object with `approve` and `answer`.",
    ),
    "functions": (lambda value: isinstance(value, Sequence), "Pass a list of functions."),
    "environ": (lambda value: isinstance(value, Mapping), "Pass a mapping such as os.environ."),
    **dict.fromkeys(("on_event", "before_tool", "after_tool"), (callable, "Pass a function.")),
}


class CallArguments(msgspec.Struct, frozen=True, kw_only=True):
    """A call taken apart: the request, which of its fields the caller has named, and the rest."""

    request: RunRequest
    named: frozenset[str]
    options: RunOptions

    @property
    def config(self) -> Config | UnsetType | None:
        """As `configs.read` takes it: a file is named by the environment by now."""
        found = self.options.get("config", UNSET)
        return found if isinstance(found, Config | UnsetType) else None


def read(prompt: str | RunRequest | None, keywords: RunKeywords) -> CallArguments:
    """The request of a call. Its values are checked when it starts."""
    fields: dict[str, Any] = dict(keywords)
    given = {name: fields.pop(name) for name in RunOptions.__annotations__ if name in fields}
    for name, (is_right, hint) in _WHAT_OPTIONS_ARE.items():
        value = given.get(name)
        if value is not None and not is_right(value):
            raise errors.BadValue(name, f"is of type {type(value).__name__}", hint=hint)
    options = _with_file(given)
    for name in fields:
        if name not in RunFields.__annotations__:
            raise configs.unknown_field(name, RunOptions.__annotations__)
    if isinstance(prompt, RunRequest):
        named = configs.named_by(prompt) | fields.keys()
        request = with_tuples(msgspec.structs.replace(prompt, **fields))
        return CallArguments(request=request, named=named, options=options)
    if prompt is None:
        raise errors.EmptyPrompt("there is no prompt", hint=_PROMPT)
    if not isinstance(prompt, str):
        raise errors.BadValue("prompt", f"is of type {type(prompt).__name__}", hint=_PROMPT)
    request = with_tuples(RunRequest(prompt=prompt, **fields))
    return CallArguments(request=request, named=frozenset({"prompt", *fields}), options=options)


def _with_file(options: dict[str, Any]) -> Any:
    """A file that `config` names is named by the environment instead, so that its rules hold, too."""
    given = options.get("config")
    if given is None or isinstance(given, Config):
        return options
    if not isinstance(given, str | PathLike):
        hint = "Pass a path, a Config, or None for no file at all."
        raise errors.BadValue("config", f"is of type {type(given).__name__}", hint=hint)
    del options["config"]
    around = options.get("environ")
    file = str(Path(given).expanduser().absolute())
    return {**options, "environ": {**(os.environ if around is None else around), "LEADROPE_CONFIG": file}}
