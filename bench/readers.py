"""Three readers of the same lines, one per process: leadrope, claude-agent-sdk, and the least that can be done.

`python readers.py FOLDER READER WARM-UP EXECUTABLE` reads what the two executables say, one after the other, and tells
what the second one took. The first is short: it does the imports and the first allocations, for every reader alike.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from stage import KEY, Stage, tell


class Reading(msgspec.Struct, kw_only=True):
    """CPU is of this process alone, user and system, from before the start of the agent until after its end.

    The rate is over the lines alone, from the first to the last, without the agent's own start.
    """

    lines: int = 0
    first_at: float = 0.0
    last_at: float = 0.0
    cpu_s: float = 0.0

    def begin(self) -> None:
        self.cpu_s = -_cpu_s()

    def end(self) -> None:
        self.cpu_s += _cpu_s()


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def leadrope(reading: Reading, stage: Stage, executable: str) -> None:
    from leadrope import events, open_run

    wanted = (events.MessageCompleted, events.ToolRequested, events.ToolCompleted)
    request = stage.request(executable)
    reading.begin()
    count = 0
    async with open_run(request, environ=stage.environ()) as run:
        async for recorded in run:
            if isinstance(recorded.event, wanted):
                if not count:
                    reading.first_at = time.perf_counter()
                count += 1
        reading.last_at = time.perf_counter()
        result = await run.result()
    reading.end()
    reading.lines = count
    if result.outcome != "succeeded":
        raise SystemExit(f"the run ended as {result.outcome}: {result.error}")


async def sdk(reading: Reading, stage: Stage, executable: str) -> None:
    from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, UserMessage, query

    # The package passes this process's whole environment on, which is the scratch one of the stage.
    options = ClaudeAgentOptions(cli_path=executable, cwd=stage.ws, env={"ANTHROPIC_API_KEY": KEY})
    wanted = (AssistantMessage, UserMessage)
    reading.begin()
    count = 0
    async for message in query(prompt="go", options=options):
        if isinstance(message, wanted):
            if not count:
                reading.first_at = time.perf_counter()
            count += 1
    reading.last_at = time.perf_counter()
    reading.end()
    reading.lines = count


class Block(msgspec.Struct, gc=False):
    type: str
    text: str | None = None
    content: str | None = None
    tool_use_id: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None


class Message(msgspec.Struct, gc=False):
    content: list[Block]
    id: str | None = None


class Assistant(msgspec.Struct, tag="assistant", tag_field="type", gc=False):
    message: Message
    parent_tool_use_id: str | None = None


class User(msgspec.Struct, tag="user", tag_field="type", gc=False):
    message: Message
    parent_tool_use_id: str | None = None


class System(msgspec.Struct, tag="system", tag_field="type", gc=False):
    subtype: str


class Result(msgspec.Struct, tag="result", tag_field="type", gc=False):
    subtype: str


COUNTED = (Assistant, User)


class Bare(asyncio.SubprocessProtocol):
    """Splits, decodes and counts. No gate, no clock, no numbers, no bound on memory, no end that is verified."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._decode = msgspec.json.Decoder(Assistant | User | System | Result).decode
        self._rest = b""
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        import fcntl

        assert isinstance(transport, asyncio.SubprocessTransport)
        pipe = transport.get_pipe_transport(1)
        assert pipe is not None
        fcntl.fcntl(pipe.get_extra_info("pipe"), fcntl.F_SETPIPE_SZ, 1024 * 1024)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        decode, reading = self._decode, self._reading
        *lines, self._rest = (self._rest + data).split(b"\n")
        if not reading.first_at:
            reading.first_at = time.perf_counter()
        for line in lines:
            if isinstance(decode(line), COUNTED):
                reading.lines += 1

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 1:
            self._reading.last_at = time.perf_counter()

    def connection_lost(self, exc: Exception | None) -> None:
        # After the exit and the end of all pipes; process_exited alone comes while lines are still on their way.
        self.ended.set_result(None)


async def bare(reading: Reading, stage: Stage, executable: str) -> None:
    reading.begin()
    _, protocol = await asyncio.get_running_loop().subprocess_exec(
        lambda: Bare(reading), executable, stdin=asyncio.subprocess.DEVNULL, stderr=None, env=stage.environ()
    )
    await protocol.ended
    reading.end()


READERS: dict[str, Callable[[Reading, Stage, str], Awaitable[None]]] = {"leadrope": leadrope, "sdk": sdk, "bare": bare}


async def main(folder: str, reader: str, warm_up: str, executable: str) -> None:
    stage = Stage(Path(folder))
    await READERS[reader](Reading(), stage, warm_up)
    reading = Reading()
    await READERS[reader](reading, stage, executable)
    tell(reading)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
