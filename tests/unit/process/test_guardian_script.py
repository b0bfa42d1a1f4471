"""The guardian is run as it was compiled, if that is the source that lies there now."""

from __future__ import annotations

import os
import py_compile
from pathlib import Path

from leadrope.process import process_tree


def test_a_compiled_file_of_an_older_source_is_not_run(tmp_path: Path) -> None:
    """With PYTHONDONTWRITEBYTECODE an old one stays beside a new source, and the two need not fit together."""
    source, compiled = tmp_path / "script.py", tmp_path / "script.pyc"
    source.write_text("print(1)\n")
    assert not process_tree.is_of(str(compiled), str(source))
    py_compile.compile(str(source), str(compiled), invalidation_mode=py_compile.PycInvalidationMode.TIMESTAMP)
    assert process_tree.is_of(str(compiled), str(source))
    os.utime(source, (1, 1))
    assert not process_tree.is_of(str(compiled), str(source))
    py_compile.compile(str(source), str(compiled), invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)
    assert not process_tree.is_of(str(compiled), str(source))
    compiled.write_bytes(b"")
    assert not process_tree.is_of(str(compiled), str(source))
