"""Connections with their secrets filled in: `${NAME}` stands for a variable, so that no file need hold a key."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping

import msgspec

from leadrope import errors
from leadrope.core.request import McpServer
from leadrope.core.secrets.argument_secrets import in_address, in_arguments
from leadrope.core.secrets.secret_names import is_secret_name
from leadrope.regex import regex

_RANDOM = regex(r"(?=.*[A-Za-z])[A-Za-z0-9_+=~-]{16,}")
"""Letters and digits in one piece: no path, no host, no words."""
_LOGINS = ("authorization", "proxy-authorization", "cookie")
_REFERENCE = regex(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


class Filled(msgspec.Struct, frozen=True, kw_only=True):
    servers: dict[str, McpServer]
    secrets: tuple[str, ...]
    """What must not be shown: see `secrets_of`; and of what variables put into its command, arguments and address, all
    that is neither a path nor a name of something."""


def fill(connections: Mapping[str, McpServer], values: Mapping[str, str]) -> Filled:
    """Replace `${NAME}` and `${NAME:-default}` in commands, arguments, urls, environments and headers."""
    servers: dict[str, McpServer] = {}
    secrets: list[str] = []
    for name, server in connections.items():

        def value(text: str, field: str, name: str = name) -> str:
            secrets.extend(_told(text, values))
            return _filled(text, values, f"connections.{name}.{field}")

        env = {key: value(text, f"env.{key}") for key, text in server.env.items()}
        headers = {key: value(text, f"headers.{key}") for key, text in server.headers.items()}
        servers[name] = msgspec.structs.replace(
            server,
            command=value(server.command, "command") if server.command else None,
            args=tuple(value(text, "args") for text in server.args),
            url=value(server.url, "url") if server.url else None,
            env=env,
            headers=headers,
        )
        secrets.extend(secrets_of(servers[name]))
    return Filled(servers=servers, secrets=tuple(secrets))


def variables(connections: Mapping[str, McpServer]) -> set[str]:
    """The variables that they name."""
    texts = [
        text
        for server in connections.values()
        for text in (server.command, server.url, *server.args, *server.env.values(), *server.headers.values())
    ]
    return {found[1] for text in texts if text for found in _REFERENCE.finditer(text)}


def secrets_of(server: McpServer) -> Iterator[str]:
    """Every value of its environment and its headers, and what `argument_secrets` finds in arguments and address.

    Of a connection that is not filled in yet: without the values that only name a variable.
    """
    for text in (*server.env.values(), *server.headers.values()):
        # `Bearer KEY` is two words; the key alone must not be shown either.
        words = (text, *(word for word in text.split() if len(word) > 8))
        yield from (word for word in dict.fromkeys(words) if "${" not in word)
    yield from in_arguments(server.args)
    if server.url is not None:
        yield from in_address(server.url)


def named_secrets(connections: Mapping[str, McpServer], values: Mapping[str, str]) -> Iterator[str]:
    """What its name says is secret, in their environments, headers, arguments and addresses.

    For texts from many sources: there a plain value (`REGION = "eu-west-1"`) is an ordinary word.
    """
    for name, server in connections.items():
        filled = server
        with contextlib.suppress(errors.BadValue):  # it names what is not set, so that it cannot be used either
            filled = fill({name: server}, values).servers[name]
        env = {key: text for key, text in filled.env.items() if is_secret_name(key)}
        headers = {key: text for key, text in filled.headers.items() if is_secret_name(key) or key.lower() in _LOGINS}
        yield from secrets_of(msgspec.structs.replace(filled, env=env, headers=headers))


def _told(text: str, values: Mapping[str, str]) -> Iterator[str]:
    """What a text gets from variables that must not be shown, by the variable's name or by its look.

    `${HOST}` and `${PROJECT_DIR}` stay readable: blotting them out would make events useless and hide nothing.
    """
    for found in _REFERENCE.finditer(text):
        value = values.get(found[1], "")
        if is_secret_name(found[1]) or (_RANDOM.fullmatch(value) and re.search("[0-9]", value)):
            yield value


def _filled(text: str, values: Mapping[str, str], field: str) -> str:
    def replaced(match: re.Match[str]) -> str:
        found = values.get(match[1])
        if found is None:
            found = match[2]
        if found is None:
            raise errors.BadValue(
                field,
                f"names the variable {match[1]}, which is not set",
                hint=f"Set {match[1]} in your environment or in the .env of LEADROPE_HOME.",
            )
        return found

    return _REFERENCE.sub(replaced, text)
