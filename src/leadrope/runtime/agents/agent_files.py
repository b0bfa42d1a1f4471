"""Agents as Claude Code keeps them, `.claude/agents/NAME.md`: front matter and persona into a checked value.

What such a file lists as `tools` restricts the agent, as it does in Claude Code, and pre-approves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from leadrope import errors
from leadrope.core import config as configs
from leadrope.core.request_checks import normal_mode
from leadrope.core.text import yaml_values
from leadrope.core.tools import BASELINE_TOOLS
from leadrope.policy import patterns
from leadrope.policy.files.document import FileProblem, Problems, suggest
from leadrope.regex import regex

if TYPE_CHECKING:
    from leadrope.runtime.agents.saved_agents import Origin

_FRONT = regex(r"\A\ufeff?---[ \t]*\n(?P<head>.*?)^---[ \t]*(?:\n|\Z)(?P<body>.*)\Z", re.DOTALL | re.MULTILINE)
_PLAIN_LINE = regex(r"^(?P<key>[A-Za-z_-]+):[ \t]+(?P<value>[^\s\"'\[{|>#&*!].*)$", re.MULTILINE)
_AGENTS_FORM = regex(r"(?<=[^(\s]):\*\)\s*\Z")

UNUSED = (
    *("color", "mcpServers", "hooks", "skills", "memory", "background", "isolation", "initialPrompt"),
    *("autoCompactWindow", "observer", "observerMessage", "observeSubagents", "version"),
)
"""Keys of Claude Code that have no effect here."""


class AgentFile(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    agent: configs.Agent
    policy: dict[str, Any] = {}
    """Rules that only tighten."""
    notices: tuple[str, ...] = ()


def name_in(text: str, stem: str) -> str:
    """The name that a file gives its agent, as far as it can be read; else that of the file."""
    found = _FRONT.match(_lines(text))
    named = re.search(r"^name:[ \t]*([\"']?)([^\n\"']+)\1[ \t]*$", found["head"], re.MULTILINE) if found else None
    return named[2].strip() if named else stem


def front_of(text: str) -> Mapping[str, Any]:
    """The front matter, as far as it can be read."""
    found = _FRONT.match(_lines(text))
    try:
        return _front(found["head"], "") if found else {}
    except Problems:
        return {}


def parse(text: str, source: str, *, stem: str, origin: Origin) -> AgentFile:
    """The file's agent, or Problems with the line of each."""
    found = _FRONT.match(_lines(text))
    if found is None:
        raise Problems([FileProblem(file=source, line=1, message=_NO_FRONT, hint="Begin it with ---, name, ---.")])
    data = _front(found["head"], source)
    reader = _Reader(found["head"], source)
    fields: dict[str, Any] = {}
    policy: dict[str, Any] = {}
    notices: list[str] = []
    for key, value in data.items():
        if key in UNUSED:
            notices.append(f"{key} has no effect in leadrope")
        elif key not in _KEYS:
            reader.add(key, "is not a known key of an agent", suggest(key, (*_KEYS, *UNUSED)))
        else:
            reader.read(key, value, fields)
    if not found["body"].strip():
        reader.add("", "has no persona", "Write it after the front matter.")
    if reader.problems:
        raise Problems(reader.problems)
    fields["system_prompt"] = found["body"].strip()
    if "tools" in fields:
        policy["allowed_tools"] = [*dict.fromkeys((*fields.pop("tools"), *BASELINE_TOOLS))]
    if "mode" in fields and origin == "repository":
        # A repository may ask for a stricter mode, and never for a looser one.
        policy["permission_mode"] = fields.pop("mode")
    name = fields.pop("name", stem)
    return AgentFile(name=name, agent=msgspec.convert(fields, configs.Agent), policy=policy, notices=tuple(notices))


_NO_FRONT = "has no front matter"


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _front(head: str, source: str) -> Mapping[str, Any]:
    try:
        data = _yaml(head)
    except yaml_values.YamlError:
        # `description: Use it when: …` is common, and read by Claude Code.
        try:
            data = _yaml(_PLAIN_LINE.sub(_quoted, head))
        except yaml_values.YamlError as error:
            raise Problems(
                [
                    FileProblem(
                        file=source, line=error.line + 2, message=f"its front matter is not YAML: {error.message}"
                    )
                ]
            ) from None
    if not isinstance(data, dict):
        raise Problems([FileProblem(file=source, line=2, message="its front matter is not a list of keys and values")])
    return data


def _yaml(text: str) -> Any:
    return yaml_values.load(text, yaml_values.scalar_1_1, has_aliases=True).value


def _quoted(found: re.Match[str]) -> str:
    return f"{found['key']}: {msgspec.json.encode(found['value'].strip()).decode()}"


class _Reader:
    def __init__(self, head: str, source: str) -> None:
        self.problems: list[FileProblem] = []
        self._head = head
        self._source = source

    def read(self, key: str, value: Any, fields: dict[str, Any]) -> None:
        field, read = _KEYS[key]
        try:
            for told in read(value):
                fields[field] = told
        except errors.BadValue as error:
            self.add(key, error.message.partition(": ")[2], error.hint)

    def add(self, key: str, message: str, hint: str | None) -> None:
        line = None
        if key and (found := re.search(rf"^{re.escape(key)}\s*:", self._head, re.MULTILINE)):
            line = self._head.count("\n", 0, found.start()) + 2
        self.problems.append(FileProblem(file=self._source, line=line, where=key, message=message, hint=hint))


def _text(value: Any) -> Iterator[str]:
    if not isinstance(value, str) or not value.strip():
        raise errors.BadValue("value", "is not a text", hint="Put it into quotes.")
    yield value.strip()


def _name(value: Any) -> Iterator[str]:
    for name in _text(value):
        if name.startswith("-") or "\n" in name or len(name) > 64:
            raise errors.BadValue("value", f"{name[:80]!r} cannot be a name", hint="Use letters, digits, - and _.")
        yield name


def _model(value: Any) -> Iterator[str]:
    yield from (name for name in _text(value) if name != "inherit")


def _tools(value: Any) -> Iterator[tuple[str, ...]]:
    entries = _split(value) if isinstance(value, str) else value
    if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
        raise errors.BadValue("value", "is not a list of tools", hint="Write Read, Grep, Bash(git *).")
    found = [own_form(entry) for entry in entries if entry.strip()]
    if found == ["*"]:
        return
    for entry in found:
        patterns.parse(entry)
    yield tuple(found)


def own_form(entry: str) -> str:
    """A pattern of Claude Code's in leadrope's own form: `Bash(git:*)` is `Bash(git *)`."""
    return _AGENTS_FORM.sub(" *)", entry.strip())


def _split(text: str) -> list[str]:
    """At commas outside of parentheses: `Bash(git log, git show)` is one."""
    return re.findall(r"(?:[^,(]|\([^)]*\)?)+", text)


def _mode(value: Any) -> Iterator[str]:
    for name in _text(value):
        yield normal_mode(name)


def _turns(value: Any) -> Iterator[int]:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 100:
        raise errors.BadValue("value", f"{value!r} is not a number of turns", hint="Use 1 to 100.")
    yield value


def _no_instructions(value: Any) -> Iterator[bool]:
    if value is True:
        yield False


_KEYS: Mapping[str, tuple[str, Callable[[Any], Iterator[Any]]]] = {
    "name": ("name", _name),
    "description": ("description", _text),
    "tools": ("tools", _tools),
    "disallowedTools": ("disallowed_tools", _tools),
    "model": ("model", _model),
    "permissionMode": ("mode", _mode),
    "effort": ("effort", _text),
    "maxTurns": ("max_turns", _turns),
    "omitClaudeMd": ("instructions", _no_instructions),
}
