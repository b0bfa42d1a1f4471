"""What leadrope.run adds to the bare CLI: the same binary, flags, environment and bytes on stdin, in turn.

`python overhead.py FOLDER CLAUDE PAIRS` measures, in one process that has imported everything before.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any

import leadrope
from leadrope.providers.claude_code.locate import bundled
from leadrope.rehearsal import ModelServer, write_executable
from stage import KEY, MeasurementFailed, Stage, tell
from tables import Row, Table

PAIRS = 15
MOST_MS = 60.0


def measure(stage: Stage, *, pairs: int = PAIRS) -> Table:
    claude = bundled()
    if claude is None:
        raise MeasurementFailed("the agent binary is missing: run `make setup-dev`")
    found = stage.measure("overhead", str(claude), str(pairs))
    return Table(
        title="(b) overhead over the bare CLI",
        rows=(
            Row(what="bare CLI, one text turn", measured=median(found["bare"]), unit="ms"),
            Row(what="leadrope.run, the same turn", measured=median(found["leadrope"]), unit="ms"),
            Row(
                what="leadrope.run over the bare CLI",
                measured=median(a - b for a, b in zip(found["leadrope"], found["bare"], strict=True)),
                unit="ms",
                bar=MOST_MS,
                note=f"median difference of {pairs} pairs, the order changing",
            ),
        ),
    )


class BareCli:
    """The CLI as a script would start it, with what leadrope itself gave to a stand-in.

    Only the way to the model is the script's own: leadrope's leads through the run that was recorded, and has ended.
    """

    def __init__(self, claude: str, start: dict[str, Any], stdin: bytes, folder: Path, base_url: str) -> None:
        self._argv = [claude, *start["argv"]]
        self._env: dict[str, str] = start["env"] | {"ANTHROPIC_BASE_URL": base_url, "ANTHROPIC_API_KEY": KEY}
        self._cwd: str = start["cwd"]
        self._stdin = stdin
        self._folder = folder

    async def __call__(self) -> float:
        session = str(uuid.uuid4())
        config, tmp = self._folder / session, self._folder / f"{session}-tmp"
        for path in (config, tmp):
            path.mkdir(parents=True)
        argv = [f"--session-id={session}" if word.startswith("--session-id=") else word for word in self._argv]
        env = self._env | {"CLAUDE_CONFIG_DIR": str(config), "TMPDIR": str(tmp)}
        start = time.perf_counter()
        process = await asyncio.create_subprocess_exec(
            *argv,
            env=env,
            cwd=self._cwd,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        stdout, stderr = await process.communicate(self._stdin)
        took = time.perf_counter() - start
        if process.returncode != 0 or b'"type":"result"' not in stdout:
            raise MeasurementFailed(f"the bare CLI exited with {process.returncode}: {stderr[-500:]!r}")
        shutil.rmtree(config)
        shutil.rmtree(tmp)
        return took


async def recorded_start(stage: Stage, base_url: str) -> tuple[dict[str, Any], bytes]:
    """The command, the environment and the bytes on stdin that leadrope gives to an agent."""
    started, stdin = stage.folder / "started.jsonl", stage.folder / "stdin.jsonl"
    steps = [{"initialize": True}, {"await_user": True}, {"init": True}, {"text": "Hi"}, {"result": True}]
    script = {"steps": [*steps, {"await_eof": True}], "start_file": str(started), "stdin_file": str(stdin)}
    stand_in = write_executable(stage.folder / "recorder", script)
    result = await leadrope.run(stage.request(stand_in, base_url=base_url))
    result.raise_for_outcome()
    return json.loads(started.read_text()), stdin.read_bytes()


async def main(folder: str, claude: str, pairs: str) -> None:
    stage = Stage(Path(folder))
    async with ModelServer([{"text": "Hello.", "repeat": "forever"}]) as model:
        start, stdin = await recorded_start(stage, model.url)
        bare = BareCli(claude, start, stdin, stage.folder / "bare", model.url)
        request = stage.request(claude, base_url=model.url)

        async def ours() -> float:
            start = time.perf_counter()
            result = await leadrope.run(request)
            took = time.perf_counter() - start
            result.raise_for_outcome()
            return took

        await bare()
        await ours()
        found: dict[str, list[float]] = {"bare": [], "leadrope": []}
        for number in range(int(pairs)):
            runs: list[tuple[str, Callable[[], Awaitable[float]]]] = [("bare", bare), ("leadrope", ours)]
            for name, run in runs if number % 2 else reversed(runs):
                found[name].append(1000 * await run())
    tell(found)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
