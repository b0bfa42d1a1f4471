"""What in a request must not be shown or kept, and the one redactor that is made of it.

Every writer of a run uses this redactor: events, the store, logs, exports, traces and the terminal.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

from leadrope import errors
from leadrope.core.connections import fill, secrets_of
from leadrope.core.request import RunRequest
from leadrope.core.secrets.redaction import Redactor
from leadrope.core.secrets.secret_names import is_secret_name as is_secret_name  # noqa: PLC0414  # for those who look here


def redactor_of(request: RunRequest, environ: Mapping[str, str] | None = None, launch: Iterable[str] = ()) -> Redactor:
    """The redactor of a run.

    `environ`: what surrounds it, whose secrets it must not show either; the credential may be one of them.
    `launch`: the secrets that its provider has found or made for this start.
    """
    return Redactor(dict.fromkeys((*launch, *known_secrets(request, environ), *ambient_secrets(environ or {}))))


def known_secrets(request: RunRequest, environ: Mapping[str, str] | None = None) -> list[str]:
    """The credential, marked and secret variables, and what connections are given.

    With `environ` also what connections name there (`${NAME}`).
    """
    found = [request.credential.reveal()] if request.credential else []
    marked = set(request.secret_variables)
    found += [value for name, value in request.variables.items() if name in marked or is_secret_name(name)]
    if environ is not None and request.connections:
        # A name that is not set: the run is refused where it starts, and tells it.
        with contextlib.suppress(errors.BadValue):
            found += fill(request.connections, environ).secrets
    for server in request.connections.values():
        found += secrets_of(server)
    return found


def ambient_secrets(environ: Mapping[str, str]) -> list[str]:
    """Values of an environment whose names say that they are secret; too short ones would blot out ordinary words."""
    return [value for name, value in environ.items() if len(value) > 8 and is_secret_name(name)]
