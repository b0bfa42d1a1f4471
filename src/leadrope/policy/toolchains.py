"""Programs that start others by an option or a setting (git, tar, make, npm and their kin): which uses are plain.

Runners such as make and npm do what the project's files say; that is their own matter, unless the same command line
could have written those files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import msgspec

from leadrope.policy.interpreters import interpreter
from leadrope.policy.shell_words import UNKNOWN, Word, names
from leadrope.policy.wrappers import Grammar, Told, Words, is_stream, other_options, parse, unknown_options

_GIT_PLAIN = names(
    """status diff log show add commit branch checkout switch restore reset merge tag stash fetch pull push clone
    remote rev-parse ls-files blame describe shortlog reflog cherry-pick revert init mv rm clean worktree
    cherry name-rev cat-file ls-tree ls-remote grep format-patch notes count-objects gc fsck show-ref
    symbolic-ref for-each-ref merge-base rev-list diff-tree diff-index diff-files show-branch whatchanged
    version help check-ignore hash-object update-index range-diff rebase config apply am bisect submodule
    var sparse-checkout archive"""
)
_GIT_GLOBAL = Grammar(
    "pP",
    "C",
    ("--no-pager", "--paginate", "--bare", "--no-optional-locks", "--literal-pathspecs", "--version", "--help"),
    ("--git-dir", "--work-tree"),
)
# git takes a long option by any beginning of it that is not ambiguous.
_GIT_STARTS = {
    "": ("--exec", "--upload-pack", "--receive-pack", "--template", "--config", "--ext-diff"),
    "grep": ("--open-files-in-pager",),
    "rebase": ("--interactive", "--strategy"),
    "merge": ("--strategy",),
    "pull": ("--strategy",),
    "cherry-pick": ("--strategy",),
    "revert": ("--strategy",),
    "archive": ("--remote", "--output", "--format"),
    "format-patch": ("--output",),
    "diff": ("--output", "--textconv"),
    "log": ("--output",),
    "show": ("--output", "--textconv"),
}
_GIT_LETTERS = {
    "clone": "uc",
    "rebase": "xis",
    "grep": "O",
    "merge": "s",
    "pull": "s",
    "cherry-pick": "",
    "ls-remote": "u",
}
_GIT_SETTINGS = re.compile(
    r"(?:user\.(?:name|email)|color\.\w+|advice\.\w+|init\.defaultbranch|core\.(?:quotepath|autocrlf|longpaths)"
    r"|push\.default|pull\.(?:rebase|ff)|safe\.directory|log\.\w+|diff\.renames|gc\.auto|commit\.gpgsign)\Z",
    re.IGNORECASE,
)
_GIT_QUERIES = names("--get --get-all --list -l --get-regexp --show-origin --global --local --unset")

_TAR = Grammar(
    "cxtruvzjJpkmhSPOaWdlo",
    "fC",
    (
        "--create",
        "--extract",
        "--list",
        "--verbose",
        "--gzip",
        "--xz",
        "--bzip2",
        "--zstd",
        "--no-same-owner",
        "--numeric-owner",
    ),
    (
        "--file",
        "--directory",
        "--exclude",
        "--strip-components",
        "--transform-none",
        "--owner",
        "--group",
        "--mtime",
        "--sort",
    ),
)
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
_NPM_OPTIONS = re.compile(
    r"--(?:silent|save-dev|save-exact|save|global|if-present|workspaces|include-workspace-root|no-audit|no-fund|verbose|json"
    r"|legacy-peer-deps|prefer-offline|ignore-scripts|production|version|frozen-lockfile|depth=\d+|workspace=[\w@/.-]+"
    r"|omit=\w+|force)\Z|-[sDgSEvr]\Z"
)
_INERT_VALUE = re.compile(
    r"[\d.]*\Z|(?:true|false|yes|no|on|off|debug|release|test|production|development)\Z", re.IGNORECASE
)


class Guard(msgspec.Struct, frozen=True):
    """The few options through which an otherwise plain program starts another or writes a file."""

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
    "gzip": Guard(),
    "less": Guard((), "kopPtTD", ("--log-file",), ""),
    "install": Guard(("--strip-program", "--strip"), "s"),
    "split": Guard(("--filter",)),
    "ack": Guard(("--pager", "--ackrc")),
    "ag": Guard(("--pager",)),
    "bat": Guard(("--pager", "--diagnostic")),
    "nm": Guard(("--plugin",)),
    "shuf": Guard((), "", ("--output",), "o"),
    "iconv": Guard((), "", ("--output",), "o"),
}
_FILLS = frozenset(("install", "split", "zip", "gzip"))
_GUARDED_RUNNERS: dict[str, Guard] = {
    "mypy": Guard(("--python-executable", "--install-types")),
    "pylint": Guard(("--init-hook", "--load-plugins", "--rcfile")),
    "pyright": Guard(("--pythonpath", "--venvpath"), "v"),
}


def toolchain(name: str, words: Words) -> Told | None:
    """What is known of a program of this file; None if it is none."""
    if name in _SPECIAL:
        return _SPECIAL[name](words)
    if told := interpreter(name, words):
        return told
    if name in _GUARDED_RUNNERS:
        told = _guarded(name, words, _GUARDED_RUNNERS[name])
        return told if told.opaque else Told(role="runner")
    if name in _GUARDS:
        return _guarded(name, words, _GUARDS[name])
    if name in _SUBCOMMANDS:
        return _subcommand(name, words)
    return None


def _names(text: str, options: Iterable[str]) -> bool:
    """Is this word one of the long options, or a beginning of one?"""
    if not text.startswith("--") or len(text) < 3:
        return False
    name = text.partition("=")[0]
    return any(option.startswith(name) for option in options)


def _uses(words: Words, options: Iterable[str], letters: str) -> bool:
    """Could one of `words` be one of these options? A word that is not known could be.

    `--` ends nothing here: it may be the value of the option before it (`sort -k -- --compress-program=x`).
    """
    options = tuple(options)
    if not options and not letters:
        return False
    for word in words:
        text = word.text
        if text is None or word.glob:
            if word.splits or word.could_be_option:
                return True
        elif _names(text, options) or (
            text[:1] == "-" and text[1:2] != "-" and any(letter in text for letter in letters)
        ):
            return True
    return False


def _guarded(name: str, words: Words, guard: Guard) -> Told:
    if _uses(words, guard.starts, guard.letters) or (name == "less" and any(w.lead.startswith("+") for w in words)):
        return unknown_options(name)
    if name in _FILLS or _uses(words, guard.writes, guard.write_letters):
        return Told(role="writer", writes=(UNKNOWN,))
    return Told()


def _git(words: Words) -> Told:
    settings = []
    while len(words) > 1 and words[0].text == "-c":
        settings.append(words[1])
        words = words[2:]
    parsed = parse(words, _GIT_GLOBAL)
    if parsed is None or any(not _is_plain_setting(setting) for setting in settings):
        return unknown_options("git")
    if not parsed.rest:
        return Told(role="git")
    command, rest = parsed.rest[0], parsed.rest[1:]
    verb = command.text
    if verb is None or command.glob or command.splits or verb not in _GIT_PLAIN:
        reason = f"git {verb or 'with a command'} that is not known here (it may be an alias)"
        is_named = verb is not None and not command.glob and not command.splits
        return Told(role="git", unknown=reason) if is_named else Told(role="git", opaque=reason)
    if verb == "config":
        return _git_config(rest)
    first = rest[0].text if rest else ""
    if (verb == "bisect" and first in ("run", "visualize", "view", None)) or (
        verb == "submodule" and first not in ("", "status", "init", "summary")
    ):
        return Told(role="git", opaque=f"git {verb} {first or ''} starts programs")
    if verb in ("commit", "tag", "stash", "merge", "notes"):
        rest = _without_messages(rest)
    if _uses(rest, (*_GIT_STARTS[""], *_GIT_STARTS.get(verb, ())), _GIT_LETTERS.get(verb, "")):
        return unknown_options(f"git {verb}")
    if verb in ("clone", "fetch", "pull", "push", "ls-remote", "remote", "archive") and any(
        "::" in (word.text or "") for word in rest
    ):
        return Told(role="git", opaque="git with an address that starts a helper")
    if verb == "clone":
        # What is fetched is no file of the project yet: to run it in the same breath is like `curl | sh`.
        return Told(role="git", writes=(Word(None, tail=".clone"),))
    return Told(role="git", writes=(UNKNOWN,) if verb in ("apply", "am") else ())


def _without_messages(words: Words) -> tuple[Word, ...]:
    """A message is often not known (`-m "$(cat ...)"`), and is never an option."""
    kept: list[Word] = []
    skip = False
    for word in words:
        if not skip:
            kept.append(word)
        skip = not skip and not word.splits and word.text in ("-m", "-am", "--message", "-F", "--file", "--author")
    return tuple(kept)


def _is_plain_setting(word: Word) -> bool:
    return word.text is not None and _GIT_SETTINGS.match(word.text.partition("=")[0]) is not None


def _git_config(words: Words) -> Told:
    texts = [word.text for word in words]
    operands = [text for text in texts if text is None or not text.startswith("-")]
    options = [text for text in texts if text is not None and text.startswith("-")]
    reads = any(text in ("--get", "--get-all", "--list", "-l", "--get-regexp") for text in options)
    plain = all(text in _GIT_QUERIES for text in options) and all(not (w.glob or w.splits) for w in words)
    setting = operands[0] if operands else None
    if plain and (reads or len(operands) <= 1 or (setting is not None and _GIT_SETTINGS.match(setting))):
        return Told(role="git")
    return Told(role="git", opaque="git config with a setting that may start programs")


def _tar(words: Words) -> Told:
    if words and words[0].text and re.fullmatch(r"[A-Za-z]+", words[0].text):
        letters = words[0].text
        # The old form takes the values of its letters from the words that follow, in order.
        values = sum(letter in "fCbTX" for letter in letters)
        if not all(letter in _TAR.bare or letter == "f" for letter in letters) or values > 1:
            return unknown_options("tar")
        words = (Word(f"-{letters.replace('f', '')}f" if values else f"-{letters}"), *words[1:])
    parsed = parse(words, _TAR, permute=True)
    if parsed is None or any(
        option in ("-f", "--file") and (value is None or ":" in (value.text or ":")) for option, value in parsed.options
    ):
        return unknown_options("tar")
    extracts = any(option in ("-x", "--extract") for option, _ in parsed.options)
    return Told(role="writer", writes=(UNKNOWN,) if extracts else ())


def _make(words: Words) -> Told:
    parsed = parse(words, _MAKE, permute=True)
    if parsed is None:
        return unknown_options("make")
    for option, value in parsed.options:
        if option in ("-f", "--file", "--makefile") and (value is None or is_stream(value)):
            return Told(role="runner", opaque="make with rules that are not known")
    for word in parsed.rest:
        name, equals, value_text = (word.text or "=").partition("=")
        if equals and (not _INERT_VALUE.match(value_text) or not name or name in ("SHELL", "MAKEFLAGS")):
            return Told(role="runner", opaque="make with a variable that its rules may run")
    return Told(role="runner")


def _npm(words: Words) -> Told:
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
        return Told(role="runner", opaque=reason) if operands[0] in _NPM_STARTS else Told(role="runner", unknown=reason)
    return Told(role="runner")


def _rsync(words: Words) -> Told:
    if _uses(words, ("--rsh", "--rsync-path", "--daemon", "--config"), "eM") or any(
        ":" in (w.text or ":") for w in words
    ):
        return unknown_options("rsync")
    return Told(role="writer", writes=(words[-1] if words else UNKNOWN,))


def _curl(words: Words) -> Told:
    """It starts nothing, and writes where an option says; its own settings file may say so too."""
    if _uses(words, ("--config", "--engine"), "K"):
        return other_options("curl", "writer")
    writes = _uses(words, ("--output", "--output-dir", "--remote-name", "--dump-header", "--cookie-jar"), "oOJDc")
    return Told(role="writer", writes=(UNKNOWN,) if writes else ())


def _wget(words: Words) -> Told:
    if _uses(words, ("--use-askpass", "--execute", "--config"), "e"):
        return other_options("wget", "writer")
    return Told(role="writer", writes=(UNKNOWN,))


class _Verbs(msgspec.Struct, frozen=True):
    plain: frozenset[str]
    starts: tuple[str, ...] = ()
    """Long options that start programs; single-dash spellings count as well."""


def _verbs(plain: str, *starts: str) -> _Verbs:
    return _Verbs(names(plain), starts)


_GO_STARTS = ("-exec", "-toolexec", "-vettool", "-overlay", "-ldflags", "-gcflags", "-asmflags", "-modfile")
_SUBCOMMANDS: dict[str, _Verbs] = {
    "cargo": _verbs(
        "build b check c test t run r clippy fmt doc clean update tree bench new init add fetch metadata version",
        "--config",
    ),
    "go": _verbs("build test vet fmt mod version list doc run get install clean", *_GO_STARTS),
    "pip": _verbs("install list freeze show check uninstall download", "--python", "--config-settings"),
    "uv": _verbs("sync lock add remove tree pip venv version", "--config-file", "--python"),
    "poetry": _verbs("install update add remove show check build lock version env"),
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


def _subcommand(name: str, words: Words) -> Told:
    verbs = _SUBCOMMANDS[name]
    if not words:
        return Told(role="runner")
    verb = words[0].text
    if verb is None or words[0].glob or verb not in verbs.plain | {"--version", "--help", "help", "version"}:
        return Told(role="runner", unknown=f"{name} with a command that is not known here")
    starts = {option.lstrip("-") for option in verbs.starts}
    for word in words[1:]:
        text = word.text
        if text is None or word.glob:
            if starts and (word.splits or word.could_be_option):
                return other_options(name)
        elif text[:1] == "-" and text.lstrip("-").partition("=")[0] in starts:
            return unknown_options(name)
    return Told(role="runner")


_SPECIAL: dict[str, Callable[[Words], Told]] = {
    "git": _git,
    "tar": _tar,
    "make": _make,
    "gmake": _make,
    "npm": _npm,
    "yarn": _npm,
    "pnpm": _npm,
    "rsync": _rsync,
    "curl": _curl,
    "wget": _wget,
}
