"""The page on workflows shows how a program runs one; what it shows is run as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[3] / "docs" / "workflows.md"
RELEASE = """# Release

## Inputs

### version

- type: string

## Steps

### ask

- type: approval
- message: Release ${version}?

### tag

- type: shell
- command: echo "v${version}"

## Outputs

### tag

- source: ${tag.stdout}
"""


def test_the_example_of_the_page(shop: Any) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    shop.write(RELEASE, "release.flow.md")
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=shop.ws,
        env=shop.environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    asked, ended = done.stdout.splitlines()
    assert re.fullmatch(r"ask asks: [0-9a-f]{12}-step-1", asked)
    assert ended == "succeeded {'tag': 'v1.4.0'}"
