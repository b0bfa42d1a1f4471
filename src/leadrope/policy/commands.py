"""Command patterns (`rm -rf /`, `git push`), compared word by word, and the harm that a command line can do.

Options are compared by meaning (`-fr`, `-r -f`, `--recursive --force`), paths by where they lead, and a program by the
last part of its name. An unknown word never matches; `may_match` reports where it could.
"""

from __future__ import annotations

import bisect
import fnmatch
import posixpath
import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from leadrope.policy.programs.catalog import tell
from leadrope.policy.shell.reader import Program, Reading, read
from leadrope.policy.shell.words import UNKNOWN, UNKNOWN_PATH, known, names
from leadrope.regex import regex

_TEXT = "text:"
_EVERYTHING_INSIDE = regex(r"(?:^|/)(?:\*+|\?\*|\.\*|\.\[!\.\]\*|\{\*,\.\*\}|\.\?\*)/*\Z")

# The meaning of long options and of alternative letters, for programs whose options decide whether a rule applies.
_RM = {"--recursive": "r", "-R": "r", "--force": "f", "--verbose": "v", "--dir": "d", "--interactive": "i"}
_TREE = {"--recursive": "R", "--verbose": "v", "--changes": "c", "--quiet": "f", "--silent": "f"}
_MEANINGS: dict[str, dict[str, str]] = {
    "rm": _RM,
    "chmod": _TREE,
    "chown": _TREE,
    "chgrp": _TREE,
    "cp": {"--recursive": "r", "-R": "r", "--archive": "a", "--force": "f"},
    "mv": {"--force": "f"},
}
_PUSH_FORCES = ("--force-with-lease", "--force-if-includes", "--mirror")


Risk = Literal["high", "medium", "low"]

_SYSTEM_FOLDERS = names(
    """/ ~ /bin /boot /dev /etc /home /lib /lib32 /lib64 /opt /proc /root /sbin /srv /sys /usr /usr/bin /usr/lib
    /usr/sbin /usr/local /usr/share /var /var/lib /Users /System /Library /Applications /mnt /media /run"""
)
_HOMES = regex(r"(?:(?:/home|/Users)/|~)[^/]+\Z")
_DISKS = regex(r"/dev/(?:sd|hd|vd|xvd|nvme|mmcblk|disk|rdisk|mapper/|md|dm-|loop|mem\b|kmem\b|port\b)")
_VITAL_FILES = regex(r"(?:/etc/(?:passwd|shadow|group|sudoers|fstab)|/boot/.*|/proc/sysrq-trigger)\Z")
# Possessive, and only at the beginning of a word: a base64 text of 20 kB once blocked the gate for 14 s.
_WORD = r"(?<![^\s(){};|&'\"`])(?P<name>[^\s(){};|&'\"`]++)"
_FUNCTION = regex(
    rf"(?:\bfunction\s++{_WORD}\s*+(?:\(\s*+\)\s*+)?|{_WORD.replace('name', 'plain')}\s*+\(\s*+\)\s*+)[{{(]"
)
_BESIDE_ITSELF = regex(rf"{_WORD}\s*+(?:\|&?\s*+(?P=name)(?![^\s(){{}};|&])|&(?![&>]))")
_DISK_TOOLS = names("mkfs wipefs fdisk sfdisk cfdisk parted sgdisk gdisk blkdiscard mkswap cryptsetup hdparm badblocks")

_HIGH_PROGRAMS = names(
    "sudo doas su reboot shutdown poweroff halt crontab systemctl iptables nft passwd useradd userdel"
)
_HIGH_VERBS = {
    "npm": {"publish", "unpublish", "deprecate"},
    "yarn": {"publish"},
    "pnpm": {"publish"},
    "cargo": {"publish", "yank"},
    "gem": {"push"},
    "twine": {"upload"},
    "poetry": {"publish"},
    "uv": {"publish"},
    "docker": {"rm", "rmi", "push", "prune", "kill", "system", "volume"},
    "kubectl": {"delete", "apply", "exec", "drain", "scale"},
    "helm": {"install", "upgrade", "uninstall", "delete"},
    "terraform": {"apply", "destroy"},
    "gh": {"release", "secret"},
    "git": {"filter-branch", "filter-repo"},
    "aws": {"s3", "ec2", "iam"},
    "vercel": {""},
    "netlify": {"deploy"},
    "fly": {"deploy"},
}
_MEDIUM_GIT = names("push reset clean checkout restore rebase merge pull fetch clone stash branch tag config rm")
_NETWORK = names("curl wget ssh scp sftp rsync nc ncat socat ftp telnet")
_DATABASE = regex(r"\b(?:drop (?:table|database|schema)|truncate table|delete from)\b")


class Options(msgspec.Struct, frozen=True):
    """The words of one program after its name, split into options and operands."""

    options: frozenset[str]
    operands: tuple[str | None, ...]
    leading: tuple[bool, ...]
    """For each operand: whether it directly follows an option whose value it may be."""
    unknown: bool
    """Whether some word is unknown."""


class CommandPattern(msgspec.Struct, frozen=True):
    """A program or the beginning of a command, or with `text:...` a text anywhere in a command line."""

    source: str
    words: tuple[str, ...] = ()
    text: str = ""
    name: str = ""
    """The name of the programs that it means, regardless of their folder."""

    @classmethod
    def parse(cls, source: str) -> CommandPattern:
        """Parses `rm`, `rm -rf /`, `git push *` or `text:DROP TABLE`; raises ValueError with the reason otherwise."""
        if source[: len(_TEXT)].lower() == _TEXT:
            folded = fold(source[len(_TEXT) :])
            if not folded:
                raise ValueError(f"the pattern {source!r} has no text; write for example text:DROP TABLE")
            return cls(source, (), folded)
        reading = read(source)
        first = reading.programs[0] if reading.programs else None
        if first is None or first.words[0] is None:
            raise ValueError(f"the pattern {source!r} names no program; write for example rm, or git push")
        words = tuple(word for word in first.words if word is not None)
        if len(words) != len(first.words) or not _is_one_command(source, reading):
            raise ValueError(f"the pattern {source!r} is more than one plain command; write one program and its words")
        while len(words) > 1 and words[-1] == "*":
            words = words[:-1]
        return cls(source, words, name=base(posixpath.normpath(words[0])))

    def matches(self, program: Program) -> bool:
        """Whether the pattern certainly matches this program."""
        return self._compare(program, guess=False)

    def may_match(self, program: Program) -> bool:
        """Whether the pattern could match, given the unknown words."""
        return self._compare(program, guess=True)

    def found_in(self, reading: Reading) -> bool:
        """Whether the pattern matches the command line as a whole."""
        if self.text:
            return self.text in fold(reading.text) or any(self.matches(program) for program in reading.programs)
        return any(self.matches(program) for program in reading.programs)

    def _compare(self, program: Program, *, guess: bool) -> bool:
        if self.text:
            return self.text in fold(" ".join(word or "" for word in program.words))
        name = program.words[0]
        if name is None:
            return guess
        if not _same_program(self.words[0], name):
            return False
        wanted = options_of(self.words[0], self.words[1:])
        given = options_of(self.words[0], program.words[1:])
        guess = guess and given.unknown
        missing = wanted.options - given.options
        return (not missing or guess) and _operands_match(wanted.operands, given, program.cwd, guess=guess)


def fold(text: str) -> str:
    return " ".join(text.split()).casefold()


def base(name: str | None) -> str:
    return name.rpartition("/")[2] if name else ""


def options_of(name: str, words: Sequence[str | None]) -> Options:
    """Returns the options by meaning, and the operands in order."""
    name = base(name)
    meanings = _MEANINGS.get(name, {})
    options: set[str] = set()
    operands: list[str | None] = []
    leading: list[bool] = []
    ended = after_option = False
    for word in words:
        if word is None or ended or word == "-" or word[:1] != "-":
            operands.append(word)
            leading.append(after_option)
            after_option = False
        elif word == "--":
            ended = True
        elif word.startswith("--"):
            long = word.partition("=")[0]
            full = next((meaning for meaning in meanings if len(long) > 2 and meaning.startswith(long)), long)
            options.add(f"-{meanings[full]}" if full in meanings else full)
            after_option = "=" not in word
        else:
            after_option = True
            if meanings or (name == "git" and len(word) > 2 and "push" in words):
                options.update(f"-{meanings.get(f'-{letter}', letter)}" for letter in word[1:])
            else:
                options.add(word)
    if name == "git" and "push" in operands:
        _push(options, operands)
    return Options(frozenset(options), tuple(operands), tuple(leading), None in words)


def _push(options: set[str], operands: list[str | None]) -> None:
    """Normalizes a push, which has several spellings for overwriting and deleting."""
    if "-f" in options or options & set(_PUSH_FORCES) or any(word and word.startswith("+") for word in operands):
        options |= {"--force", "-f"}
    if "-d" in options or any(word and word.startswith(":") and len(word) > 1 for word in operands):
        options |= {"--delete", "-d"}
    if "--force" in options:
        options.add("-f")
    if "--delete" in options:
        options.add("-d")


def path_of(word: str, cwd: str | None) -> str:
    """Returns where a word leads, relative to `cwd`. Everything in a folder (`*`) counts as the folder."""
    inside = _EVERYTHING_INSIDE.search(word)
    if inside:
        word = word[: inside.start()] or ("/" if word.startswith("/") else ".")
    if word[:1] not in ("/", "~"):
        if cwd == UNKNOWN_PATH:
            return UNKNOWN_PATH
        word = posixpath.join(cwd or ".", word)
    if word[:1] == "~":
        below = posixpath.normpath(word.partition("/")[2] or ".")
        home = word.partition("/")[0]
        # Wherever the home is, the folders above it must not be deleted.
        return "/" if below.startswith("..") else posixpath.normpath(posixpath.join(home, below))
    return re.sub(r"\A//+", "/", posixpath.normpath(word))


def _is_one_command(source: str, reading: Reading) -> bool:
    """Whether the other programs of a pattern are those that the first one starts (`sudo rm`).

    Its writes do not count: `cp` alone also writes, to an unknown place. Redirections are not part of the pattern's
    words.
    """
    return all(program.wrappers for program in reading.programs[1:]) and not re.search(r"[;&|<>\n`]|\$\(", source)


def _same_program(wanted: str, given: str) -> bool:
    if "/" not in wanted:
        return wanted == base(given)
    return posixpath.normpath(wanted) == posixpath.normpath(given) or ("/" not in given and base(wanted) == given)


def _operands_match(wanted: Sequence[str | None], given: Options, cwd: str | None, *, guess: bool) -> bool:
    places = [word for word in wanted if word and word[:1] in ("/", "~")]
    paths = {path_of(word, cwd) for word in given.operands if word is not None}
    if any(path_of(place, None) not in paths for place in places) and not (guess and None in given.operands):
        return False
    at = 0
    for word in wanted:
        if word is None or word in places:
            continue
        while at < len(given.operands):
            found = given.operands[at]
            if (found is None and guess) or (found is not None and fnmatch.fnmatchcase(found, word)):
                break
            # Only the value of an option may precede the word in question: `git -C x push`.
            if not given.leading[at]:
                return False
            at += 1
        else:
            return False
        at += 1
    return True


def is_destructive(reading: Reading) -> str | None:
    """Returns why this command line would destroy a system, a home or a disk; None if nothing in it would."""
    if _is_fork_bomb(reading.text):
        return "a function that starts itself without end"
    for path in reading.writes:
        if _DISKS.match(path):
            return f"overwrites the device {path}"
        if _VITAL_FILES.match(path):
            return f"overwrites {path}"
    roots = [reason for program in reading.programs if (reason := _destroys(program, reading))]
    return roots[0] if roots else None


def _is_fork_bomb(text: str) -> bool:
    """Whether a function starts itself in parallel: in the background, or at both ends of a pipe."""
    beside: dict[str, list[int]] = {}
    for found in _BESIDE_ITSELF.finditer(text):
        beside.setdefault(found["name"], []).append(found.start())
    if not beside:
        return False
    closed = {mark: [found.start() for found in re.finditer(re.escape(mark), text)] for mark in "})"}
    for found in _FUNCTION.finditer(text):
        places = beside.get(found["name"] or found["plain"], ())
        first = bisect.bisect_left(places, found.end())
        ends = closed["}" if text[found.end() - 1] == "{" else ")"]
        end = bisect.bisect_left(ends, found.end())
        if first < len(places) and (end == len(ends) or places[first] < ends[end]):
            return True
    return False


def _destroys(program: Program, reading: Reading) -> str | None:
    name = base(program.words[0])
    given = options_of(name, program.words[1:])
    paths = [path_of(word, program.cwd) for word in given.operands if word is not None]
    if name == "find" and not _find_starts(program):
        paths = [path_of(".", program.cwd)]
    hit = next((path for path in paths if path in _SYSTEM_FOLDERS or _HOMES.match(path)), None)
    if name in _DISK_TOOLS or name.startswith(("mkfs.", "newfs")):
        only_looks = given.options & {"-l", "--list", "-n", "--no-act", "--help", "--version", "-V"}
        return None if only_looks else f"{name} changes a disk"
    if name == "rm" and "-r" in given.options and hit:
        return f"deletes {hit} and everything in it"
    if name == "rm" and "--no-preserve-root" in given.options:
        return "deletes without sparing the root"
    if name in ("chmod", "chown", "chgrp") and "-R" in given.options and hit:
        return f"changes owner or rights of everything in {hit}"
    if name == "mv" and (hit := next((p for p in paths[:-1] if p in _SYSTEM_FOLDERS or _HOMES.match(p)), None)):
        return f"moves {hit} away"
    if name == "shred" and any(_DISKS.match(path) or path in _SYSTEM_FOLDERS for path in paths):
        return "shreds a device"
    if name == "find" and hit and _find_deletes(program, reading):
        return f"deletes what it finds in {hit}"
    if name == "rsync" and hit and hit in paths[-1:] and any(option.startswith("--del") for option in given.options):
        return f"deletes everything in {hit} that its source does not have"
    if name == "kill" and "-1" in program.words[2:]:
        return "kills every process"
    return None


def _find_starts(program: Program) -> bool:
    """Whether a matching place is named, or find starts in the current folder. Places precede the first test."""
    for word in program.words[1:]:
        if word is None or (word[:1] not in ("-", "(", "!") and word):
            return True
        if word not in ("-H", "-L", "-P") and not word.startswith(("-O", "-D")):
            return False
    return False


def _find_deletes(program: Program, reading: Reading) -> bool:
    if "-delete" in program.words:
        return True
    removers = [p for p in reading.programs if "find" in p.wrappers and base(p.words[0]) in ("rm", "shred", "unlink")]
    return bool(removers)


def risk(reading: Reading) -> Risk:
    """Returns the risk for a person to judge: high for what destroys, gains privileges or affects others."""
    if is_destructive(reading) or _DATABASE.search(fold(reading.text)):
        return "high"
    levels = [_risk_of(program) for program in reading.programs]
    fetches = any(base(program.words[0]) in _NETWORK for program in reading.programs)
    if "high" in levels or (fetches and not reading.is_clean):
        return "high"
    return "medium" if not reading.is_clean or "medium" in levels or reading.writes else "low"


def _risk_of(program: Program) -> Risk:
    name = base(program.words[0])
    given = options_of(name, program.words[1:])
    operands = set(given.operands)
    if name in _HIGH_PROGRAMS or operands & _HIGH_VERBS.get(name, set()) or (name == "rm" and "-r" in given.options):
        return "high"
    if name == "git":
        forced = "push" in operands and given.options & {"--force", "--delete"}
        if forced or ("reset" in operands and "--hard" in given.options) or ("clean" in operands and given.options):
            return "high"
        return "medium" if operands & _MEDIUM_GIT else "low"
    if name in ("chmod", "chown") and ("-R" in given.options or "777" in operands):
        return "high"
    if name in _NETWORK or name in ("rm", "chmod", "chown", "kill", "pkill", "killall", "truncate", "shred", "dd"):
        return "medium"
    role = tell([known(word) if word is not None else UNKNOWN for word in program.words], frozenset()).role
    return "low" if role in ("inert", "builtin", "wrapper") else "medium"
