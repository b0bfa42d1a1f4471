"""Finds blocked or protected paths that a call reaches in any spelling: named, searched, changed or linked to.

An unknown word of a command may reach every path as far as these rules are concerned: it is `unknown`, never
harmless.
"""

from __future__ import annotations

import functools
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from leadrope.core.tools import edited_path
from leadrope.policy import paths
from leadrope.policy.call_analysis import SEARCHES, Facts, Look
from leadrope.policy.findings import Finding
from leadrope.regex import regex

if TYPE_CHECKING:
    from leadrope.policy.shell.reading import PathWord, Program, Reading

_LISTERS = frozenset(("ls", "cd", "pwd", "echo", "printf", "true", "stat", "du", "realpath", "basename", "dirname"))
# Options that take no value.
_SEARCH_FLAGS = regex(r"-[rRnilvwcHhoEFPsqIxaUL]+|--(?:recursive|line-number|ignore-case|hidden)")
_LIST_FLAGS = regex(r"-[aAbBcCdDfFgGhHiklLmnNopqQrRsSuUvxXZ01]+|--(?:all|recursive|human-readable)")
# For programs that search a folder: the known flags, and the number of operands before the folder.
_TOLD_WHERE = {
    **dict.fromkeys(("grep", "egrep", "fgrep", "rg"), (_SEARCH_FLAGS, 1)),
    **dict.fromkeys(("ls", "du"), (_LIST_FLAGS, 0)),
}
_STARS = regex(r"[*?\[]")
_UNKNOWN = "?"


def blocked(entries: tuple[str, ...], look: Look, facts: Facts) -> Iterator[Finding]:
    """Yields every entry that the call would, or might, read or write."""
    named = (*look.paths, *look.searched_paths, *look.written)
    yield from _hits("deny", entries, named, look, "is a blocked path")
    if facts.sandboxed:
        return  # a search does not find what is masked, and an unknown word cannot open it
    if look.call.name in SEARCHES:
        yield from _searched(entries, look, facts)
    if look.reading is None:
        return
    if look.writes_unknown:
        yield Finding("unknown", "it is not known which file the command writes", entries[0])
    dots = "dotglob" in look.reading.text
    only_lists = all(_name(program) in _LISTERS for program in look.reading.programs)
    for word in _opened(look.reading):
        # A program that only lists names opens no file; it shows what is in a folder.
        reached = tuple(entry for entry in entries if entry.endswith("/")) if only_lists and word.is_tree else entries
        if reached:
            yield from _word(word, reached, look, facts, dots=dots)


def blocked_by_name(entries: tuple[str, ...], look: Look) -> Iterator[Finding]:
    """Yields the entries that a command's words name explicitly, regardless of a sandbox."""
    words = look.reading.named if look.reading is not None else ()
    plain = (word for word in words if not word.is_unknown and not word.is_pattern)
    spelled = (look.ground.spellings(word.text, cwd=word.cwd) for word in plain if _is_placed(word))
    yield from _hits("deny", entries, [found for found in spelled if found], look, "is a blocked path")


def protected(entries: tuple[str, ...], look: Look, facts: Facts) -> Iterator[Finding]:
    """Yields every entry that the call would, or might, write, change, move or delete."""
    yield from _hits("ask", entries, look.written, look, "is a protected path")
    if look.reading is None:
        return
    if look.writes_unknown:
        yield Finding("unknown", "it is not known which file the command writes", entries[0])
    for word in look.reading.named:
        if word.may_change and not word.is_unknown and not word.is_pattern and _is_placed(word):
            for path in look.ground.spellings(word.text, cwd=word.cwd):
                yield from _maybe(entries, path, look, "may change", below=False)
    for text, cwd in look.written_patterns:
        for path in look.ground.spellings(text, cwd=cwd):
            yield from _maybe(entries, path, look, "writes", below=False)
            if told := _expanded(path, entries, look, facts):
                yield Finding("unknown", f"{told} is a protected path, and the command writes {path}", told)
    for text, cwd in look.changed_trees:
        for path in look.ground.spellings(text, cwd=cwd):
            wide = [entry for entry in entries if not _glob(entry).is_anywhere or _finds(path, entry, facts)]
            yield from _maybe(wide, path, look, "changes", below=True)


def _opened(reading: Reading) -> Iterator[PathWord]:
    """Yields the words that a line may open, without the current folder if programs are told to search elsewhere."""
    starts_here = any(_starts_here(program) for program in reading.programs)
    written = {word for program in reading.programs for word in program.words}
    for word in reading.named:
        if word.is_tree and word.text == "." and not starts_here and "." not in written:
            continue
        yield word


def _starts_here(program: Program) -> bool:
    """Whether the program searches the current folder; False only if it certainly names another one."""
    name, words = _name(program), program.words[1:]
    if name in _TOLD_WHERE:
        flags, before_folder = _TOLD_WHERE[name]
        named = 0
        for place, word in enumerate(words):
            before = words[place - 1] if place else ""
            is_value = before is None or (before.startswith("-") and not flags.fullmatch(before))
            named += word is not None and not word.startswith("-") and not is_value
        return named <= before_folder
    return name != "find" or not words or words[0] is None or words[0].startswith(("-", "(", "!"))


def _name(program: Program) -> str:
    return (program.words[0] or "").rpartition("/")[2]


def _searched(entries: tuple[str, ...], look: Look, facts: Facts) -> Iterator[Finding]:
    """Yields the entries that a search reads: it reads everything below its folder."""
    pattern = look.call.input.get("pattern") if look.call.name == "Glob" else None
    start = edited_path(look.call) or "."
    folders = [(folder, folder) for folder in look.ground.spellings(start)]
    if isinstance(pattern, str):
        folders = [
            (folder, path)
            for folder, _ in folders
            for one in _braced(pattern)
            for path in look.ground.spellings(posixpath.join(folder, one))
        ]
    for folder, wanted in folders:
        for entry in entries:
            if not _glob(entry).overlaps(wanted, look.ground, below=pattern is None):
                continue
            where = folder if pattern is None else _fixed(wanted)
            found = facts.finds(where, (entry,)) if facts.finds is not None else where
            if found is not None:
                what = "may lie" if facts.finds is None or found == where else f"lies at {found},"
                told = f"{entry} is a blocked path and {what} in {folder}, which would be searched"
                yield Finding("deny", f"{told}; search a folder without it", entry)
                return


def _word(word: PathWord, entries: tuple[str, ...], look: Look, facts: Facts, *, dots: bool) -> Iterator[Finding]:
    if word.is_unknown or not _is_placed(word):
        yield Finding("unknown", f"it is not known which path {_shown(word)} is", entries[0])
        return
    for path in look.ground.spellings(word.text, cwd=word.cwd):
        if word.is_pattern and (told := _expanded(path, entries, look, facts)):
            yield Finding("unknown", f"{told} is a blocked path, and {_shown(word)} may reach it", told)
            return
        for entry in entries:
            glob = _glob(entry)
            if not word.is_pattern and glob.matches(path, look.ground):
                yield Finding("deny", f"{entry} is a blocked path", entry)
                return
            below = word.is_tree
            if (word.is_pattern or below) and glob.overlaps(path, look.ground, below=below, dots=dots or below):
                where = _fixed(path) if word.is_pattern else path
                found = facts.finds(where, (entry,)) if facts.finds is not None else where
                if found is not None:
                    told = f"{entry} is a blocked path, and {_shown(word)} may reach it"
                    yield Finding("unknown", told, entry)
                    return


def _expanded(path: str, entries: tuple[str, ...], look: Look, facts: Facts) -> str | None:
    """Returns the entry that a shell pattern reaches through a link, which its text does not show."""
    if facts.expands is None:
        return None
    found = facts.expands(path)
    if found is None:
        return entries[0]
    spelled = [spelling for name in found for spelling in look.ground.spellings(name)]
    return next((entry for entry in entries if _glob(entry).matches_any(spelled, look.ground)), None)


def _braced(pattern: str) -> list[str]:
    """Expands the braces of a pattern; with many or nested ones, anything may follow from there on."""
    found = [pattern]
    for _ in range(4):
        if not any("{" in one for one in found):
            return found
        found = [more for one in found for more in _split_braces(one)][:64]
    return [f"{one.partition('{')[0].rpartition('/')[0]}/**" if "{" in one else one for one in found]


def _split_braces(pattern: str) -> list[str]:
    found = re.search(r"\{([^{}]*)\}", pattern)
    if found is None:
        return [f"{pattern.partition('{')[0].rpartition('/')[0]}/**"] if "{" in pattern else [pattern]
    return [pattern[: found.start()] + choice + pattern[found.end() :] for choice in found[1].split(",")]


def _maybe(entries: Iterable[str], path: str, look: Look, does: str, *, below: bool) -> Iterator[Finding]:
    ground = look.ground
    entry = _first_met(tuple(entries), path, ground.roots, ground.home, below=below)
    if entry is not None:
        yield Finding("unknown", f"{entry} is a protected path, and the command {does} {path}", entry)


@functools.lru_cache(maxsize=4096)
def _first_met(entries: tuple[str, ...], path: str, roots: tuple[str, ...], home: str, *, below: bool) -> str | None:
    """Returns the first entry that the path may match. Cached, because the items of a batch name the same paths."""
    ground = paths.Ground(roots, home=home, resolve=str)  # the roots already contain both spellings
    return next((entry for entry in entries if _glob(entry).overlaps(path, ground, below=below, dots=False)), None)


def _hits(
    word: str, entries: Iterable[str], named: Sequence[tuple[str, ...]], look: Look, what: str
) -> Iterator[Finding]:
    for entry in entries if named else ():
        if any(_glob(entry).matches_any(spellings, look.ground) for spellings in named):
            yield Finding(word, f"{entry} {what}", entry)  # type: ignore[arg-type]  # of the two


def _finds(path: str, entry: str, facts: Facts) -> bool:
    return facts.finds is not None and facts.finds(path, (entry,)) is not None


def _is_placed(word: PathWord) -> bool:
    """Whether it is known which folder the word is relative to."""
    return word.cwd != _UNKNOWN or word.text.startswith(("/", "~"))


def _fixed(path: str) -> str:
    """Returns the folder that contains everything that a pattern matches."""
    found = _STARS.search(path)
    return posixpath.dirname(path[: found.start()]) if found else path


def _shown(word: PathWord) -> str:
    if word.is_unknown:
        return f"`{word.text}…`" if word.text else "a word of the command"
    return f"`{word.text}`"


def _glob(entry: str) -> paths.Glob:
    return paths.glob(entry, floating=True)
