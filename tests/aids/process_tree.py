"""The living processes below one, as the kernel tells them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def descendants(root: int) -> list[int]:
    """All processes below `root`, without itself."""
    found: list[int] = []
    todo = [root]
    while todo:
        below = list(children(todo.pop()))
        found += below
        todo += below
    return found


def children(parent: int) -> Iterator[int]:
    """Asked of the kernel for each thread: looking through all processes took a third of the time of the unit tests."""
    try:
        threads = list(Path(f"/proc/{parent}/task").iterdir())
    except OSError:
        return
    for thread in threads:
        try:
            told = (thread / "children").read_text()
        except OSError:  # the thread ended meanwhile
            continue
        yield from map(int, told.split())


def environments_above(supervisor: int) -> str:
    """A shell script that prints the environment of its shell, of the agent and of what holds the agent."""
    return f"""
p=$$
while [ "$p" != {supervisor} ] && [ "$p" -gt 1 ]; do
  tr '\\0' '\\n' < /proc/$p/environ
  p=$(sed -n 's/^PPid:[[:space:]]*//p' /proc/$p/status)
done
"""
