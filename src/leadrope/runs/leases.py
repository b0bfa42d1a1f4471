"""Who is alive: an owner process holds a lock on a file of its own for as long as it lives, whatever ends it."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import sys
import time
from pathlib import Path

from leadrope import errors
from leadrope.core import home
from leadrope.runs.records.values import Owner

FOLDER = "owners"


def boot_id() -> str:
    """Changes with every start of the machine, so that a pid of before is never taken for one of now."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


class Lease:
    """Taken when made. The lock goes with the process: kill -9 gives it back as surely as `release`."""

    def __init__(self, leadrope_home: Path, kind: str) -> None:
        folder = home.ensure(leadrope_home / FOLDER)
        self.owner = Owner(
            id=f"{kind}-{secrets.token_hex(6)}", pid=os.getpid(), boot=boot_id(), kind=kind, started=time.time()
        )
        self.path = folder / f"{self.owner.id}.lock"
        try:
            self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise unusable(self.path, error) from None
        try:
            if not _lock(self._handle, shared=False):
                raise errors.StoreError(f"the lease {self.path} is taken", hint="Try again.")
            os.write(self._handle, f"{self.owner.pid}\n".encode())
        except OSError as error:
            self.release()
            raise unusable(self.path, error) from None
        except errors.StoreError:
            self.release()
            raise

    def release(self) -> None:
        if self._handle >= 0:
            self.path.unlink(missing_ok=True)
            os.close(self._handle)
            self._handle = -1


def is_alive(leadrope_home: Path, owner: Owner) -> bool:
    """Whether that process still lives. Asking does not disturb it, nor others who ask."""
    if owner.boot != boot_id():
        return False
    try:
        handle = os.open(leadrope_home / FOLDER / f"{owner.id}.lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise unusable(leadrope_home / FOLDER / f"{owner.id}.lock", error) from None
    try:
        return not _lock(handle, shared=True)
    finally:
        os.close(handle)


def forget(leadrope_home: Path, owner: Owner) -> None:
    (leadrope_home / FOLDER / f"{owner.id}.lock").unlink(missing_ok=True)


class Exclusive:
    """One process at a time, for as long as it is held: `with Exclusive(path) as held: if held: …`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle = -1

    def __enter__(self) -> bool:
        home.ensure(self._path.parent)
        try:
            self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise unusable(self._path, error) from None
        return _lock(self._handle, shared=False)

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            os.close(self._handle)


def unusable(path: Path, error: OSError) -> errors.StoreError:
    """A file of the store that cannot be opened or written, as an error that names it."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return errors.StoreFull(
            f"there is no space left for {path}",
            hint="Free some space on that disk. `leadrope runs prune` deletes old runs.",
        )
    return errors.StoreUnreadable(
        f"{path} cannot be opened or written: {error.strerror}",
        hint="Check its owner and mode, those of its folder, and LEADROPE_HOME.",
    )


def _lock(handle: int, *, shared: bool) -> bool:
    if sys.platform == "win32":
        raise errors.StoreError(
            "the run store needs file locks that this system does not have", hint="Use Linux or macOS."
        )
    import fcntl  # noqa: PLC0415  # absent on Windows

    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        # Some network disks have no locks. Taken for "held", every dead owner would live for ever.
        raise errors.StoreError(
            f"the disk of the run store cannot lock files: {error.strerror}", hint="Set LEADROPE_HOME to a local disk."
        ) from error
    return True
