"""Programs that start others through an option or a setting (git, tar, make, npm and the like): which uses are
harmless.

Runners such as make and npm do what the project's files say; that is not judged here, unless the same command line
could have written those files.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from leadrope.policy.programs.effects import (
    Grammar,
    ProgramEffect,
    Words,
    is_stream,
    options_used,
    other_options,
    parse,
    unknown_options,
)
from leadrope.policy.programs.file_tools import file_tool
from leadrope.policy.programs.git_commands import git
from leadrope.policy.programs.interpreters import interpreter
from leadrope.policy.programs.read_tables import GRAMMARS
from leadrope.policy.shell.words import UNKNOWN, names
from leadrope.regex import regex

_MAKE = Grammar(
    "knsBqtwiS",
    "fC",
    (
        "--keep-going",
        "--dry-run",
        "--silent",
        "--always-make",
        "--no-print-directory",
        "--version",
        "--help",
        "--quiet",
    ),
    ("--directory", "--file", "--makefile"),
    r"-j\d*|--jobs(?:=\d+)?|-l\d*",
)
_NPM_RUNS = names(
    """test t tst run run-script start stop restart install i add ci clean-install ls list outdated view info audit
    version pack root prefix ping whoami search docs why explain fund dedupe prune uninstall remove rm un
    update build lint typecheck dev format check coverage compile"""
)
_NPM_STARTS = names("exec x dlx explore edit config set create init node")
_NPM_OPTIONS = regex(
    r"--(?:silent|save-dev|save-exact|save|global|if-present|workspaces|include-workspace-root|no-audit|no-fund|verbose|json"
    r"|legacy-peer-deps|prefer-offline|ignore-scripts|production|version|frozen-lockfile|depth=\d+|workspace=[\w@/.-]+"
    r"|omit=\w+|force)\Z|-[sDgSEvr]\Z"
)
_INERT_VALUE = regex(
    r"[\d.]*\Z|(?:true|false|yes|no|on|off|debug|release|test|production|development)\Z", re.IGNORECASE
)


class Guard(msgspec.Struct, frozen=True):
    """The few options through which an otherwise harmless program starts another or writes a file."""

    starts: tuple[str, ...] = ()
    letters: str = ""
    writes: tuple[str, ...] = ()
    write_letters: str = ""


_GUARDS: dict[str, Guard] = {
    "sort": Guard(("--compress-program", "--files0-from"), "", ("--output",), "o"),
    "rg": Guard(("--pre", "--hostname-bin", "--search-zip"), "z"),
    "fd": Guard(("--exec", "--exec-batch"), "xX"),
    "man": Guard(("--pager", "--html", "--config-file", "--preprocessor"), "PHC"),
    "zip": Guard(("--unzip-command", "--test"), "T"),
    "tree": Guard((), "", ("--output",), "o"),
    "date": Guard(("--set",), "s"),
    "less": Guard((), "kopPtTD", ("--log-file",), ""),
    "install": Guard(("--strip-program", "--strip"), "s"),
    "split": Guard(("--filter",)),
    "ack": Guard(("--pager", "--ackrc")),
    "ag": Guard(("--pager",)),
    "bat": Guard(("--pager", "--diagnostic")),
    "nm": Guard(("--plugin",)),
    "yq": Guard((), "", ("--inplace", "--split-exp", "--in-place"), "is"),
    "diff": Guard(("--paginate",), "l"),
    "file": Guard(("--uncompress",), "zZ", ("--compile",), "C"),
    "shuf": Guard((), "", ("--output",), "o"),
    "iconv": Guard((), "", ("--output",), "o"),
}
_FILLS = frozenset(("install", "split", "zip"))
_GUARDED_RUNNERS: dict[str, Guard] = {
    "mypy": Guard(("--python-executable", "--install-types")),
    "pylint": Guard(("--init-hook", "--load-plugins", "--rcfile")),
    "pyright": Guard(("--pythonpath", "--venvpath"), "v"),
}


def toolchain(name: str, words: Words) -> ProgramEffect | None:
    """Returns the effect of a program that this module knows; None for others."""
    if name in _SPECIAL:
        return _SPECIAL[name](words)
    if told := file_tool(name, words) or interpreter(name, words):
        return told
    if name in _GUARDED_RUNNERS:
        told = _guarded(name, words, _GUARDED_RUNNERS[name])
        return told if told.opaque else ProgramEffect(role="runner")
    if name in _GUARDS:
        return _guarded(name, words, _GUARDS[name])
    if name in _SUBCOMMANDS:
        return _subcommand(name, words)
    return None


def _guarded(name: str, words: Words, guard: Guard) -> ProgramEffect:
    if options_used(words, guard.starts, guard.letters) or (
        name == "less" and any(w.lead.startswith("+") for w in words)
    ):
        return unknown_options(name)
    if name in _FILLS or options_used(words, guard.writes, guard.write_letters):
        return ProgramEffect(role="writer", writes=(UNKNOWN,))
    if name in GRAMMARS and parse(words, GRAMMARS[name], permute=True) is None:
        return other_options(name, "inert")
    return ProgramEffect()


def _make(words: Words) -> ProgramEffect:
    parsed = parse(words, _MAKE, permute=True)
    if parsed is None:
        return unknown_options("make")
    for option, value in parsed.options:
        if option in ("-f", "--file", "--makefile") and (value is None or is_stream(value)):
            return ProgramEffect(role="runner", opaque="make with rules that are not known")
    for word in parsed.rest:
        if word.glob or word.splits:
            # A file name may be `CC=...`, which make takes for a setting.
            return ProgramEffect(role="runner", opaque="make with a pattern that may become a variable")
        name, equals, value_text = (word.text or "=").partition("=")
        if equals and (not _INERT_VALUE.match(value_text) or not name or name in ("SHELL", "MAKEFLAGS")):
            return ProgramEffect(role="runner", opaque="make with a variable that its rules may run")
    return ProgramEffect(role="runner")


def _npm(words: Words) -> ProgramEffect:
    before = list(words)
    for place, word in enumerate(words):
        if word.text == "--":
            before = list(words[:place])
            break
    operands: list[str] = []
    for word in before:
        if word.text is None or word.glob:
            if word.splits or word.could_be_option:
                return other_options("npm")
        elif word.text.startswith("-"):
            if not _NPM_OPTIONS.match(word.text):
                return other_options("npm")
        else:
            operands.append(word.text)
    if operands and operands[0] not in _NPM_RUNS:
        reason = f"npm {operands[0]} may start any program"
        return (
            ProgramEffect(role="runner", opaque=reason)
            if operands[0] in _NPM_STARTS
            else ProgramEffect(role="runner", unknown=reason)
        )
    return ProgramEffect(role="runner")


class _Verbs(msgspec.Struct, frozen=True):
    plain: frozenset[str]
    starts: tuple[str, ...] = ()
    """Long options that start programs; their single-dash spellings count as well."""
    options: frozenset[str] | None = None
    """The known options; None if none of the program's options writes a file or starts anything."""


def _verbs(plain: str, *starts: str, options: str = "") -> _Verbs:
    return _Verbs(names(plain), starts, names(options) if options else None)


_GO_STARTS = ("-exec", "-toolexec", "-vettool", "-overlay", "-ldflags", "-gcflags", "-asmflags", "-modfile")
_SUBCOMMANDS: dict[str, _Verbs] = {
    "cargo": _verbs(
        "build b check c test t run r clippy fmt doc clean update tree bench new init add fetch metadata version",
        "--config",
        options="""release workspace all all-targets all-features features no-default-features lib bin bins tests test
        example examples package p q quiet v verbose vv j jobs locked offline frozen no-run no-fail-fast doc
        message-format target profile check fix allow-dirty allow-staged open no-deps dev build version help F r
        depth edges invert i e precise benches exclude keep-going timings name edition vcs aggressive""",
    ),
    "go": _verbs(
        "build test vet fmt mod version list doc run get install clean",
        *_GO_STARTS,
        options="""v race run count short cover coverprofile covermode coverpkg bench benchmem benchtime o tags timeout
        parallel json failfast mod u m d n x a p cpu trimpath work shuffle skip list cache testcache modcache i f t
        all help""",
    ),
    "pip": _verbs(
        "install list freeze show check uninstall download",
        "--python",
        "--config-settings",
        options="""r e U q qq v y i c f requirement editable upgrade user no-deps no-cache-dir pre dry-run quiet verbose
        yes index-url extra-index-url find-links no-index break-system-packages force-reinstall constraint format
        outdated local disable-pip-version-check no-input progress-bar files no-build-isolation only-binary no-binary
        help version ignore-installed not-required trusted-host""",
    ),
    "uv": _verbs(
        "sync lock add remove tree pip version",
        "--config-file",
        "--python",
        "-p",
        options="""frozen locked dev no-dev all-extras extra group all-groups q quiet v verbose upgrade U r e
        requirement editable optional offline depth no-cache system index-url format help outdated no-install-project
        check""",
    ),
    "poetry": _verbs(
        "install update add remove show check build lock version",
        options="""no-root no-interaction n q v vv with without only sync dev group G D tree latest outdated o no-update
        help all-extras extras E no-cache dry-run lock regenerate""",
    ),
    "gh": _verbs("pr issue run release status auth search workflow"),
    "kubectl": _verbs("get describe logs version cluster-info top explain api-resources"),
    "docker": _verbs(
        "ps images logs inspect version info stats pull top rm rmi stop start restart kill volume network system"
    ),
    "docker-compose": _verbs("ps logs images version"),
    "systemctl": _verbs("status is-active is-enabled list-units show cat"),
    "brew": _verbs("list info search"),
    "apt": _verbs("list show search"),
    "terraform": _verbs("version fmt validate show"),
    "bundle": _verbs("install list show"),
    "ip": _verbs("a addr link route r"),
}


def _subcommand(name: str, words: Words) -> ProgramEffect:
    verbs = _SUBCOMMANDS[name]
    if not words:
        return ProgramEffect(role="runner")
    verb = words[0].text
    if verb is None or words[0].glob or verb not in verbs.plain | {"--version", "--help", "help", "version"}:
        return ProgramEffect(role="runner", unknown=f"{name} with a command that is not known here")
    starts = {option.lstrip("-") for option in verbs.starts}
    for word in words[1:]:
        text = word.text
        if text is None or word.glob:
            if starts and (word.splits or word.could_be_option):
                return other_options(name)
        elif text == "--":
            break
        elif text[:1] == "-" and text.lstrip("-").partition("=")[0] in starts:
            return unknown_options(name)
        elif text[:1] == "-" and verbs.options is not None and not _is_listed(text, verbs.options):
            return other_options(name)
    return ProgramEffect(role="runner")


def _is_listed(text: str, options: frozenset[str]) -> bool:
    name = text.lstrip("-").partition("=")[0]
    return name in options or (text[1:2] != "-" and name[:1] in options and name[1:].isdigit())


_SPECIAL: dict[str, Callable[[Words], ProgramEffect]] = {
    "git": git,
    "make": _make,
    "gmake": _make,
    "npm": _npm,
    "yarn": _npm,
    "pnpm": _npm,
}
