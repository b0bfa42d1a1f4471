"""Finds the files that a program deletes according to its words, whichever program it is."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

import msgspec

from leadrope.policy.programs.effects import Words
from leadrope.policy.shell.path_words import path_words
from leadrope.policy.shell.reading import Deletion, PathWord
from leadrope.policy.shell.words import UNKNOWN, Word, names

_REMOVERS = names("rm rmdir unlink shred srm trash trash-put gio-trash rimraf del-cli")
_STARTERS = names("npx bunx pnpx")
_DISCARDS = {
    "checkout": names("-f --force . --"),
    "restore": names(""),
    "reset": names("--hard --merge --keep"),
    "switch": names("-f --force --discard-changes"),
}
_GIT_VALUED = names("-C -c --git-dir --work-tree --namespace --exec-path")


def deletions(words: Words, cwd: str | None) -> Iterator[Deletion]:
    """Yields what a program with these words deletes. Programs that it starts are checked separately."""
    name = posixpath.basename(words[0].text or "")
    rest = tuple(words[1:])
    if name in _REMOVERS:
        yield from _each(name, _operands(rest), cwd)
    elif name == "find" and _has(rest, "-delete"):
        yield from _each("find -delete", _starts(rest), cwd, is_tree=True)
    elif name == "git":
        yield from _git(rest, cwd)
    elif name == "rsync" and _begins(rest, ("--del", "--remove-so")):
        source = _begins(rest, ("--remove-so",))
        operands = _operands(rest)
        yield from _each("rsync --delete", operands if source else operands[-1:], cwd, is_tree=True)
    elif name in ("pytest", "py.test"):
        for place, word in enumerate(rest):
            if "addopts" in word.lead and "--baset" in word.lead:
                yield from _each("pytest --basetemp", (UNKNOWN,), cwd, is_tree=True)
            if word.lead.startswith("--baset"):
                _, equals, value = word.lead.partition("=")
                target = rest[place + 1] if not equals and place + 1 < len(rest) else Word(value, value, value)
                target = UNKNOWN if word.text is None else target
                yield from _each("pytest --basetemp", (target,), cwd, is_tree=True)
    elif name == "tar" and _begins(rest, ("--remove-f",)):
        yield from _each("tar --remove-files", _operands(rest), cwd, is_tree=True)
    elif name == "zip" and (_begins(rest, ("--move",)) or _has_letter(rest, "m")):
        yield from _each("zip -m", _operands(rest)[1:], cwd, is_tree=True)
    elif name in ("7z", "7za", "7zr", "7zz") and _begins(rest, ("-sdel",)):
        yield from _each("7z -sdel", _operands(rest)[2:], cwd, is_tree=True)
    elif name == "gio" and rest and rest[0].text in ("trash", "remove"):
        yield from _each(f"gio {rest[0].text}", _operands(rest[1:]), cwd)
    elif name in _STARTERS and (found := _operands(rest)) and found[0].text in _REMOVERS:
        yield from _each(found[0].text or "", found[1:], cwd)
    elif name == "truncate":
        yield from _each("truncate", _operands(rest), cwd, discards=True)


def _git(words: Words, cwd: str | None) -> Iterator[Deletion]:
    place = 0
    while place < len(words) and (text := words[place].text) is not None and text.startswith("-"):
        place += 2 if text in _GIT_VALUED else 1
    verb = words[place].text if place < len(words) else None
    rest = tuple(words[place + 1 :])
    where = cwd if place == 0 else "?"
    here = (Word(".", ".", "."),)
    if verb == "clean" and not (_begins(rest, ("--dry",)) or _has_letter(rest, "n")):
        yield from _each("git clean", _operands(rest) or here, where, is_tree=True)
    elif verb == "rm" and not _begins(rest, ("--cach", "--dry")):
        yield from _each("git rm", _operands(rest), where)
    elif verb == "worktree" and rest and rest[0].text == "remove":
        yield from _each("git worktree remove", _operands(rest[1:]), where, is_tree=True)
    elif verb in _DISCARDS:
        texts = {word.text for word in rest}
        if verb == "restore" and "--staged" in texts and not texts & {"--worktree", "-W"}:
            return
        if verb == "restore" or texts & _DISCARDS[verb]:
            operands = [word for word in _operands(rest) if word.text != "--"]
            whole = verb in ("reset", "switch") or not operands
            yield from _each(f"git {verb}", here if whole else tuple(operands), where, is_tree=whole, discards=True)


def _each(
    by: str, words: Words, cwd: str | None, *, is_tree: bool = False, discards: bool = False
) -> Iterator[Deletion]:
    for word in words or (UNKNOWN,):
        found = next(path_words(word, cwd, is_tree=is_tree), PathWord("", cwd, is_unknown=True))
        if word.choices:
            found = msgspec.structs.replace(found, text=word.lead, is_unknown=True)
        yield Deletion(by, found, "discard" if discards else "delete")


def _operands(words: Words) -> tuple[Word, ...]:
    ended = False
    found: list[Word] = []
    for word in words:
        if not ended and word.text == "--":
            ended = True
        elif ended or not (word.text or "").startswith("-"):
            found.append(word)
    return tuple(found)


def _starts(words: Words) -> tuple[Word, ...]:
    """Returns the places where find starts: all words before the first test."""
    found: list[Word] = []
    for word in words:
        text = word.text or ""
        if text in ("(", "!") or (text.startswith("-") and not re.match(r"-(?:[HLP]\Z|[OD])", text)):
            break
        if not text.startswith("-"):
            found.append(word)
    return tuple(found) or (Word(".", ".", "."),)


def _has(words: Words, text: str) -> bool:
    return any(word.text == text for word in words)


def _begins(words: Words, starts: tuple[str, ...]) -> bool:
    return any(word.lead.startswith(starts) for word in words)


def _has_letter(words: Words, letter: str) -> bool:
    return any(word.lead[:1] == "-" and word.lead[1:2] != "-" and letter in word.lead for word in words)
