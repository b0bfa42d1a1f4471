"""Who is alive, as the lock says: whatever ended a process, and without disturbing one that lives."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from leadrope import errors
from leadrope.runs import leases
from leadrope.runs.records.values import Owner

PROGRAM = Path(__file__).parents[2] / "data" / "store_process.py"


@contextmanager
def other_owner(folder: Path) -> Iterator[tuple[subprocess.Popen[str], Owner]]:
    command = [sys.executable, str(PROGRAM), "hold_lease", str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        _, id_, pid, boot = process.stdout.readline().split()
        try:
            yield process, Owner(id=id_, pid=int(pid), boot=boot, kind="test", started=0.0)
        finally:
            process.kill()


def test_an_owner_lives_until_it_is_killed(tmp_path: Path) -> None:
    with other_owner(tmp_path) as (process, owner):
        # Asked again and again, and by two at once: the answer is a look, not a lock.
        assert [leases.is_alive(tmp_path, owner) for _ in range(20)] == [True] * 20
        process.kill()
        process.wait()
        assert [leases.is_alive(tmp_path, owner) for _ in range(3)] == [False] * 3


def test_an_owner_that_ends_by_itself_is_gone(tmp_path: Path) -> None:
    with other_owner(tmp_path) as (process, owner):
        process.communicate("go\n")
        assert not leases.is_alive(tmp_path, owner)


def test_an_owner_of_before_the_last_start_of_the_machine_is_dead(tmp_path: Path) -> None:
    lease = leases.Lease(tmp_path, "test")
    assert leases.is_alive(tmp_path, lease.owner)
    assert not leases.is_alive(tmp_path, msgspec.structs.replace(lease.owner, boot="another"))
    lease.release()


def test_a_lease_that_was_given_back(tmp_path: Path) -> None:
    lease = leases.Lease(tmp_path, "test")
    assert stat.S_IMODE(lease.path.stat().st_mode) == 0o600
    assert lease.path.read_text() == f"{os.getpid()}\n"
    lease.release()
    lease.release()
    assert not leases.is_alive(tmp_path, lease.owner)
    assert not lease.path.exists()


def test_a_child_that_is_started_does_not_hold_the_lease_of_its_parent(tmp_path: Path) -> None:
    """An agent that outlives its owner must not make the owner look alive."""
    lease = leases.Lease(tmp_path, "test")
    command = [sys.executable, "-c", "print('up', flush=True); input()"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, close_fds=False) as child:
        assert child.stdout is not None
        # Its own word: for a moment after the start it still has what is closed at the exec.
        assert child.stdout.readline() == b"up\n"
        os.close(lease._handle)
        lease._handle = -1
        assert not leases.is_alive(tmp_path, lease.owner)
        child.communicate(b"\n")


def test_what_a_dead_owner_leaves_is_removed_by_name(tmp_path: Path) -> None:
    with other_owner(tmp_path) as (process, owner):
        process.kill()
        process.wait()
        leases.forget(tmp_path, owner)
        leases.forget(tmp_path, owner)
        assert list((tmp_path / leases.FOLDER).iterdir()) == []


def test_one_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "some" / "lock"
    with leases.Exclusive(path) as first:
        with leases.Exclusive(path) as second:
            assert (first, second) == (True, False)
        with leases.Exclusive(path) as third:
            assert not third
    with leases.Exclusive(path) as again:
        assert again


def test_a_disk_without_locks_is_told_and_not_taken_for_a_living_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno
    import fcntl

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    lease = leases.Lease(tmp_path, "test")
    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(errors.StoreError, match="cannot lock files"):
        leases.is_alive(tmp_path, lease.owner)
    lease.release()
