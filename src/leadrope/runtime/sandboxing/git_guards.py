"""Finds paths in a workspace that git's settings name: to protect them, and to know whether git only reads.

The settings themselves are read by `process.git_effective` and interpreted by `policy.git_programs`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from leadrope import errors
from leadrope.confined import Folder, real_path
from leadrope.policy import git_programs
from leadrope.process.sandbox import git_config_copy, git_effective
from leadrope.process.sandbox.git_config_copy import Unreadable
from leadrope.process.sandbox.values import Sight
from leadrope.regex import regex

MOST_SUBMODULES = 16
_HARMLESS = regex(r"GIT_(?:(?:AUTHOR|COMMITTER)_\w+|TERMINAL_PROMPT|OPTIONAL_LOCKS|EDITOR|SEQUENCE_EDITOR|PAGER)")


class GitNamed(msgspec.Struct, frozen=True, kw_only=True):
    """Absolute paths inside the workspace or an extra folder."""

    files: tuple[str, ...] = ()
    includes: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    problem: str = ""
    """Why git's settings could not be read; empty if they were."""

    @property
    def paths(self) -> tuple[str, ...]:
        return (*self.files, *self.includes, *self.folders)


def look(roots: Sequence[str], home: str, environ: Mapping[str, str]) -> GitNamed:
    """Return what the settings of these folders name inside them. Takes some 4 ms per folder."""
    if shutil.which("git", path=git_config_copy.PATH) is None:
        return GitNamed()  # git is not installed, so nothing would be run
    found: dict[str, list[str]] = {"files": [], "includes": [], "folders": []}
    problem = ""
    for root in roots:
        try:
            effective = git_effective.read(root, home, environ)
        except (Unreadable, OSError) as error:
            problem = f"git's settings in {root} cannot be read: {error}"
            continue
        named = git_programs.named(effective.settings, top=effective.top, home=home)
        for kind, paths in found.items():
            paths += [path for path in getattr(named, kind) if _is_inside(path, roots)]
    unique = {kind: tuple(dict.fromkeys(paths)) for kind, paths in found.items()}
    return GitNamed(**unique, problem=problem)


def fill_gaps(named: GitNamed, roots: Sequence[str]) -> tuple[str, ...]:
    """Create missing folders and settings files, empty, that would count once they exist; return what is still missing.

    Empty hooks folders and settings files change nothing, and can be made read-only. An empty program would be run.
    """
    for path in named.folders:
        _make(path, roots, is_folder=True)
    for path in named.includes:
        _make(path, roots, is_folder=False)
    return tuple(path for path in named.paths if not os.path.lexists(path))


async def is_plain(folder: str, *, env: Mapping[str, str], sight: Sight | None = None) -> bool:
    """Return whether a read-only git command in this folder starts no program; False if that is unknown.

    `env` is the environment of the agent, without what the sandbox adds to it.
    """
    if any(name.startswith("GIT_") and not _HARMLESS.fullmatch(name) for name in env):
        return False
    return await asyncio.to_thread(names_programs, folder, env.get("HOME", "/nonexistent"), env, sight) is None


def names_programs(folder: str, home: str, environ: Mapping[str, str], sight: Sight | None = None) -> str | None:
    """Return why a read-only git command in this folder could start a program; None if it starts none.

    `sight` is that of the sandbox in which the command will run: there git reads copies, which the agent may have
    changed. Takes some 5 ms, and more if there are submodules.
    """
    try:
        for view in (*sight.views, *sight.own_settings) if sight is not None else ():
            now = git_config_copy.changed(view)
            if now is not None:
                copied = [(name, value, "") for name, values in git_config_copy.read(now).items() for value in values]
                if any(name.startswith("include") for name, _, _ in copied):
                    return "include.path"
                if (wrong := git_programs.runs_by_reading(copied)) or (wrong := _hook_setting(copied)):
                    return wrong
        return _effective_programs(folder, home, environ)
    except (Unreadable, OSError) as error:
        return f"git's settings cannot be read: {error}"


def _hook_setting(settings: Iterable[git_programs.Setting]) -> str | None:
    return next((name for name, _, _ in settings if name == "core.hookspath"), None)


def _effective_programs(folder: str, home: str, environ: Mapping[str, str], depth: int = 2) -> str | None:
    found = git_effective.read(folder, home, environ)
    if wrong := git_programs.runs_by_reading(found.settings):
        return wrong
    hooks = git_programs.hooks_path(found.settings, top=found.top, home=home)
    if git_effective.has_hook(found, hooks, "post-index-change"):
        return "the hook post-index-change"
    modules = git_effective.submodules(found, home)
    if modules and (not depth or len(modules) > MOST_SUBMODULES):
        return "more submodules than are looked into"
    for module in modules:
        if wrong := _effective_programs(module, home, environ, depth - 1):
            return f"{wrong} (in {module})"
    return None


def _is_inside(path: str, roots: Sequence[str]) -> bool:
    real = real_path(path)
    is_git = ".git" in path.split("/")  # the sandbox has its own rules for what is in there
    return not is_git and any(real.startswith(root.rstrip("/") + "/") for root in roots)


def _make(path: str, roots: Sequence[str], *, is_folder: bool) -> None:
    root = next((root for root in roots if path.startswith(root.rstrip("/") + "/")), None)
    if root is None or os.path.lexists(path):
        return
    relative = path[len(root.rstrip("/")) + 1 :]
    # What cannot be created remains a gap, and is reported as such.
    with contextlib.suppress(OSError, errors.UnsafeFile), Folder.open(root) as folder:
        if is_folder:
            folder.make(relative, mode=0o755)
        else:
            folder.make(os.path.dirname(relative), mode=0o755)  # noqa: PTH120  # a text
            folder.write_new(relative, b"", mode=0o644)
