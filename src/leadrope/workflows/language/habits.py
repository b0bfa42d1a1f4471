"""Keys and syntax of other workflow tools, with their leadrope equivalents. Pure tables."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

from leadrope.regex import regex
from leadrope.workflows.model import STEP_KEYS

EVERY_STEP = tuple(name if name != "on_error" else "on-error" for name in STEP_KEYS)
"""The keys that every step may have, as written in a file."""
EVERY_STEP_HINT = "Every step also takes " + ", ".join(name for name in EVERY_STEP if name != "type") + "."

TYPES: Mapping[str, str] = {
    **dict.fromkeys(("bash", "sh", "command", "run", "exec", "cmd", "terminal"), "shell"),
    **dict.fromkeys(("python", "script", "function"), "code"),
    **dict.fromkeys(("model", "prompt", "chat", "ai", "gpt", "openai"), "llm"),
    **dict.fromkeys(("mail", "smtp"), "email"),
    **dict.fromkeys(("if", "branch"), "condition"),
    **dict.fromkeys(("case", "route", "router"), "switch"),
    **dict.fromkeys(("terminate", "error", "raise", "abort"), "fail"),
    **dict.fromkeys(("assign", "let", "vars", "variables"), "set"),
    **dict.fromkeys(("fetch", "request", "curl", "api", "webhook"), "http"),
    **dict.fromkeys(("sleep", "delay", "pause"), "wait"),
    **dict.fromkeys(("human", "confirm", "person", "human_gate", "gate"), "approval"),
    **dict.fromkeys(("subworkflow", "sub-workflow", "call"), "workflow"),
}
"""Names of step types in other tools."""


class Habit(msgspec.Struct, frozen=True, kw_only=True):
    words: tuple[str, ...]
    """The first one that the step accepts is meant."""
    hint: str = ""


def _of(names: str, *words: str, hint: str = "") -> dict[str, Habit]:
    return dict.fromkeys(names.split(), Habit(words=words, hint=hint))


_AFTER = "`after: [build, test]` names the steps that it waits for; without it a step follows the one above it."
_WHEN = "`when: ${build.exit_code} == 0` skips the step where it is false."
_BATCH = "`batch: {items: ${list.result}}` runs the step once per item, which is then called `${item}`."
_LOOP = "`loop: {while: ${poll.result.pending}, max_iterations: 20}` runs the step again and again."
_RETRY = "`retry: {max: 3, wait: 5}`."
_TYPE = "`type` names the kind of step; `leadrope flow steps` lists them."
_ERROR = "`on-error: STEP` names the step that takes over when this one fails."

_KEYS: Mapping[str, Habit] = {
    **_of("needs depends_on dependson depends requires wait_for", "after", hint=_AFTER),
    **_of("if condition only_if run_if unless", "when", hint=_WHEN),
    **_of("for_each foreach for with_items with_list map each matrix iterate over", "batch", hint=_BATCH),
    **_of("items max_concurrent concurrency parallel", "batch", hint=_BATCH),
    **_of("while until repeat do_while max_iterations iterations", "loop", hint=_LOOP),
    **_of("carry", "loop", hint="`carry` is written inside of `loop`."),
    **_of("retries max_retries attempts max_attempts", "retry", hint=_RETRY),
    **_of("retry_on backoff retry_wait", "retry", hint="It is written inside of `retry`."),
    **_of("run cmd shell exec bash sh", "command", "code"),
    **_of("script python source body_code function", "code", "command"),
    **_of("with args arguments params parameters input variables vars", "arguments", "inputs", "params", "env"),
    **_of("uses kind action plugin node", "type", hint=_TYPE),
    **_of("then goto go_to next_step to routes edges on_success", "next"),
    **_of("catch on_failure onerror on_fail fallback error_handler rescue", "on-error", hint=_ERROR),
    **_of("continue_on_error continueonerror allow_failure", "ignore_errors", "on-error", hint=_ERROR),
    **_of("environment environ", "env"),
    **_of("working_directory workdir work_dir dir directory chdir", "cwd"),
    **_of("timeout_minutes timeout_seconds timeout_s timeout_ms", "timeout", hint="`timeout` is in seconds."),
    **_of("path file filename dest destination", "file_path", "dest_path"),
    **_of("message msg instruction instructions task query question", "prompt", "message", "text"),
    **_of("system system_message systemprompt", "system_prompt", "system"),
    **_of("tools permissions", "allowed_tools"),
    **_of("walls agent_sandbox", "sandbox", hint="A word is the level, a mapping the agent's own settings."),
    **_of("schema response_format json_schema output_format", "output_schema"),
    **_of("uri endpoint", "url"),
    **_of("approve requires_approval confirm manual", "approval", hint="`approval: required` asks a person first."),
    **_of("max_cost cost_limit max_budget", "budget", hint="`budget` is in US dollars."),
    **_of("id name", hint="The heading `### name` names the step."),
    **_of("description desc", hint="The description is the prose below the heading."),
    **_of("output outputs returns", hint="Later steps read a step's outputs by name: `${step.key}`."),
}


SECTIONS: Mapping[str, str] = {
    **dict.fromkeys(("nodes", "jobs", "tasks", "stages", "workflow", "agents"), "Steps"),
    **dict.fromkeys(("parameters", "variables", "arguments", "params", "vars"), "Inputs"),
    **dict.fromkeys(("results", "returns", "result"), "Outputs"),
    **dict.fromkeys(("config", "configuration", "options"), "Settings"),
    **dict.fromkeys(("description", "documentation", "comments", "readme", "about", "usage"), "Notes"),
}
"""Names of sections in other tools."""

_TYPE_BY_KEY: Mapping[str, str] = {
    **dict.fromkeys(("command", "run", "cmd"), "shell"),
    **dict.fromkeys(("code", "script", "python"), "code"),
    **dict.fromkeys(("url", "uri"), "http"),
    **dict.fromkeys(("workflow",), "workflow"),
    **dict.fromkeys(("prompt",), "agent"),
}


def type_for(keys: Collection[str]) -> str | None:
    """Guesses the type of a step that has none."""
    return next((kind for name, kind in _TYPE_BY_KEY.items() if name in keys), None)


def key(name: str, available: Collection[str]) -> Habit | None:
    """Returns what an unknown key probably means, if another tool has a key of that name."""
    found = _KEYS.get(name.replace("-", "_").lower())
    if found is None:
        return None
    word = next((word for word in found.words if word in (*available, *EVERY_STEP)), None)
    if found.words and word is None:
        return None
    return Habit(words=(word,) if word else (), hint=found.hint)


# -- templates --------------------------------------------------------------------------------------------------------

_BRACES = regex(r"\$?\{\{-?[ \t]*([A-Za-z_$][\w.\[\]'\"-]*)[ \t]*(\|[^{}]*)?-?\}\}")
_ROOT = regex(r"[A-Za-z_][A-Za-z0-9_-]*")
_PREFIXES = ("steps", "nodes", "jobs", "needs", "outputs", "inputs", "input", "params", "args", "workflow", "vars")


class Braces(msgspec.Struct, frozen=True, kw_only=True):
    """`{{ name }}` in a text."""

    source: str
    name: str
    path: tuple[str, ...]
    """Of the text inside the value."""
    text: str
    offset: int


def braces(value: Any, path: tuple[str, ...] = ()) -> Iterator[Braces]:
    """Finds the syntax of other template languages. Go's own (`{{.Id}}`, as in `docker --format`) is left alone."""
    if isinstance(value, str):
        for found in _BRACES.finditer(value) if "{{" in value else ():
            if found[1] in ("end", "else"):
                continue
            yield Braces(source=found[0], name=found[1], path=path, text=value, offset=found.start())
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from braces(inner, (*path, str(name)))
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from braces(inner, (*path, str(number)))


def template_for(path: str, steps: Collection[str], inputs: Collection[str], own: Collection[str] = ()) -> str | None:
    """Translates `steps.build.outputs.stdout` and the like into a template; None if nothing has that name."""
    known = (*steps, *inputs, *own)
    text = path.removeprefix("$")
    while (found := _ROOT.match(text)) and found[0] not in known and found[0] in _PREFIXES:
        text = text[found.end() :].removeprefix(".")
    if found is None or found[0] not in known:
        return None
    rest = text[found.end() :]
    if found[0] in steps:
        rest = re.sub(r"^\.outputs?(?=[.\[])", "", rest)
    return f"${{{found[0]}{rest}}}"


ROOT_HINTS: Mapping[str, str] = {
    **dict.fromkeys(
        ("env", "ENV", "environ"),
        'Templates do not read the environment. A command has its variables as `"$NAME"`, and its own in `env`.',
    ),
    **dict.fromkeys(
        ("secrets", "secret"),
        "Templates do not read secrets. An http step takes `auth_env`, and connections have theirs in config.toml.",
    ),
    "loop": "The number of an item is `${__index__}`, that of a turn `${__iteration__}`.",
    "index": "The number of an item is `${__index__}`.",
    "iteration": "The number of a turn is `${__iteration__}`.",
}
"""Hints by the first name of a template that nothing is called."""
