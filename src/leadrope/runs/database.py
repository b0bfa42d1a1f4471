"""The database file: where it is, how it is opened, brought up to date and backed up; knows no run."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

from leadrope import errors
from leadrope.core import home
from leadrope.runs import statements

NAME = "leadrope.db"
APPLICATION = 0x1EAD409E
"""In the file's header, so that another program's database is never taken for ours."""
BUSY_S = 60.0
"""Another process holds the database for milliseconds; for this long only one that is stopped, or a disk that hangs."""
LOG_BYTES = 16 * 1024 * 1024
"""The write-ahead log is cut back to this after a burst; it would keep its greatest size otherwise."""

Migrations = Sequence[tuple[int, str]]


def path_in(leadrope_home: Path) -> Path:
    return leadrope_home / NAME


def connect(path: Path, *, read_only: bool = False, mode: str = "rw") -> sqlite3.Connection:
    """A connection in autocommit, with transactions said by name; any thread may close it. Makes no file."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        isolation_level=None,
        timeout=5.0,
        check_same_thread=False,
        cached_statements=256,
    )
    try:
        connection.execute("pragma foreign_keys = on")
        connection.execute("pragma temp_store = memory")
        connection.execute(f"pragma journal_size_limit = {LOG_BYTES}")
        if read_only:
            connection.execute("pragma query_only = on")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def open_(path: Path, migrations: Migrations | None = None) -> sqlite3.Connection:
    """The writing connection: the file exists, is ours, and has the schema of this version."""
    migrations = statements.migrations() if migrations is None else migrations
    home.ensure(path.parent)
    with contextlib.suppress(FileExistsError):
        _made_private(path)
    try:
        _look(path, migrations)
        connection = connect(path)
        try:
            _use_log(connection)
            _migrate(connection, path, migrations)
            begin(connection)  # SQLite opens what it may only read without a word
            connection.execute("rollback")
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise named(error, path) from error
    return connection


def begin(connection: sqlite3.Connection) -> None:
    """A writer of another process is waited for here, and nowhere else: `immediate` takes the lock at once."""
    _patiently(connection, "begin immediate")


def named(error: sqlite3.Error, path: Path) -> errors.StoreError:
    """The database's words as ours."""
    match getattr(error, "sqlite_errorcode", 0) & 0xFF:
        case sqlite3.SQLITE_FULL:
            return errors.StoreFull(
                f"there is no room for the run store {path}",
                hint="Make room on that disk, or `leadrope runs prune`; what waits goes on then.",
            )
        case sqlite3.SQLITE_IOERR:
            return errors.StoreFull(
                f"the run store {path} cannot be read or written: {error}", hint="Look at the disk; it may be full."
            )
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return errors.StoreBusy(
                f"the run store {path} is held by another process for longer than any write takes",
                hint="Look for a stopped leadrope process (ps), end it, and try again.",
            )
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return errors.StoreUnreadable(
                f"the run store {path} may not be written: {error}",
                hint="Check its owner and mode, those of its folder, and LEADROPE_HOME.",
            )
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return errors.StoreUnreadable(
                f"the run store {path} is damaged: {error}",
                hint=f"Nothing was overwritten. Move it away, or put a backup ({path.name}.v*.bak) in its place.",
            )
        case _:
            return errors.StoreError(f"the run store {path} refused: {error}")


def split(script: str) -> list[str]:
    """The statements of a script: `executescript` would end the transaction that they belong to."""
    found, current = [], ""
    for line in script.splitlines(keepends=True):
        current += line
        if sqlite3.complete_statement(current):
            found.append(current)
            current = ""
    if any(line.strip() and not line.lstrip().startswith("--") for line in current.splitlines()):
        raise ValueError(f"a script ends within a statement: {current.strip()[:80]}")
    return found


def _made_private(path: Path) -> None:
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        raise
    except OSError as error:
        raise errors.StoreUnreadable(
            f"the run store {path} cannot be made: {error.strerror}", hint="Set LEADROPE_HOME to a folder of yours."
        ) from None


def _look(path: Path, migrations: Migrations) -> None:
    """Whether it is ours, by a connection that cannot change it: closing a writing one may fold a foreign log in."""
    try:
        with contextlib.closing(connect(path, mode="ro")) as connection:
            _check(connection, path, migrations)
    except sqlite3.OperationalError as error:
        # A log that nobody has open, or a write that was cut off, may need a writer to be read at all.
        if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
            raise
        with contextlib.closing(connect(path)) as connection:
            _check(connection, path, migrations)


def _check(connection: sqlite3.Connection, path: Path, migrations: Migrations) -> None:
    connection.execute("begin")  # one look: another process may be making it at this moment
    is_empty = not connection.execute("select 1 from sqlite_schema limit 1").fetchone()
    version = _number(connection, "user_version")
    application = _number(connection, "application_id")
    connection.execute("rollback")
    newest = migrations[-1][0]
    if application != APPLICATION and not (is_empty and version == 0 and application == 0):
        raise errors.StoreUnreadable(
            f"{path} is another program's database", hint="Set LEADROPE_HOME to a folder of leadrope's own."
        )
    if version > newest:
        raise errors.StoreUnreadable(
            f"{path} was written by a newer leadrope (schema {version}; this one knows {newest})",
            hint="Update leadrope, or use another LEADROPE_HOME. Nothing was changed.",
        )


def _use_log(connection: sqlite3.Connection) -> None:
    """The change to a write-ahead log needs the file alone, and SQLite itself does not wait for that."""
    if connection.execute("pragma journal_mode").fetchone()[0] != "wal":
        _patiently(connection, "pragma journal_mode = wal")


def _patiently(connection: sqlite3.Connection, statement: str) -> None:
    give_up = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute(statement).close()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                raise
            time.sleep(0.005)
        else:
            return


def _migrate(connection: sqlite3.Connection, path: Path, migrations: Migrations) -> None:
    if _number(connection, "user_version") >= migrations[-1][0]:
        return
    begin(connection)
    try:
        # Looked at again inside: another process may have done it while this one waited.
        version = _number(connection, "user_version")
        if version and version < migrations[-1][0]:
            _back_up(path, path.with_name(f"{path.name}.v{version}.bak"))
        for number, script in migrations:
            if number > version:
                for statement in split(script):
                    connection.execute(statement)
                connection.execute(f"pragma user_version = {number}")
        connection.execute(f"pragma application_id = {APPLICATION}")
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback")
        raise


def _back_up(path: Path, target: Path) -> None:
    """A whole copy, beside it, of what is committed; written under another name first, so that half is never one.

    The caller holds the write lock, so nobody else makes one at the same time.
    """
    part = target.with_suffix(".part")
    part.unlink(missing_ok=True)
    _made_private(part)
    with contextlib.closing(connect(path, read_only=True)) as source, contextlib.closing(connect(part)) as copy:
        source.backup(copy)
    part.replace(target)


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"pragma {pragma}").fetchone()[0])
