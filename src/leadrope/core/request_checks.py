"""Whether a request can be meant: every value of its type and in its range, before anything is started."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

import msgspec

from leadrope import errors
from leadrope.core import models
from leadrope.core.output import schema
from leadrope.core.request import MODE_ALIASES, OPTIONS, Limits, McpServer, Mode, RunRequest
from leadrope.core.request_parts import agent_sandbox, subagents
from leadrope.core.request_parts.option import type_of
from leadrope.core.request_parts.sequences import as_tuple
from leadrope.core.secrets.redaction import SHORTEST, Secret
from leadrope.core.text.toml_lines import dotted
from leadrope.regex import regex
from leadrope.spelling import close_matches

_WORDS = {
    name: get_args(kind)
    for name in RunRequest.__struct_fields__
    if name in OPTIONS and get_origin(kind := type_of(RunRequest, name)) is Literal
}
"""The options that are one of a few words; the mode has words of other programs, too."""
_SEQUENCES = tuple(name for name in RunRequest.__struct_fields__ if get_origin(type_of(RunRequest, name)) is tuple)
_UUID = regex(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_VARIABLE = regex(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER = regex(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_URL_EXAMPLE = "For example http://localhost:8000."
_SERVER_NAME = regex(r"[A-Za-z0-9_-]{1,64}")


def normal_mode(mode: object) -> Mode:
    """Our name for a mode; the agent's own spellings are understood."""
    name = MODE_ALIASES.get(mode, mode) if isinstance(mode, str) else mode
    if name not in get_args(Mode):
        known = {word.lower(): word for word in (*get_args(Mode), *MODE_ALIASES)}
        close = close_matches(str(mode).lower(), known, n=1)
        hint = f"Did you mean {known[close[0]]}? " if close else ""
        raise errors.BadValue("mode", f"{mode!r} is not a mode", hint=f"{hint}Use one of: {', '.join(get_args(Mode))}.")
    return name  # type: ignore[return-value]  # checked against the Literal's own members


def check_words(values: Mapping[str, Any]) -> None:
    """Refuses an unknown mode, billing, effort and the like with the words that are known.

    Before the types are checked: what a type check says of a wrong word names none of the right ones.
    """
    if "mode" in values:
        normal_mode(values["mode"])
    if isinstance(values.get("sandbox"), Mapping):
        raise errors.BadValue(
            "sandbox",
            f"is the level of leadrope's sandbox: {', '.join(_WORDS['sandbox'])}",
            hint="Settings of the agent program's own sandbox are called agent_sandbox.",
        )
    for name, words in _WORDS.items():
        if values.get(name) is not None:
            _one_of(name, values[name], words)


def with_tuples(request: RunRequest) -> RunRequest:
    """The request with a tuple wherever a list or another collection was given; a bare text is refused."""
    given = {name: getattr(request, name) for name in _SEQUENCES}
    changes = {name: as_tuple(name, value) for name, value in given.items() if not isinstance(value, tuple | None)}
    return msgspec.structs.replace(request, **changes) if changes else request


def check(request: RunRequest) -> RunRequest:
    """The request with every value of its declared type, or the first thing that is wrong with it.

    Looks at values only; directories are runtime's.
    """
    check_words({name: getattr(request, name) for name in ("mode", *_WORDS)})
    request = _typed(with_tuples(request))
    if not request.prompt.strip():
        raise errors.EmptyPrompt(
            "the prompt is empty",
            hint="Give the agent something to do.",
        )
    if request.purpose is not None:
        models.check_purpose(request.purpose)
    _check_filled(request)
    for field, option in OPTIONS.items():
        value = None if option.low is None else getattr(request, field)
        if value is not None and not option.low <= value <= option.high:
            raise errors.BadValue(field, f"{value} is out of range", hint=f"Use {option.low} to {option.high}.")
    _check_limits(request.limits)
    _check_session(request)
    if request.output_schema is not None and request.max_turns is not None and request.max_turns < 2:
        raise errors.BadValue(
            "max_turns",
            "an output schema needs at least 2 turns, one of them to hand over the answer",
            hint="Raise max_turns to 2 or more, or leave it out.",
        )
    if request.output_schema is not None:
        schema.read(request.output_schema)
    if request.base_url is not None and not re.fullmatch(r"https?://[^\s/]\S*", request.base_url):
        raise errors.BadValue(
            "base_url", f"{request.base_url!r} must start with http:// or https://", hint=_URL_EXAMPLE
        )
    for name, server in request.connections.items():
        check_connection(name, server)
    if request.agent_sandbox is not None:
        agent_sandbox.check(request.agent_sandbox)
    subagents.check(request.subagents)
    for name in request.secret_variables:
        if 0 < len(request.variables.get(name, "")) < SHORTEST:
            raise errors.BadValue(
                "secret_variables",
                f"the value of {name} is too short to be taken out of texts: it would take ordinary words with it",
                hint=f"A secret needs {SHORTEST} characters or more.",
            )
    return request


def _check_filled(request: RunRequest) -> None:
    """An empty name is most often a variable of a script that was not set."""
    for field, option in OPTIONS.items():
        value = getattr(request, field) if option.if_empty else ()
        for one in value if isinstance(value, tuple) else (value,):
            if one is not None and not one.strip():
                raise errors.BadValue(field, "is empty", hint=option.if_empty)


def _typed(request: RunRequest) -> RunRequest:
    given: Any = request.output_schema
    if not isinstance(given, dict | None):
        schema.read(given)
    # A struct takes whatever it is given; a text in place of a number must not surface as a TypeError later.
    if not isinstance(request.credential, Secret | None):
        raise errors.BadValue("credential", "is not a Secret", hint="Wrap it: Secret(value).")
    try:
        plain = msgspec.to_builtins(msgspec.structs.replace(request, credential=None))
        check_text(plain)
        return msgspec.structs.replace(msgspec.convert(plain, RunRequest), credential=request.credential)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$.")
        raise errors.BadValue(path.rstrip("`") or "request", message) from None
    except (TypeError, msgspec.EncodeError) as error:
        raise errors.BadValue("request", f"holds a value that JSON cannot carry: {error}") from None


def check_text(values: Mapping[str, Any]) -> None:
    """Refuses what is not text by the name of its field: events, logs and the agent's input are UTF-8.

    Bytes of a terminal or a file name that are not UTF-8 come to Python as halves of surrogate pairs.
    """
    for field, value in values.items():
        try:
            msgspec.json.encode(value)
        except UnicodeEncodeError:
            raise errors.BadValue(
                field, "holds bytes that are not UTF-8 text", hint="Look at the encoding of where it comes from."
            ) from None


def check_connection(name: str, server: McpServer) -> None:
    field = dotted("connections", name)
    if not _SERVER_NAME.fullmatch(name):
        hint = f"Name it {re.sub('[^A-Za-z0-9_-]+', '-', name)[:64] or 'docs'}."
        raise errors.BadValue(field, "the name may hold letters, digits, - and _ only", hint=hint)
    if bool(server.command) == bool(server.url):
        raise errors.BadValue(
            field,
            "needs either a command (stdio) or a url (http, sse)",
            hint='For example command = "npx" with args = ["server"], or url = "http://localhost:8000/mcp".',
        )
    if server.url and not re.match(r"https?://", server.url):
        raise errors.BadValue(f"{field}.url", f"{server.url!r} must start with http:// or https://", hint=_URL_EXAMPLE)
    if server.type == "stdio" and server.url:
        raise errors.BadValue(f"{field}.type", "stdio takes a command, not a url", hint="Leave type out.")
    if server.type in ("http", "sse") and server.command:
        raise errors.BadValue(f"{field}.type", f"{server.type} takes a url, not a command", hint="Leave type out.")
    if server.timeout is not None and server.timeout <= 0:
        raise errors.BadValue(
            f"{field}.timeout", f"{server.timeout} is not a number above zero", hint="Write milliseconds: 60000."
        )
    for key, takes, hint in (
        ("headers", server.url, "Pass it in env or args, or write a url in place of the command."),
        ("args", server.command, "Leave them out, or write a command in place of the url."),
        ("env", server.command, "Write them as headers, or write a command in place of the url."),
    ):
        if getattr(server, key) and not takes:
            kind = "command" if server.command else "url"
            raise errors.BadValue(f"{field}.{key}", f"a connection with a {kind} has no {key}", hint=hint)
    for key in server.env:
        if not _VARIABLE.fullmatch(key):
            hint = "Use letters, digits and _, and start with a letter."
            raise errors.BadValue(f"{field}.env.{key}", "cannot be the name of a variable", hint=hint)
    for key in server.headers:
        if not _HEADER.fullmatch(key):
            hint = "Use letters, digits and -: X-Api-Key."
            raise errors.BadValue(f"{field}.headers.{key}", "cannot be the name of a header", hint=hint)


_NO_BUDGET = "Write an amount in USD, or none for no cap of the run's own."


def _check_limits(limits: Limits) -> None:
    for name in Limits.__struct_fields__:
        value = getattr(limits, name)
        if value in (None, "none") or (math.isfinite(value) and value >= 0):
            continue
        is_budget = name == "budget_usd"
        wrong = f"{value:g} is not {'an amount above zero' if is_budget else 'a number of zero or more'}"
        raise errors.BadValue(f"limits.{name}", wrong, hint=_NO_BUDGET if is_budget else "Write 0 for no limit.")
    if limits.budget_usd == 0:
        raise errors.BadValue("limits.budget_usd", "0 would end the run before its first request", hint=_NO_BUDGET)


def _check_session(request: RunRequest) -> None:
    if request.session_id is not None:
        # Not uuid.UUID(): it also takes braces, a urn: and bare digits, which the agent refuses.
        if not _UUID.fullmatch(request.session_id):
            raise errors.BadValue("session_id", f"{request.session_id!r} is not a UUID")
        if request.resume and not request.fork:
            raise errors.BadValue(
                "session_id", "a resumed session keeps its id", hint="Add fork, or drop one of the two."
            )
    if request.fork and not request.resume:
        raise errors.BadValue("fork", "there is nothing to fork", hint="Say which session with resume.")
    if request.resume is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", request.resume):
        raise errors.BadValue("resume", f"{request.resume!r} is not a session id")


def _one_of(field: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        close = close_matches(str(value).lower(), allowed, n=1)
        meant = f"Did you mean {close[0]}? " if close else ""
        raise errors.BadValue(field, f"{value!r} is not known", hint=f"{meant}Use one of: {', '.join(allowed)}.")
