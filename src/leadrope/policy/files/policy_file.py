"""Policy files: read, checked as a whole, and refused with file, line and a suggestion. Decides about no call.

A `[policy]` table holds rules, `include` (other policy files, seen from this one) and `[[policy.examples]]`; a file
whose examples fail is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from leadrope import errors
from leadrope.confined import names, real_path
from leadrope.core.config import Agent
from leadrope.core.request_forms import LimitDefaults
from leadrope.policy.files import defaults, examples
from leadrope.policy.files.document import FileProblem, Key, Problems, TomlDocument, inner_key, shown, suggest
from leadrope.policy.files.examples import Example
from leadrope.policy.resolve import EffectivePolicy, Layer, resolve, said, validate, with_defaults
from leadrope.policy.schema import TABLES, PolicyRules
from leadrope.regex import regex

# Far more than a policy has, and little enough that a stranger's file cannot keep a decision busy.
MAX_INCLUDES = 50
_MOST_SUGGESTED = 1000
MAX_ENTRIES = 1000
MAX_EXAMPLES = 500
_UNKNOWN = regex(r"Object contains unknown field `(.*)`")
FILE_KEYS = ("include", "examples", "defaults")
"""What a policy file may hold beside its rules."""


class PolicyFile(msgspec.Struct, frozen=True, kw_only=True):
    """One `[policy]` table with all that it includes."""

    source: str
    parts: tuple[PolicyRules, ...] = ()
    """Its own rules, and those of each included file; every part counts."""
    examples: tuple[Example, ...] = ()
    lines: tuple[FileProblem, ...] = ()
    """For each example, where it stands; a failure is told with it."""
    defaults: bool = True
    """False: the shipped lists are not wanted. Only the user's own configuration may say so."""
    is_users: bool = False
    """`[policy]` of the user's own configuration, whose values replace the shipped ones; all others only tighten."""

    def layers(self, name: str) -> tuple[Layer, ...]:
        return tuple(Layer(name, rules, True) for rules in self.parts)

    def effective(self) -> EffectivePolicy:
        """This file on top of the shipped defaults, which is what its examples speak of."""
        shipped = defaults.rules(lists=self.defaults)
        if self.is_users:
            return resolve(with_defaults(self.parts, shipped, name=self.source))
        return resolve((Layer("default", shipped, True), *self.layers(self.source)))


class UserFile(msgspec.Struct, frozen=True, kw_only=True):
    """`[policy]` and `[agents.NAME.policy]` of the user's configuration."""

    policy: PolicyFile
    agents: dict[str, PolicyFile] = {}
    names: tuple[str, ...] = ()
    """Of all agents, also of those without a policy."""
    broken: dict[str, tuple[FileProblem, ...]] = {}
    """Agents that cannot be used; what is wrong with them."""


def read_policy(path: Path, *, try_examples: bool = True) -> PolicyFile:
    """A file given by the user for one run (`--policy FILE`). `try_examples=False` is for whoever runs them himself."""
    try:
        document = TomlDocument.read(path)
    except FileNotFoundError:
        raise Problems([FileProblem(file=str(path), message="does not exist")]) from None
    return _finished(PolicyReader(try_examples=try_examples), document)


def read_user(path: Path, *, try_examples: bool = True, sets_aside: bool = False) -> UserFile:
    """The policies in the user's config.toml; a missing file is an empty one. Its other sections are not looked at.

    What is wrong is raised as a whole, or, if it `sets_aside` agents that cannot be used, without what is wrong there.
    """
    try:
        document = TomlDocument.read(path)
    except FileNotFoundError:
        return UserFile(policy=PolicyFile(source=str(path)))
    policy, problems = _read_table(document, ("policy",), try_examples=try_examples)
    found = document.table(("agents",))
    agents: dict[str, PolicyFile] = {}
    broken: dict[str, tuple[FileProblem, ...]] = {}
    for name, agent in found.items() if isinstance(found, dict) else ():
        rules, wrong = _read_agent(document, name, agent, try_examples=try_examples)
        if wrong:
            broken[name] = tuple(wrong)
        elif rules is not None:
            agents[name] = rules
    if not sets_aside:
        problems += [problem for wrong in broken.values() for problem in wrong]
    if problems:
        raise Problems(problems)
    names = tuple(found) if isinstance(found, dict) else ()
    return UserFile(policy=policy, agents=agents, names=names, broken=broken)


def _read_table(document: TomlDocument, at: Key, *, try_examples: bool) -> tuple[PolicyFile, list[FileProblem]]:
    reader = PolicyReader(may_drop_defaults=True, try_examples=try_examples)
    policy = reader.table(document, at)
    return policy, reader.all_problems(policy)


def _read_agent(
    document: TomlDocument, name: str, agent: Any, *, try_examples: bool
) -> tuple[PolicyFile | None, list[FileProblem]]:
    reader = PolicyReader(may_drop_defaults=True, try_examples=try_examples)
    reader.agent(document, name, agent)
    if reader.problems or not isinstance(agent, dict) or "policy" not in agent:
        return None, reader.problems
    return _read_table(document, ("agents", name, "policy"), try_examples=try_examples)


def _finished(reader: PolicyReader, document: TomlDocument) -> PolicyFile:
    reader.only_policy(document)
    policy = reader.table(document, ("policy",))
    reader.finish(policy)
    return policy


class PolicyReader:
    """Collects every problem before it refuses, so that one look at the message is enough."""

    def __init__(
        self, *, may_drop_defaults: bool = False, inside: Path | None = None, try_examples: bool = True
    ) -> None:
        self.problems: list[FileProblem] = []
        self.ignored: list[Key] = []
        """What a project said and may not say."""
        self._try_examples = try_examples
        self._may_drop_defaults = may_drop_defaults
        self._inside = inside
        """A folder that included files may not leave."""
        self._including: list[Path] = []
        self._included_files = 0

    def all_problems(self, policy: PolicyFile) -> list[FileProblem]:
        """What was found so far; if that is nothing, the examples that fail."""
        if not self.problems and self._try_examples:
            self.problems += failing_examples(policy)
        return self.problems

    def finish(self, policy: PolicyFile) -> None:
        if problems := self.all_problems(policy):
            raise Problems(problems)

    def only_policy(self, document: TomlDocument) -> None:
        for key in document.data:
            if key == "policy":
                continue
            is_ours = key in (*PolicyRules.__struct_fields__, *FILE_KEYS)
            hint = "Put it below a line [policy]." if is_ours else suggest(key, ("policy",))
            self.problems.append(document.problem((key,), "is not a known key of a policy file", hint))

    def agent(self, document: TomlDocument, name: str, given: Any) -> None:
        """What `[agents.NAME]` holds beside its policy; the values themselves are checked when the agent is used."""
        if not isinstance(given, dict):
            hint = f"Write [agents.{name}] on a line of its own."
            self.problems.append(document.problem(("agents", name), "is not a table", hint))
            return
        try:
            msgspec.convert({key: value for key, value in given.items() if key != "policy"}, Agent)
        except msgspec.ValidationError as error:
            message, inner = inner_key(error)
            unknown = _UNKNOWN.fullmatch(message)
            known = LimitDefaults if inner == ("limits",) else Agent
            where = ("agents", name, *inner, *((unknown[1],) if unknown else ()))
            told = "is not a known key" if unknown else _in_words(message)
            meant = suggest(unknown[1], known.__struct_fields__) if unknown else None
            self.problems.append(document.problem(where, told, meant))

    def table(self, document: TomlDocument, at: Key) -> PolicyFile:
        table = document.table(at)
        if not isinstance(table, dict):
            self.problems.append(document.problem(at, "is not a table", f"Write [{shown(at)}] on a line of its own."))
            return PolicyFile(source=document.source)
        parts: list[PolicyRules] = []
        found: list[tuple[Example, FileProblem]] = []
        rules = dict(self._rules(document, at, table))
        if rules:
            parts.append(msgspec.convert(rules, PolicyRules))
        wants_defaults = self._defaults(document, at, table)
        found.extend(self._examples(document, at, table.get("examples", [])))
        for place, included in self._included(document, at, table.get("include", [])):
            inner = self._include(document, (*at, "include", place), included)
            parts += inner.parts
            found += zip(inner.examples, inner.lines, strict=True)
        return PolicyFile(
            source=document.source,
            parts=tuple(parts),
            examples=tuple(example for example, _ in found),
            lines=tuple(line for _, line in found),
            defaults=wants_defaults,
            is_users=self._may_drop_defaults and at == ("policy",),
        )

    # -- rules ----------------------------------------------------------------------------------------------------

    def _rules(self, document: TomlDocument, at: Key, table: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        """Each usable rule, one by one: the decoder alone would stop at the first that is not."""
        for key, value in table.items():
            if key in FILE_KEYS:
                continue
            try:
                rules = msgspec.convert({key: value}, PolicyRules)
            except msgspec.ValidationError as error:
                self.problems.append(self._refused(document, at, key, value, error))
                continue
            bad = list(_bad_values(document, at, rules))
            self.problems += bad
            if not bad:
                yield key, value

    def _refused(
        self, document: TomlDocument, at: Key, key: str, value: Any, error: msgspec.ValidationError
    ) -> FileProblem:
        message, inner = inner_key(error)
        unknown = _UNKNOWN.fullmatch(message)
        if unknown:
            kind = TABLES[str(inner[0])] if inner else PolicyRules
            known = (*kind.__struct_fields__, *(() if inner else FILE_KEYS))
            return document.problem((*at, *inner, unknown[1]), "is not a known rule", suggest(unknown[1], known))
        named: Any = value
        for part in inner[1:]:
            named = named[part]
        return document.problem((*at, *inner), _in_words(message, inner), _hint(inner, message, named))

    def _defaults(self, document: TomlDocument, at: Key, table: dict[str, Any]) -> bool:
        wanted = table.get("defaults", True)
        key = (*at, "defaults")
        if not isinstance(wanted, bool):
            self.problems.append(document.problem(key, "is not true or false"))
        elif not wanted and self._inside is not None:
            self.ignored.append(key)
            return True
        elif not wanted and not (self._may_drop_defaults and at == ("policy",) and not self._including):
            hint = "Only [policy] of your own config.toml can drop the shipped rules."
            self.problems.append(document.problem(key, "cannot be said here", hint))
        return wanted is not False

    # -- examples and includes --------------------------------------------------------------------------------------

    def _examples(self, document: TomlDocument, at: Key, given: Any) -> Iterator[tuple[Example, FileProblem]]:
        key = (*at, "examples")
        if not isinstance(given, list):
            how = f"Begin each with a line [[{shown(key)}]]."
            self.problems.append(document.problem(key, "is not a list of examples", how))
            return
        if len(given) > MAX_EXAMPLES:
            self.problems.append(document.problem(key, f"holds more than {MAX_EXAMPLES} examples"))
            return
        for place, item in enumerate(given):
            here = (*key, place)
            try:
                example = msgspec.convert(item, Example)
                examples.check(example)
            except msgspec.ValidationError as error:
                message, inner = inner_key(error)
                unknown = _UNKNOWN.fullmatch(message)
                where = (*here, *inner, unknown[1]) if unknown else (*here, *inner)
                hint = suggest(unknown[1], Example.__struct_fields__) if unknown else None
                told = "is not a key of an example" if unknown else _in_words(message)
                self.problems.append(document.problem(where, told, hint))
            except errors.BadValue as error:
                self.problems.append(document.problem(here, error.message, error.hint))
            else:
                # The line is looked up when it is needed: a policy that holds pays nothing for it.
                yield example, FileProblem(file=document.source, where=shown(here), message="")

    def _included(self, document: TomlDocument, at: Key, given: Any) -> Iterator[tuple[int, str]]:
        key = (*at, "include")
        if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
            self.problems.append(document.problem(key, "is not a list of files", 'Write include = ["other.toml"].'))
            return
        yield from enumerate(given)

    def _include(self, document: TomlDocument, key: Key, name: str) -> PolicyFile:
        nothing = PolicyFile(source=name)
        here = Path(real_path(document.source))
        path = Path(real_path(here.parent / name))
        if not name.strip() or Path(name).is_absolute() or name.startswith("~"):
            self.problems.append(document.problem(key, f"{name!r} is not relative to this file"))
            return nothing
        if self._inside is not None and not path.is_relative_to(real_path(self._inside)):
            self.problems.append(document.problem(key, f"{name!r} leads out of {self._inside}"))
            return nothing
        self._included_files += 1
        chain = [*self._including, here]
        if path in chain:
            around = " -> ".join(step.name for step in (*chain[chain.index(path) :], path))
            self.problems.append(document.problem(key, f"the files include each other: {around}", "Drop one of them."))
            return nothing
        if self._included_files > MAX_INCLUDES:
            if self._included_files == MAX_INCLUDES + 1:
                self.problems.append(document.problem(key, f"more than {MAX_INCLUDES} files are included"))
            return nothing
        try:
            inner = TomlDocument.read(path, inside=self._inside)
        except FileNotFoundError:
            close = suggest(Path(name).name, _other_files(path.parent, here))
            self.problems.append(document.problem(key, f"{path} does not exist", close))
            return nothing
        except Problems as refused:
            self.problems += refused.problems
            return nothing
        before, self._including = self._including, chain
        self.only_policy(inner)
        found = self.table(inner, ("policy",))
        self._including = before
        return found


def _other_files(folder: Path, file: Path) -> list[str]:
    try:
        found = names(Path(real_path(folder)), most=_MOST_SUGGESTED)
    except (OSError, RuntimeError):
        return []
    return [entry.name for entry in found if entry.name.endswith(".toml") and entry.path != str(file)]


def failing_examples(policy: PolicyFile) -> list[FileProblem]:
    """The examples that the policy does not satisfy, each as a problem of its file."""
    if not policy.examples:
        return []
    outcomes = examples.run(policy.effective(), policy.examples)
    found: list[FileProblem] = []
    for place, outcome in zip(policy.lines, outcomes, strict=True):
        if not outcome.holds:
            hint = "Change the rules or the example; `leadrope policy explain` shows how a call is read."
            found.append(msgspec.structs.replace(place, line=_line(place), message=str(outcome), hint=hint))
    return found


def _line(place: FileProblem) -> int | None:
    key: list[str | int] = []
    for name, number in re.findall(r"([^.\[\]]+)|\[(\d+)\]", place.where):
        key.append(name or int(number))
    try:
        return TomlDocument.read(Path(place.file)).line(tuple(key))
    except (FileNotFoundError, Problems):
        return None  # the policy was text without a file


def _bad_values(document: TomlDocument, at: Key, rules: PolicyRules) -> Iterator[FileProblem]:
    for rule, value in said(rules):
        key = (*at, *rule.name.split("."))
        if isinstance(value, tuple) and len(value) > MAX_ENTRIES:
            yield document.problem(key, f"has more than {MAX_ENTRIES} entries")
            continue
        entries = enumerate(value) if isinstance(value, tuple) else ()
        listed = False
        for place, entry in entries:
            listed = True
            try:
                validate(rule, (entry,))
            except errors.BadValue as error:
                yield document.problem((*key, place), error.message.partition(": ")[2], error.hint)
        if not listed:
            try:
                validate(rule, value)
            except errors.BadValue as error:
                yield document.problem(key, error.message.partition(": ")[2], error.hint)


_KINDS = {"array": "a list", "str": "a text", "int": "a whole number", "float": "a number", "bool": "true or false"}


def _in_words(message: str, inner: Key = ()) -> str:
    """The decoder's message in the words of a file."""
    if _is_limit(inner):
        if message.startswith("Invalid enum value"):
            return 'must be a number or "none"'
        message = message.replace(" | str`", "`")
    found = re.fullmatch(r"Expected `(.*?)`(?: (>=?) (\S+))?(?:, got `(.*)`)?", message)
    if not found:
        return message[:1].lower() + message[1:]
    wanted = " or ".join(_KINDS.get(word, word) for word in found[1].split(" | "))
    if found[2]:
        return f"must be {wanted} {found[2]} {found[3].rstrip('.0') or '0'}"
    return f"must be {wanted}" + (f", not {_KINDS.get(found[4], found[4])}" if found[4] else "")


def _is_limit(inner: Key) -> bool:
    return bool(inner) and str(inner[-1]).startswith("max_")


def _hint(inner: Key, message: str, value: Any) -> str | None:
    name = inner[-1] if inner else ""
    if "array" in message and isinstance(value, str) and isinstance(name, str):
        return f'Write {name} = ["{value}"].'
    if _is_limit(inner):
        if isinstance(value, str) and re.fullmatch(r"\d+(?:\.\d+)?", value):
            return f"Write {name} = {value}."
        return 'Write "none" for no limit.'
    enum = re.fullmatch(r"Invalid enum value (.*)", message)
    if enum and inner:
        return suggest(str(value), _choices(inner))
    return None


def _choices(inner: Key) -> tuple[str, ...]:
    from leadrope.policy.rules import BY_NAME  # noqa: PLC0415  # only for a message

    rule = BY_NAME.get(".".join(map(str, inner)))
    return tuple(str(word) for word in getattr(rule, "order", ()))
