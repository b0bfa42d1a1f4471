"""JSON values that somebody wrote into a text: as all of it, in a fenced block, or amid a sentence. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from leadrope.regex import regex

TEXT_CHARS = 4 * 1024 * 1024
"""How much of a text is searched, from its end: an answer stands last."""
LOOK_CHARS = 4 * TEXT_CHARS
"""How much may be read in all. A text of opening brackets would else be read again from each of them."""
FOUND_LIMIT = 50

_FENCE = regex(r"^[ \t]*(`{3,}|~{3,})[ \t]*([^\n]*)$", re.MULTILINE)
"""One line. A pattern of a whole block looks for its end from every opening: 50 kB of openings took it 8 seconds."""
_OPENING = regex(r"[{\[]")
_BEGINS_LIKE_JSON = regex(r"\{\s*\"|\[\s*[\[{\"\d-]")
_SCAN = json.JSONDecoder()


def values_in(text: str) -> list[Any]:
    """What was found, the likeliest answer first.

    That is the whole text, or blocks marked json, other blocks, and objects and arrays in the text, each from the last
    to the first.
    """
    text = text[-TEXT_CHARS:]
    whole = parse(text.strip())
    if whole is not msgspec.UNSET:
        return [whole]
    blocks = list(_blocks(text))
    marked = [body for is_json, body in reversed(blocks) if is_json]
    others = [body for is_json, body in reversed(blocks) if not is_json]
    values = [parse(body.strip()) for body in (*marked, *others)[:FOUND_LIMIT]]
    values += reversed(list(_loose(text)))
    found: list[Any] = []
    for value in values:
        if value is not msgspec.UNSET and not any(_is_same(value, other) for other in found):
            found.append(value)
    return found[:FOUND_LIMIT]


def parse(text: str) -> Any:
    """The JSON value that the text is, or `UNSET`. Integers stay exact; NaN, 1e400 and half characters are no JSON."""
    try:
        return msgspec.json.decode(text.encode())
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return msgspec.UNSET


def _blocks(text: str) -> Iterator[tuple[bool, str]]:
    """Fenced blocks, and whether they are marked as json."""
    fences = list(_FENCE.finditer(text))
    ends: dict[str, list[re.Match[str]]] = {}
    for fence in reversed(fences):
        if not fence[2].strip():
            ends.setdefault(fence[1], []).append(fence)
    over = -1
    for fence in fences:
        if fence.start() < over:
            continue  # inside of the last block, or its end
        following = ends.get(fence[1], [])
        while following and following[-1].start() <= fence.start():
            following.pop()
        if following:
            over = following[-1].end()
            yield fence[2].lower().startswith("json"), text[fence.end() + 1 : following[-1].start()]


def _loose(text: str) -> Iterator[Any]:
    """Balanced objects and arrays, the outermost ones only."""
    at = looked = count = 0
    while count < FOUND_LIMIT and looked < LOOK_CHARS and (opening := _OPENING.search(text, at)):
        start = opening.start()
        try:
            end = _SCAN.raw_decode(text, start)[1]
        except json.JSONDecodeError as error:
            # The library counts the lines before the mistake, from the beginning of the text.
            looked += error.pos - start + 1 + error.pos // 16
            if error.pos >= len(text.rstrip()) and _BEGINS_LIKE_JSON.match(text, start):
                return  # cut off: a piece of an answer is not an answer
            at = start + 1
            continue
        except (RecursionError, ValueError):
            return
        looked += end - start
        count += 1
        yield parse(text[start:end])
        at = end


def _is_same(one: Any, other: Any) -> bool:
    # `1 == True` and `1 == 1.0` for Python, and not for a schema.
    return type(one) is type(other) and one == other and repr(one) == repr(other)
