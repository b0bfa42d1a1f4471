"""A request as the store has it: who pays for it, and whether it is good for another start. Starts nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from leadrope import errors
from leadrope.core.redaction import MASK
from leadrope.core.request import RunRequest


def account_of(request: RunRequest, environ: Mapping[str, str], settings: Mapping[str, str]) -> str:
    """A name for whoever pays, so that a usage limit holds those runs and no others. Never the credential.

    A login is known by its place and not by its token, which changes within hours.
    """
    found = request.credential.reveal() if request.credential else _variable(request, environ, settings)
    if found:
        from hashlib import sha256  # noqa: PLC0415  # not needed for a login

        return f"{request.provider}-{sha256(found.encode()).hexdigest()[:12]}"
    # The same login pays, whether or not a key might have.
    billing = "subscription" if request.billing == "subscription_only" else request.billing
    return f"{request.provider}-{billing}"


def _variable(request: RunRequest, environ: Mapping[str, str], settings: Mapping[str, str]) -> str | None:
    """What the environment or leadrope's own .env holds for it, in the order of the provider's search."""
    if request.provider != "claude-code":
        return None
    from leadrope.providers.claude_code.credentials import KEY_VARIABLES, TOKEN_VARIABLE  # noqa: PLC0415  # not to list

    places = [(settings, name) for name in KEY_VARIABLES if request.billing != "subscription_only"]
    if request.billing != "api_key":
        places = [(environ, TOKEN_VARIABLE), (settings, TOKEN_VARIABLE), *places]
    if request.billing == "api_key":
        places += [(environ, name) for name in KEY_VARIABLES]
    return next((values[name].strip() for values, name in places if values.get(name, "").strip()), None)


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
            cwd = str(Path(cwd or ".").expanduser().resolve())
    except (OSError, RuntimeError):
        return request
    return msgspec.structs.replace(request, cwd=cwd, policy_files=rules, binary=binary)


def whole(request: RunRequest) -> RunRequest:
    """The store's copy, if it is good for a start: what was redacted in it is gone for ever."""
    if MASK in msgspec.json.encode(request).decode():
        raise errors.RequestError(
            "the request held a secret, and secrets are not stored",
            hint="Start it anew; give secrets by reference, as ${NAME} in connections.",
        )
    return request
