"""Plans one start completely: command, environment and private files. Writes nothing and starts nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from leadrope.core.request import RunRequest
from leadrope.process.sandbox.command_domain import Domain
from leadrope.providers.base import LaunchFile
from leadrope.providers.claude_code.argv import command
from leadrope.providers.claude_code.credentials import Credential
from leadrope.providers.claude_code.env import child_env


class LaunchPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A start that is ready once folders and files are written, for their owner only. Its repr contains no environment
    values.
    """

    argv: tuple[str, ...]
    env: dict[str, str]
    files: tuple[LaunchFile, ...] = ()
    folders: tuple[str, ...] = ()
    stderr_pipes: Mapping[str, str] = {}

    def __repr__(self) -> str:
        files = [file.path for file in self.files]
        return f"Plan(argv={list(self.argv)!r}, env={sorted(self.env)!r}, files={files!r})"


def plan_launch(
    request: RunRequest,
    *,
    binary: str,
    model: str,
    session_id: str | None,
    run_id: str,
    run_dir: Path,
    launch_dir: Path,
    config_dir: Path | None,
    credential: Credential,
    environ: Mapping[str, str],
    is_root: bool,
    default_home: Path,
    instructions_text: str = "",
    forward_env: Sequence[str] = (),
    is_trusted: bool = False,
    shell: str | None = None,
    domain: Domain = Domain(),  # noqa: B008  # frozen
    own_servers: Iterable[str] = (),
) -> LaunchPlan:
    """Plan one start. The child's temporary files go to `tmp` in `run_dir`, the plan's files to `launch_dir`."""
    line = command(
        request,
        binary=binary,
        model=model,
        session_id=session_id,
        launch_dir=launch_dir,
        instructions_text=instructions_text,
        is_trusted=is_trusted,
        run_server=domain.server_words,
        own_servers=own_servers,
    )
    tmp_dir = run_dir / "tmp"
    env = child_env(
        environ,
        request,
        credential=credential,
        config_dir=config_dir,
        tmp_dir=tmp_dir,
        run_id=run_id,
        is_root=is_root,
        default_home=default_home,
        forward_env=forward_env,
        is_trusted=is_trusted,
        shell=shell,
        domain=domain,
    )
    folders = (run_dir, tmp_dir) if config_dir is None else (run_dir, tmp_dir, config_dir)
    return LaunchPlan(
        argv=line.argv,
        env=env,
        files=line.files,
        folders=tuple(map(str, folders)),
        stderr_pipes=line.stderr_pipes,
    )
