"""Lines of the debug trace: pieces of a streamed text are counted and not shown."""

from __future__ import annotations

import msgspec
import pytest

from leadrope.runtime.journal.trace_lines import without_pieces


@pytest.mark.parametrize(
    "delta",
    [
        {"type": "text_delta", "text": "opense"},
        {"type": "thinking_delta", "thinking": "opense"},
        {"type": "input_json_delta", "partial_json": '{"command":"opense'},
        {"content": [{"text": "opense"}]},
        "opense",
    ],
)
def test_pieces_are_not_shown(delta: object) -> None:
    line = msgspec.json.encode({"type": "stream_event", "event": {"delta": delta, "index": 3}, "uuid": "u-1"})
    shown = without_pieces(line)
    assert "opense" not in shown
    assert "characters)" in shown
    assert '"index":3' in shown
    assert "u-1" in shown


def test_an_escaped_name_is_the_same_name() -> None:
    assert "opense" not in without_pieces(b'{"\\u0064elta":{"text":"opense"}}')


@pytest.mark.parametrize("line", [b'{"delta":{"text":"opense', b'"delta" opense', b"[" * 100_000 + b'"delta"'])
def test_what_cannot_be_read_is_counted(line: bytes) -> None:
    assert without_pieces(line) == f"({len(line)} bytes that are not JSON)"


@pytest.mark.parametrize("line", [b'{"type":"assistant","text":"whole"}\n', b"no JSON at all \xff"])
def test_other_lines_stay_as_they_are(line: bytes) -> None:
    assert without_pieces(line) == line.decode(errors="replace").rstrip()
