"""The package's face: what `__all__` names is there, and importing it costs next to nothing."""

from __future__ import annotations

import subprocess
import sys

import leadrope


def test_every_public_name_is_there() -> None:
    for name in leadrope.__all__:
        assert getattr(leadrope, name) is not None, name
    assert set(leadrope.__all__) == {*leadrope._HOMES, "__version__"}
    assert sorted(leadrope.__all__) == leadrope.__all__


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = (
        "import sys, leadrope; print(*sorted(m for m in sys.modules if m in {'msgspec', 'asyncio', 'yaml', 'click'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
