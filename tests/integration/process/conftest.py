"""Real children with a small environment, and a command pool in a sandbox for those that need one."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from leadrope.process.child import Child, Ending, start
from leadrope.process.sandbox import availability
from leadrope.process.sandbox.values import Sandbox

Starter = Callable[..., Awaitable[Child]]

NOBODY = 65534
ROOT = os.geteuid() == 0
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


@pytest.fixture
def begin(tmp_path: Path) -> Starter:
    """Starts a bash script as a child, with a small environment."""

    async def begin(script: str, *arguments: str, **options: object) -> Child:
        env = {"PATH": os.environ["PATH"]}
        command = ["bash", "-c", script, "child", *arguments]
        return await start(command, env=env, cwd=str(tmp_path), spool_dir=str(tmp_path), **options)  # type: ignore[arg-type]  # options of start

    return begin


class Done(msgspec.Struct, frozen=True, kw_only=True):
    ending: Ending
    out: str
    err: str

    @property
    def code(self) -> int:
        return self.ending.exit_code


class Room:
    """A workspace, a home with secrets, leadrope's own folders, and something that is none of the agent's business."""

    def __init__(self, folder: Path, owner: int | None) -> None:
        self.folder = folder
        self.ws, self.run, self.home = folder / "ws", folder / "run", folder / "home"
        self.elsewhere, self.own = folder / "elsewhere", folder / "leadrope"
        self.box = availability.PreparedSandbox()
        self.config = self.own / "sessions" / "s1" / "config"
        for path in (self.ws, self.run / "tmp", self.home / ".ssh", self.home / ".aws", self.elsewhere, self.config):
            path.mkdir(parents=True)
        (self.home / ".ssh" / "id_rsa").write_text("PRIVATE")
        (self.home / ".netrc").write_text("PRIVATE")
        (self.home / "diary").write_text("PRIVATE")
        (self.own / "leadrope.db").write_text("PRIVATE")
        (self.home / ".gitconfig").write_text("[user]\nname = A\nemail = a@b\n[commit]\ngpgsign = true\n")
        (self.elsewhere / "file").write_text("PRIVATE")
        if owner is not None:
            self.give(self.ws, owner)

    @staticmethod
    def give(folder: Path, owner: int) -> None:
        for parent, folders, files in os.walk(folder):
            for path in (parent, *(f"{parent}/{name}" for name in (*folders, *files))):
                os.chown(path, owner, owner, follow_symlinks=False)

    def others(self) -> dict[Path, bytes]:
        """All that is neither in the workspace nor in the run's own folder."""
        own = {self.ws, self.run}
        files = (path for path in self.folder.rglob("*") if path.is_file() and not own.intersection(path.parents))
        return {path: path.read_bytes() for path in files}

    def spec(self, **fields: Any) -> Sandbox:
        given: dict[str, Any] = {
            "workspace": str(self.ws),
            "run_dir": str(self.run),
            "config_dir": str(self.config),
            "home": str(self.home),
            "hidden": (str(self.own),),
            "binary": "/bin/bash",
            "path": SYSTEM_PATH,
        }
        return Sandbox(**(given | fields))

    async def begin(self, script: str, *arguments: str, altered: Callable[[str], str] = str, **fields: Any) -> Child:
        spec = self.spec(**fields)
        box = self.box = availability.prepare(spec)
        env = {"PATH": spec.path, "HOME": spec.home, "TMPDIR": f"{spec.run_dir}/tmp", **box.env}
        command = ["/bin/bash", "-c", script, "child", *arguments]
        return await start(
            command, env=env, cwd=spec.workspace, spool_dir=str(self.folder), box=[*map(altered, box.argv)]
        )

    async def play(self, script: str, *arguments: str, **fields: Any) -> Done:
        child = await self.begin(script, *arguments, **fields)
        lines: list[str] = []
        async with asyncio.timeout(60):
            while batch := await child.read():
                lines += [bytes(line).decode() for line in batch]  # type: ignore[arg-type]  # short lines are bytes
            await child.wait()
        return Done(ending=await child.end(polite_s=20), out="\n".join(lines), err="\n".join(child.stderr_tail))

    async def git(self, *commands: Sequence[str]) -> None:
        """Outside of the box, as the user."""
        git = ["git", "-c", "user.name=A", "-c", "user.email=a@b", "-c", "safe.directory=*"]
        for command in commands:
            await asyncio.to_thread(
                subprocess.run, [*git, "-c", "protocol.file.allow=always", *command], check=True, capture_output=True
            )


@pytest.fixture(params=["own", "another's"] if ROOT else ["own"])
def room(request: pytest.FixtureRequest, tmp_path: Path) -> Room:
    """Of leadrope's own user; and where that is root, once more with a workspace of another user."""
    if shutil.which("bwrap") is None and os.environ.get("CI", "").lower() != "true":
        pytest.skip("bubblewrap is not installed")
    return Room(tmp_path, NOBODY if request.param == "another's" else None)
