"""Detects repositories that an agent created in its workspace and that would make the user's git start a program.

Their git folders did not exist when the sandbox was built, so nothing in them was read-only. They are reported and not
changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from leadrope import errors
from leadrope.confined.folder import Folder
from leadrope.core import events
from leadrope.policy import git_programs
from leadrope.process.sandbox import git_config_copy

MOST_BYTES = 256 * 1024
MOST_HOOKS = 1000


def told(folders: Iterable[str]) -> Iterator[events.Notice]:
    """Yield a notice for each of these folders in which git would start something."""
    for folder in folders:
        if why := armed(folder):
            message = (
                f"the agent made the repository {folder}, and git would start programs in there ({why}): "
                "inspect it before you use git in it"
            )
            yield events.Notice(level="warning", code="git_planted", message=message)


def armed(folder: str) -> str | None:
    """Return why git would start something here, or why that is unknown."""
    try:
        with Folder.open(Path(folder)) as top, top.folder(".git") as git:
            return _setting(git) or _hook(git)
    except FileNotFoundError:
        return None
    except errors.UnsafeFile as error:
        return f"its git folder {error.reason}"
    except (OSError, git_config_copy.Unreadable) as error:
        return f"its git folder cannot be read: {error}"


def _setting(git: Folder) -> str | None:
    for name in ("config.worktree", "commondir"):
        if git.kind(name) is not None:
            return f"it has a {name}"
    if git.kind("config") is None:
        return None
    settings = git_config_copy.read(git.read_bytes("config", most=MOST_BYTES))
    return next((f"its setting {name}" for name in settings if git_programs.may_start(name)), None)


def _hook(git: Folder) -> str | None:
    if git.kind("hooks") is None:
        return None
    names = [entry.name for entry in git.entries("hooks", most=MOST_HOOKS)]
    return next((f"its hook {name}" for name in sorted(names) if not name.endswith(".sample")), None)
