"""What must be redacted in a session's files, kept beside them as digests under a key of this machine.

LEADROPE_HOME/machine.key                32 random bytes, for this user alone, made once
LEADROPE_HOME/sessions/ID/secrets.json   the digests of all secrets that runs of the session have known

No sandbox shows either of them to an agent: of a session it sees the folder `config` alone.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from leadrope import errors
from leadrope.confined import Folder
from leadrope.core import home
from leadrope.core.secrets import secret_digests
from leadrope.core.secrets.redaction import Redactor
from leadrope.core.secrets.secret_digests import Digest, Finder

KEY, FILE = "machine.key", "secrets.json"
VERSION = 1
_MOST_BYTES = 16 * 1024 * 1024


class Kept(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What secrets.json holds."""

    version: int
    key: str
    """Which key the digests were made with, by `secret_digests.key_name`."""
    missing: str = ""
    """Why some secrets of the session are not among them; empty if all are."""
    digests: tuple[Digest, ...] = ()


class Unknown(Exception):
    """Why the secrets of a session cannot be told from its files."""


def remember(leadrope_home: Path, session: Path, redactor: Redactor, *, origin: Path | None = None) -> str:
    """Add a run's secrets to those of its session, before its agent starts; `origin`: the session that it is a fork of.

    Gives the reason if secrets of the session are from now on not known, else nothing. A file that lacks some of them
    must not stay: an export would rely on it.
    """
    try:
        return _add(machine_key(leadrope_home), session, redactor, origin)
    except (OSError, errors.UnsafeFile, errors.BadConfig) as error:
        with Folder.open(session, follows=False) as folder:
            folder.unlink(FILE)
        return f"the digests cannot be kept: {error.strerror or error}" if isinstance(error, OSError) else error.message


def _add(key: bytes, session: Path, redactor: Redactor, origin: Path | None) -> str:
    digests = set(secret_digests.of(redactor.spellings, key))
    missing = lost = ""
    for folder in (session, *([origin] if origin is not None else [])):
        if not _has_record(folder):
            continue
        try:
            kept = _read(folder, key)
        except Unknown as error:
            missing = lost = str(error)
        else:
            digests |= set(kept.digests)
            missing = missing or kept.missing
    write(key, session, digests, missing=missing)
    return lost


def write(key: bytes, session: Path, digests: Iterable[Digest] = (), *, missing: str = "") -> None:
    kept = Kept(
        version=VERSION,
        key=secret_digests.key_name(key),
        missing=missing,
        digests=tuple(sorted(digests, key=lambda one: one.digest)),
    )
    with Folder.open(session, follows=False) as folder:
        folder.replace(FILE, msgspec.json.encode(kept), syncs=True)


def finder(leadrope_home: Path, session: Path) -> Finder:
    """Finds all secrets that the session's runs have known; Unknown if that cannot be promised."""
    key = machine_key(leadrope_home)
    kept = _read(session, key)
    if kept.missing:
        raise Unknown(kept.missing)
    return Finder(key, kept.digests)


def machine_key(leadrope_home: Path) -> bytes:
    """Made by whoever needs it first. It is never replaced: the digests of all sessions depend on it."""
    path = leadrope_home / KEY
    with Folder.open(home.ensure(leadrope_home), hard_links=True) as folder:
        try:
            found = folder.read_bytes(KEY, most=1024)
        except FileNotFoundError:
            found = _new_key(folder)
        except (OSError, errors.UnsafeFile) as error:
            why = error.message if isinstance(error, errors.UnsafeFile) else f"it cannot be read: {error.strerror}"
            raise errors.BadConfig(f"{path}: {why}") from None
    if len(found) != secret_digests.KEY_BYTES:
        raise errors.BadConfig(
            f"{path} is damaged: it has {len(found)} bytes, not {secret_digests.KEY_BYTES}",
            hint="Restore it. If you delete it, exports of earlier sessions leave out the agent's own record.",
        )
    return found


def _new_key(folder: Folder) -> bytes:
    fresh = f".{KEY}-{os.urandom(8).hex()}"
    folder.write_new(fresh, os.urandom(secret_digests.KEY_BYTES))
    try:
        # Unlike a rename this gives the whole file its name, or fails because another process was first.
        with contextlib.suppress(FileExistsError):
            os.link(fresh, KEY, src_dir_fd=folder.fileno(), dst_dir_fd=folder.fileno(), follow_symlinks=False)
    finally:
        folder.unlink(fresh)
    return folder.read_bytes(KEY, most=1024)


def _has_record(session: Path) -> bool:
    """Whether an agent has worked in this session before."""
    return (session / FILE).exists() or (session / "session.json").exists()


def _read(session: Path, key: bytes) -> Kept:
    try:
        with Folder.open(session, follows=False) as folder:
            kept = msgspec.json.decode(folder.read_bytes(FILE, most=_MOST_BYTES), type=Kept)
        Finder(key, kept.digests)
    except FileNotFoundError:
        raise Unknown(f"{session / FILE} is missing") from None
    except OSError as error:
        raise Unknown(f"{session / FILE} cannot be read: {error.strerror}") from None
    except errors.UnsafeFile as error:
        raise Unknown(error.message) from None
    except (msgspec.MsgspecError, ValueError):
        raise Unknown(f"{session / FILE} is damaged") from None
    if kept.version != VERSION:
        raise Unknown(f"{session / FILE} has the format {kept.version}, which is not known here")
    if kept.key != secret_digests.key_name(key):
        raise Unknown(f"{session / FILE} was made with another machine.key")
    return kept
