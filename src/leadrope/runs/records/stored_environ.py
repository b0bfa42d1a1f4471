"""The part of a terminal's environment that is kept with a detached run, so that another process can continue it.

Whoever looks at the store may have another PATH, another login or another account. A run that is taken up again gets
the environment that it was started in, as far as that is stored: places and languages, and never a credential.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from leadrope.core import connections
from leadrope.core.request import RunRequest
from leadrope.core.secrets.redaction import MASK

KEY = "environ"
"""In the run's `place`."""
NEEDED = "variables"
"""In the run's `place`: names of variables that it got from its terminal and that are not stored; True for those of
which the .env of LEADROPE_HOME had another value."""

NAMES = frozenset(
    {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LANGUAGE",
        "TERM",
        "TZ",
        "TMPDIR",
        "TEMP",
        "TMP",
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
        "XDG_CACHE_HOME",
        "XDG_STATE_HOME",
        "XDG_RUNTIME_DIR",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "NO_PROXY",
        "NODE_EXTRA_CA_CERTS",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "CLAUDE_CONFIG_DIR",
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS",
        "LEADROPE_CONFIG",
        "LEADROPE_CLAUDE_BIN",
        "LEADROPE_SCRIPTED_BIN",
        "LEADROPE_SPAWN_IDLE_TIMEOUT_MS",
        "LEADROPE_SPAWN_MAX_MS",
        "LEADROPE_DEBUG_SPAWN",
        "LEADROPE_LOG",
    }
)
PREFIXES = ("LC_",)
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


def kept(environ: Mapping[str, str]) -> dict[str, str]:
    """What may be stored of an environment. The address of a proxy with a password in it may not."""
    return {name: value for name, value in environ.items() if _may_be_kept(name, value)}


def _may_be_kept(name: str, value: str) -> bool:
    if name.upper().endswith("_PROXY") and "@" in value:
        return False
    return name.upper() in NAMES or name.startswith(PREFIXES)


def needed(
    request: RunRequest, forwarded: Iterable[str], environ: Mapping[str, str], env_file: Mapping[str, str]
) -> dict[str, bool]:
    """What the run's servers, or `forward_env`, take from the environment and another process would miss."""
    stored = kept(environ)
    return {
        name: name in env_file
        for name in sorted({*connections.variables(request.connections), *forwarded})
        if name in environ and name not in stored and env_file.get(name) != environ[name]
    }


def lacking(place: Mapping[str, Any], environ: Mapping[str, str], env_file: Mapping[str, str]) -> list[str]:
    """Those that are not set here. What has been put into the .env since counts, and what was there before does not."""
    named: Mapping[str, bool] = place.get(NEEDED, {})
    return [name for name, is_other in named.items() if name not in environ and (is_other or name not in env_file)]


def restored(place: Mapping[str, Any], leadrope_home: Path) -> dict[str, str] | None:
    """The environment that was kept with a run; None for one that was queued without."""
    found = place.get(KEY)
    if not isinstance(found, dict):
        return None
    # What the redaction has changed is not a value any more.
    values = {str(name): str(value) for name, value in found.items() if MASK not in str(value)}
    return values | {"LEADROPE_HOME": str(leadrope_home)}


def bare(leadrope_home: Path) -> dict[str, str]:
    """For a process that continues runs of which no environment is known: what the system itself says of the user."""
    found = {"PATH": DEFAULT_PATH, "LANG": "C.UTF-8", "LEADROPE_HOME": str(leadrope_home)}
    if sys.platform != "win32":
        import pwd  # noqa: PLC0415  # POSIX only

        try:
            user = pwd.getpwuid(os.geteuid())
        except KeyError:  # a container with a user that nobody has named
            return found
        found |= {"HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name}
    return found
