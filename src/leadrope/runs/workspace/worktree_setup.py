"""Runs the set-up commands of a new worktree in order, supervised; the caller decides whether they may run."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence

from leadrope import errors
from leadrope.process import child

KEPT_LINES = 40
LINE_CHARS = 500


def commands(values: Sequence[str | Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """Convert set-up commands to argument lists: a text is run by bash, a list is a command.

    >>> commands(["uv sync && make", ["npm", "ci"]])
    (('bash', '-c', 'uv sync && make'), ('npm', 'ci'))
    """
    return tuple(("bash", "-c", value) if isinstance(value, str) else tuple(value) for value in values)


async def run(
    setup: Sequence[Sequence[str]], *, cwd: str, env: Mapping[str, str], timeout_s: float, spool_dir: str
) -> None:
    """Run the commands within one time limit for all of them. On a time-out, every process they started is killed."""
    loop = asyncio.get_running_loop()
    until = loop.time() + timeout_s
    for argv in setup:
        await _one(argv, cwd=cwd, env=env, left_s=until - loop.time(), timeout_s=timeout_s, spool_dir=spool_dir)


async def _one(
    argv: Sequence[str], *, cwd: str, env: Mapping[str, str], left_s: float, timeout_s: float, spool_dir: str
) -> None:
    said: deque[str] = deque(maxlen=KEPT_LINES)
    started = await child.start(
        argv, env=env, cwd=cwd, spool_dir=spool_dir, on_stderr_line=lambda line: said.append(line[:LINE_CHARS])
    )
    shown = argv[2] if list(argv[:2]) == ["bash", "-c"] and len(argv) == 3 else " ".join(argv)
    try:
        started.close_input()
        async with asyncio.timeout(max(left_s, 0.0)):
            while lines := await started.read():
                said.extend(_text(line) for line in lines)
            code = await started.wait()
    except TimeoutError:
        await started.end()
        raise errors.BadConfig(
            f"[worktree] setup: {shown!r} did not end within {timeout_s:g} s and was stopped{_tail(said)}",
            hint="Raise the time limit, or shorten the set-up.",
        ) from None
    finally:
        await asyncio.shield(started.end(polite_s=1.0))
    if code:
        raise errors.BadConfig(
            f"[worktree] setup: {shown!r} ended with {code}{_tail(said)}",
            hint="Try it by hand in a fresh worktree, then correct the setting.",
        )


def _text(line: object) -> str:
    return bytes(line)[:LINE_CHARS].decode(errors="replace") if isinstance(line, bytes | bytearray) else "(a long line)"


def _tail(said: deque[str]) -> str:
    return ":\n" + "\n".join(said) if said else ", and said nothing"
