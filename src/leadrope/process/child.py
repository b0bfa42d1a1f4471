"""One supervised child process: starts it, reads its lines, and ends it without leaving anything behind."""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from leadrope import errors
from leadrope.process import lines, process_tree, reaper
from leadrope.process.streams import QUIET_S, Streams

HIGH_WATER = 4 * lines.MIB
LOW_WATER = lines.MIB
"""Bounds for output that the consumer has not read: above the high-water mark the child is blocked, below the low-water
mark it continues. With much lower values the pipe stops and starts with every batch; higher ones only cost memory."""

STOP_S = 2.0
"""Delay between SIGTERM and SIGKILL. Claude Code needs up to 1.7 s to end its own children."""


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    exit_code: int
    """-n if signal n ended the process itself."""
    leftovers_killed: int
    """Processes that were still alive after the agent had ended."""
    survivors: int
    """Processes that could not be killed in time: in uninterruptible sleep, or owned by another user."""
    survivor_names: tuple[str, ...] = ()
    rung: process_tree.Rung


class Child:
    """A running child, created by `start`. Call `read` until it returns `[]`, then `end`; `end` is safe at any time."""

    def __init__(self, streams: Streams) -> None:
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._streams = streams
        self._hold: process_tree.TreeHold | None = None
        self._exit: asyncio.Future[int] = loop.create_future()
        self._ended: asyncio.Future[Ending] = loop.create_future()

    @property
    def pid(self) -> int:
        """The pid of the agent itself, not of its guardian."""
        return self._hold.pid if self._hold is not None else 0

    @property
    def exit_code(self) -> int | None:
        return self._exit.result() if self._exit.done() else None

    @property
    def stderr_head(self) -> tuple[str, ...]:
        return self._streams.stderr.head

    @property
    def stderr_tail(self) -> tuple[str, ...]:
        return self._streams.stderr.tail

    @property
    def pauses(self) -> int:
        """How often the child was blocked because its output was not read."""
        return self._streams.pauses

    @property
    def discarded_bytes(self) -> int:
        """Bytes of output dropped during the ending because nobody read them."""
        return self._streams.discarded_bytes

    @property
    def last_read_bytes(self) -> int:
        """Size of the last batch that was read."""
        return self._streams.last_read_bytes

    async def read(self) -> list[lines.Line]:
        """Returns the next batch of lines; `[]` means the end of output, also on every later call."""
        while pieces := await self._streams.read():
            if found := lines.split(pieces):
                return found
        return []

    async def read_whole(self) -> list[lines.Piece]:
        """Like `read`, but keeps lines that arrived together in one piece, including empty ones."""
        return await self._streams.read()

    def write(self, data: bytes) -> None:
        """Queues bytes for stdin; raises errors.RunClosed once the child no longer reads."""
        self._streams.write(data)

    async def drain(self) -> None:
        await self._streams.drain()

    def close_input(self) -> None:
        self._streams.close_stdin()

    def terminate(self) -> None:
        """Sends SIGTERM to the agent itself and nothing more; `end` is the complete escalation."""
        if self._hold is not None:
            self._hold.terminate()

    async def wait(self) -> int:
        """Returns the agent's exit code, -n if signal n ended it.

        Output may still be pending: read to the end first.
        """
        return await asyncio.shield(self._exit)

    async def end(self, *, polite_s: float = 0.0, stop_s: float = STOP_S) -> Ending:
        """Closes stdin, waits `polite_s`, sends SIGTERM, waits `stop_s`, then kills the whole tree and verifies it.

        With both waits at 0 only the SIGKILL is sent.

        It may be called any number of times; a later call can only shorten the waits. The order is given before the
        first await and carried out without this task, so cancelling the task, even twice, leaves no process behind. If
        the agent has already exited, it waits for the sweep, which has started by itself. Output ends a moment before
        the exit: a `polite_s` lets an agent that is about to exit keep its own exit code.
        """
        self._order_end(polite_s, stop_s)
        return await asyncio.shield(self._ended)

    def _order_end(self, polite_s: float, stop_s: float) -> None:
        if self._ended.done():
            return
        if not self._exit.done():
            # The stdin of a child that is killed at once must not be closed first: within those milliseconds an agent
            # would treat its pending requests as refused and ask the model what to do next.
            self._streams.begin_ending(close_stdin=polite_s + stop_s > 0)
        if self._hold is not None:
            self._hold.end(polite_s, stop_s)

    # Called by the hold.

    def agent_exited(self, code: int) -> None:
        if not self._exit.done():
            self._exit.set_result(code)

    def tree_ended(self, *, leftovers: int, survivors: int, names: str, rung: process_tree.Rung) -> None:
        ending = Ending(
            exit_code=self._exit.result(),
            leftovers_killed=leftovers,
            survivors=survivors,
            survivor_names=() if names == "-" else tuple(names.split(",")),
            rung=rung,
        )
        self._streams.all_lost.add_done_callback(lambda _: self._ended.set_result(ending))
        # A survivor may hold the pipes open forever.
        self._streams.finish(quiet_s=QUIET_S if not survivors else 0.0)


async def start(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str,
    spool_dir: str,
    box: Sequence[str] = (),
    guardian: bool = True,
    socket_input: bool = False,
    high_water: int = HIGH_WATER,
    low_water: int = LOW_WATER,
    on_stderr_line: Callable[[str], None] | None = None,
) -> Child:
    """Starts `argv` (never a shell) in its own session with exactly `env`, plus LEADROPE_RUN if it is missing.

    `box` is the result of `sandbox.plan`: the agent runs inside that sandbox, and an exit code of 128+n may be its
    signal n. Without `guardian`, or on systems that have none (not Linux), the tree is tracked by session and tag
    alone. `socket_input` makes stdin a socket, which another process of the same user cannot open through /proc as it
    could a pipe. Do not use it for a shell: bash takes a socket for a remote login and reads ~/.bashrc.
    """
    env = {reaper.TAG: secrets.token_hex(8), **env}
    tag = env[reaper.TAG]
    command = [*box, _resolve(argv[0], env), *argv[1:]]
    has_guardian = guardian and process_tree.has_guardian()
    if box and not has_guardian:
        raise errors.SpawnFailed(
            f"{argv[0]} cannot be started in a sandbox without a guardian process",
            hint="Sandboxes need Linux and a Python that is not frozen; run without a sandbox otherwise.",
        )
    holder: process_tree.Guarded | process_tree.Bare
    streams = Streams(
        spool_dir=spool_dir,
        high_water=high_water,
        low_water=low_water,
        on_stderr_line=on_stderr_line,
        on_process_exited=lambda: holder.exited() if isinstance(holder, process_tree.Bare) else None,
    )
    child = Child(streams)
    holder = (
        process_tree.Guarded(child, tag=tag, boxed=bool(box), socket_input=socket_input)
        if has_guardian
        else process_tree.Bare(child, tag=tag)
    )
    child._hold = holder  # noqa: SLF001  # the two know each other: orders go down, reports come up
    try:
        await holder.start(command, env=env, cwd=cwd, streams=streams)
    except process_tree.ExecFailed as error:
        await child.end(stop_s=0)
        raise _spawn_error(command[0], cwd, error.errno) from error
    except process_tree.BoxFailed as error:
        await child.end(stop_s=0)
        raise errors.SpawnFailed(
            f"the sandbox around {argv[0]} could not be built: "
            + (" | ".join(child.stderr_tail[-3:]) or "bubblewrap said nothing"),
            hint="`leadrope doctor` tries the sandbox; a folder named for the run may be out of its reach.",
        ) from error
    except process_tree.GuardianFailed as error:
        await child.end(stop_s=0)
        raise errors.SpawnFailed(
            f"the guardian of {command[0]} ended before it could start it: "
            + (" | ".join(child.stderr_tail[-3:]) or "it said nothing"),
            hint="Check that the Python that runs leadrope can start: its memory, its open files, its installation.",
        ) from error
    except TimeoutError as error:
        await child.end(stop_s=0)
        raise errors.SpawnFailed(
            f"{command[0]} was not running after {process_tree.START_S:.0f} s",
            hint="Look for a machine without free memory, or a binary on a file system that does not answer.",
        ) from error
    except OSError as error:
        raise _spawn_error(command[0], cwd, error.errno or 0) from error
    except asyncio.CancelledError:
        await child.end(stop_s=0)
        raise
    return child


def _resolve(program: str, env: Mapping[str, str]) -> str:
    """Resolves `program` in the PATH that the child gets, not in ours."""
    if os.path.dirname(program):  # noqa: PTH120  # pathlib drops the "./" that makes it a path
        return program
    found = shutil.which(program, path=env.get("PATH", os.defpath))
    if found is None:
        raise errors.CliNotFound(
            f"{program} is not on the PATH of the run ({env.get('PATH', os.defpath)})",
            hint=f"Install {program}, or give its full path.",
        )
    return os.path.abspath(found)  # noqa: PTH100  # Path.resolve would follow links; a program may look at its name


def _spawn_error(program: str, cwd: str, number: int) -> errors.LeadropeError:
    if not Path(cwd).is_dir():
        return errors.BadDirectory(
            f"the working directory {cwd} is gone or is not a directory",
            hint="Create it, or pass another working directory.",
        )
    path = Path(cwd, program)
    match number:
        case errno.ENOENT if path.exists():
            return errors.SpawnFailed(
                f"{program} cannot be started: the interpreter or loader that it names does not exist",
                hint="Look at its first line (#!), or at whether it was built for this system.",
            )
        case errno.ENOENT | errno.ENOTDIR:
            return errors.CliNotFound(f"{program} does not exist", hint="Install it, or correct its path.")
        case errno.EACCES | errno.EPERM:
            return errors.SpawnFailed(
                f"{program} may not be executed", hint=f"Try: chmod +x {path}; and look at the mount's noexec."
            )
        case errno.ENOEXEC:
            return errors.SpawnFailed(
                f"{program} is not a program that this system can run",
                hint="A script needs a first line such as #!/bin/sh; a binary must be built for this machine.",
            )
        case errno.E2BIG:
            return errors.SpawnFailed(
                f"the arguments or variables for {program} are too long for the system (128 KiB each)",
                hint="Pass long texts on stdin or in a file.",
            )
        case _:
            reason = os.strerror(number) if number else "unknown reason"
            return errors.SpawnFailed(
                f"{program} cannot be started: {reason}", hint="Check the limits on processes, files and memory."
            )
