"""Lets a call that was approved write to a protected path, which the sandbox keeps read-only for everything else.

The place is opened when the call is allowed and closed when its result has come. In between, whatever else runs in the
sandbox could write there too: a place is open for as long as one edit or one command takes.
"""

from __future__ import annotations

import asyncio
import collections
import sys
from collections.abc import Awaitable, Iterator, Sequence

from leadrope import spelling
from leadrope.core.tools import ToolCall
from leadrope.policy import paths
from leadrope.policy.call_analysis import Look
from leadrope.policy.decide import Policy
from leadrope.process.sandbox import guards
from leadrope.process.sandbox.values import Sight

TIMEOUT_S = 10.0


class ApprovedWrites:
    """For one process of an agent."""

    def __init__(self, policy: Policy, sight: Sight, pid: int) -> None:
        self._policy = policy
        self._sight = sight
        self._pid = pid
        self._open: dict[str, tuple[str, ...]] = {}
        """Call -> the places that were opened for it."""
        self._users: collections.Counter[str] = collections.Counter()
        self._turn = asyncio.Lock()
        self.paths: set[str] = set()
        """Everything that an allowed call was to write, by its real name."""

    async def before(self, call: ToolCall) -> str | None:
        """Open what the call is to write; a warning where that does not work."""
        written = [spellings[-1] for spellings in self._look(call).written]
        self.paths.update(written)
        places = tuple(dict.fromkeys(place for path in written for place in self._guards(path)))
        await asyncio.sleep(0)  # what was open for a call that has just ended is closed before this one runs
        async with self._turn:
            if not places:
                return None
            wrong = await _change(self._pid, "open", places)
            if wrong is None:
                self._open[call.id] = places
                self._users.update(places)
                return None
        return (
            f"the call was allowed, but {', '.join(places)} stays read-only in the sandbox: {wrong}. "
            f"Make the change yourself, or run with {spelling.option('sandbox', 'off')}"
        )

    def after(self, call_id: str) -> Awaitable[str | None] | None:
        """What is left to do when a call has ended; None: nothing."""
        places = self._open.pop(call_id, ())
        return self._close(places) if places else None

    async def _close(self, places: tuple[str, ...]) -> str | None:
        """What was opened for one call alone; a warning where that does not work."""
        async with self._turn:
            self._users.subtract(places)
            unused = [place for place in places if self._users[place] <= 0]
            wrong = await _change(self._pid, "close", unused) if unused else None
        if wrong is None:
            return None
        return f"{', '.join(unused)} could not be made read-only again in the sandbox: {wrong}"

    def _look(self, call: ToolCall) -> Look:
        home = self._sight.home or paths.user_home()
        return Look(call, paths.Ground(self._policy.workspace, home=home, cwd=call.cwd))

    def _guards(self, path: str) -> Iterator[str]:
        """The guarded place that decides about a path, be it the path itself or a folder above it."""
        while path != "/":
            if path in self._sight.places:
                if path in self._sight.guarded:
                    yield path
                return
            path = path.rpartition("/")[0] or "/"


async def _change(pid: int, wanted: str, places: Sequence[str]) -> str | None:
    """What is wrong, or None."""
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-I", "-S", guards.__file__, str(pid), wanted, *places),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={},
        )
    except OSError as error:
        return f"{error}"
    try:
        async with asyncio.timeout(TIMEOUT_S):
            said, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return f"no answer in {TIMEOUT_S:g} s"
    if process.returncode == 0:
        return None
    return said.decode(errors="replace").strip() or f"exit code {process.returncode}"
