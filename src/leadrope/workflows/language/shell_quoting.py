r"""Inserts values into a shell script as data, each quoted for the context of its template. Pure.

    filled('grep ${word} "${file}"', values.__getitem__)  ->  grep 'a b' "c \$d"

A value never becomes code: if that cannot be guaranteed (inside backticks, after `eval`, in a context that is not
understood), Unquotable says so and suggests other ways to pass the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from leadrope import errors
from leadrope.regex import regex
from leadrope.workflows.language import template_syntax as syntax
from leadrope.workflows.language.templates import as_text

if TYPE_CHECKING:
    from leadrope.workflows.language.shell_contexts import Here, ScriptReader, ShellContext

ADVICE = 'Pass the value by `env` (with "$NAME" in the script) or by `stdin`; a list as `command` needs no quotes.'

_MARKS = ("\ue000", "\ue001", "\uf8ff")
"""Replaces a template while the script is read; the first character that does not occur in the script."""
_NUMBER = regex(r"-?[0-9]{1,18}")
_PLAIN = regex(r"[0-9]{1,18}")


class Unquotable(errors.RequestError):
    """A template is in a place where its value could become code."""

    kind = "unquotable_template"

    def __init__(self, template: str, reason: str) -> None:
        super().__init__(f"{template}: {reason}", hint=ADVICE)
        self.template = template


def filled(source: str, resolve: Callable[[str], Any]) -> str:
    """Returns the script with every template replaced by its value as data. `resolve` gets it with `${` and `}`."""
    pieces = syntax.parse(source)
    expressions = [piece for piece in pieces if isinstance(piece, syntax.Expression)]
    if not expressions:
        return "".join(piece for piece in pieces if isinstance(piece, str))
    reader, mark = _read(pieces)
    texts: list[str] = []
    for expression, place in zip(expressions, reader.places, strict=True):
        if place.how == "refused":
            raise Unquotable(expression.source, place.reason)
        texts.append(_quoted(expression.source, as_text(resolve(expression.source)), place, reader.text))
    for here in reader.heres:
        _check_here(here, reader.text, mark, texts, expressions)
    parts = reader.text.split(mark)
    return parts[0] + "".join(text + part for text, part in zip(texts, parts[1:], strict=True))


def refused(source: str) -> tuple[tuple[str, str], ...]:
    """Returns the templates that cannot be filled with any value, and the reasons, for a check before the start."""
    return tuple((template, place.reason) for template, place in _placed(source) if place.how == "refused")


def as_words(source: str) -> tuple[str, ...]:
    """Returns the unquoted templates of a script; the value of each is one word."""
    return tuple(template for template, place in _placed(source) if place.how == "word")


def _placed(source: str) -> list[tuple[str, ShellContext]]:
    """Returns the templates of a script, each with its context."""
    pieces, problems = syntax.scan(source)
    expressions = [piece for piece in pieces if isinstance(piece, syntax.Expression)]
    if problems or not expressions or is_whole(source):
        return []
    reader, _ = _read(pieces)
    return [(expression.source, place) for expression, place in zip(expressions, reader.places, strict=True)]


def is_whole(source: str) -> bool:
    """Whether the script is a single template: its value is then the script."""
    pieces, problems = syntax.scan(source.strip())
    return not problems and len(pieces) == 1 and isinstance(pieces[0], syntax.Expression)


def _read(pieces: tuple[syntax.Piece, ...]) -> tuple[ScriptReader, str]:
    plain = "".join(piece for piece in pieces if isinstance(piece, str))
    mark = next((mark for mark in _MARKS if mark not in plain), None)
    if mark is None:
        raise errors.BadValue("command", "the script contains characters that no text has (U+E000, U+E001, U+F8FF)")
    from leadrope.workflows.language.shell_contexts import ScriptReader  # noqa: PLC0415  # most scripts have no template

    reader = ScriptReader("".join(piece if isinstance(piece, str) else mark for piece in pieces), mark)
    reader.code(closer="", depth=0)
    return reader, mark


def _quoted(template: str, value: str, place: ShellContext, text: str) -> str:
    if "\0" in value:
        raise Unquotable(template, "its value contains a NUL character, which no shell can take")
    match place.how:
        case "word":
            # A digit before `>` would be a descriptor. Other numbers stay unquoted, for {1..${n}}; nothing else does,
            # since an unquoted `if` or `A=1` as the first word would not be a plain word.
            is_bare = _PLAIN.fullmatch(value) and text[place.at + 1 : place.at + 2] not in ("<", ">")
            return value if is_bare else _single(value, around="'")
        case "double":
            return re.sub(r'([\\$`"])', r"\\\1", value)
        case "single":
            return _single(value)
        case "ansi":
            return value.replace("\\", "\\\\").replace("'", "\\'")
        case "comment":
            return re.sub(r"[\r\n]+", " ", value)
        case "here":
            return re.sub(r"([\\$`])", r"\\\1", value)
        case "here-raw":
            return value
        case "arithmetic" | "number":
            if not _NUMBER.fullmatch(value):
                where = "an arithmetic expression" if place.how == "arithmetic" else "a comparison of numbers"
                raise Unquotable(template, f"{where} evaluates it, and its value is not a whole number: {value[:40]!r}")
            return f"({value})" if place.how == "arithmetic" and value.startswith("-") else value
        case _:
            raise Unquotable(template, place.reason)


def _single(value: str, *, around: str = "") -> str:
    return around + value.replace("'", "'\\''") + around


def _check_here(here: Here, text: str, mark: str, texts: list[str], expressions: list[syntax.Expression]) -> None:
    """Refuses a value that contains the line ending its here-document, alone or together with the text around it."""
    first = text.count(mark, 0, here.start)
    count = text.count(mark, here.start, here.end)
    if not count:
        return
    parts = text[here.start : here.end].split(mark)
    values = texts[first : first + count]
    name = expressions[first].source
    body = parts[0] + "".join(value + part for value, part in zip(values, parts[1:], strict=True))
    if here.strips_tabs and any("\n\t" in value or value.startswith("\t") for value in values):
        raise Unquotable(name, "`<<-` would take the tabs away with which lines of its value begin")
    for line in body.split("\n"):
        if (line.lstrip("\t") if here.strips_tabs else line) == here.delimiter:
            raise Unquotable(name, f"its value contains the line {here.delimiter!r}, which ends the here-document")
