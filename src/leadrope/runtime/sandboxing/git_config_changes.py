"""Keeps or drops git settings that an agent changed in its sandbox, and reports them.

Settings that policy/git_settings finds harmless are kept: they are written to the user's own file, which the agent
never had access to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from leadrope.core import events
from leadrope.policy import git_settings
from leadrope.process.sandbox import git_config_copy
from leadrope.process.sandbox.git_config_copy import View

KEPT = "git_settings_kept"
DROPPED = "git_settings_dropped"
MOST_NAMES = 12


def settle(views: Sequence[View]) -> Iterator[events.Notice]:
    """Process the changes; takes a few milliseconds per changed setting, and no time without changes."""
    for view in views:
        try:
            now = git_config_copy.changed(view)
            if now is not None:
                yield from _settle(view, now)
        except git_config_copy.Unreadable as error:
            yield _notice(DROPPED, f"what the agent made of {view.path} cannot be read ({error}); it stays as it was")


def _settle(view: View, now: bytes) -> Iterator[events.Notice]:
    changes = git_settings.judged(git_config_copy.read(view.was), git_config_copy.read(now))
    kept: list[str] = []
    other: list[str] = []
    for change in (change for change in changes if change.kind == "kept"):
        after = [value for value in change.after if value is not None]
        try:
            is_done = git_config_copy.write(view, change.name, before=change.before, after=after)
        except git_config_copy.RefusedSetting as error:
            yield _notice(
                DROPPED,
                f"{_names([change.name])} of the agent could not be written to {view.path}: {error}; "
                "what is left of its settings is dropped",
            )
            break
        (kept if is_done else other).append(change.name)
    if kept:
        yield _notice(KEPT, f"the agent has set in {view.path}: {_names(kept)}")
    if other:
        yield _notice(DROPPED, f"changed meanwhile in {view.path}, so the agent's values are dropped: {_names(other)}")
    dropped = [change.name for change in changes if change.kind == "dropped"]
    if dropped:
        yield _notice(
            DROPPED,
            f"the agent has set {_names(dropped)}: that may start programs or lead git elsewhere, so {view.path} "
            "stays without it; set it yourself if you want it",
        )


def _notice(code: str, message: str) -> events.Notice:
    return events.Notice(level="info" if code == KEPT else "warning", code=code, message=message)


def _names(names: Sequence[str]) -> str:
    """Format names that an agent may have chosen: they may contain anything and have any length."""
    shown = [name if name.isprintable() else repr(name)[1:-1] for name in names[:MOST_NAMES]]
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(name if len(name) <= 80 else f"{name[:77]}..." for name in shown) + more
