"""What in a request must not be shown or kept: its credential, what connections are given, secret variables."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from leadrope import errors
from leadrope.core.connections import fill
from leadrope.core.request import RunRequest
from leadrope.core.secret_names import is_secret_name as is_secret_name  # noqa: PLC0414  # for those who look here


def known_secrets(request: RunRequest, environ: Mapping[str, str] | None = None) -> list[str]:
    """What the request itself holds; with `environ` also what its connections name there (`${NAME}`)."""
    found = [request.credential.reveal()] if request.credential else []
    marked = set(request.secret_variables)
    found += [value for name, value in request.variables.items() if name in marked or is_secret_name(name)]
    if environ is not None and request.connections:
        # A name that is not set: the run is refused where it starts, and tells it.
        with contextlib.suppress(errors.BadValue):
            found += fill(request.connections, environ).secrets
    for server in request.connections.values():
        given = [*server.env.values(), *server.headers.values()]
        found += [word for text in given for word in (text, *text.split()) if len(word) > 8 and "${" not in word]
    return found


def ambient_secrets(environ: Mapping[str, str]) -> list[str]:
    """Values of an environment whose names say that they are secret; too short ones would blot out ordinary words."""
    return [value for name, value in environ.items() if len(value) > 8 and is_secret_name(name)]
