"""--rehearse: a run or a workflow with a script on loopback as its model, and nothing of the user's configuration."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from leadrope import errors
from leadrope.confined import real_path
from leadrope.core import home
from leadrope.core.text import rehearsal_label
from leadrope.runtime.terminal_text import clean

if TYPE_CHECKING:
    from leadrope.core.request import RunRequest
    from leadrope.rehearsal.model import ModelServer
    from leadrope.rehearsal.script import Script

HELP = "Take the model's answers from a script; no account, no configuration, nothing is sent to other machines."
_UNUSED = ("ANTHROPIC_", "CLAUDE_", "OTEL_")
"""Beginnings of variables that say who pays, where models are, and who is told about runs."""
_WITHOUT = {
    "detach": "a rehearsal ends with this command",
    "base_url": "the model is the script",
    "billing": "nobody pays for a rehearsal",
    "credential_file": "a rehearsal needs no credential",
    "credential_kind": "a rehearsal needs no credential",
    "profile": "a rehearsal reads no configuration",
    "resume": "a rehearsal begins a session of its own",
    "fork": "a rehearsal begins a session of its own",
    "continue": "a rehearsal begins a session of its own",
    "session_id": "the session of a rehearsal is not kept",
    "provider": "the script answers Claude Code",
    "fallback_model": "the model is the script",
    "no_wait": "a rehearsal never waits for a person who is not here",
    "dry_run": "one starts nothing, and the other runs the workflow",
}


def refuse_others(given: Mapping[str, Any]) -> None:
    """Flags that mean nothing in a rehearsal."""
    for name, why in _WITHOUT.items():
        if given.get(name):
            flag = f"--{name.replace('_', '-')}"
            raise errors.RequestError(f"{flag} was given with --rehearse: {why}", hint="Leave one of the two out.")


def read(name: str, cwd: Path) -> Script:
    """The script of --rehearse; `{{cwd}}` in it is the working directory."""
    from leadrope.rehearsal.script import BadScript, load  # noqa: PLC0415  # only rehearsals need it

    path = Path(name).expanduser()
    if not path.is_file():
        raise errors.BadValue("--rehearse", f"there is no file {name}", hint=_FIRST)
    try:
        return load(path, variables={"cwd": real_path(cwd)})
    except BadScript as error:
        raise errors.BadValue("--rehearse", f"{name}: {error.message}", hint=error.hint) from None


_FIRST = 'Write one: a list of answers, for instance `- text: "Done."`; see docs/rehearsal.md.'


def environ() -> dict[str, str]:
    """The environment without the user's accounts and configuration."""
    found = {name: value for name, value in os.environ.items() if not name.startswith(_UNUSED)}
    found["OTEL_SDK_DISABLED"] = "true"  # LEADROPE_HOME/.env may name a collector too
    # A file that is not there, in the folder that is hidden from agents in any case.
    found["LEADROPE_CONFIG"] = str(home.config_file(os.environ).with_name("rehearsal-has-no-config.toml"))
    return found


def mismatches(server: ModelServer, *, is_whole: bool) -> list[str]:
    """Where the script was not followed. `is_whole`: it came to its end, so that all turns should have been used."""
    return [*server.problems, *(server.unused if is_whole else ())]


def tell(script: str, found: Sequence[str]) -> None:
    print(f"leadrope: the rehearsal did not follow {script}:", file=sys.stderr)
    for line in found:
        click.echo(clean(f"  - {line}"), err=True)


def request_of(request: RunRequest, url: str) -> RunRequest:
    """The same task for the scripted model; no session is kept of it."""
    return msgspec.structs.replace(
        request,
        base_url=url,
        credential=rehearsal_label.KEY,
        credential_kind="api_key",
        billing="api_key",
        persist_session=False,
        labels={**request.labels, **rehearsal_label.LABELS},
    )
