"""Lines in one piece, as a busy agent's pipe brings them: they mean what they mean one by one."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from leadrope.core import events
from leadrope.process.lines import LineFramer, Several
from leadrope.providers.claude_code import decode

RECORDINGS = Path(__file__).parents[2] / "recordings"
WHOLE = {path.parent.name: path.read_bytes() for path in sorted(RECORDINGS.glob("*/stdout.jsonl"))}
DAMAGED = (
    b"plain words",
    b'{"type":"system","subtype":"new_kind","n":1}',
    b'{"type":"new"}',
    b'{"type":"user"',
    b"\xff",
)
DEEP = b'{"type":"user","x":' + b"[" * 50_000 + b"]" * 50_000 + b"}"


def read(pieces: list[Any]) -> tuple[decode.Out, int, int]:
    decoder = decode.Decoder()
    return decoder.feed(pieces), decoder.lines, decoder.silent


def lines(data: bytes) -> list[Any]:
    return [line for line in data.split(b"\n") if line]


def framed(data: bytes, sizes: list[int]) -> list[Any]:
    """As the pipe might cut it: the middle of each chunk stays in one piece."""
    framer = LineFramer(spool_dir="/nonexistent")
    pieces: list[Any] = []
    at = 0
    for size in [*sizes, len(data)]:
        pieces += framer.feed_whole(data[at : at + size])
        at += size
    return [*pieces, *framer.close()]


@pytest.mark.parametrize("name", WHOLE)
def test_a_recording_in_pieces_says_the_same(name: str) -> None:
    data = WHOLE[name]
    expected = read(lines(data))
    assert read(framed(data, [])) == expected
    rng = random.Random(name)
    sizes = [rng.randrange(1, 20_000) for _ in range(200)]
    assert read(framed(data, sizes)) == expected


@pytest.mark.parametrize("damage", [*DAMAGED, DEEP], ids=range(len(DAMAGED) + 1))
def test_a_damaged_line_among_good_ones_costs_none_of_them(damage: bytes) -> None:
    good = lines(WHOLE["fail-e400"])
    for at in (0, len(good) // 2, len(good)):
        mixed = b"\n".join([*good[:at], damage, *good[at:]]) + b"\n"
        said, count, _ = read([Several(mixed)])
        assert (said, count) == read(lines(mixed))[:2]
        (kept,) = [item for item in said if isinstance(item, events.Unrecognised)]
        assert kept.size == len(damage)
        assert kept.raw == damage[: len(kept.raw)].decode("utf-8", "replace")


def test_each_unknown_line_of_several_is_kept_with_its_own_text() -> None:
    made = [json.dumps({"type": "system", "subtype": "new_kind", "n": n}).encode() for n in range(3)]
    said = decode.Decoder().feed([Several(b"\r\n".join(made) + b"\n\n")])
    assert [item.raw for item in said if isinstance(item, events.Unrecognised)] == [line.decode() for line in made]


def test_a_value_over_two_lines_loses_none_of_its_text() -> None:
    """Which line is whose is not known then; the whole piece is kept."""
    data = b'{"type":"system",\n"subtype":"new_kind","n":1}\n'
    (item,) = decode.Decoder().feed([Several(data)])
    assert isinstance(item, events.Unrecognised)
    assert "new_kind" in item.raw
    assert item.size == len(data)
