"""Events of a stream come out whole, wherever the network cuts it."""

from __future__ import annotations

import pytest

from leadrope.net.sse import EventStream

RAW = b": hello\r\n\r\nevent: endpoint\r\ndata: /m\r\n\r\ndata: a\r\ndata:b\r\nid: 3\r\n\r\ndata: {}\n\n"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_come_out_whole_however_they_are_cut(size: int) -> None:
    stream = EventStream(1024)
    found = [event for at in range(0, len(RAW), size) for event in stream.feed(RAW[at : at + size])]
    assert found == [("endpoint", "/m"), ("message", "a\nb"), ("message", "{}")]


def test_an_event_that_is_cut_off_is_none() -> None:
    assert EventStream(1024).feed(b"data: half") == []
    assert EventStream(1024).feed(b"data: whole, but without its empty line\n") == []
