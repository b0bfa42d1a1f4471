"""Interpreters, awk and sed: whether they run a file of the project, or a text."""

from __future__ import annotations

import re

from leadrope.policy.programs.awk import judge_awk
from leadrope.policy.programs.effects import (
    Grammar,
    ProgramEffect,
    Words,
    is_stream,
    other_options,
    parse,
    unknown_options,
)
from leadrope.policy.programs.sed import judge_sed
from leadrope.policy.shell.words import UNKNOWN, Word, names
from leadrope.regex import regex

_PYTHON = Grammar("uBOsSEIqvbdP", "", ("--version", "--help"), (), r"-V|-W(?:ignore|error|default)|-OO")
# Modules with code of their own, and those that are another name of a program.
_MODULES = names("unittest venv json.tool http.server build compileall py_compile ensurepip site doctest")
_MODULE_PROGRAMS = names("pytest pip mypy ruff black isort flake8 pylint coverage")
_INTERPRETERS: dict[str, Grammar] = {
    "node": Grammar(
        "v", "", ("--version", "--help", "--test", "--check", "--enable-source-maps", "--no-warnings", "--watch")
    ),
    "perl": Grammar("wvtT"),
    "ruby": Grammar("wv", "", ("--version",)),
    "php": Grammar("v", "", ("--version",)),
    "lua": Grammar("v"),
    "Rscript": Grammar("", "", ("--vanilla", "--version")),
    "ts-node": Grammar("", "", ("--version",)),
    "tsx": Grammar("", "", ("--version",)),
    "deno": Grammar("A", "", ("--version", "--no-check", "--watch"), (), r"--allow-[a-z]+(?:=\S*)?"),
    "bun": Grammar("", "", ("--version",)),
    "java": Grammar("", "", ("--version",), (), r"-version"),
}


_VERBS = {"deno": names("test lint fmt check install task bench"), "bun": names("test lint fmt check install")}
"""Verbs that run files of the project, or nothing."""
_SOURCE = regex(r"(?!\w+:)[^\s]+\.[cm]?[jt]sx?")
_AWKS = frozenset(("awk", "gawk", "mawk", "nawk"))
_PYTHONS = regex(r"python(?:\d(?:\.\d+)?)?|pypy3?")


def interpreter(name: str, words: Words) -> ProgramEffect | None:
    """Returns the effect of an interpreter with these words; None if `name` is not an interpreter."""
    if _PYTHONS.fullmatch(name):
        return _python(words)
    if name in _INTERPRETERS:
        return _interpreter(name, words)
    if name == "sed":
        return _sed(words)
    return _awk(words) if name in _AWKS else None


def _python(words: Words) -> ProgramEffect:
    for place, word in enumerate(words):
        if word.text == "-m":
            if parse(words[:place], _PYTHON) is None:
                return other_options("python")
            module = words[place + 1].text if place + 1 < len(words) else None
            if module in _MODULE_PROGRAMS:
                return ProgramEffect(role="runner", starts=(tuple(words[place + 1 :]),))
            known_module = module in _MODULES
            return ProgramEffect(
                role="runner",
                unknown="" if known_module else "python -m with a module that is not known here",
                writes=_module_writes(module, words[place + 2 :]) if known_module else (),
            )
        if word.text is None or not word.text.startswith("-"):
            break
    return _file_of("python", words, _PYTHON)


def _module_writes(module: str | None, words: Words) -> tuple[Word, ...]:
    """Returns the files that a module of Python itself writes with content from its words or its input."""
    operands = tuple(word for word in words if word.text == "-" or not (word.text or "").startswith("-"))
    if module == "json.tool":
        return operands[1:2]
    if module == "venv":
        # Its scripts contain the prompt given by the words.
        return (UNKNOWN if any(word.text is None or word.glob for word in operands) else Word("pyvenv.cfg"),)
    return ()


def _interpreter(name: str, words: Words) -> ProgramEffect:
    if name in _VERBS:
        return _by_verb(name, words)
    if name == "java" and words and words[0].text == "-jar":
        words = words[1:]
    return _file_of(name, words, _INTERPRETERS[name])


def _by_verb(name: str, words: Words) -> ProgramEffect:
    """Judges a first word that is a verb, or a file if its name looks like one: `deno eval TEXT` runs a text."""
    first = words[0].text if words else None
    if first in _VERBS[name]:
        return ProgramEffect(role="runner")
    if first == "run":
        words = words[1:]
    parsed = parse(words, _INTERPRETERS[name])
    if parsed is not None and parsed.rest:
        # `bun run NAME` also takes a script of package.json, `deno run ADDRESS` a program from anywhere.
        is_script = name == "bun" and first == "run" and bool(re.fullmatch(r"[\w:.-]+", parsed.rest[0].text or ""))
        if not is_script and not _SOURCE.fullmatch(parsed.rest[0].text or ""):
            return ProgramEffect(role="runner", unknown=f"{name} with words that are not known here")
    return _file_of(name, words, _INTERPRETERS[name])


def _file_of(name: str, words: Words, grammar: Grammar) -> ProgramEffect:
    """Treats an interpreter with a file of the project as a runner; a text or input makes its effect unknown."""
    parsed = parse(words, grammar)
    if parsed is None:
        return ProgramEffect(role="runner", unknown=f"{name} with a text or options that are not known here")
    if not parsed.rest:
        asks = any(option in ("--version", "--help", "-V", "-v", "--test", "-version") for option, _ in parsed.options)
        return ProgramEffect(role="runner", unknown="" if asks else f"{name} runs what it reads from its input")
    if is_stream(parsed.rest[0]) or parsed.rest[0].splits:
        return ProgramEffect(role="runner", unknown=f"{name} runs a text that is not known")
    return ProgramEffect(role="runner")


def _sed(words: Words) -> ProgramEffect:
    grammar = Grammar(
        "nErsuz",
        "el",
        ("--quiet", "--silent", "--regexp-extended", "--separate", "--null-data", "--posix"),
        ("--expression",),
        r"-i\S*|--in-place(?:=\S*)?|-[nErsuz]+i",
    )
    parsed = parse(words, grammar, permute=True)
    scripts = [value for option, value in parsed.options if option in ("-e", "--expression")] if parsed else []
    rest = parsed.rest if parsed else ()
    if parsed and not scripts:
        scripts, rest = list(rest[:1]), rest[1:]
    if parsed is None or not scripts:
        return unknown_options("sed")
    for script in scripts:
        if script is None or script.text is None or script.glob:
            return ProgramEffect(opaque="sed with a script that is not known")
        judged = judge_sed(script.text)
        if judged.opaque:
            return ProgramEffect(opaque=judged.opaque)
    changes = any(option.startswith(("-i", "--in-place")) or option.endswith("i") for option, _ in parsed.options)
    return ProgramEffect(role="writer" if changes else "inert", writes=tuple(rest) if changes else ())


def _awk(words: Words) -> ProgramEffect:
    parsed = parse(words, Grammar("", "Fv"))
    if parsed is None or not parsed.rest:
        return unknown_options("awk")
    text = parsed.rest[0]
    if text.text is None or text.glob:
        return ProgramEffect(opaque="awk with a program that is not known")
    judged = judge_awk(text.text)
    return ProgramEffect(opaque=judged.opaque, writes=(UNKNOWN,) if judged.writes else ())
