"""Programs whose purpose is to start another: determines from their words what they would start."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable

import msgspec

from leadrope.policy.programs.effects import Grammar, ProgramEffect, Words, is_stream, parse, unknown_options
from leadrope.policy.shell.words import UNKNOWN, Word, is_name, known
from leadrope.regex import regex


class _Wrapper(msgspec.Struct, frozen=True):
    grammar: Grammar
    operands: int = 0
    assigns: bool = False
    alone: bool = True
    """Whether it is harmless without a command."""


_WRAPPERS: dict[str, _Wrapper] = {
    "nohup": _Wrapper(Grammar()),
    "timeout": _Wrapper(
        Grammar("v", "ks", ("--foreground", "--preserve-status", "--verbose"), ("--kill-after", "--signal")), operands=1
    ),
    "nice": _Wrapper(Grammar("", "n", (), ("--adjustment",), r"--?\d+")),
    "ionice": _Wrapper(Grammar("t", "cn", ("--ignore",), ("--class", "--classdata"))),
    "stdbuf": _Wrapper(Grammar("", "ioe", (), ("--input", "--output", "--error"))),
    "setsid": _Wrapper(Grammar("cfw", "", ("--ctty", "--fork", "--wait"))),
    "time": _Wrapper(Grammar("pvaq", "fo", ("--portability", "--verbose"), ("--format", "--output"))),
    "chrt": _Wrapper(Grammar("bfior"), operands=1),
    "taskset": _Wrapper(Grammar("ac"), operands=1),
    "sudo": _Wrapper(
        Grammar("nEHkKSbPv", "ugpT", ("--non-interactive", "--preserve-env", "--set-home"), ("--user", "--group")),
        assigns=True,
    ),
    "doas": _Wrapper(Grammar("n", "u")),
    "command": _Wrapper(Grammar("p")),
    "builtin": _Wrapper(Grammar()),
    "exec": _Wrapper(Grammar("cl", "a")),
    "env": _Wrapper(Grammar("i0v", "u", ("--ignore-environment", "--null", "--debug"), ("--unset",)), assigns=True),
    "busybox": _Wrapper(Grammar()),
    "npx": _Wrapper(Grammar("yq", "", ("--yes", "--no-install", "--no", "--quiet"))),
    "uv run": _Wrapper(
        Grammar("q", "", ("--quiet", "--frozen", "--locked", "--no-sync", "--offline"), ("--group", "--extra"))
    ),
    "poetry run": _Wrapper(Grammar()),
    "pipenv run": _Wrapper(Grammar()),
    "pdm run": _Wrapper(Grammar()),
    "hatch run": _Wrapper(Grammar()),
    "bundle exec": _Wrapper(Grammar()),
    "yarn exec": _Wrapper(Grammar()),
    "pnpm exec": _Wrapper(Grammar()),
    "dotenv run": _Wrapper(Grammar()),
    "coverage run": _Wrapper(Grammar("ap", "", ("--append", "--branch", "--parallel-mode"), ("--source", "--omit"))),
}
_PAIRS = frozenset(name.split()[0] for name in _WRAPPERS if " " in name)
_LOOKUPS = frozenset(("-v", "-V"))

_SHELLS = frozenset(
    ("sh", "bash", "dash", "ash", "zsh", "ksh", "ksh93", "mksh", "fish", "csh", "tcsh", "rbash", "yash")
)
_SHELL_GRAMMAR = Grammar("cexuvlfhmBCns", "o", ("--login", "--norc", "--noprofile", "--posix", "--verbose"))
# Syntax that only bash reads as bash does. `[[ a && evil ]]` and `((evil))` start evil in dash, and so does `$'\' ;
# evil '`.
_BASH_ONLY = regex(r"\[\[|(?<!\$)\(\(|\$['\"]|&>|<<<|[<>]\(|\|&|=\(|;&|\b(?:function|select|time|coproc)\b")

_XARGS = Grammar(
    "0rtpxo",
    "nPLdsaIE",
    ("--null", "--no-run-if-empty", "--verbose", "--exit", "--interactive"),
    ("--max-args", "--max-procs", "--max-lines", "--delimiter", "--arg-file", "--max-chars", "--replace"),
)
_FIND_STARTS = ("-exec", "-execdir", "-ok", "-okdir")
_FIND_MANY = ("-exec", "-execdir")
_FIND_ACTS = (*_FIND_STARTS, "-delete", "-fprint", "-fprint0", "-fprintf", "-fls")


def only_bash(text: str) -> bool:
    return _BASH_ONLY.search(text) is not None


def wrapper(name: str, words: Words) -> ProgramEffect | None:
    """Returns what a wrapper starts; None if `name` is not a wrapper. `words` are those after the name."""
    if name in _PAIRS:
        if words and f"{name} {words[0].text}" in _WRAPPERS:
            return _wrapped(f"{name} {words[0].text}", words[1:])
        return None
    if name in _WRAPPERS:
        if name == "command" and words and words[0].text in _LOOKUPS:
            return ProgramEffect(role="builtin")
        if name == "env" and words and words[0].text == "-":
            words = words[1:]
        return _wrapped(name, words)
    if name in _SHELLS:
        return _shell(name, words)
    special = _SPECIAL.get(name)
    return special(words) if special else None


def _wrapped(name: str, words: Words) -> ProgramEffect:
    shape = _WRAPPERS[name]
    parsed = parse(words, shape.grammar)
    if parsed is None:
        return unknown_options(name)
    rest = list(parsed.rest)
    for word in rest[: shape.operands]:
        if word.splits or word.glob or (word.text is None and word.could_be_option):
            return ProgramEffect(role="wrapper", opaque=f"{name} with a value that may be several words, or an option")
    rest = rest[shape.operands :]
    assigns: list[tuple[str, Word]] = []
    while shape.assigns and rest:
        label, equals, value = rest[0].lead.partition("=")
        if not equals or not label:
            break
        if rest[0].splits or not is_name(label):
            return ProgramEffect(role="wrapper", opaque=f"{name} with a variable that is not known here")
        assigns.append((label, known(value) if rest[0].text is not None else Word(None)))
        rest = rest[1:]
    starts = (tuple(rest),) if rest else ()
    written = [value or UNKNOWN for option, value in parsed.options if name == "time" and option in ("-o", "--output")]
    if name == "coverage run":
        starts = ((known("python"), *rest),)
    return ProgramEffect(role="wrapper", starts=starts, assigns=tuple(assigns), writes=tuple(written))


def _shell(name: str, words: Words) -> ProgramEffect:
    parsed = parse(words, _SHELL_GRAMMAR)
    if len(words) == 1 and words[0].text in ("--version", "--help"):
        return ProgramEffect()
    if parsed is None:
        return unknown_options(name)
    if any(option == "-c" for option, _ in parsed.options):
        text = parsed.rest[0] if parsed.rest else UNKNOWN
        if text.text == "-" or text.lead.startswith("+"):
            # An option, or the end of the options: the text is another word.
            return unknown_options(name)
        if text.text is None or text.splits or text.glob:
            return ProgramEffect(role="wrapper", opaque=f"{name} -c with a text that is not known")
        foreign = name not in ("sh", "bash", "dash", "ash", "rbash")
        return ProgramEffect(
            role="wrapper",
            texts=(text.text,),
            posix=name != "bash",
            opaque=f"a text for {name}, whose grammar is not known here" if foreign else "",
        )
    if parsed.rest and parsed.rest[0].lead.startswith("+"):
        return unknown_options(name)
    if parsed.rest and all(option != "-s" for option, _ in parsed.options):
        if is_stream(parsed.rest[0]):
            return ProgramEffect(role="wrapper", opaque=f"{name} runs a text that is not known")
        return ProgramEffect(role="runner", unknown=f"{name} runs a script whose content is not known")
    return ProgramEffect(role="wrapper", opaque=f"{name} runs what it reads from its input")


def _xargs(words: Words) -> ProgramEffect:
    parsed = parse(words, _XARGS)
    if parsed is None:
        return unknown_options("xargs")
    marks = [value for option, value in parsed.options if option in ("-I", "--replace")]
    if not parsed.rest:
        return ProgramEffect(role="wrapper")
    if not marks:
        return ProgramEffect(role="wrapper", starts=((*parsed.rest, UNKNOWN),))
    mark = marks[-1].text if marks[-1] else "{}"
    if not mark:
        return ProgramEffect(role="wrapper", opaque="xargs with a mark that is not known")

    def fill(word: Word) -> Word:
        if word.text is None or mark not in word.text:
            return word
        before, _, after = word.text.partition(mark)
        return Word(None, before, after.rpartition(mark)[2])

    return ProgramEffect(role="wrapper", starts=(tuple(fill(word) for word in parsed.rest),))


def _find(words: Words) -> ProgramEffect:
    starts: list[tuple[Word, ...]] = []
    writes: list[Word] = []
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if word.text is None:
            if word.splits or word.could_be_option:
                return ProgramEffect(role="wrapper", opaque="find with a word that is not known")
        elif word.glob:
            if any(fnmatch.fnmatchcase(act, word.text) for act in _FIND_ACTS):
                return ProgramEffect(role="wrapper", opaque="find with a pattern that may become an action")
        elif word.text in _FIND_STARTS:
            end = index
            # A `+` ends the action only directly after `{}`; anywhere else it is an ordinary word.
            while end < len(words) and not (
                words[end].text == ";"
                or (words[end].text == "+" and end > index and words[end - 1].text == "{}" and word.text in _FIND_MANY)
            ):
                end += 1
            inner = tuple(_place(w) for w in words[index:end])
            if not inner or end == len(words):
                return ProgramEffect(role="wrapper", opaque="find with an action that has no end")
            starts.append(inner)
            index = end + 1
        elif word.text in ("-fprint", "-fprint0", "-fprintf", "-fls"):
            writes.append(words[index] if index < len(words) else UNKNOWN)
        elif word.text == "-files0-from":
            return unknown_options("find")
    return ProgramEffect(role="wrapper", starts=tuple(starts), writes=tuple(writes))


def _place(word: Word) -> Word:
    """Replaces `{}` by an unknown path, without a leading dash unless find was told to start at such a name."""
    if word.text is None or "{}" not in word.text:
        return word
    return Word(None, word.text.partition("{}")[0] or "./", word.text.rpartition("{}")[2])


def _eval(words: Words) -> ProgramEffect:
    return ProgramEffect(role="wrapper", opaque="eval runs a text that it puts together", texts=_text(words))


def _text(words: Words) -> tuple[str, ...]:
    texts = [word.text for word in words if word.text is not None]
    return (" ".join(texts),) if texts and len(texts) == len(words) else ()


def _source(words: Words) -> ProgramEffect:
    if (
        len(words) == 1
        and re.fullmatch(r"(?:[\w.-]+/)*\.?v?env/bin/activate", words[0].text or "")
        and not words[0].glob
    ):
        # A project's own environment is as much a file of the project as the scripts in it.
        return ProgramEffect(role="script")
    if len(words) > 0 and not is_stream(words[0]):
        # It runs in this very shell: it may redefine every name that follows.
        return ProgramEffect(role="wrapper", opaque="source runs a file whose content is not known")
    return ProgramEffect(role="wrapper", opaque="source runs a text that is not known")


def _trap(words: Words) -> ProgramEffect:
    if not words or words[0].text in ("-", "-p", "-l"):
        return ProgramEffect(role="builtin")
    if words[0].text is None or words[0].text.startswith("-"):
        return ProgramEffect(role="wrapper", opaque="trap with a text that is not known")
    return ProgramEffect(role="wrapper", texts=(words[0].text,))


def _su(words: Words) -> ProgramEffect:
    parsed = parse(words, Grammar("lmp", "cs", ("--login",), ("--command", "--shell")), permute=True)
    texts = (
        [value.text for option, value in parsed.options if option in ("-c", "--command") and value] if parsed else []
    )
    return ProgramEffect(role="wrapper", opaque="a shell of another user", texts=tuple(text for text in texts if text))


def _watch(words: Words) -> ProgramEffect:
    parsed = parse(words, Grammar("bcdegtwx", "n"))
    return ProgramEffect(
        role="wrapper", opaque="watch runs its words as a text", texts=_text(parsed.rest) if parsed else ()
    )


def _flock(words: Words) -> ProgramEffect:
    parsed = parse(words, Grammar("nsxue", "w", ("--nonblock", "--shared", "--exclusive"), ("--timeout", "--wait")))
    if parsed is None or len(parsed.rest) < 2 or parsed.rest[0].splits:
        return unknown_options("flock")
    if parsed.rest[1].text in ("-c", "--command"):
        text = parsed.rest[2].text if len(parsed.rest) == 3 else None
        return ProgramEffect(role="wrapper", texts=(text,), posix=True) if text else unknown_options("flock")
    return ProgramEffect(role="wrapper", starts=(parsed.rest[1:],))


def _always(reason: str) -> Callable[[Words], ProgramEffect]:
    return lambda words: ProgramEffect(role="wrapper", opaque=reason, texts=_text(words))


_SPECIAL: dict[str, Callable[[Words], ProgramEffect]] = {
    "xargs": _xargs,
    "find": _find,
    "eval": _eval,
    "source": _source,
    ".": _source,
    "trap": _trap,
    "su": _su,
    "runuser": _su,
    "watch": _watch,
    "flock": _flock,
    "coproc": _always("a coprocess"),
    "parallel": _always("parallel runs texts that it puts together"),
    **{
        name: _always(f"{name} runs another program in a way that is not known here")
        for name in (
            "ssh",
            "scp",
            "sftp",
            "script",
            "strace",
            "ltrace",
            "chroot",
            "unshare",
            "nsenter",
            "setpriv",
            "prlimit",
            "bwrap",
            "gdb",
        )
    },
}
