"""Damaged lines: no crash, nothing lost, and everything that comes out can be stored.

The count comes from LEADROPE_FUZZ_COUNT; the seed is fixed, so a failure comes again.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from leadrope.core import events
from leadrope.core.fold import Fold
from leadrope.core.result import RunResult
from leadrope.process.lines import Several
from leadrope.providers.claude_code import decode

# Read at import: the tests' own environment has no LEADROPE_ variables.
COUNT = int(os.environ.get("LEADROPE_FUZZ_COUNT", "10000"))
SEED = 20261115
RECORDINGS = Path(__file__).parents[2] / "recordings"
VALUES: list[Any] = [None, True, False, 0, -1, 1.5, 10**30, "", "x", "\ud800", "401", [], {}, [None], {"type": "text"}]


def corpus() -> list[bytes]:
    lines = {line for path in RECORDINGS.glob("*/stdout.jsonl") for line in path.read_bytes().split(b"\n") if line}
    return sorted(lines)


def flip(line: bytes, other: bytes, rng: random.Random) -> bytes:
    data = bytearray(line)
    for _ in range(rng.randint(1, 4)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def truncate(line: bytes, other: bytes, rng: random.Random) -> bytes:
    return line[: rng.randrange(len(line))]


def duplicate(line: bytes, other: bytes, rng: random.Random) -> bytes:
    start, end = sorted((rng.randrange(len(line)), rng.randrange(len(line))))
    return line[:end] + line[start:end] + line[end:]


def splice(line: bytes, other: bytes, rng: random.Random) -> bytes:
    return line[: rng.randrange(len(line))] + other[rng.randrange(len(other)) :]


def swap(line: bytes, other: bytes, rng: random.Random) -> bytes:
    """Well-formed JSON with a value of another type somewhere inside, or a key that is gone."""
    root = json.loads(line)
    places: list[tuple[Any, Any]] = []
    todo = [root]
    while todo:
        node = todo.pop()
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            places.append((node, key))
            if isinstance(value, dict | list):
                todo.append(value)
    node, key = rng.choice(places)
    if isinstance(node, dict) and rng.random() < 0.2:
        del node[key]
    else:
        node[key] = rng.choice(VALUES)
    return json.dumps(root).encode()


MUTATIONS: list[Callable[[bytes, bytes, random.Random], bytes]] = [flip, truncate, duplicate, splice, swap, swap]


@pytest.mark.fault
def test_damaged_lines_never_crash_and_are_never_lost() -> None:
    rng = random.Random(SEED)
    lines = corpus()
    encode = msgspec.json.Encoder().encode
    decoder, state = decode.Decoder(), Fold("run")
    for number in range(COUNT):
        if number % 500 == 0:
            decoder, state = decode.Decoder(), Fold("run")
        line = rng.choice(MUTATIONS)(rng.choice(lines), rng.choice(lines), rng)
        silent = decoder.silent
        # A broken line may hold a line break: it is still one line here, as the framer would have cut it before.
        told = decoder.feed([line])
        assert told or decoder.silent == silent + 1, line
        for item in told:
            encode(item)
            state.add(item)  # type: ignore[arg-type]  # signals are ignored like any event that a result does not need
        if number % 500 == 499:
            result = state.result()
            assert msgspec.json.decode(encode(result), type=RunResult) == result


def test_a_damaged_line_leaves_its_neighbours_alone() -> None:
    rng = random.Random(SEED)
    lines = corpus()
    whole = b'{"type":"assistant","message":{"id":"m","content":[{"type":"text","text":"here"}]}}'
    for _ in range(200):
        damaged = flip(rng.choice(lines), b"", rng)
        told = decode.Decoder().feed([whole, damaged, whole])
        assert told[0] == told[-1] == events.MessageCompleted(text="here", message_id="m")
        in_one_piece = decode.Decoder().feed([Several(b"\n".join((whole, damaged, whole)) + b"\n")])
        assert in_one_piece[0] == in_one_piece[-1] == told[0]
