"""The run that a new one continues, and the settings that it hands on. Reads the store; starts nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from leadrope import errors
from leadrope.core import home
from leadrope.core.config import Config
from leadrope.core.request import RunRequest
from leadrope.core.secrets.redaction import Secret
from leadrope.runs import stores
from leadrope.runs.queries import Queries
from leadrope.runs.records import stored_secrets
from leadrope.runs.records.values import Filter, RunInfo, Texts
from leadrope.runs.workspace import run_workspace
from leadrope.runtime.sessions.files import Sessions

LAST = "last"
_OF_ONE_RUN = (
    "prompt",
    "attachments",
    "attachment_root",
    "session_id",
    "resume",
    "fork",
    "persist_session",
    "output_schema",
)
"""What belongs to one prompt and the form of its answer, and is not a setting of the session."""
_MERGED = ("variables",)


class Continued(msgspec.Struct, frozen=True, kw_only=True):
    """A stored run, and what the store has of it."""

    run: RunInfo
    texts: Texts

    def settings(self, given: Mapping[str, Any], config: Config, environ: Mapping[str, str]) -> dict[str, Any]:
        """The fields of its request for another prompt, with its secrets. Those of `given` need not be found again."""
        place, request = self.texts.place, self.texts.request
        wanted = [one for one in stored_secrets.of_place(place, request) if not _is_given(one.path, given)]
        own = home.load_env(home.leadrope_home(environ))
        around = stored_secrets.SecretSources(config=config, env_file=own, environ=environ)
        try:
            request = stored_secrets.resolved(request, wanted, around, is_resumed=True)
        except errors.RequestError as error:
            raise _missing(self.run, wanted, around, error) from None
        kept: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(request, credential=None))
        kept = {name: value for name, value in kept.items() if name not in _OF_ONE_RUN}
        kept["cwd"] = self._folder(request)
        if isinstance(request.credential, Secret):
            kept["credential"] = request.credential
        return kept

    def _folder(self, request: RunRequest) -> str | None:
        """None if it is gone: the session then says so, and continues in the current one."""
        folder = request.cwd or self.run.cwd
        return folder if folder and Path(folder).is_dir() else None

    def place(self) -> dict[str, Any]:
        """For a run that continues it: the same worktree."""
        return run_workspace.of_next(self.texts.place, is_resumed=True)

    @property
    def worktree(self) -> str | None:
        """The folder in its worktree, if that is still there."""
        tree = run_workspace.tree_of(self.texts.place)
        return tree.cwd if tree is not None and Path(tree.cwd).is_dir() else None

    @property
    def secret_files(self) -> dict[str, str]:
        """Where its secrets were read from."""
        return dict(self.texts.place.get(stored_secrets.FILES, {}))


async def find(name: str, leadrope_home: Path, here: Path) -> Continued | None:
    """The run that `name` means: a run, the last one of a session, or `last`: the newest of this folder.

    None where nothing of it is stored, or where several could be meant; whoever resolves the session says so.
    """
    async with stores.reading(leadrope_home) as queries:
        if queries is None:
            return None
        run = await _newest(queries, here) if name == LAST else await _named(queries, name, Sessions(leadrope_home))
        return Continued(run=run, texts=await queries.texts(run.id)) if run is not None else None


async def _newest(queries: Queries, here: Path) -> RunInfo:
    found = [run for run in await queries.listing(Filter(cwd=str(here), limit=50)) if run.session_id]
    if not found:
        raise errors.BadValue("resume", f"no run was made in {here}", hint="`leadrope runs list` shows the runs.")
    return found[0]


async def _named(queries: Queries, name: str, sessions: Sessions) -> RunInfo | None:
    try:
        session = sessions.match(name)
    except errors.BadValue:
        return None
    runs = await queries.with_prefix(name)
    if len(runs) == 1 and session in (None, runs[0].session_id):
        return runs[0]
    if runs or session is None:
        return None
    of_session = sessions.find(session).runs
    # The last run of the session may have been a program's, and is not stored then.
    return await queries.known(of_session[-1]) if of_session else None


def _is_given(path: Sequence[str], given: Mapping[str, Any]) -> bool:
    if path[0] not in given:
        return False
    return path[0] not in _MERGED or path[1:2] == () or path[1] in given[path[0]]


def _missing(
    run: RunInfo,
    wanted: Sequence[stored_secrets.SecretReference],
    around: stored_secrets.SecretSources,
    error: errors.RequestError,
) -> errors.RequestError:
    lost = stored_secrets.missing(wanted, around, is_resumed=True)
    if not lost:
        return error
    flags = sorted(filter(None, (_flag(one) for one in lost)))
    return errors.RequestError(
        f"run {run.id[:8]} was started with {', '.join(one.told for one in lost)}, and secrets are not stored",
        hint=f"Give it again: {' '.join(flags)}." if flags else error.hint,
    )


def _flag(lost: stored_secrets.SecretReference) -> str:
    if lost.path == (stored_secrets.CREDENTIAL,):
        return "--credential-file FILE"
    return f"--secret {lost.path[-1]}" if lost.path[0] == "variables" else ""
