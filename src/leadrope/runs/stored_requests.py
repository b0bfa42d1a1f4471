"""A request as the store has it: who pays for it, and whether it is good for another start. Starts nothing."""

from __future__ import annotations

import msgspec

from leadrope import errors
from leadrope.core.redaction import MASK
from leadrope.core.request import RunRequest


def account_of(request: RunRequest) -> str:
    """A name for whoever pays, so that a usage limit holds those runs and no others. Never the credential."""
    if request.credential is not None:
        from hashlib import sha256  # noqa: PLC0415  # rarely needed

        return f"given-{sha256(request.credential.reveal().encode()).hexdigest()[:12]}"
    return f"{request.provider}-{request.billing}"


def whole(request: RunRequest) -> RunRequest:
    """The store's copy, if it is good for a start: what was redacted in it is gone for ever."""
    if MASK in msgspec.json.encode(request).decode():
        raise errors.RequestError(
            "the request held a secret, and secrets are not stored",
            hint="Start it anew; give secrets by reference, as ${NAME} in connections.",
        )
    return request
