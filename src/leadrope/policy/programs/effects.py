"""The description of a program's effects, and the parsing of options and operands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from leadrope.policy.shell.words import UNKNOWN, Word, known

Role = Literal["inert", "builtin", "writer", "runner", "git", "script", "wrapper", "unknown"]
Words = Sequence[Word]


class ProgramEffect(msgspec.Struct, frozen=True, kw_only=True):
    """The effects of a program with given words."""

    role: Role = "inert"
    starts: tuple[tuple[Word, ...], ...] = ()
    """The words of each program that it starts."""
    texts: tuple[str, ...] = ()
    """Shell scripts that it runs."""
    posix: bool = False
    """Its shell is not bash: a script that only bash reads as we do is opaque."""
    opaque: str = ""
    """Why the programs that it starts cannot be determined from its words."""
    unknown: str = ""
    """Why its effect is unknown, although its words name all programs that it starts."""
    writes: tuple[Word, ...] = ()
    """Files to which it writes something that could be run later."""
    assigns: tuple[tuple[str, Word], ...] = ()


class Grammar(msgspec.Struct, frozen=True):
    """The options that a program takes; an unlisted option makes it opaque."""

    bare: str = ""
    """Letters without a value."""
    valued: str = ""
    long_bare: tuple[str, ...] = ()
    long_valued: tuple[str, ...] = ()
    pattern: str = ""
    """A regular expression for other forms, such as `-5` of nice."""


class Parsed(msgspec.Struct, frozen=True):
    rest: tuple[Word, ...]
    """The words from the first operand on."""
    options: tuple[tuple[str, Word | None], ...]


def parse(words: Words, grammar: Grammar, *, permute: bool = False) -> Parsed | None:
    """Parses `words` (without the program) into options and operands; None if one is unknown. `--` ends the options.

    With `permute`, options may also follow operands, as in GNU programs.
    """
    options: list[tuple[str, Word | None]] = []
    rest: list[Word] = []
    index = 0
    while index < len(words):
        word = words[index]
        text = word.text
        index += 1
        if text is None or word.glob:
            if not permute:
                return Parsed(tuple(words[index - 1 :]), tuple(options))
            if word.could_be_option or word.splits:
                return None
            rest.append(word)
        elif text == "--":
            rest.extend(words[index:])
            break
        elif len(text) < 2 or text[0] != "-":
            if not permute:
                return Parsed(tuple(words[index - 1 :]), tuple(options))
            rest.append(word)
        elif grammar.pattern and re.fullmatch(grammar.pattern, text):
            options.append((text, None))
        elif text.startswith("--"):
            name, equals, value = text.partition("=")
            if equals and name in grammar.long_valued:
                options.append((name, known(value)))
            elif not equals and name in grammar.long_bare:
                options.append((name, None))
            elif not equals and name in grammar.long_valued and index < len(words) and not words[index].splits:
                options.append((name, words[index]))
                index += 1
            else:
                return None
        else:
            taken = _cluster(text, words[index:], grammar, options)
            if taken is None:
                return None
            index += taken
    return Parsed(tuple(rest), tuple(options))


def _cluster(text: str, after: Words, grammar: Grammar, options: list[tuple[str, Word | None]]) -> int | None:
    for place, letter in enumerate(text[1:], start=2):
        if letter in grammar.bare:
            options.append((f"-{letter}", None))
        elif letter in grammar.valued:
            if place < len(text):
                options.append((f"-{letter}", known(text[place:])))
                return 0
            if not after or after[0].splits or after[0].glob:
                return None
            options.append((f"-{letter}", after[0]))
            return 1
        else:
            return None
    return 0


def _is_one_of(text: str, options: Iterable[str]) -> bool:
    """Whether the word is one of the long options, or an abbreviation of one."""
    if not text.startswith("--") or len(text) < 3:
        return False
    name = text.partition("=")[0]
    return any(option.startswith(name) for option in options)


def options_used(words: Words, options: Iterable[str], letters: str) -> bool:
    """Whether one of `words` could be one of these options. An unknown word could be.

    `--` does not end the options here: it may be the value of the option before it (`sort -k --
    --compress-program=x`).
    """
    options = tuple(options)
    if not options and not letters:
        return False
    for word in words:
        text = word.text
        if text is None or word.glob:
            if word.splits or word.could_be_option:
                return True
        elif _is_one_of(text, options) or (
            text[:1] == "-" and text[1:2] != "-" and any(letter in text for letter in letters)
        ):
            return True
    return False


def unknown_options(name: str) -> ProgramEffect:
    """The effect of a program that may start what an option, or a word after one, says."""
    return ProgramEffect(role="wrapper", opaque=f"{name} with options that are not known here")


def other_options(name: str, role: Role = "runner") -> ProgramEffect:
    """The effect of a program whose known options name no program."""
    return ProgramEffect(role=role, unknown=f"{name} with options that are not known here", writes=(UNKNOWN,))


def is_stream(word: Word) -> bool:
    """Whether the word is, or could be, the output of another program instead of a file of the project."""
    return word.text is None or word.glob or word.text == "-" or word.text.startswith(("/dev/", "/proc/"))
