"""The ways out of one run: the broker before the model, the proxy before allowed hosts. Knows no sandbox."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypedDict, cast

from leadrope.core import events
from leadrope.core.secrets.redaction import Secret
from leadrope.net.connect import proxy_for
from leadrope.policy.resolve import EffectivePolicy
from leadrope.providers import base
from leadrope.runtime.broker.broker import Broker
from leadrope.runtime.broker.broker import Kind as BrokerKind
from leadrope.runtime.broker.proxy import HostProxy, RefusedHost
from leadrope.runtime.broker.reachability import Reach
from leadrope.runtime.gate.host_questions import HostQuestions
from leadrope.runtime.limits.budget import Meter
from leadrope.runtime.sandboxing import sandbox_violations, sandboxing
from leadrope.runtime.sandboxing.sandboxed_process import refused_host


class Way(TypedDict):
    """As `Upstream` takes it."""

    proxy: str | None
    ca_file: str | None


class Gateway:
    """One for the run: a second attempt goes on with the same budget and the same token."""

    def __init__(
        self,
        run_dir: Path,
        *,
        meter: Meter,
        notify: Callable[[events.Notice | events.SandboxViolation], None],
        allowed: Mapping[str, str],
        hosts: Callable[[], HostQuestions | None],
        reach: Reach,
    ) -> None:
        """`allowed`: the proxy and CA variables that the user lets the agent have. `hosts` is asked about hosts that
        are on no list; None while no agent lives.
        """
        self._run_dir = run_dir
        self._meter = meter
        self._notify = notify
        self._allowed = allowed
        self._hosts = hosts
        self._reach = reach
        self._token = secrets.token_hex(16)
        self._broker: Broker | None = None
        self._proxy: HostProxy | None = None
        self.doors = sandboxing.Sockets()

    async def open_doors(self, wanted: sandboxing.SandboxRequest, rules: EffectivePolicy) -> None:
        """Where the agent reaches nothing else: a socket to the model, and one to the hosts that the policy allows."""
        if not wanted.model_only:
            self.doors = sandboxing.Sockets()
            return
        hosts = sandboxing.allowed_hosts(rules.network_allowed_hosts, rules.network_blocked_hosts)
        # A list names the only hosts there are. Without one, mode `sandboxed` asks.
        asks = wanted.must_hold and not rules.network_allowed_hosts
        if asks:
            hosts = tuple(f"!{entry}" for entry in rules.network_blocked_hosts)
        proxy = self._run_dir / "proxy.sock" if hosts or asks else None
        token = self._token if asks else ""
        if proxy and self._proxy is None:
            host_proxy = HostProxy(
                hosts,
                listen=proxy,
                on_refused=self._on_refused_host,
                ask=self._may_reach if asks else None,
                token=token,
                may_fetch=self._may_fetch,
            )
            self._proxy = await host_proxy.__aenter__()
        self.doors = sandboxing.Sockets(model=self._run_dir / "model.sock", proxy=proxy, token=token)

    async def _may_reach(self, host: str, port: int) -> bool:
        asked = self._hosts()
        return asked is not None and await asked.may_reach(host, port)

    def _may_fetch(self, host: str) -> bool:
        asked = self._hosts()
        return asked is not None and asked.may_fetch(host)

    async def open_broker(self, upstream: str, credential: Secret, kind: str) -> base.Brokered:
        if self._broker is None:
            broker = Broker(
                upstream,
                credential,
                cast("BrokerKind", kind),
                meter=self._meter,
                listen=self.doors.model,
                notify=self._notify,
                reach=self._reach,
                **self.way_to(upstream),
            )
            self._broker = await broker.__aenter__()
        return base.Brokered(url=self._broker.url, token=Secret(self._broker.token))

    def way_to(self, url: str) -> Way:
        """How a connection of ours to a model's server is made.

        A corporate proxy is the way out only where the user has said that the agent may use it.
        """
        ca_file = self._allowed.get("NODE_EXTRA_CA_CERTS") or self._allowed.get("SSL_CERT_FILE")
        return {"proxy": proxy_for(url, self._allowed), "ca_file": ca_file}

    async def close(self) -> None:
        broker, self._broker = self._broker, None
        if broker is not None:
            await broker.close()
        proxy, self._proxy = self._proxy, None
        if proxy is not None:
            await proxy.__aexit__(None, None, None)

    def _on_refused_host(self, refused: RefusedHost) -> None:
        self._notify(refused_host(refused))
        self._notify(sandbox_violations.refused_host(refused.host, refused.port, refused.reason))
