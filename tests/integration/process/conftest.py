"""Real children with a small environment."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from leadrope.process.child import Child, start

Starter = Callable[..., Awaitable[Child]]


@pytest.fixture
def begin(tmp_path: Path) -> Starter:
    """Starts a bash script as a child, with a small environment."""

    async def begin(script: str, *arguments: str, **options: object) -> Child:
        env = {"PATH": os.environ["PATH"]}
        command = ["bash", "-c", script, "child", *arguments]
        return await start(command, env=env, cwd=str(tmp_path), spool_dir=str(tmp_path), **options)  # type: ignore[arg-type]  # options of start

    return begin
