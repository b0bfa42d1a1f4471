"""An MCP server as a process of one step: in the sandbox that an agent's servers have, and ended with the step.

Starts what the user's own configuration names, and nothing that a workflow's file says.
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
from leadrope.process import reaper
from leadrope.providers import base
from leadrope.providers.claude_code import env as environments
from leadrope.runtime import prepare
from leadrope.runtime.broker.proxy import HostProxy
from leadrope.runtime.rundir import RunDir
from leadrope.runtime.sandboxing import sandboxing

LEAVE_S = 1.0
"""For a server to end by itself when its input is closed; most do at once."""


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
) -> AsyncIterator[processes.Child]:
    """`server` has its secrets filled in. Leaving the block ends it, and everything that it has started."""
    request = RunRequest(prompt="server", cwd=str(workspace), policies=policies)
    ready = prepare.complete(request, config, environ, home)
    # What a trusted repository wishes for its agents is none of this server's business.
    request = msgspec.structs.replace(ready.request, connections={name: server})
    granted, _ = await sandboxing.grant(sandboxing.wish(request, ready.rules), memory=homes.ensure(home))
    run_dir = RunDir()
    try:
        async with contextlib.AsyncExitStack() as stack:
            lists = ready.rules.network_allowed_hosts if granted.model_only else ()
            hosts = sandboxing.allowed_hosts(lists, ready.rules.network_blocked_hosts)
            proxy = None
            if hosts:
                proxy = run_dir.path / "proxy.sock"
                await stack.enter_async_context(HostProxy(hosts, listen=proxy))
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
            built = sandboxing.build(granted, request, launch, place, ready.rules, sandboxing.Sockets(proxy=proxy))
            child = await processes.start(
                launch.argv,
                env={**launch.env, **built.env, reaper.TAG: place.run_id},
                cwd=launch.cwd,
                spool_dir=str(run_dir.path),
                box=built.argv,
            )
            polite_s = 0.0
            try:
                yield child
                polite_s = LEAVE_S
            finally:
                await child.end(polite_s=polite_s)
                await sandboxing.settled(built)
    finally:
        run_dir.remove()


def _launch(
    server: McpServer, request: RunRequest, run_dir: Path, environ: Mapping[str, str], config: configs.Config
) -> base.Launch:
    tmp, private = run_dir / "tmp", run_dir / "config"
    for folder in (tmp, private):
        folder.mkdir(mode=0o700)
    named = (*environments.ALLOWED, *(one for one in config.forward_env if environments.refused(one) is None))
    env = {one: environ[one] for one in named if environ.get(one)}
    env["HOME"] = env.get("HOME") or str(homes.user_home(environ))
    env["PATH"] = env.get("PATH") or environments.DEFAULT_PATH
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
        # Not None: that would open the agent's own login to the server.
        config_dir=str(private),
    )
