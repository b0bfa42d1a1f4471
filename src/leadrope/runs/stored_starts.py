"""What a run starts with that the store has only in part: its request with its secrets, and its environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from leadrope import errors
from leadrope.core import events, home
from leadrope.core.request import RunRequest
from leadrope.core.request_secrets import redactor_of
from leadrope.core.secrets.redaction import Redactor
from leadrope.runs import recover
from leadrope.runs.approvals import waiting
from leadrope.runs.budgets import remaining
from leadrope.runs.records import stored_environ, stored_secrets
from leadrope.runs.records.stored_requests import account_of, check_account
from leadrope.runs.records.values import RunInfo

if TYPE_CHECKING:
    from leadrope.runs.run_loop import RunsInHand
    from leadrope.runs.service import Service


class StoredStarts:
    """For one configuration; see `Service.configured`."""

    def __init__(self, service: Service, hand: RunsInHand) -> None:
        self._service = service
        self._hand = hand

    async def environ_of(self, run: RunInfo) -> Mapping[str, str]:
        """That of whoever has handed it in; else what was stored with it, and not that of whoever takes it up."""
        given = self._hand.environs.get(run.id)
        if given is None:
            given = stored_environ.restored((await self._service.store.texts(run.id)).place, self._service.home)
        return self._service.environ if given is None else given

    async def stored_request(self, run: RunInfo, *, is_resumed: bool) -> RunRequest:
        """What the store has of it, with its secrets; a RequestError names those that are not found here."""
        texts = await self._service.store.texts(run.id)
        references = stored_secrets.of_place(texts.place, texts.request)
        environ = self._service.environ if run.state == "ended" else await self.environ_of(run)
        around = stored_secrets.SecretSources(
            config=self._service.config, env_file=home.load_env(self._service.home), environ=environ
        )
        request = stored_secrets.resolved(texts.request, references, around, is_resumed=is_resumed)
        # What has ended is started as another run, and a run of the queue without an environment takes the owner's.
        if run.state != "ended" and stored_environ.KEY in texts.place:
            if names := stored_environ.lacking(texts.place, environ, around.env_file):
                raise errors.RequestError(
                    f"it needs {' and '.join(names)}, and that is not stored; set {' and '.join(names)} in your shell",
                    hint=f"Then try again with `leadrope runs resume {run.id[:8]}`.",
                )
            check_account(run, request, environ, around.env_file, await recover.all_events(self._service.store, run))
        return request

    async def not_recoverable(self, run: RunInfo) -> str:
        """What another process could not find to continue the run with, in words; empty if it could."""
        texts = await self._service.store.texts(run.id)
        own = home.load_env(self._service.home)
        restored = stored_environ.restored(texts.place, self._service.home)
        environ = self._service.environ if restored is None else restored
        around = stored_secrets.SecretSources(config=self._service.config, env_file=own, environ=environ)
        references = stored_secrets.of_place(texts.place, texts.request)
        missing = stored_secrets.missing(references, around, is_resumed=True)
        lost = [*(one.told for one in missing), *stored_environ.lacking(texts.place, environ, own)]
        has_credential = any(one.path == (stored_secrets.CREDENTIAL,) for one in references)
        if not has_credential and account_of(texts.request, environ, own) != run.account:
            lost.append("its credential")
        if not lost:
            return ""
        remedy = "Start it anew then. "
        if all(one.is_variable for one in missing):
            remedy = f"Continue it then with `leadrope runs resume {run.id[:8]}` in a terminal that has it. "
        return (
            f"leadrope cannot recover this run if its background process ends: {', '.join(lost)} came from this "
            f"terminal and is not stored. {remedy}To avoid this, use a file (--credential-file, --secret-file), the "
            ".env of LEADROPE_HOME or your config"
        )

    async def kept_for(self, run: RunInfo) -> float:
        """How long an agent stays while a person is asked; 0: as long as it takes."""
        return 0.0 if await self.not_recoverable(run) else self._service.settings.waiting_agent_s

    async def request(self, run: RunInfo, earlier: list[events.Recorded]) -> RunRequest:
        request = self._hand.requests.get(run.id)
        if request is None:
            request = await self.stored_request(run, is_resumed=recover.has_session(earlier))
        if earlier:
            request = waiting.told(recover.resumed(request, earlier), await self._service.store.unused_answers(run))
        left = await remaining(self._service.budgets, self._service.store, run)
        if left is None:
            return request
        # As a rule, which can only tighten: as the run's own budget it would lift the shipped one.
        return msgspec.structs.replace(request, policies=(*request.policies, {"max_budget_usd": max(left, 0.000001)}))

    def redactor(self, request: RunRequest | None, environ: Mapping[str, str] | None) -> Redactor:
        """That of a run which has not started; `environ`: the one that it was given, if not the service's own."""
        if request is None:
            return Redactor()
        return redactor_of(
            request, {**home.load_env(self._service.home), **(self._service.environ if environ is None else environ)}
        )
