"""All known programs, and what each does with its words. An unknown program may start its words."""

from __future__ import annotations

import posixpath
from collections.abc import Callable

import msgspec

from leadrope.policy.programs.effects import Grammar, ProgramEffect, Words, parse
from leadrope.policy.programs.read_tables import prints_version
from leadrope.policy.programs.toolchains import toolchain
from leadrope.policy.programs.wrappers import wrapper
from leadrope.policy.shell.words import UNKNOWN, Word, is_name, is_number, known, names
from leadrope.regex import regex

# These start nothing, whatever their words are, and write nothing that could be run.
_INERT = names(
    """ls cat head tail wc true false whoami id uname hostname sleep seq basename dirname realpath readlink stat
    du df which zipinfo cut tr nl paste join comm cmp rev tac fold fmt expand unexpand column md5sum
    sha1sum sha224sum sha256sum sha384sum sha512sum b2sum cksum sum od hexdump strings ps pgrep pkill
    killall free uptime nproc lscpu lsblk lsof ss netstat printenv jq grep egrep fgrep mkdir rmdir touch rm
    unlink chmod chown chgrp chattr tput clear locale getconf groups tty who w last arch bc expr factor
    numfmt shred truncate mktemp mkfifo sync ping host dig nslookup whereis lsattr findmnt
    zcat xzcat bzcat zstdcat getent stty logname users pidof vmstat iostat mkfs wipefs tokei scc
    pstree fuser yes tsort reset ifconfig mdfind pbpaste reboot shutdown poweroff halt"""
)
_BUILTINS = names(
    """echo : true false cd pushd popd dirs pwd bg fg kill
    ulimit umask shift return break continue exit times type disown"""
)
# After these the name of a program or file may mean something else.
_RENAMERS = names(
    """mount umount ldconfig pivot_root switch_root update-alternatives alternatives dpkg-divert losetup swapon
    modprobe insmod rmmod sysctl setcap depmod systemd-nspawn overlay fusermount fusermount3 sshfs fuse-overlayfs"""
)
_RUNNERS = names(
    """pytest py.test tsc eslint prettier jest vitest mocha ruff black isort flake8 vue-tsc biome rustfmt gofmt
    golangci-lint shellcheck yamllint hadolint actionlint rspec rubocop phpunit stylelint codespell
    lint-imports coverage bandit oxlint"""
)
# Reserved words are in the place of a command only if the grammar and bash disagree.
_RESERVED = names("if then else elif fi for while until do done case esac select function in { } ! [[ ]] ( )")
# They run commands that they get as input or as words, each in its own syntax.
_OBEDIENT = names(
    """ed red ex at batch crontab mail mailx nu xonsh elvish pwsh powershell osh ysh rc es tclsh wish expect m4 screen
    tmux dtach abduco ftp lftp telnet socat nc ncat xterm systemd-run pkexec fakeroot proot doas"""
)
_ASKS = frozenset(("--version", "--help", "-V", "-h", "version", "help"))
_SYSTEM = ("/bin/", "/usr/bin/", "/usr/local/bin/", "/sbin/", "/usr/sbin/", "/usr/local/sbin/", "/opt/homebrew/bin/")
_SHOPTS = names("nullglob globstar dotglob failglob")
_SET_LETTERS = regex(r"[-+][eufxvCE]*o?\Z")
_SET_NAMES = names("pipefail errexit nounset xtrace noglob noclobber verbose")


def tell(words: Words, functions: frozenset[str]) -> ProgramEffect:
    """Returns what the program named by `words` would start and write. The first word is known."""
    first = words[0]
    path = first.text or ""
    rest = tuple(words[1:])
    if path in functions:
        return ProgramEffect(role="builtin")
    if path in _RESERVED:
        return ProgramEffect(role="unknown", opaque=f"{path!r} is in the place of a program")
    name = posixpath.basename(path)
    if not name:
        return ProgramEffect(role="unknown", opaque="a folder is in the place of a program")
    if "/" not in path and name in _BUILTINS:
        return ProgramEffect(role="builtin")
    if "/" not in path and name in _SHELL_OWN:
        return _SHELL_OWN[name](rest)
    if name in _RENAMERS and rest and not all(word.text in _ASKS | {"-l", "-p"} for word in rest):
        return ProgramEffect(role="wrapper", opaque=f"{name} changes what names mean")
    told = wrapper(name, rest) or toolchain(name, rest)
    if told is None and name in _WRITERS:
        told = _WRITERS[name](rest)
    if told is None and (
        name in _INERT or name.startswith("mkfs.") or name in ("echo", "printf", "pwd", "test", "[", "kill")
    ):
        told = ProgramEffect()
    if told is None and name in _RENAMERS:
        told = ProgramEffect()
    if told is None and name in _RUNNERS:
        told = ProgramEffect(role="runner")
    if told is not None and _only_asks(name, rest, told):
        told = ProgramEffect(role=told.role if told.role == "runner" else "inert")
    if told is not None:
        return told if "/" not in path or path.startswith(_SYSTEM) else _as_script(told)
    if "/" in path and not path.startswith(("/", "~")) and ".." not in path.split("/"):
        return ProgramEffect(role="script")
    if name in _OBEDIENT and any(word.text not in _ASKS for word in rest):
        return ProgramEffect(role="unknown", opaque=f"{name} runs commands that are written in its own way")
    if not rest or all(word.text in _ASKS for word in rest):
        # On its own it is like a program of the project: the line gives it nothing to start.
        return ProgramEffect(role="unknown")
    return ProgramEffect(role="unknown", unknown=f"{name} is not known here: it may start what its words say")


def _only_asks(name: str, rest: Words, told: ProgramEffect) -> bool:
    word = rest[0].text if len(rest) == 1 and not rest[0].glob else None
    return word is not None and (prints_version(name, word) or (not told.opaque and word in ("--version", "--help")))


def obeys_input(name: str) -> bool:
    """Whether this program runs commands that it reads from its input."""
    return name in _OBEDIENT


def _as_script(told: ProgramEffect) -> ProgramEffect:
    """Treats a file with the name of a known program also as a file of the project, since it may be another program."""
    return msgspec.structs.replace(told, role="runner") if told.role in ("inert", "writer") else told


def operands_of(words: Words) -> tuple[Word, ...]:
    """Returns the words that are not options: `-` alone is an operand, and so is everything after `--`."""
    texts = [word.text for word in words]
    end = texts.index("--") if "--" in texts else len(texts)
    before = [word for word in words[:end] if word.text == "-" or not (word.text or "").startswith("-")]
    return (*before, *words[end + 1 :])


def _copies(words: Words) -> ProgramEffect:
    """cp, mv and ln write their last word, or the folder of -t."""
    operands = operands_of(words)
    into = [w for w in words if (w.text or "").startswith(("-t", "--target"))]
    if into or not operands:
        return ProgramEffect(role="writer", writes=(UNKNOWN,))
    sources = [word.text for word in operands[:-1]]
    target = operands[-1]
    if target.text is None or target.splits:
        return ProgramEffect(role="writer", writes=(target,))
    # The target may be a folder, in which each source keeps its name.
    inside = [known(posixpath.join(target.text, posixpath.basename(s.rstrip("/")))) if s else UNKNOWN for s in sources]
    return ProgramEffect(
        role="writer", writes=(target, *inside) if len(sources) != 1 or sources[0] is not None else (target,)
    )


def _each(words: Words) -> ProgramEffect:
    return ProgramEffect(role="writer", writes=operands_of(words))


def _dd(words: Words) -> ProgramEffect:
    if any(word.glob or word.splits for word in words):
        return ProgramEffect(role="writer", opaque="dd with a pattern that may become an operand", writes=(UNKNOWN,))
    targets = [word for word in words if word.text is None or word.text.startswith("of=")]
    return ProgramEffect(role="writer", writes=tuple(known(w.text[3:]) if w.text else UNKNOWN for w in targets))


def _anywhere(words: Words) -> ProgramEffect:
    return ProgramEffect(role="writer", writes=(UNKNOWN,))


def _uniq(words: Words) -> ProgramEffect:
    operands = operands_of(words)
    return ProgramEffect(writes=tuple(operands[1:]) if all(not word.splits for word in operands) else (UNKNOWN,))


_WRITERS: dict[str, Callable[[Words], ProgramEffect]] = {
    "cp": _copies,
    "mv": _copies,
    "ln": _copies,
    "tee": _each,
    **dict.fromkeys(names("dos2unix unix2dos"), _each),
    "dd": _dd,
    "uniq": _uniq,
    **dict.fromkeys(
        names("patch csplit sponge cpio 7z ar objcopy strip rename"),
        _anywhere,
    ),
}


def _names_only(letters: str, valued: str, role: str) -> Callable[[Words], ProgramEffect]:
    """Handles a builtin that assigns to names: an index in a name would be evaluated, and may run code."""

    def own(words: Words) -> ProgramEffect:
        parsed = parse(words, Grammar(letters, valued))
        if parsed is None or any(not is_name(word.text) or word.splits for word in parsed.rest):
            return ProgramEffect(role="builtin", opaque=f"{role} with a name that is not known")
        values = [v for o, v in parsed.options if o == "-a"]
        if any(value is None or not is_name(value.text) for value in values):
            return ProgramEffect(role="builtin", opaque=f"{role} with a name that is not known")
        names = [word.text for word in (*parsed.rest, *(v for v in values if v)) if word.text]
        return ProgramEffect(role="builtin", assigns=tuple((name, Word(None)) for name in names))

    return own


def _printf(words: Words) -> ProgramEffect:
    if words and (words[0].could_be_option or words[0].text == "-v") and words[0].text != "--":
        if len(words) > 2 and words[0].text == "-v" and is_name(words[1].text):
            return ProgramEffect(role="builtin", assigns=((words[1].text or "", Word(None)),))
        return ProgramEffect(role="builtin", opaque="printf whose first word may be an option")
    return ProgramEffect(role="builtin")


def _set(words: Words) -> ProgramEffect:
    expects = False
    for word in words:
        text = word.text
        if text in ("--", "-") and not expects:
            return ProgramEffect(role="builtin")
        if text is None or word.glob or (text not in _SET_NAMES if expects else not _SET_LETTERS.match(text)):
            return ProgramEffect(role="builtin", opaque="set with an option that is not known here")
        expects = text.endswith("o") and not expects
    return ProgramEffect(role="builtin")


def _shopt(words: Words) -> ProgramEffect:
    plain = bool(words) and words[0].text in ("-s", "-u", "-q", "-p") and all(w.text in _SHOPTS for w in words[1:])
    return ProgramEffect(role="builtin", opaque="" if plain else "shopt with an option that is not known here")


def _test(words: Words) -> ProgramEffect:
    """`test -v NAME` evaluates an index in NAME; a word that expands to several may contain `-v`."""
    if any(word.splits or word.glob or word.text in ("-v", "-R") for word in words):
        return ProgramEffect(role="builtin", opaque="test with a word that may be evaluated")
    unsure = [place for place, word in enumerate(words) if word.text is None and not is_number(word)]
    # The last word, or one before an operator, is a value; elsewhere it could be an operator itself.
    if len(words) > 5 and unsure:
        return ProgramEffect(role="builtin", opaque="test with a word that may be an operator")
    for place in unsure:
        if place + 1 < len(words) and words[place + 1].text not in (
            "=",
            "==",
            "!=",
            "<",
            ">",
            "-eq",
            "-ne",
            "-lt",
            "-le",
            "-gt",
            "-ge",
            "-nt",
            "-ot",
            "]",
        ):
            return ProgramEffect(role="builtin", opaque="test with a word that may be an operator")
    return ProgramEffect(role="builtin")


def _refused(reason: str) -> Callable[[Words], ProgramEffect]:
    return lambda _: ProgramEffect(role="builtin", opaque=reason)


_SHELL_OWN: dict[str, Callable[[Words], ProgramEffect]] = {
    "printf": _printf,
    "read": _names_only("rse", "pndtuNi" + "a", "read"),
    "mapfile": _names_only("t", "ndsu", "mapfile"),
    "readarray": _names_only("t", "ndsu", "readarray"),
    "set": _set,
    "shopt": _shopt,
    "test": _test,
    "jobs": lambda words: ProgramEffect(role="builtin", opaque="jobs with a command" if words else ""),
    "wait": lambda words: ProgramEffect(
        role="builtin", opaque="wait with an option" if any(w.could_be_option for w in words) else ""
    ),
    "alias": _refused("an alias changes what the words after it start"),
    "hash": _refused("hash changes what the words after it start"),
    "enable": _refused("enable changes what the words after it start"),
    "let": _refused("let evaluates what its words say"),
    "getopts": _refused("getopts assigns to a name"),
    "history": _refused("history may run older commands"),
    "fc": _refused("fc may run older commands"),
    "bind": _refused("bind attaches commands to keys"),
    "complete": _refused("complete may run commands"),
    "compgen": _refused("compgen may run commands"),
    "compopt": _refused("compopt may run commands"),
    "unalias": _refused("unalias changes what the words after it start"),
    "caller": _refused("caller belongs to a debugger"),
}
