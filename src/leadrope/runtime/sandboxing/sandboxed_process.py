"""The only way to start something in a sandbox: grant, build, start, settle, and report.

Agents, workflow commands and the MCP servers of steps all start here. The caller says what is started and what it can
reach; this module combines that with request, policy and the machine's abilities.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadrope.core import events
from leadrope.core.request import RunRequest
from leadrope.policy.resolve import EffectivePolicy
from leadrope.process import child as processes
from leadrope.process import reaper
from leadrope.providers import base
from leadrope.runtime.sandboxing import sandboxing

if TYPE_CHECKING:
    from leadrope.runtime.broker.proxy import HostProxy, RefusedHost

Notify = Callable[[events.Notice], None]


class SandboxedProcess:
    """One start: `grant`, then `build`, then `start`, and `settle` once the process has ended."""

    def __init__(self, request: RunRequest, rules: EffectivePolicy, *, home: Path, notify: Notify) -> None:
        """`home` is leadrope's own folder; `notify` receives notices about the sandbox."""
        self._request = request
        self._rules = rules
        self._home = home
        self._notify = notify
        self._launch: base.Launch | None = None
        self.granted = sandboxing.SandboxRequest(level=None)
        self.protected: tuple[str, ...] = ()
        """What git's settings name as programs, known after `search`."""
        self.built = sandboxing.Built()

    async def grant(self) -> sandboxing.SandboxRequest:
        """Decide which sandbox the process gets; raises if it must not be started at all."""
        wished = sandboxing.wish(self._request, self._rules)
        self.granted, missing = await sandboxing.grant(wished, memory=self._home)
        if missing:
            self._notify(sandboxing.no_sandbox(wished, missing))
        return self.granted

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the hosts that every layer allows, for a proxy; empty if any host can be reached."""
        lists = self._rules.network_allowed_hosts if self.granted.model_only else ()
        return sandboxing.allowed_hosts(lists, self._rules.network_blocked_hosts)

    async def open_proxy(self, listen: Path, on_refused: Callable[[RefusedHost], None] | None = None) -> HostProxy:
        """Open the proxy to `hosts`; the caller closes it."""
        from leadrope.runtime.broker.proxy import HostProxy  # noqa: PLC0415  # HTTP, for those who allow hosts

        def refused(host: RefusedHost) -> None:
            self._notify(refused_host(host))
            if on_refused is not None:
                on_refused(host)

        return await HostProxy(self.hosts, listen=listen, on_refused=refused).__aenter__()

    def search(self, request: RunRequest, place: base.StartContext) -> sandboxing.Targets:
        """Find the paths to mask or protect; `request` names the folders."""
        found = sandboxing.search(self.granted, request, place, self._rules)
        self.protected = found.git.paths
        return found

    def build(
        self,
        request: RunRequest,
        launch: base.Launch,
        place: base.StartContext,
        sockets: sandboxing.Sockets,
        targets: sandboxing.Targets | None = None,
    ) -> sandboxing.Built:
        """Build the sandbox. Everything that `launch` names must exist, and so must the sockets."""
        self._launch = launch
        self.built = sandboxing.build(self.granted, request, launch, place, self._rules, sockets, targets)
        for notice in self.built.notices:
            self._notify(notice)
        return self.built

    async def start(self, *, tag: str, spool_dir: Path, **options: Any) -> processes.Child:
        """Start the process. `tag` marks all its descendants, in the environment; the options are those of
        `child.start`.
        """
        if self._launch is None:
            raise AssertionError("started before it was built")
        return await processes.start(
            self._launch.argv,
            env={**self._launch.env, **self.built.env, reaper.TAG: tag},
            cwd=self._launch.cwd,
            spool_dir=str(spool_dir),
            box=self.built.argv,
            **options,
        )

    async def settle(self, approved: Collection[str] = ()) -> None:
        """Disarm and report, after its end, what it left behind that the user's own programs would run.

        `approved` are the paths that calls were allowed to write.
        """
        built, self.built = self.built, sandboxing.Built()
        for notice in await sandboxing.settled(built, approved):
            self._notify(notice)


def refused_host(refused: RefusedHost) -> events.Notice:
    told = f"{refused.host}:{refused.port} was not reached: {refused.reason}"
    return events.Notice(level="warning", code="host_refused", message=told)
