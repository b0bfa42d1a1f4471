"""Real children, and an independent look at /proc for what they leave."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from leadrope.process.child import Child, start

# Read at import: the suite's own fixture removes LEADROPE_* before every test.
FAULT_COUNT = int(os.environ.get("LEADROPE_FAULT_COUNT", "5"))

Starter = Callable[..., Awaitable[Child]]
Survivors = Callable[[], dict[int, str]]


@pytest.fixture
def fault_count() -> int:
    return FAULT_COUNT


@pytest.fixture
def marker() -> str:
    """A word that a test puts into the argv of everything it starts, so that the scan below finds it."""
    return f"leadrope-test-{secrets.token_hex(6)}"


@pytest.fixture
def survivors(marker: str) -> Iterator[Survivors]:
    """Living processes with the marker in their argv. It shares no code with the package."""

    def scan() -> dict[int, str]:
        found: dict[int, str] = {}
        for name in os.listdir("/proc"):  # noqa: PTH208
            if not name.isdigit() or int(name) == os.getpid():
                continue
            try:
                argv = Path(f"/proc/{name}/cmdline").read_bytes()
                state = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if marker.encode() in argv and state not in "ZX":
                found[int(name)] = argv.replace(b"\0", b" ").decode(errors="replace")
        return found

    yield scan
    for pid in scan():  # a failed test cleans up after itself
        os.kill(pid, 9)


@pytest.fixture
def begin(tmp_path: Path) -> Starter:
    """Starts a bash script as a child, with a small environment."""

    async def begin(script: str, *arguments: str, **options: object) -> Child:
        env = {"PATH": os.environ["PATH"]}
        command = ["bash", "-c", script, "child", *arguments]
        return await start(command, env=env, cwd=str(tmp_path), spool_dir=str(tmp_path), **options)  # type: ignore[arg-type]  # options of start

    return begin


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], Awaitable[None]]:
    """Waits for a state, with a bound; for states that no event announces."""

    async def until(holds: Callable[[], bool]) -> None:
        give_up = time.monotonic() + 20
        while not holds():
            assert time.monotonic() < give_up, "the state never came"
            await asyncio.sleep(0.005)

    return until
