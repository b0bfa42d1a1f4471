"""What the system refuses reaches the user as a sentence, not as a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from leadrope.cli import main as program


def test_an_error_of_the_system_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sessions").write_text("not a folder")
    monkeypatch.setenv("LEADROPE_HOME", str(tmp_path))
    monkeypatch.delenv("LEADROPE_DEBUG", raising=False)
    assert program.main(["sessions", "list"]) == 1
    told = capsys.readouterr().err
    assert told.startswith("leadrope: ")
    assert f"{tmp_path}/sessions" in told
    assert "LEADROPE_DEBUG=1" in told
    monkeypatch.setenv("LEADROPE_DEBUG", "1")
    with pytest.raises(NotADirectoryError):
        program.main(["sessions", "list"])
