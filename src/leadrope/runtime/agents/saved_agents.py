"""Saved agents: where they are found, and how one of them becomes a request.

`[agents.NAME]` of the user's config.toml, then the user's `~/.claude/agents`, then the `.claude/agents` of the
repository, which count only as they were trusted. The first that has the name is meant: a repository cannot take the
place of an agent of the user's own.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from leadrope import errors
from leadrope.confined import Folder, is_text, read_named
from leadrope.core import config as configs
from leadrope.core import home
from leadrope.core.request import Limits, RunRequest
from leadrope.core.request_checks import check
from leadrope.policy import patterns
from leadrope.policy.files import policy_file
from leadrope.policy.files.document import FileProblem, Problems, TomlDocument
from leadrope.policy.resolve import rules_of
from leadrope.runtime.agents import config_values
from leadrope.runtime.trust import trust
from leadrope.runtime.trust.files import places
from leadrope.spelling import close_matches

MOST_FILES = 500
MOST_BYTES = 1024 * 1024
"""Of one file. A persona of this size would be some two hundred thousand tokens."""
_OF_AGENTS_ONLY = ("description", "policy", *(f"{name}_file" for name in configs.AGENT_FILES))


Origin = Literal["config", "user", "repository"]
"""The file that an agent comes from: the configuration, or a file of the user's or of the repository's own."""


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that can be used."""

    name: str
    origin: Origin
    source: str
    """The file it was read from."""
    agent: configs.Agent
    policy: dict[str, Any] = {}
    """Rules of its own that only tighten. Those of config.toml are read by leadrope.policy, under the agent's name."""
    notices: tuple[str, ...] = ()


class AgentEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What lists show: an agent, or why it cannot be used."""

    name: str
    origin: Origin
    source: str
    saved: Saved | None = None
    problems: tuple[FileProblem, ...] = ()
    is_hidden: bool = False
    """Another agent of this name comes first."""

    def usable(self) -> Saved:
        if self.saved is None:
            raise Problems(self.problems)
        return self.saved


def request_of(
    config: configs.Config,
    overrides: Mapping[str, Any],
    *,
    profile: str | None = None,
    usual: Mapping[str, Any] | None = None,
    kept: Mapping[str, Any] | None = None,
    environ: Mapping[str, str],
) -> RunRequest:
    """The one way from a saved agent, and from everything below and above it, to a request.

    From weakest to strongest: `[run]` of the configuration, or what is `kept` of a run that is continued, the profile,
    `usual`, the agent, `overrides`. Rules of the agent are a layer of the policy, which only tightens.
    """
    below = [config.run] if kept is None else []
    below += [config.profiles[profile]] if profile in config.profiles else []
    named: list[str | None] = [one.agent for one in below if one.agent is not msgspec.UNSET]
    name = overrides["agent"] if "agent" in overrides else [None, *named][-1]
    if name is None:
        return configs.apply(config, profile, overrides, environ=environ, usual=usual, kept=kept)
    folders = [(kept or {}).get("cwd") or ".", *(one.cwd for one in below if one.cwd is not msgspec.UNSET)]
    cwd = Path(overrides.get("cwd") or folders[-1]).expanduser()
    saved = _sound(find(name, config, environ, cwd), config, cwd)
    fields = {**fields_of(saved, cwd), "agent": saved.name}
    request = configs.apply(config, profile, overrides, environ=environ, usual=usual, agent=fields, kept=kept)
    return _marked(request, saved)


def filled(
    request: RunRequest, named: Collection[str], config: configs.Config, environ: Mapping[str, str]
) -> RunRequest:
    """A program's request, with `[run]` of the configuration and the values of its agent where it names nothing."""
    # These decide what the layers below them mean.
    deciding = {name: getattr(request, name) for name in ("cwd", "purpose", "auto_continue") if name in named}
    if request.agent_from is not None:
        deciding["agent"] = None  # its values are in the request already
    elif "agent" in named:
        deciding["agent"] = request.agent
    return configs.filled(request, named, request_of(config, deciding, environ=environ))


def applied(request: RunRequest, config: configs.Config, environ: Mapping[str, str]) -> RunRequest:
    """A request that only names its agent, with the agent's values where it has none of its own."""
    if request.agent is None or request.agent_from is not None:
        return request
    cwd = Path(request.cwd or ".")
    saved = _sound(find(request.agent, config, environ, cwd), config, cwd)
    given = {
        name: value
        for name in RunRequest.__struct_fields__
        if (value := getattr(request, name)) != _default(name) or name == "prompt"
    }
    if request.limits != Limits():
        given["limits"] = {
            name: value
            for name in Limits.__struct_fields__
            if (value := getattr(request.limits, name)) != getattr(Limits(), name)
        }
    bare = msgspec.structs.replace(config, run=configs.RunDefaults())
    return _marked(configs.apply(bare, None, given, agent=fields_of(saved, cwd)), saved)


def _sound(saved: Saved, config: configs.Config, cwd: Path) -> Saved:
    """The agent, or what is wrong with it by file and line; its rules are checked with all others."""
    if wrong := list(_wrong_values(saved, config, cwd)):
        raise Problems(wrong)
    return saved


def _default(name: str) -> Any:
    return getattr(_NOTHING, name)


_NOTHING = RunRequest(prompt="")


def _marked(request: RunRequest, saved: Saved) -> RunRequest:
    policies = (saved.policy, *request.policies) if saved.policy else request.policies
    return msgspec.structs.replace(request, agent_from=saved.origin, policies=policies)


def fields_of(saved: Saved, cwd: Path) -> dict[str, Any]:
    """The agent as fields of a request; what it keeps in files is read."""
    fields: dict[str, Any] = msgspec.to_builtins(saved.agent)
    for name in configs.AGENT_FILES:
        path = fields.get(f"{name}_file")
        if path is not None:
            text = _read(saved, f"{name}_file", path, cwd)
            fields[name] = _schema(saved, text) if name == "output_schema" else text
    return {name: value for name, value in fields.items() if name not in _OF_AGENTS_ONLY}


def _read(saved: Saved, field: str, given: str, cwd: Path) -> str:
    path = Path(saved.source).parent / Path(given).expanduser()
    try:
        return read_named(path, workspaces=(cwd,), most=MOST_BYTES).decode()
    except errors.UnsafeFile as error:
        reason, hint = f"{path} {error.reason}", error.hint
    except UnicodeDecodeError:
        reason, hint = f"{path} is not UTF-8 text", None
    except (OSError, ValueError) as error:
        reason, hint = f"{path} cannot be read: {getattr(error, 'strerror', None) or error}", None
    raise Problems([_problem(saved, field, reason, hint)])


def _schema(saved: Saved, text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise Problems([_problem(saved, "output_schema_file", f"is not JSON: {error}")]) from None


# -- where they are ---------------------------------------------------------------------------------------------------


def find(name: str, config: configs.Config, environ: Mapping[str, str], cwd: Path) -> Saved:
    """The agent of this name; an error says why it cannot be used, or what else may be meant."""
    if name in config.agents:
        return _of_config(name, config)
    if name in config.broken_agents:
        raise config.broken_agents[name].error()
    entries = list(_in_files(environ, cwd))
    for entry in entries:
        if entry.name == name:
            return entry.usable()
    known = list(dict.fromkeys((*config.agents, *config.broken_agents, *(entry.name for entry in entries))))
    close = close_matches(name, known, n=2)
    hint = f"Did you mean {' or '.join(close)}?" if close else None
    if hint is None:
        hint = f"There are: {', '.join(known[:20])}." if known else f"`leadrope agents new {name}` makes one."
    raise errors.BadValue("agent", f"there is no agent {name!r}", hint=hint)


def listing(config: configs.Config, environ: Mapping[str, str], cwd: Path) -> list[AgentEntry]:
    """Every agent that could be meant here, with what is wrong with it, in the order in which they are looked for."""
    found: list[AgentEntry] = []
    for name in config.agents:
        try:
            saved = _of_config(name, config)
            problems = tuple(mistakes(saved, config, cwd))
        except Problems as error:
            saved, problems = None, error.problems
        found.append(AgentEntry(name=name, origin="config", source=config.source, saved=saved, problems=problems))
    for name, broken in config.broken_agents.items():
        problems = (_in_config(config, name, broken),)
        found.append(AgentEntry(name=name, origin="config", source=config.source, problems=problems))
    for entry in _in_files(environ, cwd):
        problems = entry.problems or tuple(mistakes(entry.saved, config, cwd) if entry.saved else ())
        found.append(msgspec.structs.replace(entry, problems=problems))
    seen: set[str] = set()
    for place, entry in enumerate(found):
        if entry.name in seen:
            found[place] = msgspec.structs.replace(entry, is_hidden=True)
        seen.add(entry.name)
    return found


def _in_config(config: configs.Config, name: str, broken: configs.BrokenAgent) -> FileProblem:
    """The same in the words of lists, which name file and line by themselves."""
    place = re.match(rf"{re.escape(config.source)}(?::(\d+))?: (?:([\w.-]+)(?::| (?=is not))\s*)?", broken.message)
    if place is None:
        return FileProblem(file=config.source, where=f"agents.{name}", message=broken.message, hint=broken.hint)
    line, where = place[1], place[2] or f"agents.{name}"
    return FileProblem(
        file=config.source,
        line=int(line) if line else None,
        where=where,
        message=broken.message[place.end() :],
        hint=broken.hint,
    )


def broken_notices(config: configs.Config, others: Mapping[str, Sequence[FileProblem]]) -> list[str]:
    """One sentence for each agent of the configuration that cannot be used; `others` are those with wrong rules."""
    told = {name: (broken.message, broken.hint) for name, broken in config.broken_agents.items()}
    told = {name: (str(problems[0]), problems[0].hint) for name, problems in others.items()} | told
    return [
        f"the agent {name} cannot be used: {message}{f'. {hint}' if hint else ''}"
        for name, (message, hint) in told.items()
    ]


def names(config: configs.Config, environ: Mapping[str, str], cwd: Path) -> list[str]:
    """Of all that can be used here."""
    usable = [entry.name for entry in _in_files(environ, cwd) if entry.saved is not None]
    return list(dict.fromkeys((*config.agents, *usable)))


def _of_config(name: str, config: configs.Config) -> Saved:
    return Saved(name=name, origin="config", source=config.source, agent=config.agents[name])


def _in_files(environ: Mapping[str, str], cwd: Path) -> Iterator[AgentEntry]:
    yield from _below(user_folder(environ), "user")
    yield from _of_repository(environ, cwd)


def user_folder(environ: Mapping[str, str]) -> Path:
    return home.claude_dir(environ) / "agents"


def _of_repository(environ: Mapping[str, str], cwd: Path) -> Iterator[AgentEntry]:
    user_home = home.user_home(environ)
    try:
        folder = cwd.resolve(strict=True)
    except (OSError, RuntimeError):  # the latter for a link to itself
        return  # the run itself says what is wrong with its folder
    where = [place / "agents" for place in places(folder, user_home)]
    where = [place for place in where if place != user_folder(environ) and os.path.lexists(place)]
    if not where:
        return
    found = trust.look(home.leadrope_home(environ), str(folder), user_home)
    for place in where:
        yield from _below(place, "repository", found)


_WAYS = {
    "untrusted": "the repository's agents are not trusted",
    "changed": "the repository's files changed since they were trusted",
    "nothing": "the repository's agents are not trusted",
}


def _below(place: Path, origin: Origin, trusted: trust.Trust | None = None) -> Iterator[AgentEntry]:
    """The agents of one folder, by path. No link is followed, and what is not a plain file is passed over."""
    try:
        folder = Folder.open(place, hard_links=True, follows=origin == "user")
    except (OSError, errors.UnsafeFile):
        return
    with folder:
        try:
            found = sorted(entry.path for entry in folder.walk(most=MOST_FILES, most_depth=8) if entry.kind == "file")
        except (OSError, errors.UnsafeFile) as error:
            problem = FileProblem(file=str(place), message=f"cannot be read: {error}")
            yield AgentEntry(name=place.name, origin=origin, source=str(place), problems=(problem,))
            return
        for path in found:
            if path.endswith(".md") and is_text(path):
                yield _entry(folder, place / path, path, origin, trusted)


def _entry(folder: Folder, path: Path, relative: str, origin: Origin, trusted: trust.Trust | None) -> AgentEntry:
    from leadrope.runtime.agents import agent_files  # noqa: PLC0415  # only where there is one

    source, stem = str(path), path.stem
    try:
        content = folder.read_bytes(relative, most=MOST_BYTES)
        text = content.decode()
    except (OSError, errors.UnsafeFile, UnicodeDecodeError) as error:
        problem = FileProblem(file=source, message=f"cannot be read: {error}")
        return AgentEntry(name=stem, origin=origin, source=source, problems=(problem,))
    entry = AgentEntry(name=agent_files.name_in(text, stem), origin=origin, source=source)
    if trusted is not None:
        known = trusted.files.get(os.path.relpath(path, trusted.folder))
        # The very bytes that were trusted: the file may have been exchanged since it was looked at.
        if trusted.state != "trusted" or known != hashlib.sha256(content).hexdigest():
            way = trusted.problem or "Look at them with `leadrope trust`, which lets them have effect."
            problem = FileProblem(file=source, message=_WAYS.get(trusted.state, _WAYS["changed"]), hint=way)
            return msgspec.structs.replace(entry, problems=(problem,))
    try:
        told = agent_files.parse(text, source, stem=stem, origin=origin)
    except Problems as error:
        return msgspec.structs.replace(entry, problems=error.problems)
    saved = Saved(
        name=told.name, origin=origin, source=source, agent=told.agent, policy=told.policy, notices=told.notices
    )
    return msgspec.structs.replace(entry, name=told.name, saved=saved)


# -- what is wrong with one -------------------------------------------------------------------------------------------


def mistakes(saved: Saved, config: configs.Config, cwd: Path) -> Iterator[FileProblem]:
    """What a run with this agent would be refused for, as far as its own values and rules go."""
    wrong = list(_wrong_values(saved, config, cwd))
    yield from wrong
    if saved.policy:
        try:
            rules_of(saved.policy)
        except errors.BadValue as error:
            yield _problem(saved, "tools", error.message, error.hint)
    elif saved.agent.policy is not msgspec.UNSET and not wrong:
        try:
            policy_file.read_user(Path(saved.source))
        except Problems as refused:
            start = f"agents.{saved.name}."
            yield from (problem for problem in refused.problems if problem.where.startswith(start))


def _wrong_values(saved: Saved, config: configs.Config, cwd: Path) -> Iterator[FileProblem]:
    bare = msgspec.structs.replace(config, run=configs.RunDefaults())
    try:
        request = check(configs.apply(bare, None, {"prompt": "-"}, agent=fields_of(saved, cwd)))
    except Problems as error:
        yield from error.problems
        return
    except errors.BadValue as error:
        message = error.message.removeprefix(f"{error.field}: ")
        yield _problem(saved, error.field, message, error.hint)
        return
    except errors.BadConfig as error:
        yield FileProblem(file=saved.source, where=f"agents.{saved.name}", message=error.message, hint=error.hint)
        return
    for wrong in config_values.mistakes(saved.agent):
        yield _problem(saved, wrong.field, wrong.message.removeprefix(f"{wrong.field}: "), wrong.hint)
    from leadrope.runtime.agents import agent_files  # noqa: PLC0415  # only where agents are checked

    for field in ("tools", "disallowed_tools", "allow"):
        for entry in getattr(request, field) or ():
            try:
                patterns.parse(agent_files.own_form(entry))
            except errors.BadValue as error:
                yield _problem(saved, field, error.message.partition(": ")[2], error.hint)


def _problem(saved: Saved, field: str, message: str, hint: str | None = None) -> FileProblem:
    if saved.origin != "config":
        return FileProblem(file=saved.source, where=field, message=message, hint=hint)
    key = ("agents", saved.name, *field.split("."))
    try:
        return TomlDocument.read(Path(saved.source)).problem(key, message, hint)
    except (FileNotFoundError, Problems):
        return FileProblem(file=saved.source, where=".".join(key), message=message, hint=hint)
