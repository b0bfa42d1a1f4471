"""Runs an MCP server as a process of one step, in the same sandbox as an agent's servers; it ends with the step.

Only servers from the user's own configuration are started, nothing that a workflow file defines.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from leadrope import errors
from leadrope.core import config as configs
from leadrope.core import home as homes
from leadrope.core.request import McpServer, RunRequest
from leadrope.process import child as processes
from leadrope.process import environment as environments
from leadrope.providers import base
from leadrope.runtime import prepare
from leadrope.runtime.rundir import RunDir
from leadrope.runtime.sandboxing.sandboxed_process import Notify, SandboxedProcess
from leadrope.runtime.sandboxing.sandboxing import Sockets

LEAVE_S = 1.0
"""Grace period for a server after its input is closed; most end at once."""


@contextlib.asynccontextmanager
async def open_server(
    name: str,
    server: McpServer,
    *,
    workspace: Path,
    policies: tuple[dict[str, Any], ...],
    environ: Mapping[str, str],
    config: configs.Config,
    home: Path,
    notify: Notify,
) -> AsyncIterator[processes.Child]:
    """Start `server`, whose secrets are filled in. Leaving the block ends it and everything that it has started.

    `notify` receives notices about its sandbox.
    """
    request = RunRequest(prompt="server", cwd=str(workspace), policies=policies)
    ready = prepare.complete(request, config, environ, home)
    # Settings that a trusted repository has for its agents do not apply to this server.
    request = msgspec.structs.replace(ready.request, connections={name: server})
    for notice in ready.notices:
        if notice.code == "project_ignored":
            notify(notice)
    sandbox = SandboxedProcess(request, ready.rules, home=homes.ensure(home), notify=notify)
    await sandbox.grant()
    run_dir = RunDir()
    try:
        async with contextlib.AsyncExitStack() as stack:
            socket = None
            if sandbox.hosts:
                socket = run_dir.path / "proxy.sock"
                stack.push_async_exit(await sandbox.open_proxy(socket))
            launch = _launch(server, request, run_dir.agent, environ, config)
            place = base.StartContext(
                run_id=secrets.token_hex(16),
                environ=environ,
                ambient=environ,
                settings={},
                home=home,
                run_dir=run_dir.agent,
                launch_dir=run_dir.path,  # unused: no provider plans this start
                config=config,
            )
            sandbox.build(request, launch, place, Sockets(proxy=socket))
            child = await sandbox.start(tag=place.run_id, spool_dir=run_dir.path)
            polite_s = 0.0
            try:
                yield child
                polite_s = LEAVE_S
            finally:
                await child.end(polite_s=polite_s)
                await sandbox.settle()
    finally:
        run_dir.remove()


def _launch(
    server: McpServer, request: RunRequest, run_dir: Path, environ: Mapping[str, str], config: configs.Config
) -> base.Launch:
    tmp, private = run_dir / "tmp", run_dir / "config"
    for folder in (tmp, private):
        folder.mkdir(mode=0o700)
    forwarded = [name for name in config.forward_env if environments.refused(name) is None]
    env = environments.passed_on(environ, forwarded, default_home=homes.user_home(environ))
    env |= {"TMPDIR": str(tmp), **server.env}
    program = shutil.which(server.command or "", path=env["PATH"])
    if program is None:
        raise errors.CliNotFound(f"{server.command} is not on the PATH", hint=f"Install {server.command}.")
    return base.Launch(
        argv=(program, *server.args),
        env=env,
        cwd=str(request.cwd),
        session_id=None,
        model="",
        config_dir=str(private),
    )
