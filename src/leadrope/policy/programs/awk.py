"""Reads awk programs token by token: whether one can start a program or write a file."""

from __future__ import annotations

import re

from leadrope.policy.programs.sed import Judged
from leadrope.policy.shell.words import names
from leadrope.regex import regex

_SPACE = regex(r"[ \t\r]+|\\\n|#[^\n]*")
_STRING = regex(r'"(?:[^"\\\n]|\\.|\\\n)*"', re.DOTALL)
_NUMBER = regex(r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_WORD = regex(r"[A-Za-z_]\w*")
_REGEX = regex(r"/(?:[^/\\\n]|\\.)*/")
# Some versions of awk end the expression at a `/` inside of brackets, others do not.
_BRACKETED_SLASH = regex(r"\[[^\]\n]*/")
_SIGN = regex(r"\|\||&&|[<>=!+\-*/%^]=|\+\+|--|>>|\*\*|\n|.", re.DOTALL)
# After these a `/` begins a regular expression; after any other word it is a division.
_BEFORE_REGEX = names("print printf return exit in case else do if while for BEGIN END delete")
_OPENERS = names("( [ { } ; , ! ~ && || = == != <= >= < > += -= *= /= %= ^= + - * % ^ ? : |") | {"\n"}
_STREAMS = frozenset(('"/dev/stdout"', '"/dev/stderr"', '"/dev/null"'))
_LIVE = "an awk program that may start others"
_UNCLEAR = "an awk program that may be read in two ways"


def tokens(text: str) -> list[str] | None:
    """Returns the tokens of a program; None if it is unclear how awk would split it."""
    found: list[str] = []
    at = 0
    while at < len(text):
        if space := _SPACE.match(text, at):
            at = space.end()
            continue
        char = text[at]
        token: re.Match[str] | None
        if char == '"':
            token = _STRING.match(text, at)
        elif char == "/":
            before = found[-1] if found else "\n"
            if before in ("++", "--", "$", "@"):
                return None
            if before in _OPENERS or before in _BEFORE_REGEX:
                token = _REGEX.match(text, at)
                if token is None or _BRACKETED_SLASH.search(token[0]) or "[" in token[0].rpartition("]")[2]:
                    return None
            else:
                token = _SIGN.match(text, at)
        else:
            token = _NUMBER.match(text, at) or _WORD.match(text, at) or _SIGN.match(text, at)
        if token is None:
            return None
        found.append(token[0])
        at = token.end()
    return found


def judge_awk(text: str) -> Judged:
    """Judges an awk program.

    `system`, `getline`, a pipe or an indirect call starts programs; a `>` after `print` names a file.
    """
    if "\\\r" in text or "\0" in text:
        return Judged(_UNCLEAR)
    found = tokens(text)
    if found is None:
        return Judged(_UNCLEAR)
    prints, depth, writes = False, 0, False
    for place, symbol in enumerate(found):
        if symbol[0] == '"' or (symbol[0] == "/" and len(symbol) > 1 and symbol[-1] == "/"):
            continue
        # Anywhere in a word: some versions of awk read `0xasystem` as a number followed by a call.
        if symbol in ("|", "@") or "system" in symbol or "getline" in symbol:
            return Judged(_LIVE)
        if symbol in ("print", "printf"):
            prints, depth = True, 0
        elif symbol in (";", "{", "}") or (symbol == "\n" and found[place - 1] not in (",", "&&", "||")):
            prints = False
        elif symbol in ("(", "["):
            depth += 1
        elif symbol in (")", "]"):
            depth -= 1
        elif symbol in (">", ">>") and prints and depth <= 0:
            after = found[place + 1 : place + 3]
            is_stream = bool(after) and after[0] in _STREAMS and (len(after) == 1 or after[1] in (";", "\n", "}"))
            writes = writes or not is_stream
    return Judged(writes=writes)
