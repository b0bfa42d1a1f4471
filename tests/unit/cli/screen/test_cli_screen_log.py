"""Log records on a screen that is gone."""

from __future__ import annotations

import logging
import os
import sys

import pytest

from leadrope.cli.screen.screen import Screen, ScreenLog


def test_a_record_that_nobody_can_read_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run once never ended, because its failure was logged to a pipe whose reader had died."""
    reader, writer = os.pipe()
    os.close(reader)
    nobody = os.fdopen(writer, "w", buffering=1)
    monkeypatch.setattr(sys, "stderr", nobody)
    screen = Screen(sys.stdout, nobody, colour=False, width=80, is_live=False)
    with pytest.raises(BrokenPipeError):
        screen.line("nobody reads this")
    ScreenLog(screen).emit(logging.LogRecord("leadrope.runs", logging.ERROR, __file__, 1, "it failed", None, None))
    with pytest.raises(BrokenPipeError):
        nobody.close()
