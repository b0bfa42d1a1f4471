"""Every example of docs/output.md is run as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

from leadrope.core import result
from leadrope.core.cost import usage

PAGE = (Path(__file__).parents[2] / "docs" / "output.md").read_text()


@pytest.mark.parametrize("code", re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
def test_python(stage: Any, code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=stage.ws, env=stage.environ, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_rung_and_every_kind_of_warning_is_told() -> None:
    for rung in get_args(result.Rung):
        assert f"| `{rung}` |" in PAGE
    named = {name: value for name, value in vars(result).items() if str(value).startswith("claude_code.")}
    assert len(named) == 5
    for kind in named.values():
        assert f"| `{kind}` |" in PAGE


def test_every_field_of_the_usage_is_told() -> None:
    for name in (*usage.LlmUsage.__struct_fields__, *usage.Totals.__struct_fields__):
        assert f"`{name}`" in PAGE or name in ("retries", "attempts"), name
