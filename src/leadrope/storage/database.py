"""The database file: where it is, how it is opened, brought up to date and backed up; knows no run."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

from leadrope import errors
from leadrope.core import home

NAME = "leadrope.db"
APPLICATION = 0x1EAD409E
"""In the file's header, so that another program's database is never taken for ours."""
BUSY_S = 60.0
"""Another process holds the database for milliseconds; for this long only one that is stopped, or a disk that hangs."""
HURRIED_S = 1.0
"""For whoever is in a hurry: a write of another process takes milliseconds, and must not cost an event."""
TRY_MS = 200
"""Of one try at the lock of the writer, in which nothing else is heard."""
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


def open_(path: Path, migrations: Migrations, *, busy_s: float | None = None) -> sqlite3.Connection:
    """The writing connection: the file exists, is ours, and has the schema of this version.

    `busy_s`: how long a process that holds it is waited for.
    """
    home.ensure(path.parent)
    with contextlib.suppress(FileExistsError):
        _made_private(path)
    try:
        _look(path, migrations)
        connection = connect(path)
        try:
            _use_log(connection)
            _migrate(connection, path, migrations)
            connection.execute(f"pragma busy_timeout = {TRY_MS}")
            give_up = time.monotonic() + (BUSY_S if busy_s is None else busy_s)
            begin(connection, lambda: time.monotonic() > give_up)  # SQLite opens what it may only read without a word
            connection.execute("rollback")
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise named(error, path) from error
    return connection


def try_(path: Path, migrations: Migrations, *, busy_s: float = 1.0) -> None:
    """Raise what keeps the store from being used, if anything does."""
    open_(path, migrations, busy_s=busy_s).close()


def open_to_read(path: Path, migrations: Migrations) -> sqlite3.Connection:
    """A connection to a store that cannot be written: the disk is full or read-only, or it is another user's.

    Readers share a small file beside the database. Where it is missing and cannot be made, the database is read by this
    process alone, or as it lies there if it cannot change; a log that nobody has folded in is not seen then.
    """
    tries: tuple[tuple[str, bool], ...] = (("mode=ro", False), ("mode=rw", True), ("mode=ro&immutable=1", False))
    problem: sqlite3.Error | None = None
    for query, is_alone in tries:
        try:
            return _read_by(path, query, migrations, is_alone=is_alone)
        except sqlite3.Error as error:
            problem = problem or error
    if problem is None:
        raise AssertionError
    raise named(problem, path) from problem


def _read_by(path: Path, query: str, migrations: Migrations, *, is_alone: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?{query}", uri=True, isolation_level=None, timeout=5.0, check_same_thread=False
    )
    try:
        if is_alone:
            connection.execute("pragma locking_mode = exclusive")
        connection.execute("pragma temp_store = memory")
        connection.execute("pragma query_only = on")
        _check(connection, path, migrations)
        if (version := _number(connection, "user_version")) < migrations[-1][0]:
            raise errors.StoreUnreadable(
                f"{path} was written by an older leadrope (schema {version}) and cannot be brought up to date",
                hint="It has to be writable for that: check its owner and mode, and the free space of its disk.",
            )
    except BaseException:
        connection.close()
        raise
    return connection


def begin(connection: sqlite3.Connection, is_hurried: Callable[[], bool] = lambda: False) -> None:
    """A writer of another process is waited for here, and nowhere else: `immediate` takes the lock at once.

    Nobody waits longer than a moment from then on when `is_hurried` says so.
    """
    _patiently(connection, "begin immediate", is_hurried)


def named(error: sqlite3.Error, path: Path) -> errors.StoreError:
    """The database's words as ours."""
    match getattr(error, "sqlite_errorcode", 0) & 0xFF:
        case sqlite3.SQLITE_FULL:
            return errors.StoreFull(
                f"there is no space left for the run store {path}",
                hint="Free some space on that disk. `leadrope runs prune` deletes old runs.",
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


def add_functions(connection: sqlite3.Connection) -> None:
    """What migrations may call besides SQLite's own functions."""
    connection.create_function("inflate", 1, zlib.decompress, deterministic=True)


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


def _patiently(connection: sqlite3.Connection, statement: str, is_hurried: Callable[[], bool] = lambda: False) -> None:
    began = time.monotonic()
    while True:
        try:
            connection.execute(statement).close()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            if time.monotonic() - began > (HURRIED_S if is_hurried() else BUSY_S):
                raise
            time.sleep(0.005)
        else:
            return


def _migrate(connection: sqlite3.Connection, path: Path, migrations: Migrations) -> None:
    if _number(connection, "user_version") >= migrations[-1][0]:
        return
    # A table is changed by making it anew; dropping the old one must not delete what refers to it.
    connection.execute("pragma foreign_keys = off")
    add_functions(connection)
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
        if (row := connection.execute("pragma foreign_key_check").fetchone()) is not None:
            raise sqlite3.IntegrityError(f"a row of {row[0]} would refer to one of {row[2]} that is not there")
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback")
        raise
    connection.execute("pragma foreign_keys = on")


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
