"""Framing gives the same lines wherever the bytes are cut, bounds memory, and never loses its place."""

from __future__ import annotations

import itertools
import stat
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadrope.process.lines import HeadAndTail, Line, LineFramer, Spooled


def framed(chunks: list[bytes], folder: str, *, limit: int = 12, spool_from: int = 6) -> list[bytes | int]:
    """Lines as bytes; a spooled one as its size, after a look into its file."""
    framer = LineFramer(spool_dir=folder, limit=limit, spool_from=spool_from)
    lines: list[Line] = []
    for chunk in chunks:
        lines += framer.feed(chunk)
    lines += framer.close()
    plain: list[bytes | int] = []
    for line in lines:
        if isinstance(line, Spooled):
            assert len(Path(line.path).read_bytes()) == line.size
            Path(line.path).unlink()
            plain.append(line.size)
        else:
            plain.append(bytes(line))
    assert list(Path(folder).iterdir()) == []
    return plain


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"\n\n\n", []),
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\nb", [b"a", b"b"]),
        (b"a\r\nb\r\n", [b"a", b"b"]),
        (b"a\r\r\n", [b"a\r"]),
        (b"\r\n\r\n", []),
        (b"a\rb\n", [b"a\rb"]),
        ("a\u2028b\x0bc\n".encode(), ["a\u2028b\x0bc".encode()]),
        (b"\xff\xfe\x00\n", [b"\xff\xfe\x00"]),
        (b"123456\n1234567\n123456789012\n", [b"123456", b"1234567", b"123456789012"]),
    ],
    ids=repr,
)
def test_lines_end_at_newline_alone(data: bytes, expected: list[bytes], tmp_path: Path) -> None:
    assert framed([data], str(tmp_path)) == expected


_bytes = st.lists(st.sampled_from([b"a", b"\n", b"\r", b"\r\n", b"long line ", b"\xe2\x80\xa8"]), max_size=40)


@given(parts=_bytes, cuts=st.lists(st.integers(0, 200), max_size=12))
def test_cutting_the_bytes_anywhere_gives_the_same_lines(parts: list[bytes], cuts: list[int]) -> None:
    data = b"".join(parts)
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    chunks = [data[a:b] for a, b in itertools.pairwise(places)]
    stripped = [line[:-1] if line.endswith(b"\r") else line for line in data.split(b"\n")]
    with tempfile.TemporaryDirectory() as folder:
        # A limit that nothing reaches, and one that many lines pass on their way through a file.
        assert framed(chunks, folder, limit=10**6, spool_from=10**6) == [line for line in stripped if line]
        assert framed(chunks, folder) == [line if len(line) <= 12 else len(line) for line in stripped if line]


@given(sizes=st.lists(st.integers(1, 40), max_size=8), step=st.integers(1, 7), ending=st.sampled_from([b"\n", b"\r\n"]))
def test_a_line_over_the_limit_is_a_file_and_the_next_line_is_untouched(
    sizes: list[int], step: int, ending: bytes
) -> None:
    data = b"".join(b"x" * size + ending for size in sizes)
    chunks = [data[at : at + step] for at in range(0, len(data), step)]
    with tempfile.TemporaryDirectory() as folder:
        expected = [b"x" * size if size <= 12 else size for size in sizes]
        assert framed(chunks, folder) == expected


def test_a_line_of_64_mib_is_held_and_one_byte_more_is_a_file(tmp_path: Path) -> None:
    framer = LineFramer(spool_dir=str(tmp_path))
    mib = b"x" * 2**20
    for _ in range(64):
        assert framer.feed(mib) == []
    (held,) = framer.feed(b"\n")
    assert isinstance(held, bytearray)
    assert len(held) == 64 * 2**20
    del held
    for _ in range(64):
        assert framer.feed(mib) == []
    (spooled,) = framer.feed(b"x\n")
    assert isinstance(spooled, Spooled)
    assert spooled.size == 64 * 2**20 + 1
    Path(spooled.path).unlink()


def test_a_spooled_line_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    framer = LineFramer(spool_dir=str(tmp_path), limit=4, spool_from=2)
    (line,) = framer.feed(b"secret text\n")
    assert isinstance(line, Spooled)
    assert stat.S_IMODE(Path(line.path).stat().st_mode) == 0o600
    assert Path(line.path).read_bytes() == b"secret text"
    assert framer.feed(b"next\n") == [b"next"]


def test_a_missing_spool_folder_costs_the_content_but_not_the_framing(tmp_path: Path) -> None:
    framer = LineFramer(spool_dir=str(tmp_path / "gone"), limit=20, spool_from=2)
    framer.feed(b"abcd")
    assert framer.feed(b"ef\r\nnext\n") == [Spooled(path="", size=6), b"next"]


def test_a_full_disk_costs_the_content_but_not_the_framing(tmp_path: Path) -> None:
    """/dev/full says ENOSPC to every write, as a full disk does."""
    framer = LineFramer(spool_dir=str(tmp_path), limit=8, spool_from=2)
    framer.feed(b"abcd")
    spool = framer._spool
    assert spool is not None
    assert spool._file is not None
    spool._file.close()
    spool._file = open("/dev/full", "r+b", buffering=0)  # noqa: SIM115, PTH123
    framer.feed(b"e" * 100)
    assert framer.feed(b"f\nnext\n") == [Spooled(path="", size=105), b"next"]
    assert list(tmp_path.iterdir()) == []


def test_an_endless_line_does_not_fill_the_disk(tmp_path: Path) -> None:
    framer = LineFramer(spool_dir=str(tmp_path), limit=8, spool_from=2, spool_limit=50)
    for _ in range(30):
        framer.feed(b"abcd")
    assert list(tmp_path.iterdir()) == []
    assert framer.feed(b"\nnext\n") == [Spooled(path="", size=120), b"next"]


def test_stderr_keeps_its_first_and_last_lines() -> None:
    seen: list[str] = []
    kept = HeadAndTail(head=2, tail=3, width=8, on_line=seen.append)
    for chunk in (b"one\ntw", b"o\r\n\nthree\n", b"\xff four is long\n", b"fi", b"ve"):
        kept.feed(chunk)
    kept.close()
    assert kept.head == ("one", "two")
    assert kept.tail == ("three", "\ufffd four is"[:8], "five")
    assert seen == ["one", "two", "three", "\ufffd four i", "five"]
