"""The lists that follow from the options of a request (core/request.py) and need static types: keywords of `run`,
defaults of config.toml, parameters of agent steps. `make docs` writes them, with the reference pages.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

from leadrope.core import request
from leadrope.core.request_parts import field_docs
from leadrope.core.request_parts.option import RequestOption

MADE = "Made by tools/option_lists.py (`make docs`) from core/request.py. Do not edit it."
ALIASES = ("Billing", "CredentialKind", "Effort", "Mode", "ModeAlias", "Network", "SandboxLevel")


def request_forms() -> str:
    """src/leadrope/core/request_forms.py"""
    parts = [
        '"""The options of a request in other forms: keywords of a function, and defaults of config.toml.\n',
        f'{MADE}\n"""\n',
        "from __future__ import annotations\n",
        "from typing import Any, Literal, TypedDict\n",
        "import msgspec\nfrom msgspec import UNSET, UnsetType\n",
        f"from leadrope.core.request import {', '.join(sorted((*ALIASES, 'Limits', 'McpServer')))}",
        "from leadrope.core.request_parts.sequences import SequenceNotStr",
        "from leadrope.core.secrets.redaction import Secret\n\n",
        "class RunFields(TypedDict, total=False):",
        '    """All fields of a `RunRequest` but its prompt: editors complete them, type checkers see a typo."""\n',
        *(f"    {name}: {keyword(kind)}" for name, kind in keyword_fields()),
        "\n",
        f"class LimitDefaults({_STRUCT}):",
        '    """`Limits`, with every field open."""\n',
        *(
            f"    {name}: {default_type(kind, option)} | UnsetType = UNSET"
            for name, kind, option in described(request.Limits)
        ),
        "\n",
        f"class RequestDefaults({_STRUCT}):",
        '    """The options that config.toml may set: those that make sense for more than one run."""\n',
        *(
            f"    {name}: {default_type(kind, option)} | UnsetType = UNSET"
            for name, kind, option in described(request.RunRequest)
            if option.config
        ),
    ]
    return formatted("\n".join(parts) + "\n")


def agent_options() -> str:
    """src/leadrope/workflows/steps/agent_options.py"""
    return formatted(
        "\n".join(
            (
                f'"""The parameters of an agent step that are options of its run.\n\n{MADE}\n"""\n',
                "# ruff: noqa: E501\nfrom __future__ import annotations\n",
                "from typing import Annotated, Any\n",
                "from msgspec import Meta\n",
                f"from leadrope.core.request import {', '.join(ALIASES)}",
                "from leadrope.workflows.steps.base import StepConfig\n\n",
                "class AgentOptions(StepConfig, frozen=True, kw_only=True):",
                '    """`RequestOption(step=True)`: they have the name, the type and the default of the request."""\n',
                *(
                    f"    {name}: Annotated[{parameter_type(kind)}, {meta(option)}] = {written_default(name)}"
                    for name, kind, option in described(request.RunRequest)
                    if option.step
                ),
            )
        )
        + "\n"
    )


def parameter_type(kind: str) -> str:
    """A step's lists are lists, which templates fill.

    >>> parameter_type("tuple[str, ...]")
    'list[str]'
    """
    return re.sub(r"tuple\[(.+), \.\.\.\]", r"list[\1]", kind)


def meta(option: RequestOption) -> str:
    bounds = "" if option.low is None else f"ge={option.low}, le={option.high}, "
    default = f" Default: {option.default}." if option.default else ""
    return f"Meta({bounds}description={option.help + default!r})"


def written_default(name: str) -> str:
    (field,) = [field for field in field_docs.fields_of(request.RunRequest) if field.name == name]
    return "[]" if field.default == "()" else str(field.default)


_STRUCT = "msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True"
_SET_BY_LEADROPE = ("prompt", "agent_from", "attachment_root")


def keyword_fields() -> Iterator[tuple[str, str]]:
    for field in field_docs.fields_of(request.RunRequest):
        if field.name not in _SET_BY_LEADROPE:
            yield field.name, field.kind


def described(kind: type) -> Iterator[tuple[str, str, RequestOption]]:
    """Each option of a class: its name, its type as written, and what is said of it."""
    prefix = "limits." if kind is request.Limits else ""
    for field in field_docs.fields_of(kind):
        option = request.OPTIONS.get(f"{prefix}{field.name}")
        if option is not None:
            yield field.name, field.kind, option


def keyword(kind: str) -> str:
    """Any sequence is taken where a request holds a tuple.

    >>> keyword("tuple[str, ...] | None")
    'SequenceNotStr[str] | None'
    """
    return re.sub(r"tuple\[(.+), \.\.\.\]", r"SequenceNotStr[\1]", kind)


def default_type(kind: str, option: RequestOption) -> str:
    """A missing key says what None says in Python, and words are checked by `check_words`, which names the right ones.

    >>> default_type("Mode | ModeAlias", RequestOption("", "safety"))
    'str'
    """
    if option.config_type:
        return option.config_type
    kind = re.sub(rf"\b(?:{'|'.join(ALIASES)})\b", "str", kind.removesuffix(" | None"))
    kind = re.sub(r"\bLimits\b", "LimitDefaults", kind)
    return " | ".join(dict.fromkeys(kind.split(" | ")))


def formatted(code: str) -> str:
    ruff = [sys.executable, "-m", "ruff"]
    for step in (["check", "--quiet", "--fix", "--select", "I,F401"], ["format"]):
        done = subprocess.run(
            [*ruff, *step, "--stdin-filename", "src/leadrope/core/made.py", "-"],
            input=code,
            text=True,
            capture_output=True,
            check=True,
        )
        code = done.stdout
    return code


LISTS = {
    "src/leadrope/core/request_forms.py": request_forms,
    "src/leadrope/workflows/steps/agent_options.py": agent_options,
}
