"""Runs pytest as it is told to; of the tests that fail, a few are run once more, alone.

    .venv/bin/python setup/rerun_failed.py -n 4 tests/unit

Some sixteen thousand tests share two cores with thousands of real processes, and a machine that stalls for seconds can
fail one of them. A test that passes alone is listed as unstable, where nobody overlooks it: it is a defect, of the test
or of leadrope. One that fails again, and more than MOST failures, fail the whole.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

MOST = 3
TESTS_FAILED = 1
"""The exit code of pytest when some tests failed. With any other one, pytest itself could not do its work."""


def main(argv: Sequence[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="leadrope-pytest-") as folder:
        pytest = [sys.executable, "-m", "pytest", "-o", f"cache_dir={folder}"]
        code = subprocess.run([*pytest, *argv], check=False).returncode
        if code != TESTS_FAILED:
            return code
        failed = sorted(json.loads((Path(folder) / "v/cache/lastfailed").read_text(encoding="utf-8")))
        if len(failed) > MOST:
            return code
        print(f"\nleadrope: failed, and now run alone: {', '.join(failed)}", flush=True)
        code = subprocess.run([*pytest, *failed], check=False).returncode
    if code == 0:
        print(f"\nleadrope: UNSTABLE, because they passed only when they were run alone: {', '.join(failed)}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
