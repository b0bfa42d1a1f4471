"""Finds the parts of a program's words that may be paths. Inclusive: a rule about paths must see every possible one."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from urllib.parse import unquote

import msgspec

from leadrope.policy.programs.effects import Words
from leadrope.policy.shell.reading import PathWord
from leadrope.policy.shell.words import Word, names
from leadrope.regex import regex

# Their words are text, numbers or names: they do not open files named by them.
_NO_PATHS = names(
    """echo printf true false : sleep seq kill exit return break continue shift set unset expr basename dirname
    tput uname hostname id whoami nproc type times ulimit umask wait jobs bg fg disown"""
)
# These walk whole folders, some of them the current one if none is named.
_WALKERS = names("find fd fdfind rg ag ack tree du rsync")
_START_HERE = names("find fd fdfind rg ag ack tree du grep egrep fgrep ls")
_WALKS_IF = {
    "grep": "rR",
    "egrep": "rR",
    "fgrep": "rR",
    "ls": "R",
    "cp": "rRa",
    "rm": "rR",
    "chmod": "R",
    "chown": "R",
    "chgrp": "R",
    "diff": "r",
    "zip": "r",
    "scp": "r",
}
_LONG_WALKS = names("--recursive --archive --dereference-recursive --directories=recurse")
# Commands that read whole trees: to search them, to show them, or to store them where other commands show them.
_GIT_WALKS = names("grep archive diff difftool diff-files diff-index add stage stash")
_GIT_SHOWS = regex(r"(?:-[a-z]*[avu][a-z]*|--(?:all|verbose|patch))")
_GIT_WALKS_IF = names("commit status")
_ALWAYS_TREES = names("tar mv")
_MESSAGES = names("-m -am --message")
_SENDS = names("-C --directory --chdir --cwd --prefix --work-tree --project-directory")
# Their value is a file that names further files.
_LISTS = regex(r"--files0?-from|--null-files-from|--pathspec-from-file")
_UNKNOWN = "?"
# curl expands these to a set of URLs, also in `file:`.
_CURL_SETS = regex(r"[{}\[\]]")
_INNER = regex(r"[=:@,<]")
_CLUSTER = regex(r"-[A-Za-z0-9]+")
# A word with more separators than this is data, not paths. Its beginning and end are still checked.
_MAX_PARTS = 12


def named_by(words: Words, cwd: str | None, *, may_change: bool = False) -> Iterator[PathWord]:
    """Yields the paths that a program with these words may name, relative to `cwd` and to folders set by options.

    The first word is the program's name.
    """
    for folder in (cwd, *_sent_to(words, cwd)):
        for word in _named_from(words, folder):
            yield msgspec.structs.replace(word, may_change=True) if may_change else word


def _sent_to(words: Words, cwd: str | None) -> Iterator[str]:
    """Yields the folders that options set: `git -C DIR`, `make --directory=DIR`. Several are combined."""
    where = cwd or ""
    for place, word in enumerate(words[1:], start=1):
        option, equals, value = word.lead.partition("=")
        if option in _SENDS and equals:
            target: str | None = value if word.text is not None else None
        elif option in _SENDS:
            target = words[place + 1].text if place + 1 < len(words) else ""
        elif option.startswith("-C"):
            target = word.text[2:] if word.text is not None else None
        else:
            continue
        where = _UNKNOWN if target is None or where == _UNKNOWN else posixpath.join(where, target)
        yield where


def _named_from(words: Words, cwd: str | None) -> Iterator[PathWord]:
    name = posixpath.basename(words[0].text or "")
    if "/" in (words[0].text or ""):
        yield from path_words(words[0], cwd)
    if name in _NO_PATHS and "/" not in (words[0].text or ""):
        for word in words[1:]:
            if word.glob:  # the shell lists the folder to expand it
                yield from path_words(word, cwd)
        return
    walks = _walks(name, words)
    skip = False
    for word in words[1:]:
        if skip:
            skip = False
            continue
        skip = name == "git" and word.text in _MESSAGES
        yield from path_words(word, cwd, is_tree=walks)
        is_set = name == "curl" and "file:" in word.lead.lower() and _CURL_SETS.search(word.lead)
        if is_set or _LISTS.match(word.lead):
            yield PathWord("", cwd, is_unknown=True)
    if walks and (name in _START_HERE or (name == "git" and not _git_has_paths(words))):
        yield PathWord(".", cwd, is_tree=True)


def path_words(word: Word, cwd: str | None, *, is_tree: bool = False) -> Iterator[PathWord]:
    """Yields a word as a path, and the parts of it that may be paths: a value after `=`, `@` or an option's letter."""
    if word.choices:
        for choice in word.choices:
            yield from _of_text(choice, cwd, is_pattern=re.search(r"[*?\[]", choice) is not None, is_tree=is_tree)
        return
    if word.text is None:
        if not word.counted:
            lead = "" if word.lead in (".", "./") else word.lead
            yield PathWord(lead, cwd, is_unknown=True, is_tree=is_tree)
            for part in _parts(lead):
                yield PathWord(part, cwd, is_unknown=True, is_tree=is_tree)
        return
    if word.splits:
        yield PathWord("", cwd, is_unknown=True, is_tree=is_tree)
        return
    yield from _of_text(word.text, cwd, is_pattern=word.glob, is_tree=is_tree)


def _of_text(text: str, cwd: str | None, *, is_pattern: bool, is_tree: bool) -> Iterator[PathWord]:
    for part in dict.fromkeys((text, *_parts(text))):
        if part.startswith("~") and not re.match(r"~(?:/|\Z)", part):
            # The home of another user, whose location is unknown here.
            yield PathWord("", cwd, is_unknown=True, is_tree=is_tree)
        if part and not (part == text and part.startswith("-")):
            yield PathWord(part, cwd, is_pattern=is_pattern, is_tree=is_tree)


def _parts(text: str) -> Iterator[str]:
    if len(text) > 4096:
        return
    if text.lower().startswith("file:"):
        yield unquote(re.sub(r"(?i)\Afile:(?://[^/]*)?", "", text))
    places = [found.end() for found in _INNER.finditer(text)]
    if len(places) > _MAX_PARTS:
        places = [*places[: _MAX_PARTS // 2], *places[-_MAX_PARTS // 2 :]]
    for place in places:
        tail = text[place:]
        yield tail
        head = _INNER.split(tail, maxsplit=1)[0]
        yield head
        if tail.lower().startswith("file:"):
            yield unquote(re.sub(r"(?i)\Afile:(?://[^/]*)?", "", tail))
    if places and not text.startswith("-"):
        yield text[: places[0] - 1]
    if (cluster := _CLUSTER.match(text)) and not text.startswith("--"):
        # `-rfFILE`: which letter takes the value depends on the program.
        for place in range(2, min(cluster.end(), 12) + 1):
            yield text[place:]


def _git_has_paths(words: Words) -> bool:
    """Whether the git command works only on the paths that it names: `git add a.py`, `git diff -- src`."""
    texts = [word.text for word in words[1:]]
    if "--" in texts[:-1]:
        return True
    if not any(text in ("add", "stage") for text in texts):
        return False
    everything = any(
        re.fullmatch(r"-[a-zA-Z]*[Au][a-zA-Z]*|--(?:all|update|no-ignore-removal)", text or "-A") for text in texts
    )
    return not everything


def _walks(name: str, words: Words) -> bool:
    texts = [word.text for word in words[1:]]
    if name in _WALKERS or name in _ALWAYS_TREES:
        return True
    if name == "git":
        shows = any(_GIT_SHOWS.fullmatch(text or "") for text in texts)
        return any(text in _GIT_WALKS or (shows and text in _GIT_WALKS_IF) for text in texts)
    letters = _WALKS_IF.get(name)
    if letters is None:
        return False
    if "grep" in name and any(re.fullmatch(r"(?:-\w*d|--dir[a-z]*=?)(?:rec\w*)?", text or "") for text in texts):
        return True
    for word in words[1:]:
        text = word.text
        if text is None or word.glob:
            if word.could_be_option:
                return True
        elif (
            text in _LONG_WALKS
            or (text.startswith("--recur") and "--recursive".startswith(text))
            or (text[:1] == "-" and text[1:2] != "-" and any(letter in text for letter in letters))
        ):
            return True
    return False
