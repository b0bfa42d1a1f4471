"""The label of runs and executions whose model was a script: nobody has paid for them."""

from __future__ import annotations

from collections.abc import Mapping

from leadrope.core.secrets.redaction import Secret

LABEL = "leadrope"
REHEARSAL = "rehearsal"
DEMO = "demo"
LABELS = {LABEL: REHEARSAL}
# Never a real one: the model that it is shown to is a script of ours.
KEY = Secret("sk-ant-rehearsal-0000000000")


def is_rehearsed(labels: Mapping[str, str]) -> bool:
    return labels.get(LABEL) in (REHEARSAL, DEMO)
