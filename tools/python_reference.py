"""docs/python-reference.md: the public Python API, from the docstrings of the package."""

from __future__ import annotations

import inspect
import re
import textwrap
import types
import typing
from collections.abc import Iterator
from typing import Any

import leadrope
from leadrope import errors, events
from leadrope.core import request, result
from leadrope.core.request_forms import RunFields
from leadrope.core.request_parts import field_docs
from leadrope.runtime.keywords import RunOptions

# Every public name stands in one of these; a test of the page fails for one that does not.
GROUPS = {
    "Running": ("run", "run_sync", "open_run", "run_many", "Run", "RunRequest", "Limits", "McpServer", "Secret"),
    "Results": ("RunResult", "TypedResult", "schema_of"),
    "Approvals": ("Approver", "Answer", "Callback", "InlineApprover", "ApprovalQueue", "DenyAll", "Console"),
    "Tools and hooks": ("tool", "Function", "DenyCall", "AskFirst", "EditCall", "ToolCall"),
    "Many runs": ("Service", "RunInfo", "sign_webhook", "verify_webhook"),
    "Workflows": (
        *("load_workflow", "check_workflow", "run_workflow", "resume_workflow"),
        *("WorkflowProblem", "BadWorkflow"),
    ),
    "Policies and the sandbox": ("gather_policy", "decide", "Policy", "Facts", "try_sandbox", "SandboxAvailability"),
    "Conversations and sessions": ("open_conversation", "Conversation", "Sessions", "SessionInfo"),
    "Chats and providers": (
        *("complete", "provider", "Completer", "Context", "Message", "Reply"),
        *("Availability", "Capabilities", "check_cli"),
    ),
}
_WORDS = {
    request: ("Mode", "ModeAlias", "Billing", "Effort", "SandboxLevel", "Network", "CredentialKind"),
    result: ("Outcome", "ErrorKind", "Rung"),
    events: ("Risk", "Scope", "Origin", "Source"),
}
_INHERITED = {"TypedResult": "RunResult"}


def page(made: str) -> str:
    """The whole page; `made` is the line that says who wrote it."""
    parts = [
        made,
        "# Python reference\n",
        "Everything here is imported from `leadrope`. [python.md](python.md) is the guide.\n",
    ]
    for group, names in GROUPS.items():
        # GitHub numbers headings that differ in case alone: `Run` comes after `run`.
        anchors = {name: "run-1" if name == "Run" else name.lower() for name in names}
        parts.append(f"- {group}: {', '.join(f'[`{name}`](#{anchor})' for name, anchor in anchors.items())}")
    parts += ["- [Keywords of a run](#keywords-of-a-run) · [Events](#events) · [Errors](#errors)", ""]
    for group, names in GROUPS.items():
        parts.append(f"## {group}\n")
        for name in names:
            parts += _entry(name, getattr(leadrope, name))
        if group == "Running":
            parts += [*_keywords(), *_words()]
    return "\n".join([*parts, *_events(), *_errors()]).rstrip("\n") + "\n"


def _entry(name: str, value: Any) -> Iterator[str]:
    yield f"### {name}\n"
    if not isinstance(value, type):
        yield from _callable(name, value)
        return
    yield from _text(field_docs.text_of(value))
    fields = field_docs.fields_of(value)
    if fields and hasattr(value, "__struct_fields__"):
        yield from _table(fields)
    if name in _INHERITED:
        yield f"All other fields and methods are those of `{_INHERITED[name]}`.\n"
    init = vars(value).get("__init__")
    if inspect.isfunction(init) and name not in _MADE and not getattr(value, "_is_protocol", False):
        yield f"```\n{name}{_signature(init)}\n```\n"
    for member, found in vars(value).items():
        if member.startswith("_") or member in _HIDDEN.get(name, ()):
            continue
        if isinstance(found, property):
            yield f"- **`{member}`** {_first(found.__doc__)}"
        elif isinstance(found, classmethod | staticmethod) or inspect.isfunction(found):
            function = found.__func__ if isinstance(found, classmethod | staticmethod) else found
            prefix = "await " if inspect.iscoroutinefunction(function) else ""
            yield f"- **`{prefix}{member}{_signature(function)}`** {_first(function.__doc__)}"
    yield ""


_HIDDEN = {
    "Service": (
        *("patience", "stop_waiting", "is_closing", "is_idle", "is_at_work", "has_queue", "environ", "poke", "adopt"),
        *("configured", "watch_execution", "revive", "open", "control"),
    ),
}
"""What only leadrope itself calls."""
_MADE = ("Run", "Conversation", "Function", "BadWorkflow")
"""Classes that other functions make; how they are built is not public."""


def _callable(name: str, value: Any) -> Iterator[str]:
    prefix = "await " if inspect.iscoroutinefunction(value) else ""
    shown = "\n".join(f"{prefix}{name}{_signature(one)}" for one in typing.get_overloads(value) or [value])
    yield f"```\n{shown}\n```\n"
    yield from _text(value.__doc__ or "")


def _signature(function: Any) -> str:
    """Written here and not by `inspect`, whose way to quote annotations changes from one Python to the next."""
    found = inspect.signature(function)
    words: list[str] = []
    is_keyword = False
    for one in found.parameters.values():
        if one.name in ("self", "cls"):
            continue
        if one.kind is one.KEYWORD_ONLY and not is_keyword:
            is_keyword = True
            words.append("*")
        star = "**" if one.kind is one.VAR_KEYWORD else "*" if one.kind is one.VAR_POSITIONAL else ""
        kind = "" if one.annotation is one.empty else f": {one.annotation}"
        told = one.default.__name__ if inspect.isfunction(one.default) else repr(one.default)
        default = "" if one.default is one.empty else f" = {told}"
        words.append(f"{star}{one.name}{kind}{default}")
    gives = "" if found.return_annotation is found.empty else f" -> {found.return_annotation}"
    return f"({', '.join(words)}){gives}"


_CODE = (
    *("[a-z_]+ = ", "@", "async with ", "with ", "for ", "if ", "from ", "import ", "def "),
    *(r"RunRequest\(", r"leadrope\.", ">>> ", r"print\("),
)


def _text(doc: str) -> Iterator[str]:
    """A docstring; lines of code in it, which our docstrings write without a mark, become a block."""
    text = inspect.cleandoc(doc)
    for paragraph in re.split(r"\n\s*\n", text):
        if not paragraph.strip():
            continue
        yield f"```python\n{textwrap.dedent(paragraph)}\n```\n" if _is_code(paragraph) else f"{paragraph}\n"


def _is_code(paragraph: str) -> bool:
    first = paragraph.strip().splitlines()[0]
    return bool(re.match(rf"(?:{'|'.join(_CODE)})", first))


def _first(doc: str | None) -> str:
    return " ".join(inspect.cleandoc(doc or "").split("\n\n")[0].split())


def _table(fields: list[field_docs.Field]) -> Iterator[str]:
    yield "| field | type | default | |"
    yield "|---|---|---|---|"
    for field in fields:
        default = "" if field.default is None else f"`{_cell(field.default)}`"
        yield f"| `{field.name}` | `{_cell(field.kind)}` | {default} | {_cell(_first(field.text))} |"
    yield ""


def _cell(text: str) -> str:
    return re.sub(r"_unsaid\((.*?)\)", r"\1", text).replace("|", "\\|").replace("\n", " ")


def _keywords() -> Iterator[str]:
    yield "### Keywords of a run\n"
    yield (
        "`run`, `run_sync`, `open_run`, `run_many`, `complete` and `open_conversation` take all fields of a "
        "[`RunRequest`](#runrequest) but its prompt, and these:\n"
    )
    assert set(RunFields.__annotations__)
    yield from _table(field_docs.fields_of(RunOptions))


def _words() -> Iterator[str]:
    yield "### Words\n"
    yield "Types that are one of a few words:\n"
    for module, names in _WORDS.items():
        for name in names:
            words = ", ".join(f"`{word}`" for word in typing.get_args(getattr(module, name)))
            yield f"- **`{name}`** {words}"
    yield ""


def _events() -> Iterator[str]:
    yield "## Events\n"
    yield (
        "`async for recorded in run` gives `Recorded` values: an event in its place. "
        "[events.md](events.md) says what each one means; here are their fields. They are in `leadrope.events`.\n"
    )
    for kind in (events.Recorded, *typing.get_args(events.Event)):
        tag = kind.__struct_config__.tag
        yield f"### {kind.__name__}\n"
        yield from _text(" ".join(filter(None, (f"`{tag}`." if tag else "", field_docs.text_of(kind)))))
        fields = field_docs.fields_of(kind)
        if fields:
            yield from _table(fields)


def _errors() -> Iterator[str]:
    yield "## Errors\n"
    yield "In `leadrope.errors`. Each has a `message`, a `hint` (or None) and a `kind`.\n"
    tree = inspect.cleandoc(errors.__doc__ or "").split("\n\n")
    yield f"```\n{textwrap.dedent(tree[1])}\n```\n"
    yield from _text("\n\n".join(tree[2:]))


def missing() -> list[str]:
    """Public names that are in no group."""
    grouped = {name for names in GROUPS.values() for name in names}
    others = {"__version__", "errors", "events", "Recorded"}
    found = [name for name in leadrope.__all__ if name not in grouped | others]
    return [name for name in found if not isinstance(getattr(leadrope, name), types.ModuleType)]
