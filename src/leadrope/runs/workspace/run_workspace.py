"""Manages a run's worktree or checkpoint: creates it, shows its changes, applies or undoes them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from leadrope import errors
from leadrope.core import home
from leadrope.core.request import RunRequest
from leadrope.core.secrets.redaction import Redactor
from leadrope.core.tools import ToolCall, class_of
from leadrope.runs import settings
from leadrope.runs.records import stored_secrets
from leadrope.runs.records.values import Filter, RunInfo
from leadrope.runs.workspace import checkpoint_diff, checkpoints, worktree_changes, worktree_setup, worktrees
from leadrope.runs.workspace.checkpoints import Checkpoint, RestorePlan
from leadrope.runs.workspace.worktrees import Worktree
from leadrope.runtime.sessions import session_secrets

if TYPE_CHECKING:
    from leadrope.runs.service import Service

log = logging.getLogger("leadrope.runs")

CHECKPOINTS = "checkpoints"
CHANGES = "changes.diff"
MISSING = "no_checkpoint"
"""Key in the run's `place`: why there is no checkpoint. A later attempt takes none either, since it would record an
earlier attempt's work as the state before the run.
"""
TAKE_S = 20.0
"""If a snapshot takes longer, the run continues without a checkpoint and a notice says so."""
_HARMLESS = ("read", "control", "network")


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What was requested when the run was created; stored in its `place`."""

    worktree: bool = False
    branch: str | None = None
    base: str = "HEAD"
    carry: bool = False
    checkpoint: bool = True


class RunWorkspace:
    """The folder of one run while it is running."""

    def __init__(self, service: Service, run: RunInfo, environ: Mapping[str, str], place: dict[str, Any]) -> None:
        self._service = service
        self._run = run
        self._environ = environ
        self._place = place
        self._wanted = msgspec.convert(self._place.get("wanted", {}), Wanted)
        if MISSING in self._place:
            self._wanted = msgspec.structs.replace(self._wanted, checkpoint=False)
        self.cwd = run.cwd
        """The folder that the agent works in; a resumed session has its own, which the run looks up."""
        self._checkpoint: Checkpoint | None = None
        self._taking: asyncio.Task[Checkpoint | None] | None = None
        if "checkpoint" in self._place:
            self._checkpoint = msgspec.convert(self._place["checkpoint"], Checkpoint)

    async def enter(self, request: RunRequest) -> RunRequest:
        """Return the request with the folder that the run works in; a second attempt reuses the first one's."""
        if not self._wanted.worktree:
            return request
        tree = tree_of(self._place)
        if tree is None:
            given = settings.worktree(self._service.config).of(Path(request.cwd or "."))
            tree = await worktrees.create(
                Path(request.cwd or "."),
                self._run.id,
                home=self._service.home,
                folder=Path(given.folder).expanduser() if given.folder else None,
                branch=self._wanted.branch,
                base=self._wanted.base,
                carry=self._wanted.carry,
                setup=worktree_setup.commands(given.setup),
                setup_env={name: self._environ[name] for name in ("PATH", "HOME", "LANG") if name in self._environ},
                setup_timeout_s=given.setup_timeout_s,
                environ=self._environ,
            )
            await self._keep("worktree", tree)
        return msgspec.structs.replace(request, cwd=tree.cwd)

    async def before_effect(self, call: ToolCall) -> str | None:
        """Called for every allowed call before it runs; returns a warning, once, if its effect cannot be undone."""
        if class_of(call.name) in _HARMLESS or self._wanted.worktree or not self._wanted.checkpoint:
            return None
        told = None
        if (self._checkpoint is None or self._checkpoint.is_closed) and self._taking is None:
            self._taking = asyncio.ensure_future(self._take() if self._checkpoint is None else self._reopen())
        if self._taking is not None:
            try:
                self._checkpoint = await asyncio.shield(self._taking)
            except (errors.LeadropeError, TimeoutError, OSError) as error:
                self._wanted = msgspec.structs.replace(self._wanted, checkpoint=False)
                told = f"there is no checkpoint to go back to: {str(error) or 'it took too long'}"
                with contextlib.suppress(errors.StoreError):  # the run itself reports that nothing can be stored
                    await self._keep(MISSING, told)
            self._taking = None
        path = call.input.get("file_path") or call.input.get("notebook_path")
        if self._checkpoint is not None and isinstance(path, str):
            await asyncio.to_thread(checkpoints.remember, self._checkpoint, Path(self.cwd or ".", path))
        return told

    async def _take(self) -> Checkpoint:
        cwd = Path(self.cwd or ".")
        async with asyncio.timeout(TAKE_S):
            taken = await checkpoints.take(cwd, self._service.home / CHECKPOINTS, self._run.id, environ=self._environ)
        await self._keep("checkpoint", taken)
        return taken

    async def _reopen(self) -> Checkpoint:
        """Reopen the checkpoint: an earlier attempt recorded its own end, but the run continues."""
        assert self._checkpoint is not None  # noqa: S101  # only called then
        opened = checkpoints.reopen(self._checkpoint)
        await self._keep("checkpoint", opened)
        return opened

    async def suspend(self) -> None:
        """Leave folder and checkpoint unchanged: this process ends, but not the run."""
        if self._taking is not None:
            self._taking.cancel()
            await asyncio.wait((self._taking,))

    async def leave(self, redactor: Redactor) -> None:
        """Record the end of the run, so that its changes can be told from later ones."""
        await self.suspend()
        tree = tree_of(self._place)
        if tree is not None:
            await self._keep_changes(tree, redactor)
        if self._checkpoint is None or self._checkpoint.is_closed:
            return
        try:
            await self._keep("checkpoint", await checkpoints.close(self._checkpoint, environ=self._environ))
        except (errors.LeadropeError, OSError) as error:
            if isinstance(error, errors.StoreUnreadable | errors.NotOwner):
                return  # reported at the end of the run, with everything that is lost
            log.warning("run %s: its checkpoint could not be closed: %s", self._run.id[:8], error)

    async def _keep_changes(self, tree: Worktree, redactor: Redactor) -> None:
        """Store the run's changes for reading after its worktree is gone. Redacted, so not for applying."""
        try:
            changed = await worktree_changes.diff(tree, environ=self._environ)
        except (errors.LeadropeError, OSError) as error:
            log.warning("run %s: its changes could not be kept: %s", self._run.id[:8], error)
            return
        await self._service.store.add_artifact(self._run, CHANGES, "text/x-diff", redactor.clean(changed).encode())

    async def _keep(self, name: str, value: Worktree | Checkpoint | str) -> None:
        self._place[name] = msgspec.to_builtins(value)
        await self._service.store.set_place(self._run, self._place)


# -- after the run ----------------------------------------------------------------------------------------------------


def tree_of(place: Mapping[str, Any]) -> Worktree | None:
    return msgspec.convert(place["worktree"], Worktree) if "worktree" in place else None


async def _checkpoint_of(service: Service, run: RunInfo) -> Checkpoint:
    place = (await service.texts(run.id)).place
    if "checkpoint" not in place:
        told, hint = "changed no files, or checkpoints were switched off", f"See `leadrope runs show {run.id[:8]}`."
        if MISSING in place:
            raise errors.WrongState(f"run {run.id[:8]}: {place[MISSING]}", hint="Use --worktree next time, or git.")
        if "worktree" in place:
            told = "works in a worktree"
            hint = f"`leadrope runs discard {run.id[:8]}` removes the worktree with its changes."
        raise errors.WrongState(f"run {run.id[:8]} has no checkpoint: it {told}", hint=hint)
    return msgspec.convert(place["checkpoint"], Checkpoint)


async def _worktree_of(service: Service, run: RunInfo) -> Worktree:
    tree = tree_of((await service.texts(run.id)).place)
    if tree is None:
        raise errors.WrongState(f"run {run.id[:8]} has no worktree", hint="Start one with `leadrope run --worktree`.")
    return tree


def _ended(run: RunInfo) -> None:
    if run.state != "ended":
        raise errors.WrongState(f"run {run.id[:8]} has not ended", hint=f"`leadrope runs stop {run.id[:8]}` first.")


def of_next(place: Mapping[str, Any], *, is_resumed: bool) -> dict[str, Any]:
    """Return the place of a run that resumes or retries this one: the same worktree, or a new one; never the user's
    checkout.
    """
    found = {"wanted": {**place.get("wanted", {}), "branch": None}}
    if stored_secrets.FILES in place:
        found[stored_secrets.FILES] = place[stored_secrets.FILES]
    tree = tree_of(place)
    if is_resumed and tree is not None and Path(tree.path).is_dir():
        found["worktree"] = place["worktree"]
    return found


async def diff(service: Service, run: RunInfo) -> str:
    tree = tree_of((await service.texts(run.id)).place)
    if tree is not None:
        return await worktree_changes.diff(tree)
    kept = await service.store.artifact(run, CHANGES)
    if kept is not None:
        return kept.decode()
    return await checkpoint_diff.patch(await _checkpoint_of(service, run))


async def changed_files(service: Service, run: RunInfo) -> tuple[str, ...]:
    """The files that a run has changed, in its worktree or in the user's folder; none where that is not known."""
    place = (await service.texts(run.id)).place
    tree = tree_of(place)
    if tree is not None:
        return tuple(change.path for change in (await worktree_changes.stat(tree)).files)
    if "checkpoint" in place:
        return await checkpoint_diff.paths(await _checkpoint_of(service, run))
    return ()


def none_changed(place: Mapping[str, Any]) -> str:
    """Describe a run without known changed files; empty if it did nothing that could change one."""
    if MISSING in place:
        return f"not known: {place[MISSING]}"
    if "worktree" not in place and "checkpoint" not in place:
        return ""
    if "worktree" in place or msgspec.convert(place["checkpoint"], Checkpoint).kind == "git":
        return "none changed (files that git ignores are not compared)"
    return "none known: this is not a git repository, so changes by commands are not recorded"


async def readable_diff(service: Service, run: RunInfo) -> str:
    """What the run has changed in its worktree, without its secrets: to be read by others, not to be applied."""
    kept = await service.store.artifact(run, CHANGES)
    if kept is not None:
        return kept.decode()
    # It is still running. Its redactor is in another process; its session has the digests.
    session = home.sessions_dir(service.home) / (run.session_id or "")
    try:
        finder = session_secrets.finder(service.home, session)
    except session_secrets.Unknown as error:
        told = f"the secrets of the run are not known: {error}"
        raise errors.WrongState(told, hint="Wait until it has ended.") from None
    return finder.clean_text(await diff(service, run))


async def apply(service: Service, run: RunInfo, *, commits: bool = False) -> str:
    _ended(run)
    done = await worktree_changes.apply(await _worktree_of(service, run), home=service.home, commits=commits)
    count = len(done.written) + len(done.removed)
    told = f"merged {done.merged[:12]}" if done.merged else f"{count} files changed, nothing committed"
    return "\n".join([told, *(f"! {note}" for note in done.notes)])


async def discard(service: Service, run: RunInfo) -> str:
    _ended(run)
    gone = await worktrees.discard(await _worktree_of(service, run), home=service.home)
    place = {name: value for name, value in (await service.texts(run.id)).place.items() if name != "worktree"}
    await service.store.set_place(run, place)
    back = f"; `git branch {gone.branch} {gone.tip[:12]}` brings its commits back" if gone.tip else ""
    return "\n".join([f"worktree and branch {gone.branch} are gone{back}", *(f"! {note}" for note in gone.notes)])


async def undo(service: Service, run: RunInfo, *, dry_run: bool = False, force: bool = False) -> str:
    _ended(run)
    checkpoint = await _checkpoint_of(service, run)
    plan = await (checkpoints.describe(checkpoint) if dry_run else checkpoints.undo(checkpoint, force=force))
    if not dry_run and not plan.is_done:
        changed = ", ".join((*plan.changed_since, *plan.blocked)[:5])
        raise errors.WrongState(
            f"nothing was undone: {changed} changed after the run, or cannot be restored",
            hint="Look at them (`--dry-run`), or use --force.",
        )
    return _told(plan)


def _told(plan: RestorePlan) -> str:
    if plan.is_empty:
        return "nothing to undo"
    words = ("restored", "removed") if plan.is_done else ("would restore", "would remove")
    lines = [f"{words[0]}  {path}" for path in plan.restored] + [f"{words[1]}  {path}" for path in plan.removed]
    lines += [f"changed since  {path}" for path in plan.changed_since]
    return "\n".join([*lines, *(f"cannot be put back  {path}" for path in plan.blocked)])


async def sweep(service: Service) -> list[str]:
    """Remove worktrees and checkpoints whose run is unknown; returns descriptions of what was removed."""
    known: set[str] = set()
    cursor: int | None = None
    while page := await service.listing(Filter(before=cursor, limit=1000)):
        known.update(row.id for row in page)
        cursor = page[-1].n
    gone = await worktrees.prune(service.home, known)
    dropped = await checkpoints.prune(service.home / CHECKPOINTS, known)
    return [*(f"worktree of {tree.run_id[:8]}" for tree in gone), *(f"checkpoint of {name[:8]}" for name in dropped)]


async def has_work(service: Service, run: RunInfo) -> bool:
    """A worktree may hold what was never brought home."""
    return "worktree" in (await service.texts(run.id)).place


async def forget(service: Service, run: RunInfo) -> None:
    """Before a run is deleted: what lies outside of the store goes too."""
    place = (await service.texts(run.id)).place
    tree = tree_of(place)
    if tree is not None and tree.run_id == run.id:  # a run that continues another's work leaves the tree to it
        await worktrees.discard(tree, home=service.home)
    if "checkpoint" in place:
        await checkpoints.drop(msgspec.convert(place["checkpoint"], Checkpoint))
