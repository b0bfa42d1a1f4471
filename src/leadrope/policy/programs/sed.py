"""Reads sed scripts: whether one can start a program or write a file."""

from __future__ import annotations

import re

import msgspec

from leadrope.regex import regex

_ADDRESS = regex(r"\s*(?:\d+(?:~\d+)?|\$|[+~]\d+)")
_PLAIN_COMMANDS = "pdDgGhHnNPxFz="
_FLAGS = regex(r"[gpiImM0-9]*")


class Judged(msgspec.Struct, frozen=True):
    opaque: str = ""
    writes: bool = False


def judge_sed(script: str) -> Judged:
    """Reads the script command by command; an unknown command (`e` and `w` included) makes it opaque."""
    at, end = 0, len(script)
    unknown = Judged("a sed script that may start programs or write files")
    while at < end:
        if script[at] in " \t\n;}":
            at += 1
            continue
        if script[at] == "#":
            at = _line_end(script, at)
            continue
        after = _addresses(script, at)
        if after is None or after >= end:
            return unknown
        command = script[after]
        at = after + 1
        if command == "{":
            continue
        if command == "s":
            after = _substitution(script, at)
        elif command == "y":
            after = _delimited(script, at, 2)
        elif command in "aic":
            after = _line_end(script, at)
        elif command in "btT:":
            found = re.compile(r"\s*[\w-]*").match(script, at)
            after = found.end() if found else at
        elif command in "qQlL":
            found = re.compile(r"\s*\d*").match(script, at)
            after = found.end() if found else at
        elif command in _PLAIN_COMMANDS:
            after = at
        else:
            return unknown
        # Only the end, a blank, `;` or `}` may follow; anything else was misread.
        if after is None or (after < end and script[after] not in " \t\n;}"):
            return unknown
        at = after
    return Judged()


def _line_end(script: str, at: int) -> int:
    """Returns the end of the line, including lines continued with a backslash."""
    while True:
        found = script.find("\n", at)
        if found < 0:
            return len(script)
        if script[found - 1] != "\\":
            return found
        at = found + 1


def _addresses(script: str, at: int) -> int | None:
    for _ in range(2):
        found = _address(script, at)
        if found is None:
            return None
        if found == at:
            break
        at = _blanks(script, found)
        if at < len(script) and script[at] == ",":
            at = _blanks(script, at + 1)
        else:
            break
    at = _blanks(script, at)
    while at < len(script) and script[at] == "!":
        at = _blanks(script, at + 1)
    return at


def _address(script: str, at: int) -> int | None:
    if at >= len(script):
        return at
    if script[at] == "/":
        after = _delimited(script, at, 1)
    elif script[at] == "\\":
        after = _delimited(script, at + 1, 1)
    else:
        found = _ADDRESS.match(script, at)
        return found.end() if found else at
    while after is not None and after < len(script) and script[after] in "IM":
        after += 1
    return after


def _substitution(script: str, at: int) -> int | None:
    after = _delimited(script, at, 2)
    if after is None:
        return None
    flags = _FLAGS.match(script, after)
    return flags.end() if flags else after


def _delimited(script: str, at: int, parts: int) -> int | None:
    """Returns the position after `parts` texts, each ended by the character at `at`.

    Returns None for a bracket that contains that character.
    """
    if at >= len(script):
        return None
    delimiter = script[at]
    if delimiter in "\\\n" or delimiter.isalnum() or delimiter.isspace():
        return None
    at += 1
    for _ in range(parts):
        while at < len(script) and script[at] != delimiter:
            # `[/]` hides a delimiter in some versions of sed and not in others.
            if script[at] == "[" and re.compile(rf"\[[^\]]*{re.escape(delimiter)}").match(script, at):
                return None
            at += 2 if script[at] == "\\" else 1
        if at >= len(script):
            return None
        at += 1
    return at


def _blanks(script: str, at: int) -> int:
    while at < len(script) and script[at] in " \t":
        at += 1
    return at
