"""What others wrote, made fit for a terminal, and a tool call in one line. Knows no colours and no layout.

An agent's text may hold escape sequences that move the cursor, set the clipboard or hide a line, and characters that
make a command look like another one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from leadrope.core.text.invisible import INVISIBLE
from leadrope.core.tools import ToolCall, edited_path
from leadrope.regex import regex

_SEQUENCES = regex(
    r"""
      \x1b\[ [0-?]* [ -/]* [@-~]                      # CSI: colours, cursor, modes
      # OSC, DCS and their kin: titles, clipboard
    | (?: \x1b[\]PX^_] | [\x90\x98\x9d-\x9f] ) [^\x07\x1b\x9c]* (?: \x07 | \x1b\\ | \x9c )
    | \x9b [0-?]* [ -/]* [@-~]
    | \x1b [ -/]* [0-~]
    """,
    re.VERBOSE,
)
_WORD = regex(r"[^\s/]+")
_LATIN = regex("[A-Za-z]")
# Phonetic and small capital letters, Greek, Cyrillic, Armenian, Cherokee, letter-like symbols, Roman numerals, letters
# in circles, Coptic, Lisu, full-width and mathematical forms of Latin letters; a dot, slashes and colons that are none;
# and before a word a dash that no program takes for the sign of an option.
_LOOKALIKE = regex(
    "[\u0250-\u02af\u0370-\u03ff\u0400-\u052f\u0531-\u058f\u13a0-\u13ff\u1d00-\u1dbf\u2024\u2044\u2100-\u214f"
    "\u2160-\u217f\u2215\u2216\u2236\u24b6-\u24e9\u29f8\u2c80-\u2cff\ua4d0-\ua4ff\ua789\uab30-\uabbf\uff01-\uff5e"
    "\U0001d400-\U0001d7ff]|(?<![^\\W_])[\u2010-\u2015\u2212\ufe58\ufe63]"
)
# To a shell these are letters of a word, to an eye a gap between two; and marks without a width, an emoji's apart.
_NO_GAP = regex(
    "[\u00a0\u1680\u2000-\u200a\u202f\u205f\u2800\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\ufe00-\ufe0e"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a]|(?<=[\x20-\x7e])\ufe0f"
    "|(?<=[\x21-\x7e])\u3000|\u3000(?=[\x21-\x7e])"
)


def clean(text: str) -> str:
    r"""The text without what a terminal would act on and what an eye cannot see.

    >>> clean("\x1b[31mred\x1b[0m\u202e!")
    'red!'
    """
    text = text.replace("\r\n", "\n")
    return INVISIBLE.sub("", _SEQUENCES.sub("", text))


def exact(text: str) -> str:
    r"""The text with the same characters written out: what is approved must not hide anything.

    >>> exact("rm \u202e x")
    'rm <U+202E> x'
    """
    # Letters first: what is written out has Latin letters of its own.
    return _NO_GAP.sub(_written_out, INVISIBLE.sub(_written_out, _WORD.sub(_mark_lookalikes, text)))


def _written_out(found: re.Match[str]) -> str:
    return f"<U+{ord(found[0]):04X}>"


def _mark_lookalikes(word: re.Match[str]) -> str:
    """An address with one Cyrillic letter is another address: in a word with Latin letters, what only looks so is
    written out. A word that is wholly Greek or Cyrillic is somebody's language, and stays.
    """
    text = word[0]
    if text.isascii() or not _LATIN.search(text):
        return text
    return _LOOKALIKE.sub(_written_out, text)


def one_line(text: str, width: int) -> str:
    """White space folded, and cut with an ellipsis."""
    flat = " ".join(text.split())
    return flat if len(flat) <= width else flat[: max(1, width - 1)] + "…"


# The field of a tool's input that says most about the call.
_TELLING = ("command", "url", "query", "pattern", "skill", "description", "prompt", "script", "name")


def describe(call: ToolCall, *, cwd: str = "", width: int = 100) -> str:
    """The call in a few words: the command, the path, the address."""
    path = edited_path(call)
    if path is not None:
        words = relative(path, cwd)
        if call.name == "Grep" and isinstance(call.input.get("pattern"), str):
            words = f"{call.input['pattern']} in {words}"
    else:
        telling = next((call.input[field] for field in _TELLING if isinstance(call.input.get(field), str)), None)
        words = telling if telling is not None else (_json(call.input) if call.input else "")
    return one_line(exact(words), width)


def relative(path: str, cwd: str) -> str:
    """Inside the working directory the way from there; the full path elsewhere."""
    root = cwd.rstrip("/") + "/"
    return path[len(root) :] if cwd and path.startswith(root) else path


def whole_input(input_: Mapping[str, Any]) -> str:
    """All that a call would do, with nothing left out: a command as it is, any other field under its name.

    Lines of a value are indented below its name, so that no value can pass for another field.
    """
    lines: list[str] = []
    fields = dict(input_)
    if isinstance(fields.get("command"), str):
        lines.append(exact(fields.pop("command")))
    for name, value in fields.items():
        shown = exact(value if isinstance(value, str) else _json(value))
        if "\n" in shown:
            lines += [f"{exact(name)}:", *(f"    {line}" for line in shown.split("\n"))]
        else:
            lines.append(f"{exact(name)}: {shown}")
    return "\n".join(lines) or "(no input)"


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
