"""A policy's own tests: calls with the verdict that they must get. Touches no file: links are not looked at."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from leadrope import errors
from leadrope.core.request_checks import normal_mode
from leadrope.core.tools import KNOWN_TOOLS, ToolCall
from leadrope.policy.call_analysis import SHELL_TOOLS, Facts
from leadrope.policy.decide import Policy, decide
from leadrope.policy.patterns import parse
from leadrope.policy.resolve import EffectivePolicy
from leadrope.policy.verdicts import Verdict, Word

# Examples are about rules, not about a machine: they see a workspace and a home that need not exist.
WORKSPACE = "/workspace"
HOME = "/home/user"

_ARGUMENT = {
    **dict.fromkeys(SHELL_TOOLS, "command"),
    **dict.fromkeys(("Read", "Write", "Edit", "MultiEdit", "NotebookRead", "LSP"), "file_path"),
    "NotebookEdit": "notebook_path",
    **dict.fromkeys(("Glob", "Grep", "LS"), "path"),
    "WebFetch": "url",
    "WebSearch": "query",
    **dict.fromkeys(("Agent", "Task"), "prompt"),
    "Skill": "skill",
    "PowerShell": "command",
}


class Example(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`[[policy.examples]]`"""

    call: str
    expect: Word
    mode: str = "full"
    """The run's own mode. `full` lets the rules alone speak."""
    person: bool = True
    """Somebody is there to be asked."""
    sandboxed: bool = False
    """The call runs in a sandbox that holds."""
    cwd: str | None = None
    """The folder that the agent's shell is in; the workspace where it is left out."""


class ExampleOutcome(msgspec.Struct, frozen=True, kw_only=True):
    example: Example
    verdict: Verdict

    @property
    def holds(self) -> bool:
        return self.verdict.word == self.example.expect

    def __str__(self) -> str:
        said = f"{self.verdict.word} ({self.verdict.rule}" + (
            f": {self.verdict.reason})" if self.verdict.reason else ")"
        )
        return f"{self.example.call} should be {self.example.expect}, but is {said}"


def call_of(text: str, *, id: str = "example") -> ToolCall:  # noqa: A002  # the field's own name
    """A call as people write it: `Bash(rm -rf /)`, `Write(src/a.py)`, `WebFetch(https://example.com)`, `mcp__a__b`.

    Fields of any kind are given as JSON: `Edit({"file_path": "a.py", "new_string": "…"})`.
    """
    name, opened, rest = text.strip().partition("(")
    name = name.strip()
    if opened and not rest.endswith(")"):
        raise errors.BadValue("call", f"{text!r} has no closing parenthesis", hint="Write Bash(git status).")
    if name not in KNOWN_TOOLS and not (name.isidentifier() and (name[0].isupper() or name.startswith("mcp__"))):
        same = [known for known in KNOWN_TOOLS if known.lower() == name.lower()]
        meant = f"Did you mean {same[0]}{opened}{rest}?" if same else f"Name the tool: Bash({text.strip()})."
        raise errors.BadValue("call", f"{text!r} is not a call", hint=meant)
    parse(name)
    argument = rest[:-1]
    if not opened:
        return ToolCall(id=id, name=name)
    if argument.lstrip().startswith("{") and name not in SHELL_TOOLS:
        try:
            return ToolCall(id=id, name=name, input=msgspec.json.decode(argument, type=dict[str, Any]))
        except msgspec.DecodeError as error:
            raise errors.BadValue("call", f"{text!r}: the fields are not JSON: {error}") from None
    if name not in _ARGUMENT:
        raise errors.BadValue(
            "call", f"{text!r}: {name} has no field to put this in", hint=f'Write {name}({{"a": "b"}}).'
        )
    return ToolCall(id=id, name=name, input={_ARGUMENT[name]: argument})


def check(example: Example) -> None:
    """BadValue for an example that cannot be run."""
    call_of(example.call)
    normal_mode(example.mode)


def run(policy: EffectivePolicy, examples: Iterable[Example]) -> Sequence[ExampleOutcome]:
    """Each example with what the policy says to it."""
    return [
        ExampleOutcome(
            example=example,
            verdict=decide(
                Policy(mode=normal_mode(example.mode), workspace=(WORKSPACE,), rules=policy),
                msgspec.structs.replace(call_of(example.call), cwd=example.cwd),
                # Programs are taken for the installed ones, and git's settings for plain.
                Facts(person=example.person, sandboxed=example.sandboxed, home=HOME, git_is_plain=True),
                resolve=os.path.normpath,
            ),
        )
        for example in examples
    ]
