"""Recognizes command lines that only read: known programs that change nothing, with listed options.

The answer is about the line alone. The caller must make sure that the names mean the usual programs, that git's
settings start none, and that the words are paths which may be read.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Callable

import msgspec

from leadrope.policy.programs.awk import judge_awk
from leadrope.policy.programs.effects import Grammar, Parsed, Words, parse
from leadrope.policy.programs.read_options import LONG_OPTIONS
from leadrope.policy.programs.read_tables import (
    ANY_WORDS,
    FIND_ACTIONS,
    FIND_TESTS,
    GIT,
    GRAMMARS,
    PINNED,
    prints_version,
)
from leadrope.policy.programs.sed import judge_sed
from leadrope.policy.shell.reading import Program, Reading
from leadrope.policy.shell.words import UNKNOWN, UNKNOWN_PATH, Word, names
from leadrope.regex import regex

_BUILTINS = names("echo printf pwd cd true false : test [ type command exit")
_SYSTEM = ("/bin/", "/usr/bin/", "/usr/local/bin/", "/sbin/", "/usr/sbin/", "/opt/homebrew/bin/")
# They change how something is displayed, never what is started or read.
_SHOWS = regex(r"(?:LC_\w+|LANG|LANGUAGE|NO_COLOR|FORCE_COLOR|CLICOLOR|COLUMNS|LINES|TZ|TERM)\Z")
_SHOWN = regex(r"[\w.@:+-]*\Z")
_WRAPPERS = names("timeout nice time command xargs")
_XARGS = Grammar("0rt", "nPLdI", ("--null", "--no-run-if-empty"), ("--max-args", "--max-procs", "--delimiter"))
_AWKS = names("awk gawk mawk nawk")
# Devices, and the memory or environment of a process, are not files of a project.
_NO_FILE = regex(r"/+(?:dev/(?!null\Z)|proc/+(?:[^/]*[*?\[]|.*(?:environ|mem\b|maps|fd\b|root|cwd|task|pagemap)))")
_SECRET = regex(r"KEY|TOKEN|SECRET|PASS|AUTH|CREDENTIAL", re.IGNORECASE)
# Placeholders that make git verify a signature, which starts a program.
_SIGNATURE = regex(r"%G|signature|%\(trailers:.*cmd", re.IGNORECASE)
_CONFIG_READERS = names("--get --get-all --get-regexp --list -l")
_ENVIRONMENT = {
    "rg": ("RIPGREP_CONFIG_PATH",),
    "ack": ("ACKRC", "ACK_OPTIONS", "ACK_PAGER"),
    "git": (
        "GIT_EXTERNAL_DIFF",
        "GIT_CONFIG_COUNT",
        "GIT_CONFIG_PARAMETERS",
        "GIT_DIR",
        "GIT_EXEC_PATH",
        "GIT_PAGER_IN_USE",
    ),
    "awk": ("AWKPATH", "AWKLIBPATH"),
    "tree": ("TREE_COLORS",),
    "tar": ("TAR_OPTIONS",),
    "gzip": ("GZIP",),
    "ruby": ("RUBYOPT",),
    "perl": ("PERL5OPT",),
    "yarn": ("YARN_RC_FILENAME",),
}


class ReadOnly(msgspec.Struct, frozen=True):
    """A line that only reads, provided that its programs are the usual ones."""

    programs: tuple[str, ...] = ()
    """The programs to be found on PATH (bare names), or given by a path in the system's folders. The caller makes sure
    that each lies outside of what an agent can write. Shell builtins are not included."""
    uses_git: bool = False
    """Valid only if git's effective settings name no program: fsmonitor, textconv, external diff, filters."""
    git_folders: tuple[str | None, ...] = ()
    """Where git runs, relative to the start of the line (None for there): the repository may be another one."""
    unset: tuple[str, ...] = ()
    """Variables that must not be set, because they name a program or a file of options."""
    pinned: tuple[tuple[str | None, tuple[str, ...]], ...] = ()
    """Folders with the files that must be neither in them nor in a parent: those files decide which program is
    started."""


def reads_only(reading: Reading) -> ReadOnly | None:
    """Returns what the line needs in order to only read, or None if it may do more.

    >>> from leadrope.policy.shell.reader import read
    >>> reads_only(read("cd src && ls -la | head -5"))
    ReadOnly(programs=('ls', 'head'), uses_git=False, git_folders=(), unset=(), pinned=())
    >>> reads_only(read("ls > files.txt"))
    """
    if not reading.is_clean or reading.extras or reading.writes or reading.deletes or not reading.programs:
        return None
    for name, value in reading.assigned:
        if not _SHOWS.match(name) or value is None or not _SHOWN.match(value):
            return None
    if any(not _reads(program) for program in reading.programs):
        return None
    bare = [program.words[0] or "" for program in reading.programs]
    outside = dict.fromkeys(name for name in bare if "/" in name or name not in _BUILTINS)
    used = {posixpath.basename(name) for name in outside}
    folders = [_git_folder(p) for p in reading.programs if posixpath.basename(p.words[0] or "") == "git"]
    if UNKNOWN_PATH in folders:
        return None
    unset = [variable for name in sorted(used) for variable in _ENVIRONMENT.get("awk" if name in _AWKS else name, ())]
    pinned = dict.fromkeys(
        (program.cwd, files)
        for program in reading.programs
        if (files := PINNED.get(posixpath.basename(program.words[0] or "")))
    )
    if any(folder == UNKNOWN_PATH for folder, _ in pinned):
        return None
    return ReadOnly(tuple(outside), "git" in used, tuple(dict.fromkeys(folders)), tuple(unset), tuple(pinned))


def _reads(program: Program) -> bool:
    path = program.words[0]
    if path is None or 0 in program.patterns:
        return False
    name = posixpath.basename(path)
    if "/" in path and (not path.startswith(_SYSTEM) or posixpath.normpath(path) != path):
        return False
    words = tuple(
        UNKNOWN if text is None else Word(text, text, text, glob=place in program.patterns)
        for place, text in enumerate(program.words)
    )[1:]
    if any(wrapper not in _WRAPPERS for wrapper in program.wrappers):
        return False
    if program.wrappers[-1:] == ("xargs",) and words and words[-1].text is None:
        # xargs may append anything; only a program without harmful options is safe with that.
        return name in ANY_WORDS and all(word.text is not None for word in words[:-1])
    if any(word.text is None or _is_no_file(word.text, program.cwd) for word in words):
        return False
    if len(words) == 1 and not words[0].glob and _asks(name, words[0].text or ""):
        return True
    if len(words) == 1 and words[0].text in ("--version", "--help", "-version"):
        return False
    if name in ANY_WORDS:
        return _knows_options(name, words)
    check = _CHECKS.get(name)
    if check is not None:
        return check(words)
    if name in _AWKS:
        return _awk(words)
    return name in GRAMMARS and parse(words, GRAMMARS[name], permute=True) is not None


def _knows_options(name: str, words: Words) -> bool:
    """Whether all options are harmless; short ones always are for these programs, long ones must be listed."""
    texts = [word.text or "" for word in words]
    options = texts[: texts.index("--")] if "--" in texts else texts
    known = LONG_OPTIONS.get(name, ())
    return all(text.partition("=")[0] in known for text in options if text.startswith("--"))


def _is_no_file(text: str, cwd: str | None) -> bool:
    """Whether the path is outside of projects, also if relative to another folder or leaving an unknown one."""
    climbed = re.sub(r"\A(?:\.\.?/+)*\.\./+", "/", text)
    return any(map(_NO_FILE.match, (text, climbed, posixpath.join(cwd or "", text))))


def _asks(name: str, word: str) -> bool:
    # git's help starts a viewer.
    return prints_version(name, word) or (word == "--help" and name != "git" and prints_version(name, "--version"))


def _parsed(name: str, words: Words) -> Parsed | None:
    return parse(words, GRAMMARS[name], permute=True)


def _git_folder(program: Program) -> str | None:
    if len(program.words) < 3 or program.words[1] != "-C":
        return program.cwd
    folder = program.words[2] or UNKNOWN_PATH
    if UNKNOWN_PATH in (folder, program.cwd) or 2 in program.patterns:
        return UNKNOWN_PATH
    return posixpath.normpath(posixpath.join(program.cwd or ".", folder))


def _git(words: Words) -> bool:
    if len(words) > 2 and words[0].text == "-C" and not (words[1].text or "-").startswith("-"):
        words = words[2:]
    while words and words[0].text in ("--no-pager", "--no-optional-locks", "-P"):
        words = words[1:]
    verb = words[0].text if words and not words[0].glob else None
    if verb is None or verb not in GIT:
        return False
    rest = words[1:]
    if any(_SIGNATURE.search(word.text or "") for word in rest):
        return False
    if verb in ("stash", "worktree", "reflog", "remote"):
        return _git_part(verb, rest)
    parsed = parse(rest, GIT[verb], permute=True)
    if parsed is None:
        return False
    options = {option for option, _ in parsed.options}
    if verb == "branch":
        # An operand is the name of a branch to create, unless branches are listed.
        lists = {"-l", "--list", "-a", "-r", "--all", "--remotes"} & options
        return not parsed.rest or bool({"-l", "--list"} & lists)
    if verb == "tag":
        return not parsed.rest or bool({"-l", "--list"} & options)
    if verb == "config":
        return bool(options & _CONFIG_READERS) and len(parsed.rest) <= 2
    if verb == "cat-file":
        return bool(options) and len(parsed.rest) == 1
    return True


def _git_part(verb: str, rest: Words) -> bool:
    first = rest[0].text if rest else ""
    if verb == "remote":
        if first == "get-url":
            return len(rest) == 2 and not rest[1].glob and not (rest[1].text or "-").startswith("-")
        return all(word.text in ("-v", "--verbose") for word in rest)
    wanted = {"stash": ("list", "show"), "worktree": ("list",), "reflog": ("show", "")}[verb]
    if verb == "reflog" and first is not None and (first.startswith("-") or first == "HEAD"):
        return parse(rest, GIT[verb], permute=True) is not None
    if first not in wanted:
        return False
    grammar = GIT["log"] if (verb, first) == ("stash", "list") else GIT["diff"] if verb == "stash" else GIT[verb]
    return parse(rest[1:], grammar, permute=True) is not None


def _find(words: Words) -> bool:
    for word in words:
        text = word.text or ""
        if word.glob:
            if any(fnmatch.fnmatchcase(action, text) for action in FIND_ACTIONS):
                return False
        elif (
            text.startswith("-") and text not in FIND_TESTS and not re.match(r"-(?:newer[aBcm][aBcmt]|\d+|O\d)\Z", text)
        ):
            return False
    return True


def _sed(words: Words) -> bool:
    grammar = Grammar(
        "nErsuz", "e", ("--quiet", "--silent", "--regexp-extended", "--null-data", "--posix"), ("--expression",)
    )
    parsed = parse(words, grammar, permute=True)
    if parsed is None:
        return False
    scripts = [value for option, value in parsed.options if option in ("-e", "--expression")]
    scripts = scripts or list(parsed.rest[:1])
    return bool(scripts) and all(
        script is not None and script.text is not None and not script.glob and not judge_sed(script.text).opaque
        for script in scripts
    )


def _awk(words: Words) -> bool:
    parsed = parse(words, Grammar("", "Fv"))
    text = parsed.rest[0].text if parsed and parsed.rest and not parsed.rest[0].glob else None
    if text is None or "ENVIRON" in text:
        return False
    judged = judge_awk(text)
    return not judged.opaque and not judged.writes


def _jq(words: Words) -> bool:
    parsed = _parsed("jq", _joined_pairs(words))
    if parsed is None:
        return False
    # `env` prints the environment; a module is a file that no word names.
    return not any(re.search(r"\benv\b|\$ENV|\bimport\b|\binclude\b|input_filename", w.text or "") for w in words)


def _joined_pairs(words: Words) -> Words:
    """Joins `--arg NAME VALUE`, which takes two words."""
    kept: list[Word] = []
    place = 0
    while place < len(words):
        if words[place].text in ("--arg", "--argjson") and place + 2 < len(words):
            place += 3
            continue
        kept.append(words[place])
        place += 1
    return kept


def _yq(words: Words) -> bool:
    texts = [word.text or "" for word in words]
    return _parsed("yq", words) is not None and not any(re.search(r"load|env|split_doc|system", text) for text in texts)


def _uniq(words: Words) -> bool:
    parsed = _parsed("uniq", words)
    return parsed is not None and len(parsed.rest) <= 1 and not any(word.glob for word in parsed.rest)


def _date(words: Words) -> bool:
    parsed = _parsed("date", words)
    # An operand without a `+` sets the clock.
    return parsed is not None and all((word.text or "").startswith("+") and not word.glob for word in parsed.rest)


def _one_operand(name: str) -> Callable[[Words], bool]:
    def check(words: Words) -> bool:
        parsed = _parsed(name, words)
        return parsed is not None and len(parsed.rest) <= 1 and not any(word.glob for word in parsed.rest)

    return check


def _needs(name: str, *wanted: str) -> Callable[[Words], bool]:
    def check(words: Words) -> bool:
        parsed = _parsed(name, words)
        return parsed is not None and any(option in wanted for option, _ in parsed.options)

    return check


def _tar(words: Words) -> bool:
    if words and re.fullmatch(r"[tvzjJf]+", words[0].text or ""):
        letters = (words[0].text or "").replace("f", "")
        words = (Word(f"-{letters}f", f"-{letters}f"), *words[1:]) if letters != words[0].text else words
        if words[0].text == letters:
            words = (Word(f"-{letters}", f"-{letters}"), *words[1:])
    parsed = _parsed("tar", words)
    if parsed is None or not any(option in ("-t", "--list") for option, _ in parsed.options):
        return False
    files = [value for option, value in parsed.options if option in ("-f", "--file")]
    # A colon makes it a file of another machine, which tar reaches by starting a program.
    return bool(files) and all(value is not None and ":" not in (value.text or ":") for value in files)


def _hostname(words: Words) -> bool:
    parsed = _parsed("hostname", words)
    return parsed is not None and not parsed.rest


def _printenv(words: Words) -> bool:
    return bool(words) and all(re.fullmatch(r"\w+", w.text or "") and not _SECRET.search(w.text or "") for w in words)


def _ps(words: Words) -> bool:
    """Without a dash, `e` shows the environment of every process."""
    place = 0
    while place < len(words):
        text = words[place].text or ""
        place += 1
        if text in ("-o", "-p", "-u", "-U", "-C", "-g", "-t", "--pid", "--ppid"):
            value = words[place].text or "" if place < len(words) else ""
            if re.search(r"environ", value):
                return False
            place += 1
        elif not re.fullmatch(r"-[eAfFlajLwuHx]+|[auxfljwT]+|-?-?no-headers|--sort=[\w,+-]+|--forest|-o[\w,=%]+", text):
            return False
    return True


def _tput(words: Words) -> bool:
    return len(words) == 1 and words[0].text in ("cols", "lines", "colors")


def _printf(words: Words) -> bool:
    return bool(words) and not (words[0].glob or (words[0].text or "-").startswith("-"))


def _command(words: Words) -> bool:
    # `command -v NAME` only looks it up; `command NAME` starts it, which is judged as a program of its own.
    return bool(words) and not words[0].glob


def _xargs(words: Words) -> bool:
    parsed = parse(words, _XARGS)
    return parsed is not None and bool(parsed.rest)


def _time(words: Words) -> bool:
    return bool(words) and (words[0].text == "-p" or not (words[0].text or "-").startswith("-"))


def _pip(words: Words) -> bool:
    if not words or words[0].text not in ("list", "show"):
        return False
    grammar = Grammar("v", "", ("--not-required", "--local", "--verbose", "--files"), ("--format",))
    return parse(words[1:], grammar, permute=True) is not None


def _anything(_: Words) -> bool:
    return True


_CHECKS: dict[str, Callable[[Words], bool]] = {
    "echo": _anything,
    "pwd": _anything,
    "cd": _anything,
    "true": _anything,
    "false": _anything,
    ":": _anything,
    "test": _anything,
    "[": _anything,
    "type": _anything,
    "exit": _anything,
    "printf": _printf,
    "command": _command,
    "timeout": _anything,
    "nice": _anything,
    "time": _time,
    "xargs": _xargs,
    "git": _git,
    "find": _find,
    "sed": _sed,
    "jq": _jq,
    "yq": _yq,
    "uniq": _uniq,
    "date": _date,
    "xxd": _one_operand("xxd"),
    "tar": _tar,
    "unzip": _needs("unzip", "-l", "-v", "-t", "-Z"),
    "gzip": _needs("gzip", "-l", "-t", "--list", "--test"),
    "hostname": _hostname,
    "printenv": _printenv,
    "ps": _ps,
    "tput": _tput,
    "pip": _pip,
    "pip3": _pip,
}
