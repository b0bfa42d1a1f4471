"""A request as the store has it: who pays for it, and whether it is good for another start. Starts nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from leadrope import errors
from leadrope.confined import real_path
from leadrope.core import events
from leadrope.core.request import RunRequest
from leadrope.runs.records.values import RunInfo


def account_of(request: RunRequest, environ: Mapping[str, str], settings: Mapping[str, str]) -> str:
    """A name for whoever pays, so that a usage limit holds those runs and no others. Never the credential.

    `settings` is leadrope's own .env.
    """
    if request.provider == "claude-code":
        from leadrope.providers.claude_code import accounts  # noqa: PLC0415  # not to list

        return f"{request.provider}-{accounts.name(request, environ, settings)}"
    if request.credential is None:
        return f"{request.provider}-{request.billing}"
    from hashlib import sha256  # noqa: PLC0415  # few need it

    return f"{request.provider}-{sha256(request.credential.reveal().encode()).hexdigest()[:12]}"


def check_account(
    run: RunInfo,
    request: RunRequest,
    environ: Mapping[str, str],
    settings: Mapping[str, str],
    records: Sequence[events.Recorded],
) -> None:
    """Raise NotAuthenticated where the next attempt of a run would be paid for by another account than its first."""
    if account_of(request, environ, settings) == run.account:
        return
    started = [record.event.credential for record in records if isinstance(record.event, events.SessionStarted)]
    source = next((used.source for used in started if used is not None), "")
    name = run.id[:8]
    raise errors.NotAuthenticated(
        f"no credential of the account that it was started with{f' ({source})' if source else ''} was found, and no "
        "other account is used in its place",
        hint=f"Try again with `leadrope runs resume {name}` in a terminal that has that credential. To continue with "
        f"another one, end the run first: `leadrope runs stop {name}`, then `leadrope runs resume {name}`.",
    )


def placed(request: RunRequest) -> RunRequest:
    """With the whole names of its folder, rules and program: whoever starts it, or tries it again, may be elsewhere.

    A session that goes on does so in its own folder, if none is said. What does not exist is told where it starts.
    """
    try:
        rules = tuple(str(Path(name).expanduser().absolute()) for name in request.policy_files)
        binary = request.binary
        if binary and os.sep in binary:
            binary = str(Path(binary).expanduser().absolute())
        cwd = request.cwd
        if cwd is not None or request.resume is None:
            cwd = real_path(Path(cwd or ".").expanduser())
    except (OSError, RuntimeError):
        return request
    return msgspec.structs.replace(request, cwd=cwd, policy_files=rules, binary=binary)
