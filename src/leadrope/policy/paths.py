"""Paths as an agent writes them: whether they are inside of a workspace, and whether they match a glob."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from leadrope import errors
from leadrope.confined import real_path
from leadrope.regex import regex

Resolve = Callable[[str], str]

# The kernel opens no longer path (PATH_MAX), so longer ones need not be examined.
MAX_LENGTH = 4096


def resolved(path: str) -> str:
    """Resolves all links; returns `/`, which is outside of every folder, for a path that keeps changing.

    If a link on the way cannot be read (`/proc/1/root`), or the system does not accept the name, the path is returned
    as written and compared by its text.
    """
    try:
        return real_path(path)
    except errors.UnsafeFile:
        return "/"
    except (OSError, ValueError):
        return os.path.normpath(path)


def is_inside(path: str, roots: Iterable[str], *, cwd: str, resolve: Resolve = resolved) -> bool:
    """True if `path`, relative to `cwd` and with every link resolved, is one of `roots` or below one.

    A path that cannot be understood (empty, a NUL byte, a `~` that only a shell would expand) is outside.
    """
    if not path or "\0" in path or path.startswith("~"):
        return False
    real = resolve(path if os.path.isabs(path) else os.path.join(cwd, path))
    return any(_below(real, resolve(root)) is not None for root in roots)


def _below(path: str, root: str) -> str | None:
    """Returns the part of `path` below `root` ("" for the root itself), or None."""
    if path == root:
        return ""
    start = root.rstrip(os.sep) + os.sep
    return path[len(start) :] if path.startswith(start) else None


def is_below(path: str, root: str) -> bool:
    """Whether an absolute path is this folder or below it, compared as text."""
    return _below(path, root) is not None


def user_home() -> str:
    return os.path.expanduser("~")


class Ground:
    """What paths are relative to: the workspace's folders, the working directory, the user's home."""

    def __init__(self, roots: Sequence[str], *, home: str, cwd: str | None = None, resolve: Resolve = resolved) -> None:
        """`cwd` is the folder of the agent's shell; by default the first folder of the workspace."""
        self.cwd = os.path.join(roots[0], cwd) if cwd else roots[0]
        self.home = home
        self._resolve = resolve
        self._roots = roots

    @functools.cached_property
    def roots(self) -> tuple[str, ...]:
        """The folders as written and with links resolved: a path is compared in both spellings."""
        written = (os.path.normpath(root) for root in self._roots)
        return tuple(dict.fromkeys((*written, *map(self._resolve, self._roots))))

    def spellings(self, path: str, *, cwd: str | None = None) -> tuple[str, ...]:
        """Returns the absolute path as written and with every link resolved; () for text that is not a path."""
        if not path or "\0" in path or len(path) > MAX_LENGTH:
            return ()
        if path == "~" or path.startswith("~/"):
            path = self.home + path[1:]
        if cwd is not None and (cwd == "~" or cwd.startswith("~/")):
            cwd = self.home + cwd[1:]
        joined = os.path.join(self.cwd, cwd or "", path)
        # realpath gets the text before `..` is normalized: link/.. is the parent of the link's target.
        return tuple(dict.fromkeys((os.path.normpath(joined), self._resolve(joined))))

    def is_inside(self, path: str, *, cwd: str | None = None) -> bool:
        return self.holds(self.spellings(path, cwd=cwd))

    def holds(self, spellings: Sequence[str]) -> bool:
        """Whether the resolved path is inside of the workspace."""
        return bool(spellings) and any(_below(spellings[-1], root) is not None for root in self.roots)


class Glob:
    """A path pattern: `*` and `?` stay within a name, `**` crosses folders, `name/` is a folder and all below it.

    A relative pattern is anchored at the workspace's folders, `/x` at the root, `~/x` at the home. A floating one (the
    entries of path lists) also matches outside of the workspace, at any depth and ignoring case; a single name also
    matches at any depth inside.
    """

    __slots__ = ("_base", "_body", "_floating", "_names", "_single", "text")

    def __init__(self, text: str, *, floating: bool = False) -> None:
        self.text = text
        body = text.removeprefix("./")
        self._base = "home" if body.startswith("~/") else "absolute" if body.startswith("/") else "root"
        if self._base == "home":
            body = body[2:]
        body = _checked(text, body)
        self._body = body.lstrip("/")
        self._names = (*_names(body), *(("**",) if body.endswith("/") or body == "" else ()))
        self._floating = floating
        self._single = "/" not in body.rstrip("/")

    def matches(self, path: str, ground: Ground) -> bool:
        """Whether one absolute spelling of a path matches."""
        if self._base == "absolute":
            return self._fits(path.lstrip("/"))
        if self._base == "home":
            rest = _below(path, ground.home)
            return rest is not None and self._fits(rest)
        # Inside a workspace only the part below its root counts: a checkout under ~/.claude/worktrees is not a secret.
        inside = [rest for root in ground.roots if (rest := _below(path, root)) is not None]
        if not inside:
            return self._floating and self._fits(path.lstrip("/"), anywhere=True)
        return any(self._fits(rest, anywhere=self._floating and self._single) for rest in inside)

    def _fits(self, path: str, *, anywhere: bool = False) -> bool:
        return _compiled(self._body, floating=self._floating, anywhere=anywhere).fullmatch(path) is not None

    @property
    def is_anywhere(self) -> bool:
        """Whether it is a single name, alone or after `**/`, which may occur in any folder."""
        return self._floating and (self._single or self._names[:1] == ("**",))

    def overlaps(self, path: str, ground: Ground, *, below: bool = False, dots: bool = True) -> bool:
        """Whether something could match both this pattern and `path`, an absolute path that may itself be a pattern.

        With `below`, everything below `path` counts too. With `dots`, its stars also match names that begin with a dot,
        unlike the shell's. It may return True wrongly, but never False.
        """
        wanted = (*_names(path), *(("**",) if below else ()))
        return any(_may_meet(wanted, place, dots=dots) for place in self._places(path, ground))

    def _places(self, path: str, ground: Ground) -> Iterator[tuple[str, ...]]:
        if self._base == "absolute":
            yield self._names
        elif self._base == "home":
            yield (*_names(ground.home), *self._names)
        else:
            for root in ground.roots:
                yield (*_names(root), *(("**",) if self.is_anywhere else ()), *self._names)
            fixed = path.partition("*")[0].partition("?")[0].partition("[")[0]
            if self._floating and not any(_below(fixed.rstrip("/") or "/", root) is not None for root in ground.roots):
                yield ("**", *self._names)

    def matches_any(self, spellings: Iterable[str], ground: Ground) -> bool:
        return any(self.matches(path, ground) for path in spellings)

    def matches_all(self, spellings: Sequence[str], ground: Ground) -> bool:
        return bool(spellings) and all(self.matches(path, ground) for path in spellings)


@functools.lru_cache(maxsize=4096)
def _compiled(body: str, *, floating: bool, anywhere: bool) -> re.Pattern[str]:
    """Compiles a pattern when the first path is compared.

    The shipped rules have sixty patterns, and most commands name no path.
    """
    flags = re.DOTALL | (re.IGNORECASE if floating else 0)
    source = _regex(body)
    return re.compile(f"(?:.*/)?{source}" if anywhere else source, flags)


def literal(path: str) -> str:
    """Returns a pattern for exactly this path; a backslash cannot be expressed, so any character may stand for it."""
    return re.sub(r"[*?\[]", r"[\g<0>]", os.path.normpath(path)).replace("\\", "?")


@functools.lru_cache(maxsize=4096)
def glob(text: str, *, floating: bool = False) -> Glob:
    """Returns the compiled pattern, cached: a policy checks the same few again and again."""
    return Glob(text, floating=floating)


@functools.lru_cache(maxsize=4096)
def _names(path: str) -> tuple[str, ...]:
    return tuple(name for name in path.split("/") if name)


def _may_meet(one: tuple[str, ...], other: tuple[str, ...], *, dots: bool) -> bool:
    """Whether one path could match both lists of names. `**` matches any number of them."""
    begin = 0
    for name, its in zip(one, other, strict=False):  # most pairs differ in a name without a star
        if _STARS.search(name) or _STARS.search(its):
            break
        if name.casefold() != its.casefold():
            return False
        begin += 1
    reached = {(begin, begin)}
    looked: set[tuple[int, int]] = set()
    while reached:
        at = reached.pop()
        if at in looked:
            continue
        looked.add(at)
        i, j = at
        left, right = one[i : i + 1], other[j : j + 1]
        if not left and not right:
            return True
        if left == ("**",):
            reached |= {(i + 1, j), *(((i, j + 1),) if right else ())}
        if right == ("**",):
            reached |= {(i, j + 1), *(((i + 1, j),) if left else ())}
        if left and right and "**" not in (left[0], right[0]) and _may_be_same(left[0], right[0], dots=dots):
            reached.add((i + 1, j + 1))
    return False


_STARS = regex(r"[*?\[]")


def _may_be_same(one: str, other: str, *, dots: bool) -> bool:
    one, other = one.casefold(), other.casefold()
    first, second = _STARS.search(one), _STARS.search(other)
    if first is None and second is None:
        return one == other
    if not dots and first is not None and first.start() == 0 and other.startswith("."):
        return False
    if first is None or second is None:
        name, pattern = (one, other) if first is None else (other, one)
        return re.fullmatch(_name_regex(pattern), name, re.DOTALL) is not None
    head, start = one[: first.start()], other[: second.start()]
    tail, end = (_STARS.split(text)[-1] if "]" not in text else "" for text in (one, other))
    begins = head.startswith(start) or start.startswith(head)
    return begins and (tail.endswith(end) or end.endswith(tail))


def _checked(text: str, body: str) -> str:
    if not body.strip("/") and body != "/":
        raise errors.BadValue("path", f"{text!r} is not a path pattern", hint="Write for example src/** or .env.")
    if "\\" in body:
        raise errors.BadValue(
            "path", f"{text!r} holds a backslash", hint=f"Write it with slashes: {text.replace(chr(92), '/')}."
        )
    if text.startswith("!"):
        raise errors.BadValue("path", f"{text!r}: a pattern cannot be turned around", hint="List what is meant.")
    if body.startswith("~"):
        raise errors.BadValue(
            "path",
            f"{text!r}: another user's home is not known",
            hint="Write the folder from / on, or ~/ for your own.",
        )
    if ".." in body.split("/") or "//" in body or "/./" in body:
        plain = os.path.normpath(text)
        raise errors.BadValue(
            "path",
            f"{text!r} can never match: paths are compared with `..`, `.` and `//` already removed",
            hint="Name the place from / or ~/ on." if ".." in plain.split("/") else f"Write {plain}.",
        )
    return body


def _regex(body: str) -> str:
    is_folder = body.endswith("/") or not body
    names = [name for name in body.split("/") if name]
    # `src/**` includes the folder itself: who may not change what is below it may not remove it.
    while names and names[-1] == "**":
        names.pop()
        is_folder = True
    if not names:
        return ".*"
    runs: list[list[str]] = [[]]
    for name in names:
        if name == "**":
            runs.append([])
        else:
            runs[-1].append(_name_regex(name))
    first, *later = runs
    parts = ["/".join(first)]
    later = [run for run in later if run]
    if first and later:
        parts.append("/")
    for place, run in enumerate(later):
        # The first position where a run matches is as good as any later one, so no backtracking is needed: a pattern
        # with many stars stays cheap, whoever wrote it.
        text = "/".join(run)
        parts.append(f"(?:[^/]+/)*{text}" if place == len(later) - 1 else f"(?>(?:[^/]+/)*?{text}/)")
    if is_folder:
        parts.append("(?:/.*)?")
    return "".join(parts)


def _name_regex(name: str) -> str:
    fixed: list[str] = [""]
    place = 0
    while place < len(name):
        char = name[place]
        end = name.find("]", place + 2)
        if char == "*":
            fixed.append("")
        elif char == "?":
            fixed[-1] += "[^/]"
        elif char == "[" and end > 0:
            inner = name[place + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
            fixed[-1] += f"[^/{inner[1:]}]" if inner.startswith(("!", "^")) else f"[{inner}]"
            place = end
        else:
            fixed[-1] += re.escape(char)
        place += 1
    first, *later = fixed
    inner_parts = "".join(f"(?>[^/]*?{part})" for part in later[:-1] if part)
    return first + inner_parts + (f"[^/]*{later[-1]}" if later else "")
