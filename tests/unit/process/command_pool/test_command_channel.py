"""The supervisor's side of a worker, with a real socket to a peer that the test plays."""

from __future__ import annotations

import array
import asyncio
import errno
import marshal
import os
import socket
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from leadrope.process.child import Child
from leadrope.process.command_pool.channel import Channel, WorkerChannel
from leadrope.process.command_pool.client import CommandPool
from leadrope.process.command_pool.command import Ended, PoolCommand
from leadrope.process.command_pool.failures import CommandLost, NotStarted, worker_lost

BODY = {"argv": ["true"], "cwd": "/", "env": {}}


class Peer:
    """A worker, and the other end of its channel."""

    def __init__(self) -> None:
        ours, self.sock = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.rested: list[Ended | Exception] = []
        self.worker = WorkerChannel(
            asyncio.get_running_loop(),
            ours,
            "7",
            knows_code=False,
            on_rest=lambda _, ended: self.rested.append(ended),
        )

    def heard(self) -> tuple[bytes, int]:
        """A message, and how many descriptors came with it."""
        data, parts, _, _ = self.sock.recvmsg(65536, socket.CMSG_SPACE(64), socket.MSG_DONTWAIT)
        handles = [handle for _, _, raw in parts for handle in array.array("i", raw)]
        for handle in handles:
            os.close(handle)
        return data, len(handles)

    def says(self, *messages: bytes) -> None:
        for message in messages:
            self.sock.send(message)


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    peer = Peer()
    yield peer
    peer.worker.close()
    peer.sock.close()


@pytest.fixture
async def command() -> AsyncIterator[PoolCommand]:
    command = PoolCommand("3", BODY)
    yield command
    command.close()


async def ended(command: PoolCommand) -> None:
    async with asyncio.timeout(30):
        await command.until_ended()


async def test_a_command_goes_out_whole_and_comes_back_ended(peer: Peer, command: PoolCommand) -> None:
    assert peer.worker.take(command)
    words, handles = peer.heard()
    head, _, body = words.partition(b"\n")
    assert (head, marshal.loads(body), handles) == (b"RUN 3", BODY, 3)
    peer.says(b"ENDED 3 256 2 1")
    await ended(command)
    done = await command.finished(timed_out=False)
    assert (done.exit_code, done.leftovers, done.survivors) == (1, 2, 1)
    assert peer.rested == [Ended(1, 2, 1)]
    assert peer.worker.command is None


async def test_a_long_body_goes_as_a_file(peer: Peer) -> None:
    command = PoolCommand("4", {**BODY, "script": "x" * 100_000})
    assert peer.worker.take(command)
    assert peer.heard() == (b"FILE 4", 4)
    command.close()


@pytest.mark.parametrize(
    "word",
    [
        b"ENDED 9 0 0 0",
        b"ENDED",
        b"",
        b"\xff\xfe 3",
        b"ENDED 3 x 0 0",
        b"FAILED 3 ? cwd",
        b"ENDED 3 0",
        b"BEGUN 3 1 2 3",
    ],
)
async def test_what_makes_no_sense_is_taken_for_nothing(peer: Peer, command: PoolCommand, word: bytes) -> None:
    peer.worker.take(command)
    if word:
        peer.says(word)
    peer.says(b"ENDED 3 0 0 0")
    await ended(command)
    assert peer.rested == [Ended(0, 0, 0)]


async def test_what_was_not_started_says_why(peer: Peer, command: PoolCommand) -> None:
    peer.worker.take(command)
    peer.says(b"FAILED 3 2 program")
    await ended(command)
    with pytest.raises(NotStarted, match="no such program"):
        await command.finished(timed_out=False)
    assert isinstance(peer.rested[0], NotStarted)


async def test_what_a_worker_said_before_it_was_lost_counts(peer: Peer, command: PoolCommand) -> None:
    peer.worker.take(command)
    peer.says(b"noise", b"ENDED 3 0 0 0")
    peer.worker.lose(worker_lost(-9))
    assert (await command.finished(timed_out=False)).exit_code == 0


async def test_a_worker_that_was_lost_takes_its_command_along(peer: Peer, command: PoolCommand) -> None:
    peer.worker.take(command)
    peer.sock.close()
    await asyncio.sleep(0)
    assert not command.has_ended  # how it came to its end is the pool's to tell
    peer.worker.lose(worker_lost(-9))
    with pytest.raises(CommandLost, match="exit code -9"):
        await command.finished(timed_out=False)


async def test_a_worker_that_is_gone_refuses_and_the_command_can_go_to_another(
    peer: Peer, command: PoolCommand
) -> None:
    peer.sock.close()
    assert not peer.worker.take(command)
    other = Peer()
    assert other.worker.take(command)
    assert other.heard()[1] == 3
    other.worker.close()
    other.sock.close()


async def test_the_order_to_stop_names_its_command(peer: Peer, command: PoolCommand) -> None:
    signals: list[str] = []
    peer.worker.say_stop(lambda: signals.append("too early"))
    peer.worker.take(command)
    peer.worker.say_stop(lambda: signals.append("once it can be read"))
    assert signals == ["once it can be read"]
    assert peer.heard()[0].startswith(b"RUN 3\n")
    assert peer.heard() == (b"STOP 3", 0)
    with pytest.raises(BlockingIOError):
        peer.heard()


async def test_a_full_channel_keeps_the_order_and_no_descriptor_of_a_closed_command(
    peer: Peer, command: PoolCommand
) -> None:
    sent: list[int] = []
    channel = peer.worker._channel
    filler = b"x" * 50_000
    for number in range(20):
        channel.send(filler, on_sent=lambda number=number: sent.append(number))  # type: ignore[misc]
    assert len(sent) < 20
    assert peer.worker.take(command)
    command.close()
    heard: list[tuple[bytes, int]] = []
    async with asyncio.timeout(30):
        while len(heard) < 21:
            try:
                heard.append(peer.heard())
            except BlockingIOError:
                await asyncio.sleep(0.001)
    assert sent == list(range(20))
    assert [words for words, _ in heard[:20]] == [filler] * 20
    assert heard[20][0].startswith(b"RUN 3\n")
    assert heard[20][1] == 0  # their numbers may be another's by now


class Crowded(socket.socket):
    """Its kernel has too many descriptors on their way, twice."""

    left = 2

    def sendmsg(self, *words: Any) -> int:
        if self.left:
            self.left -= 1
            raise OSError(errno.ETOOMANYREFS, "too many references")
        return super().sendmsg(*words)


async def test_too_many_descriptors_on_their_way_are_waited_for(until: Any) -> None:
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel = Channel(asyncio.get_running_loop(), Crowded(fileno=ours.detach()))
    sent: list[str] = []
    channel.send(b"a", lambda: (its.fileno(),), lambda: sent.append("a"))
    channel.send(b"b", on_sent=lambda: sent.append("b"))
    assert sent == []
    await until(lambda: sent == ["a", "b"])
    assert ([its.recv(9) for _ in range(2)], channel.is_broken) == ([b"a", b"b"], False)
    channel.close()
    its.close()


async def test_what_was_unsent_when_a_channel_was_closed_is_dropped() -> None:
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel = Channel(asyncio.get_running_loop(), ours)
    dropped: list[int] = []
    for number in range(20):
        channel.send(b"x" * 50_000, on_sent=lambda number=number: dropped.append(number))  # type: ignore[misc]
    assert len(dropped) < 20
    channel.close()
    assert dropped == list(range(20))
    its.close()


async def test_a_worker_with_survivors_gets_no_other_command() -> None:
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pool = CommandPool(ours, cast("Child", None))
    for survivors in (0, 1):
        task = asyncio.create_task(pool.run(BODY))
        await asyncio.sleep(0)
        if not survivors:
            _, parts, _, _ = its.recvmsg(256, socket.CMSG_SPACE(16))
            worker = socket.socket(fileno=array.array("i", parts[0][2])[0])
        name = worker.recv(65536).split(b"\n")[0].split()[1]
        worker.send(b"ENDED %s 0 1 %d" % (name, survivors))
        assert (await task).survivors == survivors
    assert worker.recv(256, socket.MSG_DONTWAIT) == b""  # its end
    pool._lose()
    worker.close()
    its.close()


async def test_what_cannot_be_sent_any_more_is_dropped(peer: Peer) -> None:
    dropped: list[str] = []
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel = Channel(asyncio.get_running_loop(), ours)
    its.close()
    channel.send(b"a", on_sent=lambda: dropped.append("a"))
    channel.send(b"b", on_sent=lambda: dropped.append("b"))
    assert (dropped, channel.is_broken) == (["a", "b"], True)
    channel.close()
