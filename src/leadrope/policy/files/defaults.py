"""The policy that ships with the package. Read from its file once; changed by nobody."""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path

import msgspec

from leadrope.confined import real_path
from leadrope.policy.files.examples import Example
from leadrope.policy.paths import literal
from leadrope.policy.resolve import settings_only
from leadrope.policy.schema import PolicyRules

PATH = Path(__file__).with_name("default.toml")


@functools.cache
def rules(*, lists: bool = True) -> PolicyRules:
    """The shipped rules; without their lists for a user who said `defaults = false`."""
    table = dict(_table())
    table.pop("examples")
    found = msgspec.convert(table, PolicyRules)
    return found if lists else settings_only(found)


@functools.cache
def examples() -> tuple[Example, ...]:
    return msgspec.convert(_table()["examples"], tuple[Example, ...])


def own_paths(home: Path, config: Path | None = None) -> tuple[str, ...]:
    """What `protected_paths` says of leadrope's own files, for the places where they really lie.

    The folder of its data is protected but for the checkouts in it, which runs are started in to be changed.
    """
    found: list[str] = []
    for folder in dict.fromkeys((home, Path(real_path(home)))):
        root = literal(str(folder))
        found += [root, f"{root}/*", f"{root}/[!w]*/", f"{root}/workflows/"]
        found += [f"{root}/worktrees/*", f"{root}/worktrees/*/worktree.json", f"{root}/worktrees/*/index"]
    for file in dict.fromkeys((config, Path(real_path(config)))) if config is not None else ():
        found.append(literal(str(file)))
    return tuple(found)


@functools.cache
def _table() -> dict[str, object]:
    table: dict[str, object] = tomllib.loads(PATH.read_text(encoding="utf-8"))["policy"]
    return table
