"""How many everyday commands a person is asked about: by mode, without and with a sandbox."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from stage import HERE, Stage
from tables import Row, Table

sys.path.append(str(HERE.parent / "tests" / "aids"))

import everyday_commands

MOST_PERCENT = {("edit", False): 60.0, ("edit", True): 60.0, ("sandboxed", True): 5.0, ("full", True): 5.0}


def measure(stage: Stage) -> Table:
    with tempfile.TemporaryDirectory(prefix="leadrope-bench-") as folder:
        found = list(everyday_commands.shares(Path(folder)))
    rows = [
        Row(
            what=f"{share.mode}, {'sandbox' if share.sandboxed else 'no sandbox'}",
            measured=share.percent,
            unit="%",
            bar=MOST_PERCENT.get((share.mode, share.sandboxed)),
            note=f"{len(share.asked)} of {share.of} commands; {len(share.asked_reads)} of those that only read",
        )
        for share in found
    ]
    return Table(title="(l) everyday commands that need a person", rows=tuple(rows))
